#include <gtest/gtest.h>

#include "common/pipeline/exact.h"
#include "tests/common/pipeline/exact_brute_force.h"
#include "tests/sanitized.h"

namespace automap::pipeline {
namespace {

using testing::all_values;
using testing::small_problem;
using testing::SmallProblem;
using testing::SmallRandom;
using testing::up_to;

// The proof that the solver is exact: every plan of many small problems of every kind listed and valued.
void compare_solver_with_brute_force(std::uint64_t first_seed, std::uint64_t last_seed) {
  int feasible_cases = 0, infeasible_cases = 0;
  for (std::uint64_t seed = first_seed; seed < last_seed; ++seed) {
    const SmallProblem small = small_problem(seed);
    const Problem problem(small.profile, small.cluster, small.options);
    SmallRandom random(seed ^ 0xABCDEF);
    ExactOptions options;
    options.max_stages = random.integer(2, 5);
    options.schedule = random.chance(0.5) ? Schedule::k1f1b : Schedule::k1f1bOverlap;
    if (random.chance(0.3)) {
      for (int i = 1; i < problem.num_instructions(); ++i) {
        if (i == 1 || random.chance(0.6)) options.pivots.push_back(i);
      }
    }
    const std::vector<int> pivots = options.pivots.empty() ? up_to(problem.num_instructions()) : options.pivots;
    const ExactResult result = solve_exact(problem, options);
    for (const ExactStageResult& stage_result : result.by_stages) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " stages " << stage_result.stages);
      const std::vector<double> expected = all_values(problem, options.schedule, stage_result.stages, pivots);
      ASSERT_TRUE(stage_result.proven);
      ASSERT_EQ(stage_result.plans.empty(), expected.empty());
      if (expected.empty()) {
        ++infeasible_cases;
        continue;
      }
      ++feasible_cases;
      ASSERT_NEAR(stage_result.value_ms.front(), expected.front(), 1e-9 * expected.front());
      const Plan& plan = stage_result.plans.front();
      ASSERT_TRUE(feasible(problem, plan));
      ASSERT_EQ(plan.num_stages(), stage_result.stages);
      ASSERT_DOUBLE_EQ(value_ms(problem, plan), stage_result.value_ms.front());
      ASSERT_NEAR(stage_result.lower_bound_ms, stage_result.value_ms.front(), 1e-9 * expected.front());
    }
  }
  EXPECT_GT(feasible_cases, 1000);
  EXPECT_GT(infeasible_cases, 100);
}

TEST(ExactSolver, EqualsBruteForceOnSmallProblemsA) {
  compare_solver_with_brute_force(0, 5000);
}
TEST(ExactSolver, EqualsBruteForceOnSmallProblemsB) {
  compare_solver_with_brute_force(5000, 10000);
}

TEST(ExactSolver, FindsDistinctPlansInOrder) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const SmallProblem small = small_problem(seed);
    const Problem problem(small.profile, small.cluster, small.options);
    ExactOptions options;
    options.max_stages = 4;
    options.k_best = 5;
    const ExactResult result = solve_exact(problem, options);
    for (const ExactStageResult& stage_result : result.by_stages) {
      const std::vector<double> expected =
          all_values(problem, options.schedule, stage_result.stages, up_to(problem.num_instructions()));
      ASSERT_EQ(stage_result.plans.empty(), expected.empty());
      ASSERT_LE(stage_result.plans.size(), 5U);
      for (std::size_t k = 0; k < stage_result.plans.size(); ++k) {
        ASSERT_TRUE(feasible(problem, stage_result.plans[k]));
        ASSERT_DOUBLE_EQ(value_ms(problem, stage_result.plans[k]), stage_result.value_ms[k]);
        ASSERT_GE(stage_result.value_ms[k], expected[k] * (1 - 1e-9));
        for (std::size_t j = 0; j < k; ++j) {
          ASSERT_FALSE(stage_result.plans[j] == stage_result.plans[k]);
          ASSERT_LE(stage_result.value_ms[j], stage_result.value_ms[k]);
        }
      }
      if (!expected.empty()) {
        ASSERT_NEAR(stage_result.value_ms[0], expected[0], 1e-9 * expected[0]);
      }
    }
  }
}

TEST(ExactSolver, ReturnsNothingWhenTheUpperBoundIsOptimal) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const SmallProblem small = small_problem(seed);
    const Problem problem(small.profile, small.cluster, small.options);
    ExactOptions options;
    options.max_stages = 4;
    const ExactResult free = solve_exact(problem, options);
    if (free.best() == nullptr) continue;
    const double best = free.best()->value_ms.front();
    options.upper_bound_ms = best;
    const ExactResult none = solve_exact(problem, options);
    for (const ExactStageResult& stage_result : none.by_stages) {
      ASSERT_TRUE(stage_result.plans.empty());
      ASSERT_TRUE(stage_result.proven);
      ASSERT_LE(stage_result.lower_bound_ms, best * (1 + 1e-9));
    }
    options.upper_bound_ms = best * 1.001;
    const ExactResult again = solve_exact(problem, options);
    ASSERT_NE(again.best(), nullptr);
    ASSERT_NEAR(again.best()->value_ms.front(), best, 1e-9 * best);
  }
}

