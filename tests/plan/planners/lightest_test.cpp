// The lightest plan against every balanced plan of the same device shares, one after the other.
#include "plan/planners/lightest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "common/pipeline/baselines.h"
#include "tests/common/pipeline/exact_brute_force.h"

namespace automap::planners {
namespace {

using pipeline::Problem;
using pipeline::Schedule;

// The least share of a device that any balanced plan of so many stages needs.
double least_share(const Problem& problem, Schedule schedule, int stages) {
  double least = kInfinity;
  for (const std::vector<int>& device_cuts : pipeline::device_share_candidates(problem, stages)) {
    for (int variant = 0; variant < problem.num_variants(); ++variant) {
      const auto plan =
          pipeline::balanced_on(problem, device_cuts, schedule, pipeline::BalanceBy::kMemory, 0, nullptr, variant);
      if (!plan) continue;
      double largest = 0;
      pipeline::for_each_stage(problem, *plan, [&](int s, int p0, int p1, int d0, int d1) {
        const pipeline::DeviceGroup& group = problem.group(d0, d1);
        const int k = pipeline::in_flight(schedule, plan->num_stages(), s, problem.micro_batches());
        largest = std::max(largest, problem.memory_bytes(p0, p1, group, k, variant) / group.capacity_bytes);
        return true;
      });
      least = std::min(least, largest);
    }
  }
  return least;
}

TEST(LightestPlan, NeedsNoMoreThanAnyBalancedPlan) {
  int fits = 0, too_full = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    const pipeline::testing::SmallProblem small = pipeline::testing::small_whole_problem(seed);
    const Problem problem(small.profile, small.cluster, small.options);
    const std::vector<Schedule> schedules = {Schedule::k1f1b};
    const int last = std::min(problem.num_devices(), problem.num_instructions());
    double least = kInfinity;
    for (int stages = 1; stages <= last; ++stages) least = std::min(least, least_share(problem, schedules[0], stages));
    Work work;
    const LightestPlan found = lightest_plan(problem, {1, last, schedules}, work);
    ASSERT_EQ(found.plan.has_value(), least < kInfinity);
    if (!found.plan) continue;
    // The first that fits is taken, whatever the others need.
    if (found.share <= 1) {
      ++fits;
      continue;
    }
    ASSERT_GT(least, 1);
    ++too_full;
    ASSERT_LE(found.share, least * (1 + 1e-8));
    for (const auto& [stages, bound] : found.by_stages) {
      ASSERT_LE(bound, least_share(problem, schedules[0], stages) * (1 + 1e-8));
    }
    // Without work there is a plan all the same, of the first choice alone.
    Work none(WorkLimits::of_units(1));
    const LightestPlan first = lightest_plan(problem, {1, last, schedules}, none);
    ASSERT_TRUE(first.plan.has_value() || least == kInfinity);
    ASSERT_EQ(first.by_stages.size(), 1u);
  }
  EXPECT_GT(fits, 20);
  EXPECT_GT(too_full, 20);
}

}  // namespace
}  // namespace automap::planners
