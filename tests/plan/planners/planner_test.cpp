#include "plan/planners/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>

#include "common/base/error.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/warmup.h"
#include "plan/planners/bounds.h"
#include "plan/planners/shipped_policy.h"
#include "tests/plan/planners/random_policy.h"
#include "tests/plan/planners/rounding.h"
#include "tests/sanitized.h"

namespace automap::planners {
namespace {

using machine::Cluster;
using machine::load_cluster;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::ProblemOptions;
using pipeline::random_problem;
using pipeline::RandomProblem;
using pipeline::RandomProblemOptions;
using pipeline::Schedule;
using pipeline::simulate_step_ms;
using pipeline::value_ms;
using ::testing::HasSubstr;

// Lengths that differ by less are equal to the planner.
RandomProblemOptions small_options() {
  RandomProblemOptions options;
  options.min_instructions = 20;
  options.max_instructions = 80;
  options.min_servers = 1;
  options.max_servers = 3;
  options.min_devices = 2;
  options.max_devices = 4;
  options.heterogeneous = 0.3;
  options.with_latency = 0.3;
  options.with_memory_limit = 0.3;
  options.with_zeros = 0.2;
  options.with_allreduce = 0.8;
  return options;
}

PlanRequest patient() {
  PlanRequest request;
  request.effort.units = WorkLimits::kNoEnd;
  request.max_stages = 6;
  request.policy = random_policy();
  return request;
}

std::string complaint(const Problem& problem, const PlanRequest& request) {
  try {
    make_plan(problem, request);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return std::string(error.what()) + " | " + error.hint();
  }
  return "";
}

TEST(Planner, NamesGoBothWays) {
  for (PlannerKind planner : all_planners()) EXPECT_EQ(parse_planner(to_string(planner)), planner);
  EXPECT_FALSE(parse_planner("dapple"));
  EXPECT_FALSE(parse_planner(""));
  EXPECT_STREQ(to_string(Objective::kSimulated), "simulated");
}

// A number without a row would be a planner that nobody can ask.
TEST(Planner, EveryNumberHasARow) {
  const std::vector<PlannerKind> planners = all_planners();
  for (std::size_t i = 0; i < planners.size(); ++i) EXPECT_EQ(static_cast<std::size_t>(planners[i]), i);
}

// The promise the planner is judged by.
TEST(Planner, AutoIsNeverLongerThanAnyPlannerNorItsKBest) {
  int judged = 0;
  for (std::uint64_t seed = 0; seed < (kSanitized ? 6 : 24); ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = random_problem(seed, small_options());
    const Problem problem = made.problem();
    PlanRequest request = patient();
    if (seed % 3 == 1) request.schedules = {Schedule::k1f1bOverlap};
    if (seed % 3 == 2) request.schedules = {Schedule::k1f1b, Schedule::k1f1bOverlap};
    const PlanResult best = make_plan(problem, request);
    if (!best.plan) {
      EXPECT_NE(best.infeasible, "");
      continue;
    }
    ++judged;
    ASSERT_EQ(best.objective, Objective::kSimulated);
    for (PlannerKind planner : all_planners()) {
      for (Objective objective : {Objective::kValue, Objective::kSimulated}) {
        PlanRequest single = request;
        single.planner = planner;
        single.objective = objective;
        single.lower_bound = false;
        const PlanResult other = make_plan(problem, single);
        if (other.plan) {
          ASSERT_LE(best.simulated_step_ms, other.simulated_step_ms * kRounding) << to_string(planner);
        }
      }
    }
    for (Schedule schedule : request.schedules) {
      pipeline::ExactOptions exact;
      exact.max_stages = request.max_stages;
      exact.schedule = schedule;
      exact.pivots = pipeline::grid_pivots(problem.num_instructions(), 128);
      exact.k_best = request.k_best;
      for (const pipeline::ExactStageResult& stage : pipeline::solve_exact(problem, exact).by_stages) {
        for (const Plan& plan : stage.plans) {
          ASSERT_LE(best.simulated_step_ms, simulate_step_ms(problem, plan) * kRounding);
        }
      }
    }
  }
  EXPECT_GT(judged, kSanitized ? 2 : 15);
}

// Plans are compared with the warm-up that is chosen at the end: a planner alone whose plan is not among the shortest
// before that must not be ahead of `auto` either.
TEST(Planner, AutoIsNeverLongerWithTheWarmUpChosen) {
  RandomProblemOptions kinds = small_options();
  kinds.max_instructions = 200;
  kinds.min_servers = 2;
  kinds.with_memory_limit = 0.6;
  kinds.min_micro_batches = 8;
  kinds.max_micro_batches = 32;
  int judged = 0;
  for (std::uint64_t seed = 0; seed < (kSanitized ? 8 : 40); ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = random_problem(seed, kinds);
    const Problem problem = made.problem();
    PlanRequest request;
    request.max_stages = 6;
    request.policy = random_policy();
    request.lower_bound = false;
    request.schedules = {Schedule::kAdaptive};
    const PlanResult best = make_plan(problem, request);
    if (!best.plan) continue;
    ++judged;
    for (PlannerKind planner : all_planners()) {
      if (planner == PlannerKind::kAuto) continue;
      PlanRequest single = request;
      single.planner = planner;
      const PlanResult other = make_plan(problem, single);
      if (!other.plan) continue;
      EXPECT_LE(best.simulated_step_ms, other.simulated_step_ms * (1 + 2 * pipeline::kWarmupSlack))
          << to_string(planner);
    }
  }
  EXPECT_GT(judged, kSanitized ? 2 : 25);
}

// A loop that is one instruction, heavy enough to stay on one server: what follows may be cut at will, and all of these
// plans take equally long but for the last digits.
TEST(Planner, TiesGoToFewerStagesWhateverTheLastDigits) {
  for (int i = 1; i <= 12; ++i) {
    SCOPED_TRACE(i);
    pipeline::Profile profile;
    profile.c_ms = {0.7 + 0.01 * i, 489.3, 53.1 / i, 0.0025, 0.0025, 0.0025};
    profile.a_bytes = {8e6, 8.4e6, 4, 4, 4, 0};
    profile.w_bytes = {131e6, 1.2e9, 1e6, 1e4, 1e4, 1e4};
    profile.stash_bytes.assign(profile.c_ms.size(), 0);
    const PlanResult result =
        make_plan(Problem(profile, machine::load_cluster("config-a"), ProblemOptions()), patient());
    ASSERT_TRUE(result.plan);
    EXPECT_EQ(result.plan->num_stages(), 2);
    EXPECT_EQ(result.plan->device_cuts, std::vector<int>{8});
  }
}

TEST(Planner, ResultIsConsistentAndCertified) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = random_problem(seed, small_options());
    const Problem problem = made.problem();
    PlanRequest request = patient();
    const std::vector<PlannerKind> planners = all_planners();
    request.planner = planners[seed % planners.size()];
    const PlanResult result = make_plan(problem, request);
    EXPECT_FALSE(result.cut_by_time);
    EXPECT_FALSE(result.cut_by_effort);
    if (!result.plan) continue;
    EXPECT_EQ(pipeline::infeasible_reason(problem, *result.plan), "");
    EXPECT_EQ(result.step_ms, value_ms(problem, *result.plan));
    EXPECT_EQ(result.simulated_step_ms, simulate_step_ms(problem, *result.plan));
    EXPECT_EQ(result.planner.find(to_string(request.planner)) == 0, request.planner != PlannerKind::kAuto);
    EXPECT_GT(result.lower_bound_ms, 0);
    EXPECT_NE(result.lower_bound_method, "");
    EXPECT_LE(result.lower_bound_ms, result.step_ms * (1 + 1e-12));
    EXPECT_DOUBLE_EQ(result.gap, result.step_ms / result.lower_bound_ms - 1);
    EXPECT_TRUE(result.infeasible.empty());
    // No instruction-level plan has a V below the bound.
    pipeline::CounterRandom random(seed, 1);
    for (int i = 0; i < 200; ++i) {
      const int stages = random.integer(1, std::min(6, problem.num_devices()));
      const Plan plan = pipeline::random_plan(problem, stages, Schedule::k1f1b, random);
      if (pipeline::feasible(problem, plan)) {
        ASSERT_GE(value_ms(problem, plan), result.lower_bound_ms * (1 - 1e-12));
      }
    }
    ASSERT_FALSE(result.alternatives.empty());
    for (const Alternative& other : result.alternatives) {
      EXPECT_TRUE(parse_planner(other.planner));
      EXPECT_EQ(other.stages, other.plan.num_stages());
      EXPECT_EQ(other.step_ms, value_ms(problem, other.plan));
      EXPECT_EQ(other.simulated_step_ms, simulate_step_ms(problem, other.plan));
      EXPECT_GE(other.planning_ms, 0);
    }
    if (request.planner != PlannerKind::kAuto) {
      EXPECT_EQ(result.alternatives.size(), 1u);
    }
  }
}

