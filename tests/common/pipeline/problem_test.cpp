// A stage's cost against direct formulas over positions.
#include "common/pipeline/problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "common/base/error.h"
#include "common/base/in_order.h"
#include "common/machine/chosen_devices.h"
#include "common/pipeline/baselines.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/random_problem.h"
#include "tests/sanitized.h"

namespace automap::pipeline {
namespace {

RandomProblemOptions whole_kinds() {
  RandomProblemOptions options;
  options.min_instructions = 6;
  options.max_instructions = 40;
  options.min_servers = 1;
  options.max_servers = 3;
  options.min_devices = 1;
  options.max_devices = 4;
  options.whole = 1;
  options.heterogeneous = 0.5;
  options.with_memory_limit = 0.5;
  options.with_latency = 0.5;
  return options;
}

TEST(Problem, GroupsOfWholeSamplesDivideTheMicroBatch) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const RandomProblem made = random_problem(seed, whole_kinds());
    const Problem problem = made.problem();
    const double samples = problem.micro_batch_samples();
    for (int d0 = 0; d0 < problem.num_devices(); ++d0) {
      for (int d1 = d0 + 1; d1 <= problem.num_devices(); ++d1) {
        const DeviceGroup& group = problem.group(d0, d1);
        const bool listed = std::count(problem.group_sizes().begin(), problem.group_sizes().end(), group.size) == 1;
        ASSERT_EQ(group.valid, listed);
        if (group.valid) {
          ASSERT_EQ(std::fmod(samples, group.size), 0);
        }
      }
    }
  }
}

// The error names a number that would do, and it does.
TEST(Problem, NoDevicesThatCanShareTheSamplesIsAUsageError) {
  Profile profile;
  profile.c_ms = {1, 1};
  profile.a_bytes = profile.w_bytes = profile.stash_bytes = {0, 0};
  profile.micro_batch_size = 1;
  DeviceTimes times;
  times.device = "v100-16gb";
  times.samples = {1, 4};
  times.forward_ms = times.backward_ms = {{1, 1}, {2, 2}};
  times.optimizer_ms = {0, 0};
  profile.times = {times};
  ProblemOptions options;
  options.replicas = Replicas::kWhole;
  const Cluster cluster = machine::load_cluster("config-a");  // 16 devices
  const auto complaint = [&] {
    try {
      Problem(profile, cluster, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return std::string(error.what()) + " | " + error.hint();
    }
    return std::string("accepted");
  };
  options.micro_batch_samples = 17;  // prime, more than one device knows and more than there are devices
  EXPECT_NE(complaint().find("--micro-batch 16 would do"), std::string::npos) << complaint();
  options.micro_batch_samples = 59;
  EXPECT_NE(complaint().find("--micro-batch 56 would do"), std::string::npos) << complaint();  // 14 devices of 4
  for (const double samples : {16.0, 56.0}) {
    options.micro_batch_samples = samples;
    EXPECT_EQ(complaint(), "accepted");
  }
  options.group_size = 3;
  EXPECT_NE(complaint().find("stages of 3 devices do not divide the 56 samples"), std::string::npos) << complaint();
}

TEST(Problem, FourThousandDevicesOfWholeReplicasAndNotOfFractionalOnes) {
  Profile profile;
  profile.c_ms = {1, 1};
  profile.a_bytes = profile.w_bytes = profile.stash_bytes = {0, 0};
  Cluster cluster = machine::load_cluster("config-a");
  cluster.servers.resize(1);
  cluster.servers[0].count = 512;
  cluster.servers[0].devices = 8;
  ProblemOptions options;
  options.replicas = Replicas::kWhole;
  options.micro_batch_samples = 4096;
  const Problem problem(profile, cluster, options);
  EXPECT_EQ(problem.group_sizes().size(), 13u);
  EXPECT_EQ(problem.group(0, 4096).servers, 512);
  EXPECT_TRUE(problem.group(4088, 4096).valid);
  EXPECT_EQ(problem.group(4088, 4096).servers, 1);
  EXPECT_FALSE(problem.group(4000, 4096).valid);
  options.replicas = Replicas::kFractional;
  EXPECT_THROW(Problem(profile, cluster, options), Error);
}

// Ring of n at so much per hop.
double ring_ms(int n, double bytes, double bytes_per_ms, double latency_ms) {
  return n <= 1 ? 0 : 2 * (n - 1) * latency_ms + 2.0 * (n - 1) / n * bytes / bytes_per_ms;
}

TEST(Problem, GradientSyncIsARingInsideServersAndOverTheirPorts) {
  Profile profile;
  profile.c_ms = {1, 1};
  profile.a_bytes = {0, 0};
  profile.w_bytes = {6e6, 2e6};
  profile.stash_bytes = {0, 0};
  Cluster cluster;
  cluster.servers = {{2, 4, 100, 10, "gpu"}};  // 1e8 and 1e7 bytes per ms
  cluster.devices["gpu"].memory_gib = 16;
  cluster.intra_latency_us = 2;
  cluster.inter_latency_us = 20;
  ProblemOptions options;
  options.gradient_sync = GradientSync::kOverlap;
  const Problem problem(profile, cluster, options);
  EXPECT_NEAR(problem.sync_ms(8e6, problem.group(0, 4)), ring_ms(4, 8e6, 1e8, 0.002), 1e-12);
  // Three hops inside a server and one to the other, each way; eight shares of the bytes pass a port, but one.
  EXPECT_NEAR(problem.sync_ms(8e6, problem.group(0, 8)), 2 * (3 * 0.002 + 0.02) + 2 * 7.0 / 8 * 8e6 / 1e7, 1e-12);
  EXPECT_EQ(problem.sync_ms(8e6, problem.group(0, 1)), 0);
  options.gradient_sync = GradientSync::kAfter;
  const Problem after(profile, cluster, options);
  EXPECT_NEAR(after.sync_ms(8e6, after.group(0, 8)), ring_ms(8, 8e6, 1e7, 0.02), 1e-12);
}

// Every position's gradients, from the last on, until a bucket is full; the first to be reduced may be smaller.
TEST(Problem, BucketsHoldAllGradientsInOrder) {
  int several = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem made = random_problem(seed, whole_kinds());
    made.options.gradient_sync = GradientSync::kOverlap;
    double all = 0;
    for (const double bytes : made.profile.w_bytes) all += bytes;
    made.options.bucket_bytes = std::max(1.0, all / 7);
    const Problem problem = made.problem();
    const int n = problem.num_instructions();
    for (const int size : problem.group_sizes()) {
      const DeviceGroup& group = problem.group(0, size);
      std::vector<SyncBucket> buckets;
      problem.sync_buckets(0, n, group, 0, buckets);
      const double bytes = problem.gradient_bytes(0, n);
      if (size == 1 || bytes == 0) {
        ASSERT_TRUE(buckets.empty());
        continue;
      }
      if (buckets.size() > 1) ++several;
      ASSERT_EQ(buckets.back().ready_share, 1);
      double ms = 0;
      for (std::size_t i = 0; i < buckets.size(); ++i) {
        ms += buckets[i].ms;
        ASSERT_GT(buckets[i].ready_share, 0);
        if (i > 0) {
          ASSERT_GE(buckets[i].ready_share, buckets[i - 1].ready_share);
          ASSERT_GE(buckets[i].ms, group.all_reduce.ms(std::min(bytes, made.options.bucket_bytes)) * (1 - 1e-12));
        }
      }
      const double latencies = static_cast<double>(buckets.size() - 1) * group.all_reduce.latency_ms();
      ASSERT_NEAR(ms, problem.sync_ms(0, n, group) + latencies, 1e-9 * ms);
      // V never counts more than the replay leaves.
      const double backward = problem.backward_ms(0, n, group);
      ASSERT_LE(problem.exposed_sync_ms(0, n, backward, group), sync_left_ms(buckets, backward) * (1 + 1e-12) + 1e-12);
    }
  }
  EXPECT_GT(several, 50);
}

