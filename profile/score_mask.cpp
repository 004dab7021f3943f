#include "profile/score_mask.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "common/graph/hlo_attributes.h"
#include "profile/chain_tracker.h"

namespace automap::profile {

using graph::FlowGraph;
using graph::NodeId;
using graph::Opcode;

namespace {

constexpr std::size_t kMostDims = 8, kMostExpressions = 256;
constexpr int kMostSteps = 2000;  // per score; more: not known
constexpr std::int64_t kRows = 32, kColumns = 16;

using Index = std::array<std::int64_t, kMostDims>;

struct Value {
  double value = 0;
  bool known = false;
};

bool is_masked(const Value& value) {
  return value.known && value.value <= kMaskedScore;
}

std::optional<double> scalar_of(std::string_view text) {
  if (text == "true") return 1;
  if (text == "false") return 0;
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || std::isnan(value)) return std::nullopt;
  return value;
}

bool compares(graph::ComparisonDirection direction, double a, double b) {
  switch (direction) {
    case graph::ComparisonDirection::kEq: return a == b;
    case graph::ComparisonDirection::kNe: return a != b;
    case graph::ComparisonDirection::kGe: return a >= b;
    case graph::ComparisonDirection::kGt: return a > b;
    case graph::ComparisonDirection::kLe: return a <= b;
    case graph::ComparisonDirection::kLt: return a < b;
  }
  return false;
}

// Values of nodes at single places, as far as they follow from places.
class Places {
 public:
  explicit Places(const FlowGraph& flow) : flow_(flow) {}

  // A handle of `id` for at() and dims().
  int add(NodeId id) {
    const auto known = by_node_.find(id);
    if (known != by_node_.end()) return known->second;
    const int handle = static_cast<int>(all_.size());
    by_node_.emplace(id, handle);
    all_.emplace_back();
    if (all_.size() > kMostExpressions) return handle;
    Expression e = read(id);
    for (std::size_t i = 0; e.from != From::kNowhere && i < e.operands.size(); ++i)
      e.handles.push_back(add(e.operands[i]));
    e.dims = dims_of(e);
    all_[static_cast<std::size_t>(handle)] = std::move(e);
    return handle;
  }

  // Dimensions longer than 1 that the value depends on, as bits.
  std::uint32_t dims(int handle) const { return all_[static_cast<std::size_t>(handle)].dims; }

  Value at(int handle, const Index& index) {
    steps_ = kMostSteps;
    return value(handle, index);
  }

 private:
  // The place in the operand that an element comes from.
  enum class From { kNowhere, kSame, kLinear, kMapped };
  struct Expression {
    From from = From::kNowhere;
    Opcode opcode = Opcode::kUnknown;
    std::vector<NodeId> operands;
    std::vector<int> handles;
    std::vector<std::int64_t> shape, operand_shape;
    std::vector<std::int64_t> map, start, stride;  // of kMapped, by dimension of the operand
    double constant = 0;
    std::int32_t iota = 0;
    graph::ComparisonDirection direction = graph::ComparisonDirection::kEq;
    std::uint32_t dims = 0;
    bool to_pred = false, to_whole = false;
  };

  std::vector<std::int64_t> list(NodeId id, const char* key, std::size_t most) const {
    return graph::dimension_list_attribute(flow_.graph(), flow_.node(id).instruction, key, most);
  }

