// Makes the work graph of work_graph.h from a module's HLO.
//
// A task is a kernel: an instruction of the step's data flow (common/graph/dependence.h) with its time by the device
// model, and the light ones that belong to it. An instruction is light if it takes no time of its own, because it is
// part of another kernel, or only names a value:
//   - movement of one value (reshape, broadcast, ...) is that value: readers get the original;
//   - values made of constants and step inputs alone are made wherever they are read;
//   - an instruction that reads one task, or is read by one task, of its own pass belongs to that task, which makes no
//     cycle.
// A `while` and a `fusion` are one task each, whatever is in them; a loop over micro-batches is not one: its turn is
// the step. Step inputs are at hand everywhere. Weights, optimizer slots and other state are tasks that take no time:
// they lie on a device, and cross to every other one that reads them.
//
// Units (tasks that must be on one device): a state and the task that makes its new value; a variable with its slots
// and all tasks that work for its update alone. With Colocate::kPasses also a forward task with the backward tasks that
// profile/step_positions.h gives to it, and a variable with the forward task that reads it first.
//
// Memory is everything that stays for the step: state, and every value of the forward pass that a backward task reads,
// on the device that makes it. Values in flight, copies at readers and workspaces are not in it.
#pragma once

#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/graph/training_step.h"
#include "common/machine/device.h"
#include "plan/systems/heuristics/work_graph.h"

namespace automap::heuristics {

enum class Colocate : std::uint8_t { kUpdate, kPasses };

struct TrainingGraph {
  WorkGraph graph;
  bool training = false;
  double forward_ms = 0, backward_ms = 0, update_ms = 0, other_ms = 0;  // sums over the tasks
  std::vector<std::string> warnings;
};

// `step` as analyze_training_step made it of `graph`. Throws Error(kData) when nothing in the module takes time, and as
// profile::estimate_times.
TrainingGraph training_graph_of(const graph::Graph& graph, const graph::TrainingStep& step,
                                const machine::DeviceModel& device, Colocate colocate = Colocate::kUpdate);

}  // namespace automap::heuristics