// Wherever a stage begins and ends: the bucket reduced last is the one V counts, a large variable whole, and V's part
// is no more than what the replay leaves and no less than what any stage with these gradients has.
TEST(Problem, TheLastBucketIsTheOneThatIsReducedLast) {
  int larger = 0, several = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem made = random_problem(seed, whole_kinds());
    made.options.gradient_sync = seed % 4 == 0 ? GradientSync::kAfter : GradientSync::kOverlap;
    const Problem problem = made.problem();
    CounterRandom random(seed, 4);
    for (int round = 0; round < 20; ++round) {
      const int p0 = random.integer(0, problem.num_instructions() - 1);
      const int p1 = random.integer(p0 + 1, problem.num_instructions());
      const int size = problem.group_sizes()[static_cast<std::size_t>(
          random.integer(0, static_cast<int>(problem.group_sizes().size()) - 1))];
      const DeviceGroup& group = problem.group(0, size);
      const double bytes = problem.summed_bytes(p0, p1), backward = problem.backward_ms(p0, p1, group);
      std::vector<SyncBucket> buckets;
      problem.sync_buckets(p0, p1, group, 0, buckets);
      ASSERT_EQ(buckets.empty(), size == 1 || bytes == 0);
      if (buckets.empty()) continue;
      double reduced = 0;
      for (const SyncBucket& bucket : buckets) reduced += bucket.ms - group.all_reduce.latency_ms();
      ASSERT_NEAR(reduced, bytes * group.all_reduce.ms_per_byte(), 1e-9 * reduced + 1e-12);
      several += buckets.size() > 1 ? 1 : 0;
      larger +=
          problem.last_bucket_bytes(p0) < bytes && problem.last_bucket_bytes(p0) > 1.5 * made.options.bucket_bytes;
      const double last = group.all_reduce.ms(std::min(bytes, problem.last_bucket_bytes(p0)));
      ASSERT_NEAR(buckets.back().ms, last, 1e-12 * last);
      const double counted = problem.exposed_sync_ms(p0, p1, backward, group);
      ASSERT_LE(counted, sync_left_ms(buckets, backward) * (1 + 1e-12) + 1e-12);
      ASSERT_GE(counted, problem.least_exposed_sync_ms(bytes, backward, group));
    }
  }
  EXPECT_GT(larger, 50);
  EXPECT_GT(several, 200);
}

TEST(Problem, MemoryPartsSumToTheWholeAndShrinkWithZero) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem made = random_problem(seed, whole_kinds());
    made.options.variants = {{0, false}, {1, false}, {2, false}, {3, false}};
    const Problem problem = made.problem();
    CounterRandom random(seed, 3);
    const int p0 = random.integer(0, problem.num_instructions() - 1);
    const int p1 = random.integer(p0 + 1, problem.num_instructions());
    for (const int size : problem.group_sizes()) {
      const DeviceGroup& group = problem.group(0, size);
      double before = 0;
      for (int variant = 0; variant < 4; ++variant) {
        const MemoryParts parts = problem.memory_parts(p0, p1, group, 2, variant);
        const double total = problem.memory_bytes(p0, p1, group, 2, variant);
        ASSERT_NEAR(parts.total(), total, 1e-9 * total + 1e-6);
        // ZeRO 3 has layers whole while it computes them.
        if (variant > 0 && variant < 3) {
          ASSERT_LE(total, before * (1 + 1e-12));
        }
        if (variant == 3) {
          ASSERT_LE(total - parts.workspace, before * (1 + 1e-12));
        }
        before = total;
      }
    }
  }
}

// Value by value: the last of the micro-batches in flight goes forward and back, keeping and freeing at each position.
TEST(Problem, MemoryIsThePeakOfAReplay) {
  int below = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem made = random_problem(seed, whole_kinds());
    made.options.variants = {{0, false}};
    const Problem problem = made.problem();
    CounterRandom random(seed, 5);
    const int p0 = random.integer(0, problem.num_instructions() - 1);
    const int p1 = random.integer(p0 + 1, problem.num_instructions());
    const int in_flight = random.integer(1, problem.micro_batches());
    const DeviceGroup& group = problem.group(0, problem.group_sizes().front());
    const auto at = [](const std::vector<double>& values, int i) {
      return values.empty() ? 0.0 : values[static_cast<std::size_t>(i)];
    };
    double alive = (in_flight - 1) * problem.stash_bytes(p0, p1), most = alive, largest = 0;
    for (int i = p0; i < p1; ++i) {
      alive += at(made.profile.stash_bytes, i);
      most = std::max(most, alive + at(made.profile.workspace_bytes, i));
      largest = std::max(largest, at(made.profile.workspace_bytes, i));
    }
    for (int i = p1; i-- > p0;) {
      most = std::max(most, alive + at(made.profile.workspace_bytes, i));
      alive -= at(made.profile.stash_bytes, i);
    }
    const MemoryParts parts = problem.memory_parts(p0, p1, group, in_flight);
    EXPECT_NEAR(parts.stash + parts.workspace, most * group.stash_scale, 1e-6 * most * group.stash_scale + 1e-6);
    EXPECT_LE(parts.workspace, largest * group.stash_scale * (1 + 1e-9) + 1e-6);
    below += parts.workspace < 0.9 * largest * group.stash_scale ? 1 : 0;
  }
  EXPECT_GT(below, 5);
}

