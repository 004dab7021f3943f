#include "common/pipeline/row_problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "common/base/error.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/row.h"

namespace automap::pipeline {
namespace {

RowProblem small_row() {
  RowProblem row;
  row.num_instructions = 4;
  row.scale_ms = 8;
  for (std::size_t k = 0; k < 128; ++k) {
    const auto i = static_cast<float>((k + 1) * 4 / 128);  // i_k
    row.caw[k] = i / 4;
    row.caw[128 + k] = i == 0 ? 0 : 0.5f;
    row.caw[256 + k] = i / 8;
  }
  row.servers = 2;
  row.devices_per_server = 4;
  row.intra_over_inter = 10;
  row.stages = 2;
  return row;
}

TEST(RowProblem, TheWayBackByHand) {
  RowProblem row = small_row();
  row.memory_limit = 2;
  row.stash_factor = 0.25;
  row.hop_latency = 0.5;
  const ProblemParts parts = problem_of_row(row);
  ASSERT_EQ(parts.profile.size(), 4);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(parts.profile.c_ms[i], 2);       // 8 ms / 4
    EXPECT_EQ(parts.profile.a_bytes[i], 4e6);  // 0.5 * 8 ms at 1 GB/s
    EXPECT_EQ(parts.profile.w_bytes[i], 1e6);  // 8 / 8 ms
    EXPECT_EQ(parts.profile.stash_bytes[i], 1e6);
  }
  EXPECT_EQ(parts.cluster.num_devices(), 8);
  EXPECT_EQ(parts.cluster.num_servers(), 2);
  EXPECT_EQ(parts.cluster.servers[0].inter_gbytes_per_s, 1);
  EXPECT_EQ(parts.cluster.servers[0].intra_gbytes_per_s, 10);
  EXPECT_DOUBLE_EQ(parts.cluster.inter_latency_us, 4000);  // 0.5 * 8 ms
  EXPECT_DOUBLE_EQ(parts.cluster.intra_latency_us, 400);
  EXPECT_TRUE(parts.options.memory);
  EXPECT_NEAR(parts.problem().group(0, 1).capacity_bytes, 16e6, 1);
  row.memory_limit = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(problem_of_row(row).options.memory);
}

TEST(RowProblem, WholeSamplesByHand) {
  RowProblem row = small_row();
  row.samples = 4;
  row.schedule = Schedule::kAdaptive;
  row.forward_fraction = 0.25f;
  row.launch_share = 0.5f;
  row.gradient_share = 0.5f;
  row.slot_factor = 6;
  row.gradient_sync = 1;
  row.bucket = 0.125f;
  row.optimizer_factor = 0.5f;
  row.workspace_factor = 2;
  row.zero = 1;
  row.layers = 2;
  ASSERT_NO_THROW(check_row(row));
  const ProblemParts parts = problem_of_row(row);
  const Problem problem = parts.problem();
  EXPECT_EQ(problem.group_sizes(), (std::vector<int>{1, 2, 4}));
  EXPECT_FALSE(problem.group(0, 3).valid);
  // c(4) = 2 ms each; fixed = 0.5 c(1), so c(1) = 0.8, c(2) = 1.2: 0.4 and 0.4 a sample.
  EXPECT_NEAR(problem.compute_ms(0, 1, problem.group(0, 1)), 2, 1e-9);
  EXPECT_NEAR(problem.compute_ms(0, 1, problem.group(0, 2)), 1.2, 1e-9);
  EXPECT_NEAR(problem.compute_ms(0, 1, problem.group(0, 4)), 0.8, 1e-9);
  EXPECT_NEAR(problem.backward_ms(0, 1, problem.group(0, 4)), 0.6, 1e-9);
  EXPECT_NEAR(problem.gradient_bytes(0, 4), 2e6, 1e-6);                   // half of 4 x 1e6
  EXPECT_NEAR(parts.options.bucket_bytes, 1e6, 1e-6);                     // 0.125 * 8 ms
  EXPECT_NEAR(problem.optimizer_ms(0, 4, problem.group(0, 1)), 2, 1e-9);  // half of 4 ms
  EXPECT_EQ(problem.options().variants, (std::vector<StageVariant>{{0, false}, {1, false}, {0, true}, {1, true}}));
  EXPECT_EQ(variants_of_row(row), 4);
  const MemoryParts memory = problem.memory_parts(0, 4, problem.group(0, 2), 1, 1);
  EXPECT_NEAR(memory.weights, 4e6, 1e-3);
  EXPECT_NEAR(memory.gradients, 4e6, 1e-3);  // sums over micro-batches are as wide as the weights
  EXPECT_NEAR(memory.slots, 12e6, 1e-3);     // 6 x 4e6, sharded over two
  EXPECT_NEAR(memory.workspace, 4e6, 1e-3);  // twice the activation, two of four samples
  // Recomputation runs the forward again.
  EXPECT_NEAR(problem.backward_ms(0, 4, problem.group(0, 1), 2), 8, 1e-9);
  EXPECT_FALSE(parts.options.allow_idle_stages);
}

// The slow twin of groups_of_row_exist().
bool can_share(int devices, int stages, int samples) {
  if (stages == 0) return devices == 0;
  for (int size = 1; size <= devices; ++size) {
    if (samples % size == 0 && can_share(devices - size, stages - 1, samples)) return true;
  }
  return false;
}

TEST(RowProblem, GroupsOfWholeSamples) {
  RowProblem row = small_row();
  EXPECT_TRUE(groups_of_row_exist(row));
  int none = 0;
  for (row.devices_per_server = 1; row.devices_per_server <= 7; ++row.devices_per_server) {
    for (row.stages = 1; row.stages <= 6; ++row.stages) {
      for (row.samples = 1; row.samples <= 13; ++row.samples) {
        const bool expected = can_share(devices_of_row(row), row.stages, row.samples);
        EXPECT_EQ(groups_of_row_exist(row), expected) << devices_of_row(row) << " " << row.stages << " " << row.samples;
        none += expected ? 0 : 1;
      }
    }
  }
  EXPECT_GT(none, 50);
  EXPECT_TRUE(groups_exist(130, 3, 64));  // 64 + 64 + 2
  EXPECT_FALSE(groups_exist(130, 2, 64));
  EXPECT_TRUE(groups_exist(1024, 16, 64));
}

// The time of one position may be mostly launches, and never shrinks to nothing.
TEST(RowProblem, FixedTimesStayBelowTheWhole) {
  RowProblem row = small_row();
  row.samples = 8;
  row.launch_share = 0.999f;
  row.launch_even = 1;
  for (std::size_t k = 0; k < 128; ++k) row.caw[k] = k < 63 ? 0.0f : row.caw[k];
  const Problem problem = problem_of_row(row).problem();
  for (int p = 0; p < 4; ++p) {
    const double all = problem.compute_ms(p, p + 1, problem.group(0, 1));
    const double one = problem.compute_ms(p, p + 1, problem.group(0, 8));
    EXPECT_LE(one, all);
    EXPECT_GE(one, all / 8);
  }
}

// Plans of a problem whose cuts stand on the grid, as plans of its row.
void check_values(const RandomProblem& random, Schedule schedule, std::uint64_t seed, int* compared) {
  const Problem problem = random.problem();
  const Row grid = make_row(random.profile, random.cluster);
  std::vector<int> pivots;  // instruction cut of each cut 1, 2, .. of the row's problem
  for (std::size_t k = 0; k < 128; ++k) {
    if (grid.is_pivot(k)) pivots.push_back(grid.instruction[k]);
  }
  CounterRandom draw(seed, 1);
  for (int stages : {1, 2, 3, 5}) {
    const RowProblem row = row_of_problem(random.profile, random.cluster, random.options, stages, schedule);
    ASSERT_NO_THROW(check_row(row));
    const ProblemParts parts = problem_of_row(row);
    const Problem back = parts.problem();
    ASSERT_EQ(back.num_instructions(), static_cast<int>(pivots.size()) + 1);
    ASSERT_EQ(back.num_devices(), problem.num_devices());
    for (int i = 0; i < 20; ++i) {
      const Plan plan = random_plan(back, stages, schedule, draw);
      Plan original = plan;
      for (int& cut : original.cuts) cut = pivots[static_cast<std::size_t>(cut - 1)];
      const double expected = value_ms(problem, original), found = value_ms(back, plan);
      EXPECT_NEAR(found, expected, 1e-4 * expected) << "seed " << seed << " stages " << stages;
      ++*compared;
    }
  }
}

TEST(RowProblem, ValueOfGridPlansSurvivesTheRoundTrip) {
  RandomProblemOptions options;
  options.min_instructions = 20;
  options.with_zeros = 0.3;
  options.forward_heavy = 0.3;
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    options.min_servers = options.max_servers = 1 + static_cast<int>(seed % 5);
    options.min_devices = options.max_devices = seed % 5 == 0 ? 8 : 1 + static_cast<int>(seed % 7);
    if (options.max_servers * options.max_devices < 5) continue;
    RandomProblem random = random_problem(seed, options);
    if (seed % 3 == 0) {
      random.cluster.inter_latency_us = 50;
      random.cluster.intra_latency_us = 5;
    }
    check_values(random, seed % 2 == 0 ? Schedule::k1f1b : Schedule::k1f1bOverlap, seed, &compared);
  }
  EXPECT_GT(compared, 3000);
}

