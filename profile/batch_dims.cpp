#include "profile/batch_dims.h"

#include <algorithm>
#include <functional>
#include <map>
#include <unordered_map>
#include <utility>

#include "common/base/check.h"
#include "common/graph/dependence.h"
#include "common/graph/hlo_cost.h"
#include "common/sharding/rule.h"

namespace automap::profile {

namespace {

using graph::DimSet;
using graph::EntryInput;
using graph::FlowGraph;
using graph::FlowNode;
using graph::InputRole;
using graph::InstructionId;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;
using graph::Shape;

DimSet bit(std::int32_t dim) {
  return dim >= 0 && dim < 64 ? DimSet{1} << dim : 0;
}

class BatchFinder {
 public:
  BatchFinder(const FlowGraph& flow, std::int64_t batch) : flow_(flow), batch_(batch) {
    const auto n = static_cast<std::size_t>(flow.size());
    marks_.assign(n, 0);
    pending_.assign(n, false);
    barred_.assign(n, false);
    find_free();
    for (const graph::FlowLoop& loop : flow.loops()) {
      for (std::size_t i = 0; i < loop.parameter.size(); ++i) {
        tie(loop.initial[i], loop.parameter[i]);
        tie(loop.parameter[i], loop.next[i]);
      }
    }
  }

  // Nodes that never grow: what follows from `weights` alone, and what `updates` marks.
  void bar(const std::vector<NodeId>& weights, const std::vector<bool>& updates) {
    barred_ = of_weights_alone(weights);
    for (NodeId node = 0; node < flow_.size(); ++node) {
      const auto i = static_cast<std::size_t>(node);
      // A broadcast of a weight is as large as what reads it.
      if (flow_.node(node).opcode == Opcode::kBroadcast) barred_[i] = false;
      if (updates[i]) barred_[i] = true;
    }
  }

  void mark(NodeId node, DimSet dims) {
    const Shape& shape = flow_.shape(node);
    const auto i = static_cast<std::size_t>(node);
    if (!shape.is_array() || barred_[i]) return;
    for (std::size_t d = 0; d < shape.dims.size() && d < 64; ++d) {
      if (shape.dims[d] < least_extent()) dims &= ~bit(static_cast<std::int32_t>(d));
    }
    if (shape.dims.size() < 64) dims &= (DimSet{1} << shape.dims.size()) - 1;
    // With one sample, reshapes hide the place of the batch: a tensor that holds it in one dimension has it in no
    // other.
    if (batch_ == 1 && marks_[i] != 0) return;
    if (batch_ == 1) dims &= ~dims + 1;
    if ((dims & ~marks_[i]) == 0) return;
    marks_[i] |= dims;
    visit_later(flow_.producer(node));
    // A constant is made again for everybody who reads it.
    if (!free_[i]) {
      for (const NodeId user : flow_.users(node)) visit_later(flow_.producer(user));
    }
    const auto [begin, end] = ties_.equal_range(node);
    for (auto other = begin; other != end; ++other) {
      if (!free_[i] || free_[static_cast<std::size_t>(other->second)]) mark(other->second, marks_[i]);
    }
  }

  // Until nothing grows any more: with the flow and against it in turn.
  void close() {
    while (waiting_ > 0) {
      for (NodeId op = 0; waiting_ > 0 && op < flow_.size(); ++op) visit_if_pending(op);
      for (NodeId op = flow_.size(); waiting_ > 0 && op-- > 0;) visit_if_pending(op);
    }
  }

  DimSet marks(NodeId node) const { return marks_[static_cast<std::size_t>(node)]; }

  // The dimensions of a product's operands that its result keeps, where the result has nothing of the batch although
  // the product sums over it: (operand, dimension).
  std::vector<std::pair<NodeId, std::int32_t>> kept_of_sum(NodeId op) {
    std::vector<std::pair<NodeId, std::int32_t>> kept;
    if (flow_.node(op).opcode != Opcode::kDot || marks(op) != 0) return kept;
    const Span<const NodeId> operands = flow_.operands(op);
    if (operands.size() != 2 || (marks(operands[0]) | marks(operands[1])) == 0) return kept;
    for (const sharding::Factor& factor : rule_of(op).factors) {
      if (factor.dims.size() != 2 || factor.dims[0].slot > 1 || factor.dims[1].slot != 2) continue;
      kept.emplace_back(operands[static_cast<std::size_t>(factor.dims[0].slot)], factor.dims[0].dim);
    }
    return kept;
  }

