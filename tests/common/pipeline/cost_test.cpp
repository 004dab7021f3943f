#include "common/pipeline/cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/error.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/schedule.h"

namespace automap::pipeline {
namespace {

using ::testing::HasSubstr;

// Two servers of 2 devices (fast, 2 GB/s inside) and one of 3 (half as fast, 1 GB/s inside); ports 0.5 and 0.25 GB/s.
Cluster mixed_cluster() {
  Cluster cluster;
  cluster.name = "mixed";
  ServerGroup fast;
  fast.count = 2;
  fast.devices = 2;
  fast.intra_gbytes_per_s = 2;
  fast.inter_gbytes_per_s = 0.5;
  fast.device = "fast";
  ServerGroup slow = fast;
  slow.count = 1;
  slow.devices = 3;
  slow.intra_gbytes_per_s = 1;
  slow.inter_gbytes_per_s = 0.25;
  slow.device = "slow";
  cluster.servers = {fast, slow};
  cluster.intra_latency_us = 1000;
  cluster.inter_latency_us = 3000;
  cluster.devices["fast"].memory_gib = 2;
  cluster.devices["slow"].memory_gib = 1;
  cluster.devices["slow"].relative_speed = 0.5;
  return cluster;
}

Profile four_instructions() {
  Profile profile;
  profile.model = "four";
  profile.forward_fraction = 0.25;
  profile.c_ms = {12, 24, 36, 48};
  profile.a_bytes = {1e6, 2e6, 0, 5e6};
  profile.w_bytes = {4e6, 0, 8e6, 2e6};
  profile.stash_bytes = {1e6, 2e6, 3e6, 4e6};
  return profile;
}

TEST(Problem, ComputeDividesByTheGroupAndItsSlowestDevice) {
  const Problem problem(four_instructions(), mixed_cluster(), {});
  EXPECT_EQ(problem.num_devices(), 7);
  EXPECT_EQ(problem.num_servers(), 3);
  EXPECT_DOUBLE_EQ(problem.compute_ms(0, 2, problem.group(0, 2)), 18);             // 36 / 2
  EXPECT_DOUBLE_EQ(problem.compute_ms(2, 4, problem.group(4, 7)), 84 / 3.0 * 2);   // half speed
  EXPECT_DOUBLE_EQ(problem.compute_ms(0, 4, problem.group(3, 5)), 120 / 2.0 * 2);  // one fast, one slow
  EXPECT_DOUBLE_EQ(problem.work_ms(1, 3), 60);
  EXPECT_EQ(problem.variables(0, 4), 3);
  EXPECT_EQ(problem.variables(1, 2), 0);
}

// An adaptive plan without a choice keeps as many micro-batches in flight as memory allows, and no stage more than the
// one in front of it.
TEST(PipelineTimes, NoStageOfAnAdaptivePlanHasMoreInFlightThanTheOneInFrontOfIt) {
  Profile profile = four_instructions();
  profile.stash_bytes = {200e6, 1e6, 1e6, 1e6};
  ProblemOptions options;
  options.micro_batches = 64;
  const Problem problem(profile, mixed_cluster(), options);
  Plan plan;
  plan.cuts = {1, 2};
  plan.device_cuts = {1, 2};
  plan.schedule = Schedule::kAdaptive;
  const int first = problem.most_in_flight(0, 1, problem.group(0, 1), 0);
  ASSERT_LT(first, 64);
  ASSERT_EQ(problem.most_in_flight(1, 2, problem.group(1, 2), 0), 64);
  EXPECT_THAT(pipeline_times(problem, plan).in_flight, ::testing::ElementsAre(first, first, first));
}

TEST(Problem, TransferTakesTheLinkBetweenTheGroups) {
  const Problem problem(four_instructions(), mixed_cluster(), {});
  // Inside the first server, 1 device to 1: 2 GB/s = 2e6 bytes per ms.
  EXPECT_DOUBLE_EQ(problem.transfer_ms(1, 0, 1, 2), 1 + 0.5);
  // Inside the slow server, 1 to 2 devices: min(1, 2) links of 1 GB/s.
  EXPECT_DOUBLE_EQ(problem.transfer_ms(2, 4, 5, 7), 1 + 2.0);
  // From the first server to the second: 0.5 GB/s.
  EXPECT_DOUBLE_EQ(problem.transfer_ms(1, 0, 2, 4), 3 + 2.0);
  // From two servers to one: min(2, 1) links, the slowest port of all three, 0.25 GB/s.
  EXPECT_DOUBLE_EQ(problem.transfer_ms(1, 0, 4, 7), 3 + 4.0);
  // Both stages on two servers each (device 4 shares the second server): two links of 0.25.
  EXPECT_DOUBLE_EQ(problem.transfer_ms(2, 0, 3, 7), 3 + 2e6 / (2 * 0.25e6));
  // Both within the second server... and one device that leaves it.
  EXPECT_DOUBLE_EQ(problem.transfer_ms(1, 2, 3, 4), 1 + 0.5);
  EXPECT_DOUBLE_EQ(problem.transfer_ms(1, 2, 3, 5), 3 + 4.0);
  // Nothing to move costs nothing, no latency either.
  EXPECT_EQ(problem.transfer_ms(3, 0, 2, 4), 0);
}

TEST(Problem, RingAllReduce) {
  const Problem problem(four_instructions(), mixed_cluster(), {});
  EXPECT_EQ(problem.sync_ms(0, 4, problem.group(0, 1)), 0);  // one device
  // Two devices inside: 2 hops of 1 ms, 2 (1/2) 4e6 / 2e6.
  EXPECT_DOUBLE_EQ(problem.sync_ms(0, 1, problem.group(0, 2)), 2 * 1 + 2.0);
  // Three devices over two servers: 4 hops of 3 ms, 2 (2/3) 12e6 bytes at 0.5e6 per ms.
  EXPECT_DOUBLE_EQ(problem.sync_ms(0, 3, problem.group(0, 3)), 4 * 3 + 2 * (2.0 / 3) * 12e6 / 0.5e6);
  // All three servers: the slowest port.
  EXPECT_DOUBLE_EQ(problem.sync_ms(0, 1, problem.group(0, 7)), 12 * 3 + 2 * (6.0 / 7) * 4e6 / 0.25e6);
  EXPECT_EQ(problem.sync_ms(1, 2, problem.group(0, 7)), 0);  // no variables: no latency either
}

TEST(Problem, MemoryAndVariables) {
  ProblemOptions options;
  options.micro_batches = 8;
  const Problem problem(four_instructions(), mixed_cluster(), options);
  const DeviceGroup& group = problem.group(3, 5);
  EXPECT_EQ(group.capacity_bytes, 1.0 * (1 << 30));  // the smaller of the two
  // 4 x 12e6 of state, 6e6 bytes of stash x 5 micro-batches over 2 devices.
  EXPECT_DOUBLE_EQ(problem.memory_bytes(0, 3, group, 5), 4 * 12e6 + 6e6 * 5 / 2);
  EXPECT_TRUE(problem.stages_need_variables(3));
  EXPECT_FALSE(problem.stages_need_variables(4));  // only three instructions hold variables
  EXPECT_FALSE(problem.stage_fits(1, 2, group, 1, true));
  EXPECT_TRUE(problem.stage_fits(1, 2, group, 1, false));
  EXPECT_FALSE(problem.stage_fits(2, 2, group, 1, false));
  options.allow_empty_stages = true;
  EXPECT_FALSE(Problem(four_instructions(), mixed_cluster(), options).stages_need_variables(2));
}

TEST(Problem, RefusesBadQuestions) {
  ProblemOptions options;
  options.micro_batches = 0;
  EXPECT_THROW(Problem(four_instructions(), mixed_cluster(), options), Error);
  Profile profile = four_instructions();
  profile.c_ms[1] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(Problem(profile, mixed_cluster(), {}), Error);
  Cluster cluster = mixed_cluster();
  cluster.servers[0].devices = 0;
  EXPECT_THROW(Problem(four_instructions(), cluster, {}), Error);
}

TEST(Cost, WorkedPlan) {
  ProblemOptions options;
  options.micro_batches = 4;
  const Problem problem(four_instructions(), mixed_cluster(), options);
  const Plan plan{{2}, {2}, Schedule::k1f1b};
  const PipelineTimes times = pipeline_times(problem, plan);
  // Stage 1: 36 / 2 = 18 = 4.5 + 13.5. Stage 2: 84 over 5 devices of half speed = 33.6 = 8.4 + 25.2.
  EXPECT_DOUBLE_EQ(times.forward_ms[0], 4.5);
  EXPECT_DOUBLE_EQ(times.backward_ms[0], 13.5);
  EXPECT_DOUBLE_EQ(times.forward_ms[1], 8.4);
  EXPECT_DOUBLE_EQ(times.backward_ms[1], 25.2);
  // 2e6 bytes from one server to two: one link of 0.25 GB/s.
  ASSERT_EQ(times.transfer_ms.size(), 1u);
  EXPECT_DOUBLE_EQ(times.transfer_ms[0], 3 + 8.0);
  EXPECT_DOUBLE_EQ(times.allreduce_ms[0], 2 * 1 + 4e6 / 2e6);
  EXPECT_DOUBLE_EQ(times.allreduce_ms[1], 8 * 3 + 2 * (4.0 / 5) * 10e6 / 0.25e6);
  // P = 18 + 22 + 33.6 = 73.6. Paths: fill to stage 2 and 3 steady steps: 73.6 + 3 x 33.6 = 174.4, the longest:
  // stage 1: 18 + 54, its round trip exposed: P + 54 - 4.5 = 123.1; stalls: K_1 = 2, delta = 73.6 - 36 = 37.6,
  // floor(3/2) = 1 lap: 73.6 + 54 + 37.6 = 165.2; link: 40 + 33 = 73; stage 2 (K = 1): 174.4 once more.
  // All-reduce: stage 2's 88 less B_1 + t = 24.5.
  EXPECT_DOUBLE_EQ(value_ms(problem, plan), 174.4 + 88 - 24.5);
  EXPECT_DOUBLE_EQ(step_length_ms(times, 4, Schedule::k1f1b, ValueForm::kPaper), 174.4 + 63.5);
  // With M = 8 the stalls of stage 1 win: 73.6 + 7 x 18 + 3 x 37.6 = 312.4 against 73.6 + 7 x 33.6 = 308.8.
  EXPECT_DOUBLE_EQ(step_length_ms(times, 8, Schedule::k1f1b, ValueForm::kFull), 312.4 + 63.5);
  EXPECT_DOUBLE_EQ(step_length_ms(times, 8, Schedule::k1f1b, ValueForm::kPaper), 308.8 + 63.5);
  // 1f1b-overlap keeps 3 in flight: delta = 19.6, 2 laps: 73.6 + 126 + 39.2 = 238.8 < 308.8.
  EXPECT_DOUBLE_EQ(step_length_ms(times, 8, Schedule::k1f1bOverlap, ValueForm::kFull), 308.8 + 63.5);
}

TEST(Cost, OneStageIsDataParallelismWithAccumulation) {
  ProblemOptions options;
  options.micro_batches = 5;
  const Problem problem(four_instructions(), mixed_cluster(), options);
  const double expected = 5 * 120 / (7 * 0.5) + 12 * 3 + 2 * (6.0 / 7) * 14e6 / 0.25e6;
  for (Schedule schedule : {Schedule::k1f1b, Schedule::k1f1bOverlap}) {
    const Plan plan{{}, {}, schedule};
    EXPECT_DOUBLE_EQ(value_ms(problem, plan), expected);
    EXPECT_DOUBLE_EQ(simulate_step_ms(problem, plan), expected);
  }
}

// The formula of docs/cost-model.md, spelled out over the sequence of stages and links without running sums.
double slow_value(const PipelineTimes& times, int m, Schedule schedule, ValueForm form) {
  const int stages = times.num_stages();
  std::vector<double> f, b;  // elements x = 0 .. 2S-2; even = stage
  for (int s = 0; s < stages; ++s) {
    const std::size_t i = static_cast<std::size_t>(s);
    f.push_back(times.forward_ms[i]);
    b.push_back(times.backward_ms[i]);
    if (s + 1 < stages) {
      f.push_back(times.transfer_ms[i]);
      b.push_back(times.transfer_ms[i]);
    }
  }
  const std::size_t count = f.size();
  const auto span = [&](std::size_t from, std::size_t to) {
    double sum = 0;
    for (std::size_t y = from; y < to; ++y) sum += f[y] + b[y];
    return sum;
  };
  double length = 0, residue = -1e300;
  for (std::size_t x = 0; x < count; ++x) {
    const bool stage = x % 2 == 0;
    const double t = stage ? f[x] + b[x] : f[x];
    length = std::max(length, span(0, x + 1) + (m - 1) * t);
    if (!stage) continue;
    double drained = 0;
    for (std::size_t y = 0; y < x; ++y) drained += b[y];
    residue = std::max(residue, times.allreduce_ms[x / 2] - drained);
    if (form == ValueForm::kPaper) continue;
    const int behind = stages - 1 - static_cast<int>(x / 2);
    const int k = std::min(m, schedule == Schedule::k1f1b ? behind + 1 : 2 * behind + 1);
    length = std::max(length, span(0, count) + (m - 1) * t - (k - 1) * std::min(f[x], b[x]));
    if (m > k) {
      const double delta = span(x, count) - k * t;
      length = std::max(length, span(0, count) + (m - 1) * t + std::max(delta, std::floor((m - 1) / k) * delta));
    }
  }
  return length + residue;
}

TEST(Cost, EqualsTheFormulaSpelledOut) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    CounterRandom random(seed, 4);
    PipelineTimes times = random_times(random.integer(1, 10), random);
    for (double& t : times.transfer_ms) t *= random.uniform() < 0.3 ? 20 : 1;
    for (double& a : times.allreduce_ms) a = random.uniform() < 0.5 ? 0 : random.log_uniform(0.01, 30);
    const int m = random.integer(1, 30);
    for (Schedule schedule : {Schedule::k1f1b, Schedule::k1f1bOverlap}) {
      for (ValueForm form : {ValueForm::kFull, ValueForm::kPaper}) {
        const double expected = slow_value(times, m, schedule, form);
        ASSERT_NEAR(step_length_ms(times, m, schedule, form), expected, 1e-12 * expected);
      }
    }
  }
}

