#include "common/sharding/collectives.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "common/base/check.h"
#include "common/graph/dependence.h"
#include "common/sharding/reads.h"
#include "common/sharding/written_sums.h"

namespace automap::sharding {

namespace {

using graph::ElementType;
using graph::FlowGraph;
using graph::FlowNode;
using graph::InstructionId;
using graph::Opcode;
using graph::Shape;

// One more collective is worth moving this many bytes less: about the bytes that a link carries while a collective
// starts.
constexpr double kLaunchBytes = 65536;

bool is_complex(const Shape& shape) {
  return shape.type == ElementType::kC64 || shape.type == ElementType::kC128;
}

bool is_real(const Shape& shape) {
  return graph::is_float(shape) && !is_complex(shape);
}

bool is_integer(const Shape& shape) {
  switch (shape.type) {
    case ElementType::kS1:
    case ElementType::kS2:
    case ElementType::kS4:
    case ElementType::kS8:
    case ElementType::kS16:
    case ElementType::kS32:
    case ElementType::kS64:
    case ElementType::kU1:
    case ElementType::kU2:
    case ElementType::kU4:
    case ElementType::kU8:
    case ElementType::kU16:
    case ElementType::kU32:
    case ElementType::kU64: return true;
    default: return false;
  }
}

// The most whole tensors that a combined sum takes along before it meets another sum: a residual stream goes on through
// the whole module, and the sums that it meets further on are those of other layers.
constexpr int kMostAddends = 2;

// A literal of zeros: "0", "0.0", "-0", "{ {0, 0}, {0, 0} }", "(0, 0)",
// "0e+00".
bool is_zero_literal(std::string_view payload) {
  bool digit = false;
  for (const char c : payload) {
    if (c == '0') {
      digit = true;
    } else if (std::string_view("+-.,{}() eE\n\t\r").find(c) == std::string_view::npos) {
      return false;
    }
  }
  return digit && payload.find("...") == std::string_view::npos;
}

bool is_zero(const FlowGraph& flow, NodeId node) {
  const FlowNode& at = flow.node(graph::skip_movement(flow, node));
  return at.opcode == Opcode::kConstant && is_zero_literal(flow.graph().instruction(at.instruction).payload);
}

// The computation adds its two parameters.
bool adds(const graph::Graph& graph, graph::InstructionId id) {
  const Span<const graph::ComputationId> called = graph.called(id);
  if (called.size() != 1) return false;
  const graph::Computation& body = graph.computation(called[0]);
  if (body.parameters.size() != 2 || body.root == kNone || graph.instruction(body.root).opcode != Opcode::kAdd)
    return false;
  const Span<const graph::InstructionId> operands = graph.operands(body.root);
  return operands.size() == 2 && ((operands[0] == body.parameters[0] && operands[1] == body.parameters[1]) ||
                                  (operands[0] == body.parameters[1] && operands[1] == body.parameters[0]));
}

// Partial values may be converted before they are reduced: rounding is the only difference, and types of less than 16
// bits would round (and overflow) too much. Integers of other widths wrap elsewhere; pred is not linear.
bool converts(Reduction reduction, const Shape& from, const Shape& to) {
  if (from.type == to.type && from.bits == to.bits) return true;
  const bool to_float = is_real(to) || (reduction == Reduction::kAdd && is_complex(to));
  if (is_real(from)) return to_float && (to.bits >= from.bits || to.bits >= 16);
  if (is_integer(from)) return to_float && to.bits >= 16;
  return is_complex(from) && is_complex(to);
}

struct Source {
  NodeId node = kNone;  // the tensor with partial sums
  NodeId op = kNone;    // the instruction that leaves them
  GroupId group = kNone;
  Reduction reduction = Reduction::kNone;
  std::int32_t factor = kNone;
};

// The least cut between s and t of a small network (Dinic). Capacities are not negative.
class Cut {
 public:
  explicit Cut(std::size_t nodes) : out_(nodes), level_(nodes), next_(nodes) {}