 private:
  // As the linkage has it: what follows from constants, iota and scalars alone.
  void find_free() {
    free_.assign(static_cast<std::size_t>(flow_.size()), false);
    for (NodeId node = 0; node < flow_.size(); ++node) {
      const FlowNode& n = flow_.node(node);
      const Shape& shape = flow_.shape(node);
      if (!shape.is_tuple() && (!shape.is_array() || shape.dims.empty())) {
        free_[static_cast<std::size_t>(node)] = true;
        continue;
      }
      switch (n.opcode) {
        case Opcode::kParameter:
        case Opcode::kRng:
        case Opcode::kRngBitGenerator:
        case Opcode::kRngGetAndUpdateState:
        case Opcode::kInfeed:
        case Opcode::kRecv:
        case Opcode::kRecvDone:
        case Opcode::kWhile: continue;
        case Opcode::kCustomCall:
          if (!graph::is_annotation(flow_.graph(), n.instruction)) continue;
          break;
        default: break;
      }
      bool all = true;
      for (const NodeId operand : flow_.operands(node)) all = all && free_[static_cast<std::size_t>(operand)];
      free_[static_cast<std::size_t>(node)] = all;
    }
  }

  // A module of one sample has a batch of that extent.
  std::int64_t least_extent() const { return std::min<std::int64_t>(batch_, 2); }

  // Marks the values computed from weights and from nothing else but constants, iota and scalars; no value that loops
  // carry.
  std::vector<bool> of_weights_alone(const std::vector<NodeId>& weights) const {
    std::vector<bool> alone(free_.size(), false);
    for (const NodeId weight : weights) alone[static_cast<std::size_t>(weight)] = true;
    for (NodeId node = 0; node < flow_.size(); ++node) {
      if (flow_.node(node).opcode == Opcode::kWhile) continue;
      bool any = false, all = true;
      for (const NodeId operand : flow_.operands(node)) {
        any = any || alone[static_cast<std::size_t>(operand)];
        all = all && (alone[static_cast<std::size_t>(operand)] || free_[static_cast<std::size_t>(operand)]);
      }
      if (any && all) alone[static_cast<std::size_t>(node)] = true;
    }
    return alone;
  }

  void tie(NodeId a, NodeId b) {
    if (a == b || flow_.shape(a).dims != flow_.shape(b).dims) return;
    ties_.emplace(a, b);
    ties_.emplace(b, a);
  }

  // Queues an operation, but not the one that is being visited: its own marks are no news to it.
  void visit_later(NodeId op) {
    if (op == visited_ || flow_.node(op).opcode == Opcode::kParameter || pending_[static_cast<std::size_t>(op)]) return;
    pending_[static_cast<std::size_t>(op)] = true;
    ++waiting_;
  }

  void visit_if_pending(NodeId op) {
    if (!pending_[static_cast<std::size_t>(op)]) return;
    pending_[static_cast<std::size_t>(op)] = false;
    --waiting_;
    visited_ = op;
    const bool again = visit(op);
    visited_ = kNone;
    if (again) visit_later(op);
  }

  // true: dimensions without a factor were marked, which may be in other factors of it.
  bool visit(NodeId op) {
    const Span<const NodeId> operands = flow_.operands(op);
    slots_.assign(operands.begin(), operands.end());
    const std::size_t first_result = slots_.size();
    if (!flow_.shape(op).is_tuple()) {
      slots_.push_back(op);
    } else {
      for (NodeId next = op + 1; next < flow_.size() && flow_.producer(next) == op; ++next) slots_.push_back(next);
    }
    // From what do the marks come? Never from a constant forwards.
    sources_.assign(slots_.size(), 0);
    bool any = false;
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      if (s >= first_result || !free_[static_cast<std::size_t>(slots_[s])]) sources_[s] = marks(slots_[s]);
      any = any || sources_[s] != 0;
    }
    if (!any) return false;
    const FlowNode& node = flow_.node(op);
    if (graph::is_elementwise(node.opcode)) return same_dims(0, op);
    if (node.opcode == Opcode::kConditional && node.leaf != kNone) return same_dims(1, op);
    if (node.opcode == Opcode::kOptBarrier && node.leaf != kNone) return same_dims(0, op);
    if (node.num_operands != flow_.graph().instruction(node.instruction).num_operands) return false;
    switch (node.opcode) {
      case Opcode::kReshape:
      case Opcode::kBitcast:
      case Opcode::kDynamicReshape: cross_reshape(); return false;
      default: return follow_rule(op);
    }
  }

