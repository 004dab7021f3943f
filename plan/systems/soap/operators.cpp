#include "plan/systems/soap/operators.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/base/text_table.h"
#include "common/graph/dependence.h"
#include "common/graph/flow_order.h"
#include "common/graph/layers.h"
#include "common/graph/variable_updates.h"
#include "plan/systems/soap/operator_dims.h"
#include "profile/batch_dims.h"
#include "profile/cut_bytes.h"
#include "profile/fused_positions.h"
#include "profile/host_time.h"
#include "profile/step_positions.h"
#include "profile/step_times.h"
#include "profile/time_estimator.h"

namespace automap::soap {

using graph::NodeId;
using graph::Opcode;
using graph::Origin;
using graph::Part;

namespace {

constexpr double kMuch = 0.1;  // of the compute

// True if the instruction begins an operator whatever it reads. (A reduction does, unless what it reads is one's own.)
bool begins_operator(const graph::FlowGraph& flow, NodeId id) {
  const graph::FlowNode& node = flow.node(id);
  if (node.opcode == Opcode::kGetTupleElement || (node.opcode == Opcode::kConditional && node.leaf != kNone))
    return false;
  if (node.opcode == Opcode::kCustomCall) return !graph::is_annotation(flow.graph(), node.instruction);
  return graph::has_trait(node.opcode, graph::trait::kHeavy | graph::trait::kCollective) ||
         node.opcode == Opcode::kGather || node.opcode == Opcode::kConcatenate;
}

bool is_real(const graph::Shape& shape) {
  switch (shape.type) {
    case graph::ElementType::kF16:
    case graph::ElementType::kBf16:
    case graph::ElementType::kF32:
    case graph::ElementType::kF64:
    case graph::ElementType::kC64:
    case graph::ElementType::kC128:
    case graph::ElementType::kF8:
    case graph::ElementType::kF6:
    case graph::ElementType::kF4: return true;
    default: return false;
  }
}

class OperatorFinder {
 public:
  OperatorFinder(const graph::Graph& graph, const graph::TrainingStep& step, const machine::DeviceModel& device)
      : graph_(graph),
        step_(step),
        flow_(step.flow),
        order_(graph::order_forward(step)),
        at_(step, order_),
        free_(graph::find_free(step.flow)),
        batch_(profile::find_batch_dims(graph, step)),
        device_(device) {}

  ModelSpace run() {
    find_operators();
    if (nodes_of_.empty()) {
      throw Error(ErrorKind::kData, "the module has no operator: nothing of its forward pass depends on step inputs",
                  "SOAP splits the work of a training or inference step; is this the right module?");
    }
    find_dims();
    find_variables();
    charge_times();
    find_edges();
    name_instructions();
    lay_tensors();
    out_.training = step_.training;
    out_.space.link();
    if (!batch_.problem.empty()) {
      out_.warnings.push_back("no dimension is known to hold samples, so there is no data parallelism: " +
                              batch_.problem);
    }
    return std::move(out_);
  }

 private:
  bool is_flow(NodeId id) const {
    return at_.part(id) == Part::kForward && at_.position(id) != kNone && at_.origin(id) == Origin::kFlow;
  }

  // --- Which instructions make an operator ---

  void find_operators() {
    operator_of_.assign(at(flow_.size()), kNone);
    const graph::LayerNames layers = graph::name_layers(step_, order_);
    std::vector<bool> reduces;
    std::map<OperatorId, OperatorId> reductions_of;
    for (const NodeId id : order_.order) {
      if (!is_flow(id)) continue;
      OperatorId latest = kNone;
      for (const NodeId operand : flow_.operands(id)) latest = std::max(latest, operator_of_[at(operand)]);
      const bool reduction = flow_.node(id).opcode == Opcode::kReduce;
      // Reductions of one operator's results are one operator: mean and variance.
      if (reduction && latest != kNone && reductions_of.count(latest) > 0) latest = reductions_of.at(latest);
      const bool begins = begins_operator(flow_, id) || latest == kNone || (reduction && !reduces[at(latest)]);
      if (begins) {
        if (reduction && latest != kNone) reductions_of[latest] = static_cast<OperatorId>(nodes_of_.size());
        latest = static_cast<OperatorId>(nodes_of_.size());
        nodes_of_.emplace_back();
        reduces.push_back(reduction);
        Operator op;
        op.name = std::string(graph_.instruction(flow_.node(id).instruction).name);
        op.opcode = std::string(graph_.instruction(flow_.node(id).instruction).opcode_name);
        const auto position = at(at_.position(id));
        op.layer = position < layers.name.size() ? layers.name[position] : "";
        out_.space.operators.push_back(std::move(op));
      }
      operator_of_[at(id)] = latest;
      nodes_of_[at(latest)].push_back(id);
    }
  }