  Expression read(NodeId id) const {
    Expression e;
    const graph::Shape& shape = flow_.shape(id);
    if (!shape.is_array() || shape.dims.size() > kMostDims) return e;
    e.opcode = flow_.node(id).opcode;
    e.shape = shape.dims;
    e.to_pred = shape.type == graph::ElementType::kPred;
    e.to_whole = graph::ElementType::kS1 <= shape.type && shape.type <= graph::ElementType::kU64;
    for (const NodeId operand : flow_.operands(id)) e.operands.push_back(operand);
    if (!e.operands.empty()) {
      const graph::Shape& first = flow_.shape(e.operands[0]);
      if (!first.is_array() || first.dims.size() > kMostDims) return e;
      e.operand_shape = first.dims;
    }
    const graph::InstructionId instruction = flow_.node(id).instruction;
    switch (e.opcode) {
      case Opcode::kConstant: {
        const auto scalar = shape.num_elements == 1 ? scalar_of(flow_.graph().instruction(instruction).payload)
                                                    : std::optional<double>();
        if (!scalar) return e;
        e.constant = *scalar;
        break;
      }
      case Opcode::kIota: {
        const auto raw = flow_.graph().attribute(instruction, "iota_dimension");
        if (!raw) return e;
        e.iota = static_cast<std::int32_t>(graph::decode_int(*raw, {"", "iota_dimension"}));
        if (e.iota < 0 || e.iota >= static_cast<std::int32_t>(shape.dims.size())) return e;
        break;
      }
      case Opcode::kBroadcast: e.map = list(id, "dimensions", kMostDims); break;
      case Opcode::kTranspose: {
        const auto permutation = list(id, "dimensions", kMostDims);
        e.map.assign(permutation.size(), 0);
        for (std::size_t i = 0; i < permutation.size(); ++i) {
          if (permutation[i] < 0 || permutation[i] >= static_cast<std::int64_t>(permutation.size())) return e;
          e.map[static_cast<std::size_t>(permutation[i])] = static_cast<std::int64_t>(i);
        }
        break;
      }
      case Opcode::kSlice: {
        const auto raw = flow_.graph().attribute(instruction, "slice");
        if (!raw) return e;
        for (const graph::SliceDimension& dim : graph::decode_slice(*raw, {"", "slice"})) {
          e.map.push_back(static_cast<std::int64_t>(e.map.size()));
          e.start.push_back(dim.start);
          e.stride.push_back(dim.stride);
        }
        break;
      }
      case Opcode::kReshape:
      case Opcode::kBitcast: e.from = From::kLinear; return e;
      case Opcode::kCompare: {
        const auto raw = flow_.graph().attribute(instruction, "direction");
        if (!raw) return e;
        e.direction = graph::decode_comparison_direction(*raw, {"", "direction"});
        break;
      }
      case Opcode::kCustomCall:
        if (!graph::is_annotation(flow_.graph(), instruction)) return e;
        break;
      case Opcode::kOptBarrier: break;
      default:
        if (!graph::is_elementwise(e.opcode) && e.opcode != Opcode::kCopy) return e;
    }
    const bool mapped = e.opcode == Opcode::kBroadcast || e.opcode == Opcode::kTranspose || e.opcode == Opcode::kSlice;
    if (mapped && e.map.size() != e.operand_shape.size()) return e;
    for (const std::int64_t dim : e.map) {
      if (dim < 0 || dim >= static_cast<std::int64_t>(e.shape.size())) return e;
    }
    e.from = mapped ? From::kMapped : From::kSame;
    return e;
  }

  std::uint32_t dims_of(const Expression& e) const {
    std::uint32_t out = 0;
    if (e.from == From::kNowhere) return 0;
    if (e.opcode == Opcode::kIota) out = 1u << e.iota;
    for (const int handle : e.handles) {
      const std::uint32_t of = dims(handle);
      for (std::size_t i = 0; i < kMostDims; ++i) {
        if ((of >> i & 1) == 0) continue;
        if (e.from == From::kSame) out |= 1u << i;
        if (e.from == From::kMapped) out |= 1u << e.map[i];
        if (e.from == From::kLinear) {
          const auto to = reshaped_dimension(e.operand_shape, static_cast<std::int32_t>(i), e.shape);
          out |= to ? 1u << *to : ~0u;
        }
      }
    }
    for (std::size_t i = 0; i < 32; ++i) {
      if (i >= e.shape.size() || e.shape[i] == 1) out &= ~(1u << i);
    }
    return out;
  }

  Value value(int handle, const Index& index) {
    const Expression& e = all_[static_cast<std::size_t>(handle)];
    if (e.from == From::kNowhere || --steps_ < 0) return {};
    if (e.opcode == Opcode::kConstant) return {e.constant, true};
    if (e.opcode == Opcode::kIota) return {static_cast<double>(index[static_cast<std::size_t>(e.iota)]), true};
    if (e.from != From::kSame) return value(e.handles[0], moved(e, index));
    return combine(e, index);
  }

  static Index moved(const Expression& e, const Index& index) {
    Index out{};
    if (e.from == From::kMapped) {
      for (std::size_t i = 0; i < e.map.size(); ++i) {
        out[i] = index[static_cast<std::size_t>(e.map[i])];
        if (!e.start.empty()) out[i] = e.start[i] + out[i] * e.stride[i];
      }
      return out;
    }
    std::int64_t linear = 0;
    for (std::size_t i = 0; i < e.shape.size(); ++i) linear = linear * e.shape[i] + index[i];
    for (std::size_t i = e.operand_shape.size(); i-- > 0;) {
      const std::int64_t length = std::max<std::int64_t>(1, e.operand_shape[i]);
      out[i] = linear % length;
      linear /= length;
    }
    return out;
  }