  bool same_dims(std::size_t first, NodeId op) {
    const std::vector<std::int64_t>& dims = flow_.shape(op).dims;
    DimSet all = 0;
    for (std::size_t s = first; s < slots_.size(); ++s) {
      if (flow_.shape(slots_[s]).dims == dims) all |= sources_[s];
    }
    for (std::size_t s = first; s < slots_.size(); ++s) {
      if (flow_.shape(slots_[s]).dims == dims) mark(slots_[s], all);
    }
    return false;
  }

  // Valid until the next call.
  const sharding::OpRule& rule_of(NodeId op) {
    const FlowNode& node = flow_.node(op);
    const auto ask = batch_ == 1 ? sharding::growth_rule_of : sharding::rule_of;
    if (node.site == kNone) {
      rule_ = ask(flow_.graph(), node.instruction);
      return rule_;
    }
    // Another call of the same computation may come.
    const auto [it, added] = rules_.try_emplace(node.instruction);
    if (added) it->second = ask(flow_.graph(), node.instruction);
    return it->second;
  }

  bool is_source(sharding::SlotDim at) const {
    const auto slot = static_cast<std::size_t>(at.slot);
    return slot < sources_.size() && (sources_[slot] & bit(at.dim)) != 0;
  }

  bool follow_rule(NodeId op) {
    const sharding::OpRule& rule = rule_of(op);
    for (const sharding::Factor& factor : rule.factors) {
      if (!std::any_of(factor.dims.begin(), factor.dims.end(), [&](auto at) { return is_source(at); })) continue;
      for (const sharding::SlotDim at : factor.dims) {
        if (static_cast<std::size_t>(at.slot) < slots_.size())
          mark(slots_[static_cast<std::size_t>(at.slot)], bit(at.dim));
      }
    }
    const bool blocked =
        std::any_of(rule.blocked.begin(), rule.blocked.end(), [&](const auto& b) { return is_source(b.at); });
    if (!blocked) return false;
    switch (flow_.node(op).opcode) {
      case Opcode::kGather:
      case Opcode::kScatter:
      case Opcode::kDot:
      case Opcode::kRaggedDot:
      case Opcode::kScaledDot:
      case Opcode::kConvolution:
      case Opcode::kWhile:
      case Opcode::kCall:
      case Opcode::kFusion: return false;
      default: break;
    }
    std::vector<DimSet> before;
    for (const NodeId slot : slots_) before.push_back(marks(slot));
    for (const sharding::BlockedDim& b : rule.blocked) {
      if (!is_source(b.at)) continue;
      const std::size_t rank = flow_.shape(slots_[static_cast<std::size_t>(b.at.slot)]).dims.size();
      for (const NodeId slot : slots_) {
        if (flow_.shape(slot).dims.size() == rank) mark(slot, bit(b.at.dim));
      }
    }
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      if (marks(slots_[s]) != before[s]) return true;
    }
    return false;
  }

