#include "common/pipeline/coarse_profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/base/rng.h"
#include "common/machine/cluster.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/random_problem.h"

namespace automap::pipeline {
namespace {

TEST(CoarseProfile, TheHeadersCase) {
  Profile profile;
  profile.c_ms = {1, 2, 3, 4};
  profile.a_bytes = {9, 5, 7, 0};
  profile.w_bytes = {1, 0, 2, 0};
  profile.stash_bytes = {1, 1, 1, 1};
  profile.workspace_bytes = {1, 8, 2, 3};
  profile.layer_entry_bytes = {0, 9, 3, 7};
  profile.stage_entry_bytes = {0, 0, 2, 0};
  profile.weight_share = {0.5, 0.2, 0, 0.7};
  profile.layer = {"a", "b", "c", "d"};
  profile.shared = {{1, 2, 4, 4, 4}, {1, 4, 8, 8, 8}};
  EXPECT_EQ(thinnest_cuts(profile, 2), (std::vector<int>{2, 4}));
  EXPECT_EQ(thinnest_cuts(profile, 9), (std::vector<int>{1, 2, 3, 4}));
  Profile heavy = profile;
  heavy.c_ms = {1, 1, 9, 1};
  EXPECT_EQ(thinnest_cuts(heavy, 2), (std::vector<int>{2, 3, 4}));
  const Profile coarse = coarse_profile(profile, {2, 4});
  EXPECT_EQ(coarse.c_ms, (std::vector<double>{3, 7}));
  EXPECT_EQ(coarse.a_bytes, (std::vector<double>{5, 0}));
  EXPECT_EQ(coarse.w_bytes, (std::vector<double>{1, 2}));
  EXPECT_EQ(coarse.workspace_bytes, (std::vector<double>{8, 3}));
  EXPECT_EQ(coarse.layer_entry_bytes, (std::vector<double>{9, 10}));
  EXPECT_EQ(coarse.stage_entry_bytes, (std::vector<double>{0, 2}));
  EXPECT_DOUBLE_EQ(coarse.weight_share[0], (1 * 0.5 + 2 * 0.2) / 3);
  EXPECT_DOUBLE_EQ(coarse.weight_share[1], 4 * 0.7 / 7);
  EXPECT_EQ(coarse.layer, (std::vector<std::string>{"a", "c"}));
  ASSERT_EQ(coarse.shared.size(), 1u);  // the other is used in one position only
  EXPECT_EQ(coarse.shared[0].first, 1);
  EXPECT_EQ(coarse.shared[0].position, 2);
  EXPECT_EQ(coarse_profile(profile, {1, 2, 3, 4}).c_ms, profile.c_ms);
}

// The thinnest cut of each part, and none twice.
TEST(CoarseProfile, CutsAreTheThinnest) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed, 1, 0);
    Profile profile;
    const int n = 2 + static_cast<int>(rng.below(60)), positions = 1 + static_cast<int>(rng.below(20));
    for (int i = 0; i < n; ++i) {
      profile.c_ms.push_back(1);
      profile.a_bytes.push_back(static_cast<double>(rng.below(50)));
      profile.w_bytes.push_back(1);
      profile.stash_bytes.push_back(1);
    }
    const Profile coarse = coarse_profile(profile, thinnest_cuts(profile, positions));
    ASSERT_LE(coarse.size(), n <= positions ? n : positions);
    double positions_in_all = 0;
    for (const double one : coarse.w_bytes) {
      EXPECT_GE(one, 1);
      positions_in_all += one;
    }
    EXPECT_EQ(positions_in_all, n);
    if (n <= positions) continue;
    std::size_t end = 0;
    for (std::size_t k = 0; k < coarse.w_bytes.size(); ++k) {
      end += static_cast<std::size_t>(coarse.w_bytes[k]);
      EXPECT_EQ(coarse.a_bytes[k], profile.a_bytes[end - 1]);
      const auto first = profile.a_bytes.begin() + static_cast<std::ptrdiff_t>(k * static_cast<std::size_t>(n) /
                                                                               static_cast<std::size_t>(positions));
      const auto last = profile.a_bytes.begin() + static_cast<std::ptrdiff_t>((k + 1) * static_cast<std::size_t>(n) /
                                                                              static_cast<std::size_t>(positions));
      if (end < static_cast<std::size_t>(n)) {
        EXPECT_EQ(coarse.a_bytes[k], *std::min_element(first, last));
      }
    }
    EXPECT_EQ(end, static_cast<std::size_t>(n));
  }
}

// A stage between two of its cuts costs what it does in the profile.
TEST(CoarseProfile, StagesAreTheSame) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed, 2, 0);
    RandomProblemOptions options;
    options.min_instructions = 4;
    options.max_instructions = 40;
    options.whole = 0.7;
    options.with_zero = options.with_recompute = 0;
    const RandomProblem whole = random_problem(seed, options);
    const int n = static_cast<int>(whole.profile.size());
    const int positions = 2 + static_cast<int>(rng.below(4));
    if (n <= positions) continue;
    std::vector<int> cut_of = thinnest_cuts(whole.profile, positions);
    const Profile coarse = coarse_profile(whole.profile, cut_of);
    cut_of.insert(cut_of.begin(), 0);
    const Problem fine(whole.profile, whole.cluster, whole.options), rough(coarse, whole.cluster, whole.options);
    const DeviceGroup& group = fine.group(0, 1);
    if (!group.valid) continue;
    for (int p0 = 0; p0 < rough.num_instructions(); ++p0) {
      for (int p1 = p0 + 1; p1 <= rough.num_instructions(); ++p1) {
        const int q0 = cut_of[static_cast<std::size_t>(p0)], q1 = cut_of[static_cast<std::size_t>(p1)];
        const double ms = fine.compute_ms(q0, q1, group);
        EXPECT_NEAR(rough.compute_ms(p0, p1, rough.group(0, 1)), ms, 1e-9 * std::max(1.0, ms)) << seed;
        EXPECT_NEAR(rough.weight_bytes(p0, p1), fine.weight_bytes(q0, q1), 1e-6 * (1 + fine.weight_bytes(0, n)));
        EXPECT_NEAR(rough.stash_bytes(p0, p1), fine.stash_bytes(q0, q1), 1e-6 * (1 + fine.stash_bytes(0, n)));
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 300);
}

}  // namespace
}  // namespace automap::pipeline
