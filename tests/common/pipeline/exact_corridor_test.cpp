#include <gtest/gtest.h>

#include "common/pipeline/exact.h"
#include "tests/common/pipeline/exact_brute_force.h"

namespace automap::pipeline {
namespace {

using testing::small_problem;
using testing::SmallProblem;
using testing::SmallRandom;

// A random plan with valid structure.
Plan corridor_plan(const Problem& problem, SmallRandom& random, int stages) {
  const auto choose = [&](int end) {
    std::vector<int> cuts;
    int needed = stages - 1;
    for (int i = 1; i < end && needed > 0; ++i) {
      if (random.integer(1, end - i) <= needed) {
        cuts.push_back(i);
        --needed;
      }
    }
    return cuts;
  };
  Plan plan;
  plan.cuts = choose(problem.num_instructions());
  plan.device_cuts = choose(problem.num_devices());
  plan.schedule = random.chance(0.5) ? Schedule::k1f1b : Schedule::k1f1bOverlap;
  return plan;
}

TEST(Corridor, NeverWorsensAndIsOptimalWithinItsRadius) {
  int moved = 0, judged = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    const SmallProblem small = small_problem(seed, 8, 30, 8);
    const Problem problem(small.profile, small.cluster, small.options);
    SmallRandom random(seed + 17);
    const Plan plan = corridor_plan(problem, random, random.integer(1, std::min(4, problem.num_devices())));
    const Plan refined = refine_in_corridor(problem, plan, 3, 1);
    if (!feasible(problem, plan)) {
      ASSERT_TRUE(refined == plan);
      continue;
    }
    ++judged;
    ASSERT_TRUE(feasible(problem, refined));
    ASSERT_EQ(refined.schedule, plan.schedule);
    ASSERT_EQ(refined.num_stages(), plan.num_stages());
    const double value = value_ms(problem, refined);
    ASSERT_LE(value, value_ms(problem, plan));
    if (!(refined == plan)) ++moved;
    // No single move within the radius is better.
    for (std::size_t s = 0; s < refined.cuts.size(); ++s) {
      for (int p = -3; p <= 3; ++p) {
        for (int d = -1; d <= 1; ++d) {
          Plan other = refined;
          other.cuts[s] += p;
          other.device_cuts[s] += d;
          if (!valid_structure(problem, other) || !feasible(problem, other)) continue;
          ASSERT_GE(value_ms(problem, other), value * (1 - 1e-9));
        }
      }
    }
  }
  EXPECT_GT(judged, 800);
  EXPECT_GT(moved, 400);
}

TEST(Corridor, ReachesTheOptimumWhenItCoversEverything) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const SmallProblem small = small_problem(seed);
    const Problem problem(small.profile, small.cluster, small.options);
    SmallRandom random(seed + 17);
    const Plan plan = corridor_plan(problem, random, std::min({3, problem.num_devices(), problem.num_instructions()}));
    if (!feasible(problem, plan)) continue;
    const Plan refined = refine_in_corridor(problem, plan, 100, 100);
    const std::vector<double> values =
        testing::all_values(problem, plan.schedule, plan.num_stages(), testing::up_to(problem.num_instructions()));
    ASSERT_NEAR(value_ms(problem, refined), values.front(), 1e-9 * values.front());
  }
}

}  // namespace
}  // namespace automap::pipeline
