// Plans with a policy in one shot, by greedy search (beam 1) or beam search over the plan space. The policy's
// prediction ranks children; the last boundary is chosen exactly, and the best rollout met on the way counts as well.
// Without a policy the same search, second looks included, ranks children by their best rollout: this is the baseline
// of every learned result.
//
// Deterministic: its work is counted. A plan that is returned is feasible, and its length_ms is what
// pipeline::length_ms() says of it.
#pragma once

#include <optional>
#include <vector>

#include "common/base/work.h"
#include "common/pipeline/baselines.h"
#include "common/pipeline/plan.h"
#include "models/plan_space.h"
#include "models/policy.h"

namespace automap::models {

struct PolicySearchOptions {
  int beam = 1;
  // After-states scored per boundary: the most promising over all parents (PlanSpace::promising). 0: kMostChildren for
  // beam 1, else max(kMostChildren, 12 beam).
  int most_children = 0;
  // The best rollouts met may win, the best plans are improved boundary by boundary at the end (PlanSpace::improve),
  // and a beam also looks at what greedy finds. false: the bare search.
  bool rollouts_count = true;
  // Without a policy: the best children get a second look as a policy's do, which takes as long. false: beside a search
  // with a policy, of which this one is only the cheap other view.
  bool second_looks = true;
  // kSimulated: candidates of the last boundary and rollouts are compared by the event simulation.
  pipeline::Objective objective = pipeline::Objective::kValue;
  Work* work = nullptr;  // null: without end
};

// Plans beside the best one that are worth a corridor of their own.
constexpr std::size_t kRunnersUp = 2;

struct FoundPlan {
  pipeline::Plan plan;
  double length_ms = 0;                    // under the objective
  std::vector<pipeline::Plan> runners_up;  // the next best that differ, at most kRunnersUp
};

// Plan of `space` (its stages, schedule and pivots); nullopt when none was found feasible. `policy` may be null.
// When the work is over first, the best so far. Throws Error(kData) when the policy is not of the after-state family
// or made for other features than this program's, Error(kUsage) for a beam or most_children below 1 (0).
std::optional<FoundPlan> search_plan(const PlanSpace& space, const Policy* policy, const PolicySearchOptions& options);

// Throws Error(kData) as search_plan() does, before any problem is at hand.
void check_policy(const Policy& policy);

struct OneShotOptions {
  PlanSpaceOptions space;
  PolicySearchOptions search;
  // The plan is refined at instruction granularity in a corridor (pipeline::refine_in_corridor) of this many
  // instructions and device cuts; never longer under the objective than without.
  bool refine = true;
  int pivot_radius = 8, device_radius = 2;
};

struct OneShotPlan {
  FoundPlan found;
  double searched_ms = 0;  // length of the plan before it was refined
  // Wall time of the parts: the plan space's tables, the search in it, the refinement.
  double prepare_took_ms = 0, search_took_ms = 0, refine_took_ms = 0;
};

// Plan space, search and refinement in one call, within the search's work.
std::optional<OneShotPlan> plan_in_one_shot(const pipeline::Problem& problem, const Policy* policy,
                                            const OneShotOptions& options);

}  // namespace automap::models