TEST(Planner, ExactOnAllInstructionsClosesTheGap) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = random_problem(seed, small_options());
    const Problem problem = made.problem();
    PlanRequest request = patient();
    request.planner = PlannerKind::kExact;
    request.grid = 0;
    const PlanResult result = make_plan(problem, request);
    if (!result.plan) continue;
    EXPECT_NEAR(result.gap, 0, 1e-9);
  }
}

TEST(Planner, SameRequestSamePlan) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const RandomProblem made = random_problem(seed, small_options());
    const Problem problem = made.problem();
    const PlanResult first = make_plan(problem, patient());
    const PlanResult second = make_plan(problem, patient());
    ASSERT_EQ(first.plan.has_value(), second.plan.has_value());
    if (!first.plan) continue;
    EXPECT_TRUE(*first.plan == *second.plan);
    EXPECT_EQ(first.planner, second.planner);
    EXPECT_EQ(first.alternatives.size(), second.alternatives.size());
  }
}

TEST(Planner, StageCountAndScheduleAreObeyed) {
  const RandomProblem made = random_problem(3);
  const Problem problem = made.problem();
  for (PlannerKind planner : all_planners()) {
    PlanRequest request = patient();
    request.planner = planner;
    request.stages = 3;
    request.schedules = {Schedule::k1f1bOverlap};
    request.lower_bound = false;
    const PlanResult result = make_plan(problem, request);
    if (planner == PlannerKind::kDataParallel) {
      EXPECT_FALSE(result.plan);
      continue;
    }
    ASSERT_TRUE(result.plan) << to_string(planner);
    EXPECT_EQ(result.plan->num_stages(), 3);
    EXPECT_EQ(result.plan->schedule, Schedule::k1f1bOverlap);
    EXPECT_EQ(result.lower_bound_ms, 0);
    EXPECT_EQ(result.gap, 0);
  }
  PlanRequest request = patient();
  request.max_stages = 2;
  EXPECT_LE(make_plan(problem, request).plan->num_stages(), 2);
}

