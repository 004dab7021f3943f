// The chosen warm-up against enumeration of every K, and V against simulations of all of them.
#include "common/pipeline/warmup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

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
  int plans = 0, limited = 0;
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
  }
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
  for (const Schedule schedule : all_schedules()) {
    Plan plan;
    plan.schedule = schedule;
    choose_warmup(problem, plan);
    EXPECT_EQ(plan.warmup.empty(), schedule != Schedule::kAdaptive) << to_string(schedule);
  }
}

TEST(Schedules, HaveNamesThatReadBack) {
  for (const Schedule schedule : all_schedules()) EXPECT_EQ(parse_schedule(to_string(schedule)), schedule);
  EXPECT_FALSE(parse_schedule("2f2b"));
  EXPECT_EQ(all_schedules().size(), 4u);
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

}  // namespace
}  // namespace automap::pipeline
