// The result of a search over the splits of a step's batch, the widths of replicas and the numbers of devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/pipeline/problem.h"
#include "plan/planners/planner.h"
#include "plan/planners/step_sizes.h"

namespace automap::planners {

// The best plan whose replicas are of one width.
struct WidthAlternative {
  int width = 1, stages = 0;
  double step_ms = 0, simulated_step_ms = 0;
};

struct StepPlan {
  StepSize size;
  std::unique_ptr<pipeline::Problem> problem;  // the one that `result` is a plan for
  PlanResult result;
  std::vector<StepSize> considered;  // of every width that was planned for
  bool all_devices = false;          // these are on all choices of devices that there are
  // A lower bound on the simulated step of every plan of every split, whatever it keeps in flight; 0: not known.
  double simulated_bound_ms = 0;
  // Both bounds have yet to be closed (bounds.h): the result's is of V and about these splits alone.
  bool open_bounds = false;
  std::vector<StepSize> bounded;
  std::string why_fewer;                 // why it leaves devices of the cluster free; empty: it does not
  std::vector<WidthAlternative> widths;  // where the profile knows several
  double free_plan_ms = 0;  // with equal replicas: the simulated step of the best plan found without; 0: none
};

}  // namespace automap::planners