// Bucket by bucket, position by position, as the format says: copies of tied weights at their last use.
TEST(Problem, BucketsWithCopiesEqualAWalkOverThePositions) {
  int with_copies = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblemOptions kinds = whole_kinds();
    kinds.with_shared = 1;
    RandomProblem made = random_problem(seed, kinds);
    made.options.gradient_sync = GradientSync::kOverlap;
    const Problem problem = made.problem();
    const DeviceGroup& group = problem.group(0, problem.group_sizes().back());
    if (group.size == 1) continue;
    CounterRandom random(seed, 5);
    for (int round = 0; round < 10; ++round) {
      const int p0 = random.integer(0, problem.num_instructions() - 1);
      const int p1 = random.integer(p0 + 1, problem.num_instructions());
      struct Walked {
        double bytes = 0;
        int lowest = 0;
      };
      std::vector<Walked> walked;  // from the stage's first position on
      bool full = true;
      for (int p = p0 + 1; p <= p1; ++p) {
        double bytes = made.profile.gradient_bytes[static_cast<std::size_t>(p - 1)];
        for (const SharedWeight& shared : made.profile.shared) {
          if (shared.position != p || shared.first > p0) continue;
          bytes += shared.gradient_bytes;
          with_copies += shared.gradient_bytes > 0 ? 1 : 0;
        }
        if (bytes == 0) continue;
        if (full) walked.push_back({0, p});
        walked.back().bytes += bytes;
        full = walked.back().bytes >= made.options.bucket_bytes * (1 - 1e-12);
      }
      std::vector<SyncBucket> buckets;
      problem.sync_buckets(p0, p1, group, 0, buckets);
      ASSERT_EQ(buckets.size(), walked.size());
      const double backward = problem.backward_ms(p0, p1, group);
      for (std::size_t i = 0; i < walked.size(); ++i) {
        const SyncBucket& bucket = buckets[buckets.size() - 1 - i];
        ASSERT_NEAR(bucket.ms, group.all_reduce.ms(walked[i].bytes), 1e-9 * bucket.ms);
        const double passed = problem.backward_ms(walked[i].lowest - 1, p1, group);
        ASSERT_NEAR(bucket.ready_share * backward, i == 0 ? backward : passed, 1e-9 * backward);
      }
    }
  }
  EXPECT_GT(with_copies, 200);
}

// By hand: an embedding used first in position 1 and last in position 4, 2 servers of 4 devices.
TEST(Problem, TiedGradientsAreSummedByBothHoldersAndExchanged) {
  Profile profile;
  profile.c_ms = {1, 1, 1, 1};
  profile.a_bytes = {0, 0, 0, 0};
  profile.w_bytes = {20e6, 0, 2e6, 4e6};
  profile.gradient_bytes = {10e6, 0, 1e6, 2e6};
  profile.stash_bytes = {0, 0, 0, 0};
  profile.shared = {{1, 4, 20e6, 10e6, 0}};
  profile.micro_batch_size = 8;
  Cluster cluster;
  cluster.servers = {{2, 4, 100, 10, "gpu"}};  // 1e8 and 1e7 bytes per ms
  cluster.devices["gpu"].memory_gib = 16;
  cluster.intra_latency_us = 2;
  cluster.inter_latency_us = 20;
  ProblemOptions options;
  options.replicas = Replicas::kWhole;
  options.gradient_sync = GradientSync::kOverlap;
  const Problem problem(profile, cluster, options);
  const DeviceGroup &first = problem.group(0, 4), &second = problem.group(4, 8), &all = problem.group(0, 8);
  // One stage holds both uses.
  EXPECT_EQ(problem.exchange_ms(0, 4, all), 0);
  EXPECT_EQ(problem.summed_bytes(0, 4), 13e6);
  // Across the two servers, each with one port.
  EXPECT_NEAR(problem.exchange_ms(0, 2, first), 0.02 + 10e6 / 1e7, 1e-12);
  EXPECT_NEAR(problem.exchange_ms(2, 4, second), 0.02 + 10e6 / 1e7, 1e-12);
  EXPECT_EQ(problem.summed_bytes(0, 2), 10e6);
  EXPECT_EQ(problem.summed_bytes(2, 4), 13e6);
  EXPECT_EQ(problem.gradient_bytes(2, 4), 3e6);
  EXPECT_NEAR(problem.sync_ms(2, 4, second), ring_ms(4, 13e6, 1e8, 0.002), 1e-12);
  // A stage between the uses has nothing to do with it.
  EXPECT_EQ(problem.exchange_ms(1, 3, first), 0);
  // Two ports; and inside the last server, where both holders stand in it.
  EXPECT_NEAR(problem.exchange_ms(0, 2, problem.group(2, 6)), 0.02 + 10e6 / 2e7, 1e-12);
  EXPECT_NEAR(problem.exchange_ms(0, 2, problem.group(4, 6)), 0.002 + 10e6 / 2e8, 1e-12);
  EXPECT_NEAR(problem.exchange_ms(2, 4, problem.group(2, 4)), 0.002 + 10e6 / 2e8, 1e-12);
  // A device alone sums nothing, but exchanges.
  EXPECT_EQ(problem.sync_ms(2, 4, problem.group(7, 8)), 0);
  EXPECT_NEAR(problem.exchange_ms(2, 4, problem.group(7, 8)), 0.02 + 10e6 / 1e7, 1e-12);
  // The papers' form does not know of it.
  options.replicas = Replicas::kFractional;
  EXPECT_EQ(Problem(profile, cluster, options).exchange_ms(0, 2, first), 0);
}