TEST(RowProblem, LinksInsideServersMayBeTheSlowest) {
  RandomProblem random = random_problem(5);
  for (ServerGroup& group : random.cluster.servers) {
    group.intra_gbytes_per_s = 2;
    group.inter_gbytes_per_s = 6;
  }
  const RowProblem row = row_of_problem(random.profile, random.cluster, random.options, 3, Schedule::k1f1b);
  EXPECT_FLOAT_EQ(row.intra_over_inter, 1.0f / 3);
  int compared = 0;
  check_values(random, Schedule::k1f1b, 5, &compared);
  EXPECT_GT(compared, 0);
}

// The whole model on every device is the one case where stash need not be proportional to anything.
TEST(RowProblem, MemoryMeansTheSameForAnyStateFactor) {
  for (double factor : {2.0, 4.0, 6.0}) {
    RandomProblem random = random_problem(9);
    random.options.state_factor = factor;
    for (auto& entry : random.cluster.devices) entry.second.memory_gib = 1e-3;
    const RowProblem row = row_of_problem(random.profile, random.cluster, random.options, 1, Schedule::k1f1b);
    const Problem before = random.problem(), after = problem_of_row(row).problem();
    const int d = before.num_devices();
    const DeviceGroup &g = before.group(0, d), &h = after.group(0, d);
    EXPECT_NEAR(before.memory_bytes(0, before.num_instructions(), g, 1) / g.capacity_bytes,
                after.memory_bytes(0, after.num_instructions(), h, 1) / h.capacity_bytes, 1e-4);
  }
}

