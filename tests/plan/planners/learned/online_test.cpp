#include "plan/planners/learned/online.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/pipeline/baselines.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/random_problem.h"
#include "models/policy_search.h"
#include "plan/planners/learned/online_state.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

namespace automap::planners {
namespace {

using pipeline::Objective;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::random_problem;
using pipeline::RandomProblem;
using pipeline::RandomProblemOptions;
using pipeline::Schedule;
using ::testing::HasSubstr;

RandomProblem problem_of(std::uint64_t seed, int servers = 2) {
  RandomProblemOptions options;
  options.min_instructions = 20;
  options.max_instructions = 40;
  options.min_servers = options.max_servers = servers;
  options.min_devices = 2;
  options.max_devices = 4;
  options.with_allreduce = 1;
  return random_problem(seed, options);
}

OnlineRequest request_of(const Problem& problem, Objective objective = Objective::kValue) {
  OnlineRequest request;
  request.objective = objective;
  request.last_stages = std::min(4, problem.num_devices());
  request.schedules = {Schedule::kAdaptive};
  return request;
}

OnlineAnswer search(const Problem& problem, const OnlineRequest& request, std::int64_t units) {
  Work work(WorkLimits::of_units(units));
  return search_online(problem, request, work);
}

constexpr std::int64_t kUnits = 2'000'000'000 / kShare;

// The least V of all plans of these stages, by the exact program.
double optimum_ms(const Problem& problem, const OnlineRequest& request) {
  pipeline::ExactOptions options;
  options.min_stages = request.first_stages;
  options.max_stages = request.last_stages;
  options.schedule = request.schedules.front();
  const pipeline::ExactResult result = pipeline::solve_exact(problem, options);
  EXPECT_TRUE(result.proven());
  double least = std::numeric_limits<double>::infinity();
  for (const auto& stage : result.by_stages) {
    if (!stage.value_ms.empty()) least = std::min(least, stage.value_ms.front());
  }
  return least;
}

TEST(Online, ComesNearTheOptimumAndNeverBelow) {
  double all = 0;
  int judged = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = problem_of(seed);
    const Problem problem = made.problem();
    const OnlineRequest request = request_of(problem);
    const OnlineAnswer answer = search(problem, request, kUnits);
    const double optimum = optimum_ms(problem, request);
    ASSERT_EQ(answer.plans.empty(), !std::isfinite(optimum));
    if (answer.plans.empty()) continue;
    const double found = pipeline::value_ms(problem, answer.plans.front());
    EXPECT_GE(found, optimum * (1 - 1e-9));
    all += found / optimum - 1;
    ++judged;
  }
  ASSERT_GT(judged, 5);
  EXPECT_LT(all / judged, 0.005);
}

TEST(Online, PlansAreWhatTheStepsSay) {
  for (const Objective objective : {Objective::kValue, Objective::kSimulated}) {
    const RandomProblem made = problem_of(3);
    const Problem problem = made.problem();
    const OnlineAnswer answer = search(problem, request_of(problem, objective), kUnits / 4);
    ASSERT_FALSE(answer.plans.empty());
    ASSERT_FALSE(answer.learning.steps.empty());
    double before = std::numeric_limits<double>::infinity();
    for (const pipeline::PlanLearning::Step& step : answer.learning.steps) {
      EXPECT_LT(step.length_ms, before);
      before = step.length_ms;
    }
    double longest = 0;
    for (const Plan& plan : answer.plans) {
      EXPECT_TRUE(pipeline::feasible(problem, plan));
      const double length = pipeline::length_ms(problem, plan, objective);
      EXPECT_GE(length, longest);
      longest = length;
    }
    EXPECT_NEAR(pipeline::length_ms(problem, answer.plans.front(), objective), before, 1e-9 * before);
    EXPECT_GT(answer.learning.updates, 0U);
  }
}

// The paper's pruning: whatever it plays, no stage ends further from a server's end.
TEST(Online, RadiusIsKept) {
  int plans = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const RandomProblem made = problem_of(seed, 3);
    const Problem problem = made.problem();
    OnlineRequest request = request_of(problem);
    std::vector<int> ends = {0};
    for (int d = 1; d <= problem.num_devices(); ++d) {
      if (d == problem.num_devices() || problem.server_of_device(d - 1) != problem.server_of_device(d)) {
        ends.push_back(d);
      }
    }
    for (const int radius : {0, 1}) {
      request.options.server_radius = radius;
      for (const Plan& plan : search(problem, request, kUnits / 30).plans) {
        ++plans;
        for (const int cut : plan.device_cuts) {
          EXPECT_TRUE(std::any_of(ends.begin(), ends.end(), [&](int end) { return std::abs(end - cut) <= radius; }))
              << cut;
        }
      }
    }
  }
  EXPECT_GT(plans, 16);
}

