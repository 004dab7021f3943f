#include "common/base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace automap {
namespace {

TEST(Rng, PhiloxKnownAnswers) {
  // From the authors' distribution (Random123, kat_vectors).
  using Block = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, DependsOnSeedStreamAndItemOnly) {
  Rng a(7, 1, 5), b(7, 1, 5);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.next_u32(), b.next_u32());
  std::set<std::uint64_t> firsts;
  for (std::uint64_t seed : {0ull, 1ull, 1ull << 32}) {
    for (std::uint32_t stream : {0u, 1u}) {
      for (std::uint64_t item : {0ull, 1ull, 1ull << 32}) firsts.insert(Rng(seed, stream, item).next_u64());
    }
  }
  EXPECT_EQ(firsts.size(), 18u);
}

TEST(Rng, UniformFillsTheUnitIntervalEvenly) {
  std::vector<int> bins(100);
  double sum = 0;
  constexpr int kDraws = 200000;
  Rng rng(3, 0, 0);
  for (int i = 0; i < kDraws; ++i) {
    const double x = rng.uniform();
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    sum += x;
    ++bins[static_cast<std::size_t>(x * 100)];
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.003);
  double chi2 = 0;
  for (const int count : bins) chi2 += (count - kDraws / 100.0) * (count - kDraws / 100.0) / (kDraws / 100.0);
  EXPECT_LT(chi2, 149);  // 99 degrees of freedom, 99.9 %
  EXPECT_GT(chi2, 60);
}

TEST(Rng, BelowIsEvenForAwkwardCounts) {
  for (const std::uint64_t count : {1ull, 2ull, 3ull, 7ull, 10ull}) {
    std::vector<int> seen(count);
    for (std::uint64_t item = 0; item < 7000; ++item) ++seen[Rng(11, 2, item).below(count)];
    for (const int times : seen)
      EXPECT_NEAR(times, 7000.0 / static_cast<double>(count), 5 * std::sqrt(7000.0 / static_cast<double>(count)));
  }
  Rng rng(1, 1, 1);
  const std::uint64_t most = (std::uint64_t{1} << 63) + 1;  // nearly every second draw must be rejected
  for (int i = 0; i < 100; ++i) EXPECT_LT(rng.below(most), most);
}

}  // namespace
}  // namespace automap