  void edge(std::size_t from, std::size_t to, double capacity) {
    out_[from].push_back(edges_.size());
    edges_.push_back({to, capacity});
    out_[to].push_back(edges_.size());
    edges_.push_back({from, 0});
  }

  // Which nodes are on s's side, as few as possible.
  std::vector<bool> solve(std::size_t s, std::size_t t) {
    while (find_levels(s, t)) {
      std::fill(next_.begin(), next_.end(), std::size_t{0});
      while (push(s, t)) {
      }
    }
    std::vector<bool> before(out_.size());
    for (std::size_t i = 0; i < out_.size(); ++i) before[i] = level_[i] >= 0;
    return before;
  }

 private:
  struct Edge {
    std::size_t to;
    double left;
  };

  bool find_levels(std::size_t s, std::size_t t) {
    std::fill(level_.begin(), level_.end(), -1);
    std::queue<std::size_t> queue;
    queue.push(s);
    level_[s] = 0;
    while (!queue.empty()) {
      const std::size_t at = queue.front();
      queue.pop();
      for (const std::size_t e : out_[at]) {
        if (edges_[e].left <= 0 || level_[edges_[e].to] >= 0) continue;
        level_[edges_[e].to] = level_[at] + 1;
        queue.push(edges_[e].to);
      }
    }
    return level_[t] >= 0;
  }

  // One path of the level graph, by an explicit stack: chains are as long as the module is.
  bool push(std::size_t s, std::size_t t) {
    path_.clear();
    std::size_t at = s;
    while (at != t) {
      bool forward = false;
      for (; next_[at] < out_[at].size(); ++next_[at]) {
        const std::size_t e = out_[at][next_[at]];
        if (edges_[e].left <= 0 || level_[edges_[e].to] != level_[at] + 1) continue;
        path_.push_back(e);
        at = edges_[e].to;
        forward = true;
        break;
      }
      if (forward) continue;
      if (at == s) return false;
      at = edges_[path_.back() ^ 1].to;
      path_.pop_back();
      ++next_[at];
    }
    double flow = std::numeric_limits<double>::infinity();
    for (const std::size_t e : path_) flow = std::min(flow, edges_[e].left);
    for (const std::size_t e : path_) {
      edges_[e].left -= flow;
      edges_[e ^ 1].left += flow;
    }
    return true;
  }

  std::vector<std::vector<std::size_t>> out_;
  std::vector<Edge> edges_;
  std::vector<std::int32_t> level_;
  std::vector<std::size_t> next_, path_;
};

class Finder {
 public:
  // `alone`: of one group, whatever else is split.
  Finder(const ShardingModel& model, std::function<bool(GroupId)> is_split, std::vector<GroupId> groups, bool alone)
      : model_(model),
        linkage_(model.linkage()),
        flow_(linkage_.flow()),
        is_split_(std::move(is_split)),
        groups_(std::move(groups)),
        alone_(alone) {}

  std::vector<Collective> run(Placement placement) {
    if (linkage_.shards() <= 1) return {};
    reads_ = reads_of(model_, is_split_);
    for (const TensorDim dim : kept_in_parts(model_, is_split_)) made_whole_.insert(dim.node);
    find_sources();
    if (placement == Placement::kAtOnce) {
      for (const Source& source : sources_)
        out_.push_back(all_reduce(source.node, source.reduction, source.group, {source.op}));
    } else {
      combined_ = placement == Placement::kCombined;
      if (combined_ && !alone_) find_owners();
      do {
        out_.clear();
        find_region();
        place();
      } while (combined_ && forbid_differing());
    }
    find_kept_in_parts();
    add_gathers();
    add_permutes();
    std::sort(out_.begin(), out_.end(), [](const Collective& a, const Collective& b) {
      if (a.kind == CollectiveKind::kPermute && b.kind == a.kind)
        return std::tie(a.node, a.sources, a.border) < std::tie(b.node, b.sources, b.border);
      return a.node != b.node ? a.node < b.node : a.kind < b.kind;
    });
    return std::move(out_);
  }

