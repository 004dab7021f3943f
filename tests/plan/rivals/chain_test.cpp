#include "plan/rivals/chain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "common/pipeline/cost.h"
#include "common/pipeline/random_problem.h"
#include "plan/rivals/alpa.h"
#include "plan/rivals/galvatron.h"

namespace automap::rivals {
namespace {

using pipeline::Problem;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

pipeline::RandomProblem small(std::uint64_t seed) {
  pipeline::RandomProblemOptions options;
  options.min_instructions = 3;
  options.max_instructions = 8;
  options.min_servers = 1;
  options.max_servers = 3;
  options.min_devices = 1;
  options.max_devices = 3;
  options.whole = 0.7;
  options.heterogeneous = 0.3;
  options.with_memory_limit = 0.5;
  return pipeline::random_problem(seed, options);
}

// The least objective of all plans that begin behind p0 and d0 with exactly `left` stages.
double least(const Problem& problem, const GroupSizes& sizes, Transfers transfers, int p0, int d0, int left, double sum,
             double longest) {
  if (left == 0) {
    const bool all = p0 == problem.num_instructions() && d0 == problem.num_devices();
    return all ? sum + (problem.micro_batches() - 1) * longest : kInfinity;
  }
  double best = kInfinity;
  if (d0 == problem.num_devices()) return best;
  for (int p1 = p0 + 1; p1 <= problem.num_instructions(); ++p1) {
    for (const int size : sizes(d0)) {
      const double ms = stage_ms(problem, p0, p1, d0, d0 + size, left, transfers);
      if (ms == kInfinity) continue;
      best = std::min(best, least(problem, sizes, transfers, p1, d0 + size, left - 1, sum + ms, std::max(longest, ms)));
    }
  }
  return best;
}

std::vector<int> every_position(const Problem& problem) {
  std::vector<int> ends;
  for (int p = 1; p <= problem.num_instructions(); ++p) ends.push_back(p);
  return ends;
}

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
  int found = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const pipeline::RandomProblem made = small(seed);
    const planners::StepRequest step;
    for (const auto planner : {plan_alpa, plan_galvatron}) {
      const RivalPlan plan = planner(made.profile, made.cluster, made.options, step, 4);
      if (!plan.problem) continue;
      ++found;
      EXPECT_TRUE(pipeline::feasible(*plan.problem, plan.plan)) << "seed " << seed;
      EXPECT_GT(plan.simulated_step_ms, 0);
    }
  }
  EXPECT_GT(found, 200);
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
