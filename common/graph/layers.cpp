#include "common/graph/layers.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace automap::graph {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Splits at '/' outside parentheses and brackets.
std::vector<std::string_view> split_path(std::string_view path) {
  std::vector<std::string_view> out;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= path.size(); ++i) {
    const char c = i < path.size() ? path[i] : '/';
    if (c == '(' || c == '[') ++depth;
    if ((c == ')' || c == ']') && depth > 0) --depth;
    if (i == path.size() || (c == '/' && depth == 0)) {
      if (i > begin) out.push_back(path.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  return out;
}

// Scopes that structure the program, not the model.
bool is_plumbing(std::string_view scope) {
  for (const std::string_view word : {"while",
                                      "body",
                                      "cond",
                                      "body_fun",
                                      "cond_fun",
                                      "checkpoint",
                                      "rematted_computation",
                                      "remat",
                                      "remat2",
                                      "closed_call",
                                      "core_call",
                                      "custom_jvp_call",
                                      "custom_vjp_call",
                                      "custom_vjp_call_jaxpr",
                                      "custom_lin",
                                      "pjit",
                                      "main",
                                      "scan",
                                      "xla_call",
                                      "shard_map",
                                      "StatefulPartitionedCall",
                                      "PartitionedCall",
                                      "gradient_tape",
                                      "gradients",
                                      "branch_0_fun",
                                      "branch_1_fun"}) {
    if (scope == word) return true;
  }
  if (scope.find("->") != std::string_view::npos) return true;  // an einsum
  return scope.substr(0, 7) == "branch_" && scope.size() > 4 && scope.substr(scope.size() - 4) == "_fun";
}

// f(x) with f a function transformation: x, else nothing.
bool unwrap(std::string_view scope, std::string_view* function, std::string_view* inner) {
  const std::size_t open = scope.find('(');
  if (open == std::string_view::npos || open == 0 || scope.back() != ')') return false;
  *function = scope.substr(0, open);
  *inner = scope.substr(open + 1, scope.size() - open - 2);
  return true;
}

// The scopes inside one path component, in order. Not recursive: transformations nest at most as deep as the text.
void add_scopes(std::string_view component, std::vector<std::string>* out) {
  std::vector<std::string_view> pending{component};
  while (!pending.empty()) {
    const std::string_view scope = pending.back();
    pending.pop_back();
    std::string_view function, inner;
    if (!unwrap(scope, &function, &inner)) {
      if (!is_plumbing(scope)) out->emplace_back(scope);
      continue;
    }
    // jit(name) names a function of the program; the others wrap scopes of the model.
    if (function == "jit" || function == "pjit" || function == "xla_call" || function == "pmap") continue;
    const std::vector<std::string_view> parts = split_path(inner);
    for (std::size_t i = parts.size(); i-- > 0;) pending.push_back(parts[i]);
  }
}

bool has_number(std::string_view scope) {
  // A trailing number ("h5", "layer_17", "encoderblock_0", "17"), or one between separators ("layer_._3").
  return !scope.empty() && is_digit(scope.back());
}

bool is_number(std::string_view scope) {
  return !scope.empty() && std::all_of(scope.begin(), scope.end(), is_digit);
}

bool is_blocklike(std::string_view scope) {
  if (!has_number(scope)) return false;
  if (is_number(scope)) return true;
  std::string lower;
  for (const char c : scope) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower.find("layernorm") != std::string::npos || lower.find("layer_norm") != std::string::npos) return false;
  return lower.find("block") == 0 || lower.find("layer") == 0 || lower.find("unit") == 0;
}

std::string scope_path(const std::vector<std::string>& scopes, std::size_t begin, std::size_t end) {
  std::string out;
  for (std::size_t i = begin; i < end; ++i) {
    if (!out.empty()) out += '/';
    out += scopes[i];
  }
  return out;
}

}  // namespace

std::vector<std::string> scopes_of(std::string_view op_name) {
  std::vector<std::string> out;
  // Merged instructions have their names one behind the other: "jit(f)/h/5/mul;jit(f)/h/5/add".
  const std::vector<std::string_view> parts = split_path(op_name.substr(0, op_name.find(';')));
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) add_scopes(parts[i], &out);
  return out;
}

