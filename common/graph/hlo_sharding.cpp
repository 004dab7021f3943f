#include "common/graph/hlo_sharding.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/printable.h"
#include "common/graph/text_scanner.h"

namespace automap::graph {
namespace {

constexpr int kMaxNesting = 8;
constexpr std::int64_t kMostDevices = std::int64_t{1} << 31;
constexpr int kShownColumns = 40;

class Reader : internal::TextScanner {
 public:
  explicit Reader(std::string_view text) : TextScanner(text, true) {}

  // Empty when all of the text is one sharding.
  std::string run(HloSharding* out) {
    if (!sharding(out, 0)) return problem_;
    return at_end() ? "" : "goes on behind its '}'";
  }

 private:
  bool fail(const std::string& problem) {
    if (problem_.empty()) problem_ = problem;
    return false;
  }
  bool number(std::int64_t* out) {
    skip_blanks();
    const std::size_t begin = at_;
    *out = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      *out = *out * 10 + (text_[at_++] - '0');
      if (*out > kMostDevices) return fail("has a number above 2^31");
    }
    return at_ > begin || fail("lacks a number");
  }
  bool numbers(char close, std::vector<std::int64_t>* out) {
    do {
      out->emplace_back();
      if (!number(&out->back())) return false;
    } while (take(","));
    return take(close) || fail(std::string("lacks a '") + close + "'");
  }
  static std::int64_t product(const std::vector<std::int64_t>& extents) {
    std::int64_t all = 1;
    for (const std::int64_t e : extents) all = std::min(kMostDevices, all * std::min(e, kMostDevices));
    return all;
  }
  // Behind a known word: anything up to the sharding's '}'.
  bool rest() {
    int depth = 0;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '}' && depth == 0) {
        ++at_;
        return true;
      }
      if (c == '{' || c == '[' || c == '(') ++depth;
      if (c == '}' || c == ']' || c == ')') --depth;
    }
    return fail("is not closed");
  }

  bool sharding(HloSharding* out, int depth) {
    if (!take("{")) return fail("does not start with '{'");
    if (depth == kMaxNesting) return fail("is nested too deeply");
    if (peek('{') || peek('}')) {
      out->kind = HloSharding::Kind::kTuple;
      while (!take("}")) {
        out->elements.emplace_back();
        if (!sharding(&out->elements.back(), depth + 1)) return false;
        if (!take(",") && !peek('}')) return fail("lacks ',' or '}' between its elements");
      }
      return true;
    }
    const std::string_view kind = word();
    if (kind == "devices") return take("=") ? tiled(out) : fail("lacks '=' behind devices");
    if (kind == "maximal") {
      out->kind = HloSharding::Kind::kMaximal;
      std::int64_t device = 0;
      if (!take("device") || !take("=") || !number(&device)) return fail("lacks device=NUMBER behind maximal");
      return rest();
    }
    if (kind == "device") {
      out->kind = HloSharding::Kind::kMaximal;
      std::int64_t device = 0;
      return take("=") && number(&device) && rest();
    }
    if (kind == "mesh" || kind == "axes") {
      out->kind = HloSharding::Kind::kMesh;
      const std::size_t begin = at_;
      if (!rest()) return false;
      read_mesh(text_.substr(begin, at_ - 1 - begin), out);
      return true;
    }
    out->kind = kind == "manual"    ? HloSharding::Kind::kManual
                : kind == "unknown" ? HloSharding::Kind::kUnknown
                                    : HloSharding::Kind::kReplicated;
    constexpr std::string_view kOther[] = {"replicated", "manual",    "unknown",
                                           "unreduced",  "metadata",  "last_tile_dim_replicate",
                                           "shard_as",   "shard_like"};
    if (std::find(std::begin(kOther), std::end(kOther), kind) == std::end(kOther)) {
      return fail("says neither devices=[...] nor replicated, maximal, manual or unknown");
    }
    return rest();
  }

  // "['x'=4,'y'=2], device_ids=(...), [{'x'}, {}], replicated={'y'}"; nothing is known of other forms.
  static void read_mesh(std::string_view text, HloSharding* out) {
    const std::size_t end = text.find(']');
    const std::size_t dims = end == std::string_view::npos ? end : text.find(", [{", end);
    const std::size_t none = end == std::string_view::npos ? end : text.find(", []", end);
    const std::size_t begin = std::min(dims, none);
    if (begin == std::string_view::npos) return;
    read_named_split(text.substr(begin + 2), text.substr(0, end + 1), &out->split);
  }

  // Behind "last_tile_dims": "={manual, replicated}". XLA knows no other kinds, and takes an empty list.
  bool last_tile_dims(HloSharding* out) {
    if (!take("=") || !take("{")) return fail("lacks {...} behind last_tile_dims=");
    if (take("}")) return true;
    constexpr std::string_view kKinds[] = {"replicated", "manual", "maximal", "unreduced"};
    do {
      const std::string_view kind = word();
      if (kind.empty()) return fail("lacks the kind of a subgroup");
      if (std::find(std::begin(kKinds), std::end(kKinds), kind) == std::end(kKinds)) {
        return fail("has '" + excerpt(kind, kShownColumns) +
                    "' among its last_tile_dims, expected replicated, manual, maximal or unreduced");
      }
      ++out->subgroups;
    } while (take(","));
    return take("}") || fail("lacks a '}' behind last_tile_dims");
  }

  // "[2,4]<=[8]T(1,0) last_tile_dim_replicate}" or "[2,2]0,1,2,3}"
  bool tiled(HloSharding* out) {
    out->kind = HloSharding::Kind::kTiled;
    if (!take("[") || !numbers(']', &out->tiles)) return fail("lacks a list of tiles behind devices=");
    const std::int64_t tiles = product(out->tiles);
    if (tiles < 1) return fail("has a tile count of 0");
    std::vector<std::int64_t> extents, order, devices;
    if (take("<=")) {
      if (!take("[") || !numbers(']', &extents)) return fail("lacks a list of numbers behind <=");
      if (product(extents) != tiles) {
        return fail("puts " + std::to_string(tiles) + " tiles on " + std::to_string(product(extents)) + " devices");
      }
      if (take("T")) {
        if (!take("(") || !numbers(')', &order)) return fail("lacks a list of numbers behind T");
        std::vector<std::int64_t> sorted = order;
        std::sort(sorted.begin(), sorted.end());
        for (std::size_t i = 0; i < sorted.size(); ++i) {
          if (sorted.size() != extents.size() || sorted[i] != static_cast<std::int64_t>(i)) {
            return fail("has an order behind T that is none of its " + std::to_string(extents.size()) + " extents");
          }
        }
      }
    } else {
      std::set<std::int64_t> seen;
      std::int64_t count = 0;
      do {
        std::int64_t device = 0;
        if (!number(&device)) return false;
        devices.push_back(device);
        ++count;
        if (!seen.insert(device).second) return fail("names device " + std::to_string(device) + " twice");
      } while (take(","));
      if (count != tiles) {
        return fail("puts " + std::to_string(tiles) + " tiles on " + std::to_string(count) + " devices");
      }
    }
    bool subgroups = false;
    while (!peek('}')) {
      const std::string_view field = word();
      const bool replicate = field == "last_tile_dim_replicate";
      if ((replicate || field == "last_tile_dims") && std::exchange(subgroups, true)) {
        return fail("says twice what its last tiles are");
      }
      if (replicate) {
        out->subgroups = 1;
      } else if (field == "last_tile_dims") {
        if (!last_tile_dims(out)) return false;
      } else if (field == "metadata" || field == "shard_as" || field == "shard_like") {
        break;
      } else {
        return fail("has something unknown behind its devices");
      }
    }
    if (out->subgroups > out->tiles.size()) {
      return fail("has " + std::to_string(out->subgroups) + " subgroups for " + std::to_string(out->tiles.size()) +
                  " tile dimensions");
    }
    if (tiles < kMostDevices) {
      out->split = devices.empty() ? split_of_iota(out->tiles, out->subgroups, extents, order)
                                   : split_of_list(out->tiles, out->subgroups, devices);
    }
    return rest();
  }

  std::string problem_;
};