TEST(Planner, DataParallelAlwaysTakesPart) {
  const RandomProblem made = random_problem(3);
  const PlanResult result = make_plan(made.problem(), patient());
  const auto found = std::find_if(result.alternatives.begin(), result.alternatives.end(),
                                  [](const Alternative& other) { return other.planner == "data-parallel"; });
  ASSERT_NE(found, result.alternatives.end());
  EXPECT_EQ(found->stages, 1);
}

TEST(Planner, AllPlannersAreListedOnRequestWithoutChangingTheAnswer) {
  const RandomProblem made = random_problem(4);
  const Problem problem = made.problem();
  PlanRequest request = patient();
  request.planner = PlannerKind::kUniform;
  const PlanResult alone = make_plan(problem, request);
  request.all_planners = true;
  const PlanResult all = make_plan(problem, request);
  EXPECT_TRUE(*alone.plan == *all.plan);
  EXPECT_EQ(all.planner, "uniform");
  EXPECT_EQ(alone.alternatives.size(), 1u);
  EXPECT_EQ(all.alternatives.size(), all_planners().size() - 1);
}

TEST(Planner, ObjectiveDecides) {
  int differ = 0, polished = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = random_problem(seed);
    const Problem problem = made.problem();
    PlanRequest request = patient();
    request.stages = 4;
    request.objective = Objective::kValue;
    const PlanResult by_value = make_plan(problem, request);
    request.objective = Objective::kSimulated;
    const PlanResult by_simulation = make_plan(problem, request);
    // Neither search is exact over all instructions, so the other may meet a slightly better plan by chance.
    EXPECT_LE(by_value.step_ms, by_simulation.step_ms * 1.01);
    EXPECT_LE(by_simulation.simulated_step_ms, by_value.simulated_step_ms * 1.01);
    if (!(*by_value.plan == *by_simulation.plan)) ++differ;
    if (by_simulation.planner.find("+polish") != std::string::npos) ++polished;
  }
  EXPECT_GT(differ, 2);
  EXPECT_GT(polished, 2);
}