std::size_t layer_depth(const std::vector<std::string>& scopes, const std::function<bool(std::size_t)>& counted) {
  for (std::size_t i = 0; i < scopes.size(); ++i) {
    if (!has_number(scopes[i]) || (counted && !counted(i))) continue;
    std::size_t end = i + 1;
    for (;;) {
      if (end < scopes.size() && is_blocklike(scopes[end])) {
        ++end;
      } else if (end + 1 < scopes.size() && (scopes[end] == "layers" || scopes[end] == "blocks") &&
                 is_number(scopes[end + 1])) {
        end += 2;  // stages/2/layers/0
      } else {
        return end;
      }
    }
  }
  return std::min<std::size_t>(scopes.size(), 2);
}

Repeat find_repeat(const std::vector<std::uint64_t>& sequence, std::int32_t begin, std::int32_t end) {
  Repeat best;
  std::int64_t best_cover = 0;
  const std::int32_t length = end - begin;
  for (std::int32_t period = 1; period * 2 <= length; ++period) {
    std::int32_t run = 0;
    for (std::int32_t i = begin; i + period <= end; ++i) {
      const bool equal =
          i + period < end && sequence[static_cast<std::size_t>(i)] == sequence[static_cast<std::size_t>(i + period)];
      if (equal) {
        ++run;
        continue;
      }
      const std::int32_t count = run / period + 1;
      const std::int64_t cover = static_cast<std::int64_t>(count) * period;
      if (count >= 2 && cover > best_cover) {
        best_cover = cover;
        best = {i - run, period, count};
      }
      run = 0;
    }
  }
  return best;
}

namespace {

class Namer {
 public:
  Namer(const TrainingStep& step, const FlowOrder& order) : flow_(step.flow), order_(order.order) {}

  LayerNames run() {
    LayerNames out;
    out.name.assign(order_.size(), "");
    out.inside.assign(order_.size(), false);
    if (from_metadata(&out)) {
      out.from_metadata = true;
    } else {
      out.inside.assign(order_.size(), false);
      invent(&out);
    }
    return out;
  }

 private:
  // The scopes of a node: its own, behind its callers' when its own are relative.
  const std::vector<std::string>& site_scopes(std::int32_t site) {
    const auto found = site_cache_.find(site);
    if (found != site_cache_.end()) return found->second;
    // Callers first; sites are numbered after the site they are called from.
    std::vector<std::int32_t> chain;
    for (std::int32_t s = site; s != kNone && site_cache_.count(s) == 0;
         s = flow_.sites()[static_cast<std::size_t>(s)].parent)
      chain.push_back(s);
    for (std::size_t i = chain.size(); i-- > 0;) {
      const CallSite& at = flow_.sites()[static_cast<std::size_t>(chain[i])];
      site_cache_[chain[i]] = scopes(at.caller, at.parent);
    }
    return site_cache_[site];
  }

  std::vector<std::string> scopes(InstructionId instruction, std::int32_t site) {
    const std::string op_name = flow_.graph().op_name(instruction);
    std::vector<std::string> own = scopes_of(op_name);
    if (site == kNone) return own;
    const auto cached = site_cache_.find(site);
    const std::vector<std::string>& before = cached != site_cache_.end() ? cached->second : site_scopes(site);
    return behind(before, std::move(own), op_name);
  }

  // The scopes `own` of `op_name`, called where `before` stand. Names inside called computations are complete in some
  // versions and relative in others.
  static std::vector<std::string> behind(const std::vector<std::string>& before, std::vector<std::string> own,
                                         const std::string& op_name) {
    if (before.empty()) return own;
    if (own.size() >= before.size() && std::equal(before.begin(), before.end(), own.begin())) return own;
    const bool complete = op_name.compare(0, 4, "jit(") == 0 || op_name.compare(0, 5, "pjit(") == 0;
    if (complete && !own.empty()) return own;
    std::vector<std::string> all = before;
    all.insert(all.end(), own.begin(), own.end());
    return all;
  }

