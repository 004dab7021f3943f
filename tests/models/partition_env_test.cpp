#include "models/partition_env.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "common/base/error.h"
#include "tests/models/random_partition_problem.h"

namespace automap::models {
namespace {

// a[8,8], b[8], c[8,8]; {a0, b0, c0} against {a1, c1}.
PartitionProblem worked_problem() {
  PartitionProblem problem;
  problem.variables = {{"a", {8, 8}, 256}, {"b", {8}, 32}, {"c", {8, 8}, 256}};
  problem.groups.resize(2);
  problem.groups[0].members = {{0, 0}, {1, 0}, {2, 0}};
  problem.groups[0].excludes = {1};
  problem.groups[1].members = {{0, 1}, {2, 1}};
  problem.groups[1].excludes = {0};
  return problem;
}

// The environment again, straight from the text of its header: whole vectors, everything from the start at every step.
struct Naive {
  using Dim = std::pair<std::int32_t, std::int32_t>;

  Naive(const PartitionProblem& p, const PartitionEnvOptions& o) : problem(p), options(o) {
    for (std::int32_t v = 0; v < static_cast<std::int32_t>(p.variables.size()); ++v) {
      for (std::size_t d = 0; d < p.variables[static_cast<std::size_t>(v)].dims.size(); ++d) {
        group[{v, static_cast<std::int32_t>(d)}] = -1;
      }
    }
    for (std::size_t g = 0; g < p.groups.size(); ++g) {
      for (const Dim& member : p.groups[g].members) group[member] = static_cast<int>(g);
    }
    start();
  }

  void start() {
    for (const auto& [dim, g] : group) {
      state[dim] = options.prune && g < 0 ? -1 : 0;
      paid[dim] = 0;
    }
    stage = 1;
    conflict = false;
    total = 0;
  }

  const std::vector<std::int32_t>& excludes(int g) const {
    return problem.groups[static_cast<std::size_t>(g)].excludes;
  }
  std::vector<Dim> linked(const Dim& dim) const {
    if (group.at(dim) < 0) return {dim};
    return problem.groups[static_cast<std::size_t>(group.at(dim))].members;
  }
  bool excluded(int g) const {
    for (const auto& [dim, s] : state) {
      if (s != 1) continue;
      for (const int other : excludes(group.at(dim))) {
        if (other == g) return true;
      }
    }
    return false;
  }

  // The position: null when there is none.
  const Dim* position() const {
    const Dim* best = nullptr;
    for (const auto& [dim, s] : state) {
      if (s != 0) continue;
      if (!best) {
        best = &dim;
        continue;
      }
      const int a = group.at(dim), b = group.at(*best);
      if (a == b && a >= 0) continue;
      if ((a >= 0) != (b >= 0)) {
        if (a >= 0) best = &dim;
        continue;
      }
      const std::size_t size_a = linked(dim).size(), size_b = linked(*best).size();
      if (size_a > size_b || (size_a == size_b && a >= 0 && a < b)) best = &dim;
    }
    return best;
  }

  double pay(const Dim& dim, int value) {
    const double all = value > 0 ? 0.4 : 0.1;
    const double out = all - paid[dim];
    state[dim] = value;
    paid[dim] = all;
    return out;
  }

  void step(int action) {
    const Dim dim = *position();
    const int g = group.at(dim);
    double reward = 0;
    if (action == 1 && (g < 0 || excluded(g))) {
      conflict = true;
      total += -1;
      return;
    }
    for (const Dim& other : linked(dim)) reward += pay(other, action == 1 ? 1 : -1);
    if (action == 1 && options.prune) {
      for (auto& [other, s] : state) {
        if (s == 0 && group.at(other) >= 0 && excluded(group.at(other))) reward += pay(other, -1);
      }
    }
    const bool time = problem.objective == PartitionObjective::kTime;
    if (time) {
      reward = action == 1 ? (problem.groups[static_cast<std::size_t>(g)].saved_ms -
                              problem.groups[static_cast<std::size_t>(g)].collective_ms) /
                                 (problem.compute_ms + problem.collective_ms)
                           : 0;
    }
    if (!position() && stage == 1 && options.second_stage) {
      bool any = false;
      for (auto& [other, s] : state) {
        const int theirs = group.at(other);
        if (s != -1 || (theirs < 0 && options.prune) || (theirs >= 0 && excluded(theirs))) continue;
        s = 0;
        any = true;
      }
      if (any) stage = 2;
    }
    if (!position() && !score(problem, chosen()).fits) reward -= 1;
    total += reward;
  }

