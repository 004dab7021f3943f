// V against the event simulation on the random suite: the bands that docs/cost-model.md promises. The full table:
// bench/value_accuracy.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/pipeline/baselines.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/schedule.h"

namespace automap::pipeline {
namespace {

double error_of(const Problem& problem, const Plan& plan) {
  return value_ms(problem, plan) / simulate_step_ms(problem, plan) - 1;
}

struct Measured {
  double optimal = 0, random = 0, regret = 0;  // means
  double highest = -1;                         // largest V / simulation - 1 of all plans seen
};

Measured measure(int stages, Schedule schedule, ValueForm form, double with_allreduce, int problems) {
  RandomProblemOptions options;
  options.with_allreduce = with_allreduce;
  Measured mean;
  for (int i = 0; i < problems; ++i) {
    RandomProblem made = random_problem(static_cast<std::uint64_t>(1000 + i), options);
    made.options.value = form;
    const Problem problem = made.problem();
    const auto judge = [&](const Plan& plan) {
      const double error = error_of(problem, plan);
      mean.highest = std::max(mean.highest, error);
      return error;
    };
    CounterRandom random(static_cast<std::uint64_t>(i), 10);
    for (int k = 0; k < 20; ++k) {
      mean.random += judge(random_plan(problem, stages, schedule, random)) / (20 * problems);
    }
    ExactOptions exact;
    exact.min_stages = exact.max_stages = stages;
    exact.schedule = schedule;
    exact.pivots = grid_pivots(problem.num_instructions(), 64);
    const ExactResult solved = solve_exact(problem, exact);
    EXPECT_TRUE(solved.proven() && solved.best() != nullptr);
    const Plan plan = refine_in_corridor(problem, solved.best()->plans.front());
    Work without_end;
    mean.optimal += judge(plan) / problems;
    LocalSearchOptions search;
    search.stages = stages;
    search.schedule = schedule;
    search.objective = Objective::kSimulated;
    search.max_evaluations = 1000;
    const double best_ms =
        std::min(simulate_step_ms(problem, polish(problem, plan, Objective::kSimulated, without_end, 1000)),
                 simulate_step_ms(problem, *local_search_plan(problem, search)));
    mean.regret += (simulate_step_ms(problem, plan) / best_ms - 1) / problems;
  }
  return mean;
}

constexpr int kProblems = 16;

TEST(ValueAccuracy, FullFormStaysWithinItsBands) {
  struct Band {
    int stages;
    double lowest, most_regret;
  };
  for (double with_allreduce : {0.0, 1.0}) {
    for (Schedule schedule : {Schedule::k1f1b, Schedule::k1f1bOverlap}) {
      for (const Band& band : {Band{2, -0.005, 0.01}, Band{4, -0.04, 0.03}, Band{8, -0.08, 0.05}}) {
        SCOPED_TRACE(std::string(to_string(schedule)) + ", " + std::to_string(band.stages) + " stages");
        const Measured mean = measure(band.stages, schedule, ValueForm::kFull, with_allreduce, kProblems);
        EXPECT_GE(mean.optimal, band.lowest);
        EXPECT_LE(mean.optimal, 0.005);
        EXPECT_LE(mean.regret, band.most_regret);
        EXPECT_NEAR(mean.random, 0, 0.015);
        // Only the all-reduce, taken as a maximum of its own, can lift V above the simulation.
        EXPECT_LE(mean.highest, with_allreduce > 0 ? 0.4 : 1e-12);
      }
    }
  }
}

TEST(ValueAccuracy, PaperFormIsFurtherOffAtItsOwnOptimum) {
  for (int stages : {2, 8}) {
    const Measured paper = measure(stages, Schedule::k1f1b, ValueForm::kPaper, 0.5, kProblems);
    const Measured full = measure(stages, Schedule::k1f1b, ValueForm::kFull, 0.5, kProblems);
    EXPECT_LT(paper.optimal, full.optimal - 0.03);
    EXPECT_GT(paper.regret, full.regret + 0.02);
  }
}

// Shortening the random problem suite would silently weaken everything above.
TEST(RandomProblem, DependsOnTheSeedOnlyAndCoversWhatItPromises) {
  RandomProblemOptions options;
  options.min_servers = 1;
  options.max_servers = 3;
  options.heterogeneous = 0.5;
  options.with_latency = 0.5;
  options.with_memory_limit = 0.5;
  options.forward_heavy = 0.5;
  options.with_zeros = 0.5;
  int allreduce = 0, mixed = 0, latency = 0, limited = 0, forward_heavy = 0, zeros = 0;
  double lowest_share = 1e300, highest_share = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const RandomProblem made = random_problem(seed, options);
    const RandomProblem again = random_problem(seed, options);
    ASSERT_EQ(made.profile.c_ms, again.profile.c_ms);
    ASSERT_EQ(made.profile.w_bytes, again.profile.w_bytes);
    ASSERT_EQ(to_json_text(made.cluster), to_json_text(again.cluster));
    ASSERT_NO_THROW(check_profile(made.profile, "made"));
    ASSERT_NO_THROW(machine::check_cluster(made.cluster, "made"));
    ASSERT_GE(made.profile.size(), options.min_instructions);
    ASSERT_LE(made.profile.size(), options.max_instructions);
    const Problem problem = made.problem();
    const int n = problem.num_instructions();
    if (problem.weight_bytes(0, n) > 0) ++allreduce;
    if (made.cluster.devices.size() > 1) ++mixed;
    if (made.cluster.inter_latency_us > 0) ++latency;
    if (problem.group(0, 1).capacity_bytes < 1e12) ++limited;
    if (made.profile.forward_fraction > 0.6) ++forward_heavy;
    if (std::count(made.profile.c_ms.begin(), made.profile.c_ms.end(), 0.0) > 0) ++zeros;
    if (made.cluster.num_servers() < 2) continue;
    // A transfer at the middle over the slowest port against an average stage of one device.
    double slowest = 1e300;
    for (const ServerGroup& group : made.cluster.servers) slowest = std::min(slowest, group.inter_gbytes_per_s);
    std::vector<double> activations = made.profile.a_bytes;
    std::nth_element(activations.begin(), activations.begin() + n / 2, activations.end());
    const double share = activations[static_cast<std::size_t>(n / 2)] / (slowest * 1e6) /
                         (problem.work_ms(0, n) / problem.num_devices());
    lowest_share = std::min(lowest_share, share);
    highest_share = std::max(highest_share, share);
  }
  for (int count : {allreduce, mixed, latency, limited, forward_heavy, zeros}) {
    EXPECT_GT(count, 40);
    EXPECT_LT(count, 160);
  }
  EXPECT_LT(lowest_share, 0.03);
  EXPECT_GT(highest_share, 0.4);
  EXPECT_NE(random_problem(1).profile.c_ms, random_problem(2).profile.c_ms);
}

TEST(RandomProblem, PlansAreValidAndSpreadOverAllCuts) {
  const RandomProblem made = random_problem(1);
  const Problem problem = made.problem();
  CounterRandom random(1, 11);
  std::vector<int> used(static_cast<std::size_t>(problem.num_devices()), 0);
  for (int i = 0; i < 3000; ++i) {
    const Plan plan = random_plan(problem, random.integer(1, 8), Schedule::k1f1b, random);
    ASSERT_TRUE(valid_structure(problem, plan));
    for (int d : plan.device_cuts) ++used[static_cast<std::size_t>(d)];
  }
  // 3000 plans of 3.5 cuts over 31 places.
  EXPECT_GT(*std::min_element(used.begin() + 1, used.end()), 250);
  EXPECT_LT(*std::max_element(used.begin() + 1, used.end()), 430);
}

}  // namespace
}  // namespace automap::pipeline