TEST(Planner, WithoutAPolicyOnlyItsOwnPlannerIsAnError) {
  if (!shipped_policy_names().empty()) GTEST_SKIP() << "this build has a policy compiled in";
  const RandomProblem made = random_problem(3);
  const Problem problem = made.problem();
  PlanRequest request = patient();
  request.policy = nullptr;
  const PlanResult result = make_plan(problem, request);
  ASSERT_TRUE(result.plan);
  for (const Alternative& other : result.alternatives) EXPECT_NE(other.planner, "policy");
  request.planner = PlannerKind::kPolicy;
  try {
    make_plan(problem, request);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.hint(), HasSubstr("--policy FILE"));
  }
}

TEST(Planner, BeamAndRefineAreNamedAndHelp) {
  double greedy = 0, wide = 0, refined = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblemOptions options;
    options.min_instructions = 200;
    options.max_instructions = 400;
    const RandomProblem made = random_problem(seed, options);
    const Problem problem = made.problem();
    for (PlannerKind planner : {PlannerKind::kPolicy, PlannerKind::kRollouts}) {
      PlanRequest request = patient();
      request.planner = planner;
      request.stages = 4;
      request.refine = false;
      request.lower_bound = false;
      const PlanResult a = make_plan(problem, request);
      ASSERT_TRUE(a.plan);
      EXPECT_EQ(a.planner, to_string(planner));
      request.beam = 16;
      const PlanResult b = make_plan(problem, request);
      EXPECT_EQ(b.planner, std::string(to_string(planner)) + "+beam");
      request.refine = true;
      const PlanResult c = make_plan(problem, request);
      EXPECT_EQ(c.planner.rfind(std::string(to_string(planner)) + "+beam", 0), 0u);
      EXPECT_LE(c.step_ms, b.step_ms * kRounding);
      greedy += std::log(a.step_ms);
      wide += std::log(b.step_ms);
      refined += std::log(c.step_ms);
    }
  }
  EXPECT_LT(wide, greedy);
  EXPECT_LT(refined, wide);
}

TEST(Planner, SaysWhenThePlanWasFoundAndProven) {
  int proven = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProblem made = random_problem(seed, small_options());
    const Problem problem = made.problem();
    for (Objective objective : {Objective::kValue, Objective::kSimulated}) {
      PlanRequest request = patient();
      request.objective = objective;
      const PlanResult result = make_plan(problem, request);
      if (!result.plan) continue;
      EXPECT_GT(result.found_ms, 0);
      EXPECT_LE(result.found_ms, result.planning_ms);
      EXPECT_EQ(result.proven_ms > 0, result.gap <= kProvenGap);
      if (result.proven_ms > 0) {
        ++proven;
        EXPECT_LE(result.proven_ms, result.planning_ms);
      }
      // Judged by V, and with all the time there is, the answer is the least V over all cuts.
      if (objective == Objective::kValue) {
        EXPECT_LE(result.gap, kProvenGap);
        pipeline::ExactOptions exact;
        exact.max_stages = request.max_stages;
        const pipeline::ExactResult solved = pipeline::solve_exact(problem, exact);
        ASSERT_NE(solved.best(), nullptr);
        EXPECT_NEAR(result.step_ms, solved.best()->value_ms.front(), 1e-9 * result.step_ms);
      }
    }
  }
  EXPECT_GT(proven, 6);
}

