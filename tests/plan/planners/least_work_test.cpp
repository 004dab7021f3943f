#include "plan/planners/least_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/numbers.h"
#include "common/machine/chosen_devices.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/placed_work.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/schedule.h"

namespace automap::planners {
namespace {

using machine::Cluster;
using machine::DeviceType;
using machine::ServerGroup;
using pipeline::CounterRandom;
using pipeline::DeviceTimes;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::ProblemOptions;
using pipeline::Profile;
using pipeline::RandomProblem;
using pipeline::RandomProblemOptions;
using pipeline::Replicas;
using pipeline::Schedule;
using pipeline::StageVariant;
using pipeline::WidthColumns;

Profile profile_of(std::vector<double> c_ms) {
  Profile profile;
  profile.a_bytes = profile.w_bytes = profile.stash_bytes = std::vector<double>(c_ms.size(), 1);
  profile.c_ms = std::move(c_ms);
  profile.micro_batch_size = 1;
  return profile;
}

Cluster two_alike() {
  Cluster cluster;
  cluster.name = "two";
  cluster.devices["d"] = DeviceType();
  cluster.servers.push_back(ServerGroup());
  cluster.servers[0].device = "d";
  cluster.servers[0].count = 1;
  cluster.servers[0].devices = 2;
  return cluster;
}

TEST(LeastWork, TheHeadersCase) {
  EXPECT_NEAR(least_work_bound_ms(profile_of({1, 3}), two_alike(), Replicas::kFractional, 8), 16, 1e-6);
  EXPECT_NEAR(least_work_bound_ms(profile_of({1, 3}), two_alike(), Replicas::kWhole, 8), 16, 1e-6);
}

TEST(LeastWork, DevicesThatNoServerHasMakeNothingFaster) {
  Profile profile = profile_of({1, 3});
  profile.times = {{"d", {1}, {{1, 1}}, {{2, 2}}, {0, 0}}};
  Cluster more = two_alike();
  more.devices["fast"].relative_speed = 4;
  EXPECT_EQ(least_work_bound_ms(profile, more, Replicas::kWhole, 8),
            least_work_bound_ms(profile, two_alike(), Replicas::kWhole, 8));
  EXPECT_EQ(least_step_bound_ms(profile, more, Replicas::kWhole, 8),
            least_step_bound_ms(profile, two_alike(), Replicas::kWhole, 8));
  EXPECT_EQ(SampleTimes(profile, more, Replicas::kWhole).least_ms(1),
            SampleTimes(profile, two_alike(), Replicas::kWhole).least_ms(1));
}

TEST(LeastWork, TheBestNumberOfSamplesAndTheBestWidth) {
  Profile profile = profile_of({1, 3});
  // Per sample 3 and 2 in the first position, 4 and 5 in the second.
  profile.times = {{"d", {1, 2}, {{1, 2}, {2, 5}}, {{2, 2}, {2, 5}}, {0, 0}}};
  EXPECT_NEAR(least_work_bound_ms(profile, two_alike(), Replicas::kWhole, 8), 8 * (2 + 4) / 2.0, 1e-6);
  WidthColumns two;
  two.width = 2;
  two.times = {{"d", {1, 2}, {{1, 0.5}, {2, 5}}, {{2, 0.5}, {2, 5}}, {0, 0}}};  // 2 x 1 in the second
  profile.widths = {two};
  EXPECT_NEAR(least_work_bound_ms(profile, two_alike(), Replicas::kWhole, 8), 8 * (2 + 2) / 2.0, 1e-6);
  EXPECT_NEAR(least_work_bound_ms(profile, two_alike(), Replicas::kFractional, 8), 16, 1e-6);
}

TEST(LeastStep, TheHeadersCase) {
  Profile profile = profile_of({2, 0});
  profile.times = {{"d", {1, 8}, {{2, 0}, {8, 0}}, {{0, 0}, {0, 0}}, {0, 0}}};
  Cluster eight = two_alike();
  eight.servers[0].devices = 8;
  EXPECT_NEAR(least_work_bound_ms(profile, eight, Replicas::kWhole, 8), 1, 1e-6);
  EXPECT_NEAR(least_step_bound_ms(profile, eight, Replicas::kWhole, 8), 2, 1e-6);
}

TEST(LeastStep, TheBackwardForWeightsIsOnNobodysWay) {
  Profile profile = profile_of({1, 1});
  profile.times = {{"d", {1}, {{1, 2}}, {{3, 5}}, {0, 0}}};
  Cluster hundred = two_alike();
  hundred.servers[0].devices = 100;
  EXPECT_NEAR(least_step_bound_ms(profile, hundred, Replicas::kWhole, 1), 11, 1e-6);
  profile.weight_share = {1, 0.4};
  EXPECT_NEAR(least_step_bound_ms(profile, hundred, Replicas::kWhole, 1), 1 + 2 + 3, 1e-6);
}

TEST(LeastStep, IsThatOfWorkWithoutWholeSamples) {
  const Profile profile = profile_of({1, 3});
  EXPECT_EQ(least_step_bound_ms(profile, two_alike(), Replicas::kWhole, 8),
            least_work_bound_ms(profile, two_alike(), Replicas::kWhole, 8));
  Profile timed = profile;
  timed.times = {{"d", {1, 2}, {{1, 2}, {2, 5}}, {{2, 2}, {2, 5}}, {0, 0}}};
  for (const auto replicas : {Replicas::kFractional, Replicas::kWhole}) {
    EXPECT_EQ(least_step_bound_ms(timed, two_alike(), replicas, 2.5),
              least_work_bound_ms(timed, two_alike(), replicas, 2.5));
  }
  // No replica has times for one sample or more of a larger batch than any divisor: none is planned.
  timed.times[0].samples = {0.25, 0.5};
  EXPECT_EQ(least_step_bound_ms(timed, two_alike(), Replicas::kWhole, 3),
            least_work_bound_ms(timed, two_alike(), Replicas::kWhole, 3));
}

TEST(SampleTimes, TheHeadersCase) {
  Profile profile = profile_of({1, 3});
  profile.times = {{"d", {1, 2}, {{1, 0}, {1, 2}}, {{0, 3}, {1, 2}}, {0, 0}}};
  const SampleTimes times(profile, two_alike(), Replicas::kWhole);
  EXPECT_NEAR(times.least_ms(1), 4, 1e-6);
  EXPECT_NEAR(times.least_ms(1.5), 10 / 3.0, 1e-6);
  EXPECT_NEAR(times.least_ms(2), 3, 1e-6);
  EXPECT_NEAR(times.least_ms(64), 3, 1e-6);
  EXPECT_NEAR(times.least_ms(1, true), 5, 1e-6);
  EXPECT_NEAR(SampleTimes(profile, two_alike(), Replicas::kFractional).least_ms(64), 4, 1e-6);
}

// Against every number of samples, a thousandth apart, on the lines between the points.
TEST(SampleTimes, NoNumberOfSamplesIsBelow) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    CounterRandom draws(seed, 3);
    Profile profile = profile_of({1, 1});
    DeviceTimes one{"d", {}, {}, {}, {0, 0}};
    for (double samples = 1, ms = 5; samples <= 16; samples *= 2) {
      ms *= draws.uniform(1, 3);
      one.samples.push_back(samples);
      one.forward_ms.push_back({ms, ms});
      one.backward_ms.push_back({2 * ms, ms});
    }
    profile.times = {one};
    const SampleTimes times(profile, two_alike(), Replicas::kWhole);
    double least = kInfinity;
    for (int k = 1000; k <= 16000; ++k) {
      const double samples = k * 1e-3;
      const auto above = std::max<std::ptrdiff_t>(
          1, std::lower_bound(one.samples.begin(), one.samples.end(), samples) - one.samples.begin());
      const auto at_point = [&](std::ptrdiff_t i) { return 5 * one.forward_ms[static_cast<std::size_t>(i)][0]; };
      const double low = one.samples[static_cast<std::size_t>(above - 1)];
      const double high = one.samples[static_cast<std::size_t>(above)];
      const double share = (samples - low) / (high - low);
      least = std::min(least, ((1 - share) * at_point(above - 1) + share * at_point(above)) / samples);
      EXPECT_NEAR(times.least_ms(samples), least, 1e-6 * least) << seed << " " << samples;
    }
  }
}