  // Element by element; what is not known may still decide nothing.
  Value combine(const Expression& e, const Index& index) {
    std::array<Value, 3> x{};
    if (e.handles.empty() || e.handles.size() > x.size()) return {};
    for (std::size_t i = 0; i < e.handles.size(); ++i) x[i] = value(e.handles[i], index);
    const auto& [a, b, c] = x;
    const bool both = a.known && b.known;
    switch (e.opcode) {
      case Opcode::kSelect:
        if (a.known) return a.value != 0 ? b : c;
        return b.known && c.known && b.value == c.value ? b : Value{};
      case Opcode::kAnd:
        if ((a.known && a.value == 0) || (b.known && b.value == 0)) return {0, true};
        return both ? Value{1, true} : Value{};
      case Opcode::kOr:
        if ((a.known && a.value != 0) || (b.known && b.value != 0)) return {1, true};
        return both ? Value{0, true} : Value{};
      // A score that is masked stays so whatever is added.
      case Opcode::kAdd:
        if (both) return {a.value + b.value, true};
        return is_masked(a) ? a : is_masked(b) ? b : Value{};
      case Opcode::kMinimum:
        if (both) return {std::min(a.value, b.value), true};
        return is_masked(a) ? a : is_masked(b) ? b : Value{};
      default: break;
    }
    if (!a.known || (e.handles.size() > 1 && !b.known)) return {};
    switch (e.opcode) {
      case Opcode::kCompare: return {compares(e.direction, a.value, b.value) ? 1.0 : 0.0, true};
      case Opcode::kXor: return {(a.value != 0) != (b.value != 0) ? 1.0 : 0.0, true};
      case Opcode::kNot: return {a.value == 0 ? 1.0 : 0.0, true};
      case Opcode::kSubtract: return number(a.value - b.value);
      case Opcode::kMultiply: return number(a.value * b.value);
      case Opcode::kDivide:
        if (b.value == 0) return {};
        return number(e.to_whole ? std::trunc(a.value / b.value) : a.value / b.value);
      case Opcode::kMaximum: return {std::max(a.value, b.value), true};
      case Opcode::kNegate: return {-a.value, true};
      case Opcode::kAbs: return {std::abs(a.value), true};
      case Opcode::kConvert:
        return {e.to_pred ? (a.value != 0 ? 1.0 : 0.0) : e.to_whole ? std::trunc(a.value) : a.value, true};
      case Opcode::kCopy:
      case Opcode::kOptBarrier:
      case Opcode::kCustomCall: return a;
      default: return {};
    }
  }
  static Value number(double value) { return {value, !std::isnan(value)}; }

  const FlowGraph& flow_;
  std::map<NodeId, int> by_node_;
  std::vector<Expression> all_;
  int steps_ = 0;
};

class MaskReader {
 public:
  MaskReader(const FlowGraph& flow, NodeId at, NodeId scores, std::int32_t key)
      : places_(flow), shape_(flow.shape(at).dims), opcode_(flow.node(at).opcode), key_(key) {
    const auto operands = flow.operands(at);
    if (shape_.size() > kMostDims) return;
    if (opcode_ == Opcode::kSelect && operands.size() == 3 && (operands[1] == scores) != (operands[2] == scores)) {
      kept_if_ = operands[1] == scores;
      scalar_ = flow.shape(operands[0]).dims.empty();
      predicate_ = places_.add(operands[0]);
      other_ = places_.add(operands[kept_if_ ? 2 : 1]);
    } else if ((opcode_ == Opcode::kAdd || (opcode_ == Opcode::kSubtract && operands[0] == scores)) &&
               operands[0] != operands[1]) {
      other_ = places_.add(operands[operands[0] == scores ? 1 : 0]);
    }
  }

  std::optional<ScoreBand> band() {
    if (other_ < 0 || !find_query()) return std::nullopt;
    const std::int64_t rows = std::min(queries(), kRows);
    double kept = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t row = (2 * i + 1) * queries() / (2 * rows);
      if (!read_row(row)) return std::nullopt;
      kept += static_cast<double>(rows_.back().end - rows_.back().begin);
    }
    return as_band(kept / static_cast<double>(rows * keys()));
  }

 private:
  struct Row {
    std::int64_t query = 0, begin = 0, end = 0;
  };
  std::int64_t keys() const { return shape_[static_cast<std::size_t>(key_)]; }
  std::int64_t queries() const { return shape_[static_cast<std::size_t>(query_)]; }