// Once it took 1.4 times the work: the beam was asked again and again below the same limit.
TEST(ExactSolver, AnUpperBoundIsLessWork) {
  std::int64_t with = 0, without = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const SmallProblem small = small_problem(seed, 100, 130, 8);
    const Problem problem(small.profile, small.cluster, small.options);
    ExactOptions options;
    options.min_stages = options.max_stages = 2 + static_cast<int>(seed % 4);
    Work free;
    options.work = &free;
    const ExactResult found = solve_exact(problem, options);
    if (found.best() == nullptr) continue;
    Work told;
    options.work = &told;
    options.upper_bound_ms = found.best()->value_ms.front() * (1 + 1e-9);
    const ExactResult again = solve_exact(problem, options);
    ASSERT_TRUE(again.proven());
    with += told.spent();
    without += free.spent();
  }
  EXPECT_LT(with, without);
}

TEST(ExactSolver, StopsWhenTold) {
  const SmallProblem small = small_problem(7, 60, 60, 6);
  const Problem problem(small.profile, small.cluster, small.options);
  ExactOptions options;
  Work none(WorkLimits::until([] { return true; }));
  options.work = &none;
  const ExactResult result = solve_exact(problem, options);
  const ExactResult finished = solve_exact(problem, ExactOptions());
  ASSERT_EQ(result.by_stages.size(), finished.by_stages.size());
  for (std::size_t s = 0; s < result.by_stages.size(); ++s) {
    if (finished.by_stages[s].plans.empty()) continue;
    EXPECT_LE(result.by_stages[s].lower_bound_ms, finished.by_stages[s].value_ms.front() * (1 + 1e-9));
  }
}

// Counted work ends it at the same place, however it is handed down.
TEST(ExactSolver, EndsAtTheSamePlaceWithTheSameWork) {
  const SmallProblem small = small_problem(50, 440, 450, 6);
  const Problem problem(small.profile, small.cluster, small.options);
  ExactOptions options;
  options.max_stages = 4;
  Work all;
  options.work = &all;
  solve_exact(problem, options);
  ASSERT_GT(all.spent(), 1'000'000);
  int unproven = 0;
  for (int part = 1; part <= 20; ++part) {
    const std::int64_t units = all.spent() * part / 20;
    Work alone(WorkLimits::of_units(units));
    options.work = &alone;
    const ExactResult first = solve_exact(problem, options);
    Work whole, half(whole, 2 * units), share(half, units);
    options.work = &share;
    const ExactResult second = solve_exact(problem, options);
    EXPECT_EQ(share.spent(), alone.spent());
    EXPECT_EQ(whole.spent(), alone.spent());
    EXPECT_LE(alone.spent(), units + all.spent() / 4);
    ASSERT_EQ(first.by_stages.size(), second.by_stages.size());
    for (std::size_t s = 0; s < first.by_stages.size(); ++s) {
      const ExactStageResult &a = first.by_stages[s], &b = second.by_stages[s];
      EXPECT_EQ(a.proven, b.proven);
      EXPECT_EQ(a.lower_bound_ms, b.lower_bound_ms);
      EXPECT_EQ(a.value_ms, b.value_ms);
      EXPECT_TRUE(a.plans == b.plans);
      unproven += a.proven ? 0 : 1;
    }
  }
  EXPECT_GT(unproven, 10);
}

// At whatever poll it is stopped: bounds hold, plans are feasible, and what is called proven is optimal.
TEST(ExactSolver, IsHonestWhereverItIsStopped) {
  int unproven = 0, proven = 0, with_plan = 0;
  for (std::uint64_t seed = 0; seed < 1500 / kShare; ++seed) {
    SCOPED_TRACE(seed);
    const SmallProblem small = seed % 50 == 0 ? small_problem(seed, 410, 420, 6) : small_problem(seed, 10, 40, 8);
    const Problem problem(small.profile, small.cluster, small.options);
    SmallRandom random(seed);
    ExactOptions options;
    options.max_stages = 4;
    const ExactResult full = solve_exact(problem, options);
    int polls = static_cast<int>(random.integer(1, 100) * random.real(0, 20));
    // By the caller at some poll, or by so much work.
    WorkLimits limits = WorkLimits::until([&polls] { return --polls < 0; });
    if (seed % 2 == 0) limits = WorkLimits::of_units(polls * random.integer(1, 20000));
    Work work(limits);
    options.work = &work;
    const ExactResult stopped = solve_exact(problem, options);
    ASSERT_EQ(stopped.by_stages.size(), full.by_stages.size());
    for (std::size_t s = 0; s < full.by_stages.size(); ++s) {
      const ExactStageResult& result = stopped.by_stages[s];
      const ExactStageResult& truth = full.by_stages[s];
      ASSERT_TRUE(truth.proven);
      ++(result.proven ? proven : unproven);
      if (truth.plans.empty()) {
        ASSERT_TRUE(result.plans.empty());
        continue;
      }
      const double best = truth.value_ms.front();
      ASSERT_LE(result.lower_bound_ms, best * (1 + 1e-9));
      if (result.proven) {
        ASSERT_FALSE(result.plans.empty());
        ASSERT_NEAR(result.value_ms.front(), best, 1e-9 * best);
      }
      if (result.plans.empty()) continue;
      ++with_plan;
      ASSERT_TRUE(feasible(problem, result.plans.front()));
      ASSERT_GE(result.value_ms.front(), best * (1 - 1e-9));
    }
  }
  EXPECT_GT(unproven, 500 / kShare);
  EXPECT_GT(proven, 500 / kShare);
  EXPECT_GT(with_plan, 500 / kShare);
}

