// Planning with a policy in one shot: greedy (beam 1) or beam search over the plan space, children ranked by the
// policy's prediction; the last boundary is chosen exactly, and the best rollout met on the way counts as well. Without
// a policy the same search ranks children by their best rollout: the baseline every learned figure stands beside.
#pragma once

#include <optional>

#include "common/pipeline/baselines.h"
#include "common/pipeline/plan.h"
#include "models/plan_space.h"
#include "models/policy.h"

namespace automap::models {

struct PolicySearchOptions {
  int beam = 1;
  // After-states scored per boundary: the best by bound over all parents. 0: kMostChildren for beam 1, else
  // max(kMostChildren, 12 beam).
  int most_children = 0;
  bool rollouts_count = true;  // the best rollout plan met may win ("the bare network": false)
  // kSimulated: candidates of the last boundary and rollouts are compared by the event simulation.
  pipeline::Objective objective = pipeline::Objective::kValue;
  pipeline::Deadline deadline;
};

struct FoundPlan {
  pipeline::Plan plan;
  double length_ms = 0;  // under the objective
};

// Plan of `space` (its stages, schedule and pivots); nullopt when none was found feasible. `policy` may be null.
// Throws Error(kData) when the policy's features are not this program's.
std::optional<FoundPlan> search_plan(const PlanSpace& space, const Policy* policy, const PolicySearchOptions& options);

}  // namespace automap::models
