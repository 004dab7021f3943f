#include <gtest/gtest.h>

#include "common/pipeline/exact.h"
#include "common/pipeline/exact_program.h"
#include "tests/common/pipeline/exact_brute_force.h"

namespace automap::pipeline {
namespace {

using testing::all_values;
using testing::small_problem;
using testing::SmallProblem;
using testing::SmallRandom;
using testing::up_to;

TEST(LowerBound, IsBelowEveryPlanAndTightWithTime) {
  int judged = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    const SmallProblem small = small_problem(seed);
    const Problem problem(small.profile, small.cluster, small.options);
    SmallRandom random(seed + 99);
    const int min_stages = random.integer(1, 2), max_stages = random.integer(2, 5);
    std::vector<Schedule> schedules = {Schedule::k1f1b};
    if (random.chance(0.5)) schedules.push_back(Schedule::k1f1bOverlap);
    double best = std::numeric_limits<double>::infinity();
    for (Schedule schedule : schedules) {
      for (int stages = min_stages; stages <= std::min(max_stages, problem.num_devices()); ++stages) {
        const std::vector<double> values = all_values(problem, schedule, stages, up_to(problem.num_instructions()));
        if (!values.empty()) best = std::min(best, values.front());
      }
    }
    if (best == std::numeric_limits<double>::infinity()) continue;
    ++judged;
    const double incumbent = random.chance(0.5) ? best : best * random.real(1, 1.5);
    Work enough(WorkLimits::of_units(10'000'000'000)), none(WorkLimits::of_units(0));
    const LowerBound patient = lower_bound_all_cuts(problem, schedules, min_stages, max_stages, incumbent, enough);
    ASSERT_NEAR(patient.ms, best, 1e-9 * best) << patient.method;
    ASSERT_STREQ(patient.method, "exact over all cuts");
    if (incumbent > best * (1 + 1e-6)) {
      ASSERT_TRUE(patient.better.has_value());
      ASSERT_TRUE(feasible(problem, *patient.better));
      ASSERT_NEAR(value_ms(problem, *patient.better), best, 1e-9 * best);
    }
    const LowerBound hasty = lower_bound_all_cuts(problem, schedules, min_stages, max_stages, incumbent, none);
    ASSERT_LE(hasty.ms, best * (1 + 1e-9)) << hasty.method;
    ASSERT_GT(hasty.ms, 0);
  }
  EXPECT_GT(judged, 2000);
}

// From a single run of all cuts on: at whatever poll it is stopped the bounds hold, and left alone it closes the gap.
void close_from_few_runs(std::uint64_t first_seed, std::uint64_t last_seed) {
  int closed = 0, loose = 0, tight = 0;
  for (std::uint64_t seed = first_seed; seed < last_seed; ++seed) {
    SCOPED_TRACE(seed);
    const SmallProblem small = small_problem(seed, 4, 12, 6);
    const Problem problem(small.profile, small.cluster, small.options);
    SmallRandom random(seed + 7);
    internal::GapInput input;
    input.problem = &problem;
    input.schedule = random.chance(0.5) ? Schedule::k1f1b : Schedule::k1f1bOverlap;
    input.min_stages = input.max_stages = random.integer(2, std::min(3, problem.num_devices()));
    if (random.chance(0.3) && input.max_stages < problem.num_devices() &&
        problem.stages_need_variables(input.max_stages + 1) == problem.stages_need_variables(input.max_stages)) {
      ++input.max_stages;
    }
    input.needs_variable = problem.stages_need_variables(input.min_stages);
    const std::vector<int> cuts = up_to(problem.num_instructions());
    input.cuts = &cuts;
    input.first_runs = random.integer(1, 3);
    std::vector<double> best;
    for (int stages = input.min_stages; stages <= input.max_stages; ++stages) {
      const std::vector<double> values = all_values(problem, input.schedule, stages, cuts);
      best.push_back(values.empty() ? std::numeric_limits<double>::infinity() : values.front());
      // A limit above, at and below the optimum.
      input.limit_ms.push_back(values.empty() || random.chance(0.2) ? std::numeric_limits<double>::infinity()
                                                                    : values.front() * random.real(0.8, 1.6));
    }
    Work never;
    const internal::GapOutput patient = internal::close_gaps({input}, false, never).front();
    for (std::size_t s = 0; s < best.size(); ++s) {
      ASSERT_TRUE(patient.closed[s]);
      const double expected = std::min(best[s], input.limit_ms[s]);
      ASSERT_GE(patient.bound_ms[s], expected * (1 - 1e-9));
      ASSERT_LE(patient.bound_ms[s], best[s] * (1 + 1e-9));
      ++closed;
    }
    for (const Plan& plan : patient.plans) ASSERT_TRUE(feasible(problem, plan));
    int polls = random.integer(1, 60);
    WorkLimits limits = WorkLimits::until([&polls] { return --polls < 0; });
    if (seed % 2 == 0) limits = WorkLimits::of_units(polls * 20000);
    Work early(limits);
    const internal::GapOutput hasty = internal::close_gaps({input}, false, early).front();
    for (std::size_t s = 0; s < best.size(); ++s) {
      ASSERT_LE(hasty.bound_ms[s], best[s] * (1 + 1e-9));
      if (!hasty.closed[s] && best[s] < std::numeric_limits<double>::infinity()) {
        ++(hasty.bound_ms[s] > 0.8 * best[s] ? tight : loose);
      }
    }
  }
  EXPECT_GT(closed, 1000);
  EXPECT_GT(loose, 20);
  EXPECT_GT(tight, 20);
}

TEST(LowerBound, ClosesTheGapFromFewRunsA) {
  close_from_few_runs(0, 3000);
}
TEST(LowerBound, ClosesTheGapFromFewRunsB) {
  close_from_few_runs(3000, 6000);
}

}  // namespace
}  // namespace automap::pipeline