 private:
  // A tensor that may hold partial sums: a source, or the result of a linear instruction.
  struct Held {
    NodeId node = kNone;
    Reduction reduction = Reduction::kNone;
    std::int32_t source = kNone;           // index into sources_
    GroupId group = kNone;                 // of sources and combined sums
    bool read_whole = false;               // by something that is not linear
    std::vector<bool> partial;             // by operand: would be read partial
    int addends = 0;                       // whole ones since it met another sum
    bool left = false, reduced = false;    // as it was decided
    std::vector<std::int32_t> from, into;  // linear steps: indices of Held
    std::int32_t part = kNone;             // connected by them
  };

 public:
  // After run(kCombined).
  std::vector<CarriedSum> carried() const {
    std::vector<CarriedSum> out;
    const std::vector<bool> carried = find_carried();
    for (std::size_t i = 0; i < held_.size(); ++i) {
      if (!carried[i]) continue;
      const Held& h = held_[i];
      const std::int32_t factor = h.source == kNone ? kNone : sources_[static_cast<std::size_t>(h.source)].factor;
      out.push_back({h.node, factor, h.reduced, h.partial});
    }
    std::sort(out.begin(), out.end(), [](const CarriedSum& a, const CarriedSum& b) { return a.node < b.node; });
    return out;
  }

 private:
  Collective all_reduce(NodeId node, Reduction reduction, GroupId group, std::vector<NodeId> sources) const {
    Collective c;
    c.kind = CollectiveKind::kAllReduce;
    c.reduction = reduction;
    c.node = node;
    c.bytes = static_cast<double>(flow_.shape(node).bytes);
    c.times = model_.times(node);
    c.group = group;
    c.sources = std::move(sources);
    return c;
  }

  bool is_kept(NodeId node) const { return model_.is_kept(node); }

  void find_sources() {
    for (const GroupId group : groups_) {
      for (const std::int32_t index : linkage_.factors_of_group(group)) {
        const OpFactor& factor = linkage_.factor(index);
        for (const NodeId node : factor.partial) {
          if (flow_.users(node).empty() && !is_kept(node)) continue;  // nobody asks for it
          sources_.push_back({node, factor.op, group, factor.reduction, index});
        }
      }
    }
    std::sort(sources_.begin(), sources_.end(), [](const Source& a, const Source& b) { return a.node < b.node; });
    sources_.erase(std::unique(sources_.begin(), sources_.end(),
                               [](const Source& a, const Source& b) { return a.node == b.node; }),
                   sources_.end());
  }

  bool is_whole(NodeId node) const {
    const std::size_t rank = flow_.shape(node).dims.size();
    for (std::size_t d = 0; d < rank; ++d) {
      const GroupId group = linkage_.group_of(node, static_cast<std::int32_t>(d));
      if (group != kNone && is_split_(group)) return false;
    }
    return true;
  }

  const Held* held(NodeId node) const {
    const auto found = index_.find(node);
    return found == index_.end() ? nullptr : &held_[static_cast<std::size_t>(found->second)];
  }