// More pivots than are solved directly: runs of pivots first.
TEST(ExactSolver, EqualsBruteForceOnManyInstructions) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const SmallProblem small = small_problem(seed, 410, 460, 4);
    const Problem problem(small.profile, small.cluster, small.options);
    ExactOptions options;
    options.min_stages = 2;
    options.max_stages = seed < 10 ? 3 : 2;
    options.schedule = seed % 2 == 0 ? Schedule::k1f1b : Schedule::k1f1bOverlap;
    const ExactResult result = solve_exact(problem, options);
    ASSERT_TRUE(result.proven());
    for (const ExactStageResult& stage_result : result.by_stages) {
      const std::vector<double> expected =
          all_values(problem, options.schedule, stage_result.stages, up_to(problem.num_instructions()));
      ASSERT_EQ(stage_result.plans.empty(), expected.empty());
      if (expected.empty()) continue;
      ASSERT_NEAR(stage_result.value_ms.front(), expected.front(), 1e-9 * expected.front());
      ASSERT_TRUE(feasible(problem, stage_result.plans.front()));
    }
  }
}

// Two programs that share little must agree: the label program on a grid and the one over all cuts, on problems with
// up to 16 devices and 6 stages that are too large to list.
TEST(ExactSolver, RunsOfPivotsAndPivotsAgree) {
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(seed);
    const SmallProblem small = small_problem(seed, 60, 120, 16);
    const Problem problem(small.profile, small.cluster, small.options);
    ExactOptions options;
    options.min_stages = 2;
    options.max_stages = 6;
    const ExactResult direct = solve_exact(problem, options);
    for (const ExactStageResult& stage_result : direct.by_stages) {
      const double best =
          stage_result.plans.empty() ? std::numeric_limits<double>::infinity() : stage_result.value_ms.front();
      Work work(WorkLimits::of_units(60'000'000'000));
      const LowerBound bound =
          lower_bound_all_cuts(problem, {options.schedule}, stage_result.stages, stage_result.stages, best * 1.2, work);
      if (stage_result.plans.empty()) {
        ASSERT_EQ(bound.ms, best);
      } else {
        ASSERT_NEAR(bound.ms, best, 1e-9 * best);
      }
    }
  }
}

// More devices than thresholds are made for: the plans of the searches before are the answer, unproven, in little
// memory.
TEST(ExactSolver, IsHonestWhereTheProgramIsTooLarge) {
  Profile profile;
  profile.model = "even";
  for (int i = 0; i < 130; ++i) {
    profile.c_ms.push_back(1 + i % 3);
    profile.a_bytes.push_back(i % 7 == 0 ? 1e5 : 1e6);
    profile.w_bytes.push_back(1e6);
    profile.stash_bytes.push_back(1e6);
  }
  Cluster cluster;
  cluster.name = "large";
  cluster.devices["one"].memory_gib = 16;
  ServerGroup servers;
  servers.count = 128;
  servers.devices = 8;
  servers.intra_gbytes_per_s = 130;
  servers.inter_gbytes_per_s = 12;
  servers.device = "one";
  cluster.servers.push_back(servers);
  const Problem problem(profile, cluster, ProblemOptions());
  ExactOptions options;
  options.min_stages = 7;
  options.max_stages = 7;
  const ExactResult result = solve_exact(problem, options);
  ASSERT_EQ(result.by_stages.size(), 1U);
  const ExactStageResult& found = result.by_stages.front();
  EXPECT_FALSE(found.proven);
  ASSERT_FALSE(found.plans.empty());
  EXPECT_TRUE(feasible(problem, found.plans.front()));
  EXPECT_GT(found.lower_bound_ms, 0);
  EXPECT_LE(found.lower_bound_ms, found.value_ms.front());
}

TEST(ExactSolver, GridPivotsAreTheRowsPoints) {
  EXPECT_EQ(grid_pivots(10, 4), (std::vector<int>{2, 5, 7}));
  EXPECT_EQ(grid_pivots(3, 128), (std::vector<int>{1, 2}));
  EXPECT_EQ(grid_pivots(2, 1), std::vector<int>());
  EXPECT_EQ(grid_pivots(2000, 128).size(), 127U);
}

}  // namespace
}  // namespace automap::pipeline