  // Preparations that an operator reads, and the variables and other inputs behind them.
  void find_preparations(OperatorId op, std::vector<NodeId>* preparations, std::vector<NodeId>* read) const {
    std::set<NodeId> seen;
    std::vector<NodeId> stack = nodes_of_[at(op)];
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      for (const NodeId operand : flow_.operands(id)) {
        if (operator_of_[at(operand)] == op || free_[at(operand)] || !seen.insert(operand).second) continue;
        if (operator_of_[at(operand)] != kNone || at_.part(operand) == Part::kInput) {
          read->push_back(operand);
        } else {
          preparations->push_back(operand);
          stack.push_back(operand);
        }
      }
    }
    std::sort(preparations->begin(), preparations->end());
    std::sort(read->begin(), read->end());
  }

  // --- What they can be split along ---

  void find_dims() {
    read_.resize(nodes_of_.size());
    dim_of_class_.resize(nodes_of_.size());
    for (std::size_t i = 0; i < nodes_of_.size(); ++i) {
      const auto op = static_cast<OperatorId>(i);
      std::vector<NodeId> preparations;
      find_preparations(op, &preparations, &read_[i]);
      const std::set<NodeId> prepared(preparations.begin(), preparations.end());
      dims_.push_back(std::make_unique<OperatorDims>(flow_, free_));
      const auto own = [&](NodeId id) { return operator_of_[at(id)] == op || prepared.count(id) > 0; };
      for (const NodeId id : preparations) dims_.back()->add(id, own);
      for (const NodeId id : nodes_of_[i]) dims_.back()->add(id, own);
      // Reductions of one operator's results are parts of one work, on values and their squares: split alike.
      for (const NodeId id : nodes_of_[i]) {
        if (flow_.node(id).opcode == Opcode::kReduce && !own(flow_.operands(id)[0]))
          dims_.back()->tie(main_tensor(op), flow_.operands(id)[0]);
      }
      dims_.back()->finish();
      choose_dims(op);
    }
  }

  // The tensor whose dimensions an operator can be split along.
  NodeId main_tensor(OperatorId op) const {
    const NodeId first = nodes_of_[at(op)].front();
    if (flow_.node(first).opcode == Opcode::kReduce && !free_[at(flow_.operands(first)[0])])
      return flow_.operands(first)[0];
    const bool has_results =
        flow_.shape(first).is_tuple() && first + 1 < flow_.size() && flow_.producer(first + 1) == first;
    return has_results ? first + 1 : first;
  }

  bool holds_samples(NodeId node, std::int32_t dim) const {
    if (!batch_.problem.empty() || dim >= 64) return false;
    const graph::FlowNode& n = flow_.node(node);
    const auto marks = batch_.marks.of(n.instruction);
    const auto leaf = n.leaf == kNone ? std::size_t{0} : at(n.leaf);
    // An element of a unit's result is marked at the unit.
    return leaf < marks.size() && (marks[leaf] >> dim & 1) != 0;
  }

  void choose_dims(OperatorId op) {
    const OperatorDims& dims = *dims_[at(op)];
    const NodeId main = main_tensor(op);
    if (!flow_.shape(main).is_array()) return;
    for (std::size_t d = 0; d < flow_.shape(main).dims.size(); ++d) {
      const std::int32_t c = dims.class_of(main, static_cast<std::int32_t>(d));
      if (c == kNone || dims.blocked(c) || dims.extent(c) <= 1) continue;
      bool sample = false, parameter = false;
      for (const auto& [node, dim] : dims.members(c)) {
        sample = sample || holds_samples(node, dim);
        parameter = parameter || (at_.part(node) == Part::kInput && at_.origin(node) == Origin::kWeights);
      }
      if (dims.reduced(c) && !sample) continue;
      const DimKind kind = sample ? DimKind::kSample : parameter ? DimKind::kParameter : DimKind::kAttribute;
      dim_of_class_[at(op)][c] = static_cast<std::int32_t>(out_.space.operators[at(op)].dims.size());
      out_.space.operators[at(op)].dims.push_back({kind, dims.extent(c)});
    }
  }

  // The dimension of the operator that splits a tensor's; kNone: none does.
  std::int32_t dim_of(OperatorId op, NodeId node, std::int32_t dim) const {
    const std::int32_t c = dims_[at(op)]->class_of(node, dim);
    if (c == kNone) return kNone;
    const auto it = dim_of_class_[at(op)].find(c);
    return it == dim_of_class_[at(op)].end() ? kNone : it->second;
  }