TEST(Problem, SharedGradientsOfRangesAreThoseOfAllStagesInThem) {
  int some = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblemOptions kinds = whole_kinds();
    kinds.with_shared = 1;
    const Problem problem = random_problem(seed, kinds).problem();
    CounterRandom random(seed, 6);
    const int n = problem.num_instructions();
    for (int round = 0; round < 10; ++round) {
      const int a0 = random.integer(0, n - 1), a1 = random.integer(a0, n - 1);
      const int b0 = random.integer(a0, n), b1 = random.integer(b0, n);
      double copies = -1, onwards = -1;
      for (int p0 = a0; p0 <= a1; ++p0) {
        for (int p1 = std::max(b0, p0 + 1); p1 <= b1; ++p1) {
          const SharedGradients bytes = problem.shared_gradients(p0, p1);
          copies = copies < 0 ? bytes.copies : std::min(copies, bytes.copies);
          onwards = onwards < 0 ? bytes.onwards : std::min(onwards, bytes.onwards);
          // One class for cuts that nothing tells apart.
          if (p0 > a0 && problem.sharing_class(p0) == problem.sharing_class(p0 - 1)) {
            ASSERT_EQ(problem.shared_gradients(p0 - 1, p1).copies, bytes.copies);
            ASSERT_EQ(problem.shared_gradients(p0 - 1, p1).onwards, bytes.onwards);
          }
        }
      }
      if (copies < 0) continue;
      const SharedGradients range = problem.shared_gradients(a0, a1, b0, b1);
      ASSERT_LE(range.copies, copies * (1 + 1e-12));
      ASSERT_LE(range.onwards, onwards * (1 + 1e-12));
      some += range.copies > 0 || range.onwards > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(some, 100);
}

// By hand: 4 replicas of one server, two layers of two positions each, gradients half as large as weights.
TEST(Problem, ZeroMovesAndKeepsWhatItSays) {
  Profile profile;
  profile.c_ms = {3, 3, 3, 3};
  profile.a_bytes = {0, 0, 0, 0};
  profile.w_bytes = {40e6, 0, 8e6, 16e6};
  profile.gradient_bytes = {20e6, 0, 4e6, 8e6};
  profile.slot_bytes = {80e6, 0, 16e6, 32e6};
  profile.stash_bytes = {0, 0, 0, 0};
  profile.layer = {"a", "a", "b", "b"};
  profile.micro_batch_size = 4;
  profile.forward_fraction = 1.0 / 3;
  Cluster cluster;
  cluster.servers = {{1, 4, 10, 1, "gpu"}};  // 1e7 bytes per ms
  cluster.devices["gpu"].memory_gib = 16;
  ProblemOptions options;
  options.replicas = Replicas::kWhole;
  options.gradient_sync = GradientSync::kOverlap;
  options.bucket_bytes = 30e6;
  options.micro_batches = 4;
  options.variants = {{0, false}, {1, false}, {2, false}, {3, false}};
  const Problem problem(profile, cluster, options);
  const DeviceGroup& group = problem.group(0, 4);
  // One way around the ring is 3/4 of the bytes.
  const auto around = [](double bytes) { return 0.75 * bytes / 1e7; };
  const double forward = 1, backward = 2;  // of all four positions: 12 ms on 4 devices
  for (int zero = 0; zero < 4; ++zero) {
    SCOPED_TRACE(zero);
    std::vector<SyncBucket> buckets;
    problem.sync_buckets(0, 4, group, zero, buckets);
    ASSERT_EQ(buckets.size(), 1u);
    EXPECT_NEAR(buckets.front().ms, (zero == 0 ? 2 : 1) * around(32e6), 1e-12);
    EXPECT_NEAR(problem.sync_ms(0, 4, group, zero), buckets.front().ms, 1e-12);
    EXPECT_NEAR(problem.optimizer_ms(0, 4, group, zero), zero == 1 || zero == 2 ? around(64e6) : 0, 1e-12);
    // Layer a: scatter 1.5 ms beside a backward of 1 ms; gather 3 ms beside nothing forward, and b's gather beside a's.
    const double scattered = 0.75 * (around(20e6) - 1);
    double f = forward, b = backward;
    if (zero == 2) b += scattered;
    if (zero == 3) {
      f += around(40e6) + (around(24e6) - 0.5);
      b += around(40e6) + around(20e6) - 1;
      b += around(24e6) + around(12e6) - 1;
    }
    EXPECT_NEAR(problem.backward_ms(0, 4, group, zero), b, 1e-12);
    EXPECT_NEAR(problem.compute_ms(0, 4, group, zero), f + b, 1e-12);
    const MemoryParts parts = problem.memory_parts(0, 4, group, 1, zero);
    EXPECT_NEAR(parts.weights, 64e6 / (zero >= 3 ? 4 : 1), 1e-3);
    // Sums over four micro-batches are as wide as the weights.
    EXPECT_NEAR(parts.gradients, 64e6 / (zero >= 2 ? 4 : 1), 1e-3);
    EXPECT_NEAR(parts.slots, 128e6 / (zero >= 1 ? 4 : 1), 1e-3);
    EXPECT_NEAR(parts.workspace, zero >= 3 ? 64e6 : 0, 1e-3);
    EXPECT_NEAR(problem.memory_parts(0, 2, group, 1, zero).workspace, zero >= 3 ? 40e6 : 0, 1e-3);
  }
  options.micro_batches = 1;
  const Problem once(profile, cluster, options);
  EXPECT_NEAR(once.memory_parts(0, 4, once.group(0, 4), 1, 0).gradients, 32e6, 1e-3);
}

// Solvers rely on it: a stage never needs less than one that ends earlier, nor, as least_memory_bytes counts, than any
// part of it.
TEST(Problem, MemoryGrowsWithTheStage) {
  RandomProblemOptions kinds = whole_kinds();
  kinds.max_instructions = 16;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem made = random_problem(seed, kinds);
    const Problem problem = made.problem();
    const DeviceGroup& group = problem.group(0, problem.group_sizes().back());
    const int n = problem.num_instructions();
    for (int variant = 0; variant < problem.num_variants(); ++variant) {
      for (int p0 = 0; p0 < n; ++p0) {
        for (int p1 = p0 + 1; p1 <= n; ++p1) {
          for (const int k : {1, problem.micro_batches()}) {
            const double bytes = problem.memory_bytes(p0, p1, group, k, variant) * (1 + 1e-12);
            const double least = problem.least_memory_bytes(p0, p1, group, k, variant) * (1 + 1e-12);
            ASSERT_LE(least, bytes);
            if (p0 > 0) {
              ASSERT_LE(least, problem.least_memory_bytes(p0 - 1, p1, group, k, variant) * (1 + 1e-11) + 1e-6);
            }
            if (p1 < n) {
              ASSERT_LE(bytes, problem.memory_bytes(p0, p1 + 1, group, k, variant) * (1 + 1e-11) + 1e-6);
              ASSERT_LE(least, problem.least_memory_bytes(p0, p1 + 1, group, k, variant) * (1 + 1e-11) + 1e-6);
            }
          }
        }
      }
    }
  }
}

TEST(Problem, RecomputationKeepsWhatEntersLayersAndRunsThemAgain) {
  Profile profile;
  profile.micro_batch_size = 4;
  profile.c_ms = {3, 3, 3, 3, 3, 3};
  profile.forward_fraction = 1.0 / 3;
  profile.a_bytes = {1, 2, 3, 4, 5, 0};
  profile.w_bytes = {0, 0, 0, 0, 0, 0};
  profile.stash_bytes = {10, 20, 30, 40, 50, 60};
  profile.layer = {"a", "a", "b", "b", "c", "c"};
  Cluster cluster;
  cluster.servers = {{1, 2, 100, 10, "gpu"}};
  cluster.devices["gpu"].memory_gib = 16;
  ProblemOptions options;
  options.replicas = Replicas::kWhole;
  options.variants = {{0, false}, {0, true}};
  const Problem problem(profile, cluster, options);
  const DeviceGroup& one = problem.group(0, 1);
  EXPECT_DOUBLE_EQ(problem.compute_ms(0, 6, one, 0), 18);
  EXPECT_DOUBLE_EQ(problem.compute_ms(0, 6, one, 1), 18 + 6);
  EXPECT_DOUBLE_EQ(problem.backward_ms(0, 6, one, 1), 12 + 6);
  EXPECT_DOUBLE_EQ(problem.flight_bytes(0, 6, one, 0), 210);
  EXPECT_DOUBLE_EQ(problem.flight_bytes(3, 6, one, 1), 3 + 4);  // what enters the stage, in the middle of b, and c
  EXPECT_DOUBLE_EQ(problem.flight_bytes(0, 6, one, 1), 2 + 4);  // what enters b and c
  EXPECT_DOUBLE_EQ(problem.flight_bytes(4, 6, one, 1), 4);      // what enters the stage, which is a layer
  EXPECT_DOUBLE_EQ(problem.flight_bytes(5, 6, one, 1), 5);
  EXPECT_DOUBLE_EQ(problem.least_memory_bytes(5, 6, one, 1, 1), problem.memory_bytes(5, 6, one, 1, 1) - 1);
  EXPECT_DOUBLE_EQ(problem.memory_parts(0, 6, one, 1, 1).workspace, 50 + 60);
  EXPECT_DOUBLE_EQ(problem.memory_parts(3, 6, one, 1, 1).workspace, 50 + 60);
  EXPECT_DOUBLE_EQ(problem.memory_parts(3, 4, one, 1, 1).workspace, 40);  // the second half of b, without the first
  EXPECT_DOUBLE_EQ(problem.memory_parts(2, 4, one, 1, 1).workspace, 70);
  // Half of the samples on each of two.
  EXPECT_DOUBLE_EQ(problem.flight_bytes(0, 6, problem.group(0, 2), 1), 3);
  EXPECT_DOUBLE_EQ(problem.compute_ms(0, 6, problem.group(0, 2), 0), 9);

  // With what it says of entries: 1 of the 4 that enter c entered b, too.
  profile.layer_entry_bytes = {0, 0, 2, 0, 3, 0};
  profile.stage_entry_bytes = {0, 1, 0, 3, 1, 5};
  const Problem known(profile, cluster, options);
  EXPECT_DOUBLE_EQ(known.flight_bytes(0, 6, one, 1), 2 + 3);
  EXPECT_DOUBLE_EQ(known.flight_bytes(4, 6, one, 1), 4);
  EXPECT_DOUBLE_EQ(known.flight_bytes(3, 6, one, 1), 3 + 3);
  EXPECT_DOUBLE_EQ(known.flight_bytes(0, 6, one, 0), 210);
}

