// The corners of the whole plan side by side (paper 3.5, Fig. 5; design 2.5): data parallelism, a sharded optimizer,
// operator partitioning alone, the paper's pipeline, the best even grid, and the plan that was found.
#pragma once

#include <optional>
#include <vector>

#include "common/machine/cluster.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/plan_json.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"
#include "plan/planners/mixed_search.h"
#include "plan/planners/planner.h"
#include "plan/planners/step_choice.h"

namespace automap::infer {

// What is looked at beside the corners. Chunks and zero bubbles never become the plan.
struct BesidePlan {
  std::vector<int> chunks;    // v of interleaved 1F1B; empty: none
  bool zero_bubble = false;   // ZB-H1
  bool mixed_widths = false;  // stages of different widths
};

struct Exploration {
  std::vector<pipeline::PlanCorner> corners;  // the shortest first
  // Stages of different widths, where that is shorter than the plan of one width and within what was asked for: the
  // plan then. The rest of `found` is about the best of one width.
  std::optional<planners::MixedChoice> mixed;
  double mixed_found_ms = 0;  // when, since planning began
  // What no plan of stages of any widths is below, V or simulated; 0 ms: not asked, or not known.
  pipeline::LowerBound any_widths;
};

// The best of each corner on the same costs; the step's batch is that of `found`, the plan of the call, for all of
// them. A corner's plan that is shorter and within the request and the options takes its place in `found`. `flops`: of
// the module's own micro-batch; 0: not known. Within what is left of the request's time; corners for which there is
// none are left out.
Exploration explore_corners(const pipeline::Profile& profile, const machine::Cluster& cluster,
                            const pipeline::ProblemOptions& options, const planners::StepRequest& step,
                            const planners::PlanRequest& request, double flops, const BesidePlan& beside,
                            planners::StepPlan& found);

}  // namespace automap::infer