TEST(RowProblem, ARowOfItsOwnProblemIsTheRowAgain) {
  RowProblem row = small_row();
  row.server_seed = 0;
  const ProblemParts parts = problem_of_row(row);
  const RowProblem again = row_of_problem(parts.profile, parts.cluster, parts.options, row.stages, row.schedule);
  EXPECT_EQ(again.num_instructions, row.num_instructions);
  EXPECT_EQ(again.caw, row.caw);
  EXPECT_EQ(again.scale_ms, row.scale_ms);
  EXPECT_EQ(again.servers, row.servers);
  EXPECT_EQ(again.intra_over_inter, row.intra_over_inter);
}

TEST(RowProblem, ServersThatDiffer) {
  RowProblem row = small_row();
  row.servers = 8;
  row.devices_per_server = 8;
  row.memory_limit = 1;
  bool fewer = false, speeds = false, memory = false, links = false;
  for (std::uint32_t seed = 1; seed <= 100; ++seed) {
    row.server_seed = seed;
    const ProblemParts parts = problem_of_row(row);
    const Problem problem = parts.problem();
    EXPECT_EQ(parts.cluster.num_servers(), 8);
    EXPECT_EQ(problem.num_devices(), devices_of_row(row));
    EXPECT_GE(problem.num_devices(), 32);
    EXPECT_LE(problem.num_devices(), 64);
    // A' and W' are ms at the slowest link, and memory_limit is the smallest.
    EXPECT_DOUBLE_EQ(slowest_link_bytes_per_ms(parts.cluster), 1e6);
    EXPECT_NEAR(problem.group(0, problem.num_devices()).capacity_bytes, 8e6, 1);
    fewer = fewer || problem.num_devices() < 64;
    const std::string once = to_json_text(parts.cluster);
    EXPECT_EQ(to_json_text(problem_of_row(row).cluster), once);
    for (const auto& [name, type] : parts.cluster.devices) {
      speeds = speeds || type.relative_speed != 1;
      memory = memory || type.memory_gib * 1073741824.0 > 9e6;
    }
    for (const ServerGroup& group : parts.cluster.servers) links = links || group.inter_gbytes_per_s > 1;
  }
  EXPECT_TRUE(fewer && speeds && memory && links);
  row.servers = 1;
  EXPECT_EQ(devices_of_row(row), 8);  // nobody to differ from
}

