#include "models/flat_env.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/row.h"
#include "tests/common/pipeline/exact_brute_force.h"

namespace automap::models {
namespace {

using pipeline::Plan;
using pipeline::Problem;
using pipeline::Schedule;
using pipeline::testing::for_each_choice;
using pipeline::testing::small_problem;
using pipeline::testing::SmallProblem;
using pipeline::testing::SmallRandom;
using pipeline::testing::up_to;
using PlanKey = std::pair<std::vector<int>, std::vector<int>>;

constexpr int kActions = FlatEnv::kActions;

std::size_t idx(int i) {
  return static_cast<std::size_t>(i);
}

// Every episode there is; visit() is called where it ends. The environment has no undo, so it is played anew.
void play_all(FlatEnv& env, std::vector<int>& taken, const std::function<void()>& visit) {
  const auto replay = [&] {
    env.reset();
    for (int action : taken) env.step(action);
  };
  replay();
  if (env.done()) {
    visit();
    return;
  }
  std::vector<std::uint8_t> legal(idx(kActions));
  env.legal(legal.data());
  for (int action = 0; action < kActions; ++action) {
    if (!legal[idx(action)]) continue;
    taken.push_back(action);
    play_all(env, taken, visit);
    taken.pop_back();
  }
}

// All episodes of many small problems of every kind end in exactly the feasible plans.
TEST(FlatEnv, ItsEpisodesAreTheFeasiblePlans) {
  int plans_seen = 0, impossible = 0, dead_ends = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const SmallProblem small = small_problem(seed, 3, 8, 6);
    const Problem problem(small.profile, small.cluster, small.options);
    SmallRandom random(seed + 3);
    PlanSpaceOptions options;
    const int most = std::min(problem.num_devices(), problem.num_instructions());
    if (most < 2) continue;
    options.stages = random.integer(2, std::min(4, most));
    options.schedule = random.chance(0.5) ? Schedule::k1f1b : Schedule::k1f1bOverlap;
    SCOPED_TRACE(::testing::Message() << "seed " << seed << " stages " << options.stages);
    const PlanSpace space(problem, options);
    FlatEnv env(space, FlatInput::kRaw);

    std::map<PlanKey, double> expected;
    Plan plan;
    plan.schedule = options.schedule;
    for_each_choice(up_to(problem.num_instructions()), options.stages - 1, [&](const std::vector<int>& cuts) {
      plan.cuts = cuts;
      for_each_choice(up_to(problem.num_devices()), options.stages - 1, [&](const std::vector<int>& device_cuts) {
        plan.device_cuts = device_cuts;
        if (feasible(problem, plan)) expected[{cuts, device_cuts}] = value_ms(problem, plan);
      });
    });

    std::map<PlanKey, double> found;
    std::vector<int> taken;
    play_all(env, taken, [&] {
      const double value = env.value_ms();
      if (static_cast<int>(env.actions().size()) < 2 * (options.stages - 1)) {
        ASSERT_EQ(value, kInfinity);
        // Memory may leave no way on; anything else is seen in time.
        ++dead_ends;
        ASSERT_TRUE(problem.options().memory || expected.empty());
        return;
      }
      const Plan made = env.plan();
      ASSERT_EQ(value < kInfinity, feasible(problem, made));
      if (value == kInfinity) return;
      ASSERT_TRUE(found.emplace(PlanKey(made.cuts, made.device_cuts), value).second);
    });
    ASSERT_EQ(found.size(), expected.size());
    double best = kInfinity;
    for (const auto& [key, value] : expected) {
      const auto place = found.find(key);
      ASSERT_NE(place, found.end());
      ASSERT_DOUBLE_EQ(place->second, value);
      best = std::min(best, value);
      ++plans_seen;
    }
    pipeline::ExactOptions exact;
    exact.min_stages = exact.max_stages = options.stages;
    exact.schedule = options.schedule;
    const pipeline::ExactResult solved = solve_exact(problem, exact);
    if (expected.empty()) {
      ++impossible;
      ASSERT_EQ(solved.best(), nullptr);
    } else {
      ASSERT_NEAR(solved.best()->value_ms.front(), best, 1e-9 * best);
    }
  }
  EXPECT_GT(plans_seen, 20000);
  EXPECT_GT(impossible, 50);
  EXPECT_GT(dead_ends, 5);
}

struct Made {
  pipeline::RandomProblem random;
  Problem problem;
  explicit Made(std::uint64_t seed, const pipeline::RandomProblemOptions& options = mixed())
      : random(random_problem(seed, options)), problem(random.problem()) {}
  static pipeline::RandomProblemOptions mixed() {
    pipeline::RandomProblemOptions options;
    options.min_instructions = 100;
    options.max_instructions = 600;
    options.heterogeneous = 0.4;
    options.with_memory_limit = 0.4;
    options.with_latency = 0.4;
    options.with_zeros = 0.2;
    return options;
  }
};

TEST(FlatEnv, MasksAreThePairsThatAppendTakes) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const Made made(seed);
    PlanSpaceOptions options;
    options.stages = 3 + static_cast<int>(seed % 4);
    const PlanSpace space(made.problem, options);
    FlatEnv env(space, FlatInput::kRaw);
    SmallRandom random(seed);
    Prefix prefix = space.root();
    std::vector<std::uint8_t> legal(idx(kActions)), pivots(legal);
    while (!env.done()) {
      ASSERT_TRUE(env.choosing_devices());
      env.legal(legal.data());
      std::vector<int> allowed;
      for (int a = 0; a < kActions; ++a) {
        bool some = false;
        for (int point = 1; point + 1 < space.num_points() && a < static_cast<int>(space.device_cuts().size());
             ++point) {
          Prefix child;
          some = some || space.append(prefix, point, space.device_cuts()[idx(a)], child);
        }
        ASSERT_EQ(legal[idx(a)], some ? 1 : 0) << a;
        if (some) allowed.push_back(a);
      }
      const int device = allowed[idx(random.integer(0, static_cast<int>(allowed.size()) - 1))];
      env.step(device);
      ASSERT_FALSE(env.choosing_devices());
      env.legal(pivots.data());
      allowed.clear();
      for (int a = 0; a < kActions; ++a) {
        Prefix child;
        const bool fits =
            a + 2 < space.num_points() && space.append(prefix, a + 1, space.device_cuts()[idx(device)], child);
        ASSERT_EQ(pivots[idx(a)], fits ? 1 : 0) << a;
        if (fits) allowed.push_back(a);
      }
      const int pivot = allowed[idx(random.integer(0, static_cast<int>(allowed.size()) - 1))];
      env.step(pivot);
      Prefix child;
      ASSERT_TRUE(space.append(prefix, pivot + 1, space.device_cuts()[idx(device)], child));
      prefix = child;
    }
  }
}