  bool done() const { return conflict || !position(); }
  std::vector<std::int32_t> chosen() const {
    std::vector<std::int32_t> out;
    for (std::size_t g = 0; g < problem.groups.size(); ++g) {
      if (state.at(problem.groups[g].members[0]) == 1) out.push_back(static_cast<std::int32_t>(g));
    }
    return out;
  }

  const PartitionProblem& problem;
  PartitionEnvOptions options;
  std::map<Dim, int> group;
  std::map<Dim, int> state;
  std::map<Dim, double> paid;
  int stage = 1;
  bool conflict = false;
  double total = 0;
};

TEST(PartitionEnv, WorkedCase) {
  const PartitionProblem problem = worked_problem();
  check_partition_problem(problem);
  PartitionEnv env(problem);
  ASSERT_FALSE(env.done());
  EXPECT_EQ(env.stage(), 1);
  EXPECT_EQ(env.variable(), 0);
  EXPECT_EQ(env.dimension(), 0);
  EXPECT_EQ(env.group(), 0);
  EXPECT_EQ(env.state(), (std::vector<std::int8_t>{0, 0, 0, 0, 0}));
  EXPECT_NEAR(env.step(1), 3 * 0.4 + 2 * 0.1, 1e-12);
  EXPECT_TRUE(env.done());
  EXPECT_EQ(env.state(), (std::vector<std::int8_t>{1, -1, 1, 1, -1}));
  EXPECT_EQ(env.chosen(), (std::vector<std::int32_t>{0}));
  EXPECT_EQ(env.bound(), 3);
  EXPECT_EQ(env.shortfall(), 0);

  env.reset();
  EXPECT_NEAR(env.step(0), 0.3, 1e-12);
  EXPECT_EQ(env.state(), (std::vector<std::int8_t>{-1, 0, -1, -1, 0}));
  EXPECT_EQ(env.variable(), 0);
  EXPECT_EQ(env.dimension(), 1);
  EXPECT_NEAR(env.step(1), 0.8, 1e-12);
  EXPECT_TRUE(env.done());  // a0 is excluded: nothing to reopen
  EXPECT_NEAR(env.shortfall(), 1 / 3.0, 1e-6);

  env.reset();
  env.step(0);
  EXPECT_NEAR(env.step(0), 0.2, 1e-12);
  EXPECT_EQ(env.stage(), 2);
  EXPECT_EQ(env.state(), (std::vector<std::int8_t>{0, 0, 0, 0, 0}));
  EXPECT_EQ(env.group(), 0);
  EXPECT_NEAR(env.step(1), 0.9, 1e-12);
  EXPECT_TRUE(env.done());
  EXPECT_NEAR(env.total_reward(), 1.4, 1e-12);
  EXPECT_FALSE(env.conflict());
}

TEST(PartitionEnv, WithoutPruningAConflictEndsTheEpisode) {
  PartitionProblem problem = worked_problem();
  problem.variables.push_back({"d", {7}, 28});
  problem.impossible = {{3, 0}};
  PartitionEnv env(problem, {false, true});
  EXPECT_NEAR(env.step(1), 1.2, 1e-12);
  EXPECT_EQ(env.group(), 1);
  EXPECT_EQ(env.state(), (std::vector<std::int8_t>{1, 0, 1, 1, 0, 0}));
  EXPECT_EQ(env.step(1), -1);
  EXPECT_TRUE(env.done());
  EXPECT_TRUE(env.conflict());
  EXPECT_EQ(env.shortfall(), kInfeasibleY);

  env.reset();
  env.step(1);
  EXPECT_NEAR(env.step(0), 0.2, 1e-12);
  EXPECT_EQ(env.group(), -1);
  EXPECT_EQ(env.variable(), 3);
  EXPECT_EQ(env.step(1), -1);
  EXPECT_TRUE(env.conflict());

  env.reset();
  EXPECT_FALSE(env.conflict());
  EXPECT_EQ(env.total_reward(), 0);
}

TEST(PartitionEnv, TimePaysTheStepTimeAndTheMemory) {
  PartitionProblem problem = worked_problem();
  problem.objective = PartitionObjective::kTime;
  problem.compute_ms = 8;
  problem.collective_ms = 2;
  problem.groups[0].saved_ms = 3;
  problem.groups[0].collective_ms = 4;
  problem.groups[1].saved_ms = 2;
  problem.groups[1].collective_ms = 0.5;
  problem.groups[1].saved_bytes = 50;
  problem.memory_bytes = 100;
  problem.capacity_bytes = 80;
  PartitionEnv env(problem);
  EXPECT_NEAR(env.step(0), 0, 1e-12);
  EXPECT_NEAR(env.step(1), 0.15, 1e-12);
  EXPECT_TRUE(env.done());
  EXPECT_TRUE(env.fits());
  EXPECT_NEAR(env.shortfall(), 0, 1e-6);
  env.reset();
  EXPECT_NEAR(env.step(1), -0.1 - 1, 1e-12);  // 100 bytes are more than 80
  EXPECT_FALSE(env.fits());
  EXPECT_NEAR(env.shortfall(), 2.25, 1e-6);
  problem.capacity_bytes = 0;
  PartitionEnv unlimited(problem);
  unlimited.step(1);
  // s = (1.5 - -1) / 1.5 is above 1.
  EXPECT_NEAR(unlimited.shortfall(), 2 - 1.5 / 2.5, 1e-6);
}

TEST(PartitionEnv, NothingToDecide) {
  PartitionProblem problem;
  EXPECT_TRUE(PartitionEnv(problem).done());
  EXPECT_EQ(PartitionEnv(problem).shortfall(), 0);
  problem.variables = {{"a", {}, 4}, {"b", {7}, 28}};
  problem.impossible = {{1, 0}};
  PartitionEnv env(problem);
  EXPECT_TRUE(env.done());
  EXPECT_EQ(env.state(), (std::vector<std::int8_t>{-1}));
  EXPECT_EQ(env.total_reward(), 0);
  EXPECT_THROW(env.step(0), Error);
  EXPECT_FALSE(env.legal(0));
  PartitionEnv unpruned(problem, {false, true});
  EXPECT_FALSE(unpruned.done());
  EXPECT_THROW(unpruned.step(2), Error);
  unpruned.step(0);
  EXPECT_EQ(unpruned.stage(), 2);
  unpruned.step(0);
  EXPECT_TRUE(unpruned.done());
  EXPECT_NEAR(unpruned.total_reward(), 0.1, 1e-12);
}

PartitionProblem nth_problem(std::uint64_t n) {
  Rng rng(n, 78, 0);
  RandomProblemOptions options;
  options.variables = static_cast<int>(rng.below(20));
  options.groups = static_cast<int>(rng.below(15));
  options.impossible = rng.uniform(0, 0.5);
  options.exclusions = rng.uniform(0, 0.5);
  if (n % 2) options.objective = PartitionObjective::kTime;
  if (n % 3 == 0) options.capacity = rng.uniform(0.3, 1);
  return random_partition_problem(options, n);
}

// The largest independent set, by trying all.
double best_value(const PartitionProblem& problem, std::vector<std::int32_t> chosen = {}, std::int32_t from = 0) {
  double best = 0;
  for (const std::int32_t g : chosen) best += problem.value(g);
  for (auto g = from; g < static_cast<std::int32_t>(problem.groups.size()); ++g) {
    chosen.push_back(g);
    if (!score(problem, chosen).conflict) best = std::max(best, best_value(problem, chosen, g + 1));
    chosen.pop_back();
  }
  return best;
}

TEST(PartitionEnv, DoesWhatItsTextSays) {
  for (std::uint64_t n = 0; n < 600; ++n) {
    const PartitionProblem problem = nth_problem(n);
    check_partition_problem(problem);
    const PartitionEnvOptions options{n % 5 != 0, n % 7 != 0};
    PartitionEnv env(problem, options);
    Naive naive(problem, options);
    Rng rng(n, 79, 0);
    for (int episode = 0; episode < 3; ++episode) {
      env.reset();
      naive.start();
      int steps = 0;
      const double split = rng.uniform();
      for (;; ++steps) {
        ASSERT_EQ(env.done(), naive.done()) << n << " " << steps;
        ASSERT_EQ(env.stage(), naive.stage) << n << " " << steps;
        std::vector<std::int8_t> state;
        for (const auto& [dim, s] : naive.state) state.push_back(static_cast<std::int8_t>(s));
        ASSERT_EQ(env.state(), state) << n << " " << steps;
        ASSERT_NEAR(env.total_reward(), naive.total, 1e-9) << n << " " << steps;
        ASSERT_EQ(env.chosen(), naive.chosen());
        if (env.done()) break;
        ASSERT_EQ(env.variable(), naive.position()->first);
        ASSERT_EQ(env.dimension(), naive.position()->second);
        ASSERT_EQ(env.group(), naive.group.at(*naive.position()));
        ASSERT_TRUE(env.legal(0) && env.legal(1));
        const int action = rng.uniform() < split ? 1 : 0;
        const double before = env.total_reward();
        const double reward = env.step(action);
        ASSERT_NEAR(env.total_reward(), before + reward, 1e-12);
        naive.step(action);
      }
      ASSERT_EQ(env.conflict(), naive.conflict);
      ASSERT_LE(steps, env.most_decisions());
      if (env.conflict()) continue;
      const PartitionScore result = score(problem, env.chosen());
      ASSERT_FALSE(result.conflict);
      ASSERT_NEAR(env.value(), result.value, 1e-9);
      ASSERT_EQ(env.fits(), result.fits);
      ASSERT_LE(result.value, env.bound());
      ASSERT_GE(env.shortfall(), 0);
      ASSERT_LE(env.shortfall(), 3);
    }
    ASSERT_LE(best_value(problem), env.bound() + 1e-12) << n;
  }
}

TEST(PartitionEnv, EveryIndependentSetCanBeReached) {
  // Splitting exactly the groups of a set that has no conflict leads to that set.
  for (std::uint64_t n = 0; n < 100; ++n) {
    const PartitionProblem problem = nth_problem(n);
    std::vector<bool> in(problem.groups.size(), false);
    std::vector<std::int32_t> set;
    Rng rng(n, 80, 0);
    for (std::size_t g = 0; g < in.size(); ++g) {
      if (rng.uniform() < 0.4) continue;
      set.push_back(static_cast<std::int32_t>(g));
      if (score(problem, set).conflict) {
        set.pop_back();
      } else {
        in[g] = true;
      }
    }
    PartitionEnv env(problem);
    while (!env.done()) env.step(in[static_cast<std::size_t>(env.group())] ? 1 : 0);
    ASSERT_EQ(env.chosen(), set);
  }
}

// Computes in plain sets the result of always taking the most valuable group.
double naive_completion(const PartitionProblem& problem, const PartitionEnv& env, std::int32_t item, int action,
                        const std::vector<bool>& against) {
  std::vector<std::int32_t> chosen = env.chosen();
  double value = env.value();
  const auto take = [&](std::int32_t g) {
    chosen.push_back(g);
    if (score(problem, chosen).conflict) {
      chosen.pop_back();
    } else {
      value += problem.value(g);
    }
  };
  if (action == 1) take(item);
  for (int round = 0; round < (env.stage() == 1 ? 2 : 1); ++round) {
    std::vector<std::int32_t> groups;
    for (std::int32_t g = 0; g < static_cast<std::int32_t>(problem.groups.size()); ++g) {
      const bool later = (g == item && action == 0) || (against[static_cast<std::size_t>(g)]);
      if (later == (round == 1) && problem.value(g) > 0) groups.push_back(g);
    }
    std::stable_sort(groups.begin(), groups.end(),
                     [&](std::int32_t a, std::int32_t b) { return problem.value(a) > problem.value(b); });
    for (const std::int32_t g : groups) {
      if (std::find(chosen.begin(), chosen.end(), g) == chosen.end()) take(g);
    }
  }
  return value;
}

TEST(PartitionEnv, FeaturesAreOfTheAfterState) {
  for (std::uint64_t n = 0; n < 200; ++n) {
    const PartitionProblem problem = nth_problem(n);
    PartitionEnv env(problem);
    Rng rng(n, 81, 0);
    const double scale = env.bound() > 0 ? env.bound() : problem.compute_ms + problem.collective_ms;
    std::vector<bool> against(problem.groups.size(), false);
    while (!env.done()) {
      float rows[2][PartitionEnv::kFeatures];
      env.features(rows[0]);
      const std::int32_t item = env.group();
      for (int action = 0; action < 2; ++action) {
        for (int i = 0; i < PartitionEnv::kFeatures; ++i) {
          ASSERT_GE(rows[action][i], -1) << PartitionEnv::kFeatureNames[i];
          ASSERT_LE(rows[action][i], 1) << PartitionEnv::kFeatureNames[i];
        }
        EXPECT_EQ(rows[action][0], action == 1 ? 1 : -1);
        PartitionEnv after = env;
        after.step(action);
        ASSERT_NEAR(rows[action][6], std::clamp(after.value() / scale, -1.0, 1.0), 1e-6);
        if (after.stage() != env.stage()) continue;  // the second stage reopens
        const auto dims = static_cast<double>(after.state().size());
        const auto settled = dims - static_cast<double>(std::count(after.state().begin(), after.state().end(), 0));
        ASSERT_NEAR(rows[action][3], settled / dims, 1e-6);
        ASSERT_NEAR(rows[action][4], std::count(after.state().begin(), after.state().end(), 1) / dims, 1e-6);
        if (env.stage() == 2) continue;
        const double completion = naive_completion(problem, env, item, action, against);
        ASSERT_NEAR(rows[action][7], std::clamp(completion / scale, -1.0, 1.0), 1e-6) << n;
      }
      const int action = static_cast<int>(rng.below(2));
      if (action == 0) against[static_cast<std::size_t>(item)] = true;
      env.step(action);
    }
  }
}

TEST(PartitionEnv, FeaturesDoNotDependOnTheSizeOfTheModel) {
  // Two copies of a problem side by side: comparisons stay, shares halve.
  PartitionProblem one = worked_problem(), two = worked_problem();
  for (int g = 0; g < 2; ++g) {
    PartitionGroup group = one.groups[static_cast<std::size_t>(g)];
    for (auto& member : group.members) member.first += 3;
    for (auto& other : group.excludes) other += 2;
    two.groups.push_back(group);
  }
  for (int v = 0; v < 3; ++v) two.variables.push_back(one.variables[static_cast<std::size_t>(v)]);
  check_partition_problem(two);
  float of_one[2][PartitionEnv::kFeatures], of_two[2][PartitionEnv::kFeatures];
  PartitionEnv(one).features(of_one[0]);
  PartitionEnv(two).features(of_two[0]);
  for (int action = 0; action < 2; ++action) {
    for (const int i : {0, 1, 8, 11, 12, 15, 16, 17, 20, 22, 23}) {
      EXPECT_EQ(of_one[action][i], of_two[action][i]) << PartitionEnv::kFeatureNames[i];
    }
    EXPECT_NEAR(of_one[action][9], 2 * of_two[action][9], 1e-6);
  }
}

}  // namespace
}  // namespace automap::models