// One instruction is nearly all there is: on any device less it takes longer than everything on all of them.
TEST(Planner, AutoStopsWhenOnlyOneStageCanWin) {
  pipeline::Profile profile;
  profile.c_ms.assign(64, 0.001);
  profile.c_ms[10] = 1e3;
  profile.a_bytes.assign(64, 1);
  profile.w_bytes.assign(64, 1);
  profile.stash_bytes.assign(64, 0);
  const Problem problem(profile, machine::load_cluster("config-a"), ProblemOptions());
  PlanRequest request = patient();
  request.objective = Objective::kValue;
  const PlanResult result = make_plan(problem, request);
  ASSERT_TRUE(result.plan);
  EXPECT_EQ(result.plan->num_stages(), 1);
  ASSERT_EQ(result.alternatives.size(), 1u);
  EXPECT_EQ(result.alternatives.front().planner, "data-parallel");
  request.all_planners = true;
  const PlanResult all = make_plan(problem, request);
  EXPECT_TRUE(*all.plan == *result.plan);
  EXPECT_EQ(all.alternatives.size(), all_planners().size() - 1);
}

TEST(Planner, ImpossibleRequestsAreUsageErrors) {
  const RandomProblem made = random_problem(1, small_options());
  const Problem problem = made.problem();
  PlanRequest request;
  request.stages = problem.num_devices() + 1;
  EXPECT_THAT(complaint(problem, request), HasSubstr("devices"));
  request = PlanRequest();
  request.stages = -1;
  EXPECT_THAT(complaint(problem, request), HasSubstr("stages is -1"));
  for (double limit : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    request = PlanRequest();
    request.time_limit_s = limit;
    EXPECT_THAT(complaint(problem, request), HasSubstr("time-limit"));
  }
  request = PlanRequest();
  request.beam = -1;
  EXPECT_THAT(complaint(problem, request), HasSubstr("beam is -1"));
  request = PlanRequest();
  request.grid = -128;
  EXPECT_THAT(complaint(problem, request), HasSubstr("grid"));
  request = PlanRequest();
  request.k_best = 0;
  EXPECT_THAT(complaint(problem, request), HasSubstr("k-best"));
  request = PlanRequest();
  request.max_stages = 0;
  EXPECT_THAT(complaint(problem, request), HasSubstr("max-stages"));
  request = PlanRequest();
  request.schedules.clear();
  EXPECT_THAT(complaint(problem, request), HasSubstr("schedule"));

  RandomProblemOptions options = small_options();
  options.min_instructions = options.max_instructions = 3;
  options.min_servers = options.max_servers = 3;
  const RandomProblem tiny = random_problem(1, options);
  request = PlanRequest();
  request.stages = 4;
  EXPECT_THAT(complaint(tiny.problem(), request), HasSubstr("4 stages of 3 forward instructions"));
}

TEST(Planner, SaysWhichMemoryIsMissing) {
  RandomProblem made = random_problem(2);
  made.profile.w_bytes.assign(made.profile.w_bytes.size(), 1 << 30);
  made.cluster.devices.begin()->second.memory_gib = 1;
  const Problem problem = made.problem();
  for (PlannerKind planner : all_planners()) {
    PlanRequest request = patient();
    request.planner = planner;
    const PlanResult result = make_plan(problem, request);
    EXPECT_FALSE(result.plan);
    EXPECT_TRUE(result.alternatives.empty());
    EXPECT_THAT(result.infeasible, HasSubstr("No plan of 1 to 6 stages fits in memory"));
    EXPECT_THAT(result.infeasible, HasSubstr("of the 1.00 GiB"));
    EXPECT_EQ(result.available_memory_bytes, 1 << 30);
    // Six stages of equal weights: each holds at least a sixth of the instructions, with 4 GiB of state each.
    const double per_stage = std::ceil(problem.num_instructions() / 6.0) * 4 * (1 << 30);
    EXPECT_GE(result.least_memory_bytes, per_stage);
    EXPECT_LE(result.least_memory_bytes, 1.01 * per_stage);
  }
}

