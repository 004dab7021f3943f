#include <gtest/gtest.h>

#include "common/pipeline/exact.h"
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
    const LowerBound patient = lower_bound_all_cuts(problem, schedules, min_stages, max_stages, incumbent, 10);
    ASSERT_NEAR(patient.ms, best, 1e-9 * best) << patient.method;
    const LowerBound hasty = lower_bound_all_cuts(problem, schedules, min_stages, max_stages, incumbent, 0);
    ASSERT_LE(hasty.ms, best * (1 + 1e-9)) << hasty.method;
    ASSERT_GT(hasty.ms, 0);
  }
  EXPECT_GT(judged, 2000);
}

}  // namespace
}  // namespace automap::pipeline
