#include "common/pipeline/baselines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "common/base/in_order.h"
#include "common/base/numbers.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/schedule.h"
#include "tests/common/pipeline/exact_brute_force.h"

namespace automap::pipeline {
namespace {

using testing::all_values;
using testing::for_each_choice;
using testing::small_problem;
using testing::SmallProblem;
using testing::up_to;

RandomProblemOptions every_kind() {
  RandomProblemOptions options;
  options.min_instructions = 10;
  options.max_instructions = 150;
  options.min_servers = 1;
  options.min_devices = 2;
  options.heterogeneous = 0.4;
  options.with_latency = 0.3;
  options.with_memory_limit = 0.5;
  options.forward_heavy = 0.3;
  options.with_zeros = 0.3;
  options.with_allreduce = 0.8;
  return options;
}

TEST(Baselines, EveryPlanIsFeasibleAndComesBackTheSame) {
  int found = 0, none = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = random_problem(seed, every_kind());
    const Problem problem = made.problem();
    for (int stages : {1, 2, 3, 6}) {
      if (stages > problem.num_devices()) continue;
      const Schedule schedule = seed % 2 == 0 ? Schedule::k1f1b : Schedule::k1f1bOverlap;
      LocalSearchOptions search;
      search.stages = stages;
      search.schedule = schedule;
      search.max_evaluations = 500;
      search.objective = seed % 3 == 0 ? Objective::kSimulated : Objective::kValue;
      const auto run = [&](int which) -> std::optional<Plan> {
        switch (which) {
          case 0: return uniform_plan(problem, stages, schedule);
          case 1: return balanced_plan(problem, stages, schedule, search.objective);
          default: return local_search_plan(problem, search);
        }
      };
      for (int which = 0; which < 3; ++which) {
        const std::optional<Plan> plan = run(which);
        const std::optional<Plan> again = run(which);
        ASSERT_EQ(plan.has_value(), again.has_value());
        if (!plan) {
          ++none;
          continue;
        }
        ++found;
        ASSERT_TRUE(*plan == *again);
        ASSERT_EQ(plan->num_stages(), stages);
        ASSERT_EQ(plan->schedule, schedule);
        ASSERT_EQ(infeasible_reason(problem, *plan), "");
      }
    }
  }
  EXPECT_GT(found, 225);
  EXPECT_GT(none, 15);
}

TEST(Baselines, AreTheSameOnAnyNumberOfThreads) {
  int cut_short = 0;
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = random_problem(seed, every_kind());
    const Problem problem = made.problem();
    for (const int stages : {2, 3}) {
      if (stages > problem.num_devices()) continue;
      // From work that is over before the first start is found to work without end.
      for (const std::int64_t units : {std::int64_t{1}, std::int64_t{20'000}, WorkLimits::kNoEnd}) {
        const auto run = [&](int threads) {
          set_loop_threads(threads);
          Work work(WorkLimits::of_units(units));
          const std::optional<Plan> balanced =
              balanced_plan(problem, stages, Schedule::k1f1b, Objective::kSimulated, &work);
          const std::int64_t balancing = work.spent();
          Work of_search(WorkLimits::of_units(units));
          LocalSearchOptions search;
          search.stages = stages;
          search.max_evaluations = 200;
          search.work = &of_search;
          std::optional<Plan> searched = local_search_plan(problem, search);
          if (units == 20'000 && of_search.over()) ++cut_short;
          return std::make_tuple(balanced, balancing, std::move(searched), of_search.spent());
        };
        const auto one = run(1);
        EXPECT_EQ(run(4), one) << units;
        set_loop_threads(1);
      }
    }
  }
  EXPECT_GT(cut_short, 5);
}

TEST(Baselines, WhatIsKnownChangesNeitherPlansNorTheirPrice) {
  for (std::uint64_t seed = 100; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = random_problem(seed, every_kind());
    const Problem problem = made.problem();
    for (const int stages : {2, 3}) {
      if (stages > problem.num_devices()) continue;
      const auto run = [&](BalancedCuts* known) {
        Work work;
        const std::optional<Plan> balanced =
            balanced_plan(problem, stages, Schedule::k1f1b, Objective::kSimulated, &work, known);
        LocalSearchOptions search;
        search.stages = stages;
        search.max_evaluations = 200;
        search.work = &work;
        search.known = known;
        std::optional<Plan> searched = local_search_plan(problem, search);
        return std::make_tuple(balanced, std::move(searched), work.spent());
      };
      BalancedCuts known;
      const auto expected = run(nullptr);
      EXPECT_EQ(run(&known), expected);
      EXPECT_EQ(run(&known), expected);
    }
  }
}

TEST(Baselines, ImpossibleStageCountsGiveNoPlan) {
  const RandomProblem made = random_problem(3);
  const Problem problem = made.problem();
  for (int stages : {-1, 0, problem.num_devices() + 1}) {
    EXPECT_FALSE(uniform_plan(problem, stages, Schedule::k1f1b));
    EXPECT_FALSE(balanced_plan(problem, stages, Schedule::k1f1b));
    LocalSearchOptions search;
    search.stages = stages;
    EXPECT_FALSE(local_search_plan(problem, search));
    EXPECT_TRUE(device_share_candidates(problem, stages).empty());
  }
}

TEST(Baselines, DataParallelIsOneStageWhenItFits) {
  RandomProblem made = random_problem(3);
  const std::optional<Plan> plan = data_parallel_plan(made.problem(), Schedule::k1f1b);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->num_stages(), 1);
  made.cluster.devices.begin()->second.memory_gib = 1e-9;
  EXPECT_FALSE(data_parallel_plan(made.problem(), Schedule::k1f1b));
}

TEST(Baselines, UniformIsTheFloorFormulaWhenThatFits) {
  RandomProblemOptions options;
  options.with_allreduce = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const RandomProblem made = random_problem(seed, options);
    const Problem problem = made.problem();
    for (int stages = 1; stages <= 8; ++stages) {
      const std::optional<Plan> plan = uniform_plan(problem, stages, Schedule::k1f1b);
      ASSERT_TRUE(plan);
      for (int s = 1; s < stages; ++s) {
        EXPECT_EQ(plan->cuts[static_cast<std::size_t>(s - 1)], s * problem.num_instructions() / stages);
        EXPECT_EQ(plan->device_cuts[static_cast<std::size_t>(s - 1)], s * problem.num_devices() / stages);
      }
    }
  }
}

// Repaired uniform cuts move no further than the best brute force finds, and exist exactly when any do.
TEST(Baselines, UniformIsRepairedByTheLeastMove) {
  int repaired = 0, impossible = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    const SmallProblem small = small_problem(seed);
    const Problem problem(small.profile, small.cluster, small.options);
    const int n = problem.num_instructions(), devices = problem.num_devices();
    const int stages = 1 + static_cast<int>(seed % 4);
    if (stages > std::min(n, devices)) continue;
    Plan plan;
    std::vector<int> uniform;
    for (int s = 1; s < stages; ++s) {
      uniform.push_back(s * n / stages);
      plan.device_cuts.push_back(s * devices / stages);
    }
    const auto move = [&](const std::vector<int>& cuts) {
      int largest = 0;
      for (std::size_t i = 0; i < cuts.size(); ++i) largest = std::max(largest, std::abs(cuts[i] - uniform[i]));
      return largest;
    };
    int least = -1;
    for_each_choice(up_to(n), stages - 1, [&](const std::vector<int>& cuts) {
      plan.cuts = cuts;
      if (feasible(problem, plan) && (least < 0 || move(cuts) < least)) least = move(cuts);
    });
    const std::optional<Plan> found = uniform_plan(problem, stages, Schedule::k1f1b);
    ASSERT_EQ(found.has_value(), least >= 0);
    if (!found) {
      ++impossible;
      continue;
    }
    ASSERT_TRUE(feasible(problem, *found));
    ASSERT_EQ(move(found->cuts), least);
    if (least > 0) ++repaired;
  }
  EXPECT_GT(repaired, 100);
  EXPECT_GT(impossible, 50);
}