  // --- Variables ---

  void find_variables() {
    const graph::VariableUpdates updates = graph::find_variable_updates(step_);
    worker_of_ = updates.worker_of;
    std::map<NodeId, OperatorId> first_reader;
    for (std::size_t i = 0; i < read_.size(); ++i) {
      for (const NodeId id : read_[i]) first_reader.emplace(id, static_cast<OperatorId>(i));
    }
    std::vector<std::map<std::vector<std::int32_t>, std::size_t>> alike(nodes_of_.size());
    for (std::size_t v = 0; v < step_.variables.size(); ++v) {
      const graph::EntryInput& input = step_.inputs[at(step_.variables[v])];
      const auto reader = first_reader.find(input.node);
      owner_of_variable_.push_back(reader == first_reader.end() ? kNone : reader->second);
      group_of_variable_.push_back(kNone);
      if (owner_of_variable_.back() == kNone) {
        out_.warnings.push_back("variable " + input.name + " is read by no operator: its update is not in the step");
        continue;
      }
      const OperatorId op = owner_of_variable_.back();
      owner_[input.node] = op;
      has_gradient_[input.node] = input.gradient != kNone;
      if (!step_.training) continue;
      std::set<std::int32_t> split;
      for (std::size_t d = 0; d < flow_.shape(input.node).dims.size(); ++d) {
        const std::int32_t dim = dim_of(op, input.node, static_cast<std::int32_t>(d));
        if (dim != kNone) split.insert(dim);
      }
      const std::vector<std::int32_t> key(split.begin(), split.end());
      std::vector<Weights>& weights = out_.space.operators[at(op)].weights;
      const auto [it, added] = alike[at(op)].try_emplace(key, weights.size());
      if (added) {
        weights.emplace_back();
        weights.back().dims = key;
      }
      weights[it->second].weight_bytes += static_cast<double>(flow_.shape(input.node).bytes);
      if (input.gradient != kNone) weights[it->second].gradient_bytes += updates.gradient_bytes[v];
      group_of_variable_.back() = static_cast<std::int32_t>(it->second);
    }
    slot_of_ = updates.slot_of;
    charge_slots(updates);
  }

  // A slot lies with its variable; state that belongs to no single variable is spread as the weights are.
  void charge_slots(const graph::VariableUpdates& updates) {
    double spread = 0, all = 0;
    for (std::size_t k = 0; k < step_.inputs.size(); ++k) {
      if (step_.inputs[k].role != graph::InputRole::kSlot) continue;
      const auto bytes = static_cast<double>(flow_.shape(step_.inputs[k].node).bytes);
      const std::int32_t v = updates.slot_of[k];
      if (v != kNone && group_of_variable_[at(v)] != kNone) {
        const OperatorId op = owner_of_variable_[at(v)];
        out_.space.operators[at(op)].weights[at(group_of_variable_[at(v)])].slot_bytes += bytes;
      } else {
        spread += bytes;
      }
    }
    for (const Operator& op : out_.space.operators) {
      for (const Weights& weights : op.weights) all += weights.weight_bytes;
    }
    if (spread == 0 || all == 0) return;
    for (Operator& op : out_.space.operators) {
      for (Weights& weights : op.weights) weights.slot_bytes += spread * (weights.weight_bytes / all);
    }
  }

  // --- What they read of each other ---

  void find_edges() {
    std::vector<bool> wants_gradient(nodes_of_.size(), false);
    for (std::size_t i = 0; i < nodes_of_.size(); ++i) {
      const auto op = static_cast<OperatorId>(i);
      std::map<OperatorId, Edge> edges;
      for (const Weights& weights : out_.space.operators[i].weights) {
        wants_gradient[i] = wants_gradient[i] || weights.gradient_bytes > 0;
      }
      for (const NodeId id : read_[i]) {
        const bool variable = owner_.count(id) > 0;
        const OperatorId from = variable ? owner_.at(id) : operator_of_[at(id)];
        const graph::Shape& shape = flow_.shape(id);
        if (from == kNone || from == op) continue;
        const bool gradient = step_.training && is_real(shape) &&
                              (variable ? has_gradient_.at(id) : static_cast<bool>(wants_gradient[at(from)]));
        wants_gradient[i] = wants_gradient[i] || gradient;
        // A unit is read through its elements.
        if (!shape.is_array() || shape.num_elements == 0) continue;
        EdgeTensor tensor;
        tensor.element_bytes = static_cast<double>(shape.bytes) / static_cast<double>(shape.num_elements);
        tensor.gradient = gradient;
        tensor.kept = !variable && at_.is_activation(id) && kept_[at(at_.base_of(id))];
        tensor.tensor = id;
        for (std::size_t d = 0; d < shape.dims.size(); ++d) {
          const auto dim = static_cast<std::int32_t>(d);
          const OperatorDims::Border border = dims_[i]->border(id, dim);
          tensor.dims.push_back({dim_of(from, id, dim), dim_of(op, id, dim), shape.dims[d], border.left, border.right});
        }
        Edge& edge = edges[from];
        edge.producer = from;
        edge.consumer = op;
        edge.tensors.push_back(std::move(tensor));
      }
      for (auto& [from, edge] : edges) out_.space.edges.push_back(std::move(edge));
      Operator& made = out_.space.operators[i];
      made.backward = made.backward || (step_.training && wants_gradient[i]);
    }
  }

