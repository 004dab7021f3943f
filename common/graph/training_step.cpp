#include "common/graph/training_step.h"

#include <algorithm>
#include <unordered_map>

#include "common/graph/random_key.h"
#include "common/graph/training_step_analysis.h"
#include "common/graph/user_shardings.h"

namespace automap::graph {

const char* to_string(Part part) {
  switch (part) {
    case Part::kInput: return "input";
    case Part::kFree: return "free";
    case Part::kForward: return "forward";
    case Part::kBackward: return "backward";
    case Part::kOptimizer: return "optimizer";
    case Part::kGlue: return "glue";
  }
  return "glue";
}

std::int32_t TrainingStep::count(InputRole role) const {
  return static_cast<std::int32_t>(
      std::count_if(inputs.begin(), inputs.end(), [&](const EntryInput& input) { return input.role == role; }));
}

bool is_matmul(Opcode opcode) {
  return opcode == Opcode::kDot || opcode == Opcode::kConvolution;
}

bool is_weight_name(const std::string& name) {
  return name.find("params") != std::string::npos || name.find("frozen") != std::string::npos ||
         name.find("batch_stats") != std::string::npos;
}

TrainingStep StepAnalysis::run() {
  TrainingStep step;
  analyze(&step);
  for (int round = 0; round < 4; ++round) {
    const bool none = step.variables.empty();
    const InstructionId loop = none ? find_state_loop() : find_whole_step_loop(step);
    if (loop == kNone) break;
    step.expanded_whiles.push_back(loop);
    if (!none) step.micro_batch_loop = loop;
    analyze(&step);
    if (!none || !step.variables.empty()) continue;
    // Not a loop of training steps after all.
    step.expanded_whiles.pop_back();
    analyze(&step);
    break;
  }
  describe_loops(&step);
  find_loss(&step);
  assign_parts(&step);
  assign_roles(&step);
  check_state(&step);
  const std::string shardings = user_shardings_text(graph_);
  if (!shardings.empty()) step.warnings.push_back(shardings);
  describe(&step);
  return step;
}

void StepAnalysis::analyze(TrainingStep* step) {
  FlowOptions options;
  options.expanded_whiles = step->expanded_whiles;
  step->flow = FlowGraph::build(graph_, options);
  flow_ = &step->flow;
  free_ = find_free(step->flow);
  step->inputs = list_inputs(step->flow);
  updates_ = find_updates(step->flow, step->inputs, free_);
  step->variables.clear();
  find_variables(step);
}

// Everything that `marks` needs, itself included. One sweep against the topological order.
void StepAnalysis::close_over_ancestors(Marks* marks) const {
  for (NodeId id = flow_->size(); id-- > 0;) {
    if (!(*marks)[static_cast<std::size_t>(id)]) continue;
    for (const NodeId operand : flow_->operands(id)) (*marks)[static_cast<std::size_t>(operand)] = true;
  }
}

StepAnalysis::Marks StepAnalysis::ancestors_of(const std::vector<NodeId>& nodes) const {
  Marks marks(n(), false);
  for (const NodeId id : nodes) marks[static_cast<std::size_t>(id)] = true;
  close_over_ancestors(&marks);
  return marks;
}

double StepAnalysis::weight(NodeId id) const {
  const FlowNode& node = flow_->node(id);
  if (node.opcode == Opcode::kGetTupleElement || node.opcode == Opcode::kParameter ||
      node.opcode == Opcode::kOptBarrier || (node.opcode == Opcode::kConditional && node.leaf != kNone))
    return 0;
  if (!options_.weight.empty()) return options_.weight[static_cast<std::size_t>(node.instruction)];
  return static_cast<double>(graph_.shape(node.shape).bytes);
}

double StepAnalysis::weight_of(const Marks& marks, const Marks* within) const {
  double total = 0;
  for (NodeId id = 0; id < flow_->size(); ++id) {
    const auto i = static_cast<std::size_t>(id);
    if (marks[i] && !free_[i] && (within == nullptr || (*within)[i])) total += weight(id);
  }
  return total;
}

void StepAnalysis::assign_parts(TrainingStep* step) {
  if (!step->training) {
    // An inference module: whatever its results need. Variables that look updated are state.
    if (options_.variables == nullptr) {
      for (const std::int32_t v : step->variables) step->inputs[static_cast<std::size_t>(v)].gradient = kNone;
      step->variables.clear();
      step->variables_found_by = "no result is updated by a gradient: an inference module";
    }
    forward_ = ancestors_of(flow_->results());
    backward_.assign(n(), false);
  }
  Marks optimizer(n(), false);
  if (step->training) {
    std::vector<NodeId> updated;
    for (std::size_t r = 0; r < updates_.size(); ++r) {
      if (updates_[r].input != kNone && !updates_[r].sources.empty()) updated.push_back(flow_->results()[r]);
    }
    for (const std::int32_t v : step->variables) {
      const std::int32_t r = step->inputs[static_cast<std::size_t>(v)].result;
      if (r != kNone) updated.push_back(flow_->results()[static_cast<std::size_t>(r)]);
    }
    // Running statistics are not updated by a gradient, so none of their work is the optimizer's.
    Marks from_gradient(n(), false);
    for (const std::int32_t v : step->variables) {
      const NodeId g = step->inputs[static_cast<std::size_t>(v)].gradient;
      if (g != kNone) from_gradient[static_cast<std::size_t>(g)] = true;
    }
    for (NodeId id = 0; id < flow_->size(); ++id) {
      for (const NodeId operand : flow_->operands(id)) {
        if (from_gradient[static_cast<std::size_t>(operand)]) from_gradient[static_cast<std::size_t>(id)] = true;
      }
    }
    from_gradient_ = from_gradient;
    updated.erase(std::remove_if(updated.begin(), updated.end(),
                                 [&](NodeId id) { return !from_gradient[static_cast<std::size_t>(id)]; }),
                  updated.end());
    optimizer = ancestors_of(updated);
  }
  step->part.assign(n(), Part::kGlue);
  for (NodeId id = 0; id < flow_->size(); ++id) {
    const auto i = static_cast<std::size_t>(id);
    Part& part = step->part[i];
    if (flow_->node(id).opcode == Opcode::kParameter) {
      part = Part::kInput;
    } else if (free_[i]) {
      part = Part::kFree;
    } else if (forward_[i]) {
      part = Part::kForward;
    } else if (backward_[i]) {
      part = Part::kBackward;
    } else if (optimizer[i]) {
      part = Part::kOptimizer;
    }
  }
  // Projections go with their unit's part: a forward unit also makes the results that are not needed.
  for (NodeId id = 0; id < flow_->size(); ++id) {
    if (flow_->node(id).opcode != Opcode::kGetTupleElement) continue;
    const NodeId unit = flow_->producer(id);
    if (unit != id) step->part[static_cast<std::size_t>(id)] = step->part[static_cast<std::size_t>(unit)];
  }
}

void StepAnalysis::assign_roles(TrainingStep* step) {
  auto& inputs = step->inputs;
  Marks reads(n(), false);
  for (std::size_t i = 0; i < n(); ++i) reads[i] = forward_[i] || backward_[i];
  std::vector<bool> is_variable(inputs.size(), false);
  for (const std::int32_t v : step->variables) is_variable[static_cast<std::size_t>(v)] = true;
  std::unordered_map<std::int32_t, std::int32_t> result_of;
  for (std::size_t r = 0; r < updates_.size(); ++r) {
    if (updates_[r].input != kNone) result_of.emplace(updates_[r].input, static_cast<std::int32_t>(r));
  }
  const std::int64_t batch = find_batch(step, result_of, reads);
  // A training step that reads few arrays it does not update reads data, not frozen weights.
  int unpaired = 0;
  std::int64_t leading = 0;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const Shape& shape = flow_->shape(inputs[k].node);
    if (is_float(shape) && shape.num_elements > 1 && !is_variable[k] &&
        result_of.count(static_cast<std::int32_t>(k)) == 0 && reads[static_cast<std::size_t>(inputs[k].node)]) {
      ++unpaired;
      leading = leading == 0 || leading == shape.dims[0] ? shape.dims[0] : -1;
    }
  }
  Marks returned(n(), false);
  for (const NodeId result : flow_->results()) returned[static_cast<std::size_t>(result)] = true;
  const bool all_data = step->training && batch == 0 && unpaired <= 8;
  step->batch = all_data ? std::max<std::int64_t>(leading, 0) : batch;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    EntryInput& input = inputs[k];
    const auto node = static_cast<std::size_t>(input.node);
    const Shape& shape = flow_->shape(input.node);
    if (is_variable[k]) {
      input.role = InputRole::kVariable;
      continue;
    }
    const auto paired = result_of.find(static_cast<std::int32_t>(k));
    if (paired != result_of.end()) input.result = paired->second;
    const bool handed_on =
        paired != result_of.end() && flow_->results()[static_cast<std::size_t>(paired->second)] == input.node;
    if (paired != result_of.end() && !handed_on && step->training) {
      const ResultUpdate& update = updates_[static_cast<std::size_t>(paired->second)];
      const NodeId leaf = flow_->results()[static_cast<std::size_t>(paired->second)];
      const bool by_gradient = !update.sources.empty() && from_gradient_[static_cast<std::size_t>(leaf)];
      const bool weight = is_float(shape) && shape.num_elements > 1 && reads[node];
      input.role = by_gradient && !reads[node]        ? InputRole::kSlot
                   : weight && update.sources.empty() ? InputRole::kFrozen
                                                      : InputRole::kState;
      continue;
    }
    if (flow_->users(input.node).empty()) {
      input.role = returned[node] ? InputRole::kFrozen : InputRole::kUnused;
      continue;
    }
    if (!is_float(shape) || shape.num_elements <= 1) {
      input.role = handed_on ? InputRole::kState : InputRole::kStepInput;
      continue;
    }
    if (!reads[node] && is_state_by_use(*step, input)) {
      input.role = InputRole::kSlot;
      continue;
    }
    const bool as_batch = all_data || (batch > 0 && !shape.dims.empty() && shape.dims[0] == batch) ||
                          std::any_of(step->batch_inputs.begin(), step->batch_inputs.end(),
                                      [&](BatchInput b) { return b.input == static_cast<std::int32_t>(k); });
    const bool named_weight = is_weight_name(input.name);
    input.role = handed_on || named_weight || !as_batch ? InputRole::kFrozen : InputRole::kStepInput;
  }
  list_batch_inputs(step);
}

