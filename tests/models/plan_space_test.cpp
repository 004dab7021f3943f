// The plan space against its slow twins: V of the finished plan, brute force over all children, feasible().
#include "models/plan_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/random_problem.h"
#include "models/features.h"
#include "models/usable_device_cuts.h"

namespace automap::models {
namespace {

using pipeline::CounterRandom;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::RandomProblem;
using pipeline::RandomProblemOptions;
using pipeline::Schedule;

struct Case {
  RandomProblem made;
  int stages;
  Schedule schedule;
};

// Small and varied: several servers, different ones, latencies, memory limits, zeros, long forwards, few micro-batches.
Case random_case(int i) {
  RandomProblemOptions options;
  options.min_instructions = 8;
  options.max_instructions = 60;
  options.min_servers = 1;
  options.max_servers = 4;
  options.min_devices = 1;
  options.max_devices = 6;
  options.min_micro_batches = 1;
  options.max_micro_batches = 24;
  options.heterogeneous = 0.5;
  options.with_latency = 0.5;
  options.with_memory_limit = 0.4;
  options.forward_heavy = 0.3;
  options.with_zeros = 0.3;
  options.measured = 0.4;
  CounterRandom random(77, static_cast<std::uint32_t>(i));
  for (std::uint64_t seed = static_cast<std::uint64_t>(i) * 100;; ++seed) {
    Case made{pipeline::random_problem(seed, options), 0, Schedule::k1f1b};
    const int most =
        std::min({kMaxStages, made.made.cluster.num_devices(), static_cast<int>(made.made.profile.c_ms.size())});
    if (most < 2) continue;
    made.stages = random.integer(2, std::min(most, 7));
    made.schedule = random.uniform() < 0.5 ? Schedule::k1f1b : Schedule::k1f1bOverlap;
    if (random.uniform() < 0.15) made.made.options.value = pipeline::ValueForm::kPaper;
    if (random.uniform() < 0.2) made.made.options.allow_empty_stages = true;
    return made;
  }
}

PlanSpaceOptions space_options(const Case& c, const Problem& problem) {
  PlanSpaceOptions options;
  options.stages = c.stages;
  options.schedule = c.schedule;
  for (int p = 1; p < problem.num_instructions(); ++p) options.pivots.push_back(p);
  return options;
}

TEST(PlanSpace, PlacingStageByStageEndsAtV) {
  int feasible_plans = 0, infeasible_plans = 0;
  for (int i = 0; i < 400; ++i) {
    const Case c = random_case(i);
    const Problem problem = c.made.problem();
    const PlanSpace space(problem, space_options(c, problem));
    CounterRandom random(5, static_cast<std::uint32_t>(i));
    for (int trial = 0; trial < 10; ++trial) {
      const Plan plan = pipeline::random_plan(problem, c.stages, c.schedule, random);
      std::vector<Prefix> chain = {space.root()};
      bool placed = true;
      for (int b = 0; placed && b + 1 < c.stages; ++b) {
        Prefix next;
        placed = space.append(chain.back(), plan.cuts[static_cast<std::size_t>(b)],
                              plan.device_cuts[static_cast<std::size_t>(b)], next);
        if (placed) chain.push_back(next);
      }
      Plan found;
      const double value = placed ? space.finish(chain.back(), kInfinity, &found) : kInfinity;
      ASSERT_EQ(value < kInfinity, pipeline::feasible(problem, plan)) << pipeline::infeasible_reason(problem, plan);
      if (!(value < kInfinity)) {
        ++infeasible_plans;
        continue;
      }
      ++feasible_plans;
      EXPECT_EQ(found, plan);
      const double expected = pipeline::value_ms(problem, plan);
      ASSERT_NEAR(value, expected, 1e-9 * expected);
      for (const Prefix& prefix : chain) EXPECT_LE(prefix.bound_ms, expected * (1 + 1e-12)) << prefix.stages;
    }
  }
  EXPECT_GT(feasible_plans, 300);
  EXPECT_GT(infeasible_plans, 300);
}

using Key = std::tuple<int, int, int>;  // parent, point, device cut

TEST(PlanSpace, ExpandKeepsTheChildrenWithTheSmallestBounds) {
  for (int i = 0; i < 150; ++i) {
    const Case c = random_case(1000 + i);
    if (c.stages < 3) continue;
    const Problem problem = c.made.problem();
    const PlanSpace space(problem, space_options(c, problem));
    std::vector<Prefix> parents = {space.root()}, children;
    std::vector<int> parent_of;
    for (int s = 1; s < c.stages; ++s) {
      std::vector<std::pair<double, Key>> all;
      std::set<int> devices;
      for (std::size_t p = 0; p < parents.size(); ++p) {
        for (int point = 1; point + 1 < space.num_points(); ++point) {
          for (int d : space.device_cuts()) {
            Prefix child;
            if (!space.append(parents[p], point, d, child)) continue;
            all.push_back({child.bound_ms, {static_cast<int>(p), point, d}});
            devices.insert(d);
          }
        }
      }
      std::sort(all.begin(), all.end());
      space.expand(parents, 1 << 20, children, parent_of);
      ASSERT_EQ(children.size(), all.size());
      std::set<Key> expected, got;
      for (const auto& entry : all) expected.insert(entry.second);
      for (std::size_t k = 0; k < children.size(); ++k) {
        got.insert({parent_of[k], children[k].point, children[k].d1});
        EXPECT_NEAR(children[k].bound_ms, all[k].first, 1e-9 * all[k].first);
      }
      ASSERT_EQ(got, expected);

      const int most = 12;
      space.expand(parents, most, children, parent_of);
      ASSERT_EQ(children.size(), std::min<std::size_t>(most, all.size()));
      EXPECT_TRUE(std::is_sorted(children.begin(), children.end(),
                                 [](const Prefix& a, const Prefix& b) { return a.bound_ms < b.bound_ms; }));
      if (all.empty()) break;
      // The best is there, and half of the places go to the best of each device cut.
      EXPECT_NEAR(children.front().bound_ms, all.front().first, 1e-9 * all.front().first);
      std::set<int> kept;
      for (const Prefix& child : children) kept.insert(child.d1);
      EXPECT_GE(kept.size(), std::min<std::size_t>(devices.size(), 6));
      parents = children;
      if (parents.size() > 5) parents.resize(5);
    }
  }
}

TEST(PlanSpace, FinishFindsTheBestLastBoundary) {
  for (int i = 0; i < 300; ++i) {
    const Case c = random_case(2000 + i);
    const Problem problem = c.made.problem();
    const PlanSpace space(problem, space_options(c, problem));
    Prefix prefix = space.root();
    std::vector<Prefix> children;
    std::vector<int> parent_of;
    CounterRandom random(9, static_cast<std::uint32_t>(i));
    for (int s = 1; s + 1 < c.stages; ++s) {
      space.expand({prefix}, 6, children, parent_of);
      if (children.empty()) break;
      prefix = children[static_cast<std::size_t>(random.integer(0, static_cast<int>(children.size()) - 1))];
    }
    if (prefix.stages != c.stages - 2) continue;
    std::vector<double> values;
    for (int point = 1; point + 1 < space.num_points(); ++point) {
      for (int d : space.device_cuts()) {
        Prefix child;
        if (!space.append(prefix, point, d, child)) continue;
        const Plan plan = space.plan_of(child);
        if (pipeline::feasible(problem, plan)) values.push_back(pipeline::value_ms(problem, plan));
      }
    }
    std::sort(values.begin(), values.end());
    Plan plan;
    const double best = space.finish(prefix, kInfinity, &plan);
    const auto few = space.finish_best(prefix, 5);
    if (values.empty()) {
      EXPECT_EQ(best, kInfinity);
      EXPECT_TRUE(few.empty());
      continue;
    }
    ASSERT_NEAR(best, values.front(), 1e-9 * values.front());
    EXPECT_NEAR(pipeline::value_ms(problem, plan), best, 1e-9 * best);
    EXPECT_EQ(space.finish(prefix, best * (1 - 1e-9), nullptr), kInfinity);
    ASSERT_EQ(few.size(), std::min<std::size_t>(5, values.size()));
    for (std::size_t k = 0; k < few.size(); ++k) EXPECT_NEAR(few[k].first, values[k], 1e-9 * values[k]);
  }
}

TEST(PlanSpace, RolloutsAreFeasiblePlansOfTheirValue) {
  int made = 0, none = 0, shorter = 0;
  for (int i = 0; i < 300; ++i) {
    const Case c = random_case(3000 + i);
    const Problem problem = c.made.problem();
    const PlanSpace space(problem, space_options(c, problem));
    Prefix prefix = space.root();
    std::vector<Prefix> children;
    std::vector<int> parent_of;
    for (int s = 0; s + 1 < c.stages; ++s) {
      Rollouts rollouts = space.rollouts(prefix);
      double best = kInfinity;
      for (const double value : rollouts.value_ms) {
        EXPECT_GE(value, prefix.bound_ms * (1 - 1e-12));
        best = std::min(best, value);
      }
      ASSERT_EQ(rollouts.best_ms, best);
      none += best == kInfinity;
      for (const bool improved : {false, true}) {
        if (improved) space.improve(prefix, rollouts);
        if (best == kInfinity) {
          ASSERT_EQ(rollouts.best_ms, kInfinity);
          continue;
        }
        ++made;
        const Plan plan = space.plan_of(rollouts);
        ASSERT_TRUE(pipeline::feasible(problem, plan)) << pipeline::infeasible_reason(problem, plan);
        ASSERT_NEAR(pipeline::value_ms(problem, plan), rollouts.best_ms, 1e-9 * best);
        ASSERT_LE(rollouts.best_ms, best);
        shorter += rollouts.best_ms < best;
        for (int b = 0; b < prefix.stages; ++b) {
          const std::size_t k = static_cast<std::size_t>(b);
          ASSERT_EQ(plan.cuts[k], space.cut_of_point(prefix.points[k]));
          ASSERT_EQ(plan.device_cuts[k], prefix.device_cuts[k]);
        }
      }
      float features[kFeatures];
      if (prefix.stages > 0) {
        after_state_features(space, prefix, rollouts, prefix.bound_ms * 1.5, features);
        for (int f = 0; f < kFeatures; ++f) {
          ASSERT_TRUE(std::isfinite(features[f])) << kFeatureNames[f];
          ASSERT_LE(std::fabs(features[f]), 4) << kFeatureNames[f];
        }
      }
      space.expand({prefix}, 4, children, parent_of);
      if (children.empty()) break;
      prefix = children.back();
    }
  }
  EXPECT_GT(made, 1000);
  EXPECT_GT(none, 10);
  EXPECT_GT(shorter, 100);
}

TEST(PlanSpace, FeaturesDoNotDependOnTheUnitOfTimeAndBytes) {
  RandomProblem made = pipeline::random_problem(4);
  RandomProblem scaled = made;
  for (double& c : scaled.profile.c_ms) c *= 1024;
  for (machine::ServerGroup& group : scaled.cluster.servers) {
    group.intra_gbytes_per_s /= 1024;
    group.inter_gbytes_per_s /= 1024;
  }
  const Problem first = made.problem(), second = scaled.problem();
  PlanSpaceOptions options;
  options.stages = 4;
  const PlanSpace a(first, options), b(second, options);
  std::vector<Prefix> from_a, from_b;
  std::vector<int> parent_of;
  a.expand({a.root()}, 20, from_a, parent_of);
  b.expand({b.root()}, 20, from_b, parent_of);
  ASSERT_EQ(from_a.size(), from_b.size());
  for (std::size_t i = 0; i < from_a.size(); ++i) {
    float x[kFeatures], y[kFeatures];
    after_state_features(a, from_a[i], a.rollouts(from_a[i]), kInfinity, x);
    after_state_features(b, from_b[i], b.rollouts(from_b[i]), kInfinity, y);
    for (int f = 0; f < kFeatures; ++f) EXPECT_NEAR(x[f], y[f], 1e-5) << kFeatureNames[f];
  }
}

TEST(PlanSpace, ManyDevicesAreCutOnAGridWithServerBoundaries) {
  RandomProblemOptions options;
  options.min_servers = options.max_servers = 40;
  options.min_devices = options.max_devices = 8;
  const RandomProblem made = pipeline::random_problem(1, options);
  const Problem problem = made.problem();
  PlanSpaceOptions space_options;
  space_options.stages = 5;
  const PlanSpace space(problem, space_options);
  EXPECT_LE(space.device_cuts().size(), 64u);
  EXPECT_GE(space.device_cuts().size(), 50u);
  for (int d = 8; d < 320; d += 8) {
    EXPECT_TRUE(std::binary_search(space.device_cuts().begin(), space.device_cuts().end(), d)) << d;
  }
  space_options.server_radius = 0;
  const PlanSpace aligned(problem, space_options);
  for (int d : aligned.device_cuts()) EXPECT_EQ(d % 8, 0);
}

// Rollouts and what improves them, too: their plans are candidates.
TEST(PlanSpace, RolloutsKeepTheRadius) {
  RandomProblemOptions options;
  options.min_servers = 2;
  options.max_servers = 4;
  options.min_devices = 2;
  options.max_devices = 5;
  int judged = 0, away = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = pipeline::random_problem(seed, options);
    const Problem problem = made.problem();
    PlanSpaceOptions space_options;
    space_options.stages = 3;
    if (problem.num_devices() < 3 || problem.num_instructions() < 3) continue;
    for (const int radius : {-1, 0, 1}) {
      space_options.server_radius = radius;
      const PlanSpace space(problem, space_options);
      if (!space.possible()) continue;
      Rollouts rollouts = space.rollouts(space.root());
      space.improve(space.root(), rollouts);
      if (!(rollouts.best_ms < kInfinity)) continue;
      for (const int cut : space.plan_of(rollouts).device_cuts) {
        const bool near = cuts_near_servers(problem, std::max(0, radius))[static_cast<std::size_t>(cut)] != 0;
        away += !near;
        if (radius >= 0) {
          EXPECT_TRUE(near) << cut << ", radius " << radius;
        }
      }
      judged += radius >= 0;
    }
  }
  EXPECT_GT(judged, 50);
  EXPECT_GT(away, 50);  // of those without a radius
}

Problem problem_of(std::vector<double> compute, std::vector<double> activation, std::vector<double> weight,
                   const machine::Cluster& cluster, int micro_batches, pipeline::ValueForm value) {
  pipeline::Profile profile;
  profile.model = "small";
  profile.forward_fraction = 1.0 / 3;
  profile.stash_bytes.assign(compute.size(), 0);
  profile.c_ms = std::move(compute);
  profile.a_bytes = std::move(activation);
  profile.w_bytes = std::move(weight);
  pipeline::ProblemOptions options;
  options.micro_batches = micro_batches;
  options.value = value;
  return Problem(profile, cluster, options);
}

TEST(PlanSpace, ABlockThatFitsOnlyInFrontIsNoReasonToGiveUp) {
  // Memory large, small, large. The rest only fits on the last device from point 2 on, block 2 not on the second one:
  // its stage ends farther behind.
  const double gib = 1024.0 * 1024.0 * 1024.0;
  machine::Cluster cluster;
  cluster.name = "unlike";
  machine::DeviceType large, small;
  large.memory_gib = 10;
  small.memory_gib = 1;
  cluster.devices = {{"large", large}, {"small", small}};
  cluster.servers = {{1, 1, 1, 1, "large"}, {1, 1, 1, 1, "small"}, {1, 1, 1, 1, "large"}};
  const Problem problem = problem_of({1, 1, 1, 1}, {0, 0, 0, 0}, {0.1 * gib, 2 * gib, 0.1 * gib, 1.9 * gib}, cluster, 4,
                                     pipeline::ValueForm::kFull);
  Plan plan;
  plan.cuts = {2, 3};
  plan.device_cuts = {1, 2};
  ASSERT_TRUE(pipeline::feasible(problem, plan));
  PlanSpaceOptions options;
  options.stages = 3;
  options.pivots = {1, 2, 3};
  const PlanSpace space(problem, options);
  ASSERT_TRUE(space.possible());
  Prefix first, second;
  EXPECT_TRUE(space.append(space.root(), 2, 1, first));
  EXPECT_TRUE(space.append(first, 3, 2, second));
}

TEST(PlanSpace, ALongStageInFrontOfDearCutsIsNotBoundedTooHigh) {
  // Nearly all work on the fast device, the cut behind it: the cut hides behind that stage's last rounds.
  machine::Cluster cluster;
  cluster.name = "unlike";
  machine::DeviceType fast, slow;
  fast.memory_gib = slow.memory_gib = 16;
  slow.relative_speed = 0.01;
  cluster.devices = {{"fast", fast}, {"slow", slow}};
  cluster.servers = {{1, 1, 1, 0.1, "fast"}, {1, 1, 1, 0.1, "slow"}};
  for (const int micro_batches : {2, 3, 4, 8}) {
    for (const pipeline::ValueForm value : {pipeline::ValueForm::kFull, pipeline::ValueForm::kPaper}) {
      const Problem problem = problem_of({10, 0.0001}, {3e5, 0}, {1, 1}, cluster, micro_batches, value);
      Plan plan;
      plan.cuts = {1};
      plan.device_cuts = {1};
      PlanSpaceOptions options;
      options.stages = 2;
      options.pivots = {1};
      EXPECT_LE(PlanSpace(problem, options).root().bound_ms, pipeline::value_ms(problem, plan)) << micro_batches;
    }
  }
}

// Wilder than random_problem() makes them: speeds, links and memory of the servers differ by orders of magnitude.
TEST(PlanSpace, NoFeasiblePlanIsMaskedOutNorBoundedTooHigh) {
  int plans = 0;
  for (int i = 0; i < 20000; ++i) {
    CounterRandom random(31, static_cast<std::uint32_t>(i));
    const auto between = [&](double low, double high) { return low * std::pow(high / low, random.uniform()); };
    pipeline::Profile profile;
    profile.model = "wild";
    profile.forward_fraction = random.uniform() < 0.3 ? 0.5 : 0.05 + 0.9 * random.uniform();
    const double activation = between(1e3, 1e9), weight = between(1e3, 1e10);
    const int n = random.integer(3, 9);
    for (int k = 0; k < n; ++k) {
      profile.c_ms.push_back(random.uniform() < 0.3 ? 0 : between(1e-4, 10));
      profile.a_bytes.push_back(random.uniform() < 0.3 ? 0 : activation * between(0.01, 1));
      profile.w_bytes.push_back(random.uniform() < 0.4 ? 0 : weight * between(0.001, 1));
      profile.stash_bytes.push_back(random.uniform() < 0.4 ? 0 : activation * between(0.01, 10));
    }
    profile.c_ms[0] += 0.01;
    machine::Cluster cluster;
    cluster.name = "wild";
    const int servers = random.integer(1, 5);
    const bool alike = random.uniform() < 0.3;
    cluster.inter_latency_us = random.uniform() < 0.5 ? 0 : between(1, 1e4);
    cluster.intra_latency_us = cluster.inter_latency_us * random.uniform();
    for (int s = 0; s < servers; ++s) {
      machine::DeviceType type;
      type.memory_gib = between(1e-3, 40);
      type.relative_speed = alike ? 1 : between(0.02, 20);
      const std::string name = "d" + std::to_string(s);
      cluster.devices[name] = type;
      cluster.servers.push_back({1, random.integer(1, 4), between(0.1, 100), between(0.1, 100), name});
    }
    const int devices = cluster.num_devices();
    if (devices < 2) continue;
    PlanSpaceOptions options;
    options.stages = random.integer(2, std::min({devices, n, 6}));
    options.schedule = random.uniform() < 0.5 ? Schedule::k1f1b : Schedule::k1f1bOverlap;
    for (int p = 1; p < n; ++p) options.pivots.push_back(p);
    pipeline::ProblemOptions problem_options;
    problem_options.micro_batches = random.integer(1, 12);
    problem_options.memory = random.uniform() < 0.5;
    problem_options.allow_empty_stages = random.uniform() < 0.5;
    if (random.uniform() < 0.2) problem_options.value = pipeline::ValueForm::kPaper;
    const Problem problem(profile, cluster, problem_options);
    const PlanSpace space(problem, options);
    for (int trial = 0; trial < 20; ++trial) {
      const Plan plan = pipeline::random_plan(problem, options.stages, options.schedule, random);
      if (!pipeline::feasible(problem, plan)) continue;
      ++plans;
      ASSERT_TRUE(space.possible()) << i;
      Prefix prefix = space.root(), next;
      const double most = pipeline::value_ms(problem, plan) * (1 + 1e-9);
      ASSERT_LE(prefix.bound_ms, most) << i;
      for (std::size_t b = 0; b < plan.cuts.size(); ++b) {
        ASSERT_TRUE(space.append(prefix, plan.cuts[b], plan.device_cuts[b], next)) << i;
        prefix = next;
        ASSERT_LE(prefix.bound_ms, most) << i;
      }
    }
  }
  EXPECT_GT(plans, 100000);
}

TEST(PlanSpace, RefusesWhatCannotBe) {
  const RandomProblem made = pipeline::random_problem(1);
  const Problem problem = made.problem();
  PlanSpaceOptions options;
  for (int stages : {0, 1, 17, 1000}) {
    options.stages = stages;
    EXPECT_THROW(PlanSpace(problem, options), Error) << stages;
  }
  options.stages = 2;
  for (const std::vector<int>& pivots : {std::vector<int>{3, 3}, {0}, {problem.num_instructions()}, {5, 4}}) {
    options.pivots = pivots;
    EXPECT_THROW(PlanSpace(problem, options), Error);
  }
  // Three stages, one pivot: nothing to do, and no error.
  options.pivots = {4};
  options.stages = 3;
  const PlanSpace space(problem, options);
  EXPECT_FALSE(space.possible());
  std::vector<Prefix> children;
  std::vector<int> parent_of;
  space.expand({space.root()}, 8, children, parent_of);
  EXPECT_TRUE(children.empty());
}

}  // namespace
}  // namespace automap::models
