#include "plan/planners/step_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "common/base/error.h"
#include "common/machine/chosen_devices.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/random_problem.h"
#include "plan/planners/bounds.h"
#include "tests/plan/planners/random_policy.h"
#include "tests/plan/planners/random_width.h"
#include "tests/sanitized.h"

namespace automap::planners {
namespace {

using machine::Cluster;
using pipeline::Problem;
using pipeline::ProblemOptions;
using pipeline::random_problem;
using pipeline::RandomProblem;
using pipeline::RandomProblemOptions;
using pipeline::Schedule;

RandomProblemOptions small_whole() {
  RandomProblemOptions options;
  options.min_instructions = 3;
  options.max_instructions = 12;
  options.min_servers = 1;
  options.max_servers = 3;
  options.min_devices = 1;
  options.max_devices = 4;
  options.whole = 1;
  options.with_memory_limit = 0.3;
  return options;
}

PlanRequest stages_request(int stages) {
  PlanRequest request;
  request.effort = plan_effort(Effort::kQuick);
  request.schedules = {Schedule::kAdaptive};
  request.stages = stages;
  request.max_stages = 6;
  request.lower_bound = false;
  request.policy = random_policy();
  return request;
}

// True if any split of the batch has a plan on the first devices of any number.
bool any_plan(const RandomProblem& made, std::int64_t batch, const PlanRequest& request) {
  for (std::int64_t samples = 1; samples <= batch; ++samples) {
    if (batch % samples != 0) continue;
    for (int devices = std::max(1, request.stages); devices <= made.cluster.num_devices(); ++devices) {
      ProblemOptions options = made.options;
      options.micro_batch_samples = static_cast<double>(samples);
      options.micro_batches = static_cast<int>(batch / samples);
      try {
        const Problem problem(made.profile, machine::first_devices(made.cluster, devices), options);
        pipeline::ExactOptions exact;
        exact.schedule = Schedule::kAdaptive;
        exact.min_stages = std::max(1, request.stages);
        exact.max_stages =
            std::min({request.stages > 0 ? request.stages : request.max_stages, devices, problem.num_instructions()});
        if (exact.min_stages > exact.max_stages) continue;
        if (pipeline::solve_exact(problem, exact).best() != nullptr) return true;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kUsage) throw;  // more samples than times are known for
      }
    }
  }
  return false;
}

TEST(StepChoice, TellsOfPlansOnTheWay) {
  int told_several = 0, found = 0;
  for (std::uint64_t seed = 300; seed < 324; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = random_problem(seed, small_whole());
    double shortest = kInfinity;
    int told = 0;
    PlanRequest request = stages_request(0);
    request.better = [&](const pipeline::PlacedPlan& placed, double length_ms) {
      EXPECT_EQ(pipeline::infeasible_reason(placed), "");
      EXPECT_NEAR(pipeline::simulate_step_ms(placed), length_ms, 1e-9 * length_ms);
      told_several += ++told == 2;
      shortest = std::min(shortest, length_ms);
    };
    StepRequest step;
    step.batch = 12;
    const StepPlan plan = plan_step({made.profile, made.cluster, made.options, step, request});
    EXPECT_EQ(plan.result.length_ms(), shortest);
    found += plan.result.plan.has_value();
  }
  EXPECT_GT(found, 8);
  EXPECT_GT(told_several, 4);
}

TEST(StepChoice, AnyBatchHasAPlanWhereThereIsOne) {
  int found = 0, on_fewer = 0, none = 0;
  for (std::uint64_t seed = 0; seed < 60 / kShare; ++seed) {
    RandomProblem made = random_problem(seed, small_whole());
    made.options.allow_idle_stages = seed % 2 == 0;
    for (const std::int64_t batch : {1, 2, 3, 5}) {
      const int stages = static_cast<int>(seed % 4);  // 0: any
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " batch " << batch << " stages " << stages);
      if (stages > std::min(made.cluster.num_devices(), static_cast<int>(made.profile.size()))) continue;
      const PlanRequest request = stages_request(stages);
      const bool expected = any_plan(made, batch, request);
      StepRequest step;
      step.batch = batch;
      bool planned = false;
      try {
        const StepPlan plan = plan_step({made.profile, made.cluster, made.options, step, request});
        planned = plan.result.plan.has_value();
        if (planned) {
          EXPECT_EQ(plan.problem->micro_batches() * plan.problem->micro_batch_samples(), static_cast<double>(batch));
          EXPECT_TRUE(pipeline::feasible(*plan.problem, *plan.result.plan));
          const bool fewer = plan.problem->num_devices() < made.cluster.num_devices();
          EXPECT_EQ(fewer, !plan.why_fewer.empty());
          on_fewer += fewer;
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      }
      EXPECT_EQ(planned, expected);
      found += planned;
      none += !planned;
    }
  }
  EXPECT_GT(found, 100 / kShare);
  EXPECT_GT(on_fewer, 20 / kShare);
  EXPECT_TRUE(none > 0 || kSanitized);
}

// A bound is about every split and every width, whoever brings it: no planner's is above what another one finds.
TEST(StepChoice, NoPlannersBoundIsAboveAnothersPlan) {
  int compared = 0, tight = 0;
  for (std::uint64_t seed = 0; seed < 60 / (kSanitized ? 6 : 1); ++seed) {
    RandomProblemOptions how = small_whole();
    how.min_devices = 2;
    RandomProblem made = random_problem(seed, how);
    if (seed % 2 == 0 && !made.profile.times.empty()) {
      for (const int width : machine::widths_of(made.cluster)) {
        made.profile.widths.push_back(random_width(made.profile, width, seed));
      }
    }
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    StepRequest step;
    step.batch = 12;
    double least = std::numeric_limits<double>::infinity();
    std::vector<StepPlan> plans;
    for (const PlannerKind planner : all_planners()) {
      PlanRequest request = stages_request(0);
      request.planner = planner;
      request.objective = Objective::kValue;
      request.lower_bound = true;
      request.policy = random_policy();
      StepPlan plan = plan_step({made.profile, made.cluster, made.options, step, request});
      if (!plan.result.plan) continue;
      least = std::min(least, plan.result.step_ms);
      plans.push_back(std::move(plan));
    }
    for (const StepPlan& plan : plans) {
      EXPECT_LE(plan.result.lower_bound_ms, least * (1 + 1e-9)) << plan.result.planner;
      if (plan.result.proven_ms > 0) {
        EXPECT_LE(plan.result.step_ms, least * (1 + 1e-6)) << plan.result.planner;
      }
      ++compared;
      tight += plan.result.lower_bound_ms >= least * (1 - 1e-6);
    }
  }
  EXPECT_GT(compared, kSanitized ? 20 : 200);
  EXPECT_GT(tight, 0);
}

// Replicas of four leave a device of each server of five over, and what a split stands on is written in one way.
TEST(StepChoice, SplitsStandOnDevicesOfTheCluster) {
  machine::Cluster cluster;
  cluster.servers = {{2, 5, 100, 10, "gpu"}};
  cluster.devices["gpu"].memory_gib = 16;
  const machine::Cluster fours = machine::replicas_of(cluster, 4);
  StepSize size;
  size.width = 4;
  const std::vector<int> all = {0, 1, 2, 3, 5, 6, 7, 8};
  EXPECT_EQ(devices_of(cluster, size), all);
  put_on(fours, all, &size);
  EXPECT_EQ(size.devices, 2);
  EXPECT_TRUE(size.on.empty());
  EXPECT_EQ(devices_of(cluster, size), all);
  put_on(fours, {0, 1, 2, 3}, &size);
  EXPECT_EQ(size.devices, 1);
  EXPECT_TRUE(size.on.empty());
  const std::vector<int> second = {5, 6, 7, 8};
  put_on(fours, second, &size);
  EXPECT_EQ(size.on, second);
  EXPECT_EQ(devices_of(cluster, size), second);
}

// The numbers of devices that bounds cover were tried with every width that can use as many devices.
TEST(StepChoice, NumbersOfDevicesThatEveryWidthConsidered) {
  Bounds bounds;
  const auto size = [](double samples, int devices, int width) {
    StepSize one;
    one.samples = samples;
    one.devices = devices;
    one.width = width;
    return one;
  };
  // 12 devices; width 1 on all, on 9 and on 6, there with one split only; width 2 on all and on 6 (3 replicas).
  bounds.considered = {size(1, 0, 1), size(2, 0, 1), size(1, 9, 1), size(2, 9, 1), size(1, 6, 1),
                       size(1, 0, 2), size(2, 0, 2), size(2, 3, 2), size(1, 4, 1), size(2, 4, 1)};
  machine::Cluster cluster;
  cluster.servers = {{1, 12, 100, 10, "gpu"}};
  cluster.devices["gpu"].memory_gib = 16;
  BoundScope scope = bounds.scope(cluster);
  EXPECT_EQ(scope.devices, (std::vector<int>{12, 9}));         // 9: no replicas of two
  EXPECT_EQ(scope.devices_in_part, (std::vector<int>{6, 4}));  // 4: two replicas of two were not looked at
  // Nine devices of two servers can be chosen in several ways.
  cluster.servers = {{2, 6, 100, 10, "gpu"}};
  scope = bounds.scope(cluster);
  EXPECT_EQ(scope.devices, std::vector<int>{12});
  EXPECT_FALSE(scope.all);
  // Servers that differ can stand in another order.
  cluster.servers = {{1, 6, 100, 10, "gpu"}, {1, 6, 100, 5, "gpu"}};
  EXPECT_TRUE(bounds.scope(cluster).devices.empty());
  bounds.all_devices = true;
  EXPECT_TRUE(bounds.scope(cluster).all);
}

// Over all widths, splits of the batch and plans: nothing has a smaller V than what is found, nor than the bound.
TEST(StepChoice, NoWidthIsShorter) {
  int wide = 0, narrow = 0, none = 0;
  for (std::uint64_t seed = 0; seed < 150 / kShare; ++seed) {
    RandomProblemOptions how = small_whole();
    how.min_devices = 2;
    RandomProblem made = random_problem(seed, how);
    made.options.allow_idle_stages = true;
    const std::vector<int> widths = machine::widths_of(made.cluster);
    if (widths.empty() || made.profile.times.empty()) continue;
    for (const int width : widths) made.profile.widths.push_back(random_width(made.profile, width, seed));
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const std::int64_t batch = 4;
    double least = std::numeric_limits<double>::infinity();
    for (int width = 1; width <= widths.back(); width *= 2) {
      for (const std::int64_t samples : divisors(batch)) {
        ProblemOptions options = made.options;
        options.micro_batch_samples = static_cast<double>(samples);
        options.micro_batches = static_cast<int>(batch / samples);
        options.width = width;
        try {
          const Problem problem(profile_at(made.profile, width), machine::replicas_of(made.cluster, width), options);
          pipeline::ExactOptions exact;
          exact.schedule = Schedule::kAdaptive;
          exact.min_stages = 1;
          exact.max_stages = std::min({6, problem.num_devices(), problem.num_instructions()});
          const pipeline::ExactResult solved = pipeline::solve_exact(problem, exact);
          if (solved.best() != nullptr) least = std::min(least, solved.best()->value_ms.front());
        } catch (const Error& error) {
          if (error.kind() != ErrorKind::kUsage) throw;
        }
      }
    }
    PlanRequest request = stages_request(0);
    request.effort = plan_effort(Effort::kNormal);
    request.objective = Objective::kValue;
    request.planner = PlannerKind::kExact;
    request.lower_bound = true;
    StepRequest step;
    step.batch = batch;
    const StepPlan plan = plan_step({made.profile, made.cluster, made.options, step, request});
    if (!plan.result.plan) {
      EXPECT_EQ(least, std::numeric_limits<double>::infinity());
      ++none;
      continue;
    }
    EXPECT_LE(plan.result.step_ms, least * (1 + 1e-9));  // fewer devices may be shorter
    EXPECT_LE(plan.result.lower_bound_ms, plan.result.step_ms * (1 + 1e-9));
    EXPECT_LE(plan.result.lower_bound_ms, least * (1 + 1e-9));
    EXPECT_EQ(plan.problem->options().width, plan.size.width);
    EXPECT_EQ(pipeline::value_ms(*plan.problem, *plan.result.plan), plan.result.step_ms);
    ++(plan.size.width > 1 ? wide : narrow);
  }
  EXPECT_GT(wide, kSanitized ? 0 : 20);
  EXPECT_GT(narrow, kSanitized ? 0 : 10);
  EXPECT_LT(none, 30);
}

// Memory for a few samples at a time leaves only splits into more micro-batches than are looked at first.
TEST(StepChoice, AsManyMicroBatchesAsItTakes) {
  pipeline::Profile profile;
  profile.model = "large";
  for (int i = 0; i < 8; ++i) {
    profile.c_ms.push_back(5);
    profile.a_bytes.push_back(1e6);
    profile.w_bytes.push_back(1e8);
    profile.stash_bytes.push_back(1e9);
  }
  profile.micro_batch_size = 1;
  pipeline::ProblemOptions options;
  options.replicas = pipeline::Replicas::kWhole;
  machine::Cluster cluster = machine::load_cluster("config-a");
  cluster.servers[0].count = 1;
  cluster.servers[0].devices = 2;
  PlanRequest request;
  request.effort = plan_effort(Effort::kQuick);
  request.schedules = {pipeline::Schedule::kAdaptive};
  request.policy = random_policy();
  StepRequest step;
  step.batch = 1024;  // 8 samples in each of 128 micro-batches: 32 GB of what is kept on each of two devices of 16
  const StepPlan plan = plan_step({profile, cluster, options, step, request});
  ASSERT_TRUE(plan.result.plan) << plan.result.infeasible;
  EXPECT_GT(plan.size.micro_batches, kMostMicroBatches);
  EXPECT_EQ(plan.size.batch(), 1024);
  for (const StepSize& size : further_sizes(step, profile, options.replicas)) {
    EXPECT_GT(size.micro_batches, kMostMicroBatches);
    EXPECT_EQ(size.batch(), 1024);
  }
  EXPECT_EQ(further_sizes(step, profile, options.replicas).size(), 3u);  // 256, 512, 1024
  step.micro_batch = 8;
  EXPECT_TRUE(further_sizes(step, profile, options.replicas).empty());
}

TEST(StepChoice, DivisorsAscend) {
  EXPECT_EQ(divisors(1), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(divisors(36), (std::vector<std::int64_t>{1, 2, 3, 4, 6, 9, 12, 18, 36}));
}

}  // namespace
}  // namespace automap::planners
