#include "plan/partition/labelling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/base/numbers.h"
#include "common/base/rng.h"

namespace automap::partition {
namespace {

Labelling solve(const LabellingProblem& problem, std::int64_t most_entries = 1 << 16,
                std::int64_t units = WorkLimits::kNoEnd) {
  Work work(WorkLimits::of_units(units));
  LabellingOptions options;
  options.most_entries = most_entries;
  return solve_labelling(problem, options, work);
}

// Every labelling there is.
double least_cost(const LabellingProblem& problem) {
  std::vector<std::int32_t> labels(problem.sites.size(), 0);
  double least = kInfinity;
  while (true) {
    double memory = 0;
    const double cost = labelling_cost(problem, labels, &memory);
    if (memory <= problem.memory_limit) least = std::min(least, cost);
    std::size_t i = 0;
    for (; i < labels.size(); ++i) {
      if (++labels[i] < static_cast<std::int32_t>(problem.sites[i].cost.size())) break;
      labels[i] = 0;
    }
    if (i == labels.size()) return least;
  }
}

LabellingProblem random_labelling(Rng& rng) {
  LabellingProblem problem;
  const int sites = static_cast<int>(1 + rng.below(9));
  const bool memory = rng.below(2) == 0;
  double most = 0, least = 0;
  for (int i = 0; i < sites; ++i) {
    LabellingProblem::Site site;
    const auto labels = 1 + rng.below(3);
    for (std::uint64_t label = 0; label < labels; ++label) {
      site.cost.push_back(label > 0 && rng.below(12) == 0 ? kInfinity : static_cast<double>(rng.below(20)) - 10);
      if (memory) site.memory.push_back(static_cast<double>(rng.below(10)));
    }
    if (memory) {
      most += *std::max_element(site.memory.begin(), site.memory.end());
      least += *std::min_element(site.memory.begin(), site.memory.end());
    }
    problem.sites.push_back(std::move(site));
  }
  // Often tight, sometimes below the least there is.
  if (memory) problem.memory_limit = std::floor(least - 1 + (most - least) * rng.uniform());
  const auto pairs = sites < 2 ? 0 : rng.below(static_cast<std::uint64_t>(3 * sites));
  for (std::uint64_t k = 0; k < pairs; ++k) {
    LabellingProblem::Pair pair;
    pair.a = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(sites)));
    pair.b = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(sites)));
    if (pair.a == pair.b) continue;
    const std::size_t entries = problem.sites[static_cast<std::size_t>(pair.a)].cost.size() *
                                problem.sites[static_cast<std::size_t>(pair.b)].cost.size();
    for (std::size_t e = 0; e < entries; ++e) {
      pair.cost.push_back(rng.below(10) == 0 ? kInfinity : static_cast<double>(rng.below(12)));
    }
    problem.pairs.push_back(std::move(pair));
  }
  return problem;
}

TEST(Labelling, TheLeastOfAllOnRandomProblems) {
  int with_memory = 0, impossible = 0, branched = 0;
  for (std::uint64_t seed = 0; seed < 8000; ++seed) {
    Rng rng(seed, 0, 0);
    const LabellingProblem problem = random_labelling(rng);
    const double expected = least_cost(problem);
    // Tables of four entries are too small for nearly everything.
    const Labelling found = solve(problem, seed % 2 == 0 ? 1 << 16 : 4);
    if (problem.memory_limit < kInfinity) ++with_memory;
    if (found.nodes > 1) ++branched;
    if (expected == kInfinity) {
      ++impossible;
      EXPECT_TRUE(found.labels.empty()) << "seed " << seed;
      EXPECT_EQ(found.bound, kInfinity) << "seed " << seed;
      continue;
    }
    ASSERT_FALSE(found.labels.empty()) << "seed " << seed;
    double memory = 0;
    EXPECT_DOUBLE_EQ(labelling_cost(problem, found.labels, &memory), found.cost) << "seed " << seed;
    EXPECT_LE(memory, problem.memory_limit) << "seed " << seed;
    EXPECT_DOUBLE_EQ(found.memory, memory) << "seed " << seed;
    EXPECT_NEAR(found.cost, expected, 1e-9) << "seed " << seed;
    EXPECT_NEAR(found.bound, expected, 1e-6) << "seed " << seed;
    EXPECT_TRUE(found.proven) << "seed " << seed;
  }
  EXPECT_GT(with_memory, 3000);
  EXPECT_GT(impossible, 200);
  EXPECT_GT(branched, 1000);
}

TEST(Labelling, AnInterruptedSearchHasAValidBound) {
  int open = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Rng rng(seed, 1, 0);
    const LabellingProblem problem = random_labelling(rng);
    const double expected = least_cost(problem);
    const Labelling found = solve(problem, 4, static_cast<std::int64_t>(rng.below(20000)));
    EXPECT_LE(found.bound, expected + 1e-9) << "seed " << seed;
    EXPECT_GE(found.cost, expected - 1e-9) << "seed " << seed;
    if (!found.proven && expected < kInfinity) ++open;
  }
  EXPECT_GT(open, 100);
}

// A chain of repeated parts, as layers are: linear in their number, and proven without branching.
TEST(Labelling, ALongChainIsSolvedAtOnce) {
  LabellingProblem problem;
  Rng rng(7, 0, 0);
  constexpr int kSites = 20000;
  for (int i = 0; i < kSites; ++i) {
    problem.sites.push_back({{rng.uniform(), rng.uniform(), rng.uniform()}, {}});
    for (const int back : {1, 2, 3}) {
      if (i < back) continue;
      LabellingProblem::Pair pair{i - back, i, {}};
      for (int e = 0; e < 9; ++e) pair.cost.push_back(rng.uniform());
      problem.pairs.push_back(std::move(pair));
    }
  }
  const Labelling found = solve(problem);
  EXPECT_TRUE(found.proven);
  EXPECT_EQ(found.nodes, 1);
  EXPECT_LE(found.width, 3);
}

TEST(Labelling, NothingAtAll) {
  const Labelling found = solve(LabellingProblem());
  EXPECT_TRUE(found.proven);
  EXPECT_EQ(found.cost, 0);
}

}  // namespace
}  // namespace automap::partition