TEST(Planner, MemoryThatFitsOnlyAtBestIsFound) {
  // Equal weights on every instruction; a device holds exactly the state of n / S of them and no stash.
  RandomProblemOptions options;
  options.min_instructions = options.max_instructions = 96;
  RandomProblem made = random_problem(2, options);
  made.profile.w_bytes.assign(96, 1 << 20);
  made.profile.stash_bytes.assign(96, 0);
  made.cluster.devices.begin()->second.memory_gib = 12 * 4.0 / 1024;  // 12 instructions: exactly 8 equal stages
  const Problem problem = made.problem();
  PlanRequest request = patient();
  request.max_stages = 8;
  const PlanResult result = make_plan(problem, request);
  ASSERT_TRUE(result.plan);
  EXPECT_EQ(result.plan->cuts, (std::vector<int>{12, 24, 36, 48, 60, 72, 84}));
  request.max_stages = 7;
  EXPECT_FALSE(make_plan(problem, request).plan);
}

TEST(Planner, SaysWhenVariablesCannotBeSpread) {
  RandomProblemOptions options;
  options.with_allreduce = 1;
  RandomProblem made = random_problem(2, options);
  // Four variables in the last four instructions, but the grid of 4 cannot separate them.
  made.profile.w_bytes.assign(made.profile.w_bytes.size(), 0);
  for (std::size_t i = made.profile.w_bytes.size() - 4; i < made.profile.w_bytes.size(); ++i)
    made.profile.w_bytes[i] = 8;
  const Problem problem = made.problem();
  PlanRequest request = patient();
  request.stages = 4;
  request.grid = 4;
  request.planner = PlannerKind::kExact;
  const PlanResult exact = make_plan(problem, request);
  EXPECT_FALSE(exact.plan);
  EXPECT_THAT(exact.infeasible, HasSubstr("--planner auto"));
  request.planner = PlannerKind::kAuto;
  const PlanResult result = make_plan(problem, request);
  ASSERT_TRUE(result.plan);
  EXPECT_EQ(pipeline::infeasible_reason(problem, *result.plan), "");
}

TEST(Planner, TheTimeLimitIsKeptAndThereIsStillAPlan) {
  RandomProblemOptions options;
  options.min_instructions = options.max_instructions = 4000;
  options.min_servers = options.max_servers = 8;
  const RandomProblem made = random_problem(1, options);
  const Problem problem = made.problem();
  for (double limit : {1e-6, 0.2}) {
    PlanRequest request;
    request.effort.units = WorkLimits::kNoEnd;
    request.time_limit_s = limit;
    request.grid = 0;
    const std::clock_t begin = std::clock();
    const PlanResult result = make_plan(problem, request);
    ASSERT_TRUE(result.plan);
    EXPECT_TRUE(result.cut_by_time);
    // One that is over at once leaves the same work on every machine; 1.1 million units today.
    if (limit < 1e-3) {
      EXPECT_LT(result.work_units, 10'000'000);
    }
    // The limit is in processor time, since others may use the processor.
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, limit + (kSanitized ? 20 : 2));
  }
  int polls = 0;
  PlanRequest request;
  request.cancelled = [&] { return ++polls > 2; };
  const PlanResult result = make_plan(problem, request);
  EXPECT_TRUE(result.plan);
  EXPECT_TRUE(result.cut_by_time);
}

TEST(PlanLimits, AddUpToTheValueAndNameTheBottleneck) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem made = random_problem(seed, small_options());
    if (seed % 4 == 0) made.options.value = pipeline::ValueForm::kPaper;
    if (seed % 7 == 0) made.options.micro_batches = 1;
    const Problem problem = made.problem();
    pipeline::CounterRandom random(seed, 2);
    const int stages = random.integer(1, std::min(6, problem.num_devices()));
    const Plan plan = pipeline::random_plan(problem, stages, Schedule::k1f1b, random);
    const std::vector<PlanLimit> limits = plan_limits(problem, plan);
    ASSERT_FALSE(limits.empty());
    double sum = 0;
    for (std::size_t i = 0; i < limits.size(); ++i) {
      EXPECT_GT(limits[i].ms, 0);
      EXPECT_GE(limits[i].stage, 1);
      EXPECT_LE(limits[i].stage, stages);
      EXPECT_NE(limits[i].text, "");
      EXPECT_LE(limits[i].ms, limits[i == 0 ? 0 : i - 1].ms);
      sum += limits[i].ms;
    }
    const double value = value_ms(problem, plan);
    EXPECT_NEAR(sum, value, 1e-9 * value);
  }
}