// No order of the work of any stages is below, the backward in one pass or in two, at one device a replica or two.
TEST(LeastStep, NoOrderIsBelow) {
  RandomProblemOptions options;
  options.max_instructions = 80;
  options.min_devices = options.max_devices = 4;
  options.whole = 1;
  options.heterogeneous = 0.3;
  options.with_zeros = 0.3;
  int compared = 0, above_work = 0;
  double nearest = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    RandomProblem random = random_problem(seed, options);
    CounterRandom draws(seed, 11);
    for (std::size_t i = 0; i < random.profile.c_ms.size(); ++i) {
      random.profile.weight_share.push_back(draws.uniform() < 0.3 ? 0 : draws.uniform());
    }
    const int width = random.cluster.devices.size() == 1 && random.profile.shared.empty() ? 2 : 1;
    if (width == 2) {
      WidthColumns two;
      two.width = 2;
      two.times = random.profile.times;
      two.weight_share = random.profile.weight_share;
      for (DeviceTimes& times : two.times) {
        for (auto* points : {&times.forward_ms, &times.backward_ms}) {
          for (std::vector<double>& point : *points) {
            for (double& ms : point) ms *= draws.uniform(0.4, 1.1);
          }
        }
      }
      two.w_bytes = random.profile.w_bytes;
      two.stash_bytes = random.profile.stash_bytes;
      random.profile.widths = {two};
    }
    random.options.memory = false;
    random.options.variants = {StageVariant()};
    for (int of = 1; of <= width; ++of) {
      ProblemOptions own = random.options;
      own.width = of;
      const Problem problem(profile_at(random.profile, of), machine::replicas_of(random.cluster, of), own);
      const double batch = problem.micro_batches() * problem.micro_batch_samples();
      const double bound = least_step_bound_ms(random.profile, random.cluster, Replicas::kWhole, batch);
      const double work = least_work_bound_ms(random.profile, random.cluster, Replicas::kWhole, batch);
      EXPECT_GE(bound, work);
      above_work += bound > work * 1.01;
      for (int i = 0; i < 20; ++i) {
        Plan plan = random_plan(problem, draws.integer(1, std::min(6, problem.num_devices())), Schedule::k1f1b, draws);
        if (!(value_ms(problem, plan) < kInfinity)) continue;
        plan.split_backward = i % 2 == 1;
        const double ms = any_order_bound_ms(work_times(place(problem, plan)), problem.micro_batches());
        ++compared;
        EXPECT_LE(bound, ms) << seed;
        nearest = std::max(nearest, bound / ms);
      }
    }
  }
  EXPECT_GT(compared, 1000);
  EXPECT_GT(above_work, 20);
  EXPECT_GT(nearest, 0.7);
}

