// The chosen warm-up against enumeration of every K, and V against simulations of all of them.
#include "common/pipeline/warmup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "common/pipeline/placed_plan.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/schedule.h"

namespace automap::pipeline {
namespace {

RandomProblemOptions small(double tight) {
  RandomProblemOptions options;
  options.min_instructions = 8;
  options.max_instructions = 24;
  options.min_servers = 1;
  options.max_servers = 2;
  options.min_devices = 2;
  options.max_devices = 4;
  options.min_micro_batches = 2;
  options.max_micro_batches = 6;
  options.whole = 1;
  options.with_memory_limit = tight;
  options.with_latency = 0.5;
  options.without_idle = 0;
  return options;
}

// Every non-rising K within the limits.
void for_each_warmup(const std::vector<int>& most, const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> k;
  const std::function<void()> extend = [&] {
    if (k.size() == most.size()) return visit(k);
    const int limit = k.empty() ? most[0] : std::min(k.back(), most[k.size()]);
    for (int next = 1; next <= limit; ++next) {
      k.push_back(next);
      extend();
      k.pop_back();
    }
  };
  extend();
}

TEST(Warmup, IsAsShortAsEnumerationNearlyAlwaysAndUsesNoMoreMemoryThanThereIs) {
  int plans = 0, limited = 0, leaner = 0;
  double gap_sum = 0, worst = 0;
  for (std::uint64_t seed = 0; plans < 150; ++seed) {
    ASSERT_LT(seed, 3000u);
    const RandomProblem made = random_problem(seed, small(0.6));
    const Problem problem = made.problem();
    CounterRandom random(seed, 7);
    Plan plan =
        random_plan(problem, random.integer(1, std::min(4, problem.num_devices())), Schedule::kAdaptive, random);
    if (!feasible(problem, plan)) continue;
    SCOPED_TRACE(seed);
    ++plans;
    PipelineTimes times = pipeline_times(problem, plan);
    std::vector<int> most = times.value_in_flight;
    if (*std::min_element(most.begin(), most.end()) < problem.micro_batches()) ++limited;
    double best = std::numeric_limits<double>::infinity();
    const double bound = path_length_ms(times, problem.micro_batches(), plan.schedule, ValueForm::kFull);
    for_each_warmup(most, [&](const std::vector<int>& k) {
      times.in_flight = k;
      const double ms = simulate_step_ms(times, problem.micro_batches(), plan.schedule);
      best = std::min(best, ms);
      // V of as much in flight as fits bounds every choice.
      ASSERT_GE(ms, bound * (1 - 1e-12));
    });
    const double quick = simulate_step_ms(problem, plan);
    choose_warmup(problem, plan);
    ASSERT_TRUE(feasible(problem, plan)) << infeasible_reason(problem, plan);
    ASSERT_EQ(plan.warmup.size(), static_cast<std::size_t>(plan.num_stages()));
    const double chosen = simulate_step_ms(problem, plan);
    ASSERT_GE(chosen, best * (1 - 1e-12));
    ASSERT_LE(chosen, quick * (1 + kWarmupSlack) * (1 + 1e-12));
    gap_sum += chosen / best - 1;
    worst = std::max(worst, chosen / best - 1);
    // A choice that is as short in less memory is not passed over: those of the schedules that fix K, as far as memory
    // allows.
    const double fullest = fullest_share(place(problem, plan));
    for (const Schedule schedule : {Schedule::k1f1b, Schedule::k1f1bOverlap}) {
      Plan other = plan;
      for (int s = 1; s <= plan.num_stages(); ++s) {
        int& k = other.warmup[static_cast<std::size_t>(s) - 1];
        k = std::min(in_flight(schedule, plan.num_stages(), s, problem.micro_batches()),
                     most[static_cast<std::size_t>(s) - 1]);
        if (s > 1) k = std::min(k, other.warmup[static_cast<std::size_t>(s) - 2]);
      }
      if (simulate_step_ms(problem, other) > chosen) continue;
      ++leaner;
      ASSERT_LE(fullest, fullest_share(place(problem, other)) * (1 + 1e-12));
    }
  }
  EXPECT_GT(leaner, 50);
  EXPECT_GT(limited, 30);
  EXPECT_LT(gap_sum / plans, 0.002);
  EXPECT_LT(worst, 0.05);
}

// Transfers as long as a stage computes, or longer: what searches judge plans by is near the best there is.
TEST(Warmup, TheQuickOneKnowsLongTransfers) {
  int plans = 0;
  double gap_sum = 0, worst = 0;
  for (std::uint64_t seed = 0; plans < 200; ++seed) {
    ASSERT_LT(seed, 3000u);
    const RandomProblem made = random_problem(seed, small(0));
    const Problem problem = made.problem();
    CounterRandom random(seed, 11);
    if (problem.num_devices() < 2) continue;
    Plan plan =
        random_plan(problem, random.integer(2, std::min(4, problem.num_devices())), Schedule::kAdaptive, random);
    if (!feasible(problem, plan)) continue;
    ++plans;
    PipelineTimes times = pipeline_times(problem, plan);
    double longest = 0;
    for (std::size_t s = 0; s < times.forward_ms.size(); ++s) {
      longest = std::max(longest, times.forward_ms[s] + times.backward_ms[s]);
    }
    for (double& ms : times.transfer_ms) ms = longest * random.uniform(0.2, 1.5);
    double best = std::numeric_limits<double>::infinity();
    for_each_warmup(times.value_in_flight, [&](const std::vector<int>& k) {
      PipelineTimes tried = times;
      tried.in_flight = k;
      best = std::min(best, simulate_step_ms(tried, problem.micro_batches(), plan.schedule));
    });
    const double gap = quick_warmup(problem, plan, times) / best - 1;
    ASSERT_GE(gap, -1e-9);
    gap_sum += gap;
    worst = std::max(worst, gap);
  }
  std::printf("  mean gap %.3g %%, worst %.3g %%\n", 100 * gap_sum / plans, 100 * worst);
  EXPECT_LT(gap_sum / plans, 0.01);
  EXPECT_LT(worst, 0.15);
}

TEST(Warmup, TrimsToNoMoreThanAStepAsShortNeeds) {
  int more = 0, compared = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const RandomProblem made = random_problem(seed, small(0));
    const Problem problem = made.problem();
    CounterRandom random(seed, 8);
    Plan plan = random_plan(problem, std::min(3, problem.num_devices()), Schedule::kAdaptive, random);
    if (!feasible(problem, plan)) continue;
    SCOPED_TRACE(seed);
    choose_warmup(problem, plan);
    const double chosen = simulate_step_ms(problem, plan);
    // One less anywhere is longer than the slack allows, but for what trimming other stages used up of it.
    for (std::size_t s = 0; s < plan.warmup.size(); ++s) {
      Plan less = plan;
      if (--less.warmup[s] < 1) continue;
      for (std::size_t behind = s + 1; behind < less.warmup.size(); ++behind) {
        less.warmup[behind] = std::min(less.warmup[behind], less.warmup[s]);
      }
      ++compared;
      if (simulate_step_ms(problem, less) <= chosen * (1 - 1e-9)) ++more;
    }
  }
  EXPECT_GT(compared, 100);
  EXPECT_LT(more, compared / 20);
}

TEST(Warmup, OnlyAdaptivePlansGetOne) {
  const RandomProblem made = random_problem(1, small(0));
  const Problem problem = made.problem();
  for (const Schedule schedule : alternating_schedules()) {
    Plan plan;
    plan.schedule = schedule;
    choose_warmup(problem, plan);
    EXPECT_EQ(plan.warmup.empty(), schedule != Schedule::kAdaptive) << to_string(schedule);
  }
}

TEST(Schedules, HaveNamesThatReadBack) {
  for (const Schedule schedule : alternating_schedules()) EXPECT_EQ(parse_schedule(to_string(schedule)), schedule);
  EXPECT_FALSE(parse_schedule("2f2b"));
  EXPECT_EQ(alternating_schedules().size(), 4u);
  for (const Schedule schedule : all_schedules()) EXPECT_EQ(parse_schedule(to_string(schedule)), schedule);
  EXPECT_EQ(in_flight(Schedule::k1f1b, 4, 1, 16), 4);
  EXPECT_EQ(in_flight(Schedule::k1f1bOverlap, 4, 1, 16), 7);
  EXPECT_EQ(in_flight(Schedule::k1f1bOverlap, 4, 1, 5), 5);
  EXPECT_EQ(in_flight(Schedule::kGpipe, 4, 3, 16), 16);
}

TEST(SyncLeft, IsTheReplayOfTheBuckets) {
  // Ready at 2 and 4 of 4 ms: the second waits for the first.
  EXPECT_DOUBLE_EQ(sync_left_ms({{0.5, 3}, {1, 2}}, 4), 3);
  EXPECT_DOUBLE_EQ(sync_left_ms({{0.25, 1}, {1, 2}}, 4), 2);
  EXPECT_DOUBLE_EQ(sync_left_ms({}, 4), 0);
  EXPECT_DOUBLE_EQ(sync_left_ms({{1, 5}}, 0), 5);
}

// Less in flight at one stage alone may be longer where less at all of them is not: trimmed stage by stage this plan
// kept 64, 42, 2, 1, with 4, 3, 2, 1 as short.
TEST(Warmup, WhatBuysNothingIsNotKept) {
  Profile profile;
  profile.model = "embed";
  profile.c_ms = {0.03, 9, 9, 9, 9, 3};
  profile.a_bytes = {1e6, 1e6, 1e6, 1e6, 1e6, 1e3};
  profile.w_bytes = {2e9, 1e9, 1e9, 1e9, 1e9, 2e9};
  profile.stash_bytes = {1e6, 1e6, 1e6, 1e6, 1e6, 1e6};
  profile.micro_batch_size = 1;
  Cluster cluster;
  cluster.name = "four";
  cluster.devices["big"].memory_gib = 80;
  machine::ServerGroup servers;
  servers.count = 1;
  servers.devices = 4;
  servers.device = "big";
  servers.intra_gbytes_per_s = 300;
  servers.inter_gbytes_per_s = 50;
  cluster.servers = {servers};
  ProblemOptions options;
  options.replicas = Replicas::kWhole;
  options.gradient_sync = GradientSync::kOverlap;
  options.micro_batches = 64;
  options.micro_batch_samples = 1;
  const Problem problem(profile, cluster, options);
  Plan plan;
  plan.cuts = {2, 3, 4};
  plan.device_cuts = {1, 2, 3};
  plan.schedule = Schedule::kAdaptive;
  choose_warmup(problem, plan);
  EXPECT_EQ(plan.warmup, (std::vector<int>{4, 3, 2, 1}));
}

}  // namespace
}  // namespace automap::pipeline
