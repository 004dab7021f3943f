// The cost-modelled graph of a training step (forward, backward, update) that the heuristics divide among devices.
//
// This design is ours: of 1906.08168 only the abstract was at hand; nothing here reproduces its numbers. From the
// abstract come: one graph for the whole training step, modelled costs of computing and of communicating, heuristics
// that divide it for little communication and good balance, and assistants that correct the division while the step
// runs. The costs, the heuristics, their order of ties and the powers of an assistant are decided here
// (docs/heuristics.md).
//
// Times in ms on the reference device, sizes in bytes; everything finite and not negative. training_graph.h makes the
// graph of a module. This header knows no HLO, so that tests can make graphs of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/numbers.h"

namespace automap::heuristics {

using TaskId = std::int32_t;   // 0-based, a topological order: producers before consumers
using ValueId = std::int32_t;  // 0-based
using UnitId = std::int32_t;   // 0-based, by the first task
using DeviceId = std::int32_t;
constexpr std::int32_t kNone = -1;

enum class Pass : std::uint8_t {
  kState,     // a weight, optimizer slot or other state that lies on a device; takes no time
  kForward,   // what the loss needs, or all of an inference module
  kBackward,  // what the gradients need beside it
  kUpdate,    // the optimizer
  kOther,     // metrics, running statistics
};
const char* to_string(Pass pass);  // "state", "forward", ...

struct Task {
  std::string name, opcode, layer;  // of the instruction that takes most of its time
  Pass pass = Pass::kForward;
  double ms = 0;
  double memory_bytes = 0;  // of the device that runs it, for the whole step: state, and what is kept for backward
  UnitId unit = 0;          // tasks of a unit are on one device (colocation)
  bool pinned = false;      // a state, or what makes its new value: runs where its unit is, whatever happens
};

// Something that a task makes and others read. However many tasks of a device read it, it is sent there once.
struct Value {
  TaskId producer = 0;
  double bytes = 0;
  std::vector<TaskId> consumers;  // ascending, each once, all behind the producer; not empty
};

struct WorkGraph {
  std::vector<Task> tasks;
  std::vector<Value> values;
  // Filled in by link(): by task, values that it makes and reads; by unit, its tasks. Ascending.
  std::vector<std::vector<ValueId>> made, read;
  std::vector<std::vector<TaskId>> tasks_of_unit;

  std::int32_t size() const { return static_cast<std::int32_t>(tasks.size()); }
  std::int32_t units() const { return static_cast<std::int32_t>(tasks_of_unit.size()); }
  double total_ms() const;
  double memory_bytes() const;
  // Numbers units by their first tasks and fills in the rest. Throws Error(kData) for an invalid graph: no task, a
  // consumer that is not behind its producer (a cycle), one named twice, no consumer, times or bytes that are negative
  // or not finite.
  void link();
};

// The longest way from a task's start to the end of the step, by task: its own time and that of all that must follow,
// with the `message_ms` of every value on the way (an empty vector: 0).
std::vector<double> bottom_levels(const WorkGraph& graph, const std::vector<double>& task_ms,
                                  const std::vector<double>& message_ms);

}  // namespace automap::heuristics
