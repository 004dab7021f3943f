#include "plan/planners/least_change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/planners/effort.h"
#include "plan/planners/step_choice.h"
#include "tests/plan/planners/random_policy.h"

namespace automap::planners {
namespace {

using testing::IsEmpty;

constexpr double kGiB = 1024.0 * 1024 * 1024;

// Eight layers of two positions; micro-batches of 8 samples.
pipeline::Profile layers(double weights_gib, double stash_gib) {
  pipeline::Profile profile;
  profile.model = "stack";
  profile.micro_batch_size = 8;
  for (int i = 0; i < 16; ++i) {
    profile.c_ms.push_back(6);
    profile.a_bytes.push_back(1e6);
    profile.w_bytes.push_back(weights_gib * kGiB / 16);
    profile.stash_bytes.push_back(stash_gib * kGiB / 16);
    profile.layer.push_back("layer/" + std::to_string(i / 2));
  }
  return profile;
}

machine::Cluster servers(int count) {
  machine::Cluster cluster;
  cluster.name = "test";
  cluster.servers = {{count, 4, 100, 10, "gpu"}};
  cluster.devices["gpu"].memory_gib = 16;
  return cluster;
}

pipeline::ProblemOptions whole() {
  pipeline::ProblemOptions options;
  options.replicas = pipeline::Replicas::kWhole;
  return options;
}

PlanRequest quick() {
  PlanRequest request;
  request.effort = plan_effort(Effort::kQuick);
  request.schedules = {pipeline::Schedule::kAdaptive};
  request.max_stages = 16;
  request.lower_bound = false;
  request.policy = random_policy();
  return request;
}

std::vector<FittingChange> changes(const pipeline::Profile& profile, const pipeline::ProblemOptions& options,
                                   StepRequest step = {}, PlanRequest request = quick()) {
  EXPECT_FALSE(plan_step({profile, servers(1), options, step, request}).result.plan);
  return fitting_changes({profile, servers(1), options, step, request}, false);
}

TEST(LeastChange, ActivationsThatAreMadeAgain) {
  // Each sample takes 20 GiB: one alone fits on no stage of four, nor without its last layers.
  const auto found = changes(layers(1, 800), whole());
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().what, "--recompute auto");
  EXPECT_GT(found.front().step_ms, 0);
  EXPECT_EQ(fitting_changes({layers(1, 800), servers(1), whole(), {}, quick()}, true).front().what,
            "recompute added to --limit");
  pipeline::ProblemOptions with = whole();
  with.variants = {{0, false}, {0, true}};
  EXPECT_TRUE(plan_step({layers(1, 800), servers(1), with, {}, quick()}).result.plan);
}

TEST(LeastChange, StateThatIsSharded) {
  PlanRequest one_stage = quick();
  one_stage.max_stages = 1;
  // 5 GiB of weights are 20 GiB of state on every device, and 5 on each of four with all of it in parts.
  const auto found = changes(layers(5, 0.1), whole(), {}, one_stage);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().what, "--zero auto");
}

TEST(LeastChange, StageCountsAndMicroBatchesThatWereAsked) {
  PlanRequest one_stage = quick();
  one_stage.stages = 1;
  pipeline::ProblemOptions options = whole();
  options.variants = {{0, false}, {1, false}, {2, false}, {3, false}, {0, true}, {1, true}, {2, true}, {3, true}};
  StepRequest one_sample_too_many;
  one_sample_too_many.batch = 64;
  one_sample_too_many.micro_batch = 64;
  const auto found = changes(layers(0.1, 300), options, one_sample_too_many, one_stage);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().what, "--micro-batch auto");
}

TEST(LeastChange, MoreServersOrLargerDevices) {
  pipeline::ProblemOptions options = whole();
  options.variants = {{3, true}};
  const pipeline::Profile profile = layers(40, 0.1);
  const auto found = changes(profile, options);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].what, "4 servers of 4 x gpu instead of 1");
  EXPECT_TRUE(plan_step({profile, servers(4), options, {}, quick()}).result.plan);
  EXPECT_FALSE(plan_step({profile, servers(2), options, {}, quick()}).result.plan);
  EXPECT_EQ(found[0].what, "devices of 48.0 GiB");
  machine::Cluster larger = servers(1);
  larger.devices["gpu"].memory_gib = 48;
  EXPECT_TRUE(plan_step({profile, larger, options, {}, quick()}).result.plan);
  larger.devices["gpu"].memory_gib = 40;
  EXPECT_FALSE(plan_step({profile, larger, options, {}, quick()}).result.plan);
  // Whatever larger types of devices there are beside it.
  machine::Cluster several = servers(1);
  several.devices["other"].memory_gib = 64;
  EXPECT_EQ(fitting_changes({profile, several, options, {}, quick()}, false).at(0).what, "devices of 48.0 GiB");
}

TEST(LeastChange, NothingHelpsWhereOneLayerIsTooLarge) {
  pipeline::ProblemOptions options = whole();
  options.variants = {{3, true}};
  PlanRequest request = quick();
  request.time_limit_s = 1;
  EXPECT_THAT(changes(layers(1e6, 0.1), options, {}, request), IsEmpty());
}

}  // namespace
}  // namespace automap::planners