// The largest stage cost of a plan under `by`, written down anew.
double largest_cost(const Problem& problem, const Plan& plan, BalanceBy by) {
  double largest = 0;
  for (int s = 0; s < plan.num_stages(); ++s) {
    const std::size_t i = static_cast<std::size_t>(s);
    const bool last = s + 1 == plan.num_stages();
    const int p0 = s == 0 ? 0 : plan.cuts[i - 1], p1 = last ? problem.num_instructions() : plan.cuts[i];
    const int d0 = s == 0 ? 0 : plan.device_cuts[i - 1], d1 = last ? problem.num_devices() : plan.device_cuts[i];
    const DeviceGroup& group = problem.group(d0, d1);
    const int k = in_flight(plan.schedule, plan.num_stages(), s + 1, problem.micro_batches());
    const double cost = by == BalanceBy::kCompute      ? problem.compute_ms(p0, p1, group)
                        : by == BalanceBy::kParameters ? problem.weight_bytes(p0, p1)
                                                       : problem.memory_bytes(p0, p1, group, k) / group.capacity_bytes;
    largest = std::max(largest, cost);
  }
  return largest;
}

TEST(Baselines, BalancedIsTheLeastLargestCostAndThenTheNarrowest) {
  int judged = 0, impossible = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    const SmallProblem small = small_problem(seed);
    const Problem problem(small.profile, small.cluster, small.options);
    ProblemOptions without_memory = small.options;
    without_memory.memory = false;
    const Problem free(small.profile, small.cluster, without_memory);
    CounterRandom random(seed, 8);
    const int stages = random.integer(1, std::min({4, problem.num_instructions(), problem.num_devices()}));
    Plan plan = random_plan(problem, stages, seed % 2 == 0 ? Schedule::k1f1b : Schedule::k1f1bOverlap, random);
    const std::vector<int> device_cuts = plan.device_cuts;
    for (BalanceBy by : {BalanceBy::kCompute, BalanceBy::kParameters, BalanceBy::kMemory}) {
      const Problem& judge = by == BalanceBy::kMemory ? free : problem;
      const auto transfers = [&](const Plan& some) {
        double sum = 0;
        for (double t : pipeline_times(problem, some).transfer_ms) sum += t;
        return sum;
      };
      double least = kInfinity;
      for_each_choice(up_to(problem.num_instructions()), stages - 1, [&](const std::vector<int>& cuts) {
        plan.cuts = cuts;
        if (feasible(judge, plan)) least = std::min(least, largest_cost(problem, plan, by));
      });
      const double slack = seed % 3 == 0 ? 0.2 : 0;
      const std::optional<Plan> found = balanced_on(problem, device_cuts, plan.schedule, by, slack);
      ASSERT_EQ(found.has_value(), least < kInfinity);
      const double bound = balanced_bound(problem, device_cuts, plan.schedule, by);
      ASSERT_LE(bound, least * (1 + 1e-8));
      // A limit that the bound is beyond is beyond the plan; one that it is not changes nothing.
      const auto within = [&](double most) {
        return balanced_on(problem, device_cuts, plan.schedule, by, slack, nullptr, 0, most);
      };
      ASSERT_EQ(within(bound * (1 + 1e-8)), found);
      ASSERT_FALSE(bound > 0 && bound < kInfinity && within(bound * (1 - 1e-8)).has_value());
      if (!found) {
        ++impossible;
        continue;
      }
      ++judged;
      ASSERT_TRUE(feasible(judge, *found));
      ASSERT_EQ(found->device_cuts, device_cuts);
      ASSERT_LE(largest_cost(problem, *found, by), least * (1 + slack) * (1 + 1e-8));
      double narrowest = kInfinity;
      for_each_choice(up_to(problem.num_instructions()), stages - 1, [&](const std::vector<int>& cuts) {
        plan.cuts = cuts;
        if (feasible(judge, plan) && largest_cost(problem, plan, by) <= least * (1 + slack)) {
          narrowest = std::min(narrowest, transfers(plan));
        }
      });
      ASSERT_LE(transfers(*found), narrowest * (1 + 1e-9));
    }
  }
  EXPECT_GT(judged, 5000);
  EXPECT_GT(impossible, 200);
}

