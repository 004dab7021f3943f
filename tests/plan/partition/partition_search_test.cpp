#include "plan/partition/partition_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>

#include "common/base/error.h"
#include "common/base/rng.h"
#include "plan/partition/independent_set.h"
#include "plan/partition/search_internal.h"
#include "tests/sanitized.h"

namespace automap::partition {
namespace {

using models::PartitionGroup;
using models::PartitionObjective;
using models::PartitionProblem;

SearchLimits limited(std::int64_t units) {
  SearchLimits limits;
  limits.units = units;
  return limits;
}

void exclude(PartitionProblem* problem, std::int32_t a, std::int32_t b) {
  auto& x = problem->groups[static_cast<std::size_t>(a)].excludes;
  auto& y = problem->groups[static_cast<std::size_t>(b)].excludes;
  if (a == b || std::find(x.begin(), x.end(), b) != x.end()) return;
  x.insert(std::lower_bound(x.begin(), x.end(), b), b);
  y.insert(std::lower_bound(y.begin(), y.end(), a), a);
}

// Every group has its own variables, so that any exclusions are allowed.
PartitionGroup group_of(PartitionProblem* problem, int variables, double saved_ms, double collective_ms, double bytes) {
  PartitionGroup group;
  for (int v = 0; v < variables; ++v) {
    group.members.push_back({static_cast<std::int32_t>(problem->variables.size()), 0});
    problem->variables.push_back({"v" + std::to_string(problem->variables.size()), {64}, 1});
  }
  group.saved_ms = saved_ms;
  group.collective_ms = collective_ms;
  group.saved_bytes = bytes;
  return group;
}

struct Kind {
  bool memory = false, ties = false;
  PartitionObjective objective = PartitionObjective::kCount;
};

PartitionProblem random_groups_problem(std::uint64_t seed, std::int32_t max_groups, const Kind& kind) {
  Rng rng(seed, 77, 0);
  PartitionProblem problem;
  problem.objective = kind.objective;
  const auto n = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(max_groups) + 1));
  const double density = rng.uniform(0, 0.6);
  double bytes = 0;
  for (std::int32_t g = 0; g < n; ++g) {
    const auto variables = static_cast<int>(1 + rng.below(kind.ties ? 3 : 12));
    const double saved = kind.ties ? static_cast<double>(rng.below(4)) / 8 : rng.uniform(0, 3);
    const double collective = kind.ties ? static_cast<double>(rng.below(4)) / 8 : rng.uniform(0, 3);
    const double size = kind.ties ? static_cast<double>(8 * rng.below(4)) : std::floor(rng.uniform(0, 1e9)) / 8;
    problem.groups.push_back(group_of(&problem, variables, saved, collective, size));
    bytes += size;
  }
  for (std::int32_t a = 0; a < n; ++a) {
    for (std::int32_t b = a + 1; b < n; ++b) {
      if (rng.uniform() < density) exclude(&problem, a, b);
    }
  }
  problem.compute_ms = 100;
  problem.memory_bytes = bytes + 1000;
  if (kind.memory)
    problem.capacity_bytes = std::max(1.0, problem.memory_bytes - std::floor(bytes * rng.uniform(0, 0.9)));
  models::check_partition_problem(problem);
  return problem;
}

// All sets.
struct Brute {
  bool fits = false;
  double value = -std::numeric_limits<double>::infinity();
};
Brute brute_force(const PartitionProblem& problem) {
  const std::size_t n = problem.groups.size();
  std::vector<std::uint32_t> excludes(n, 0);
  for (std::size_t g = 0; g < n; ++g) {
    for (const std::int32_t other : problem.groups[g].excludes) excludes[g] |= 1u << other;
  }
  Brute best;
  for (std::uint32_t set = 0; set < (1u << n); ++set) {
    double value = 0, bytes = problem.memory_bytes;
    bool legal = true;
    for (std::size_t g = 0; g < n && legal; ++g) {
      if ((set >> g & 1u) == 0) continue;
      legal = (excludes[g] & set) == 0;
      value += problem.value(static_cast<std::int32_t>(g));
      bytes -= problem.groups[g].saved_bytes;
    }
    if (!legal || (problem.capacity_bytes > 0 && bytes > problem.capacity_bytes + 0.5)) continue;
    best.fits = true;
    best.value = std::max(best.value, value);
  }
  return best;
}

