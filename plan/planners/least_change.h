// When no plan fits into memory: what would have to change so that one does, found by planning with the change.
#pragma once

#include <string>
#include <vector>

#include "common/machine/cluster.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"
#include "plan/planners/step_choice.h"

namespace automap::planners {

struct FittingChange {
  std::string what;    // "--zero 3", "4 servers of 8 x v100-16gb instead of 2", "devices of 40 GiB"
  double step_ms = 0;  // simulated, of a plan found quickly
};

// Changes with which a plan fits, each alone: stages' variants that `options` leaves out, the split of the batch that
// `step` fixes, stage counts that `request` fixes, then the fewest more servers and the smallest larger devices of
// those that are sold. Empty: none of them helps, or the time was over (a few seconds, and request.time_limit_s).
// Options are named as automap-infer has them; `limited`: --limit says which kinds of plans there are.
std::vector<FittingChange> fitting_changes(const pipeline::Profile& profile, const machine::Cluster& cluster,
                                           const pipeline::ProblemOptions& options, const StepRequest& step,
                                           const PlanRequest& request, bool limited);

}  // namespace automap::planners