// A stage that recomputes is charged what it keeps itself, not what a cut somewhere behind it would.
TEST(Problem, AFatCutInsideOfALayerIsNoMatterOfOtherStages) {
  Profile profile;
  profile.micro_batch_size = 1;
  profile.c_ms = profile.w_bytes = std::vector<double>(6, 1);
  profile.a_bytes = {1, 1, 1, 1000, 1, 0};
  profile.stash_bytes = std::vector<double>(6, 10);
  profile.layer = {"a", "b", "c", "d", "d", "e"};
  Cluster cluster;
  cluster.servers = {{1, 2, 100, 10, "gpu"}};
  cluster.devices["gpu"].memory_gib = 1e-6;  // 1074 bytes
  ProblemOptions options;
  options.replicas = Replicas::kWhole;
  options.micro_batches = 4;
  options.variants = {{0, true}};
  options.state_factor = 1;
  const Problem problem(profile, cluster, options);
  const DeviceGroup& one = problem.group(0, 1);
  EXPECT_DOUBLE_EQ(problem.flight_bytes(0, 3, one), 2);
  EXPECT_DOUBLE_EQ(problem.flight_bytes(0, 6, one), 4);
  EXPECT_DOUBLE_EQ(problem.flight_bytes(4, 6, one), 1001);
  for (const BalanceBy by : {BalanceBy::kCompute, BalanceBy::kMemory}) {
    const std::optional<Plan> plan = balanced_on(problem, {1}, Schedule::kGpipe, by, 0.5);
    ASSERT_TRUE(plan.has_value());
    EXPECT_TRUE(feasible(problem, *plan)) << plan->cuts[0];
    EXPECT_NE(plan->cuts[0], 4);
  }
  const std::optional<Plan> uniform = uniform_plan(problem, 2, Schedule::kGpipe);
  ASSERT_TRUE(uniform.has_value());
  EXPECT_EQ(uniform->cuts[0], 3);
}

TEST(Problem, ACopyOfASharedWeightCountsWhereItsFirstUseIsNot) {
  Profile profile;
  profile.c_ms = {1, 1, 1, 1};
  profile.a_bytes = {0, 0, 0, 0};
  profile.w_bytes = {100, 0, 0, 10};
  profile.gradient_bytes = {50, 0, 0, 5};
  profile.slot_bytes = {200, 0, 0, 20};
  profile.stash_bytes = {0, 0, 0, 0};
  profile.shared = {{1, 4, 100, 50, 200}};
  Cluster cluster;
  cluster.servers = {{1, 2, 100, 10, "gpu"}};
  cluster.devices["gpu"].memory_gib = 16;
  ProblemOptions options;
  options.micro_batches = 1;
  const Problem problem(profile, cluster, options);
  const DeviceGroup& one = problem.group(0, 1);
  EXPECT_DOUBLE_EQ(problem.fixed_bytes(0, 4, one), 385);
  EXPECT_DOUBLE_EQ(problem.fixed_bytes(0, 2, one), 350);
  EXPECT_DOUBLE_EQ(problem.fixed_bytes(2, 4, one), 35 + 350);
  EXPECT_DOUBLE_EQ(problem.fixed_bytes(2, 3, one), 0);
  options.micro_batches = 2;  // sums of gradients, as wide as the weights
  const Problem sums(profile, cluster, options);
  EXPECT_DOUBLE_EQ(sums.fixed_bytes(0, 2, sums.group(0, 1)), 400);
  EXPECT_DOUBLE_EQ(sums.fixed_bytes(2, 4, sums.group(0, 1)), 40 + 400);
}

TEST(Problem, TimesAreLinearBetweenPointsAndEndWithThem) {
  Profile profile;
  profile.micro_batch_size = 2;
  profile.device = "gpu";
  profile.c_ms = {3, 3};
  profile.a_bytes = {8, 0};
  profile.w_bytes = {0, 0};
  profile.stash_bytes = {0, 0};
  DeviceTimes times;
  times.device = "gpu";
  times.samples = {1, 2, 8};
  times.forward_ms = {{1, 1}, {1.5, 1}, {4.5, 4}};
  times.backward_ms = {{2, 2}, {2, 2}, {8, 8}};
  times.optimizer_ms = {0, 0};
  profile.times = {times};
  Cluster cluster;
  cluster.servers = {{1, 8, 100, 10, "gpu"}};
  cluster.devices["gpu"].memory_gib = 16;
  ProblemOptions options;
  options.replicas = Replicas::kWhole;
  options.micro_batch_samples = 16;
  const Problem problem(profile, cluster, options);
  EXPECT_EQ(problem.group_sizes(), (std::vector<int>{2, 4, 8}));  // 16 samples on one device: no time is known
  EXPECT_DOUBLE_EQ(problem.compute_ms(0, 2, problem.group(0, 8)), 1.5 + 1 + 4);
  EXPECT_DOUBLE_EQ(problem.compute_ms(0, 1, problem.group(0, 4)), 2.5 + 4);  // a third of the way from 2 to 8
  EXPECT_DOUBLE_EQ(problem.backward_ms(0, 2, problem.group(0, 2)), 16);
  EXPECT_DOUBLE_EQ(problem.activation_bytes(1), 64);  // of 16 samples
  options.micro_batch_samples = 128;
  EXPECT_THROW(Problem(profile, cluster, options), Error);
}