  // Facts from the body of a loop about its layer.
  struct Inside {
    std::vector<std::string> common;        // scopes that all its named instructions share; at least the loop's own
    std::size_t named = 0, all = 0;         // instructions that do work
    std::unordered_set<std::string> paths;  // all that were seen
  };
  Inside inside(InstructionId loop, const std::vector<std::string>& own) const {
    const Graph& graph = flow_.graph();
    Inside out;
    bool any = false;
    std::unordered_set<ComputationId> seen;
    std::vector<std::pair<ComputationId, std::vector<std::string>>> pending;
    const auto called = graph.called(loop);
    if (called.size() == 2) pending.emplace_back(called[1], own);
    while (!pending.empty()) {
      const ComputationId computation = pending.back().first;
      const std::vector<std::string> before = std::move(pending.back().second);
      pending.pop_back();
      if (!seen.insert(computation).second) continue;  // its callers have names alike
      const Computation& body = graph.computation(computation);
      for (InstructionId id = body.first; id < body.first + body.count; ++id) {
        const Opcode opcode = graph.instruction(id).opcode;
        if (opcode == Opcode::kParameter || opcode == Opcode::kConstant || opcode == Opcode::kTuple ||
            opcode == Opcode::kGetTupleElement)
          continue;
        const std::string op_name = graph.op_name(id);
        std::vector<std::string> path = behind(before, scopes_of(op_name), op_name);
        const bool calls = opcode == Opcode::kCall || opcode == Opcode::kConditional || opcode == Opcode::kWhile ||
                           opcode == Opcode::kFusion;
        // Loops slice and stack their data in nobody's name.
        out.all += !calls && !has_trait(opcode, trait::kMovement) ? 1 : 0;
        if (path.size() > own.size()) {
          ++out.named;
          out.paths.insert(scope_path(path, 0, path.size()));
          if (!any) out.common = path;
          any = true;
          std::size_t same = 0;
          while (same < std::min(out.common.size(), path.size()) && out.common[same] == path[same]) ++same;
          out.common.resize(same);
        }
        if (!calls) continue;
        for (const ComputationId inner : graph.called(id)) pending.emplace_back(inner, path);
      }
    }
    if (out.common.size() < own.size()) out.common = own;
    return out;
  }