// The raw arrays are those of the row, and the marks follow the decisions.
TEST(FlatEnv, RawStateIsThePapersVector) {
  const Made made(5);
  PlanSpaceOptions options;
  options.stages = 3;
  const PlanSpace space(made.problem, options);
  FlatEnv env(space, FlatInput::kRaw);
  const pipeline::Row row = make_row(made.random.profile, made.random.cluster);
  std::vector<float> state(idx(FlatEnv::state_size(FlatInput::kRaw)));
  ASSERT_EQ(state.size(), 1738U);
  env.state(state.data());
  // A grid of at least 128 instructions is the row itself.
  ASSERT_GE(made.problem.num_instructions(), 128);
  for (std::size_t k = 0; k < 128; ++k) {
    ASSERT_NEAR(state[k], row.compute[k], 1e-6);
    ASSERT_NEAR(state[128 + k], row.activation[k], 1e-6);
    ASSERT_NEAR(state[256 + k], row.weight[k], 1e-6);
  }
  const auto ones = [&](std::size_t from, std::size_t count) {
    std::vector<int> at;
    for (std::size_t i = 0; i < count; ++i) {
      if (state[from + i] == 1) at.push_back(static_cast<int>(i));
    }
    return at;
  };
  const std::size_t matrix = 384, passed = matrix + 1024, cuts = passed + 128, devices = cuts + 128,
                    numbers = devices + 64;
  for (int i = 0; i < 32; ++i) {
    for (int j = 0; j < 32; ++j) {
      const float value = state[matrix + idx(i * 32 + j)];
      ASSERT_EQ(value > 0, i < made.problem.num_devices() && j < made.problem.num_devices());
      ASSERT_EQ(value, state[matrix + idx(j * 32 + i)]);
    }
  }
  EXPECT_TRUE(ones(passed, 128).empty() && ones(cuts, 128).empty() && ones(devices, 64).empty());
  EXPECT_EQ(state[numbers + 3], 1);
  std::vector<std::uint8_t> legal(idx(kActions));
  const auto step_last_legal = [&] {
    env.legal(legal.data());
    int action = kActions - 1;
    while (!legal[idx(action)]) --action;
    env.step(action);
    env.state(state.data());
    return action;
  };
  const int device = step_last_legal();
  EXPECT_EQ(ones(devices, 64), std::vector<int>{device});
  EXPECT_EQ(state[numbers + 3], 0);
  const int pivot = step_last_legal();
  EXPECT_EQ(ones(cuts, 128), std::vector<int>{pivot});
  EXPECT_EQ(static_cast<int>(ones(passed, 128).size()), pivot + 1);
  EXPECT_EQ(state[numbers + 3], 1);
  env.reset();
  env.state(state.data());
  EXPECT_TRUE(ones(cuts, 128).empty() && ones(devices, 64).empty());
}