// All that the columns say of every stage on a group.
std::vector<double> all_of(const Problem& problem) {
  std::vector<double> out;
  const int n = problem.num_instructions(), devices = problem.num_devices();
  for (int d0 = 0; d0 < devices; ++d0) {
    for (int d1 = d0 + 1; d1 <= devices; ++d1) {
      const DeviceGroup& group = problem.group(d0, d1);
      if (!group.valid) continue;
      for (int variant = 0; variant < problem.num_variants(); ++variant) {
        for (int p0 = 0; p0 < n; ++p0) {
          for (int p1 = p0 + 1; p1 <= n; ++p1) {
            out.insert(out.end(),
                       {problem.compute_ms(p0, p1, group, variant), problem.backward_ms(p0, p1, group, variant),
                        problem.optimizer_ms(p0, p1, group, variant), problem.memory_bytes(p0, p1, group, 2, variant)});
          }
        }
      }
    }
  }
  return out;
}

// Columns are shared between problems of a profile: none of them is another's that differs, whatever the splits, the
// clusters and the threads are that asked first.
TEST(Problem, ProblemsOfOneProfileAreWhatTheyWouldBeAlone) {
  RandomProblemOptions kinds = whole_kinds();
  kinds.max_instructions = 12;
  kinds.max_servers = 2;
  for (std::uint64_t seed = 0; seed < 120 / kShare; ++seed) {
    kinds.whole = seed % 4 == 3 ? 0 : 1;
    const RandomProblem made = random_problem(seed, kinds);
    const CheckedProfile shared(made.profile);
    machine::Cluster other = made.cluster;
    for (auto& [name, device] : other.devices) device.relative_speed *= 0.5;
    for (machine::ServerGroup& servers : other.servers) servers.intra_gbytes_per_s *= 3;
    struct Asked {
      ProblemOptions options;
      const machine::Cluster* cluster;
    };
    std::vector<Asked> asked;
    for (const machine::Cluster* cluster : {&made.cluster, static_cast<const machine::Cluster*>(&other)}) {
      asked.push_back({made.options, cluster});
      for (const double samples : {1.0, 2.0, 3.0}) {
        for (const std::optional<double>& state :
             {std::optional<double>(), std::optional<double>(0.5), std::optional<double>(4)}) {
          ProblemOptions options = made.options;
          if (options.replicas == Replicas::kWhole)
            options.micro_batch_samples = samples * made.profile.micro_batch_size;
          options.micro_batches = static_cast<int>(samples);
          options.state_factor = state;
          options.optimizer = samples == 2;
          options.whole_gradients = samples == 3;
          asked.push_back({options, cluster});
        }
      }
    }
    std::vector<std::vector<double>> together(asked.size());
    InOrder loop;
    loop.work = [&](std::size_t i, const Dropped&) {
      try {
        together[i] = all_of(Problem(shared, *asked[i].cluster, asked[i].options));
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::kUsage);  // times are not known for so many samples
      }
    };
    loop.take = [](std::size_t) {};
    const int threads = loop_threads();
    set_loop_threads(3);
    run_in_order(asked.size(), loop);
    set_loop_threads(threads);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      std::vector<double> alone;
      try {
        alone = all_of(Problem(made.profile, *asked[i].cluster, asked[i].options));
      } catch (const Error&) {
      }
      EXPECT_EQ(together[i], alone) << seed << ' ' << i;
    }
  }
}

TEST(Problem, RefusesOptionsThatMeanNothing) {
  const RandomProblem made = random_problem(1);
  const auto refused = [&](const std::function<void(ProblemOptions&)>& change) {
    ProblemOptions options = made.options;
    change(options);
    EXPECT_THROW(Problem(made.profile, made.cluster, options), Error);
  };
  refused([](ProblemOptions& o) { o.micro_batches = 0; });
  refused([](ProblemOptions& o) { o.memory_reserve = 1; });
  refused([](ProblemOptions& o) { o.bucket_bytes = 0; });
  refused([](ProblemOptions& o) { o.variants.clear(); });
  refused([](ProblemOptions& o) { o.variants = {{4, false}}; });
  refused([](ProblemOptions& o) { o.variants = {{1, false}}; });  // shards nothing with fractional replicas
  refused([](ProblemOptions& o) { o.micro_batch_samples = -1; });
  refused([](ProblemOptions& o) {
    o.replicas = Replicas::kWhole;
    o.micro_batch_samples = 1.5;
  });
}

// Links as measured: pairs inside a server, pairs that share ports between servers, collectives by number of devices.
TEST(Problem, MeasuredLinksCountInPlaceOfTheFigures) {
  Profile profile;
  profile.c_ms = {1, 1, 1, 1};
  profile.a_bytes = {8e6, 8e6, 8e6, 0};
  profile.w_bytes = {4e6, 4e6, 4e6, 4e6};
  profile.stash_bytes = {0, 0, 0, 0};
  profile.forward_fraction = 0.4;
  Cluster cluster;
  cluster.servers = {{2, 4, 100, 10, "gpu"}};  // 1e8 and 1e7 bytes per ms
  cluster.devices["gpu"].memory_gib = 64;
  ProblemOptions options;
  options.gradient_sync = GradientSync::kOverlap;
  const Problem by_figures(profile, cluster, options);
  machine::MeasuredLinks& links = cluster.servers[0].links;
  links.rows.push_back({CollectiveKind::kAllReduce, 2, 1, {0.1, 4e-8}});
  links.rows.push_back({CollectiveKind::kAllReduce, 4, 1, {0.2, 3e-8}});
  links.rows.push_back({CollectiveKind::kPermute, 2, 1, {0.03, 2.5e-8}});  // 4e7 bytes per ms
  links.rows.push_back({CollectiveKind::kPermute, 2, 2, {0.05, 4e-7}});    // 2.5e6 bytes per ms
  const Problem problem(profile, cluster, options);
  // One pair, two pairs; one pair between servers, three, and four, which are more than the port.
  EXPECT_DOUBLE_EQ(problem.transfer_ms(8e6, 0, 1, 2), 0.03 + 0.2);
  EXPECT_DOUBLE_EQ(problem.transfer_ms(8e6, 0, 2, 4), 0.03 + 0.1);
  EXPECT_DOUBLE_EQ(problem.transfer_ms(8e6, 3, 4, 5), 0.05 + 3.2);
  EXPECT_DOUBLE_EQ(problem.transfer_ms(8e6, 1, 4, 8), 0.05 + 8e6 / 7.5e6);
  EXPECT_DOUBLE_EQ(problem.transfer_ms(8e6, 0, 4, 8), 0.05 + 0.8);
  EXPECT_DOUBLE_EQ(by_figures.transfer_ms(8e6, 3, 4, 5), 0.8);
  EXPECT_DOUBLE_EQ(problem.sync_ms(4e6, problem.group(0, 2)), 0.1 + 0.16);
  EXPECT_DOUBLE_EQ(problem.sync_ms(4e6, problem.group(0, 4)), 0.2 + 0.12);
  // Over both servers: 2 (v-1) latencies more, at the pace of the ports.
  EXPECT_DOUBLE_EQ(problem.sync_ms(4e6, problem.group(0, 8)), 0.2 + 2 * 0.05 + 2 * 7.0 / 8 * 4e6 / 1e7);
  EXPECT_EQ(problem.devices_that_count(problem.group(0, 2)), 2);
  EXPECT_EQ(problem.devices_that_count(problem.group(0, 4)), 4);
  EXPECT_EQ(by_figures.devices_that_count(by_figures.group(0, 4)), 0);
  // The papers' ring has the figures.
  options.gradient_sync = GradientSync::kAfter;
  const Problem after(profile, cluster, options);
  EXPECT_DOUBLE_EQ(after.sync_ms(4e6, after.group(0, 4)), 2 * 0.75 * 4e6 / 1e8);
}

