#include "plan/programs/step_cut.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/graph/variable_updates.h"
#include "profile/step_positions.h"

namespace automap::programs {

using graph::FlowGraph;
using graph::InputRole;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;
using graph::Origin;
using graph::Part;

StepCut::StepCut(const graph::TrainingStep& step, const graph::FlowOrder& order, CutRequest request)
    : step_(step), flow_(step.flow), order_(order), request_(std::move(request)) {
  groups_ = *std::max_element(request_.group_of_part.begin(), request_.group_of_part.end()) + 1;
  find_inputs();
  place();
  place_owners();
}

std::string StepCut::named(NodeId id) const {
  const graph::Graph& graph = flow_.graph();
  return "'" + std::string(graph.instruction(flow_.node(id).instruction).name) + "' (" +
         std::string(flow_.shape(id).text) + ")";
}

Unit StepCut::home(NodeId id, int group_asked) const {
  const Unit& own = unit(id);
  if (own.kind != Kind::kRepeat) return own;
  const Carried one = carried(id);
  if (one.once) return {Kind::kUpdate, std::max(one.group, 0), one.phase};
  if (one.backward >= 0) return {Kind::kBackward, one.backward, 0};
  if (one.forward >= 0 || of_micro_batch(id)) {
    return {request_.whole ? Kind::kBackward : Kind::kForward, std::max(one.forward, 0), 0};
  }
  return {Kind::kUpdate, group_asked, 0};
}

int StepCut::part_at(std::int32_t position) const {
  return static_cast<int>(std::upper_bound(request_.cuts.begin(), request_.cuts.end(), position) -
                          request_.cuts.begin());
}

void StepCut::find_inputs() {
  const auto n = static_cast<std::size_t>(flow_.size());
  input_of_.assign(n, kNone);
  gradient_.assign(n, false);
  batch_.assign(step_.inputs.size(), false);
  for (std::size_t k = 0; k < step_.inputs.size(); ++k) {
    const graph::EntryInput& input = step_.inputs[k];
    input_of_[static_cast<std::size_t>(input.node)] = static_cast<std::int32_t>(k);
    if (input.gradient != kNone) gradient_[static_cast<std::size_t>(input.gradient)] = true;
    // Where nobody knows the batch's dimensions, all data of the step are taken to be of it.
    batch_[k] =
        step_.batch_inputs.empty() && input.role == InputRole::kStepInput && !flow_.shape(input.node).dims.empty();
  }
  for (const graph::BatchInput& input : step_.batch_inputs) batch_[static_cast<std::size_t>(input.input)] = true;
}

StepCut::Carried StepCut::carried(NodeId id) const {
  return carried_[static_cast<std::size_t>(id)];
}

// All of a node's operands.
StepCut::Carried StepCut::reads_of(NodeId id) const {
  Carried all;
  for (const NodeId operand : flow_.operands(id)) {
    const Carried one = carried(operand);
    all.forward = std::max(all.forward, one.forward);
    if (one.backward >= 0) all.backward = all.backward < 0 ? one.backward : std::min(all.backward, one.backward);
    all.once = all.once || one.once;
    // The largest operand stays where it is; of equal ones that of the first group.
    if (one.group >= 0 &&
        (all.group < 0 || one.bytes > all.bytes || (one.bytes == all.bytes && one.group < all.group))) {
      all.group = one.group;
      all.bytes = one.bytes;
    }
  }
  return all;
}

void StepCut::place_once(NodeId id, const Carried& reads) {
  const auto i = static_cast<std::size_t>(id);
  Unit unit{Kind::kUpdate, std::max(reads.group, 0), 0};
  for (const NodeId operand : flow_.operands(id)) {
    const Carried one = carried(operand);
    if (one.once) unit.phase = std::max(unit.phase, one.phase + (one.group != unit.part ? 1 : 0));
  }
  phases_ = std::max(phases_, unit.phase + 1);
  unit_[i] = unit;
  Carried& made = carried_[i];
  made = {};
  made.once = true;
  made.group = unit.part;
  made.phase = unit.phase;
  made.bytes = flow_.shape(id).bytes;
}

void StepCut::place() {
  const auto n = static_cast<std::size_t>(flow_.size());
  const graph::VariableUpdates updates = graph::find_variable_updates(step_);
  const profile::StepPositions at(step_, order_);
  std::int32_t last_use = 0;
  for (const std::int32_t v : step_.variables) {
    last_use = std::max(last_use, at.last_use(step_.inputs[static_cast<std::size_t>(v)].node));
  }
  const std::vector<std::int32_t> backward = profile::place_backward(at, last_use);
  unit_.assign(n, {});
  carried_.assign(n, {});
  of_batch_.assign(n, false);
  owner_.assign(step_.inputs.size(), -1);
  // Where the update of a variable works, before anything of it is placed: where its gradient is, found on the way.
  std::vector<int> of_variable(step_.variables.size(), -1);
  std::vector<std::int32_t> variable_of_input(step_.inputs.size(), kNone);
  for (std::size_t v = 0; v < step_.variables.size(); ++v) {
    variable_of_input[static_cast<std::size_t>(step_.variables[v])] = static_cast<std::int32_t>(v);
  }
  for (std::size_t k = 0; k < step_.inputs.size(); ++k) {
    if (updates.slot_of[k] != kNone) variable_of_input[k] = updates.slot_of[k];
  }
  // Gradients are placed with the forward and backward pass, then the values that are made once.
  for (int pass = 0; pass < 2; ++pass) {
    for (NodeId id = 0; id < flow_.size(); ++id) {
      const auto i = static_cast<std::size_t>(id);
      const Part part = at.part(id);
      const bool late = part == Part::kOptimizer || part == Part::kGlue;
      if (input_of_[i] != kNone) {
        const auto k = static_cast<std::size_t>(input_of_[i]);
        of_batch_[i] = batch_[k];
        const std::int32_t v = variable_of_input[k];
        if (pass == 1 && v != kNone) {
          carried_[i].group = of_variable[static_cast<std::size_t>(v)];
          carried_[i].bytes = flow_.shape(id).bytes;
        }
        continue;
      }
      if (late != (pass == 1)) {
        // Weights in another form vote in updates as the weights do.
        if (pass == 1 && unit_[i].kind == Kind::kRepeat) {
          const Carried reads = reads_of(id);
          if (carried_[i].group < 0) {
            carried_[i].group = reads.group;
            carried_[i].bytes = reads.bytes;
          }
        }
        continue;
      }
      const Carried reads = reads_of(id);
      bool reads_gradient = false;
      for (const NodeId operand : flow_.operands(id)) {
        const bool gradient = late && gradient_[static_cast<std::size_t>(operand)];
        reads_gradient = reads_gradient || gradient;
        if (of_batch_[static_cast<std::size_t>(operand)] && !gradient) of_batch_[i] = true;
      }
      if (flow_.producer(id) != id) {
        const auto unit = static_cast<std::size_t>(flow_.producer(id));
        unit_[i] = unit_[unit];
        carried_[i] = carried_[unit];
        carried_[i].bytes = flow_.shape(id).bytes;
        of_batch_[i] = of_batch_[unit];
        continue;
      }
      const bool cheap = graph::is_cheap(flow_, id);
      const bool again =
          part == Part::kFree || at.origin(id) == Origin::kNothing || flow_.node(id).opcode == Opcode::kBroadcast;
      const bool from_inputs = reads.forward < 0 && reads.backward < 0 && !reads.once && !reads_gradient;
      const auto repeat = [&] { carried_[i] = reads; };
      const auto in_pass = [&](Kind kind, int place) {
        unit_[i] = {kind, place, 0};
        Carried& made = carried_[i];
        made = {};
        (kind == Kind::kForward ? made.forward : made.backward) = place;
        made.group = group(unit_[i]);
        made.bytes = flow_.shape(id).bytes;
      };
      if (again && !gradient_[i]) {
        carried_[i] = reads;
        for (const NodeId operand : flow_.operands(id))
          carried_[i].phase = std::max(carried_[i].phase, carried(operand).phase);
      } else if (part == Part::kForward) {
        const bool at_hand = at.origin(id) != Origin::kFlow && (cheap || at.origin(id) == Origin::kWeights);
        if (from_inputs && at_hand) {
          repeat();
        } else {
          const std::int32_t position = at.made_at(id);
          in_pass(Kind::kForward, std::max(position == kNone ? 0 : part_at(position), std::max(reads.forward, 0)));
        }
      } else if (part == Part::kBackward) {
        if (from_inputs && cheap && !gradient_[i]) {
          repeat();
        } else {
          int place = backward[i] == kNone ? num_parts() - 1 : part_at(backward[i]);
          if (reads.backward >= 0) place = std::min(place, reads.backward);
          in_pass(Kind::kBackward, place);
        }
      } else if (part == Part::kOptimizer || reads.once || reads_gradient) {
        // Schedules and counters, which depend on state alone.
        if (from_inputs && cheap && flow_.shape(id).num_elements <= 1) {
          repeat();
          if (reads.group >= 0) place_once(id, reads);
        } else {
          place_once(id, reads);
        }
      } else if (of_batch_[i] && !from_inputs) {
        reads.backward >= 0 ? in_pass(Kind::kBackward, reads.backward)
                            : in_pass(Kind::kForward, std::max(reads.forward, 0));
      } else if (of_batch_[i]) {
        in_pass(Kind::kForward, 0);
      } else if (cheap) {
        repeat();
      } else {
        place_once(id, reads);
      }
    }
    if (pass == 1) break;
    for (std::size_t v = 0; v < step_.variables.size(); ++v) {
      const graph::EntryInput& input = step_.inputs[static_cast<std::size_t>(step_.variables[v])];
      const std::int32_t use = at.first_use(input.node);
      int where = request_.group_of_part[static_cast<std::size_t>(use == kNone ? num_parts() - 1 : part_at(use))];
      if (input.gradient != kNone && carried(input.gradient).group >= 0) where = carried(input.gradient).group;
      of_variable[v] = where;
      owner_[static_cast<std::size_t>(step_.variables[v])] = where;
    }
  }
  if (request_.whole) {
    for (Unit& unit : unit_) {
      if (unit.kind == Kind::kForward) unit = {Kind::kBackward, 0, 0};
    }
  }
}

void StepCut::place_owners() {
  for (std::size_t k = 0; k < step_.inputs.size(); ++k) {
    const graph::EntryInput& input = step_.inputs[k];
    if (input.result == kNone) {
      if (owner_[k] < 0) owner_[k] = 0;
      continue;
    }
    const NodeId made = flow_.results()[static_cast<std::size_t>(input.result)];
    const Unit& unit = unit_[static_cast<std::size_t>(made)];
    if (unit.kind != Kind::kRepeat) {
      owner_[k] = group(unit);
    } else if (owner_[k] < 0) {
      owner_[k] = std::max(carried(made).group, 0);
    }
  }
}

}  // namespace automap::programs