TEST(FlatEnv, StatesAreWithinTheirRangeAndZeroWhereNothingIsLegal) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const Made made(seed);
    PlanSpaceOptions options;
    options.stages = 2 + static_cast<int>(seed % 6);
    const PlanSpace space(made.problem, options);
    for (FlatInput input : {FlatInput::kRaw, FlatInput::kPerAction}) {
      FlatEnv env(space, input);
      SmallRandom random(seed);
      std::vector<float> state(idx(FlatEnv::state_size(input)), -7);
      std::vector<std::uint8_t> legal(idx(kActions));
      while (!env.done()) {
        env.state(state.data());
        for (float value : state) ASSERT_TRUE(value >= 0 && value <= 1) << value;
        env.legal(legal.data());
        std::vector<int> allowed;
        for (int a = 0; a < kActions; ++a) {
          if (legal[idx(a)]) allowed.push_back(a);
          if (input == FlatInput::kRaw) continue;
          const float* features = state.data() + a * FlatEnv::kActionFeatures;
          ASSERT_EQ(features[0], legal[idx(a)] ? 1 : 0);
          for (int f = 1; f < FlatEnv::kActionFeatures && !legal[idx(a)]; ++f) ASSERT_EQ(features[f], 0);
        }
        env.step(allowed[idx(random.integer(0, static_cast<int>(allowed.size()) - 1))]);
      }
    }
  }
}

// A device cut has the features of its best pivot.
TEST(FlatEnv, ADeviceCutHasTheFeaturesOfItsBestPivot) {
  const Made made(11);
  PlanSpaceOptions options;
  options.stages = 4;
  const PlanSpace space(made.problem, options);
  FlatEnv env(space, FlatInput::kPerAction);
  std::vector<float> devices(idx(FlatEnv::state_size(FlatInput::kPerAction))), pivots(devices);
  env.state(devices.data());
  std::vector<std::uint8_t> legal(idx(kActions)), legal_pivots(legal);
  env.legal(legal.data());
  for (int a = 0; a < kActions; ++a) {
    if (!legal[idx(a)]) continue;
    env.reset();
    env.step(a);
    env.state(pivots.data());
    env.legal(legal_pivots.data());
    float least = 2;
    for (int p = 0; p < kActions; ++p) {
      if (legal_pivots[idx(p)]) least = std::min(least, pivots[idx(p * FlatEnv::kActionFeatures + 1)]);
    }
    EXPECT_EQ(devices[idx(a * FlatEnv::kActionFeatures + 1)], least);
  }
}

TEST(FlatEnv, RefusesWhatDoesNotFitAndWhatIsNotLegal) {
  pipeline::RandomProblemOptions kinds;
  kinds.min_instructions = kinds.max_instructions = 300;
  const Made made(1, kinds);
  PlanSpaceOptions options;
  options.stages = 2;
  for (int i = 1; i < 200; ++i) options.pivots.push_back(i);
  const PlanSpace large(made.problem, options);
  EXPECT_THROW(FlatEnv(large, FlatInput::kRaw), Error);
  options.pivots.clear();
  const PlanSpace space(made.problem, options);
  FlatEnv env(space, FlatInput::kRaw);
  EXPECT_THROW(env.step(-1), Error);
  EXPECT_THROW(env.step(kActions), Error);
  EXPECT_THROW(env.step(kActions - 1), Error);
  EXPECT_EQ(env.value_ms(), kInfinity);
}

TEST(FlatEnv, QIsWhatTheFlatPolicySaysBackwards) {
  Architecture architecture;
  architecture.family = Family::kFlat;
  architecture.head = Head::kPlain;
  architecture.features = FlatEnv::state_size(FlatInput::kRaw);
  architecture.actions = kActions;
  architecture.hidden = {16};
  architecture.dueling = true;
  SmallRandom random(4);
  std::vector<float> weights(Policy::num_weights(architecture));
  for (float& weight : weights) weight = static_cast<float>(random.real(-0.1, 0.1));
  const Policy policy(architecture, weights);
  std::vector<float> state(idx(architecture.features)), y(idx(kActions)), q(y);
  for (float& value : state) value = static_cast<float>(random.real(0, 1));
  policy.predict_actions(state.data(), 1, y.data());
  flat_q(policy, state.data(), q.data());
  for (std::size_t a = 0; a < q.size(); ++a) EXPECT_EQ(q[a], -y[a]);
}

}  // namespace
}  // namespace automap::models
