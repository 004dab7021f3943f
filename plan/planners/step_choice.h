// The plan of a step: of every split of its samples into micro-batches (step_sizes.h), of every width of replicas, on
// as many devices as pay, the best. Each split is a planning problem of its own (width_planner.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/pipeline/problem.h"
#include "plan/planners/planner.h"
#include "plan/planners/question.h"
#include "plan/planners/step_sizes.h"

namespace automap::planners {

// The best plan whose replicas are of one width.
struct WidthAlternative {
  int width = 1, stages = 0;
  double step_ms = 0, simulated_step_ms = 0;
};

struct StepPlan {
  StepSize size;
  std::unique_ptr<pipeline::Problem> problem;  // the one that `result` is a plan for
  PlanResult result;
  std::vector<StepSize> considered;  // of every width that was planned for
  // No plan of any split is simulated shorter, whatever it keeps in flight; 0: not known.
  double simulated_bound_ms = 0;
  std::string why_fewer;                 // why it leaves devices of the cluster free; empty: it does not
  std::vector<WidthAlternative> widths;  // where the profile knows several
  double free_plan_ms = 0;  // with equal replicas: the simulated step of the best plan found without; 0: none
};

// The best plan over all splits, judged by the request's objective: on all devices or, where no micro-batch has samples
// for them, on fewer: the most that divide it, whole servers less, devices less of the first server; and on half of
// them, a quarter, ..., where links may cost more than the others save. Every split is
// planned with a share of the effort, the best with the rest; the lower bounds hold for all splits.
// Replicas of every width that the profile knows are planned for, all of a plan of one width; bounds hold for all of
// them. The problem is one of replicas then: its devices are as wide.
// result.plan is empty when no split has a plan (as make_plan says of the first).
// A question for a framework is answered with a plan that it expresses (framework_search.h).
StepPlan plan_step(const Question& question);
// The same for no framework, and with equal replicas without a look at free ones.
StepPlan plan_step_alone(const Question& question);

}  // namespace automap::planners
