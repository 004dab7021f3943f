// The step of a strategy, simulated from nothing (FlexFlow, section 5.2): its task graph is built, and its tasks run
// event by event.
//
// A task is ready when all before it have ended. Every device and link takes the tasks that are ready in the order in
// which they became so, ties by their order number, one at a time, without gaps: start = max(ready, end of the task
// before on it). The step ends with the last task. The paper and its code break ties by whatever the heap has first;
// here the result is the same on every run, and that of the delta simulation to the bit.
#pragma once

#include <vector>

#include "plan/systems/soap/machine_links.h"
#include "plan/systems/soap/space.h"
#include "plan/systems/soap/task_graph.h"

namespace automap::soap {

struct TaskTimes {
  TaskOrder order = 0;
  std::int32_t resource = kNone;
  double ready = 0, start = 0, end = 0;  // ms
  bool operator==(const TaskTimes& o) const {
    return order == o.order && resource == o.resource && ready == o.ready && start == o.start && end == o.end;
  }
};

struct Simulated {
  double step_ms = 0;
  std::vector<TaskTimes> tasks;  // by order number
};

// `strategy` is one of the space over the machine's devices (check_strategy).
Simulated simulate(const Space& space, const Strategy& strategy, const MachineLinks& machine);
// The length alone.
double simulated_step_ms(const Space& space, const Strategy& strategy, const MachineLinks& machine);

}  // namespace automap::soap