  // --- Times ---

  // The operator of every position: preparations belong to the first that reads them.
  std::vector<OperatorId> operators_of_positions() const {
    std::vector<OperatorId> out(at(at_.size()), kNone);
    for (const NodeId id : order_.order) {
      OperatorId op = operator_of_[at(id)];
      for (const std::int32_t use : at_.uses(id)) {
        if (op == kNone && use != kNone) op = operator_of_[at(order_.order[at(use)])];
      }
      out[at(at_.position(id))] = op;
    }
    // An instruction that nobody reads joins the operator before it.
    OperatorId last = 0;
    for (OperatorId& op : out) {
      if (op == kNone) op = last;
      last = op;
    }
    return out;
  }

  void charge_times() {
    profile::InstructionTimes times = profile::estimate_times(graph_, device_);
    profile::wait_at_every_kernel(&times);
    machine::DeviceModel no_launch = device_;
    no_launch.launch_us = no_launch.host_us = 0;
    const profile::InstructionTimes divisible = profile::estimate_times(graph_, no_launch);
    out_.warnings.insert(out_.warnings.end(), times.notices.begin(), times.notices.end());

    std::int32_t last_use = 0;
    std::vector<double> weights(at(at_.size()), 0);
    std::vector<std::int32_t> place_of_variable;
    for (const std::int32_t v : step_.variables) {
      const NodeId node = step_.inputs[at(v)].node;
      const std::int32_t first = at_.first_use(node);
      place_of_variable.push_back(first == kNone ? at_.size() - 1 : first);
      weights[at(place_of_variable.back())] += static_cast<double>(flow_.shape(node).bytes);
      last_use = std::max(last_use, std::max(at_.last_use(node), 0));
    }
    const std::vector<std::int32_t> backward = profile::place_backward(at_, last_use);
    std::vector<std::int32_t> update(worker_of_.size(), kNone);
    for (std::size_t i = 0; i < update.size(); ++i) {
      if (worker_of_[i] != kNone) update[i] = place_of_variable[at(worker_of_[i])];
    }
    const profile::StepTimes step_times(at_, times, backward, update, weights);
    const auto forward_ms = step_times.forward(times.ms), backward_ms = step_times.backward(times.ms),
               update_ms = step_times.optimizer(times.ms);
    const auto forward_part = step_times.forward(divisible.ms), backward_part = step_times.backward(divisible.ms);
    const profile::Stash stash = profile::stash_bytes(at_, profile::FusedPositions(at_, nullptr), times.whiles);
    kept_ = stash.kept;
    const std::vector<OperatorId> operators = operators_of_positions();
    for (std::size_t p = 0; p < operators.size(); ++p) {
      Operator& op = out_.space.operators[at(operators[p])];
      op.forward_ms += forward_ms[p];
      op.forward_launch_ms += std::max(0.0, forward_ms[p] - forward_part[p]);
      op.backward_ms += backward_ms[p];
      op.backward_launch_ms += std::max(0.0, backward_ms[p] - backward_part[p]);
      if (backward_ms[p] > 0) op.backward = true;
      op.kept_bytes += stash.bytes[p];
    }
    // A variable's update goes where the variable is, which may be another operator than its first use in the order.
    std::vector<double> of_variables(out_.space.operators.size(), 0);
    for (std::size_t v = 0; v < step_.variables.size(); ++v) {
      if (owner_of_variable_[v] == kNone) continue;
      const auto place = at(place_of_variable[v]);
      const double bytes = static_cast<double>(flow_.shape(step_.inputs[at(step_.variables[v])].node).bytes);
      if (weights[place] > 0) of_variables[at(owner_of_variable_[v])] += update_ms[place] * (bytes / weights[place]);
    }
    for (std::size_t i = 0; i < of_variables.size(); ++i) {
      Operator& op = out_.space.operators[i];
      double bytes = 0;
      for (const Weights& w : op.weights) bytes += w.weight_bytes;
      if (!op.weights.empty()) op.backward = true;
      for (Weights& w : op.weights) w.update_ms = bytes > 0 ? of_variables[i] * (w.weight_bytes / bytes) : 0;
      out_.forward_ms += op.forward_ms;
      out_.backward_ms += op.backward_ms;
      for (const Weights& w : op.weights) out_.update_ms += w.update_ms;
    }
    out_.left_out_ms = step_times.sum(times.ms).other;
    warn_of_whole();
  }