  // Reshapes keep runs of dimensions together: [128,8,64] -> [1024,64] is {128,8} -> {1024} and {64} -> {64}. In a run
  // that holds the batch on one side, the other side has it where an extent is the batch's, else in the first that is a
  // multiple of it. (A propagation rule takes the first part whatever it is: only that can be split.)
  void cross_reshape() {
    const std::vector<std::int64_t>& from = flow_.shape(slots_.front()).dims;
    const std::vector<std::int64_t>& to = flow_.shape(slots_.back()).dims;
    std::size_t i = 0, j = 0;
    while (i < from.size() && j < to.size()) {
      const std::size_t begin_i = i, begin_j = j;
      double left = static_cast<double>(from[i++]), right = static_cast<double>(to[j++]);
      while (left != right) {
        if (left < right && i < from.size()) {
          left *= static_cast<double>(from[i++]);
        } else if (right < left && j < to.size()) {
          right *= static_cast<double>(to[j++]);
        } else {
          return;
        }
      }
      // [32,1,64] -> [32,64] keeps a batch of one in the first run: its samples lie between those of 32.
      while (i < from.size() && from[i] == 1) ++i;
      while (j < to.size() && to[j] == 1) ++j;
      cross_run(sources_.front(), begin_i, i, slots_.back(), begin_j, j);
      cross_run(sources_.back(), begin_j, j, slots_.front(), begin_i, i);
    }
  }

  void cross_run(DimSet from, std::size_t begin, std::size_t end, NodeId to, std::size_t to_begin, std::size_t to_end) {
    bool any = false;
    for (std::size_t d = begin; d < end; ++d) any = any || (from & bit(static_cast<std::int32_t>(d))) != 0;
    for (std::size_t d = to_begin; d < to_end; ++d) any = any && (marks(to) & bit(static_cast<std::int32_t>(d))) == 0;
    if (!any) return;
    const std::vector<std::int64_t>& dims = flow_.shape(to).dims;
    for (const bool exact : {true, false}) {
      for (std::size_t d = to_begin; d < to_end; ++d) {
        if (exact ? dims[d] != batch_ : dims[d] % batch_ != 0) continue;
        mark(to, bit(static_cast<std::int32_t>(d)));
        return;
      }
    }
  }

  const FlowGraph& flow_;
  std::int64_t batch_;
  std::vector<DimSet> marks_;
  std::vector<bool> free_, pending_, barred_;
  std::int64_t waiting_ = 0;
  std::multimap<NodeId, NodeId> ties_;
  NodeId visited_ = kNone;
  std::unordered_map<InstructionId, sharding::OpRule> rules_;
  sharding::OpRule rule_;
  std::vector<NodeId> slots_;
  std::vector<DimSet> sources_;
};

using NodeOf = std::function<NodeId(const EntryInput& input)>;

// Neither weights nor what updates them grow with the batch; `node` finds an input in `flow`.
void bar_weights(const graph::TrainingStep& step, const FlowGraph& flow, const NodeOf& node, BatchFinder* finder) {
  std::vector<NodeId> weights;
  for (const EntryInput& input : step.inputs) {
    if (input.role == InputRole::kVariable || input.role == InputRole::kSlot) weights.push_back(node(input));
  }
  std::vector<bool> updating(static_cast<std::size_t>(flow.graph().num_instructions()), false);
  for (NodeId id = 0; id < step.flow.size(); ++id) {
    if (step.part[static_cast<std::size_t>(id)] == graph::Part::kOptimizer)
      updating[static_cast<std::size_t>(step.flow.node(id).instruction)] = true;
  }
  std::vector<bool> updates(static_cast<std::size_t>(flow.size()), false);
  for (NodeId id = 0; id < flow.size(); ++id) {
    updates[static_cast<std::size_t>(id)] = updating[static_cast<std::size_t>(flow.node(id).instruction)];
  }
  finder->bar(weights, updates);
}

// Where the forward pass sums products over the batch and keeps nothing of it, it has sorted the samples into places of
// its own making: the capacity of experts. Such a dimension is no input's; it is as long as the framework made it for
// this batch, so it grows as the batch does. One sample after the other, as marks make more of them.
bool mark_made_up_dims(const graph::TrainingStep& step, const FlowGraph& flow, std::int64_t batch,
                       const std::vector<NodeId>& inputs, BatchFinder* finder) {
  std::vector<bool> forward(static_cast<std::size_t>(flow.graph().num_instructions()), false);
  for (NodeId id = 0; id < step.flow.size(); ++id) {
    if (step.part[static_cast<std::size_t>(id)] == graph::Part::kForward)
      forward[static_cast<std::size_t>(step.flow.node(id).instruction)] = true;
  }
  bool any = false;
  constexpr int kMost = 1000;
  int tries = 0;
  for (NodeId op = 0; op < flow.size() && tries < kMost; ++op) {
    if (!forward[static_cast<std::size_t>(flow.node(op).instruction)]) continue;
    for (const auto& [operand, dim] : finder->kept_of_sum(op)) {
      ++tries;
      BatchFinder other(flow, batch);
      other.mark(operand, bit(dim));
      other.close();
      if (std::any_of(inputs.begin(), inputs.end(), [&](NodeId input) { return other.marks(input) != 0; })) continue;
      finder->mark(operand, bit(dim));
      finder->close();
      any = true;
    }
  }
  return any;
}

