// The plan space and its searches on whole samples, stage variants and adaptive schedules, against brute force.
#include <gtest/gtest.h>

#include <map>

#include "common/base/numbers.h"
#include "common/pipeline/schedule.h"
#include "models/features.h"
#include "models/flat_env.h"
#include "models/plan_space.h"
#include "models/policy_search.h"
#include "tests/models/untrained_policy.h"
#include "tests/models/whole_problem.h"

namespace automap::models {
namespace {

using pipeline::Objective;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::Schedule;

constexpr int kProblems = 1000;
constexpr int kFirst = 2000;

// Calls visit(problem, stages, schedule) for problems that a space can be made for.
template <typename Visit>
void for_small_problems(const Visit& visit) {
  for (int i = 0; i < kProblems; ++i) {
    const WholeProblem whole = whole_problem(kFirst + i, 8, 3, 3);
    const Problem problem = whole.made.problem();
    const int most = std::min({4, problem.num_devices(), problem.num_instructions()});
    if (most < 2) continue;
    SCOPED_TRACE(i);
    visit(i, problem, 2 + (kFirst + i) % (most - 1), whole.schedule);
  }
}

TEST(PlanSpaceWhole, EveryPlanIsReachedAtItsVAndNoPrefixIsBoundedTooHigh) {
  int plans = 0, none = 0, variants = 0;
  std::map<Schedule, int> of_schedule;
  for_small_problems([&](int, const Problem& problem, int stages, Schedule schedule) {
    const PlanSpace space(problem, every_pivot(problem, stages, schedule));
    int here = 0;
    for_each_plan(problem, stages, schedule, [&](const Plan& plan) {
      ++here;
      ASSERT_TRUE(space.possible());
      const double value = pipeline::value_ms(problem, plan);
      Prefix prefix = space.root(), next;
      ASSERT_LE(prefix.bound_ms, value * (1 + 1e-9));
      for (int b = 0; b + 1 < stages; ++b) {
        ASSERT_TRUE(space.append(prefix, plan.cuts[at(b)], plan.device_cuts[at(b)], next)) << b;
        prefix = next;
        ASSERT_LE(prefix.bound_ms, value * (1 + 1e-9)) << b;
      }
      Plan found;
      ASSERT_NEAR(space.finish(prefix, kInfinity, &found), value, 1e-9 * value);
      ASSERT_EQ(found, plan);
      for (const int v : plan.variants) variants += v > 0 ? 1 : 0;
    });
    plans += here;
    of_schedule[schedule] += here;
    none += here == 0 ? 1 : 0;
  });
  EXPECT_GT(plans, 5000);
  EXPECT_GT(none, 10);
  EXPECT_GT(variants, 600);
  EXPECT_EQ(of_schedule.size(), 4u);
}

TEST(PlanSpaceWhole, TheRootBoundsPlansOfAnyVariants) {
  int plans = 0;
  for_small_problems([&](int i, const Problem& problem, int stages, Schedule schedule) {
    const PlanSpace space(problem, every_pivot(problem, stages, schedule));
    pipeline::CounterRandom random(6, static_cast<std::uint32_t>(i));
    for (int trial = 0; trial < 30; ++trial) {
      Plan plan = pipeline::random_plan(problem, stages, schedule, random);
      for (int s = 0; s < stages; ++s) {
        plan.variants.push_back(static_cast<std::uint8_t>(random.integer(0, problem.num_variants() - 1)));
      }
      if (!pipeline::feasible(problem, plan)) continue;
      ++plans;
      ASSERT_TRUE(space.possible());
      ASSERT_LE(space.root().bound_ms, pipeline::value_ms(problem, plan) * (1 + 1e-9));
    }
  });
  EXPECT_GT(plans, 5000);
}

TEST(PlanSpaceWhole, WhatEndsInTheSpaceMayRun) {
  int ends = 0;
  for_small_problems([&](int i, const Problem& problem, int stages, Schedule schedule) {
    const PlanSpace space(problem, every_pivot(problem, stages, schedule));
    pipeline::CounterRandom random(3, static_cast<std::uint32_t>(i));
    Prefix prefix = space.root();
    std::vector<Prefix> children;
    std::vector<int> parent_of;
    for (int s = 1; s < stages; ++s) {
      space.expand({prefix}, 1 << 20, children, parent_of);
      std::size_t appended = 0;
      for (int point = 1; point + 1 < space.num_points(); ++point) {
        for (const int d : space.device_cuts()) {
          Prefix child;
          if (!space.append(prefix, point, d, child)) continue;
          ++appended;
          ASSERT_TRUE(problem.group(prefix.d1, d).valid);
        }
      }
      ASSERT_EQ(children.size(), appended);
      if (children.empty()) return;
      prefix = children[at(random.integer(0, static_cast<int>(children.size()) - 1))];
      ASSERT_GE(prefix.bound_ms, space.root().bound_ms);
    }
    Plan plan;
    const double value = space.finish(prefix, kInfinity, &plan);
    if (!(value < kInfinity)) return;
    ++ends;
    ASSERT_EQ(pipeline::infeasible_reason(problem, plan), "");
    ASSERT_NEAR(pipeline::value_ms(problem, plan), value, 1e-9 * value);
  });
  EXPECT_GT(ends, 60);
}

TEST(PlanSpaceWhole, RolloutsAreFeasiblePlansOfTheirValueAndFeaturesInRange) {
  int made = 0, shorter = 0;
  for (int i = 0; i < 200; ++i) {
    const WholeProblem whole = whole_problem(1000 + i, 40, 4, 8);
    const Problem problem = whole.made.problem();
    const int most = std::min({8, problem.num_devices(), problem.num_instructions()});
    if (most < 2) continue;
    SCOPED_TRACE(i);
    const int stages = 2 + i % (most - 1);
    const PlanSpace space(problem, every_pivot(problem, stages, whole.schedule));
    Prefix prefix = space.root();
    std::vector<Prefix> children;
    std::vector<int> parent_of;
    for (int s = 0; s + 1 < stages; ++s) {
      Rollouts rollouts = space.rollouts(prefix);
      const double best = rollouts.best_ms;
      for (const bool improved : {false, true}) {
        if (improved) space.improve(prefix, rollouts);
        if (best == kInfinity) continue;
        ++made;
        const Plan plan = space.plan_of(rollouts);
        ASSERT_EQ(pipeline::infeasible_reason(problem, plan), "");
        ASSERT_NEAR(pipeline::value_ms(problem, plan), rollouts.best_ms, 1e-9 * best);
        ASSERT_GE(rollouts.best_ms, prefix.bound_ms * (1 - 1e-9));
        shorter += rollouts.best_ms < best ? 1 : 0;
      }
      if (prefix.stages > 0) {
        float features[kFeatures];
        after_state_features(space, prefix, rollouts, prefix.bound_ms * 1.5, features);
        for (int f = 0; f < kFeatures; ++f) {
          ASSERT_TRUE(std::isfinite(features[f])) << kFeatureNames[f];
          ASSERT_LE(std::fabs(features[f]), 4) << kFeatureNames[f];
        }
      }
      space.expand({prefix}, 6, children, parent_of);
      if (children.empty()) break;
      prefix = children.back();
    }
  }
  EXPECT_GT(made, 200);
  EXPECT_GT(shorter, 40);
}

TEST(PlanSpaceWhole, SearchesFindFeasiblePlansAndAWideBeamTheBest) {
  const Policy policy = untrained_policy(8);
  int found_plans = 0, none = 0, best_by_greedy = 0;
  for_small_problems([&](int i, const Problem& problem, int stages, Schedule schedule) {
    const Objective objective = i % 3 == 0 ? Objective::kSimulated : Objective::kValue;
    const PlanSpace space(problem, every_pivot(problem, stages, schedule));
    double best = kInfinity;
    for_each_plan(problem, stages, schedule,
                  [&](const Plan& plan) { best = std::min(best, pipeline::length_ms(problem, plan, objective)); });
    for (const int beam : {1, 4, 3000}) {
      PolicySearchOptions options;
      options.beam = beam;
      options.objective = objective;
      if (beam > 4) options.most_children = beam;
      const std::optional<FoundPlan> found = search_plan(space, i % 2 == 0 ? &policy : nullptr, options);
      if (beam > 4) {
        ASSERT_EQ(found.has_value(), best < kInfinity);
        none += found ? 0 : 1;
      }
      if (!found) continue;
      ++found_plans;
      ASSERT_EQ(pipeline::infeasible_reason(problem, found->plan), "");
      ASSERT_EQ(found->length_ms, pipeline::length_ms(problem, found->plan, objective));
      ASSERT_GE(found->length_ms, best * (1 - 1e-9));
      if (objective == Objective::kValue && beam > 4) {
        ASSERT_NEAR(found->length_ms, best, 1e-9 * best);
      }
      best_by_greedy += beam == 1 && found->length_ms <= best * (1 + 1e-9) ? 1 : 0;
    }
  });
  EXPECT_GT(found_plans, 300);
  EXPECT_GT(none, 10);
  EXPECT_GT(best_by_greedy, 50);
}

TEST(PlanSpaceWhole, TheFlatEnvironmentEndsInPlansThatMayRun) {
  int ends = 0;
  for_small_problems([&](int i, const Problem& problem, int stages, Schedule schedule) {
    const PlanSpace space(problem, every_pivot(problem, stages, schedule));
    pipeline::CounterRandom random(12, static_cast<std::uint32_t>(i));
    for (const FlatInput input : {FlatInput::kRaw, FlatInput::kPerAction}) {
      FlatEnv env(space, input);
      std::vector<float> state(at(FlatEnv::state_size(input)));
      std::vector<std::uint8_t> legal(FlatEnv::kActions);
      while (!env.done()) {
        env.state(state.data());
        for (const float x : state) ASSERT_TRUE(x >= 0 && x <= 1);
        env.legal(legal.data());
        std::vector<int> actions;
        for (int a = 0; a < FlatEnv::kActions; ++a) {
          if (legal[at(a)] == 1) actions.push_back(a);
        }
        env.step(actions[at(random.integer(0, static_cast<int>(actions.size()) - 1))]);
      }
      if (!(env.value_ms() < kInfinity)) continue;
      ++ends;
      ASSERT_EQ(pipeline::infeasible_reason(problem, env.plan()), "");
    }
  });
  EXPECT_GT(ends, 100);
}

}  // namespace
}  // namespace automap::models