TEST(Cost, ScalesWithTime) {
  RandomProblemOptions options;
  options.with_allreduce = 1;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    RandomProblem made = random_problem(seed, options);
    CounterRandom random(seed, 5);
    const Problem problem = made.problem();
    const Plan plan = random_plan(problem, random.integer(1, 6), Schedule::k1f1b, random);
    for (double& c : made.profile.c_ms) c *= 4;
    for (ServerGroup& group : made.cluster.servers) {
      group.intra_gbytes_per_s /= 4;
      group.inter_gbytes_per_s /= 4;
    }
    EXPECT_DOUBLE_EQ(value_ms(made.problem(), plan), 4 * value_ms(problem, plan));
    EXPECT_DOUBLE_EQ(simulate_step_ms(made.problem(), plan), 4 * simulate_step_ms(problem, plan));
  }
}

TEST(Cost, StructureAndReasons) {
  const Problem problem(four_instructions(), mixed_cluster(), {});
  EXPECT_TRUE(valid_structure(problem, {{}, {}, Schedule::k1f1b}));
  EXPECT_TRUE(valid_structure(problem, {{1, 3}, {1, 6}, Schedule::k1f1b}));
  for (const Plan& bad :
       {Plan{{0}, {1}, Schedule::k1f1b}, Plan{{4}, {1}, Schedule::k1f1b}, Plan{{1}, {7}, Schedule::k1f1b},
        Plan{{1}, {0}, Schedule::k1f1b}, Plan{{2, 2}, {1, 2}, Schedule::k1f1b}, Plan{{1, 2}, {3, 3}, Schedule::k1f1b},
        Plan{{3, 1}, {1, 2}, Schedule::k1f1b}, Plan{{1}, {}, Schedule::k1f1b}, Plan{{-1}, {1}, Schedule::k1f1b}}) {
    EXPECT_FALSE(valid_structure(problem, bad));
    EXPECT_FALSE(feasible(problem, bad));
  }
  EXPECT_EQ(infeasible_reason(problem, {{1}, {1}, Schedule::k1f1b}), "");
  EXPECT_EQ(infeasible_reason(problem, {{1, 2}, {1, 2}, Schedule::k1f1b}), "stage 2 has no trainable variable");

  // Stage 2 on the slow server: 4 x 10e6 x 40 bytes of state.
  Profile heavy = four_instructions();
  for (double& w : heavy.w_bytes) w *= 40;
  const Problem tight(heavy, mixed_cluster(), {});
  const std::string reason = infeasible_reason(tight, {{2}, {4}, Schedule::k1f1b});
  EXPECT_THAT(reason, HasSubstr("stage 2 needs 1.49 GiB of the 1.00 GiB"));
  ProblemOptions unlimited;
  unlimited.memory = false;
  EXPECT_TRUE(feasible(Problem(heavy, mixed_cluster(), unlimited), {{2}, {4}, Schedule::k1f1b}));
}

