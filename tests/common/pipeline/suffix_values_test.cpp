#include "common/pipeline/suffix_values.h"

#include <gtest/gtest.h>

#include <map>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/random_problem.h"
#include "tests/common/pipeline/exact_brute_force.h"
#include "tests/sanitized.h"

namespace automap::pipeline {
namespace {

using testing::for_each_choice;
using testing::small_problem;
using testing::SmallProblem;
using testing::SmallRandom;
using testing::up_to;

using Prefix = std::pair<std::vector<int>, std::vector<int>>;

std::vector<int> some_of(const std::vector<int>& values, SmallRandom& random, double share) {
  std::vector<int> some;
  for (int value : values) {
    if (some.empty() || random.chance(share)) some.push_back(value);
  }
  return some;
}

// Every prefix of every plan, feasible or not, with the shortest feasible plan that starts so.
std::map<Prefix, double> all_completions(const Problem& problem, const SuffixValuesOptions& options) {
  std::map<Prefix, double> best;
  Plan plan;
  plan.schedule = options.schedule;
  for_each_choice(options.pivots, options.stages - 1, [&](const std::vector<int>& cuts) {
    plan.cuts = cuts;
    for_each_choice(options.device_cuts, options.stages - 1, [&](const std::vector<int>& device_cuts) {
      plan.device_cuts = device_cuts;
      const double value = feasible(problem, plan) ? value_ms(problem, plan) : kInfinity;
      Prefix prefix = {cuts, device_cuts};
      while (true) {
        const auto place = best.try_emplace(prefix, kInfinity).first;
        place->second = std::min(place->second, value);
        if (prefix.first.empty()) break;
        prefix.first.pop_back();
        prefix.second.pop_back();
      }
    });
  });
  return best;
}

// The proof that completion values are exact: all completions of all prefixes of many small problems of every kind.
void compare_suffix_values_with_brute_force(std::uint64_t first_seed, std::uint64_t last_seed) {
  int finite = 0, infeasible = 0, beyond = 0;
  for (std::uint64_t seed = first_seed; seed < last_seed; ++seed) {
    const SmallProblem small = small_problem(seed, 3, 8, 6);
    const Problem problem(small.profile, small.cluster, small.options);
    SmallRandom random(seed ^ 0x5AFF1);
    SuffixValuesOptions options;
    options.schedule = random.chance(0.5) ? Schedule::k1f1b : Schedule::k1f1bOverlap;
    options.pivots = some_of(up_to(problem.num_instructions()), random, 0.8);
    options.device_cuts = some_of(up_to(problem.num_devices()), random, 0.8);
    const int most = static_cast<int>(std::min(options.pivots.size(), options.device_cuts.size())) + 1;
    options.stages = random.integer(1, std::min(5, most));
    SCOPED_TRACE(::testing::Message() << "seed " << seed << " stages " << options.stages);
    const std::map<Prefix, double> expected = all_completions(problem, options);
    const double optimum = expected.at(Prefix());
    if (random.chance(0.8)) options.limit_ms = optimum * (random.chance(0.2) ? 1 : random.real(0.95, 1.6));
    const SuffixValues values(problem, options);
    ASSERT_TRUE(values.valid());
    for (const auto& [prefix, best] : expected) {
      const double found = values.completion_ms(prefix.first, prefix.second);
      if (best == kInfinity) {
        ++infeasible;
        ASSERT_EQ(found, kInfinity);
      } else if (best > options.limit_ms * (1 + 1e-8)) {
        ++beyond;
        ASSERT_EQ(found, kInfinity);
      } else {
        ++finite;
        ASSERT_NEAR(found, best, 1e-9 * best);
      }
    }
    // All children of a prefix at once are the same, also where they make no sense.
    for (int round = 0; round < 2 && options.stages > 1; ++round) {
      auto prefix = expected.begin();
      std::advance(prefix, random.integer(0, static_cast<int>(expected.size()) - 1));
      if (static_cast<int>(prefix->first.first.size()) + 1 >= options.stages) prefix = expected.begin();
      const auto& [cuts, device_cuts] = prefix->first;
      std::vector<std::pair<int, int>> children;
      for (int cut = 0; cut <= problem.num_instructions(); ++cut) {
        for (int d = 0; d <= problem.num_devices(); ++d) children.emplace_back(cut, d);
      }
      std::vector<double> at_once;
      values.completions_ms(cuts, device_cuts, children, at_once);
      ASSERT_EQ(at_once.size(), children.size());
      for (std::size_t i = 0; i < children.size(); ++i) {
        Prefix child = prefix->first;
        child.first.push_back(children[i].first);
        child.second.push_back(children[i].second);
        ASSERT_EQ(at_once[i], values.completion_ms(child.first, child.second));
        if (expected.count(child) == 0) {
          ASSERT_EQ(at_once[i], kInfinity);
        }
      }
    }
  }
  EXPECT_GT(finite, 20000 / kShare);
  EXPECT_GT(infeasible, 10000 / kShare);
  EXPECT_GT(beyond, 10000 / kShare);
}

TEST(SuffixValues, EqualBruteForceOnSmallProblemsA) {
  compare_suffix_values_with_brute_force(0, 8000 / kShare);
}
TEST(SuffixValues, EqualBruteForceOnSmallProblemsB) {
  compare_suffix_values_with_brute_force(8000, 8000 + 8000 / kShare);
}

// On problems of full size: the exact solver with the prefix's boundaries fixed.
TEST(SuffixValues, EqualTheExactSolverWithAFixedPrefix) {
  int finite = 0, none = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    RandomProblemOptions kinds;
    kinds.min_instructions = 60;
    kinds.max_instructions = 200;
    kinds.min_servers = 1;
    kinds.max_servers = 3;
    kinds.min_devices = 2;
    kinds.max_devices = 5;
    kinds.min_micro_batches = 1;
    kinds.heterogeneous = 0.4;
    kinds.with_latency = 0.3;
    kinds.with_memory_limit = 0.4;
    kinds.forward_heavy = 0.3;
    kinds.with_zeros = 0.3;
    kinds.whole = seed % 2 == 0 ? 0 : 1;  // stages as any of their variants
    kinds.without_idle = 0;               // completions may idle beside one another
    const RandomProblem made = random_problem(seed, kinds);
    const Problem problem = made.problem();
    SmallRandom random(seed + 5);
    ExactOptions exact;
    exact.pivots = grid_pivots(problem.num_instructions(), 64);
    exact.schedule = random.chance(0.5) ? Schedule::k1f1b : Schedule::k1f1bOverlap;
    exact.min_stages = exact.max_stages = random.integer(2, std::min(6, problem.num_devices()));
    const ExactResult solved = solve_exact(problem, exact);
    SCOPED_TRACE(::testing::Message() << "seed " << seed << " stages " << exact.min_stages);
    SuffixValuesOptions options;
    options.stages = exact.min_stages;
    options.schedule = exact.schedule;
    options.pivots = exact.pivots;
    if (solved.best() == nullptr) {
      const SuffixValues values(problem, options);
      ASSERT_TRUE(!values.valid() || values.optimum_ms() == kInfinity);
      continue;
    }
    const double optimum = solved.best()->value_ms.front();
    options.limit_ms = optimum * random.real(1.05, 1.4);
    const SuffixValues values(problem, options);
    ASSERT_TRUE(values.valid());
    ASSERT_NEAR(values.optimum_ms(), optimum, 1e-9 * optimum);
    for (int round = 0; round < 12; ++round) {
      // Near the optimal plan, so that many prefixes are within the limit.
      std::vector<int> cuts, device_cuts;
      const int given = random.integer(1, options.stages - 1);
      const Plan& plan = solved.best()->plans.front();
      for (int i = 0; i < given; ++i) {
        const std::size_t at = static_cast<std::size_t>(i);
        const int place = static_cast<int>(std::lower_bound(exact.pivots.begin(), exact.pivots.end(), plan.cuts[at]) -
                                           exact.pivots.begin());
        const int moved =
            std::max(0, std::min(static_cast<int>(exact.pivots.size()) - 1, place + random.integer(-2, 2)));
        cuts.push_back(exact.pivots[static_cast<std::size_t>(moved)]);
        device_cuts.push_back(
            std::max(1, std::min(problem.num_devices() - 1,
                                 plan.device_cuts[at] + (random.chance(0.7) ? 0 : random.integer(-1, 1)))));
      }
      const double found = values.completion_ms(cuts, device_cuts);
      const bool ascending = std::is_sorted(cuts.begin(), cuts.end(), std::less_equal<int>()) &&
                             std::is_sorted(device_cuts.begin(), device_cuts.end(), std::less_equal<int>());
      if (!ascending) {
        ASSERT_EQ(found, kInfinity);
        continue;
      }
      ExactOptions fixed = exact;
      for (int i = 0; i + 1 < options.stages; ++i) {
        const std::size_t at = static_cast<std::size_t>(i);
        fixed.boundary_pivots.push_back(i < given ? std::vector<int>{cuts[at]} : exact.pivots);
        fixed.boundary_device_cuts.push_back(i < given ? std::vector<int>{device_cuts[at]}
                                                       : up_to(problem.num_devices()));
      }
      fixed.upper_bound_ms = options.limit_ms;
      const ExactResult twin = solve_exact(problem, fixed);
      if (twin.best() == nullptr) {
        ++none;
        ASSERT_EQ(found, kInfinity);
      } else {
        ++finite;
        ASSERT_NEAR(found, twin.best()->value_ms.front(), 1e-9 * optimum);
      }
    }
  }
  EXPECT_GT(finite, 150);
  EXPECT_GT(none, 30);
}

// Never below the exact value, and above it by little.
TEST(SuffixValues, SlackCostsLittle) {
  int compared = 0, shorter = 0, beyond = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    RandomProblemOptions kinds;
    kinds.max_instructions = 100;
    kinds.min_servers = kinds.max_servers = 2;
    kinds.min_devices = 3;
    kinds.max_devices = 4;
    kinds.with_memory_limit = 1;
    kinds.whole = kinds.with_zero = kinds.with_recompute = 1;
    kinds.without_idle = 0;
    const RandomProblem made = random_problem(seed, kinds);
    const Problem problem = made.problem();
    SuffixValuesOptions options;
    options.schedule = Schedule::kAdaptive;
    options.stages = 5;
    options.pivots = grid_pivots(problem.num_instructions(), 16);
    const SuffixValues all(problem, options);
    if (!all.valid() || all.optimum_ms() == kInfinity) continue;
    options.limit_ms = 3 * all.optimum_ms();
    options.slack = 0.01;
    const SuffixValues some(problem, options);
    ASSERT_TRUE(some.valid());
    const double most = 2 * options.stages * options.slack * options.limit_ms;
    for (std::size_t a = 0; a < options.pivots.size(); ++a) {
      for (std::size_t b = a + 1; b + 2 < options.pivots.size(); ++b) {
        const std::vector<int> cuts = {options.pivots[a], options.pivots[b],
                                       options.pivots[(b + options.pivots.size()) / 2]};
        const double exact = all.completion_ms(cuts, {1, 2, 3}), found = some.completion_ms(cuts, {1, 2, 3});
        if (found == kInfinity) {
          EXPECT_GT(exact + most, options.limit_ms);
          ++beyond;
          continue;
        }
        ++compared;
        ASSERT_GE(found, exact * (1 - 1e-9));
        ASSERT_LE(found, exact + most);
        shorter += exact < found * (1 - 1e-9);
      }
    }
  }
  EXPECT_GT(compared, 500);
  EXPECT_GT(beyond, 100);
  EXPECT_GT(shorter, 0);
}

