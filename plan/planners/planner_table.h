// Runs every planner alone on the same question and compares them: each one's step, its distance from the best, and the
// milliseconds of planning.
#pragma once

#include "common/pipeline/plan_json.h"
#include "common/pipeline/problem.h"
#include "plan/planners/planner.h"

namespace automap::planners {

// Runs policy (when there is one) and rollouts greedy, with a beam, and with beam and corridor; bound with a beam, and
// refined; local-search, balanced, uniform, data-parallel (when one stage is allowed); exact on the grid, and refined.
// Each has the request's time limit and judges by the request's objective (V when it names none); stage counts,
// schedules, grid and beam (0: 16) are the request's, `planner`, `refine` and `all_planners` do not matter. What takes
// only milliseconds is run several times: the shortest counts. The times include everything but making the Problem.
//
// Gaps are V over a reference: the least V over all cuts, when it was proven within the time limit, else a lower bound
// on it; table.reference_method says which. Throws as make_plan does.
pipeline::PlannerTable compare_planners(const pipeline::Problem& problem, const PlanRequest& request);

}  // namespace automap::planners