void expect_sound(const PartitionProblem& problem, const PartitionAnswer& answer) {
  EXPECT_FALSE(answer.score.conflict) << answer.algorithm;
  EXPECT_TRUE(std::is_sorted(answer.groups.begin(), answer.groups.end()));
  EXPECT_EQ(models::score(problem, answer.groups).value, answer.score.value);
  if (answer.score.fits) {
    EXPECT_GE(answer.bound, answer.score.value);
  }
}

double statistic(const PartitionAnswer& answer, const std::string& name) {
  for (const auto& [key, value] : answer.statistics) {
    if (key == name) return value;
  }
  ADD_FAILURE() << name;
  return 0;
}

void compare(const Kind& kind, std::uint64_t first_seed, int problems, std::int32_t groups) {
  int infeasible = 0, greedy_best = 0, cost_best = 0, feasible = 0;
  for (int i = 0; i < problems; ++i) {
    SCOPED_TRACE("seed " + std::to_string(first_seed + static_cast<std::uint64_t>(i)));
    const PartitionProblem problem = random_groups_problem(first_seed + static_cast<std::uint64_t>(i), groups, kind);
    const Brute brute = brute_force(problem);
    const PartitionAnswer exact = search_enumerate(problem, {});
    expect_sound(problem, exact);
    ASSERT_EQ(exact.score.fits, brute.fits);
    if (!brute.fits) {
      ++infeasible;
      EXPECT_FALSE(exact.proven);
      SearchRequest request;
      EXPECT_THROW(run_search(problem, request), Error);
      continue;
    }
    ++feasible;
    const double close = 1e-12 * (1 + std::abs(brute.value));
    ASSERT_NEAR(exact.score.value, brute.value, close);
    ASSERT_TRUE(exact.proven);
    ASSERT_GE(exact.bound, brute.value - close);
    // Cut at once: whatever there is, with a bound that holds.
    const PartitionAnswer cut = search_enumerate(problem, limited(0));
    expect_sound(problem, cut);
    ASSERT_GE(cut.bound, brute.value - close);
    if (cut.proven) {
      ASSERT_NEAR(cut.score.value, brute.value, close);
    }
    const PartitionAnswer greedy = search_greedy(problem, {});
    expect_sound(problem, greedy);
    const PartitionAnswer cost = search_cost(problem, {});
    expect_sound(problem, cost);
    if (greedy.score.fits) {
      ASSERT_LE(greedy.score.value, brute.value + close);
      greedy_best += greedy.score.value >= brute.value - close;
    }
    if (cost.score.fits) {
      ASSERT_LE(cost.score.value, brute.value + close);
      cost_best += cost.score.value >= brute.value - close;
    }
  }
  std::printf("%d feasible, %d infeasible, greedy best in %d, cost best in %d\n", feasible, infeasible, greedy_best,
              cost_best);
  // Local search should hardly ever miss on problems this small.
  EXPECT_GE(cost_best, feasible * 95 / 100);
}

TEST(PartitionSearch, BruteForceCount) {
  compare({false, false, PartitionObjective::kCount}, 1, 400, 13);
}
TEST(PartitionSearch, BruteForceCountTies) {
  compare({false, true, PartitionObjective::kCount}, 1001, 400, 13);
}
TEST(PartitionSearch, BruteForceTime) {
  compare({false, false, PartitionObjective::kTime}, 2001, 400, 13);
}
TEST(PartitionSearch, BruteForceTimeTies) {
  compare({false, true, PartitionObjective::kTime}, 3001, 400, 13);
}
TEST(PartitionSearch, BruteForceMemoryCount) {
  compare({true, false, PartitionObjective::kCount}, 4001, 400, 13);
}
TEST(PartitionSearch, BruteForceMemoryCountTies) {
  compare({true, true, PartitionObjective::kCount}, 5001, 400, 13);
}
TEST(PartitionSearch, BruteForceMemoryTime) {
  compare({true, false, PartitionObjective::kTime}, 6001, 600, 13);
}
TEST(PartitionSearch, BruteForceMemoryTimeTies) {
  compare({true, true, PartitionObjective::kTime}, 7001, 600, 13);
}
TEST(PartitionSearch, BruteForceLarger) {
  compare({true, false, PartitionObjective::kTime}, 8001, 12, 18);
  compare({true, true, PartitionObjective::kCount}, 8101, 12, 18);
  compare({false, false, PartitionObjective::kTime}, 8201, 12, 18);
}

