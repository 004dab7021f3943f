// The result of a search over the splits of a step's batch, the widths of replicas and the numbers of devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/pipeline/problem.h"
#include "plan/planners/bounds.h"
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
  // Of every width that was planned for. The bound of V, and its method, are the result's; bounds_of (candidate.h) has
  // both.
  Bounds bounds;
  std::string why_fewer;                 // why it leaves devices of the cluster free; empty: it does not
  std::vector<WidthAlternative> widths;  // where the profile knows several
  double free_plan_ms = 0;  // with equal replicas: the simulated step of the best plan found without; 0: none
};

}  // namespace automap::planners