// The step's data by name, the largest first.
std::vector<std::string> data_names(const graph::TrainingStep& step) {
  std::vector<const EntryInput*> data;
  // Where no input is known as data, all inputs that the step reads and does not update.
  for (const InputRole role : {InputRole::kStepInput, InputRole::kFrozen}) {
    for (const EntryInput& input : step.inputs) {
      const Shape& shape = step.flow.shape(input.node);
      if (input.role == role && shape.is_array() && !shape.dims.empty()) data.push_back(&input);
    }
    if (!data.empty()) break;
  }
  std::stable_sort(data.begin(), data.end(), [&](const EntryInput* a, const EntryInput* b) {
    return step.flow.shape(a->node).num_elements > step.flow.shape(b->node).num_elements;
  });
  std::vector<std::string> names;
  for (const EntryInput* input : data) names.push_back(input->name);
  return names;
}

}  // namespace

BatchDims find_batch_dims(const graph::Graph& graph, const graph::TrainingStep& step) {
  BatchDims out{step.batch, graph::DimMarks(graph), false, {}, data_names(step)};
  if (step.batch_inputs.empty() || step.batch <= 0) {
    out.problem = "no input of the module is known to hold the batch";
    return out;
  }
  if (step.batch_ambiguous) {
    out.problem = "the inputs disagree about which dimension is the batch";
    return out;
  }
  // With loops and fusions expanded; where there are none, the step's own flow.
  bool units = false;
  for (InstructionId id = 0; id < graph.num_instructions() && !units; ++id) {
    const Opcode opcode = graph.instruction(id).opcode;
    units = opcode == Opcode::kWhile || opcode == Opcode::kFusion;
  }
  FlowGraph expanded;
  if (units) {
    graph::FlowOptions options;
    options.loops = options.fusions = true;
    expanded = FlowGraph::build(graph, options);
  }
  const FlowGraph& flow = units ? expanded : step.flow;
  std::map<std::pair<std::int32_t, std::int32_t>, NodeId> node_of;
  for (const graph::FlowInput& input : flow.inputs()) node_of[{input.parameter, input.leaf}] = input.node;
  const NodeOf node = [&](const EntryInput& input) { return node_of.at({input.parameter, input.leaf}); };

  BatchFinder finder(flow, step.batch);
  if (step.batch == 1) bar_weights(step, flow, node, &finder);
  for (const graph::BatchInput& input : step.batch_inputs)
    finder.mark(node(step.inputs[static_cast<std::size_t>(input.input)]), bit(input.dim));
  finder.close();
  std::vector<NodeId> inputs;
  for (const EntryInput& input : step.inputs) inputs.push_back(node(input));
  out.made_up = mark_made_up_dims(step, flow, step.batch, inputs, &finder);

  for (const EntryInput& input : step.inputs) {
    if ((input.role == InputRole::kVariable || input.role == InputRole::kSlot) && finder.marks(node(input)) != 0) {
      out.problem = "the weight " + input.name + " would grow with the batch";
      return out;
    }
  }
  for (NodeId id = 0; id < flow.size(); ++id) {
    const FlowNode& n = flow.node(id);
    const DimSet dims = finder.marks(id);
    if (dims == 0) continue;
    // A projection may stand for the get-tuple-element that reads it: the unit's own result has it too.
    for (const InstructionId instruction : {n.instruction, flow.node(flow.producer(id)).instruction}) {
      const bool tuple = graph.shape_of(instruction).is_tuple();
      if (tuple && n.leaf == kNone) continue;
      out.marks.add(instruction, tuple ? static_cast<std::size_t>(n.leaf) : 0, dims);
    }
  }
  out.marks.hand_on();
  return out;
}

}  // namespace automap::profile