  // The sum that `node` would hold if its operands were left partial; nullopt when that is not the same as reducing
  // them first.
  struct Passed {
    Reduction reduction = Reduction::kNone;
    std::vector<bool> partial;  // by operand
    int addends = 0;
  };
  std::optional<Passed> passes(NodeId id) const {
    const FlowNode& node = flow_.node(id);
    const Shape& shape = flow_.shape(id);
    if (!shape.is_array()) return std::nullopt;
    const Span<const NodeId> operands = flow_.operands(id);
    Reduction reduction = Reduction::kNone;
    const GroupId owner = combined_ ? owner_of(id) : kNone;
    std::vector<bool> partial(operands.size(), false);
    std::size_t num_partial = 0;
    int addends = 0;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Held* operand = held(operands[i]);
      if (operand == nullptr || (combined_ && operand->group != owner && (!adds_up(id) || owner == kNone))) continue;
      if (reduction != Reduction::kNone && reduction != operand->reduction) return std::nullopt;
      reduction = operand->reduction;
      partial[i] = true;
      ++num_partial;
      addends = std::max(addends, operand->addends);
    }
    if (num_partial == 0) return std::nullopt;
    if (adds_up(id)) addends = num_partial == 2 ? 0 : addends + 1;
    const bool sum = reduction == Reduction::kAdd;
    const bool number = graph::is_float(shape) || is_integer(shape);
    const auto partial_or_zero = [&](std::size_t i) { return partial[i] || (sum && is_zero(flow_, operands[i])); };
    bool linear = false;
    switch (node.opcode) {
      case Opcode::kReshape:
      case Opcode::kTranspose:
      case Opcode::kCopy:
      case Opcode::kSlice:
      case Opcode::kBroadcast:
      case Opcode::kReverse:
      case Opcode::kOptBarrier: linear = operands.size() == 1; break;
      case Opcode::kBitcast:
        linear = operands.size() == 1 && flow_.shape(operands[0]).type == shape.type &&
                 flow_.shape(operands[0]).bits == shape.bits;
        break;
      case Opcode::kCustomCall:
        linear = operands.size() == 1 && graph::is_annotation(flow_.graph(), node.instruction);
        break;
      case Opcode::kConvert:
        linear = operands.size() == 1 &&
                 (sum || reduction == Reduction::kMinimum || reduction == Reduction::kMaximum) &&
                 converts(reduction, flow_.shape(operands[0]), shape);
        break;
      case Opcode::kNegate: linear = sum && number && operands.size() == 1; break;
      // A whole operand would be added once per device, unless each device's share of it can be written.
      case Opcode::kAdd:
      case Opcode::kSubtract:
        linear = sum && number && operands.size() == 2 &&
                 (num_partial == 2 || (combined_ && addends <= kMostAddends && can_write_share(model_, shape)));
        break;
      case Opcode::kMultiply: linear = sum && number && operands.size() == 2 && num_partial == 1; break;
      case Opcode::kDivide:  // of integers: rounds
        linear = sum && graph::is_float(shape) && operands.size() == 2 && partial[0] && !partial[1];
        break;
      case Opcode::kSelect:
        linear = operands.size() == 3 && !partial[0] && partial_or_zero(1) && partial_or_zero(2);
        break;
      case Opcode::kPad: linear = sum && operands.size() == 2 && !partial[1] && is_zero(flow_, operands[1]); break;
      case Opcode::kConcatenate: {
        linear = true;
        for (std::size_t i = 0; i < operands.size(); ++i) linear = linear && partial_or_zero(i);
        break;
      }
      // The start value would be added once per device.
      case Opcode::kReduce:
        linear = sum && number && operands.size() == 2 && partial[0] && !partial[1] && is_zero(flow_, operands[1]) &&
                 adds(flow_.graph(), node.instruction);
        break;
      default: break;
    }
    if (!linear) return std::nullopt;
    // Where anything is split each device has other elements, and the partial sums of one element are never together.
    for (const OpFactor& factor : linkage_.factors(id)) {
      if (factor.group != kNone && is_split_(factor.group)) return std::nullopt;
    }
    // If a combined sum is made whole, every device may keep its part.
    if (!is_whole(id) && !(combined_ && made_whole_.count(id) != 0)) return std::nullopt;
    for (const NodeId operand : operands) {
      if (!is_whole(operand)) return std::nullopt;
    }
    if (combined_ && (is_forbidden(id) || !can_write_step(model_, id, partial))) return std::nullopt;
    return Passed{reduction, std::move(partial), addends};
  }

  // Takes partial operands of whatever group.
  bool adds_up(NodeId id) const {
    return flow_.node(id).opcode == Opcode::kAdd || flow_.node(id).opcode == Opcode::kSubtract;
  }

  bool is_forbidden(NodeId node) const { return forbidden_.count(flow_.node(node).instruction) != 0; }

