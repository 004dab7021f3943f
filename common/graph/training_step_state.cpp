// Checks whether a module has all of the state that its optimizer keeps from step to step.
#include <algorithm>
#include <set>
#include <string>

#include "common/base/text_table.h"
#include "common/graph/training_step_analysis.h"

namespace automap::graph {

namespace {

bool is_root(Opcode opcode) {
  return opcode == Opcode::kSqrt || opcode == Opcode::kRsqrt || opcode == Opcode::kPower;
}

}  // namespace

// An array as large as a variable that nothing but updates of variables reads, though no result is its new value.
bool StepAnalysis::is_state_by_use(const TrainingStep& step, const EntryInput& input) const {
  if (!step.training || input.result != kNone) return false;
  const auto users = flow_->users(input.node);
  const ShapeId shape = flow_->node(input.node).shape;
  return flow_->shape(input.node).num_elements > 1 && !users.empty() &&
         std::all_of(users.begin(), users.end(),
                     [&](NodeId user) { return step.part[static_cast<std::size_t>(user)] == Part::kOptimizer; }) &&
         std::any_of(step.variables.begin(), step.variables.end(), [&](std::int32_t v) {
           const EntryInput& variable = step.inputs[static_cast<std::size_t>(v)];
           return variable.result != kNone && flow_->node(variable.node).shape == shape;
         });
}

void StepAnalysis::check_state(TrainingStep* step) const {
  if (!step->training || options_.variables != nullptr) return;
  std::int64_t updated = 0;
  std::set<ShapeId> shapes;
  for (const std::int32_t v : step->variables) {
    const EntryInput& variable = step->inputs[static_cast<std::size_t>(v)];
    shapes.insert(flow_->node(variable.node).shape);
    if (variable.result != kNone && updates_[static_cast<std::size_t>(variable.result)].input == v) ++updated;
  }
  if (updated == 0) {
    step->warnings.emplace_back(
        "the module returns gradients and updates no variable: the optimizer's state and time count as 0; export the "
        "whole step, optimizer included");
    return;
  }
  std::int64_t slots = 0, unreturned = 0;
  double unreturned_bytes = 0;
  for (const EntryInput& input : step->inputs) {
    const Shape& shape = flow_->shape(input.node);
    if (input.role != InputRole::kSlot || shape.num_elements <= 1) continue;
    ++slots;
    if (input.result != kNone) continue;
    ++unreturned;
    unreturned_bytes += static_cast<double>(shape.bytes);
  }
  if (unreturned > 0) {
    step->warnings.push_back(std::to_string(unreturned) + (unreturned == 1 ? " input (" : " inputs (") +
                             format_bytes(unreturned_bytes) + ") of the optimizer's state " +
                             (unreturned == 1 ? "has" : "have") +
                             " no new value among the results: nothing carries them to the next step; return them with "
                             "the variables when exporting the step");
  }
  if (slots > 0) return;
  // Optimizers that divide by a root of squared gradients keep their averages, all of them.
  std::int64_t roots = 0;
  for (NodeId id = 0; id < flow_->size(); ++id) {
    const FlowNode& node = flow_->node(id);
    const auto i = static_cast<std::size_t>(id);
    if (step->part[i] == Part::kOptimizer && from_gradient_[i] && is_root(node.opcode) && shapes.count(node.shape) > 0)
      ++roots;
  }
  // PyTorch/XLA gives its modules this name. There the first optimizer step makes the state.
  const bool lazy = graph_.name().substr(0, 7) == "IrToHlo";
  const bool averages = roots > 0 && roots * 2 >= updated;
  if (!averages && !lazy) return;
  step->warnings.push_back(
      std::string("no input holds the optimizer's state, and none counts") +
      (averages ? ", though the update takes roots of averages of squared gradients: they start anew in this module"
                : " (plain SGD has none; PyTorch makes that of others in their first step)") +
      "; export a later step" + (lazy ? ", after optimizer.step() and mark_step() have run once" : "") +
      ", or a step that takes the state as an argument and returns it");
}

}  // namespace automap::graph