void leaves_of(const Graph& graph, ShapeId id, std::vector<ShapeId>* out) {
  const Shape& shape = graph.shape(id);
  if (!shape.is_tuple()) {
    out->push_back(id);
    return;
  }
  for (const ShapeId element : shape.elements) leaves_of(graph, element, out);  // nesting is limited by the readers
}

void flatten(const HloSharding& sharding, std::vector<const HloSharding*>* out) {
  if (sharding.kind != HloSharding::Kind::kTuple) {
    out->push_back(&sharding);
    return;
  }
  for (const HloSharding& element : sharding.elements) flatten(element, out);
}

}  // namespace

bool HloSharding::splits() const {
  if (kind == Kind::kMesh) return true;
  for (std::size_t d = 0; d + subgroups < tiles.size(); ++d) {
    if (tiles[d] > 1) return true;
  }
  return std::any_of(elements.begin(), elements.end(), [](const HloSharding& e) { return e.splits(); });
}

std::string read_sharding(std::string_view raw, HloSharding* out) {
  return Reader(raw).run(out);
}

std::string sharding_misfit(const Graph& graph, const HloSharding& sharding, ShapeId id) {
  std::vector<ShapeId> leaves;
  leaves_of(graph, id, &leaves);
  std::vector<const HloSharding*> parts;
  flatten(sharding, &parts);
  if (sharding.kind == HloSharding::Kind::kTuple && parts.size() != std::max<std::size_t>(1, leaves.size())) {
    return "has " + std::to_string(parts.size()) + " elements for " + std::to_string(leaves.size()) + " arrays";
  }
  if (sharding.kind != HloSharding::Kind::kTuple) parts.assign(leaves.size(), &sharding);
  for (std::size_t k = 0; k < leaves.size(); ++k) {
    const HloSharding& part = *parts[k];
    const Shape& shape = graph.shape(leaves[k]);
    if (part.kind != HloSharding::Kind::kTiled || !shape.is_array()) continue;
    if (part.tiles.size() != shape.dims.size() + part.subgroups) {
      return "has " + std::to_string(part.tiles.size() - std::min(part.tiles.size(), part.subgroups)) +
             " tile dimensions for " + std::string(shape.text);
    }
  }
  return "";
}

}  // namespace automap::graph