// Layers of a transformer: a hidden dimension that excludes everything, and per layer heads, the inner dimension of the
// feed-forward block (both good), and one dimension per head that excludes the heads.
PartitionProblem layers(int count, bool same) {
  PartitionProblem problem;
  problem.objective = PartitionObjective::kTime;
  Rng rng(5, 5, 5);
  problem.groups.push_back(group_of(&problem, 10 * count, 2.0 * count, 1.5 * count, 1e6 * count));
  for (int i = 0; i < count; ++i) {
    const double f = same ? 1 : rng.uniform(0.9, 1.1);
    const auto first = static_cast<std::int32_t>(problem.groups.size());
    problem.groups.push_back(group_of(&problem, 4, 1.0 * f, 0.25, std::floor(1e6 * f)));
    problem.groups.push_back(group_of(&problem, 3, 1.5 * f, 0.25, std::floor(2e6 * f)));
    problem.groups.push_back(group_of(&problem, 3, 0.25, 1.25 * f, std::floor(3e6 * f)));
    exclude(&problem, first, first + 2);
    for (std::int32_t g = first; g < first + 3; ++g) exclude(&problem, 0, g);
  }
  problem.compute_ms = 10.0 * count;
  for (const PartitionGroup& group : problem.groups) problem.memory_bytes += group.saved_bytes;
  models::check_partition_problem(problem);
  return problem;
}

TEST(PartitionSearch, LayersAreSolvedOnce) {
  for (const int count : {6, 24, 96, 400}) {
    const PartitionProblem problem = layers(count, true);
    const PartitionAnswer answer = search_enumerate(problem, {});
    EXPECT_TRUE(answer.proven);
    EXPECT_EQ(answer.score.value, 2.0 * count);
    EXPECT_EQ(answer.groups.size(), 2u * static_cast<unsigned>(count));
    // Not once per layer.
    EXPECT_LT(statistic(answer, "nodes"), 50);
    EXPECT_EQ(search_greedy(problem, {}).score.value, 2.0 * count);
  }
}

