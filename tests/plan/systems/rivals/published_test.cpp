// Published planners as candidates: a plan that one of them makes shorter takes the place of the one found.
#include "plan/systems/rivals/published.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "common/pipeline/cost.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/schedule.h"
#include "plan/planners/answer.h"
#include "plan/systems/rivals/alpa.h"
#include "plan/systems/rivals/dapple.h"
#include "plan/systems/rivals/pipedream.h"
#include "tests/plan/planners/random_policy.h"
#include "tests/plan/systems/rivals/small_chains.h"

namespace automap::rivals {
namespace {

constexpr int kMostStages = 4;

pipeline::RandomProblem allreduce_problem(std::uint64_t seed) {
  pipeline::RandomProblemOptions options;
  options.min_instructions = 8;
  options.max_instructions = 16;
  options.min_servers = options.max_servers = 2;
  options.min_devices = 2;
  options.max_devices = 4;
  options.whole = 1;
  options.with_allreduce = 1;
  pipeline::RandomProblem made = pipeline::random_problem(seed, options);
  made.options.allow_idle_stages = false;
  return made;
}

TEST(Published, TheBestOfThemOrNone) {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const pipeline::RandomProblem made = allreduce_problem(seed);
    planners::StepRequest step;
    step.batch = 8;
    const planners::Question asked(made.profile, made.cluster, made.options, step, of_stages(kMostStages));
    double least = std::numeric_limits<double>::infinity();
    for (const auto planner : {pipedream, dapple, alpa}) {
      const RivalPlan plan = best_over_splits(asked, {planner(made.profile, kMostStages)});
      if (plan.problem) least = std::min(least, plan.simulated_step_ms);
    }
    const PublishedPlan best = best_published(asked);
    ASSERT_EQ(best.plan.problem != nullptr, least < std::numeric_limits<double>::infinity());
    if (!best.plan.problem) continue;
    ++found;
    EXPECT_EQ(best.plan.simulated_step_ms, least);
    EXPECT_TRUE(pipeline::feasible(*best.plan.problem, best.plan.plan));
    EXPECT_FALSE(best_published(asked, least).plan.problem);
  }
  EXPECT_GT(found, 20);
}

// Beside plans by hand (equal stages), which leave something to gain.
TEST(Published, ExploringIsNeverLongerThanAnyOfThem) {
  int adopted = 0, judged = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const pipeline::RandomProblem made = allreduce_problem(seed);
    planners::StepRequest step;
    step.batch = 8;
    planners::PlanRequest request;
    request.effort = planners::plan_effort(Effort::kQuick);
    request.schedules = pipeline::alternating_schedules();
    request.planner = planners::PlannerKind::kUniform;
    request.objective = planners::Objective::kSimulated;
    request.max_stages = kMostStages;
    request.policy = planners::random_policy();
    planners::Question question(made.profile, made.cluster, made.options, step, request);
    const planners::Answer answer = planners::answer(question, all_kinds());
    const planners::Candidate& plan = answer.plan();
    if (!plan.found()) continue;
    ++judged;
    const PublishedPlan best = best_published(question);
    if (best.plan.problem) {
      EXPECT_LE(plan.simulated_step_ms, best.plan.simulated_step_ms * (1 + 1e-9));
    }
    adopted += plan.found_by.rfind("published planner: ", 0) == 0;
    // The plan's figures are true, whoever found it.
    EXPECT_TRUE(pipeline::feasible(*plan.problem, plan.plan));
    EXPECT_NEAR(pipeline::simulate_step_ms(*plan.problem, plan.plan), plan.simulated_step_ms,
                1e-9 * plan.simulated_step_ms);
    // No row that the question allows is shorter than the plan.
    for (const planners::Candidate& one : answer.kinds) {
      if (as_asked(question, one)) {
        EXPECT_GE(one.simulated_step_ms, plan.simulated_step_ms * (1 - 1e-9)) << one.kind;
      }
    }
  }
  EXPECT_GT(judged, 20);
  EXPECT_GT(adopted, 0);
}

// Where bounds prove it they are not asked: asked all the same, none is shorter. Bounds of plans of so many stages say
// nothing of those of other stages, which are told.
TEST(Published, NoneIsShorterThanAPlanThatIsProven) {
  int proven = 0, told = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const pipeline::RandomProblem made = allreduce_problem(seed);
    planners::StepRequest step;
    step.batch = 8;
    planners::PlanRequest request;
    request.effort = planners::plan_effort(Effort::kQuick);
    request.objective = planners::Objective::kSimulated;
    request.max_stages = kMostStages;
    request.policy = planners::random_policy();
    request.stages = seed % 2 == 0 ? 0 : 1;
    planners::Question question(made.profile, made.cluster, made.options, step, request);
    const planners::Answer answer = planners::answer(question, all_kinds());
    const planners::Candidate& plan = answer.plan();
    if (!plan.found()) continue;
    const double below_ms = plan.simulated_step_ms * (1 - planners::kProvenGap);
    const bool shorter = best_published(question, below_ms).plan.problem != nullptr;
    const bool is_proven = answer.bounds.simulated_ms >= below_ms;
    if (request.stages == 0) {
      proven += is_proven;
      EXPECT_FALSE(shorter);
    } else if (shorter) {
      told += is_proven;
      EXPECT_TRUE(std::any_of(answer.kinds.begin(), answer.kinds.end(), [](const planners::Candidate& one) {
        return one.kind.rfind("published planner: ", 0) == 0;
      }));
    }
  }
  EXPECT_GT(proven, 3);
  EXPECT_GT(told, 0);
}

}  // namespace
}  // namespace automap::rivals
