#include "plan/planners/sensitivity.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/machine/chosen_devices.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/schedule.h"
#include "plan/planners/step_choice.h"
#include "tests/plan/planners/random_policy.h"
#include "tests/sanitized.h"

namespace automap::planners {
namespace {

using pipeline::PlanSensitivity;
using pipeline::Problem;
using pipeline::RandomProblem;

RandomProblem problem_with_limit(std::uint64_t seed, double with_memory_limit) {
  pipeline::RandomProblemOptions options;
  options.min_instructions = 4;
  options.max_instructions = 12;
  options.min_servers = 2;
  options.max_servers = 2;
  options.min_devices = 2;
  options.max_devices = 4;
  options.whole = 1;
  options.with_memory_limit = with_memory_limit;
  RandomProblem made = pipeline::random_problem(seed, options);
  made.options.allow_idle_stages = true;
  return made;
}

PlanRequest quick_request() {
  PlanRequest request;
  request.effort = plan_effort(Effort::kQuick);
  request.schedules = {pipeline::Schedule::kAdaptive};
  request.lower_bound = false;
  request.policy = random_policy();
  return request;
}

struct Asked {
  Candidate plan;
  std::vector<PlanSensitivity> rows;
};

Asked ask(const RandomProblem& made, const ExpectedErrors& errors) {
  StepRequest step;
  step.batch = 8;
  const Question question(made.profile, made.cluster, made.options, step, quick_request());
  Asked asked{candidate_of("", plan_step(question)), {}};
  if (asked.plan.found()) asked.rows = plan_sensitivity(question, asked.plan, errors);
  return asked;
}

const PlanSensitivity& row(const std::vector<PlanSensitivity>& rows, const std::string& changed) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const auto& one) { return one.changed == changed; });
  if (found == rows.end()) throw std::out_of_range(changed);
  return *found;
}

// The plan's step on a problem written anew, all compute `factor` times as long.
double step_with_compute(const RandomProblem& made, const Candidate& planned, double factor) {
  pipeline::Profile profile = made.profile;
  for (double& ms : profile.c_ms) ms *= factor;
  for (pipeline::DeviceTimes& times : profile.times) {
    for (auto* points : {&times.forward_ms, &times.backward_ms}) {
      for (auto& point : *points) {
        for (double& ms : point) ms *= factor;
      }
    }
    for (double& ms : times.optimizer_ms) ms *= factor;
  }
  pipeline::ProblemOptions options = made.options;
  options.micro_batches = planned.size.micro_batches;
  options.micro_batch_samples = planned.size.samples;
  const Problem problem(profile, machine::on_devices(made.cluster, planned.devices()), options);
  return pipeline::simulate_step_ms(problem, planned.plan);
}

TEST(Sensitivity, CountsThePlanUnderTheChangedNumbersBesideTheBest) {
  int asked_about = 0, another_is_better = 0;
  for (std::uint64_t seed = 0; seed < (kSanitized ? 4 : 12); ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = problem_with_limit(seed, 0);
    const Asked asked = ask(made, {0.5, 0.5, 1, 1, 0});
    if (!asked.plan.found()) continue;
    ++asked_about;
    const double now = asked.plan.simulated_step_ms;
    ASSERT_EQ(asked.rows.size(), 8u);
    for (const PlanSensitivity& one : asked.rows) {
      EXPECT_GT(one.simulated_step_ms, 0) << one.changed;
      EXPECT_LE(one.best_ms, one.simulated_step_ms) << one.changed;
      EXPECT_EQ(one.best.empty(), one.best_ms == one.simulated_step_ms) << one.changed;
      another_is_better += one.loss() > 0.001;
    }
    EXPECT_NEAR(row(asked.rows, "compute 50 % slower").simulated_step_ms, step_with_compute(made, asked.plan, 1.5),
                1e-9 * now);
    EXPECT_NEAR(row(asked.rows, "compute 50 % faster").simulated_step_ms, step_with_compute(made, asked.plan, 1 / 1.5),
                1e-9 * now);
    EXPECT_LE(row(asked.rows, "links between servers 100 % faster").simulated_step_ms, now * (1 + 1e-12));
    EXPECT_GE(row(asked.rows, "links inside servers 100 % slower").simulated_step_ms, now * (1 - 1e-12));
    EXPECT_GE(row(asked.rows, "the back half's compute 50 % slower").simulated_step_ms, now * (1 - 1e-12));
  }
  EXPECT_GT(asked_about, kSanitized ? 1 : 8);
  EXPECT_TRUE(another_is_better > 0 || kSanitized);
}

TEST(Sensitivity, SaysWhereThePlanNoLongerFits) {
  int fits = 0, not_any_more = 0;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    SCOPED_TRACE(seed);
    const Asked asked = ask(problem_with_limit(seed, 1), {0, 0, 0, 0, 1});
    if (!asked.plan.found()) continue;
    ASSERT_EQ(asked.rows.size(), 2u);
    const PlanSensitivity& larger = row(asked.rows, "activations 100 % larger");
    fits += larger.simulated_step_ms > 0;
    not_any_more += larger.simulated_step_ms == 0;
    EXPECT_EQ(larger.best.empty(), larger.best_ms == larger.simulated_step_ms);
    EXPECT_GT(row(asked.rows, "activations 100 % smaller").simulated_step_ms, 0);
  }
  EXPECT_GT(fits, 0);
  EXPECT_GT(not_any_more, 0);
}

TEST(Sensitivity, AsksOnlyAboutWhatIsThereAndStopsWhenToldTo) {
  RandomProblem made = problem_with_limit(1, 0);
  made.cluster.servers = {made.cluster.servers.front()};
  made.cluster.servers[0].count = 1;
  const Asked asked = ask(made, {0, 0, 0.1, 0.1, 0});
  ASSERT_TRUE(asked.plan.found());
  EXPECT_EQ(asked.rows.size(), 2u);  // one server: nothing between servers
  EXPECT_TRUE(ask(made, {}).rows.empty());
  PlanRequest stopped = quick_request();
  stopped.cancelled = [] { return true; };
  EXPECT_TRUE(plan_sensitivity({made.profile, made.cluster, made.options, {8, 0, 0, false}, stopped}, asked.plan,
                               {0.1, 0.1, 0.1, 0.1})
                  .empty());
}

}  // namespace
}  // namespace automap::planners
