#include "plan/systems/rivals/chain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "common/pipeline/cost.h"
#include "common/pipeline/schedule.h"
#include "plan/systems/rivals/aceso.h"
#include "plan/systems/rivals/alpa.h"
#include "plan/systems/rivals/dapple.h"
#include "plan/systems/rivals/galvatron.h"
#include "plan/systems/rivals/pipedream.h"
#include "tests/plan/systems/rivals/small_chains.h"

namespace automap::rivals {
namespace {

using pipeline::Problem;

void expect_same(const Problem& problem, const std::optional<ChainPlan>& found, double expected) {
  ASSERT_EQ(found.has_value(), expected < kInfinity);
  if (!found) return;
  EXPECT_NEAR(found->objective_ms, expected, expected * 1e-9);
  EXPECT_TRUE(pipeline::feasible(problem, found->plan));
}

TEST(Rivals, AlpaFindsTheLeastOfItsObjective) {
  int found = 0, pipelines = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Problem problem = small(seed).problem();
    const GroupSizes sizes = [&](int d0) { return alpa_submeshes(problem, d0); };
    double expected = kInfinity;
    for (int stages = 1; stages <= 4; ++stages) {
      expected = std::min(expected, least(problem, sizes, Transfers::kIgnored, 0, 0, stages, 0, 0));
    }
    const std::optional<ChainPlan> plan =
        best_chain(problem, every_position(problem), sizes, 4, 0, Transfers::kIgnored);
    expect_same(problem, plan, expected);
    found += plan.has_value();
    pipelines += plan && plan->plan.num_stages() > 1;
    const std::optional<ChainPlan> rough =
        best_chain(problem, every_position(problem), sizes, 4, kAlpaGap, Transfers::kIgnored);
    ASSERT_EQ(rough.has_value(), plan.has_value());
    if (rough) {
      EXPECT_LE(rough->objective_ms, expected * (1 + kAlpaGap) * (1 + 1e-9));
    }
  }
  EXPECT_GT(found, 200);
  EXPECT_GT(pipelines, 50);
}

// Stages that alone take too long are left out: a plan that is short enough stays the one that is found, and none that
// is found has such a stage.
TEST(Rivals, HopelessStagesAreLeftOut) {
  int kept = 0, dropped = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Problem problem = small(seed).problem();
    const std::vector<int> ends = every_position(problem);
    const GroupSizes sizes = [&](int d0) { return alpa_submeshes(problem, d0); };
    const std::vector<std::function<std::optional<ChainPlan>(double)>> planners = {
        [&](double below_ms) { return best_chain(problem, ends, sizes, 4, 0, Transfers::kIgnored, below_ms); },
        [&](double below_ms) { return pipedream_chain(problem, ends, 4, below_ms); },
        [&](double below_ms) { return dapple_chain(problem, ends, 4, below_ms); }};
    for (const auto& planner : planners) {
      const std::optional<ChainPlan> free = planner(kInfinity);
      if (!free) continue;
      const double step_ms = pipeline::simulate_step_ms(problem, free->plan);
      const std::optional<ChainPlan> same = planner(step_ms * (1 + 1e-9));
      ASSERT_TRUE(same);
      EXPECT_NEAR(same->objective_ms, free->objective_ms, free->objective_ms * 1e-9);
      ++kept;
      const double below_ms = step_ms * 0.8;
      const std::optional<ChainPlan> shorter = planner(below_ms);
      dropped += !shorter;
      if (!shorter) continue;
      pipeline::for_each_stage(problem, shorter->plan, [&](int, int p0, int p1, int d0, int d1) {
        EXPECT_FALSE(hopeless_stage(problem, p0, p1, problem.group(d0, d1), below_ms));
        return true;
      });
    }
  }
  EXPECT_GT(kept, 100);
  EXPECT_GT(dropped, 20);
}

TEST(Rivals, GalvatronFindsTheLeastOfItsObjective) {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Problem problem = small(seed).problem();
    double expected = kInfinity;
    for (int stages = 1; stages <= 4; ++stages) {
      if (problem.num_devices() % stages != 0) continue;
      const GroupSizes sizes = [&](int) { return std::vector<int>{problem.num_devices() / stages}; };
      expected = std::min(expected, least(problem, sizes, Transfers::kCounted, 0, 0, stages, 0, 0));
    }
    const std::optional<ChainPlan> plan = galvatron_chain(problem, every_position(problem), 4, 0);
    expect_same(problem, plan, expected);
    found += plan.has_value();
  }
  EXPECT_GT(found, 200);
}

TEST(Rivals, WholePlansAreFeasibleOrNone) {
  int found = 0, left_out = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const pipeline::RandomProblem made = small(seed);
    const planners::StepRequest step;
    const auto infinite = std::numeric_limits<double>::infinity();
    for (const auto planner : {alpa, galvatron, aceso}) {
      const auto below = [&](double below_ms) {
        return best_over_splits({made.profile, made.cluster, made.options, step, of_stages(4)},
                                {planner(made.profile, 4)}, below_ms);
      };
      const RivalPlan plan = below(infinite);
      if (!plan.problem) continue;
      // Asked for what is shorter than a little more than it, it is found again; than half of it, mostly at once not.
      const double near_ms = 1.001 * plan.simulated_step_ms;
      const RivalPlan again = below(near_ms);
      ASSERT_TRUE(again.problem) << "seed " << seed;
      EXPECT_EQ(again.plan, plan.plan);
      left_out += !below(plan.simulated_step_ms / 4).problem;
      ++found;
      EXPECT_TRUE(pipeline::feasible(*plan.problem, plan.plan)) << "seed " << seed;
      EXPECT_GT(plan.simulated_step_ms, 0);
    }
  }
  EXPECT_GT(found, 200);
  EXPECT_GT(left_out, found / 2);
}

// Several asked together say what the best of them says alone.
TEST(Rivals, TogetherTheyAreTheBestOfThem) {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const pipeline::RandomProblem made = small(seed);
    const planners::StepRequest step;
    const planners::Question request(made.profile, made.cluster, made.options, step, of_stages(4));
    const std::vector<Planner> planners = {galvatron(made.profile, 4), alpa(made.profile, 4), aceso(made.profile, 4)};
    const RivalPlan together = best_over_splits(request, planners);
    RivalPlan best;
    for (const Planner& planner : planners) {
      RivalPlan one = best_over_splits(request, {planner});
      if (one.simulated_step_ms < best.simulated_step_ms) best = std::move(one);
    }
    ASSERT_EQ(together.problem != nullptr, best.problem != nullptr);
    EXPECT_EQ(together.simulated_step_ms, best.simulated_step_ms);
    if (!together.problem) continue;
    ++found;
    EXPECT_TRUE(pipeline::feasible(*together.problem, together.plan));
    const RivalPlan alone = best_over_splits(request, {planners[together.planner]});
    EXPECT_EQ(alone.simulated_step_ms, together.simulated_step_ms);
  }
  EXPECT_GT(found, 50);
}

TEST(Rivals, UnitsEndBetweenLayers) {
  pipeline::Profile profile;
  profile.c_ms = {1, 1, 1, 1, 1, 1};
  profile.layer = {"a", "a", "b", "b", "c", "c"};
  EXPECT_EQ(unit_ends(profile, 8), (std::vector<int>{2, 4, 6}));
  EXPECT_EQ(unit_ends(profile, 2), (std::vector<int>{4, 6}));
}

}  // namespace
}  // namespace automap::rivals