TEST(PlanLimits, WorkedCases) {
  // Two stages on the two servers of config-a; M = 8. Stage 2 computes 4x as long as stage 1.
  pipeline::Profile profile;
  profile.model = "two";
  profile.c_ms = {16, 64};
  profile.a_bytes = {0, 0};
  profile.w_bytes = {0, 0};
  profile.stash_bytes = {0, 0};
  ProblemOptions options;
  options.micro_batches = 8;
  const Plan plan{{1}, {8}, Schedule::k1f1b};
  const auto first = [&](const pipeline::Profile& changed) {
    return plan_limits(Problem(changed, machine::load_cluster("config-a"), options), plan).front();
  };
  PlanLimit limit = first(profile);
  EXPECT_EQ(limit.kind, PlanLimit::Kind::kStage);
  EXPECT_EQ(limit.stage, 2);
  EXPECT_DOUBLE_EQ(limit.ms, 7 * 8);
  EXPECT_THAT(limit.text, HasSubstr("stage 2 computes 8.00 ms per micro-batch"));
  profile.a_bytes = {312.5e6, 0};  // 100 ms
  limit = first(profile);
  EXPECT_THAT(limit.kind, ::testing::AnyOf(PlanLimit::Kind::kTransfer, PlanLimit::Kind::kRoundTrip));
  EXPECT_EQ(limit.stage, 1);
  profile.a_bytes = {0, 0};
  profile.w_bytes = {13e9, 0};  // 2 (7/8) 13e9 / 130e6 = 175 ms
  limit = first(profile);
  EXPECT_EQ(limit.kind, PlanLimit::Kind::kAllReduce);
  EXPECT_EQ(limit.stage, 1);
  EXPECT_DOUBLE_EQ(limit.ms, 175);
  // One stage on all 16 devices has nothing to fill: 80 ms on each of them for all 8 micro-batches.
  profile.w_bytes = {0, 0};
  limit = plan_limits(Problem(profile, machine::load_cluster("config-a"), options), {{}, {}, Schedule::k1f1b}).front();
  EXPECT_EQ(limit.kind, PlanLimit::Kind::kStage);
  EXPECT_DOUBLE_EQ(limit.ms, 8 * 5);
  EXPECT_DOUBLE_EQ(limit.share, 1);
  EXPECT_THAT(limit.text, HasSubstr("each micro-batch takes 5.00 ms, forward and backward: 40.0 ms in all 8"));
  // Three micro-batches: 10 ms on the link in two steady steps and 6 + 20 in the first pass are more than 6 in two
  // steady steps and 6 + 20 + 6 in the pass through both stages.
  profile.c_ms = {48, 48};
  profile.a_bytes = {31.25e6, 0};
  options.micro_batches = 3;
  options.value = pipeline::ValueForm::kPaper;
  const std::vector<PlanLimit> limits = plan_limits(Problem(profile, machine::load_cluster("config-a"), options), plan);
  const auto link = std::find_if(limits.begin(), limits.end(),
                                 [](const PlanLimit& one) { return one.kind == PlanLimit::Kind::kTransfer; });
  ASSERT_NE(link, limits.end());
  EXPECT_DOUBLE_EQ(link->ms, 2 * 10);
}

TEST(Bounds, AreAboutWhatIsIncluded) {
  Bounds bounds;
  bounds.value_ms = bounds.simulated_ms = 10;
  bounds.method = "searched";
  StepSize one, other;
  one.samples = other.micro_batches = 4;
  one.micro_batches = 2, other.samples = 2;
  bounds.include(one, 12, "work");
  EXPECT_EQ(bounds.value_ms, 10);
  EXPECT_EQ(bounds.method, "searched");
  bounds.include(other, 8, "work");
  EXPECT_EQ(bounds.value_ms, 8);
  EXPECT_EQ(bounds.simulated_ms, 8);
  EXPECT_EQ(bounds.method, "work");
  // They were about it already.
  bounds.include(one, 1, "nothing");
  EXPECT_EQ(bounds.value_ms, 8);
}

}  // namespace
}  // namespace automap::planners
