// Plans a step: chooses the best over every split of its samples into micro-batches (step_sizes.h), every width of
// replicas, and numbers of devices. Each split is a planning problem of its own (width_planner.h).
#pragma once

#include "plan/planners/question.h"
#include "plan/planners/step_plan.h"

namespace automap::planners {

// The best plan over all splits, judged by the request's objective: on all devices or, where no micro-batch has samples
// for them, on fewer: the most that divide it, whole servers less, devices less of the first server; and on half of
// them, a quarter, ..., where links may cost more than the others save. Every split is planned with a share of the
// effort, the best with the rest; the lower bounds hold for all splits. Replicas of every width that the profile knows
// are planned for, all of a plan of one width; bounds hold for all of them. The problem is one of replicas then: its
// devices are as wide.
// result.plan is empty when no split has a plan (as make_plan says of the first).
// A question for a framework is answered with a plan that it expresses (framework_search.h).
StepPlan plan_step(const Question& question);
// Searches like plan_step, but leaves the bounds open (bounds.h): a caller that does not need them saves most of the
// time that a plan with many stages takes.
StepPlan search_step(const Question& question);
// Searches for no framework, and with equal replicas without a look at free ones.
StepPlan search_step_alone(const Question& question);

}  // namespace automap::planners