  void name_instructions() {
    out_.instructions.resize(nodes_of_.size());
    for (const NodeId id : order_.order) {
      const OperatorId op = operator_of_[at(id)];
      // Results of a unit stand for the unit.
      if (op == kNone || flow_.producer(id) != id) continue;
      out_.instructions[at(op)].emplace_back(graph_.instruction(flow_.node(id).instruction).name);
    }
  }

  LaidTensor laid(OperatorId op, NodeId node) const {
    LaidTensor out;
    out.op = op;
    for (std::size_t d = 0; d < flow_.shape(node).dims.size(); ++d)
      out.dims.push_back(dim_of(op, node, static_cast<std::int32_t>(d)));
    return out;
  }

  void lay_tensors() {
    std::set<graph::InstructionId> several;
    for (std::size_t i = 0; i < nodes_of_.size(); ++i) {
      const NodeId first = nodes_of_[i].front();
      if (!flow_.shape(first).is_array() || flow_.node(first).leaf != kNone) continue;
      const LaidTensor here = laid(static_cast<OperatorId>(i), first);
      if (!out_.made.emplace(flow_.node(first).instruction, here).second) several.insert(flow_.node(first).instruction);
    }
    for (const graph::InstructionId id : several) out_.made.erase(id);
    out_.inputs.resize(step_.inputs.size());
    for (std::size_t v = 0; v < step_.variables.size(); ++v) {
      const auto k = at(step_.variables[v]);
      if (owner_of_variable_[v] != kNone) out_.inputs[k] = laid(owner_of_variable_[v], step_.inputs[k].node);
    }
    for (std::size_t k = 0; k < step_.inputs.size(); ++k) {
      if (step_.inputs[k].role != graph::InputRole::kSlot || slot_of_[k] == kNone) continue;
      const auto variable = at(step_.variables[at(slot_of_[k])]);
      if (flow_.shape(step_.inputs[k].node).dims == flow_.shape(step_.inputs[variable].node).dims)
        out_.inputs[k] = out_.inputs[variable];
    }
  }

  // An operator that holds much and has no dimension: a loop over layers, a fused module.
  void warn_of_whole() {
    const double all = out_.forward_ms + out_.backward_ms;
    for (const Operator& op : out_.space.operators) {
      const double own = op.forward_ms + op.backward_ms;
      if (!op.dims.empty() || own < kMuch * all) continue;
      out_.warnings.push_back("operator " + op.name + " (" + op.opcode + ") has " + format_percent(own / all) +
                              " of the compute and no dimension that can be split: nobody looks inside it");
    }
  }

  const graph::Graph& graph_;
  const graph::TrainingStep& step_;
  const graph::FlowGraph& flow_;
  const graph::FlowOrder order_;
  const profile::StepPositions at_;
  const std::vector<bool> free_;
  const profile::BatchDims batch_;
  const machine::DeviceModel& device_;
  ModelSpace out_;
  std::vector<OperatorId> operator_of_;        // by node; kNone: of none
  std::vector<std::vector<NodeId>> nodes_of_;  // by operator, in order
  std::vector<std::vector<NodeId>> read_;      // by operator: what it reads of others, and inputs
  std::vector<std::unique_ptr<OperatorDims>> dims_;
  std::vector<std::map<std::int32_t, std::int32_t>> dim_of_class_;
  std::map<NodeId, OperatorId> owner_;           // of variables
  std::vector<OperatorId> owner_of_variable_;    // the same, as TrainingStep::variables
  std::vector<std::int32_t> group_of_variable_;  // which of its owner's Operator::weights it is in; kNone: none
  std::vector<bool> kept_;                       // by node: the backward pass reads it, in this form
  std::map<NodeId, bool> has_gradient_;
  std::vector<std::int32_t> worker_of_, slot_of_;  // VariableUpdates
};

}  // namespace

ModelSpace operators_of(const graph::Graph& graph, const graph::TrainingStep& step,
                        const machine::DeviceModel& device) {
  return OperatorFinder(graph, step, device).run();
}

}  // namespace automap::soap