TEST(PartitionSearch, MemoryOverManyLayers) {
  for (const bool same : {true, false}) {
    PartitionProblem problem = layers(96, same);
    const PartitionAnswer free = search_enumerate(problem, {});
    // So little memory that some layers must take the large group.
    problem.capacity_bytes = free.score.memory_bytes - 37'500'000;
    const PartitionAnswer answer = search_enumerate(problem, limited(1'000'000'000));
    // Layers that all differ a little, and cost nearly the same per byte: hard to prove, not to solve.
    EXPECT_TRUE(answer.proven || !same);
    EXPECT_GE(answer.score.value, answer.bound * 0.998);
    EXPECT_TRUE(answer.score.fits);
    EXPECT_LT(answer.score.value, free.score.value);
    const PartitionAnswer greedy = search_greedy(problem, {});
    const PartitionAnswer cost = search_cost(problem, limited(1'000'000'000));
    EXPECT_TRUE(greedy.score.fits);
    EXPECT_LE(greedy.score.value, answer.bound + 1e-9);
    EXPECT_TRUE(cost.score.fits);
    EXPECT_LE(cost.score.value, answer.bound + 1e-9);
    std::printf("free %.3f, with memory %.3f of %.3f, greedy %.3f, cost %.3f in %.3f s\n", free.score.value,
                answer.score.value, answer.bound, greedy.score.value, cost.score.value, answer.seconds);
  }
}

// Of two plans with equal count the faster one is chosen.
TEST(PartitionSearch, EqualCountFaster) {
  PartitionProblem problem;
  problem.groups.push_back(group_of(&problem, 3, 1, 0.5, 0));
  problem.groups.push_back(group_of(&problem, 3, 1, 0.25, 0));
  exclude(&problem, 0, 1);
  EXPECT_EQ(search_enumerate(problem, {}).groups, std::vector<std::int32_t>{1});
  EXPECT_EQ(search_greedy(problem, {}).groups, std::vector<std::int32_t>{1});
}

TEST(PartitionSearch, Empty) {
  PartitionProblem problem;
  for (const char* name : {"auto", "greedy", "enumerate", "cost"}) {
    SearchRequest request;
    request.algorithm = name;
    const auto answers = run_search(problem, request);
    EXPECT_TRUE(answers[0].groups.empty());
  }
  problem.memory_bytes = 10;
  problem.capacity_bytes = 5;
  EXPECT_THROW(run_search(problem, {}), Error);
}

// The greedy answer of the first stage is not the last word.
TEST(PartitionSearch, SecondStage) {
  PartitionProblem problem;
  problem.groups.push_back(group_of(&problem, 5, 0, 0, 0));
  for (int i = 0; i < 3; ++i) {
    problem.groups.push_back(group_of(&problem, 2, 0, 0, 0));
    exclude(&problem, 0, i + 1);
  }
  const PartitionAnswer answer = search_greedy(problem, {});
  EXPECT_EQ(statistic(answer, "first_stage_variables"), 5);
  EXPECT_EQ(statistic(answer, "second_stage_variables"), 6);
  EXPECT_EQ(answer.score.variables, 6);
}

TEST(PartitionSearch, AutoAndErrors) {
  const PartitionProblem problem = layers(6, false);
  const auto answers = run_search(problem, {});
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].algorithm, "greedy");
  EXPECT_TRUE(answers[0].proven);
  EXPECT_EQ(answers[0].bound, answers[1].bound);
  SearchRequest request;
  request.algorithm = "enumrate";
  EXPECT_THROW(run_search(problem, request), Error);
  request.algorithm = "rainbow";
  EXPECT_THROW(run_search(problem, request), Error);
  request.rainbow = [](const PartitionProblem& p, const SearchLimits& limits, const std::string&) {
    PartitionAnswer answer = search_greedy(p, limits);
    answer.algorithm = "rainbow";
    answer.bound = std::numeric_limits<double>::infinity();
    return answer;
  };
  EXPECT_EQ(run_search(problem, request)[0].algorithm, "rainbow");
}

TEST(PartitionSearch, BudgetIsKept) {
  PartitionProblem problem = random_groups_problem(1, 1, {});
  problem = {};
  Rng rng(3, 3, 3);
  for (int g = 0; g < 1500; ++g)
    problem.groups.push_back(group_of(&problem, static_cast<int>(1 + rng.below(9)), rng.uniform(0, 3),
                                      rng.uniform(0, 2), std::floor(rng.uniform(0, 1e6))));
  for (int e = 0; e < 20000; ++e)
    exclude(&problem, static_cast<std::int32_t>(rng.below(1500)), static_cast<std::int32_t>(rng.below(1500)));
  for (const PartitionGroup& group : problem.groups) problem.memory_bytes += group.saved_bytes;
  for (const auto objective : {PartitionObjective::kCount, PartitionObjective::kTime}) {
    problem.objective = objective;
    problem.capacity_bytes = objective == PartitionObjective::kTime ? 0.87 * problem.memory_bytes : 0;
    for (const char* name : {"auto", "cost", "enumerate"}) {
      SearchRequest request;
      request.algorithm = name;
      request.limits.units = 500'000'000;
      const internal::Stopwatch watch;
      // Processor time, since other processes may be running.
      const std::clock_t begin = std::clock();
      const auto answers = run_search(problem, request);
      EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, kSanitized ? 30 : 10) << name;
      EXPECT_FALSE(answers[0].cut_by_time);
      EXPECT_TRUE(answers[0].score.fits);
      EXPECT_FALSE(answers[0].score.conflict);
      EXPECT_GE(answers[0].bound, answers[0].score.value);
      std::printf("%s: %s %.3f of at most %.3f, %.2f s\n", name, answers[0].algorithm.c_str(), answers[0].score.value,
                  answers[0].bound, watch.seconds());
      // The same again, and within what a slow clock allows: no clock is asked.
      request.limits.budget_s = 1e6;
      const auto again = run_search(problem, request);
      ASSERT_EQ(again.size(), answers.size());
      for (std::size_t i = 0; i < again.size(); ++i) {
        EXPECT_EQ(again[i].algorithm, answers[i].algorithm);
        EXPECT_EQ(again[i].groups, answers[i].groups);
        EXPECT_EQ(again[i].bound, answers[i].bound);
        EXPECT_EQ(again[i].cut_by_effort, answers[i].cut_by_effort);
      }
      // A budget that is over at once still leaves an answer, and is said to have struck.
      request.limits.budget_s = 1e-9;
      const auto hasty = run_search(problem, request);
      EXPECT_TRUE(hasty[0].score.fits);
      EXPECT_TRUE(hasty[0].cut_by_time || hasty[0].algorithm == "greedy");
    }
  }
}

}  // namespace
}  // namespace automap::partition