// Plans of any kind, on servers of any kind.
TEST(LeastWork, NoPlanIsBelow) {
  RandomProblemOptions options;
  options.max_instructions = 80;
  options.min_devices = 1;
  options.max_devices = 4;
  options.whole = options.heterogeneous = options.forward_heavy = options.with_zeros = 0.5;
  int compared = 0;
  double nearest = 0, nearest_of_samples = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const RandomProblem random = random_problem(seed, options);
    const Problem problem = random.problem();
    const double bound = least_work_bound_ms(random.profile, random.cluster, random.options.replicas,
                                             problem.micro_batches() * problem.micro_batch_samples());
    const double least_step = least_step_bound_ms(random.profile, random.cluster, random.options.replicas,
                                                  problem.micro_batches() * problem.micro_batch_samples());
    ASSERT_GT(bound, 0);
    const SampleTimes times(random.profile, random.cluster, random.options.replicas);
    const double of_samples = problem.micro_batches() * problem.micro_batch_samples() *
                              times.least_ms(problem.micro_batch_samples()) / problem.num_devices();
    CounterRandom draws(seed, 9);
    for (int i = 0; i < 20; ++i) {
      const Plan plan =
          random_plan(problem, draws.integer(1, std::min(6, problem.num_devices())), Schedule::k1f1b, draws);
      const double ms = value_ms(problem, plan);
      if (!(ms < 1e300)) continue;
      ++compared;
      EXPECT_LE(bound, ms) << seed;
      EXPECT_LE(bound, simulate_step_ms(problem, plan)) << seed;
      EXPECT_LE(least_step, std::min(ms, simulate_step_ms(problem, plan))) << seed;
      EXPECT_LE(of_samples, std::min(ms, simulate_step_ms(problem, plan))) << seed;
      nearest_of_samples = std::max(nearest_of_samples, of_samples / ms);
      nearest = std::max(nearest, bound / ms);
    }
  }
  EXPECT_GT(compared, 1000);
  EXPECT_GT(nearest, 0.7);  // it is no idle bound
  EXPECT_GT(nearest_of_samples, 0.7);
}

}  // namespace
}  // namespace automap::planners
