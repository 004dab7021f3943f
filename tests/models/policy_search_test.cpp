// The search with a policy against brute force, and its promises: feasible, deterministic, what it says is what V says.
#include "models/policy_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <thread>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/base/rng.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/schedule.h"
#include "models/features.h"
#include "tests/models/untrained_policy.h"

namespace automap::models {
namespace {

using pipeline::Objective;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::RandomProblem;
using pipeline::RandomProblemOptions;
using pipeline::Schedule;

RandomProblem sized_problem(std::uint64_t seed, bool tiny) {
  RandomProblemOptions options;
  options.min_instructions = tiny ? 5 : 60;
  options.max_instructions = tiny ? 9 : 200;
  options.min_servers = 1;
  options.max_servers = 3;
  options.min_devices = tiny ? 1 : 4;
  options.max_devices = tiny ? 2 : 8;
  options.heterogeneous = 0.4;
  options.with_latency = 0.4;
  options.with_memory_limit = 0.4;
  options.forward_heavy = 0.3;
  return pipeline::random_problem(seed, options);
}

Architecture architecture(Head head = Head::kResidual) {
  Architecture a;
  a.features = kFeatures;
  a.feature_version = kFeatureVersion;
  a.hidden = {16};
  a.head = head;
  return a;
}

Policy policy_with(const std::function<float(std::size_t)>& weight, Head head = Head::kResidual) {
  std::vector<float> weights(Policy::num_weights(architecture(head)));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = weight(i);
  return Policy(architecture(head), std::move(weights));
}

// The shortest of all plans over all instructions and device cuts.
double brute_force(const Problem& problem, int stages, Schedule schedule, Objective objective) {
  double best = kInfinity;
  Plan plan;
  plan.schedule = schedule;
  const std::function<void(int, int)> place = [&](int cut, int device) {
    if (plan.num_stages() == stages) {
      if (pipeline::feasible(problem, plan)) best = std::min(best, pipeline::length_ms(problem, plan, objective));
      return;
    }
    for (int p = cut + 1; p < problem.num_instructions(); ++p) {
      for (int d = device + 1; d < problem.num_devices(); ++d) {
        plan.cuts.push_back(p);
        plan.device_cuts.push_back(d);
        place(p, d);
        plan.cuts.pop_back();
        plan.device_cuts.pop_back();
      }
    }
  };
  place(0, 0);
  return best;
}

void expect_honest(const Problem& problem, const FoundPlan& found, const PlanSpace& space, Objective objective) {
  EXPECT_EQ(found.plan.num_stages(), space.stages());
  EXPECT_EQ(found.plan.schedule, space.schedule());
  EXPECT_TRUE(pipeline::valid_structure(problem, found.plan));
  EXPECT_EQ(pipeline::infeasible_reason(problem, found.plan), "");
  EXPECT_EQ(found.length_ms, pipeline::length_ms(problem, found.plan, objective));
}

TEST(PolicySearch, ABeamThatDropsNothingIsExhaustive) {
  const Policy policy = untrained_policy(1);
  int found_plans = 0, none = 0, stages_above_3 = 0;
  for (std::uint64_t seed = 0; seed < 250; ++seed) {
    const RandomProblem made = sized_problem(seed, true);
    const Problem problem = made.problem();
    const int stages = 2 + static_cast<int>(seed % 3);
    if (stages > problem.num_devices()) continue;
    PlanSpaceOptions space_options;
    space_options.stages = stages;
    space_options.schedule = seed % 2 == 0 ? Schedule::k1f1b : Schedule::k1f1bOverlap;
    for (int p = 1; p < problem.num_instructions(); ++p) space_options.pivots.push_back(p);
    const PlanSpace space(problem, space_options);
    PolicySearchOptions options;
    options.beam = options.most_children = 2000;
    for (const bool rollouts : {false, true}) {
      options.rollouts_count = rollouts;
      const std::optional<FoundPlan> found = search_plan(space, seed % 4 < 2 ? &policy : nullptr, options);
      const double expected = brute_force(problem, stages, space_options.schedule, Objective::kValue);
      ASSERT_EQ(found.has_value(), expected < kInfinity) << seed;
      if (!found) {
        ++none;
        continue;
      }
      ++found_plans;
      stages_above_3 += stages > 3 ? 1 : 0;
      expect_honest(problem, *found, space, Objective::kValue);
      EXPECT_NEAR(found->length_ms, expected, 1e-9 * expected) << seed;
    }
  }
  EXPECT_GT(found_plans, 150);
  EXPECT_GT(none, 5);
  EXPECT_GT(stages_above_3, 20);
}

TEST(PolicySearch, AnUntrainedResidualPolicyIsBoundGreedy) {
  // The last bias makes the residual nothing, so that no rollout is below a prediction.
  const std::size_t bias = Policy::num_weights(architecture(Head::kResidual)) - 1;
  const Policy policy = policy_with([bias](std::size_t i) { return i == bias ? -80.0f : 0.0f; });
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const RandomProblem made = sized_problem(seed, false);
    const Problem problem = made.problem();
    PlanSpaceOptions space_options;
    space_options.stages = 3 + static_cast<int>(seed % 3);
    if (space_options.stages > problem.num_devices()) continue;
    const PlanSpace space(problem, space_options);
    for (const int beam : {1, 7}) {
      PolicySearchOptions options;
      options.beam = beam;
      options.rollouts_count = false;
      const std::optional<FoundPlan> found = search_plan(space, &policy, options);
      std::vector<Prefix> kept = {space.root()}, children;
      std::vector<int> parent_of;
      std::vector<Rollouts> rollouts;
      for (int s = 1; s + 1 < space.stages(); ++s) {
        space.promising(kept, beam == 1 ? kMostChildren : std::max(kMostChildren, 12 * beam), children, parent_of,
                        rollouts);
        kept.assign(children.begin(),
                    children.begin() + std::min<std::ptrdiff_t>(beam, static_cast<std::ptrdiff_t>(children.size())));
      }
      double expected = kInfinity;
      for (const Prefix& prefix : kept) expected = std::min(expected, space.finish(prefix, expected, nullptr));
      ASSERT_EQ(found.has_value(), expected < kInfinity);
      if (!found) continue;
      ++compared;
      EXPECT_NEAR(found->length_ms, expected, 1e-9 * expected);
    }
  }
  EXPECT_GT(compared, 50);
}

TEST(PolicySearch, WiderIsBetterOnAverageAndNeverBetterThanExact) {
  const Policy policy = untrained_policy(3);
  double sums[4] = {};
  int problems = 0;
  for (std::uint64_t seed = 100; seed < 160; ++seed) {
    const RandomProblem made = sized_problem(seed, false);
    const Problem problem = made.problem();
    PlanSpaceOptions space_options;
    space_options.stages = 2 + static_cast<int>(seed % 4);
    if (space_options.stages > problem.num_devices()) continue;
    const PlanSpace space(problem, space_options);
    pipeline::ExactOptions exact_options;
    exact_options.min_stages = exact_options.max_stages = space.stages();
    exact_options.pivots = pipeline::grid_pivots(problem.num_instructions(), 128);
    const pipeline::ExactResult exact = pipeline::solve_exact(problem, exact_options);
    if (exact.best() == nullptr) {
      EXPECT_FALSE(search_plan(space, nullptr, {}));
      continue;
    }
    const double optimum = exact.best()->value_ms.front();
    double logs[4] = {};
    bool all = true;
    int i = 0;
    for (const Policy* p : {static_cast<const Policy*>(nullptr), &policy}) {
      for (const int beam : {1, 32}) {
        PolicySearchOptions options;
        options.beam = beam;
        const std::optional<FoundPlan> found = search_plan(space, p, options);
        all = all && found;
        if (found) {
          expect_honest(problem, *found, space, Objective::kValue);
          EXPECT_GE(found->length_ms, optimum * (1 - 1e-9));
          logs[i] = std::log(found->length_ms / optimum);
        }
        ++i;
      }
    }
    if (!all) continue;
    ++problems;
    for (int k = 0; k < 4; ++k) sums[k] += logs[k];
  }
  ASSERT_GT(problems, 30);
  EXPECT_LT(sums[1], sums[0]);
  EXPECT_LT(sums[3], sums[2]);
  EXPECT_LT(sums[1] / problems, 0.03);  // 32 wide with rollouts is a strong planner
}

TEST(PolicySearch, SimulatedObjective) {
  double by_value = 0, by_simulation = 0;
  int problems = 0;
  for (std::uint64_t seed = 300; seed < 340; ++seed) {
    const RandomProblem made = sized_problem(seed, false);
    const Problem problem = made.problem();
    PlanSpaceOptions space_options;
    space_options.stages = 2 + static_cast<int>(seed % 5);
    if (space_options.stages > problem.num_devices()) continue;
    const PlanSpace space(problem, space_options);
    PolicySearchOptions options;
    options.beam = 8;
    const std::optional<FoundPlan> value = search_plan(space, nullptr, options);
    options.objective = Objective::kSimulated;
    const std::optional<FoundPlan> simulated = search_plan(space, nullptr, options);
    ASSERT_EQ(value.has_value(), simulated.has_value());
    if (!value) continue;
    ++problems;
    expect_honest(problem, *simulated, space, Objective::kSimulated);
    EXPECT_EQ(simulated->length_ms, pipeline::simulate_step_ms(problem, simulated->plan));
    by_value += std::log(pipeline::simulate_step_ms(problem, value->plan));
    by_simulation += std::log(simulated->length_ms);
  }
  ASSERT_GT(problems, 20);
  EXPECT_LT(by_simulation, by_value);
}

TEST(PolicySearch, OneShotRefines) {
  const Policy policy = untrained_policy(8);
  int better = 0, problems = 0;
  for (std::uint64_t seed = 400; seed < 430; ++seed) {
    const RandomProblem made = sized_problem(seed, false);
    const Problem problem = made.problem();
    OneShotOptions options;
    options.space.stages = std::min(4, problem.num_devices());
    for (const Objective objective : {Objective::kValue, Objective::kSimulated}) {
      options.search.objective = objective;
      options.refine = true;
      const std::optional<OneShotPlan> found = plan_in_one_shot(problem, &policy, options);
      options.refine = false;
      const std::optional<OneShotPlan> bare = plan_in_one_shot(problem, &policy, options);
      ASSERT_EQ(found.has_value(), bare.has_value());
      if (!found) continue;
      ++problems;
      EXPECT_EQ(found->searched_ms, bare->found.length_ms);
      EXPECT_LE(found->found.length_ms, found->searched_ms);
      EXPECT_EQ(found->found.length_ms, pipeline::length_ms(problem, found->found.plan, objective));
      EXPECT_TRUE(pipeline::feasible(problem, found->found.plan));
      better += found->found.length_ms < found->searched_ms ? 1 : 0;
      EXPECT_GT(found->prepare_took_ms, 0);
      EXPECT_GT(found->search_took_ms, 0);
      EXPECT_EQ(bare->refine_took_ms, 0);
    }
  }
  EXPECT_GT(problems, 20);
  EXPECT_GT(better, problems / 4);
}

TEST(PolicySearch, SameFromEveryThread) {
  const Policy policy = untrained_policy(9);
  const auto plans = [&](std::vector<FoundPlan>& out) {
    for (std::uint64_t seed = 500; seed < 520; ++seed) {
      const RandomProblem made = sized_problem(seed, false);
      const Problem problem = made.problem();
      PlanSpaceOptions space_options;
      space_options.stages = std::min(5, problem.num_devices());
      const PlanSpace space(problem, space_options);
      PolicySearchOptions options;
      options.beam = 5;
      if (auto found = search_plan(space, &policy, options)) out.push_back(*found);
    }
  };
  std::vector<FoundPlan> expected, results[3];
  plans(expected);
  std::vector<std::thread> threads;
  for (std::vector<FoundPlan>& result : results) threads.emplace_back([&] { plans(result); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(expected.size(), 10u);
  for (const std::vector<FoundPlan>& result : results) {
    ASSERT_EQ(result.size(), expected.size());
    for (std::size_t i = 0; i < result.size(); ++i) {
      EXPECT_EQ(result[i].plan, expected[i].plan);
      EXPECT_EQ(result[i].length_ms, expected[i].length_ms);
    }
  }
}

TEST(PolicySearch, WhatEndsTheWorkLeavesTheBestSoFar) {
  const RandomProblem made = sized_problem(7, false);
  const Problem problem = made.problem();
  PlanSpaceOptions space_options;
  space_options.stages = 4;
  const PlanSpace space(problem, space_options);
  PolicySearchOptions options;
  options.beam = 64;
  const std::optional<FoundPlan> whole = search_plan(space, nullptr, options);
  ASSERT_TRUE(whole);
  double last = kInfinity;
  for (int allowed = 0; allowed < 80; ++allowed) {
    int asked = 0;
    Work work(WorkLimits::until([&] { return asked++ >= allowed; }));
    options.work = &work;
    const std::optional<FoundPlan> found = search_plan(space, nullptr, options);
    ASSERT_TRUE(found) << allowed;  // the rollouts of the empty plan at least
    EXPECT_LE(found->length_ms, last);
    EXPECT_GE(found->length_ms, whole->length_ms);
    last = found->length_ms;
  }
  EXPECT_EQ(last, whole->length_ms);
  // The same by counted work: more of it is never worse, and it is not much more than was allowed.
  Work all;
  options.work = &all;
  ASSERT_TRUE(search_plan(space, nullptr, options));
  ASSERT_GT(all.spent(), 0);
  last = kInfinity;
  for (std::int64_t part = 0; part <= 40; ++part) {
    Work work(WorkLimits::of_units(all.spent() * part / 40));
    options.work = &work;
    const std::optional<FoundPlan> found = search_plan(space, nullptr, options);
    ASSERT_TRUE(found);
    EXPECT_LE(found->length_ms, last);
    EXPECT_LE(work.spent(), all.spent() * part / 40 + all.spent() / 2);  // the boundary begun
    last = found->length_ms;
  }
  EXPECT_EQ(last, whole->length_ms);
  options.rollouts_count = false;
  Work none(WorkLimits::of_units(0));
  options.work = &none;
  EXPECT_FALSE(search_plan(space, nullptr, options));
}

TEST(PolicySearch, BadInput) {
  const RandomProblem made = sized_problem(7, false);
  const Problem problem = made.problem();
  PlanSpaceOptions space_options;
  space_options.stages = 3;
  const PlanSpace space(problem, space_options);
  PolicySearchOptions options;
  options.beam = 0;
  EXPECT_THROW(search_plan(space, nullptr, options), Error);
  options.beam = 1;
  options.most_children = -1;
  EXPECT_THROW(search_plan(space, nullptr, options), Error);
  Architecture other = architecture();
  other.features = 5;
  const auto zeros = [](const Architecture& a) { return Policy(a, std::vector<float>(Policy::num_weights(a))); };
  EXPECT_THROW(search_plan(space, std::make_unique<Policy>(zeros(other)).get(), {}), Error);
  other = architecture();
  other.feature_version = kFeatureVersion + 1;
  EXPECT_THROW(search_plan(space, std::make_unique<Policy>(zeros(other)).get(), {}), Error);
  other = architecture(Head::kPlain);
  other.family = Family::kFlat;
  EXPECT_THROW(search_plan(space, std::make_unique<Policy>(zeros(other)).get(), {}), Error);

  // Sums that overflow rank last; a plan comes out all the same.
  const Policy wild = policy_with([](std::size_t i) { return i % 2 == 0 ? 3e38f : -3e38f; }, Head::kPlain);
  options.most_children = 0;
  options.beam = 4;
  const std::optional<FoundPlan> found = search_plan(space, &wild, options);
  ASSERT_TRUE(found);
  expect_honest(problem, *found, space, Objective::kValue);
}

TEST(PolicySearch, NothingFits) {
  RandomProblem made = sized_problem(7, false);
  for (auto& [name, device] : made.cluster.devices) device.memory_gib = 1e-9;
  const Problem problem = made.problem();
  PlanSpaceOptions space_options;
  space_options.stages = 3;
  const PlanSpace space(problem, space_options);
  EXPECT_FALSE(search_plan(space, nullptr, {}));
  OneShotOptions options;
  options.space = space_options;
  EXPECT_FALSE(plan_in_one_shot(problem, nullptr, options));
}

}  // namespace
}  // namespace automap::models
