// Tests if the plan stays the best when the estimates under it are a little wrong. Every estimate (compute, links,
// memory) is raised and lowered by its expected error, one at a time; the same question is planned again, and the plan
// itself is priced under the same numbers as it stands, K included.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/pipeline/plan_json.h"
#include "plan/planners/believable.h"
#include "plan/planners/candidate.h"
#include "plan/planners/question.h"

namespace automap::planners {

// Returns one row for each estimate that is changed, in a fixed order: compute; compute of the model's two halves
// against each other; links inside servers and between them, where the cluster has such; memory. `plan` is the answer
// to the question; each row is planned with the same effort, all together within the time limit, by plans of one width.
// Stops early when the request is cancelled: fewer rows.
std::vector<pipeline::PlanSensitivity> plan_sensitivity(const Question& question, const Candidate& plan,
                                                        const ExpectedErrors& errors);

}  // namespace automap::planners