TEST(RowProblem, UnequalClustersBecomeEqualOnesOfTheSameTotal) {
  RandomProblem random = random_problem(3);
  random.cluster.servers.resize(3);
  random.cluster.servers[0].devices = 8;
  random.cluster.servers[1].devices = 4;
  random.cluster.servers[2].devices = 4;
  const RowProblem row = row_of_problem(random.profile, random.cluster, random.options, 2, Schedule::k1f1b);
  EXPECT_EQ(row.servers, 2);
  EXPECT_EQ(row.devices_per_server, 8);
}

TEST(RowProblem, NonsenseIsNamed) {
  const auto message = [](const std::function<void(RowProblem&)>& spoil) -> std::string {
    RowProblem row = small_row();
    spoil(row);
    try {
      problem_of_row(row);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      return error.what();
    }
    return "no error";
  };
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(message([](RowProblem&) {}), "no error");
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text << " lacks " << part;
  };
  has(message([&](RowProblem& r) { r.caw[40] = nan; }), "C', point 41");
  has(message([](RowProblem& r) { r.caw[127] = 1.5f; }), "C', point 128");
  has(message([](RowProblem& r) { r.caw[128 + 31] = -1; }), "A', point 32");
  has(message([](RowProblem& r) { r.caw[63] = 0.125f; }), "does not fall");
  has(message([](RowProblem& r) { r.caw[256 + 127] = 0; }), "W', point 128");
  has(message([](RowProblem& r) { r.caw[128 + 40] = 0.75f; }), "the same number again");
  has(message([](RowProblem& r) { std::fill(r.caw.begin(), r.caw.begin() + 128, 0.0f); }), "zero everywhere");
  has(message([&](RowProblem& r) { r.scale_ms = nan; }), "scale_ms");
  has(message([&](RowProblem& r) { r.scale_ms = inf; }), "scale_ms");
  has(message([](RowProblem& r) { r.scale_ms = 0; }), "scale_ms");
  has(message([](RowProblem& r) { r.num_instructions = 1; }), "num_instructions");
  has(message([](RowProblem& r) { r.servers = 0; }), "servers");
  has(message([](RowProblem& r) { r.devices_per_server = 0; }), "devices");
  has(message([](RowProblem& r) { r.servers = r.devices_per_server = 65535; }), "devices");
  has(message([&](RowProblem& r) { r.intra_over_inter = nan; }), "intra_over_inter");
  has(message([](RowProblem& r) { r.micro_batches = 0; }), "micro_batches");
  has(message([](RowProblem& r) { r.stages = 0; }), "stages");
  has(message([](RowProblem& r) { r.stages = 5; }), "stages is 5, expected 1 to 4");
  has(message([&](RowProblem& r) { r.memory_limit = nan; }), "memory_limit");
  has(message([](RowProblem& r) { r.memory_limit = 0; }), "memory_limit");
  has(message([](RowProblem& r) { r.forward_fraction = 0; }), "forward_fraction");
  has(message([&](RowProblem& r) { r.forward_fraction = nan; }), "forward_fraction");
  has(message([](RowProblem& r) { r.stash_factor = -1; }), "stash_factor");
  has(message([&](RowProblem& r) { r.hop_latency = inf; }), "hop_latency");
  has(message([](RowProblem& r) { r.schedule = static_cast<Schedule>(7); }), "schedule is 7");
}

}  // namespace
}  // namespace automap::pipeline