  bool from_metadata(LayerNames* out) {
    std::vector<std::vector<std::string>> paths(order_.size());
    std::size_t named = 0;
    std::size_t saying = 0, all = 0;  // instructions, those inside loops among them
    std::unordered_set<std::string> in_loops;
    for (std::size_t p = 0; p < order_.size(); ++p) {
      const FlowNode& node = flow_.node(order_[p]);
      paths[p] = scopes(node.instruction, node.site);
      if (node.opcode == Opcode::kWhile) {
        Inside loop = inside(node.instruction, paths[p]);
        out->inside[p] = loop.common.size() > paths[p].size();
        paths[p] = std::move(loop.common);
        saying += loop.named;
        all += loop.all;
        in_loops.merge(loop.paths);
      }
      if (!paths[p].empty()) ++named;
      saying += paths[p].empty() ? 0 : 1;
      ++all;
    }
    if (saying * 4 < all || saying == 0) return false;
    // Scopes that (nearly) all share say nothing.
    std::size_t shared = 0;
    for (;; ++shared) {
      std::map<std::string_view, std::size_t> votes;
      std::size_t longer = 0;
      for (const auto& path : paths) {
        if (path.size() <= shared) continue;
        ++longer;
        ++votes[path[shared]];
      }
      const auto most = std::max_element(votes.begin(), votes.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
      if (most == votes.end()) break;
      // The name of the model's class may be missing from the loss; a scope like "encoder" says something unless it is
      // everywhere.
      const std::string_view scope = most->first;
      const bool is_class = std::isupper(static_cast<unsigned char>(scope[0])) != 0 || scope[0] == '_';
      const std::size_t permille = is_class ? 900 : 995;
      if (most->second * 1000 < named * permille || longer * 1000 < named * permille) break;
      // "h" in h/5 belongs to the number; and something must be left to tell apart.
      std::size_t deeper = 0, numbered = 0;
      for (const auto& path : paths) {
        if (path.size() <= shared + 1 || path[shared] != scope) continue;
        ++deeper;
        if (is_number(path[shared + 1])) ++numbered;
      }
      if (deeper * 2 < named || numbered * 4 > deeper) break;
      common_.emplace_back(most->first);
    }
    // Numbers by the text in front of them: Encoder_0 is no numbered scope when there is no Encoder_1.
    std::unordered_map<std::string, std::unordered_set<std::string>> numbers;
    for (auto& path : paths) {
      std::size_t begin = 0;
      while (begin < common_.size() && begin < path.size() && path[begin] == common_[begin]) ++begin;
      path.erase(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(begin));
      for (std::size_t i = 0; i < path.size(); ++i) {
        if (has_number(path[i])) numbers[stem_of(path, i)].insert(path[i]);
      }
    }
    std::map<std::string, std::size_t> distinct;
    for (std::size_t p = 0; p < order_.size(); ++p) {
      const auto counted = [&](std::size_t i) { return numbers[stem_of(paths[p], i)].size() > 1; };
      out->name[p] = scope_path(paths[p], 0, out->inside[p] ? paths[p].size() : layer_depth(paths[p], counted));
      if (!out->name[p].empty()) ++distinct[out->name[p]];
    }
    // torch_xla and the like name operations, not layers.
    if (distinct.size() < 2 && in_loops.size() < 2) return false;
    fill_gaps(out);
    return true;
  }

  static std::string stem_of(const std::vector<std::string>& path, std::size_t i) {
    std::string stem = scope_path(path, 0, i) + "/" + path[i];
    while (!stem.empty() && is_digit(stem.back())) stem.pop_back();
    return stem;
  }

  // An unnamed instruction belongs to the layer before it (at the start: behind it).
  void fill_gaps(LayerNames* out) const {
    std::string last;
    for (std::string& name : out->name) {
      if (name.empty()) {
        name = last;
      } else {
        last = name;
      }
    }
    last.clear();
    for (std::size_t p = out->name.size(); p-- > 0;) {
      if (out->name[p].empty()) {
        out->name[p] = last.empty() ? "model" : last;
      } else {
        last = out->name[p];
      }
    }
  }

  static bool is_heavy(Opcode opcode) {
    switch (opcode) {
      case Opcode::kDot:
      case Opcode::kRaggedDot:
      case Opcode::kScaledDot:
      case Opcode::kConvolution:
      case Opcode::kWhile:
      case Opcode::kReduceWindow:
      case Opcode::kCustomCall:
      case Opcode::kBatchNormTraining:
      case Opcode::kBatchNormInference: return true;
      default: return false;
    }
  }

  std::uint64_t token(NodeId id) const {
    const FlowNode& node = flow_.node(id);
    std::uint64_t hash = 1469598103934665603ULL;
    const auto mix = [&](std::uint64_t value) {
      hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
      hash *= 1099511628211ULL;
    };
    mix(static_cast<std::uint64_t>(node.opcode));
    mix(static_cast<std::uint64_t>(node.shape));
    for (const NodeId operand : flow_.operands(id)) mix(static_cast<std::uint64_t>(flow_.node(operand).shape));
    return hash;
  }

  void invent(LayerNames* out) {
    const auto m = static_cast<std::int32_t>(order_.size());
    std::vector<std::uint64_t> tokens(order_.size());
    for (std::size_t p = 0; p < order_.size(); ++p) tokens[p] = token(order_[p]);
    std::vector<std::uint64_t> heavy;
    std::vector<std::int32_t> where;
    for (std::int32_t p = 0; p < m; ++p) {
      if (!is_heavy(flow_.node(order_[static_cast<std::size_t>(p)]).opcode)) continue;
      heavy.push_back(tokens[static_cast<std::size_t>(p)]);
      where.push_back(p);
    }
    constexpr std::int32_t kLongest = 6000;  // the search for repeats is quadratic
    struct Range {
      std::int32_t begin, end;
    };
    struct Group {
      std::int32_t begin, size, count;  // positions in the order
      std::int32_t heavy_first;
    };
    std::vector<Range> ranges{{0, static_cast<std::int32_t>(std::min<std::size_t>(heavy.size(), kLongest))}};
    std::vector<Group> found;
    while (!ranges.empty()) {
      const Range range = ranges.back();
      ranges.pop_back();
      const Repeat repeat = find_repeat(heavy, range.begin, range.end);
      if (repeat.count < 2 || repeat.period * repeat.count < 4) continue;
      // A block starts as early as all its copies look alike.
      const std::int32_t first = where[static_cast<std::size_t>(repeat.first)];
      const std::int32_t second = where[static_cast<std::size_t>(repeat.first + repeat.period)];
      const std::int32_t floor = repeat.first > 0 ? where[static_cast<std::size_t>(repeat.first - 1)] + 1 : 0;
      std::int32_t back = 0;
      const auto same_at = [&](std::int32_t offset) {
        for (std::int32_t k = 1; k < repeat.count; ++k) {
          const std::int32_t at = where[static_cast<std::size_t>(repeat.first + k * repeat.period)] - offset;
          if (tokens[static_cast<std::size_t>(at)] != tokens[static_cast<std::size_t>(first - offset)]) return false;
        }
        return true;
      };
      while (back + 1 < second - first && first - back - 1 >= floor && same_at(back + 1)) ++back;
      found.push_back({first - back, 0, repeat.count, repeat.first});
      for (std::int32_t k = 0; k < repeat.count; ++k) {
        const std::int32_t at = where[static_cast<std::size_t>(repeat.first + k * repeat.period)] - back;
        starts_[at] = {static_cast<std::int32_t>(found.size()) - 1, k};
      }
      // Where the last block ends: as long as the block before it.
      const std::int32_t last =
          where[static_cast<std::size_t>(repeat.first + (repeat.count - 1) * repeat.period)] - back;
      const std::int32_t before_last =
          where[static_cast<std::size_t>(repeat.first + (repeat.count - 2) * repeat.period)] - back;
      const std::int32_t end = std::min(m, last + (last - before_last));
      if (starts_.count(end) == 0) starts_[end] = {kNone, 0};
      ranges.push_back({range.begin, repeat.first});
      ranges.push_back({repeat.first + repeat.period * repeat.count, range.end});
    }
    // Number the groups along the order.
    std::vector<std::int32_t> rank(found.size());
    std::vector<std::size_t> by_start(found.size());
    for (std::size_t g = 0; g < found.size(); ++g) by_start[g] = g;
    std::sort(by_start.begin(), by_start.end(),
              [&](std::size_t a, std::size_t b) { return found[a].begin < found[b].begin; });
    for (std::size_t i = 0; i < by_start.size(); ++i) rank[by_start[i]] = static_cast<std::int32_t>(i) + 1;
    for (const Group& group : found) out->num_blocks = std::max(out->num_blocks, group.count);
    // Outside blocks a layer goes from one product with weights to the next, where there are several in a row.
    std::vector<std::int32_t> products;  // outside blocks, one of several between two blocks
    std::vector<std::int32_t> of_region;
    const auto end_region = [&] {
      if (of_region.size() > 1) products.insert(products.end(), of_region.begin(), of_region.end());
      of_region.clear();
    };
    std::int32_t group_here = kNone;
    std::int32_t moved = 0;  // where the run begins that does nothing but move values to what stands at p
    for (std::int32_t p = 0; p < m; ++p) {
      const NodeId node = order_[static_cast<std::size_t>(p)];
      const auto start = starts_.find(p);
      if (start != starts_.end()) {
        group_here = start->second.first;
        end_region();
        moved = p;
      }
      if (group_here == kNone && multiplies_weights(node)) of_region.push_back(moved);
      if (!has_trait(flow_.node(node).opcode, trait::kMovement)) moved = p + 1;
    }
    end_region();
    std::string name = found.empty() ? "model" : "start";
    std::int32_t passed = 0;
    std::size_t product = 0;
    for (std::int32_t p = 0; p < m; ++p) {
      const auto start = starts_.find(p);
      if (start != starts_.end()) {
        const auto [group, k] = start->second;
        if (group == kNone) {
          name = passed == static_cast<std::int32_t>(found.size()) ? "end" : "after stack " + std::to_string(passed);
        } else {
          const Group& g = found[static_cast<std::size_t>(group)];
          passed = std::max(passed, rank[static_cast<std::size_t>(group)]);
          name = "block " + std::to_string(k + 1) + " of " + std::to_string(g.count);
          if (found.size() > 1) name = "stack " + std::to_string(rank[static_cast<std::size_t>(group)]) + " " + name;
        }
      }
      if (product < products.size() && products[product] == p) {
        std::int32_t at = p;
        while (!multiplies_weights(order_[static_cast<std::size_t>(at)])) ++at;
        ++product;
        name = std::string(opcode_name(flow_.node(order_[static_cast<std::size_t>(at)]).opcode)) + " " +
               std::to_string(product) + " of " + std::to_string(products.size());
      }
      out->name[static_cast<std::size_t>(p)] = name;
    }
    name_operations(out);
  }

  // PyTorch names no layers, but operations: "start (embedding)", "end (native_layer_norm, mm, log_softmax, ...)".
  void name_operations(LayerNames* out) const {
    constexpr std::string_view kMark = "aten__";
    constexpr std::size_t kShown = 3;
    std::map<std::string, std::vector<std::string>> operations;  // by name that says nothing itself
    const auto bare = [](const std::string& name) {
      return name == "model" || name == "start" || name == "end" || name.compare(0, 6, "after ") == 0;
    };
    for (std::size_t p = 0; p < order_.size(); ++p) {
      const FlowNode& node = flow_.node(order_[p]);
      if (!bare(out->name[p]) || has_trait(node.opcode, trait::kMovement)) continue;
      const std::string type = flow_.graph().metadata(node.instruction, "op_type");
      if (type.compare(0, kMark.size(), kMark) != 0) continue;
      std::vector<std::string>& seen = operations[out->name[p]];
      const std::string operation = type.substr(kMark.size());
      if (seen.size() <= kShown && std::find(seen.begin(), seen.end(), operation) == seen.end())
        seen.push_back(operation);
    }
    for (std::string& name : out->name) {
      const auto found = operations.find(name);
      if (found == operations.end()) continue;
      std::string list;
      for (std::size_t i = 0; i < found->second.size(); ++i)
        list += (i == 0 ? "" : ", ") + (i < kShown ? found->second[i] : "...");
      name += " (" + list + ")";
    }
  }

  // A matrix product or convolution one of whose operands is an input of the module, moved at most.
  bool multiplies_weights(NodeId id) const {
    const Opcode opcode = flow_.node(id).opcode;
    if (opcode != Opcode::kDot && opcode != Opcode::kConvolution && opcode != Opcode::kRaggedDot &&
        opcode != Opcode::kScaledDot)
      return false;
    const auto operands = flow_.operands(id);
    return std::any_of(operands.begin(), operands.end(), [&](NodeId from) {
      while (flow_.operands(from).size() == 1 && has_trait(flow_.node(from).opcode, trait::kMovement))
        from = flow_.operands(from)[0];
      return flow_.node(from).opcode == Opcode::kParameter;
    });
  }

  const FlowGraph& flow_;
  const std::vector<NodeId>& order_;
  std::vector<std::string> common_;
  std::unordered_map<std::int32_t, std::vector<std::string>> site_cache_;
  std::map<std::int32_t, std::pair<std::int32_t, std::int32_t>> starts_;  // position -> group, block
};

}  // namespace

LayerNames name_layers(const TrainingStep& step, const FlowOrder& order) {
  return Namer(step, order).run();
}

}  // namespace automap::graph
