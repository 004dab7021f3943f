#include "plan/partition/independent_set.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/rng.h"

namespace automap::partition {
namespace {

struct RandomSets {
  std::vector<std::vector<std::int32_t>> neighbours;
  std::vector<std::int64_t> weight;

  // In a few parts, so that the solver takes them one by one.
  RandomSets(Rng* rng, std::int32_t n, std::uint64_t parts) : neighbours(static_cast<std::size_t>(n)) {
    for (std::int32_t v = 0; v < n; ++v) weight.push_back(static_cast<std::int64_t>(rng->below(20)) - 2);
    for (std::int32_t a = 0; a < n; ++a) {
      for (std::int32_t b = a + 1; b < n; ++b) {
        if (static_cast<std::uint64_t>(a) % parts != static_cast<std::uint64_t>(b) % parts || rng->below(2) == 0)
          continue;
        neighbours[static_cast<std::size_t>(a)].push_back(b);
        neighbours[static_cast<std::size_t>(b)].push_back(a);
      }
    }
  }

  // -1: two of them are neighbours.
  std::int64_t weight_of(std::uint32_t set) const {
    std::int64_t sum = 0;
    for (std::size_t v = 0; v < weight.size(); ++v) {
      if ((set >> v & 1u) == 0) continue;
      sum += weight[v];
      for (const std::int32_t u : neighbours[v]) {
        if ((set >> u & 1u) != 0) return -1;
      }
    }
    return sum;
  }

  std::int64_t heaviest() const {
    std::int64_t best = 0;
    for (std::uint32_t set = 0; set < 1u << weight.size(); ++set) best = std::max(best, weight_of(set));
    return best;
  }
};

// Beside all sets, however early the work ends.
TEST(SetSolver, BoundsHoldWhereverTheWorkEnds) {
  int exact = 0, ended = 0;
  for (std::uint64_t item = 0; item < 40; ++item) {
    Rng rng(5, 1, item);
    const RandomSets made(&rng, 16, 1 + item % 2);
    const std::int64_t heaviest = made.heaviest();
    for (const std::int64_t units : {0, 20, 100, 400, 1'000'000}) {
      WorkLimits limits;
      limits.units = units;
      Work work(limits);
      SetStatistics statistics;
      const SetResult found = SetSolver(&work, &statistics).solve(make_set_graph(made.neighbours, made.weight));
      std::uint32_t set = 0;
      for (const std::int32_t v : found.vertices) set |= 1u << v;
      ASSERT_EQ(made.weight_of(set), found.weight) << item;
      ASSERT_LE(found.weight, heaviest) << item;
      ASSERT_GE(found.bound, heaviest) << item << " after " << units;
      exact += found.exact();
      ended += !found.exact();
      if (units == 1'000'000) {
        ASSERT_TRUE(found.exact()) << item;
      }
    }
  }
  EXPECT_GT(exact, 40);
  EXPECT_GT(ended, 20);
}

}  // namespace
}  // namespace automap::partition
