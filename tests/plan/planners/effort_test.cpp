// Plans depend on counted work and not on clocks: this program's steady clock can be made to run as it likes.
#include "plan/planners/effort.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/pipeline/plan_json.h"
#include "common/pipeline/random_problem.h"
#include "plan/planners/planner.h"
#include "tests/plan/planners/random_policy.h"
#include "tests/sanitized.h"

namespace {

// The factor by which the clock is too fast, and the number of times that it was read.
std::atomic<std::int64_t> clock_factor{1}, clock_reads{0};

std::int64_t read_clock() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec;
}

}  // namespace

// Instead of the library's, for this whole program. From the first reading on, so that two hours at a millionfold fit
// and no reading is before another.
std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept {
  static const std::int64_t first = read_clock();
  ++clock_reads;
  return time_point(duration((read_clock() - first) * clock_factor));
}

namespace automap::planners {
namespace {

using pipeline::Plan;
using pipeline::Problem;
using pipeline::RandomProblem;
using pipeline::RandomProblemOptions;
using pipeline::Schedule;

// While it lives, an hour passes in 4 ms.
class FastClock {
 public:
  FastClock() { clock_factor = 1'000'000; }
  ~FastClock() { clock_factor = 1; }
};

RandomProblemOptions large() {
  RandomProblemOptions options;
  options.min_instructions = options.max_instructions = 1500;
  options.min_servers = options.max_servers = 4;
  options.min_devices = options.max_devices = 4;
  options.with_memory_limit = 0.5;
  return options;
}

void expect_equal(const PlanResult& a, const PlanResult& b) {
  ASSERT_EQ(a.plan.has_value(), b.plan.has_value());
  if (a.plan) {
    EXPECT_TRUE(*a.plan == *b.plan);
  }
  EXPECT_EQ(a.planner, b.planner);
  EXPECT_EQ(a.step_ms, b.step_ms);
  EXPECT_EQ(a.simulated_step_ms, b.simulated_step_ms);
  EXPECT_EQ(a.lower_bound_ms, b.lower_bound_ms);
  EXPECT_EQ(a.lower_bound_method, b.lower_bound_method);
  EXPECT_EQ(a.gap, b.gap);
  EXPECT_EQ(a.proven_ms > 0, b.proven_ms > 0);
  EXPECT_EQ(a.work_units, b.work_units);
  EXPECT_EQ(a.cut_by_time, b.cut_by_time);
  EXPECT_EQ(a.cut_by_effort, b.cut_by_effort);
  EXPECT_EQ(a.infeasible, b.infeasible);
  ASSERT_EQ(a.alternatives.size(), b.alternatives.size());
  for (std::size_t i = 0; i < a.alternatives.size(); ++i) {
    EXPECT_EQ(a.alternatives[i].planner, b.alternatives[i].planner);
    EXPECT_TRUE(a.alternatives[i].plan == b.alternatives[i].plan);
  }
}

PlanRequest effort_request(std::uint64_t seed) {
  PlanRequest request;
  request.effort = plan_effort(Effort::kQuick);
  request.effort.units /= 4;
  request.policy = random_policy();
  const std::vector<PlannerKind> planners = all_planners();
  // `auto` every other time: it is what shares the work.
  if (seed % 2 == 1) request.planner = planners[seed / 2 % planners.size()];
  if (seed % 3 == 0) request.objective = pipeline::Objective::kValue;
  if (seed % 4 == 0) request.schedules = {Schedule::k1f1b, Schedule::k1f1bOverlap};
  if (seed % 5 == 0) request.grid = 0;
  request.all_planners = seed % 7 == 0;
  return request;
}

TEST(PlanEffort, NoClockDecidesWithoutATimeLimit) {
  {
    FastClock fast;
    const auto before = std::chrono::steady_clock::now();
    const timespec nap{0, 10'000'000};
    nanosleep(&nap, nullptr);
    // The programs see this clock, too, or the test means nothing.
    ASSERT_GT(std::chrono::steady_clock::now() - before, std::chrono::hours(1));
  }
  int cut = 0;
  for (std::uint64_t seed = 0; seed < (kSanitized ? 6 : 24); ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = random_problem(seed, large());
    const Problem problem = made.problem();
    const PlanRequest request = effort_request(seed);
    const PlanResult idle = make_plan(problem, request);
    EXPECT_FALSE(idle.cut_by_time);
    cut += idle.cut_by_effort ? 1 : 0;
    FastClock fast;
    const std::int64_t reads = clock_reads;
    expect_equal(make_plan(problem, request), idle);
    EXPECT_GT(clock_reads, reads);  // for planning_ms and the like
  }
  EXPECT_GT(cut, kSanitized ? 1 : 8);  // where all comes to its end there is nothing to depend on a clock
}

TEST(PlanEffort, TheTimeLimitIsOneMoreStopAndSaysSo) {
  const RandomProblem made = random_problem(3, large());
  const Problem problem = made.problem();
  PlanRequest request = effort_request(0);
  request.time_limit_s = 10000;
  const PlanResult in_time = make_plan(problem, request);
  EXPECT_FALSE(in_time.cut_by_time);
  request.time_limit_s = std::numeric_limits<double>::infinity();
  expect_equal(in_time, make_plan(problem, request));
  request.time_limit_s = 10000;
  FastClock fast;
  const PlanResult late = make_plan(problem, request);
  EXPECT_TRUE(late.cut_by_time);
  EXPECT_FALSE(late.cut_by_effort);
  ASSERT_TRUE(late.plan);
  EXPECT_TRUE(feasible(problem, *late.plan));
}

TEST(PlanEffort, EveryPlannerStopsWithinItsWorkWithAPlan) {
  int with_plan = 0;
  for (std::uint64_t seed = 0; seed < (kSanitized ? 2 : 6); ++seed) {
    const RandomProblem made = random_problem(seed, large());
    const Problem problem = made.problem();
    PlanRequest whole;
    whole.effort = plan_effort(Effort::kQuick);
    whole.policy = random_policy();
    const bool possible = make_plan(problem, whole).plan.has_value();
    for (PlannerKind planner : all_planners()) {
      for (const std::int64_t units : {1LL, 1'000'000LL, 30'000'000LL, 100'000'000LL}) {
        SCOPED_TRACE(std::to_string(seed) + " " + to_string(planner) + " " + std::to_string(units));
        PlanRequest request;
        request.planner = planner;
        request.policy = random_policy();
        request.effort.units = units;
        const PlanResult result = make_plan(problem, request);
        EXPECT_FALSE(result.cut_by_time);
        // The excess is the first plan, which is searched for in any case, and the cheap planners' last steps.
        EXPECT_LT(result.work_units, units + 60'000'000);
        if (result.plan) {
          EXPECT_TRUE(feasible(problem, *result.plan));
        }
        // `auto` looks for a first plan however little the work.
        if (planner == PlannerKind::kAuto) {
          EXPECT_EQ(result.plan.has_value(), possible);
          with_plan += possible ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(with_plan, kSanitized ? 2 : 10);
}

TEST(PlanEffort, ProgressGoesUpToTheWork) {
  const RandomProblem made = random_problem(1, large());
  const Problem problem = made.problem();
  PlanRequest request = effort_request(0);
  std::int64_t last = 0, calls = 0;
  request.progress = [&](std::int64_t done, std::int64_t total) {
    ++calls;
    EXPECT_GE(done, last);
    EXPECT_EQ(total, request.effort.units);
    last = done;
  };
  const PlanResult result = make_plan(problem, request);
  EXPECT_GT(calls, 100);
  EXPECT_LE(last, result.work_units);
}

TEST(PlanEffort, MoreEffortIsMoreOfEverything) {
  const PlanEffort quick = plan_effort(Effort::kQuick), normal = plan_effort(Effort::kNormal),
                   thorough = plan_effort(Effort::kThorough);
  const auto less = [](const PlanEffort& a, const PlanEffort& b) {
    EXPECT_LT(a.units, b.units);
    EXPECT_LT(a.local_search_evaluations, b.local_search_evaluations);
    EXPECT_LT(a.polish_evaluations, b.polish_evaluations);
    EXPECT_LT(a.explore_evaluations, b.explore_evaluations);
    EXPECT_LT(a.even_moves, b.even_moves);
    EXPECT_LT(a.order_tries, b.order_tries);
    EXPECT_LT(a.layer_units, b.layer_units);
  };
  less(quick, normal);
  less(normal, thorough);
}

}  // namespace
}  // namespace automap::planners
