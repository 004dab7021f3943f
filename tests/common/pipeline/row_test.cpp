#include "common/pipeline/row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/base/error.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/random_problem.h"

namespace automap::pipeline {
namespace {

TEST(Row, WorkedCaseOfTheHeader) {
  Profile profile;
  profile.c_ms = {1, 3};
  profile.a_bytes = {1e6, 0};
  profile.w_bytes = {0, 2e6};
  profile.stash_bytes = {0, 0};
  Cluster cluster = machine::load_cluster("config-a");
  cluster.servers[0].inter_gbytes_per_s = 1;
  const Row row = make_row(profile, cluster);
  EXPECT_EQ(row.scale_ms, 4);
  for (std::size_t k = 0; k < 128; ++k) {
    const int expected = k + 1 < 64 ? 0 : k + 1 < 128 ? 1 : 2;
    EXPECT_EQ(row.instruction[k], expected);
    EXPECT_EQ(row.repeated[k], k + 1 != 64 && k + 1 != 128);
    EXPECT_EQ(row.is_pivot(k), k + 1 == 64);
    EXPECT_EQ(row.compute[k], expected == 0 ? 0.0f : expected == 1 ? 0.25f : 1.0f);
    EXPECT_EQ(row.activation[k], expected == 1 ? 0.25f : 0.0f);
    EXPECT_EQ(row.weight[k], expected == 2 ? 0.5f : 0.0f);
  }
}

// The definition, summed anew for every point.
TEST(Row, EqualsTheDefinitionOnRandomProblems) {
  RandomProblemOptions options;
  options.min_instructions = 2;
  options.max_instructions = 600;
  options.heterogeneous = 0.5;
  options.min_servers = 1;
  options.with_zeros = 0.3;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = random_problem(seed, options);
    const Profile& profile = made.profile;
    const Row row = make_row(profile, made.cluster);
    double slowest = 1e300;
    for (const ServerGroup& group : made.cluster.servers) {
      slowest = std::min(slowest, 1e6 * group.intra_gbytes_per_s);
      if (made.cluster.num_servers() > 1) slowest = std::min(slowest, 1e6 * group.inter_gbytes_per_s);
    }
    const int n = static_cast<int>(profile.size());
    double largest = 0;
    float largest_entry = 0;
    std::vector<int> pivots;
    for (int k = 1; k <= 128; ++k) {
      const std::size_t at = static_cast<std::size_t>(k - 1);
      const int i = k * n / 128;
      ASSERT_EQ(row.instruction[at], i);
      double c = 0, w = 0;
      for (int j = 0; j < i; ++j) {
        c += profile.c_ms[static_cast<std::size_t>(j)];
        w += profile.w_bytes[static_cast<std::size_t>(j)];
      }
      w /= slowest;
      const double a = i == 0 ? 0 : profile.a_bytes[static_cast<std::size_t>(i - 1)] / slowest;
      largest = std::max({largest, c, w, a});
      ASSERT_NEAR(row.compute[at] * row.scale_ms, c, 1e-6 * row.scale_ms);
      ASSERT_NEAR(row.weight[at] * row.scale_ms, w, 1e-6 * row.scale_ms);
      ASSERT_NEAR(row.activation[at] * row.scale_ms, a, 1e-6 * row.scale_ms);
      for (float value : {row.compute[at], row.weight[at], row.activation[at]}) {
        ASSERT_GE(value, 0);
        ASSERT_LE(value, 1);
        largest_entry = std::max(largest_entry, value);
      }
      if (row.is_pivot(at)) pivots.push_back(i);
    }
    ASSERT_NEAR(row.scale_ms, largest, 1e-9 * largest);
    ASSERT_EQ(largest_entry, 1);
    ASSERT_EQ(pivots, grid_pivots(n, 128));
  }
}

TEST(Row, IsTheSameWhenTimeRunsFaster) {
  RandomProblem made = random_problem(5);
  const Row row = make_row(made.profile, made.cluster);
  for (double& c : made.profile.c_ms) c *= 8;
  for (ServerGroup& group : made.cluster.servers) {
    group.intra_gbytes_per_s /= 8;
    group.inter_gbytes_per_s /= 8;
  }
  const Row slower = make_row(made.profile, made.cluster);
  EXPECT_EQ(slower.compute, row.compute);
  EXPECT_EQ(slower.activation, row.activation);
  EXPECT_EQ(slower.weight, row.weight);
  EXPECT_DOUBLE_EQ(slower.scale_ms, 8 * row.scale_ms);
}

TEST(Row, SlowestLinkCountsOnlyLinksThatAreThere) {
  Cluster cluster = machine::load_cluster("config-a");
  EXPECT_EQ(slowest_link_bytes_per_ms(cluster), 3.125e6);
  cluster.servers[0].count = 1;
  EXPECT_EQ(slowest_link_bytes_per_ms(cluster), 130e6);
  cluster.servers[0].devices = 1;
  EXPECT_EQ(slowest_link_bytes_per_ms(cluster), 130e6);
  cluster.servers[0].count = 4;
  EXPECT_EQ(slowest_link_bytes_per_ms(cluster), 3.125e6);
  cluster.servers[0].inter_gbytes_per_s = 500;
  EXPECT_EQ(slowest_link_bytes_per_ms(cluster), 500e6);
}

TEST(Row, RefusesWhatCannotBePlanned) {
  RandomProblem made = random_problem(1);
  made.profile.c_ms[3] = -1;
  EXPECT_THROW(make_row(made.profile, made.cluster), Error);
}

}  // namespace
}  // namespace automap::pipeline
