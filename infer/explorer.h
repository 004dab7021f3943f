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

// What is looked at beside the corners, and never becomes the plan.
struct BesidePlan {
  std::vector<int> chunks;    // v of interleaved 1F1B; empty: none
  bool zero_bubble = false;   // ZB-H1
  bool mixed_widths = false;  // stages of different widths
};

// The best of each corner on the same costs, the shortest first; the step's batch is that of `found`, the plan of the
// call, for all of them. A corner's plan that is shorter and within the request and the options takes its place in
// `found`. `flops`: of the module's own micro-batch; 0: not known. Within what is left of the request's time; corners
// for which there is none are left out.
std::vector<pipeline::PlanCorner> explore_corners(const pipeline::Profile& profile, const machine::Cluster& cluster,
                                                  const pipeline::ProblemOptions& options,
                                                  const planners::StepRequest& step,
                                                  const planners::PlanRequest& request, double flops,
                                                  const BesidePlan& beside, planners::StepPlan& found);

}  // namespace automap::infer
