// Among plans of the same length the one that leaves the most memory is chosen.
#include "plan/planners/leaner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "plan/planners/answer.h"
#include "plan/planners/score.h"
#include "plan/planners/sweep.h"

namespace automap::planners {
namespace {

using testing::HasSubstr;

// Eight layers on two devices of one server; `forward` of what they compute is the forward pass, which recomputation
// takes twice. `kept_gib`: what the backward pass reads of a sample, of all layers.
Question two_devices(double forward, double kept_gib) {
  pipeline::Profile profile;
  profile.model = "lean";
  for (int i = 0; i < 8; ++i) {
    profile.c_ms.push_back(10);
    profile.a_bytes.push_back(1e6);
    profile.w_bytes.push_back(1e6);
    profile.stash_bytes.push_back(kept_gib * 1024 * 1024 * 1024 / 8);
    profile.layer.push_back("h/" + std::to_string(i));
  }
  profile.micro_batch_size = 1;
  profile.forward_fraction = forward;
  machine::Cluster cluster = machine::load_cluster("config-a");
  cluster.servers[0].count = 1;
  cluster.servers[0].devices = 2;
  pipeline::ProblemOptions options;
  options.replicas = pipeline::Replicas::kWhole;
  options.variants = {{0, false}, {0, true}};
  StepRequest step;
  step.batch = 2;
  PlanRequest request;
  request.stages = 1;
  request.schedules = {pipeline::Schedule::kAdaptive};
  request.effort = plan_effort(Effort::kQuick);
  return {profile, cluster, options, step, request};
}

Answer answered(Question question) {
  return answer(question, uniform_kinds());
}

bool recomputes(const Candidate& plan) {
  return plan.problem->variant(plan.plan.variant(1)).recompute;
}

double share(const Candidate& plan) {
  return plan.memory_bytes / plan.capacity_bytes;
}

TEST(Leaner, WhatCostsNothingIsTaken) {
  const Answer found = answered(two_devices(0.0005, 4));
  ASSERT_TRUE(found.plan().found());
  EXPECT_TRUE(recomputes(found.plan()));
  EXPECT_LT(share(found.plan()), 0.1);
  EXPECT_TRUE(found.leaner.empty());
  for (const Candidate& one : found.kinds) {
    if (one.found() && one.simulated_step_ms < found.plan().simulated_step_ms) {
      EXPECT_FALSE(one.left_out.empty()) << one.kind;
    }
  }
}

TEST(Leaner, ALittleLongerWhereMemoryIsFull) {
  // The devices have 16 GiB.
  const Answer full = answered(two_devices(0.005, 15.6));
  ASSERT_TRUE(full.plan().found());
  EXPECT_TRUE(recomputes(full.plan()));
  EXPECT_THAT(full.leaner, testing::AllOf(HasSubstr("longer than the shortest found"), HasSubstr("97.")));
  EXPECT_LE(full.plan().simulated_step_ms, full.bounds.simulated_ms * (1 + kLittleLonger));

  const Answer half = answered(two_devices(0.005, 8));
  ASSERT_TRUE(half.plan().found());
  EXPECT_FALSE(recomputes(half.plan()));
  EXPECT_TRUE(half.leaner.empty());

  // 14.6 of 16 GiB are 91 %: not as full.
  const Answer fuller = answered(two_devices(0.005, 14.6));
  ASSERT_TRUE(fuller.plan().found());
  EXPECT_GT(share(fuller.plan()), kRoomy);
  EXPECT_FALSE(recomputes(fuller.plan()));

  const Answer dear = answered(two_devices(0.02, 15.6));
  ASSERT_TRUE(dear.plan().found());
  EXPECT_FALSE(recomputes(dear.plan()));
}

TEST(Leaner, APlannerThatWasNamedHasItsOwnPlan) {
  Question question = two_devices(0.0005, 4);
  question.request.planner = PlannerKind::kDataParallel;
  question.request.objective = Objective::kSimulated;
  EXPECT_FALSE(recomputes(answered(question).plan()));
}

TEST(UsualBatch, SixteenTimesTheModulesUpTo256) {
  EXPECT_EQ(usual_batch(1), 16);
  EXPECT_EQ(usual_batch(16), 256);
  EXPECT_EQ(usual_batch(24), 240);
  EXPECT_EQ(usual_batch(200), 200);
  EXPECT_EQ(usual_batch(512), 512);
  pipeline::Profile profile = two_devices(0.3, 1).profile();
  profile.micro_batch_size = 512;
  for (const StepSize& size : step_sizes({}, profile, pipeline::Replicas::kWhole)) EXPECT_EQ(size.batch(), 512);
  EXPECT_EQ(step_sizes({}, profile, pipeline::Replicas::kFractional).front().batch(), 512);
}

TEST(Layouts, WithoutAMicroBatchSizeTakeTheLargestThatFits) {
  Question question = two_devices(0.3, 4);
  question.step.batch = 64;
  Layout layout;
  layout.dp = 2;
  // 16 GiB for what 4 GiB a sample is kept of: 3 fit, and of those that divide 32 samples 2.
  ScoredPlan scored = score_layout(layout, question);
  EXPECT_EQ(scored.problem->micro_batch_samples(), 4);
  EXPECT_THAT(scored.departures, testing::ElementsAre(HasSubstr("2 is the largest that fits in memory")));
  layout.dp = 1;
  layout.pp = 2;
  scored = score_layout(layout, question);
  double least = kInfinity;
  for (const std::int64_t size : divisors(64)) {
    layout.micro_batch_size = size;
    const ScoredPlan one = score_layout(layout, question);
    if (one.missing_bytes <= 0) least = std::min(least, one.simulated_step_ms);
  }
  EXPECT_EQ(scored.simulated_step_ms, least);
  EXPECT_THAT(scored.departures, testing::ElementsAre(HasSubstr("makes the shortest step")));
  // Only sizes with known times are chosen.
  question = two_devices(0.3, 0.1);
  question.step.batch = 64;
  pipeline::Profile timed = question.profile();
  pipeline::DeviceTimes times;
  times.device = question.cluster.servers[0].device;
  times.samples = {1, 8};
  times.forward_ms = times.backward_ms = {std::vector<double>(8, 1), std::vector<double>(8, 6)};
  times.optimizer_ms.assign(8, 0);
  timed.times.push_back(times);
  timed.device = times.device;
  question.set_profile(timed);
  layout.pp = 1;
  layout.micro_batch_size = 0;
  EXPECT_THAT(score_layout(layout, question).departures,
              testing::ElementsAre(HasSubstr("8 is the largest that times are known of")));
  question.step.batch = 100003;  // a prime
  EXPECT_THROW(score_layout(layout, question), Error);
  layout.pp = 2;
  // Nothing fits: the smallest, and that it does not.
  layout.micro_batch_size = 0;
  question = two_devices(0.3, 400);
  scored = score_layout(layout, question);
  EXPECT_EQ(scored.problem->micro_batch_samples(), 1);
  EXPECT_GT(scored.missing_bytes, 0);
  EXPECT_THAT(scored.departures, testing::ElementsAre(HasSubstr("lacks the least memory")));
}

TEST(Layouts, TheUsualBatchIsSaidToBeAnotherWhereItDoesNotDivide) {
  Question question = two_devices(0.3, 1);
  question.step.batch = 0;
  Layout layout;
  layout.dp = 2;
  EXPECT_EQ(score_layout(layout, question).problem->micro_batch_samples() *
                score_layout(layout, question).problem->micro_batches(),
            16);
  question.cluster.servers[0].devices = 5;
  layout.dp = 5;
  const ScoredPlan scored = score_layout(layout, question);
  EXPECT_EQ(scored.problem->micro_batch_samples() * scored.problem->micro_batches(), 20);
  EXPECT_THAT(scored.departures, testing::Contains(HasSubstr("no multiple of 5")));
}

// 1024 samples of which a device holds two at a time: more than 128 micro-batches on every grid.
TEST(Sweeps, SeeAsManyMicroBatchesAsItTakes) {
  Question question = two_devices(0.3, 6);
  question.step.batch = 1024;
  SweepRequest request;
  const Sweep sweep = sweep_layouts(question, request);
  ASSERT_FALSE(sweep.layouts.empty());
  EXPECT_LE(sweep.layouts.front().missing_bytes, 0);
  EXPECT_GT(sweep.layouts.front().micro_batches, kMostMicroBatches);
}

}  // namespace
}  // namespace automap::planners