TEST(SuffixValues, SayWhenThereAreTooManyLabels) {
  const RandomProblem made = random_problem(3);
  const Problem problem = made.problem();
  SuffixValuesOptions options;
  options.stages = 4;
  options.most_labels = 100;
  const SuffixValues values(problem, options);
  EXPECT_FALSE(values.valid());
}

TEST(SuffixValues, LowerTheLimitUntilTheLabelsAreFewEnough) {
  const RandomProblem made = random_problem(3);
  const Problem problem = made.problem();
  SuffixValuesOptions options;
  options.stages = 4;
  options.pivots = grid_pivots(problem.num_instructions(), 64);
  ExactOptions exact;
  exact.min_stages = exact.max_stages = 4;
  exact.pivots = options.pivots;
  const ExactResult solved = solve_exact(problem, exact);
  options.optimum_ms = solved.best()->value_ms.front();
  options.limit_ms = 2 * options.optimum_ms;
  const SuffixValues all(problem, options);
  ASSERT_TRUE(all.valid());
  EXPECT_EQ(all.limit_ms(), options.limit_ms);
  options.most_labels = all.labels() / 4;
  const SuffixValues some(problem, options);
  ASSERT_TRUE(some.valid());
  EXPECT_LE(some.labels(), options.most_labels);
  EXPECT_LT(some.limit_ms(), options.limit_ms);
  EXPECT_GT(some.limit_ms(), options.optimum_ms);
  int same = 0, beyond = 0;
  for (int cut : options.pivots) {
    for (int d = 1; d < problem.num_devices(); ++d) {
      const double expected = all.completion_ms({cut}, {d}), found = some.completion_ms({cut}, {d});
      if (expected <= some.limit_ms()) {
        EXPECT_NEAR(found, expected, 1e-12 * expected);
        ++same;
      } else {
        EXPECT_EQ(found, kInfinity);
        ++beyond;
      }
    }
  }
  EXPECT_GT(same, 10);
  EXPECT_GT(beyond, 10);
  EXPECT_NEAR(some.optimum_ms(), options.optimum_ms, 1e-9 * options.optimum_ms);
}

TEST(SuffixValues, MoreStagesThanCutsHaveNoPlan) {
  const SmallProblem small = small_problem(1, 8, 8, 6);
  const Problem problem(small.profile, small.cluster, small.options);
  SuffixValuesOptions options;
  options.stages = 3;
  options.pivots = {4};
  const SuffixValues values(problem, options);
  ASSERT_TRUE(values.valid());
  EXPECT_EQ(values.optimum_ms(), kInfinity);
  EXPECT_EQ(values.completion_ms({4}, {1}), kInfinity);
  for (int stages : {0, 17}) {
    options.stages = stages;
    EXPECT_THROW(SuffixValues(problem, options), Error);
  }
}

}  // namespace
}  // namespace automap::pipeline
