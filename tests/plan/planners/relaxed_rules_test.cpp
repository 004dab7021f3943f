// Rules that plans keep to and that cost much.
#include "plan/planners/relaxed_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/planners/answer.h"

namespace automap::planners {
namespace {

using testing::Contains;
using testing::HasSubstr;

// Eight positions of 1 ms; only those in front have variables, so that stages behind them have none of their own.
Question front_loaded(int with_variables, double kept_gib = 0.01) {
  pipeline::Profile profile;
  profile.model = "front";
  for (int i = 0; i < 8; ++i) {
    profile.c_ms.push_back(1);
    profile.a_bytes.push_back(1e5);
    profile.w_bytes.push_back(i < with_variables ? 1e6 : 0);
    profile.stash_bytes.push_back(kept_gib * 1024 * 1024 * 1024);
    profile.layer.push_back("h/" + std::to_string(i));
  }
  profile.micro_batch_size = 1;
  machine::Cluster cluster = machine::load_cluster("config-a");
  cluster.servers[0].count = 1;
  cluster.servers[0].devices = 4;
  StepRequest step;
  step.batch = 16;
  step.micro_batch = 1;  // no replicas: a pipeline
  PlanRequest request;
  request.stages = 4;
  request.schedules = {pipeline::Schedule::kAdaptive};
  request.effort = plan_effort(Effort::kQuick);
  return {profile, cluster, pipeline::usual_options(), step, request};
}

TEST(RelaxedRules, AVariableOfEveryStagesOwnIsNamedWithWhatItCosts) {
  Question question = front_loaded(4);
  const Answer found = answer(question, uniform_kinds());
  ASSERT_TRUE(found.plan().found());
  ASSERT_EQ(found.relaxed.size(), 1u);
  EXPECT_THAT(found.relaxed[0].rule, HasSubstr("variable of its own"));
  // The last stage holds five positions of eight; without the rule each holds two.
  Question without = question;
  without.options.allow_empty_stages = true;
  const Answer least = answer(without, uniform_kinds());
  EXPECT_NEAR(found.relaxed[0].simulated_ms, least.plan().simulated_step_ms, 1e-9);
  EXPECT_LT(found.relaxed[0].simulated_ms, 0.7 * found.plan().simulated_step_ms);
  EXPECT_TRUE(least.relaxed.empty());
}

// The answer may be a list of work, shorter than the plan that the rules are lifted of.
TEST(RelaxedRules, AreNamedWhereTheyWouldBeShorterThanTheAnswer) {
  Question question = front_loaded(4);
  const Candidate plan = answer(question, uniform_kinds()).one_width;
  const std::vector<RelaxedRule> found = relaxed_rules(question, plan, 0.9 * plan.simulated_step_ms);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(relaxed_rules(question, plan, found[0].simulated_ms).empty());
}

TEST(RelaxedRules, WhatCostsNothingIsNotNamed) {
  Question question = front_loaded(8);
  EXPECT_TRUE(answer(question, uniform_kinds()).relaxed.empty());
  EXPECT_THAT(rules_of(question), Contains(HasSubstr("variable of its own")));
  EXPECT_THAT(rules_of(question), Contains(HasSubstr("fits into the memory")));
  question.options.allow_empty_stages = question.options.allow_idle_stages = true;
  question.options.memory = false;
  EXPECT_THAT(rules_of(question), testing::ElementsAre(HasSubstr("share its samples evenly")));
}

TEST(RelaxedRules, MemoryIsNamedWhereAPlanRecomputesForIt) {
  // 2 GiB a position: a stage keeps four of them of four micro-batches, 16 GiB and more.
  Question question = front_loaded(8, 2);
  question.options.variants = {{0, false}, {0, true}};
  const Answer found = answer(question, uniform_kinds());
  ASSERT_TRUE(found.plan().found());
  EXPECT_THAT(found.relaxed, Contains(testing::Field(&RelaxedRule::options, "--memory off")));
  for (const RelaxedRule& one : found.relaxed) EXPECT_LT(one.simulated_ms, 0.98 * found.plan().simulated_step_ms);
}

}  // namespace
}  // namespace automap::planners
