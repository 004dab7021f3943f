// Whether a plan stays the best when what it was made from is a little wrong. Every estimate (compute, links, memory)
// is made larger and smaller by its expected error, one at a time; the same question is planned again, and the plan is
// counted under the same numbers as it stands, K included.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/machine/cluster.h"
#include "common/pipeline/plan_json.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"
#include "infer/believable.h"
#include "plan/planners/mixed_search.h"
#include "plan/planners/planner.h"
#include "plan/planners/step_choice.h"

namespace automap::infer {

// One row for each thing that is changed, in a fixed order: compute; compute of the model's two halves against each
// other; links inside servers and between them, where the cluster has such; memory. `planned` has a plan; `options`,
// `step` and `request` are those it was made with; each row is planned with the same effort, all together within the
// time limit. Stops early when the request is cancelled: fewer rows.
// `mixed`: the plan, where its stages are of different widths (`planned` is the best of one then); else null. The best
// plans that it stands beside are of one width.
std::vector<pipeline::PlanSensitivity> plan_sensitivity(
    const pipeline::Profile& profile, const machine::Cluster& cluster, const pipeline::ProblemOptions& options,
    const planners::StepRequest& step, const planners::PlanRequest& request, const planners::StepPlan& planned,
    const planners::MixedChoice* mixed, const ExpectedErrors& errors);

}  // namespace automap::infer