  // The one dimension that the mask depends on beside the keys.
  bool find_query() {
    std::uint32_t dims = places_.dims(other_);
    if (predicate_ >= 0 && !scalar_) dims |= places_.dims(predicate_);
    if ((dims >> key_ & 1) == 0) return false;
    dims &= ~(1u << key_);
    for (std::size_t i = 0; i < shape_.size(); ++i) {
      if (dims == 1u << i) query_ = static_cast<std::int32_t>(i);
    }
    return query_ >= 0;
  }

  bool keeps(std::int64_t query, std::int64_t key) {
    Index index{};
    index[static_cast<std::size_t>(query_)] = query;
    index[static_cast<std::size_t>(key_)] = key;
    Value other = places_.at(other_, index);
    if (opcode_ == Opcode::kSubtract) other.value = -other.value;
    if (!is_masked(other)) return true;
    if (predicate_ < 0) return false;
    const Value chosen = places_.at(predicate_, index);
    return !chosen.known || (chosen.value != 0) == kept_if_;
  }

  // Its run of keys. false: there are several.
  bool read_row(std::int64_t query) {
    std::vector<std::int64_t> at;
    for (std::int64_t i = 0; i <= kColumns; ++i) at.push_back(i * (keys() - 1) / kColumns);
    // Narrow bands stand on one of these diagonals.
    for (const std::int64_t on : {query, query + keys() - queries()}) {
      if (on >= 0 && on < keys()) at.push_back(on);
    }
    std::sort(at.begin(), at.end());
    at.erase(std::unique(at.begin(), at.end()), at.end());
    std::vector<char> kept;
    for (const std::int64_t key : at) kept.push_back(keeps(query, key) ? 1 : 0);
    const auto first = static_cast<std::size_t>(std::find(kept.begin(), kept.end(), 1) - kept.begin());
    // A query that keeps none of the evaluated keys counts with all keys, since the others were not evaluated.
    if (first == kept.size()) {
      empty_ = true;
      rows_.push_back({query, 0, keys()});
      return true;
    }
    const auto stop = static_cast<std::size_t>(
        std::find(kept.begin() + static_cast<std::ptrdiff_t>(first), kept.end(), 0) - kept.begin());
    if (std::find(kept.begin() + static_cast<std::ptrdiff_t>(stop), kept.end(), 1) != kept.end()) return false;
    // The first place between `from`, which is not so, and `to`, which is.
    const auto border = [&](std::int64_t from, std::int64_t to, bool so) {
      while (to - from > 1) {
        const std::int64_t middle = from + (to - from) / 2;
        (keeps(query, middle) == so ? to : from) = middle;
      }
      return to;
    };
    const std::int64_t begin = first == 0 ? 0 : border(at[first - 1], at[first], true);
    const std::int64_t end = stop == kept.size() ? keys() : border(at[stop - 1], at[stop], false);
    rows_.push_back({query, begin, end});
    return true;
  }

  std::optional<ScoreBand> as_band(double kept) const {
    const std::int64_t none = std::numeric_limits<std::int64_t>::max();
    std::int64_t low = none, high = none;
    const auto is_full = [&](const Row& row) { return row.begin == 0 && row.end == keys(); };
    for (const Row& row : rows_) {
      if (row.begin > 0 && low == none) low = row.begin - row.query;
      if (row.end < keys() && high == none) high = row.end - row.query;
    }
    for (const Row& row : rows_) {
      if (empty_ && is_full(row)) continue;
      if (low != none && row.begin != std::max<std::int64_t>(0, row.query + low)) return std::nullopt;
      if (high != none && row.end != std::min(keys(), row.query + high)) return std::nullopt;
    }
    if (low == none && high == none) return std::nullopt;
    return ScoreBand{kept, (low != none) + (high != none), low == none};
  }

  Places places_;
  std::vector<std::int64_t> shape_;
  Opcode opcode_;
  std::int32_t key_, query_ = -1;
  int predicate_ = -1, other_ = -1;
  bool kept_if_ = true, scalar_ = false, empty_ = false;
  std::vector<Row> rows_;
};

}  // namespace

std::optional<ScoreBand> band_of(const FlowGraph& flow, NodeId at, NodeId scores, std::int32_t key) {
  switch (flow.node(at).opcode) {
    case Opcode::kSelect:
    case Opcode::kAdd:
    case Opcode::kSubtract: return MaskReader(flow, at, scores, key).band();
    default: return std::nullopt;
  }
}

}  // namespace automap::profile