// The buckets of a stage together never take less than its gradients at once, whatever the links are.
// Servers of two kinds: of the links of both the slower ones count, and the longest latency of any.
TEST(Problem, LinksOfServersOfTwoKindsAreTheSlowerOnes) {
  Profile profile;
  profile.c_ms = {1, 1};
  profile.a_bytes = profile.stash_bytes = {8e6, 0};
  profile.w_bytes = {8e6, 8e6};
  for (const bool first_slower : {true, false}) {
    machine::Cluster cluster;
    cluster.name = "two kinds";
    cluster.devices["v100-16gb"].memory_gib = 16;
    const auto add = [&](double ms_per_byte, double latency_ms) {
      machine::ServerGroup group{1, 2, 100, 10, "v100-16gb"};
      group.links.rows.push_back({CollectiveKind::kAllReduce, 2, 1, {latency_ms, ms_per_byte}});
      group.links.rows.push_back({CollectiveKind::kPermute, 2, 2, {latency_ms, ms_per_byte}});
      cluster.servers.push_back(group);
    };
    add(first_slower ? 4e-7 : 1e-7, first_slower ? 0.01 : 0.07);
    add(first_slower ? 1e-7 : 4e-7, first_slower ? 0.07 : 0.01);
    ProblemOptions options;
    options.memory = false;
    const Problem problem(profile, cluster, options);
    // From one server to the other: the slower of both sides, and the longer latency though it is the quicker side's.
    EXPECT_DOUBLE_EQ(problem.transfer_ms(8e6, 1, 2, 3), 0.07 + 8e6 * 4e-7);
    EXPECT_DOUBLE_EQ(machine::bus_bytes_per_ms(*machine::slower(&cluster.servers[0].links, &cluster.servers[1].links)),
                     machine::bus_bytes_per_ms(cluster.servers[first_slower ? 0 : 1].links));
    EXPECT_EQ(machine::slower(nullptr, &cluster.servers[0].links), nullptr);
  }
}

// A replica of several devices takes in a part of what comes on each of them, and gathers it inside its server: all its
// devices, and those of all replicas of a stage, side by side.
TEST(Problem, ReplicasOfSeveralDevicesGatherWhatComesIn) {
  Profile profile;
  profile.c_ms = {1, 1, 1, 1};
  profile.a_bytes = {8e6, 8e6, 8e6, 0};
  profile.w_bytes = profile.stash_bytes = {0, 0, 0, 0};
  machine::Cluster cluster;
  cluster.name = "two servers";
  cluster.devices["v100-16gb"].memory_gib = 16;
  cluster.servers.push_back({2, 4, 100, 10, "v100-16gb"});
  for (const int width : {2, 4}) {
    ProblemOptions options;
    options.memory = false;
    options.width = width;
    const Problem problem(profile, machine::replicas_of(cluster, width), options);
    const int each = 4 / width;                                         // replicas of a server
    const double port = 1e7, inside = 1e8, gathered = 1 - 1.0 / width;  // bytes per ms
    // All replicas of a server to all of the other: the port is shared, what is gathered inside is not.
    EXPECT_NEAR(problem.transfer_ms(8e6, 0, each, 2 * each), 8e6 / port + 8e6 * gathered / (inside * each), 1e-9);
    // One replica on each side.
    EXPECT_NEAR(problem.transfer_ms(8e6, each - 1, each, each + 1), 8e6 / port + 8e6 * gathered / inside, 1e-9);
  }
}

TEST(Problem, MeasuredSyncIsNoLongerThanItsBuckets) {
  RandomProblemOptions kinds = whole_kinds();
  kinds.measured = 1;
  std::vector<SyncBucket> buckets;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const RandomProblem made = random_problem(seed, kinds);
    const Problem problem = made.problem();
    const int n = problem.num_instructions();
    CounterRandom random(seed, 5);
    for (int i = 0; i < 20; ++i) {
      const int p0 = random.integer(0, n - 1), p1 = random.integer(p0 + 1, n);
      const int d0 = random.integer(0, problem.num_devices() - 1), d1 = random.integer(d0 + 1, problem.num_devices());
      const DeviceGroup& group = problem.group(d0, d1);
      if (!group.valid) continue;
      problem.sync_buckets(p0, p1, group, 0, buckets);
      double sum = 0;
      for (const SyncBucket& bucket : buckets) sum += bucket.ms;
      const double at_once = problem.sync_ms(p0, p1, group);
      ASSERT_GE(sum, at_once * (1 - 1e-9)) << seed;
      // V counts no more than the replay leaves, begun as late as can be.
      const double backward = problem.backward_ms(p0, p1, group);
      double end = 0;
      for (const SyncBucket& bucket : buckets) end = std::max(end, bucket.ready_share * backward) + bucket.ms;
      ASSERT_LE(problem.exposed_sync_ms(p0, p1, backward, group), std::max(0.0, end - backward) * (1 + 1e-9) + 1e-12);
    }
  }
}

std::size_t group_of_server(const Cluster& cluster, int server) {
  std::size_t group = 0;
  for (; server >= cluster.servers[group].count; ++group) server -= cluster.servers[group].count;
  return group;
}