  bool reads_partial(const Held& reader, NodeId tensor) const {
    const Span<const NodeId> operands = flow_.operands(reader.node);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operands[i] == tensor && reader.partial[i]) return true;
    }
    return false;
  }

  // Who carries combined sums through an instruction: the group that would, were it alone. (The first where there are
  // several.) Sums of other groups are read whole there, or added to its own.
  GroupId owner_of(NodeId node) const {
    if (alone_) return groups_[0];
    const auto found = owners_.find(node);
    return found == owners_.end() ? kNone : found->second;
  }

  void find_owners() {
    for (const GroupId group : groups_) {
      Finder alone(
          model_, [group](GroupId g) { return g == group; }, {group}, true);
      alone.run(Placement::kCombined);
      for (const CarriedSum& sum : alone.carried()) owners_.emplace(sum.node, group);
    }
  }

  // Finds everything that could be left partial: the sources, and the linear instructions behind them.
  void find_region() {
    std::priority_queue<NodeId, std::vector<NodeId>, std::greater<NodeId>> candidates;
    held_.clear();
    index_.clear();
    const auto add = [&](NodeId node, Reduction reduction, std::int32_t source, GroupId group) {
      Held h;
      h.node = node;
      h.reduction = reduction;
      h.source = source;
      h.group = group;
      h.read_whole = is_kept(node);
      index_[node] = static_cast<std::int32_t>(held_.size());
      held_.push_back(std::move(h));
    };
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      const Source& source = sources_[i];
      if (combined_ &&
          (is_forbidden(source.node) || !can_write_source(model_, linkage_.factor(source.factor), source.node))) {
        out_.push_back(all_reduce(source.node, source.reduction, source.group, {source.op}));
        continue;
      }
      add(source.node, source.reduction, static_cast<std::int32_t>(i), source.group);
      for (const NodeId user : flow_.users(source.node)) candidates.push(user);
    }
    NodeId last = kNone;
    while (!candidates.empty()) {
      // Node order is topological: all operands have been here.
      const NodeId node = candidates.top();
      candidates.pop();
      if (node == last || index_.count(node) != 0) continue;
      last = node;
      std::optional<Passed> passed = passes(node);
      if (!passed) continue;
      add(node, passed->reduction, kNone, combined_ ? owner_of(node) : kNone);
      held_.back().partial = std::move(passed->partial);
      held_.back().addends = passed->addends;
      for (const NodeId user : flow_.users(node)) candidates.push(user);
    }
    for (std::size_t i = 0; i < held_.size(); ++i) {
      for (const NodeId user : flow_.users(held_[i].node)) {
        const auto found = index_.find(user);
        const Held* reader = found == index_.end() ? nullptr : &held_[static_cast<std::size_t>(found->second)];
        if (reader == nullptr || reader->source != kNone || !reads_partial(*reader, held_[i].node)) {
          held_[i].read_whole = true;
        } else {
          held_[i].into.push_back(found->second);
          held_[static_cast<std::size_t>(found->second)].from.push_back(static_cast<std::int32_t>(i));
        }
      }
    }
  }

  // Where to reduce. A tensor is left partial or not; the result of a linear instruction can be left partial only if
  // all its partial operands are; a partial tensor costs its bytes when anybody reads it whole. The cheapest choice is
  // a least cut, tensor by tensor: among equal ones the one that reduces latest.
  void place() {
    std::int32_t parts = 0;
    std::vector<std::vector<std::int32_t>> members;
    for (std::size_t i = 0; i < held_.size(); ++i) {
      if (held_[i].part != kNone) continue;
      members.emplace_back();
      std::vector<std::int32_t> stack{static_cast<std::int32_t>(i)};
      held_[i].part = parts;
      while (!stack.empty()) {
        const std::int32_t at = stack.back();
        stack.pop_back();
        members.back().push_back(at);
        const Held& h = held_[static_cast<std::size_t>(at)];
        for (const auto* side : {&h.from, &h.into}) {
          for (const std::int32_t other : *side) {
            if (held_[static_cast<std::size_t>(other)].part != kNone) continue;
            held_[static_cast<std::size_t>(other)].part = parts;
            stack.push_back(other);
          }
        }
      }
      ++parts;
    }
    for (std::vector<std::int32_t>& part : members) {
      std::sort(part.begin(), part.end());
      place_part(part);
    }
  }

  void place_part(const std::vector<std::int32_t>& part) {
    const auto at = [&](std::int32_t i) -> Held& { return held_[static_cast<std::size_t>(i)]; };
    if (part.size() == 1) {
      at(part[0]).left = true;
      if (at(part[0]).read_whole) reduce_at(part[0], {part[0]});
      return;
    }
    std::unordered_map<std::int32_t, std::size_t> local;
    for (std::size_t i = 0; i < part.size(); ++i) local[part[i]] = i;
    std::vector<double> price(part.size());
    double all = 1;
    for (std::size_t i = 0; i < part.size(); ++i) {
      const NodeId node = at(part[i]).node;
      // Whole numbers, so that equal sums are equal.
      price[i] = std::ceil((static_cast<double>(flow_.shape(node).bytes) + kLaunchBytes) * model_.times(node));
      all += price[i];
    }
    // Per tensor: 2i = left partial by its instruction, 2i + 1 = and nobody reads it whole.
    const std::size_t s = 2 * part.size(), t = s + 1;
    Cut cut(part.size() * 2 + 2);
    for (std::size_t i = 0; i < part.size(); ++i) {
      const Held& h = at(part[i]);
      if (h.source != kNone) cut.edge(s, 2 * i, all);
      cut.edge(2 * i, 2 * i + 1, price[i]);
      if (h.read_whole) cut.edge(2 * i + 1, t, all);
      for (const std::int32_t reader : h.into) {
        const std::size_t r = local.at(reader);
        cut.edge(2 * i + 1, 2 * r, all);
        cut.edge(2 * r, 2 * i, all);
      }
    }
    const std::vector<bool> before = cut.solve(s, t);
    std::vector<std::int32_t> left;
    for (std::size_t i = 0; i < part.size(); ++i) {
      at(part[i]).left = before[2 * i];
      if (before[2 * i]) left.push_back(part[i]);
    }
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (before[2 * i] && !before[2 * i + 1]) reduce_at(part[i], left);
    }
  }

  // By index of Held: true for sums that are read partial, and for their partial readers. (A source that is only
  // reduced where it arises is not carried.) Steps that nobody reads are not carried.
  std::vector<bool> find_carried() const {
    std::vector<bool> carried(held_.size(), false), read(held_.size(), false);
    for (std::size_t i : by_node_descending()) {
      const Held& h = held_[i];
      if (!h.left) continue;
      for (const std::int32_t reader : h.into) read[i] = read[i] || carried[static_cast<std::size_t>(reader)];
      carried[i] = h.source != kNone ? read[i] : read[i] || h.reduced;
    }
    return carried;
  }

  std::vector<std::size_t> by_node_descending() const {
    std::vector<std::size_t> order(held_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return held_[a].node > held_[b].node; });
    return order;
  }

  // An instruction that several calls share is one instruction of the written module: it is carried, and reduced, in
  // all of them or in none. For a single group: in all calls that the group knows of. Returns true if it forbade
  // anything new.
  bool forbid_differing() {
    struct State {
      std::int64_t times = 0;
      bool reduced = false, differs = false;
      std::vector<SlotDim> parts;
      std::vector<bool> partial;
    };
    std::map<InstructionId, State> states;
    const std::vector<CarriedSum> sums = carried();
    for (const CarriedSum& sum : sums) {
      const std::vector<SlotDim> parts =
          sum.factor == kNone ? std::vector<SlotDim>() : parts_read(model_, linkage_.factor(sum.factor));
      State& state = states[flow_.node(sum.node).instruction];
      if (state.times++ > 0 &&
          (state.reduced != sum.reduced || !(state.parts == parts) || state.partial != sum.partial)) {
        state.differs = true;
      }
      state.reduced = sum.reduced;
      state.parts = parts;
      state.partial = sum.partial;
    }
    if (states.empty()) return false;
    std::map<InstructionId, std::int64_t> runs;
    const auto count = [&](NodeId node) {
      const InstructionId id = flow_.node(node).instruction;
      if (states.count(id) != 0) ++runs[id];
    };
    if (alone_) {
      for (const Held& h : held_) count(h.node);
    } else {
      for (NodeId node = 0; node < flow_.size(); ++node) count(node);
    }
    bool fresh = false;
    for (const auto& [id, state] : states) {
      if (state.differs || state.times != runs[id]) fresh = forbidden_.insert(id).second || fresh;
    }
    return fresh;
  }

  // `left` (ascending): the tensors that are left partial.
  void reduce_at(std::int32_t where, const std::vector<std::int32_t>& left) {
    std::vector<std::int32_t> stack{where};
    std::vector<std::int32_t> sources;
    ++visit_;
    visited_.resize(held_.size(), 0);
    visited_[static_cast<std::size_t>(where)] = visit_;
    while (!stack.empty()) {
      const Held& h = held_[static_cast<std::size_t>(stack.back())];
      stack.pop_back();
      if (h.source != kNone) sources.push_back(h.source);
      for (const std::int32_t from : h.from) {
        if (visited_[static_cast<std::size_t>(from)] == visit_) continue;
        visited_[static_cast<std::size_t>(from)] = visit_;
        AM_CHECK(std::binary_search(left.begin(), left.end(), from));
        stack.push_back(from);
      }
    }
    std::sort(sources.begin(), sources.end());
    AM_CHECK(!sources.empty());
    std::vector<NodeId> ops;
    for (const std::int32_t source : sources) ops.push_back(sources_[static_cast<std::size_t>(source)].op);
    ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
    Held& h = held_[static_cast<std::size_t>(where)];
    h.reduced = true;
    out_.push_back(
        all_reduce(h.node, h.reduction, sources_[static_cast<std::size_t>(sources[0])].group, std::move(ops)));
  }

  // Finds partial sums that are made at a gather of their own instruction, which keeps its part of the sum: a sum that
  // nobody reads whole need not be whole anywhere.
  void find_kept_in_parts() {
    std::set<NodeId> whole;
    for (const Read& read : reads_) {
      if (read.gathered) whole.insert(read.tensor);
    }
    for (Collective& c : out_) {
      const bool in_parts = c.kind == CollectiveKind::kAllReduce && c.reduction == Reduction::kAdd &&
                            made_whole_.count(c.node) != 0 && whole.count(c.node) == 0;
      if (in_parts) c.kind = CollectiveKind::kReduceScatter;
    }
  }

  // Once per tensor and splitting, however many instructions read it so.
  void add_gathers() {
    // A tensor that is made whole needs no gather. Key: tensor, group, and the dimension along which it is read in
    // parts (kNone: gathered).
    std::map<std::tuple<NodeId, GroupId, std::int32_t>, std::vector<NodeId>> readers;
    for (const Read& read : reads_) {
      if (read.exchanged()) {
        readers[{read.tensor, read.group, read.in_parts}].push_back(read.reader);
      } else if (read.gathered && made_whole_.count(read.tensor) == 0) {
        readers[{read.tensor, read.group, kNone}].push_back(read.reader);
      }
    }
    for (const Gather& gather : model_.gathers()) {
      const GroupId group = linkage_.group_of(gather.tensor, gather.dim);
      if (gather.kind == Gather::Kind::kHandedOn && group != kNone && is_split_(group) &&
          made_whole_.count(gather.tensor) == 0) {
        readers[{gather.tensor, group, kNone}].push_back(gather.op);
      }
    }
    for (auto& [key, ops] : readers) {
      Collective c;
      c.kind = std::get<2>(key) == kNone ? CollectiveKind::kAllGather : CollectiveKind::kAllToAll;
      c.node = std::get<0>(key);
      c.group = std::get<1>(key);
      c.bytes = static_cast<double>(flow_.shape(c.node).bytes);
      c.times = model_.times(c.node);
      std::sort(ops.begin(), ops.end());
      ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
      c.sources = std::move(ops);
      out_.push_back(std::move(c));
    }
  }

  // One for each side. Of results that nobody asks for nothing is exchanged.
  void add_permutes() {
    std::map<std::tuple<NodeId, std::string, std::int64_t>, std::size_t> shared;
    for (const GroupId group : groups_) {
      for (const std::int32_t index : linkage_.factors_of_group(group)) {
        const OpFactor& factor = linkage_.factor(index);
        if (factor.halo == nullptr || (flow_.users(factor.op).empty() && !is_kept(factor.op))) continue;
        const TensorDim of = factor.members[0];
        for (const std::int64_t border : {-factor.halo->left, factor.halo->right}) {
          if (border == 0) continue;
          const std::string key =
              factor.halo->shared_by.empty() ? '#' + std::to_string(factor.op) : factor.halo->shared_by;
          const auto [found, added] = shared.try_emplace({of.node, key, border}, out_.size());
          if (!added) {
            out_[found->second].sources.push_back(factor.op);
            continue;
          }
          Collective c;
          c.kind = CollectiveKind::kPermute;
          c.node = of.node;
          const Shape& shape = flow_.shape(of.node);
          c.bytes = static_cast<double>(shape.bytes) /
                    static_cast<double>(shape.dims[static_cast<std::size_t>(of.dim)]) *
                    static_cast<double>(std::abs(border));
          c.times = model_.times(factor.op);
          c.group = group;
          c.sources = {factor.op};
          c.border = border;
          out_.push_back(std::move(c));
        }
      }
    }
  }

  const ShardingModel& model_;
  const Linkage& linkage_;
  const FlowGraph& flow_;
  std::function<bool(GroupId)> is_split_;
  std::vector<GroupId> groups_;
  std::vector<Read> reads_;
  bool alone_ = false, combined_ = false;
  std::unordered_map<NodeId, GroupId> owners_;  // of combined sums
  std::set<InstructionId> forbidden_;           // to carry, of combined sums
  std::set<NodeId> made_whole_;
  std::vector<Source> sources_;
  std::vector<Held> held_;
  std::unordered_map<NodeId, std::int32_t> index_;
  std::vector<std::int32_t> visited_;
  std::int32_t visit_ = 0;
  std::vector<Collective> out_;
};

}  // namespace

