// Stages of different widths: what a plan costs, beside the problems of one width, and what the search finds, beside
// the enumeration of all such plans.
#include "plan/planners/mixed_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/warmup.h"
#include "plan/planners/any_width.h"
#include "plan/planners/effort.h"
#include "plan/planners/step_choice.h"
#include "tests/plan/planners/random_width.h"
#include "tests/sanitized.h"

namespace automap::planners {
namespace {

using pipeline::MixedPlan;
using pipeline::MixedProblem;
using pipeline::PipelineTimes;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::RandomProblem;
using pipeline::Schedule;

RandomProblem random_mixed_case(std::uint64_t seed, int most_instructions) {
  pipeline::RandomProblemOptions how;
  how.min_instructions = 3;
  how.max_instructions = most_instructions;
  how.min_servers = 1;
  how.max_servers = 2;
  how.min_devices = 2;
  how.max_devices = 4;
  how.heterogeneous = 0.3;
  how.with_latency = 0.5;
  how.with_memory_limit = 0.5;
  how.measured = 0.2;
  how.whole = 1;
  how.with_shared = 0;
  RandomProblem made = random_problem(seed, how);
  for (const int width : machine::widths_of(made.cluster)) {
    made.profile.widths.push_back(random_width(made.profile, width, seed));
  }
  made.options.micro_batch_samples = 4;
  made.options.micro_batches = 4;
  return made;
}

// Null where the times of the profile do not reach.
std::unique_ptr<MixedProblem> mixed_problem(const RandomProblem& made) {
  try {
    return std::make_unique<MixedProblem>(made.profile, made.cluster, made.options);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    return nullptr;
  }
}

MixedPlan mixed_of(const Plan& plan, int width) {
  MixedPlan out;
  static_cast<Plan&>(out) = plan;
  for (int& cut : out.device_cuts) cut *= width;
  out.widths.assign(static_cast<std::size_t>(plan.num_stages()), width);
  return out;
}

bool differ(const std::vector<int>& widths) {
  return std::any_of(widths.begin(), widths.end(), [&](int width) { return width != widths.front(); });
}

TEST(MixedWidths, OfOneWidthAreThatProblemsPlans) {
  int ran = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = random_mixed_case(seed, 9);
    const auto mixed = mixed_problem(made);
    if (!mixed) continue;
    pipeline::CounterRandom random(seed, 31);
    for (const int width : mixed->widths()) {
      const Problem& problem = mixed->problem(width);
      const int most = std::min({3, problem.num_devices(), problem.num_instructions()});
      Plan plan = random_plan(problem, random.integer(1, most), Schedule::kAdaptive, random);
      plan.variants.clear();
      for (int s = 0; s < plan.num_stages(); ++s) {
        plan.variants.push_back(static_cast<std::uint8_t>(random.integer(0, problem.num_variants() - 1)));
      }
      const MixedPlan same = mixed_of(plan, width);
      const double ms = mixed->simulated_ms(same);
      if (!feasible(problem, plan)) {
        EXPECT_EQ(ms, kInfinity);
        EXPECT_EQ(infeasible_reason(mixed->place(same)), infeasible_reason(problem, plan));
        ++refused;
        continue;
      }
      ++ran;
      const PipelineTimes times = *mixed->times(same);
      PipelineTimes expected = pipeline_times(problem, plan);
      EXPECT_EQ(times.forward_ms, expected.forward_ms);
      EXPECT_EQ(times.backward_ms, expected.backward_ms);
      EXPECT_EQ(times.transfer_ms, expected.transfer_ms);
      EXPECT_EQ(times.allreduce_ms, expected.allreduce_ms);
      EXPECT_EQ(times.sync_left_ms, expected.sync_left_ms);
      EXPECT_EQ(times.optimizer_ms, expected.optimizer_ms);
      EXPECT_EQ(times.value_in_flight, expected.value_in_flight);
      EXPECT_DOUBLE_EQ(ms, quick_warmup(problem, plan, expected));
      EXPECT_DOUBLE_EQ(value_ms(mixed->place(same)), value_ms(problem, plan));
      EXPECT_EQ(infeasible_reason(mixed->place(same)), "");
      // The chosen warm-up is the same, too.
      MixedPlan chosen = same;
      chosen.warmup = chosen_warmup(mixed->place(same));
      choose_warmup(problem, plan);
      EXPECT_EQ(chosen.warmup, plan.warmup);
      EXPECT_DOUBLE_EQ(mixed->simulated_ms(chosen), simulate_step_ms(problem, plan));
    }
  }
  EXPECT_GT(ran, 500);
  EXPECT_GT(refused, 50);
}

TEST(MixedWidths, MessagesBetweenWidthsTakeAsLongAsBetweenTheWider) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = random_mixed_case(seed, 5);
    const auto mixed = mixed_problem(made);
    if (!mixed || mixed->widths().size() < 2 || mixed->num_devices() < 4) continue;
    const int width = mixed->widths()[1];
    if (mixed->widths().front() != 1 || mixed->num_devices() < 2 * width) continue;
    const pipeline::Link between = mixed->link(0, width, 1, 2 * width, width),
                         wide = mixed->link(0, width, width, 2 * width, width);
    EXPECT_EQ(between.bytes_per_ms, wide.bytes_per_ms);
    EXPECT_EQ(between.latency_ms, wide.latency_ms);
    // If the narrow side is no multiple, every device of a replica gets as much as a single device would.
    if (mixed->num_devices() < 3 || width != 2) continue;
    const pipeline::Link odd = mixed->link(0, 1, 1, 3, 2), narrow = mixed->link(0, 1, 1, 3, 1);
    EXPECT_DOUBLE_EQ(odd.bytes_per_ms, narrow.bytes_per_ms / 2);
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

TEST(MixedWidths, WhatCannotRun) {
  const RandomProblem made = random_mixed_case(3, 6);
  const auto mixed = mixed_problem(made);
  ASSERT_NE(mixed, nullptr);
  const int d = mixed->num_devices();
  MixedPlan plan;
  plan.schedule = Schedule::kAdaptive;
  EXPECT_EQ(mixed->simulated_ms(plan), kInfinity);  // no stage
  plan.widths = {1, 1};
  EXPECT_EQ(mixed->simulated_ms(plan), kInfinity);  // no cut
  plan.cuts = {1};
  plan.device_cuts = {d};
  EXPECT_EQ(mixed->simulated_ms(plan), kInfinity);  // nothing for the second
  plan.device_cuts = {1};
  plan.widths = {2, 1};
  EXPECT_EQ(mixed->simulated_ms(plan), kInfinity);  // half a replica
  plan.widths = {64, 1};
  EXPECT_EQ(mixed->simulated_ms(plan), kInfinity);  // a width that nobody knows
  plan.widths = {0, 1};
  EXPECT_EQ(mixed->simulated_ms(plan), kInfinity);
  plan.widths = {1, 1};
  plan.variants = {200, 0};
  EXPECT_EQ(mixed->simulated_ms(plan), kInfinity);  // a variant, likewise
  plan.variants.clear();
  plan.warmup = {1, 2};
  EXPECT_EQ(mixed->simulated_ms(plan), kInfinity);  // more in flight than in front
}

// Every plan of up to three stages that can run, of one width and of several.
void for_each_plan(const MixedProblem& problem, const std::function<void(const MixedPlan&)>& visit) {
  const std::vector<int> widths = problem.widths();
  MixedPlan plan;
  plan.schedule = Schedule::kAdaptive;
  const std::function<void(int, int)> grow = [&](int p0, int d0) {
    for (const int width : widths) {
      for (int v = 0; v < problem.problem(width).num_variants(); ++v) {
        plan.widths.push_back(width);
        plan.variants.push_back(static_cast<std::uint8_t>(v));
        if (problem.times(plan)) visit(plan);
        for (int p = p0 + 1; p < problem.num_instructions() && plan.num_stages() < 3; ++p) {
          for (int d = d0 + 1; d < problem.num_devices(); ++d) {
            plan.cuts.push_back(p);
            plan.device_cuts.push_back(d);
            grow(p, d);
            plan.cuts.pop_back();
            plan.device_cuts.pop_back();
          }
        }
        plan.widths.pop_back();
        plan.variants.pop_back();
      }
    }
  };
  grow(0, 0);
}

// The least of all plans whose stages differ in width, with a quickly chosen warm-up.
double least_of_all(const MixedProblem& problem) {
  double least = kInfinity;
  for_each_plan(problem, [&](const MixedPlan& plan) {
    if (differ(plan.widths)) least = std::min(least, problem.simulated_ms(plan));
  });
  return least;
}

TEST(MixedWidths, TheSearchIsOftenTheLeastOfAll) {
  int compared = 0, least = 0, shorter = 0, missed = 0;
  double gap_sum = 0;
  for (std::uint64_t seed = 0; seed < 250 / kShare; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem made = random_mixed_case(seed, 5);
    made.options.variants.resize(1);
    if (made.profile.widths.empty()) continue;
    const auto mixed = mixed_problem(made);
    if (!mixed || mixed->widths().size() < 2) continue;
    PlanRequest request;
    request.lower_bound = false;
    request.max_stages = 3;
    request.schedules = {Schedule::kAdaptive};
    StepRequest step;
    step.micro_batch = 4;
    step.micro_batches = 4;
    step.batch = 16;
    const Question question(made.profile, made.cluster, made.options, step, request);
    StepPlan searched = plan_step(question);
    if (!searched.result.plan || searched.size.devices > 0) continue;
    const Bounds bounds = bounds_of(searched);
    const Candidate found = candidate_of("", std::move(searched));
    const double best = least_of_all(*mixed);
    const auto one = best_mixed("", question, found, bounds);
    if (best == kInfinity) continue;
    ++compared;
    if (!one) {
      ++missed;
      continue;
    }
    EXPECT_DOUBLE_EQ(one->simulated_step_ms, one->mixed->simulated_ms(one->mixed_plan()));
    EXPECT_TRUE(differ(one->mixed_plan().widths));
    // Other splits of the batch are looked at, too.
    const double gap = one->simulated_step_ms / best - 1;
    least += gap < 1e-9;
    gap_sum += std::max(0.0, gap);
    shorter += best < found.simulated_step_ms * (1 - 1e-3);
  }
  std::printf("  %d of %d are the least of all, mean gap %.3g %%, %d not found; in %d cases mixing is shorter\n", least,
              compared, 100 * gap_sum / std::max(1, compared - missed), missed, shorter);
  EXPECT_GT(compared, 60 / kShare);
  EXPECT_LE(missed, compared / 10);
  EXPECT_LT(gap_sum / compared, 0.05);
}

// Nothing enumerated, of one width or several, has a smaller V or is simulated shorter than the relaxed problem's
// bound, nor than what is said of all splits of the batch.
TEST(MixedWidths, NoPlanIsBelowTheBoundOfAnyWidths) {
  int problems = 0, bounded = 0;
  double looseness = 0;
  for (std::uint64_t seed = 0; seed < 250 / kShare; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem made = random_mixed_case(seed, 5);
    made.options.variants.resize(std::min<std::size_t>(made.options.variants.size(), 2));
    if (made.profile.widths.empty() || made.profile.times.empty()) continue;
    const auto mixed = mixed_problem(made);
    if (!mixed || mixed->widths().size() < 2) continue;
    const auto relaxed = any_width_problem(*mixed, made.profile, made.cluster);
    Work work;
    const double bound = lower_bound_all_cuts(*relaxed, {Schedule::kAdaptive}, 1, 3, kInfinity, work).ms * (1 - 1e-9);
    double least = kInfinity;
    for_each_plan(*mixed, [&](const MixedPlan& plan) {
      const double value = value_ms(mixed->place(plan)), simulated = mixed->simulated_ms(plan);
      ASSERT_LE(bound, value);
      ASSERT_LE(bound, simulated);
      least = std::min({least, value, simulated});
    });
    if (least == kInfinity) continue;
    ++problems;
    looseness += least / bound - 1;

    PlanRequest request;
    request.max_stages = 3;
    request.schedules = {Schedule::kAdaptive};
    StepRequest step;
    step.batch = 16;
    const Question question(made.profile, made.cluster, made.options, step, request);
    StepPlan searched = plan_step(question);
    const Bounds bounds = bounds_of(searched);
    if (!searched.result.plan || bounds.scope(made.cluster).devices.front() < mixed->num_devices()) {
      continue;
    }
    const Candidate found = candidate_of("", std::move(searched));
    const double all = any_width_bound(question, found, bounds).ms;
    EXPECT_GT(all, 0);
    EXPECT_LE(all, least);
    EXPECT_LE(all, found.simulated_step_ms);
    ++bounded;
  }
  std::printf("  %d problems, the least plan is %.3g %% above the bound\n", problems, 100 * looseness / problems);
  EXPECT_GT(problems, 60 / kShare);
  EXPECT_GT(bounded, 40 / kShare);
  EXPECT_LT(looseness / problems, 0.25);
}

}  // namespace
}  // namespace automap::planners