// Every term of V is a path through the schedule, so without all-reduce no plan simulates shorter than V.
TEST(Cost, NeverAboveTheSimulationWithoutAllReduce) {
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    CounterRandom random(seed, 6);
    PipelineTimes times = random_times(random.integer(1, 10), random);
    for (double& t : times.transfer_ms) {
      if (random.uniform() < 0.1) t *= 20;
      if (random.uniform() < 0.1) t = 0;
    }
    const int m = random.integer(1, 32);
    for (Schedule schedule : {Schedule::k1f1b, Schedule::k1f1bOverlap}) {
      const double simulated = simulate_step_ms(times, m, schedule);
      for (ValueForm form : {ValueForm::kFull, ValueForm::kPaper}) {
        ASSERT_LE(step_length_ms(times, m, schedule, form), simulated * (1 + 1e-12)) << seed;
      }
    }
  }
}

TEST(Cost, AllReduceAddsAtMostItsLongestAndNeverShortens) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    CounterRandom random(seed, 7);
    PipelineTimes times = random_times(random.integer(1, 8), random);
    const int m = random.integer(1, 32);
    const double bare_value = step_length_ms(times, m, Schedule::k1f1b, ValueForm::kFull);
    const double bare_simulated = simulate_step_ms(times, m, Schedule::k1f1b);
    double longest = 0;
    for (double& a : times.allreduce_ms) {
      a = random.uniform() < 0.5 ? 0 : random.log_uniform(0.01, 30);
      longest = std::max(longest, a);
    }
    const double first = times.allreduce_ms[0];
    const double value = step_length_ms(times, m, Schedule::k1f1b, ValueForm::kFull);
    const double simulated = simulate_step_ms(times, m, Schedule::k1f1b);
    for (const auto& [with, without] : {std::pair(value, bare_value), std::pair(simulated, bare_simulated)}) {
      ASSERT_GE(with, without + first - 1e-9);  // nothing is left to hide the first stage's
      ASSERT_LE(with, without + longest + 1e-9);
    }
  }
}

}  // namespace
}  // namespace automap::pipeline