// Where the samples come in, when nobody has named it.
void StepAnalysis::list_batch_inputs(TrainingStep* step) const {
  if (!step->batch_inputs.empty() || step->batch <= 0) return;
  bool integers = false;
  for (std::size_t k = 0; k < step->inputs.size(); ++k) {
    const Shape& shape = flow_->shape(step->inputs[k].node);
    if (step->inputs[k].role != InputRole::kStepInput || !shape.is_array() || shape.dims.empty() ||
        shape.dims[0] != step->batch || is_random_key(shape))
      continue;
    step->batch_inputs.push_back({static_cast<std::int32_t>(k), 0});
    integers = integers || !is_float(shape);
  }
  // In an inference module a weight may have the batch size as its first dimension: if there are integer inputs, only
  // they count.
  if (step->training || !integers) return;
  auto& found = step->batch_inputs;
  found.erase(std::remove_if(found.begin(), found.end(),
                             [&](const BatchInput& input) {
                               return is_float(flow_->shape(step->inputs[static_cast<std::size_t>(input.input)].node));
                             }),
              found.end());
}

void StepAnalysis::describe(TrainingStep* step) {
  // Names confirm when most variables stand under "params" and the like, and slots do not.
  step->split = "dataflow";
  std::size_t named = 0, marked = 0, with_metadata = 0;
  for (const std::int32_t v : step->variables) {
    const EntryInput& input = step->inputs[static_cast<std::size_t>(v)];
    if (input.name != input.parameter_name && is_weight_name(input.name)) ++named;
  }
  for (NodeId id = 0; id < flow_->size() && with_metadata < 400; id += std::max<NodeId>(1, flow_->size() / 4000)) {
    if (step->part[static_cast<std::size_t>(id)] != Part::kBackward) continue;
    const std::string op_name = graph_.op_name(flow_->node(id).instruction);
    if (op_name.empty()) continue;
    ++with_metadata;
    if (op_name.find("transpose(") != std::string::npos || op_name.find("rematted_computation") != std::string::npos ||
        op_name.find("gradient") != std::string::npos || op_name.find("_backward") != std::string::npos ||
        op_name.find("jvp(") != std::string::npos)
      ++marked;
  }
  if (with_metadata > 0 && marked * 2 > with_metadata) step->split = "metadata";
  if (!step->variables.empty() && named * 2 > step->variables.size() && options_.variables == nullptr)
    step->variables_found_by += "; their names agree";
  if (step->split == "metadata") step->loss_found_by += "; op_names of the backward pass agree";
}

TrainingStep analyze_training_step(const Graph& graph, const TrainingStepOptions& options) {
  return StepAnalysis(graph, options).run();
}

}  // namespace automap::graph