double TensorShares::of(const Collective& c) const {
  if (c.reduces()) return made[static_cast<std::size_t>(c.node)];
  for (const NodeId reader : c.sources) {
    if (gathered_first.count({reader, c.node}) != 0) return 1;
  }
  return held[static_cast<std::size_t>(c.node)];
}

namespace {

std::vector<Collective> as_shared(std::vector<Collective> collectives, const TensorShares* shares) {
  if (shares == nullptr) return collectives;
  for (Collective& c : collectives) c.bytes *= shares->of(c);
  return collectives;
}

}  // namespace

std::vector<Collective> find_collectives(const ShardingModel& model, const Propagation& decided, Placement placement,
                                         const TensorShares* shares) {
  const auto is_split = [&](GroupId g) { return decided.group_state(g) == GroupState::kSplit; };
  return as_shared(Finder(model, is_split, decided.split_groups(), false).run(placement), shares);
}

std::vector<Collective> collectives_of_group(const ShardingModel& model, GroupId group, Placement placement,
                                             const TensorShares* shares) {
  return as_shared(Finder(
                       model, [=](GroupId g) { return g == group; }, {group}, true)
                       .run(placement),
                   shares);
}

std::vector<CarriedSum> carried_sums(const ShardingModel& model, const Propagation& decided) {
  const auto is_split = [&](GroupId g) { return decided.group_state(g) == GroupState::kSplit; };
  Finder finder(model, is_split, decided.split_groups(), false);
  finder.run(Placement::kCombined);
  return finder.carried();
}

Placement written_placement(const ShardingModel& model) {
  return model.sums_combined() ? Placement::kCombined : Placement::kAtOnce;
}

Placement listed_placement(const ShardingModel& model) {
  return model.sums_combined() ? Placement::kCombined : Placement::kDelayed;
}

CollectiveTotals total(const std::vector<Collective>& collectives, CollectiveKind kind) {
  CollectiveTotals totals;
  for (const Collective& c : collectives) {
    if (c.written_kind() != kind) continue;
    ++totals.count;
    totals.executed += c.times;
    totals.bytes += c.times * c.bytes;
  }
  return totals;
}

}  // namespace automap::sharding