TEST(Baselines, SharesAreEqualBySpeedAndServerAligned) {
  Cluster cluster = machine::load_cluster("config-b");  // 3 x 8
  RandomProblem made = random_problem(1);
  const Problem even(made.profile, cluster, {});
  const std::vector<std::vector<int>> two = device_share_candidates(even, 2);
  EXPECT_EQ(two, (std::vector<std::vector<int>>{{12}, {8}}));
  EXPECT_EQ(device_share_candidates(even, 1), (std::vector<std::vector<int>>{{}}));
  EXPECT_EQ(device_share_candidates(even, 3), (std::vector<std::vector<int>>{{8, 16}}));
  cluster.servers[0].count = 2;
  cluster.servers.push_back(cluster.servers[0]);
  cluster.servers[1].count = 1;
  cluster.servers[1].device = "slow";
  cluster.devices["slow"] = cluster.devices["v100-16gb"];
  cluster.devices["slow"].relative_speed = 0.25;
  const Problem uneven(made.profile, cluster, {});  // speeds sum to 18: half of it after 9 devices
  EXPECT_EQ(device_share_candidates(uneven, 2), (std::vector<std::vector<int>>{{12}, {9}, {8}}));
}

TEST(Baselines, LocalSearchIsNeverLongerThanItsStarts) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = random_problem(seed, every_kind());
    const Problem problem = made.problem();
    for (Objective objective : {Objective::kValue, Objective::kSimulated}) {
      LocalSearchOptions options;
      options.stages = 2 + static_cast<int>(seed % 5);
      options.objective = objective;
      options.max_evaluations = 3000;
      const std::optional<Plan> plan = local_search_plan(problem, options);
      const double length = plan ? length_ms(problem, *plan, objective) : kInfinity;
      std::vector<std::optional<Plan>> starts = {uniform_plan(problem, options.stages, options.schedule)};
      for (const std::vector<int>& shares : device_share_candidates(problem, options.stages)) {
        starts.push_back(balanced_on(problem, shares, options.schedule, BalanceBy::kCompute));
        starts.push_back(balanced_on(problem, shares, options.schedule, BalanceBy::kParameters));
      }
      for (const std::optional<Plan>& start : starts) {
        if (start) {
          ASSERT_LE(length, length_ms(problem, *start, objective));
        }
      }
    }
  }
}