// Two stages have one boundary, which is placed exactly: nothing to learn, and no time to spend.
TEST(Online, EndsWhenNothingIsLeft) {
  const RandomProblem made = problem_of(1);
  const Problem problem = made.problem();
  OnlineRequest request = request_of(problem);
  request.last_stages = 2;
  const OnlineAnswer answer = search(problem, request, WorkLimits::kNoEnd);
  ASSERT_FALSE(answer.plans.empty());
  EXPECT_EQ(answer.learning.updates, 0u);
  EXPECT_LE(answer.learning.plays, 4u);
}

TEST(Online, SeedsDecide) {
  const RandomProblem made = problem_of(1);
  const Problem problem = made.problem();
  OnlineRequest request = request_of(problem);
  const OnlineAnswer one = search(problem, request, kUnits / 4), again = search(problem, request, kUnits / 4);
  EXPECT_EQ(one.learning.plays, again.learning.plays);
  EXPECT_EQ(one.learning.updates, again.learning.updates);
  EXPECT_EQ(one.plans, again.plans);
}

// Stopped anywhere, between plays or between updates, and gone on with: the same learner to the bit.
TEST(Online, GoesOnAsIfItHadNeverStopped) {
  const TemporaryFolder folder;
  const RandomProblem made = problem_of(2);
  const Problem problem = made.problem();
  OnlineRequest request = request_of(problem, Objective::kSimulated);
  request.policy = std::make_shared<const models::Policy>(models::untrained_policy(7));
  const std::uint64_t plays = kSanitized ? 60 : 240;
  request.options.max_plays = plays;
  request.options.state_file = folder.file("whole");
  const OnlineAnswer whole = search(problem, request, WorkLimits::kNoEnd);
  ASSERT_EQ(whole.learning.plays, plays);
  request.options.state_file = folder.file("parts");
  OnlineAnswer parts;
  int sessions = 0;
  while (parts.learning.plays < plays && sessions < 1000) {
    const std::uint64_t before = parts.learning.plays;
    parts = search(problem, request, 1'000'000 + 2'000'000 * (sessions % 4));
    EXPECT_EQ(parts.learning.earlier_plays, before);
    ++sessions;
  }
  EXPECT_GT(sessions, 5);
  // Pays what the last session may have owed.
  parts = search(problem, request, WorkLimits::kNoEnd);
  EXPECT_EQ(parts.learning.plays, whole.learning.plays);
  EXPECT_EQ(parts.learning.updates, whole.learning.updates);
  EXPECT_EQ(parts.plans, whole.plans);
  const auto state = [&](const char* name) { return load_online_state(folder.file(name), std::nullopt); };
  const OnlineState a = state("parts"), b = state("whole");
  EXPECT_EQ(a.rounds, b.rounds);
  EXPECT_TRUE(a.learner == b.learner);
}

std::string complaint(const Problem& problem, const OnlineRequest& request) {
  try {
    search(problem, request, 1);
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
  return "";
}

TEST(Online, StatesThatCannotBeUsed) {
  const TemporaryFolder folder;
  const RandomProblem made = problem_of(2);
  const Problem problem = made.problem();
  OnlineRequest request = request_of(problem);
  request.options.state_file = folder.file("state");
  search(problem, request, kUnits / 20);
  const std::string bytes = read_file(request.options.state_file);
  const auto with_bytes = [&](const std::string& changed) {
    write_file_atomic(request.options.state_file, changed);
    return complaint(problem, request);
  };
  EXPECT_THAT(with_bytes("nothing"), HasSubstr("not the state of an online search"));
  for (const std::size_t at : {std::size_t{20}, bytes.size() / 2, bytes.size() - 1}) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_THAT(with_bytes(damaged), HasSubstr("damaged")) << at;
    EXPECT_THAT(with_bytes(bytes.substr(0, at)), HasSubstr("damaged")) << at;
  }
  // Behind a right checksum a change is a state that can be gone on with, or one that cannot: never a crash.
  int refused = 0;
  for (std::size_t at = 8; at + 4 < bytes.size(); at += at < 700 ? 9 : bytes.size() / 20) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 5);
    const std::uint32_t crc = crc32c(std::string_view(changed).substr(0, changed.size() - 4));
    for (std::size_t i = 0; i < 4; ++i) changed[changed.size() - 4 + i] = static_cast<char>(crc >> (8 * i) & 0xff);
    refused += with_bytes(changed).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 5);
  EXPECT_EQ(with_bytes(bytes), "");
  OnlineRequest other = request;
  other.options.seed = 2;
  EXPECT_THAT(complaint(problem, other), HasSubstr("the seed was 1 there and is 2 now"));
  other = request;
  other.objective = Objective::kSimulated;
  EXPECT_THAT(complaint(problem, other), HasSubstr("the objective was value there"));
  other = request;
  other.options.server_radius = 3;
  EXPECT_THAT(complaint(problem, other), HasSubstr("the radius was -1 there"));
  const RandomProblem another = problem_of(4);
  EXPECT_THAT(complaint(another.problem(), request_of(another.problem())), "");
  OnlineRequest moved = request_of(another.problem());
  moved.options.state_file = request.options.state_file;
  EXPECT_THAT(complaint(another.problem(), moved), HasSubstr("the problem was"));
}

}  // namespace
}  // namespace automap::planners