// Against a problem of the group's devices alone. Groups that are alike are made once and looked up.
TEST(Problem, AGroupIsWhatItsDevicesAreAlone) {
  RandomProblemOptions one_kind = whole_kinds();
  one_kind.max_servers = 1;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CounterRandom draws(seed, 5);
    RandomProblem made = random_problem(seed, one_kind);
    Cluster& cluster = made.cluster;
    cluster.servers.clear();
    cluster.devices.clear();
    // Runs of servers alike, of which several may be of one kind.
    for (std::int64_t runs = draws.integer(1, 4); runs > 0; --runs) {
      const std::string device = draws.uniform() < 0.5 ? "quick" : "slow";
      cluster.devices[device].memory_gib = device == "quick" ? 64 : 32;
      cluster.devices[device].relative_speed = device == "quick" ? 1 : 0.5;
      machine::ServerGroup servers;
      servers.count = static_cast<int>(draws.integer(1, 5));
      servers.devices = static_cast<int>(draws.integer(1, 3));
      servers.device = device;
      servers.intra_gbytes_per_s = draws.uniform() < 0.5 ? 100 : 300;
      servers.inter_gbytes_per_s = draws.uniform() < 0.5 ? 10 : 25;
      cluster.servers.push_back(servers);
    }
    made.profile.times.clear();
    made.options.micro_batch_samples = 48;
    const Problem problem = made.problem();
    const int n = problem.num_instructions(), devices = problem.num_devices();
    for (int d0 = 0; d0 < devices; ++d0) {
      for (int d1 = d0 + 1; d1 <= devices; ++d1) {
        SCOPED_TRACE(std::to_string(seed) + ": " + std::to_string(d0) + ".." + std::to_string(d1));
        const DeviceGroup& group = problem.group(d0, d1);
        // Whole samples for each: else there is no problem of these devices alone.
        ASSERT_EQ(group.valid, 48 % (d1 - d0) == 0);
        if (!group.valid) continue;
        std::vector<int> own;
        for (int d = d0; d < d1; ++d) own.push_back(d);
        const Problem alone(made.profile, machine::on_devices(cluster, own), problem.options());
        const DeviceGroup& same = alone.group(0, d1 - d0);
        ASSERT_EQ(group.size, d1 - d0);
        ASSERT_EQ(group.servers, same.servers);
        ASSERT_EQ(group.capacity_bytes, same.capacity_bytes);
        ASSERT_EQ(group.port_bytes_per_ms, same.port_bytes_per_ms);
        ASSERT_EQ(group.ring_bytes_per_ms, same.ring_bytes_per_ms);
        ASSERT_DOUBLE_EQ(group.all_reduce.ms(1e9), same.all_reduce.ms(1e9));
        ASSERT_DOUBLE_EQ(group.scatter.ms(1e9), same.scatter.ms(1e9));
        ASSERT_DOUBLE_EQ(problem.compute_ms(0, n, group), alone.compute_ms(0, n, same));
        // Where it stands in the order of all devices counts for what it exchanges with others.
        machine::CollectiveGroup ring;
        ring.devices = group.size;
        ring.servers = group.servers;
        std::vector<int> in_server(static_cast<std::size_t>(problem.num_servers()), 0);
        for (const int d : own) ++in_server[static_cast<std::size_t>(problem.server_of_device(d))];
        ring.devices_per_server = *std::max_element(in_server.begin(), in_server.end());
        ring.intra_bytes_per_ms = kInfinity;
        for (int d = d0; d < d1; ++d) {
          const machine::ServerGroup& servers = cluster.servers[group_of_server(cluster, problem.server_of_device(d))];
          ring.intra_bytes_per_ms =
              std::min(ring.intra_bytes_per_ms, servers.intra_gbytes_per_s * machine::kBytesPerMsPerGByteS);
        }
        ring.inter_bytes_per_ms = group.port_bytes_per_ms;
        ring.intra_latency_ms = cluster.intra_latency_us * 1e-3;
        ring.inter_latency_ms = cluster.inter_latency_us * 1e-3;
        const bool first = problem.server_of_device(d1 - 1) == 0;
        const bool last = problem.server_of_device(d0) == problem.num_servers() - 1;
        ASSERT_DOUBLE_EQ(group.exchange_in_front.ms(1e9), machine::exchange(ring, first).ms(1e9));
        ASSERT_DOUBLE_EQ(group.exchange_behind.ms(1e9), machine::exchange(ring, last).ms(1e9));
      }
    }
  }
}

// Devices of a group wait for each other: it takes what it takes on the type that is slowest for the whole model,
// whatever is quick on it, in whatever order the servers stand.
TEST(Problem, GroupsOfSeveralTypesTakeTheSlowest) {
  Profile profile;
  profile.model = "mixed";
  profile.c_ms = {3, 5, 1};
  profile.a_bytes = {8, 8, 0};
  profile.w_bytes = {1e6, 1e6, 1e6};
  profile.stash_bytes = {0, 0, 0};
  profile.micro_batch_size = 2;
  // The first position is quick on "new", the last one on "old", which is slower in all; both know 1 and 2 samples.
  profile.times = {{"new", {1, 2}, {{1, 1, 4}, {2, 2, 5}}, {{2, 2, 6}, {4, 4, 7}}, {0.1, 0.2, 0.3}},
                   {"old", {1, 2}, {{3, 3, 1}, {6, 4, 2}}, {{6, 3, 1}, {9, 5, 2}}, {0.2, 0.1, 0.3}}};
  Cluster cluster;
  cluster.name = "both";
  for (const char* device : {"new", "old"}) {
    cluster.devices[device].memory_gib = 1;
    machine::ServerGroup servers;
    servers.count = 1;
    servers.devices = 1;
    servers.device = device;
    servers.intra_gbytes_per_s = servers.inter_gbytes_per_s = 1;
    cluster.servers.push_back(servers);
  }
  ProblemOptions options;
  options.replicas = Replicas::kWhole;
  options.optimizer = true;
  options.micro_batch_samples = 2;
  for (const bool turned : {false, true}) {
    SCOPED_TRACE(turned);
    Cluster order = cluster;
    if (turned) std::swap(order.servers[0], order.servers[1]);
    const Problem problem(profile, order, options);
    const DeviceGroup& both = problem.group(0, 2);
    const double forward[] = {3, 3, 1}, backward[] = {6, 3, 1}, optimizer[] = {0.2, 0.1, 0.3};  // "old"
    for (int i = 0; i < 3; ++i) {
      EXPECT_DOUBLE_EQ(problem.compute_ms(i, i + 1, both), forward[i] + backward[i]) << i;
      EXPECT_DOUBLE_EQ(problem.backward_ms(i, i + 1, both), backward[i]) << i;
      const StageColumns& columns = problem.columns(both);
      EXPECT_NEAR(columns.optimizer[i + 1] - columns.optimizer[i], optimizer[i], 1e-12) << i;
    }
    // Alone, each device takes its own time for both samples.
    const int fresh = turned ? 1 : 0;
    EXPECT_DOUBLE_EQ(problem.compute_ms(0, 3, problem.group(fresh, fresh + 1)), 2 + 2 + 5 + 4 + 4 + 7);
    EXPECT_DOUBLE_EQ(problem.compute_ms(0, 3, problem.group(1 - fresh, 2 - fresh)), 6 + 4 + 2 + 9 + 5 + 2);
    // Bounds: no group is quicker than its work over the speeds of its devices.
    for (int i = 0; i < 3; ++i) {
      for (const auto& [d0, d1] : {std::make_pair(0, 1), std::make_pair(1, 2), std::make_pair(0, 2)}) {
        double speed = 0;
        for (int d = d0; d < d1; ++d) speed += problem.device_speed(d);
        EXPECT_GE(problem.compute_ms(i, i + 1, problem.group(d0, d1)), problem.work_ms(i, i + 1) / speed * (1 - 1e-12));
      }
    }
  }
}

}  // namespace
}  // namespace automap::pipeline