TEST(Baselines, LocalSearchIsCloseToTheOptimumOfSmallProblems) {
  int optimal = 0, judged = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const SmallProblem small = small_problem(seed);
    const Problem problem(small.profile, small.cluster, small.options);
    LocalSearchOptions options;
    options.stages = std::min({3, problem.num_devices(), problem.num_instructions()});
    options.max_evaluations = 2000;
    const std::optional<Plan> plan = local_search_plan(problem, options);
    if (!plan) continue;
    const std::vector<double> values =
        all_values(problem, options.schedule, options.stages, up_to(problem.num_instructions()));
    ++judged;
    if (value_ms(problem, *plan) <= values.front() * (1 + 1e-9)) ++optimal;
  }
  EXPECT_GT(judged, 150);
  EXPECT_GT(optimal, 0.95 * judged);
}

TEST(Baselines, PolishNeverWorsensAndMostlyImproves) {
  int moved = 0, judged = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = random_problem(seed, every_kind());
    const Problem problem = made.problem();
    CounterRandom random(seed, 9);
    const int stages = random.integer(1, std::min(6, problem.num_devices()));
    const Plan plan = random_plan(problem, stages, Schedule::k1f1b, random);
    for (Objective objective : {Objective::kValue, Objective::kSimulated}) {
      Work without_end;
      const Plan polished = polish(problem, plan, objective, without_end);
      if (!feasible(problem, plan)) {
        ASSERT_TRUE(polished == plan);
        continue;
      }
      ++judged;
      ASSERT_TRUE(feasible(problem, polished));
      ASSERT_LE(length_ms(problem, polished, objective), length_ms(problem, plan, objective));
      if (!(polished == plan)) ++moved;
      // No evaluations, no move; nor without work.
      ASSERT_TRUE(polish(problem, plan, objective, without_end, 0) == plan);
    }
  }
  EXPECT_GT(judged, 30);
  EXPECT_GT(moved, judged / 2);
}

TEST(Baselines, WhatEndsTheWorkEndsTheSearchWithAPlan) {
  const RandomProblem made = random_problem(7);
  const Problem problem = made.problem();
  LocalSearchOptions options;
  options.stages = 8;
  options.max_evaluations = std::numeric_limits<int>::max();
  WorkLimits by_time = WorkLimits::of_seconds(0.05);
  int polls = 0;
  const WorkLimits by_caller = WorkLimits::until([&] { return ++polls > 3; });
  for (const WorkLimits& limits : {by_time, by_caller, WorkLimits::of_units(1000000)}) {
    Work work(limits);
    options.work = &work;
    const std::optional<Plan> plan = local_search_plan(problem, options);
    ASSERT_TRUE(plan);
    EXPECT_TRUE(feasible(problem, *plan));
    EXPECT_TRUE(work.over());
    EXPECT_EQ(work.stopped(), limits.units == WorkLimits::kNoEnd);
  }
}

}  // namespace
}  // namespace automap::pipeline
