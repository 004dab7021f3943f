// The corners of the whole plan side by side (paper 3.5, Fig. 5; design 2.5): data parallelism, a sharded optimizer,
// operator partitioning alone, the paper's pipeline, the best even grid, and the plan that was found.
#pragma once

#include <vector>

#include "common/machine/cluster.h"
#include "common/pipeline/plan_json.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"
#include "plan/planners/planner.h"
#include "plan/planners/step_choice.h"

namespace automap::infer {

// The best of each corner on the same costs, `found` (the plan of the call) first; the step's batch is that of `found`
// for all of them. `flops`: of the module's own micro-batch; 0: not known.
std::vector<pipeline::PlanCorner> explore_corners(const pipeline::Profile& profile, const machine::Cluster& cluster,
                                                  const pipeline::ProblemOptions& options,
                                                  const planners::PlanRequest& request, const planners::StepPlan& found,
                                                  double flops);

}  // namespace automap::infer
