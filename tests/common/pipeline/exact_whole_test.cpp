// The exact solver, its bounds, the corridor and completion values on problems of whole samples and under every
// schedule, against listings of all plans and variants.
#include <gtest/gtest.h>

#include <map>

#include "common/base/numbers.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/exact_program.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/suffix_values.h"
#include "tests/common/pipeline/exact_brute_force.h"
#include "tests/sanitized.h"

namespace automap::pipeline {
namespace {

using testing::all_values;
using testing::for_each_choice;
using testing::for_each_variants;
using testing::small_problem;
using testing::small_whole_problem;
using testing::SmallProblem;
using testing::SmallRandom;
using testing::up_to;

Schedule any_schedule(SmallRandom& random) {
  const std::vector<Schedule> all = alternating_schedules();
  // Adaptive half of the time.
  if (random.chance(0.5)) return Schedule::kAdaptive;
  return all[static_cast<std::size_t>(random.integer(0, static_cast<int>(all.size()) - 1))];
}

// So few stages that a listing ends.
int listed_stages(const Problem& problem, int most) {
  const int by_variants = problem.num_variants() > 4 ? 3 : problem.num_variants() > 1 ? 4 : 5;
  return std::min({most, by_variants, problem.num_devices(), problem.num_instructions()});
}

struct Counts {
  int feasible = 0, infeasible = 0, unproven = 0;
};

void compare(const Problem& problem, Schedule schedule, int max_stages, Counts& counts) {
  ExactOptions options;
  options.schedule = schedule;
  options.max_stages = max_stages;
  const ExactResult result = solve_exact(problem, options);
  for (const ExactStageResult& found : result.by_stages) {
    SCOPED_TRACE(::testing::Message() << "stages " << found.stages);
    const std::vector<double> expected = all_values(problem, schedule, found.stages, up_to(problem.num_instructions()));
    if (expected.empty()) {
      ++counts.infeasible;
      ASSERT_TRUE(found.plans.empty());
      ASSERT_TRUE(found.proven);
      continue;
    }
    ++counts.feasible;
    ASSERT_LE(found.lower_bound_ms, expected.front() * (1 + 1e-9));
    if (!found.proven) {
      ++counts.unproven;
      continue;
    }
    ASSERT_FALSE(found.plans.empty());
    ASSERT_NEAR(found.value_ms.front(), expected.front(), 1e-9 * expected.front());
    const Plan& plan = found.plans.front();
    ASSERT_TRUE(feasible(problem, plan)) << infeasible_reason(problem, plan);
    ASSERT_EQ(plan.num_stages(), found.stages);
    ASSERT_DOUBLE_EQ(value_ms(problem, plan), found.value_ms.front());
    ASSERT_NEAR(found.lower_bound_ms, expected.front(), 1e-9 * expected.front());
  }
}

TEST(ExactWhole, EqualsBruteForceOverPlansAndVariants) {
  Counts counts;
  int measured = 0;
  for (std::uint64_t seed = 0; seed < 5000 / kShare; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const SmallProblem small = small_whole_problem(seed);
    measured += small.cluster.servers.front().links.empty() ? 0 : 1;
    const Problem problem(small.profile, small.cluster, small.options);
    SmallRandom random(seed ^ 0xABC);
    ASSERT_NO_FATAL_FAILURE(compare(problem, any_schedule(random), listed_stages(problem, 4), counts));
  }
  EXPECT_GT(counts.feasible, 4000 / kShare);
  EXPECT_GT(counts.infeasible, 300 / kShare);
  EXPECT_GT(measured, 1500 / kShare);
  EXPECT_LT(counts.unproven, counts.feasible / 100);
}

// Fractional replicas under the schedules that the papers do not have, with recomputation and without idle stages.
TEST(ExactWhole, EqualsBruteForceOfFractionalReplicasUnderEverySchedule) {
  Counts counts;
  for (std::uint64_t seed = 0; seed < 5000 / kShare; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    SmallProblem small = small_problem(seed, 3, 8, 6);
    SmallRandom random(seed ^ 0xFED);
    if (random.chance(0.4)) {
      for (std::int64_t i = 0; i < small.profile.size(); ++i) {
        small.profile.layer.push_back("layer" + std::to_string(i / 3));
      }
      small.options.variants = {{0, false}, {0, true}};
    }
    if (random.chance(0.3)) small.options.gradient_sync = GradientSync::kOverlap;
    if (random.chance(0.3)) small.options.bucket_bytes = 2e6;
    small.options.allow_idle_stages = random.chance(0.7);
    const Problem problem(small.profile, small.cluster, small.options);
    ASSERT_NO_FATAL_FAILURE(compare(problem, any_schedule(random), listed_stages(problem, 4), counts));
  }
  EXPECT_GT(counts.feasible, 4000 / kShare);
  EXPECT_GT(counts.infeasible, 50 / kShare);
  EXPECT_LT(counts.unproven, counts.feasible / 100);
}

// V with as many micro-batches in flight as memory allows bounds that of every choice of them.
TEST(ExactWhole, NoChoiceOfWarmUpIsShorter) {
  int judged = 0, tight = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    SmallProblem small = small_whole_problem(seed, 3, 5, 4);
    small.options.micro_batches = 1 + static_cast<int>(seed % 5);
    const Problem problem(small.profile, small.cluster, small.options);
    const int stages = std::min(3, listed_stages(problem, 3));
    ExactOptions options;
    options.schedule = Schedule::kAdaptive;
    options.min_stages = options.max_stages = stages;
    const ExactResult solved = solve_exact(problem, options);
    double least = kInfinity;
    Plan plan;
    plan.schedule = Schedule::kAdaptive;
    for_each_choice(up_to(problem.num_instructions()), stages - 1, [&](const std::vector<int>& cuts) {
      plan.cuts = cuts;
      for_each_choice(up_to(problem.num_devices()), stages - 1, [&](const std::vector<int>& device_cuts) {
        plan.device_cuts = device_cuts;
        for_each_variants(problem, plan, [&](Plan one) {
          one.warmup.clear();
          if (!feasible(problem, one)) return;
          PipelineTimes times = pipeline_times(problem, one);
          for (const int k : times.value_in_flight) tight += k < problem.micro_batches() ? 1 : 0;
          // Every K_1 >= K_2 >= ... >= 1.
          std::vector<int> k(static_cast<std::size_t>(stages), 1);
          while (true) {
            one.warmup = k;
            if (feasible(problem, one)) {
              times.value_in_flight = k;
              least = std::min(least,
                               step_length_ms(times, problem.micro_batches(), one.schedule, problem.options().value));
            }
            std::size_t s = k.size();
            while (s > 0 && k[s - 1] >= (s > 1 ? k[s - 2] : problem.micro_batches())) k[--s] = 1;
            if (s == 0) break;
            ++k[s - 1];
          }
        });
      });
    });
    ASSERT_EQ(solved.best() == nullptr, least == kInfinity);
    if (solved.best() == nullptr) continue;
    ++judged;
    ASSERT_LE(solved.best()->value_ms.front(), least * (1 + 1e-12));
  }
  EXPECT_GT(judged, 100);
  EXPECT_GT(tight, 1000);
}

// One pass serves every stage count.
TEST(ExactWhole, StageCountsTogetherAreAsAlone) {
  int judged = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    SmallProblem small = small_whole_problem(seed, 12, 40, 9);
    small.options.allow_idle_stages = true;
    const Problem problem(small.profile, small.cluster, small.options);
    SmallRandom random(seed);
    ExactOptions options;
    options.schedule = any_schedule(random);
    options.max_stages = 6;
    const ExactResult together = solve_exact(problem, options);
    for (const ExactStageResult& found : together.by_stages) {
      options.min_stages = options.max_stages = found.stages;
      const ExactResult alone = solve_exact(problem, options);
      ASSERT_TRUE(found.proven && alone.proven());
      ASSERT_EQ(found.plans.empty(), alone.best() == nullptr);
      if (found.plans.empty()) continue;
      ++judged;
      ASSERT_NEAR(found.value_ms.front(), alone.best()->value_ms.front(), 1e-9 * found.value_ms.front());
    }
  }
  EXPECT_GT(judged, 300);
}

// More pivots than are solved directly: runs of pivots first.
TEST(ExactWhole, EqualsBruteForceOnManyInstructions) {
  int judged = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    SmallProblem small = small_whole_problem(seed, 410, 430, 4);
    small.options.allow_idle_stages = true;
    const Problem problem(small.profile, small.cluster, small.options);
    if (problem.num_devices() < 2 || problem.num_variants() > 4) continue;
    SmallRandom random(seed);
    ExactOptions options;
    options.schedule = any_schedule(random);
    options.min_stages = options.max_stages = 2;
    const ExactResult result = solve_exact(problem, options);
    ASSERT_TRUE(result.proven());
    const std::vector<double> expected = all_values(problem, options.schedule, 2, up_to(problem.num_instructions()));
    ASSERT_EQ(result.best() == nullptr, expected.empty());
    if (expected.empty()) continue;
    ++judged;
    ASSERT_NEAR(result.best()->value_ms.front(), expected.front(), 1e-9 * expected.front());
    ASSERT_TRUE(feasible(problem, result.best()->plans.front()));
  }
  EXPECT_GT(judged, 15);
}

// At whatever poll it is stopped: bounds hold, plans are feasible, and what is called proven is optimal.
TEST(ExactWhole, IsHonestWhereverItIsStopped) {
  int unproven = 0, proven = 0, with_plan = 0;
  for (std::uint64_t seed = 0; seed < 400 / kShare; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    SmallProblem small = seed % 40 == 0 ? small_whole_problem(seed, 410, 420, 6) : small_whole_problem(seed, 10, 40, 8);
    small.options.allow_idle_stages = true;
    const Problem problem(small.profile, small.cluster, small.options);
    SmallRandom random(seed);
    ExactOptions options;
    options.max_stages = 4;
    options.k_best = random.integer(1, 3);
    options.schedule = any_schedule(random);
    const ExactResult full = solve_exact(problem, options);
    int polls = static_cast<int>(random.integer(1, 100) * random.real(0, 20));
    WorkLimits limits = WorkLimits::until([&polls] { return --polls < 0; });
    if (seed % 2 == 0) limits = WorkLimits::of_units(polls * random.integer(1, 20000));
    Work work(limits);
    options.work = &work;
    const ExactResult stopped = solve_exact(problem, options);
    ASSERT_EQ(stopped.by_stages.size(), full.by_stages.size());
    for (std::size_t s = 0; s < full.by_stages.size(); ++s) {
      const ExactStageResult &result = stopped.by_stages[s], &truth = full.by_stages[s];
      ASSERT_TRUE(truth.proven);
      ++(result.proven ? proven : unproven);
      if (truth.plans.empty()) {
        ASSERT_TRUE(result.plans.empty());
        continue;
      }
      const double best = truth.value_ms.front();
      ASSERT_LE(result.lower_bound_ms, best * (1 + 1e-9));
      if (result.proven) {
        ASSERT_FALSE(result.plans.empty());
        ASSERT_NEAR(result.value_ms.front(), best, 1e-9 * best);
      }
      for (std::size_t k = 0; k < result.plans.size(); ++k) {
        ++with_plan;
        ASSERT_TRUE(feasible(problem, result.plans[k]));
        ASSERT_DOUBLE_EQ(value_ms(problem, result.plans[k]), result.value_ms[k]);
        ASSERT_GE(result.value_ms[k], best * (1 - 1e-9));
        for (std::size_t j = 0; j < k; ++j) {
          ASSERT_FALSE(result.plans[j] == result.plans[k]);
        }
      }
    }
  }
  EXPECT_GT(unproven, 100 / kShare);
  EXPECT_GT(proven, 100 / kShare);
  EXPECT_GT(with_plan, 100 / kShare);
}

// The sync that loops count is the ring's time of the last bucket, or of what the backward leaves over.
TEST(ExactWhole, SyncTermsAreTheRings) {
  int overlapped = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const SmallProblem small = small_whole_problem(seed);
    const Problem problem(small.profile, small.cluster, small.options);
    SmallRandom random(seed);
    const DeviceGroup& group = problem.group(0, random.integer(1, problem.num_devices()));
    for (int round = 0; round < 20; ++round) {
      const double all = problem.gradient_bytes(0, problem.num_instructions());
      const double bytes = random.chance(0.2) ? 0 : all * random.real(0, 2), backward = random.real(0, 100);
      const double whole = problem.sync_ms(bytes, group);
      const double bucket = random.chance(0.2) ? kInfinity : all * random.real(0, 1);
      const double last = problem.sync_ms(std::min(bytes, bucket), group);
      overlapped += last > whole - backward ? 1 : 0;
      EXPECT_DOUBLE_EQ(problem.sync_terms(group).exposed_ms(bytes, bucket, backward), std::max(last, whole - backward));
      const bool after = small.options.gradient_sync == GradientSync::kAfter;
      EXPECT_DOUBLE_EQ(
          problem.least_exposed_sync_ms(bytes, backward, group),
          after ? whole
                : std::max(problem.sync_ms(std::min(bytes, small.options.bucket_bytes), group), whole - backward));
    }
  }
  EXPECT_GT(overlapped, 100);
}

// Without what stands behind the last backward, V bounds the simulated step of the same plan whatever its warm-up, and
// memory is what it was.
TEST(ExactWhole, ValuesWithoutWhatStandsBehindTheBackwardBoundTheSimulation) {
  int judged = 0, above = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    SmallProblem small = small_whole_problem(seed);
    small.options.variants.push_back({2, false});
    small.options.variants.push_back({3, false});
    const Problem problem(small.profile, small.cluster, small.options);
    small.options.behind_backward = false;
    const Problem paths(small.profile, small.cluster, small.options);
    SmallRandom random(seed + 31);
    CounterRandom draw(seed, 10);
    for (int round = 0; round < 5; ++round) {
      Plan plan = random_plan(problem, listed_stages(problem, 4), any_schedule(random), draw);
      for (int s = 0; s < plan.num_stages(); ++s) {
        plan.variants.resize(static_cast<std::size_t>(plan.num_stages()));
        plan.variants[static_cast<std::size_t>(s)] =
            static_cast<std::uint8_t>(random.integer(0, problem.num_variants() - 1));
      }
      ASSERT_EQ(feasible(problem, plan), feasible(paths, plan));
      if (!feasible(problem, plan)) continue;
      ++judged;
      const double simulated = simulate_step_ms(problem, plan);
      ASSERT_LE(value_ms(paths, plan), simulated * (1 + 1e-9));
      ASSERT_LE(value_ms(paths, plan), value_ms(problem, plan));
      above += value_ms(problem, plan) > simulated * (1 + 1e-9) ? 1 : 0;
      if (plan.num_stages() == 1) {
        ASSERT_LE(value_ms(problem, plan), simulated * (1 + 1e-9));
      }
    }
  }
  EXPECT_GT(judged, 300);
  EXPECT_GT(above, 0);  // else the other bound would do
}

TEST(ExactWhole, TheSimpleBoundOfOneStageIsItsValue) {
  int judged = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const SmallProblem small = small_whole_problem(seed);
    const Problem problem(small.profile, small.cluster, small.options);
    SmallRandom random(seed);
    const Schedule schedule = any_schedule(random);
    const std::vector<double> values = all_values(problem, schedule, 1, {});
    if (values.empty()) continue;
    const double bound = simple_lower_bounds_ms(problem, schedule, 1).front();
    ASSERT_LE(bound, values.front());
    if (small.options.memory && values.size() < static_cast<std::size_t>(problem.num_variants())) continue;
    ++judged;
    ASSERT_NEAR(bound, values.front(), 1e-9 * values.front());
  }
  EXPECT_GT(judged, 50);
}

TEST(ExactWhole, NoPlanHasMoreStagesThanThereAreDevices) {
  const SmallProblem small = small_whole_problem(1);
  const Problem problem(small.profile, small.cluster, small.options);
  const int devices = problem.num_devices();
  const std::vector<double> bounds = simple_lower_bounds_ms(problem, Schedule::kAdaptive, devices + 3);
  ASSERT_EQ(bounds.size(), static_cast<std::size_t>(devices) + 3);
  for (std::size_t i = static_cast<std::size_t>(devices); i < bounds.size(); ++i) EXPECT_EQ(bounds[i], kInfinity);
}

TEST(ExactWhole, CorridorsReachTheOptimumWhenTheyCoverEverything) {
  int judged = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    SmallProblem small = small_whole_problem(seed);
    small.options.allow_idle_stages = true;
    const Problem problem(small.profile, small.cluster, small.options);
    SmallRandom random(seed + 17);
    const int stages = listed_stages(problem, 3);
    CounterRandom draw(seed, 9);
    Plan plan = random_plan(problem, stages, any_schedule(random), draw);
    if (!feasible(problem, plan)) {
      ASSERT_TRUE(refine_in_corridor(problem, plan, 100, 100) == plan);
      continue;
    }
    ++judged;
    const Plan refined = refine_in_corridor(problem, plan, 100, 100);
    ASSERT_TRUE(feasible(problem, refined));
    const std::vector<double> values = all_values(problem, plan.schedule, stages, up_to(problem.num_instructions()));
    ASSERT_NEAR(value_ms(problem, refined), values.front(), 1e-9 * values.front());
  }
  EXPECT_GT(judged, 60);
}

TEST(ExactWhole, LowerBoundsAreBelowEveryPlanAndTightWithTime) {
  int judged = 0;
  for (std::uint64_t seed = 0; seed < 1500 / kShare; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    SmallProblem small = small_whole_problem(seed);
    const Problem problem(small.profile, small.cluster, small.options);
    SmallRandom random(seed + 99);
    const std::vector<Schedule> schedules = {any_schedule(random)};
    const int max_stages = listed_stages(problem, 3);
    double best = kInfinity;
    for (int stages = 1; stages <= max_stages; ++stages) {
      const std::vector<double> values =
          all_values(problem, schedules.front(), stages, up_to(problem.num_instructions()));
      if (!values.empty()) best = std::min(best, values.front());
    }
    if (best == kInfinity) continue;
    ++judged;
    const double incumbent = random.chance(0.5) ? best : best * random.real(1, 1.5);
    Work enough(WorkLimits::of_units(10'000'000'000)), none(WorkLimits::of_units(0));
    const LowerBound patient = lower_bound_all_cuts(problem, schedules, 1, max_stages, incumbent, enough);
    ASSERT_LE(patient.ms, best * (1 + 1e-9)) << patient.method;
    if (small.options.allow_idle_stages) {
      ASSERT_NEAR(patient.ms, best, 1e-9 * best) << patient.method;
      ASSERT_STREQ(patient.method, "exact over all cuts");
    }
    if (patient.better) {
      ASSERT_TRUE(feasible(problem, *patient.better));
    }
    const LowerBound hasty = lower_bound_all_cuts(problem, schedules, 1, max_stages, incumbent, none);
    ASSERT_LE(hasty.ms, best * (1 + 1e-9)) << hasty.method;
    ASSERT_GT(hasty.ms, 0);
  }
  EXPECT_GT(judged, 300 / kShare);
}

// From a single run of all cuts on: at whatever poll it is stopped the bounds hold, and left alone it closes the gap.
TEST(ExactWhole, GapsCloseFromFewRuns) {
  int closed = 0;
  for (std::uint64_t seed = 0; seed < 3000 / kShare; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    SmallProblem small = seed % 2 == 0 ? small_whole_problem(seed, 4, 10, 6) : small_problem(seed, 4, 10, 6);
    small.options.allow_idle_stages = true;
    const Problem problem(small.profile, small.cluster, small.options);
    if (problem.num_devices() < 2) continue;
    SmallRandom random(seed + 7);
    internal::GapInput input;
    input.problem = &problem;
    input.schedule = any_schedule(random);
    input.min_stages = input.max_stages = random.integer(2, listed_stages(problem, 3));
    input.needs_variable = problem.stages_need_variables(input.min_stages);
    const std::vector<int> cuts = up_to(problem.num_instructions());
    input.cuts = &cuts;
    input.first_runs = random.integer(1, 3);
    const std::vector<double> values = all_values(problem, input.schedule, input.min_stages, cuts);
    const double best = values.empty() ? kInfinity : values.front();
    input.limit_ms = {values.empty() || random.chance(0.2) ? kInfinity : best * random.real(0.8, 1.6)};
    Work never;
    const internal::GapOutput output = internal::close_gaps({input}, false, never).front();
    ASSERT_TRUE(output.closed.front());
    ++closed;
    const double bound = std::min(best, input.limit_ms.front());
    ASSERT_GE(output.bound_ms.front(), bound * (1 - 1e-9));
    ASSERT_LE(output.bound_ms.front(), best * (1 + 1e-9));
    int polls = random.integer(0, 60);
    Work early(WorkLimits::until([&polls] { return --polls < 0; }));
    const internal::GapOutput hasty = internal::close_gaps({input}, false, early).front();
    ASSERT_LE(hasty.bound_ms.front(), best * (1 + 1e-9));
  }
  EXPECT_GT(closed, 600 / kShare);
}

using Prefix = std::pair<std::vector<int>, std::vector<int>>;

TEST(ExactWhole, CompletionValuesEqualBruteForce) {
  int finite = 0, infeasible = 0, beyond = 0;
  for (std::uint64_t seed = 0; seed < 3000 / kShare; ++seed) {
    SmallProblem small = seed % 3 == 0 ? small_problem(seed, 3, 7, 6) : small_whole_problem(seed, 3, 7, 6);
    small.options.allow_idle_stages = true;
    const Problem problem(small.profile, small.cluster, small.options);
    SmallRandom random(seed ^ 0x5AFF1);
    SuffixValuesOptions options;
    options.schedule = any_schedule(random);
    options.pivots = up_to(problem.num_instructions());
    options.device_cuts = up_to(problem.num_devices());
    options.stages = random.integer(1, listed_stages(problem, 4));
    SCOPED_TRACE(::testing::Message() << "seed " << seed << " stages " << options.stages);
    std::map<Prefix, double> expected;
    Plan plan;
    plan.schedule = options.schedule;
    for_each_choice(options.pivots, options.stages - 1, [&](const std::vector<int>& cuts) {
      plan.cuts = cuts;
      for_each_choice(options.device_cuts, options.stages - 1, [&](const std::vector<int>& device_cuts) {
        plan.device_cuts = device_cuts;
        double value = kInfinity;
        for_each_variants(problem, plan, [&](const Plan& one) {
          if (feasible(problem, one)) value = std::min(value, value_ms(problem, one));
        });
        Prefix prefix = {cuts, device_cuts};
        while (true) {
          const auto place = expected.try_emplace(prefix, kInfinity).first;
          place->second = std::min(place->second, value);
          if (prefix.first.empty()) break;
          prefix.first.pop_back();
          prefix.second.pop_back();
        }
      });
    });
    const double optimum = expected.at(Prefix());
    if (random.chance(0.8)) options.limit_ms = optimum * (random.chance(0.2) ? 1 : random.real(0.95, 1.6));
    const SuffixValues values(problem, options);
    ASSERT_TRUE(values.valid());
    for (const auto& [prefix, best] : expected) {
      const double found = values.completion_ms(prefix.first, prefix.second);
      if (best == kInfinity) {
        ++infeasible;
        ASSERT_EQ(found, kInfinity);
      } else if (best > options.limit_ms * (1 + 1e-8)) {
        ++beyond;
        ASSERT_EQ(found, kInfinity);
      } else {
        ++finite;
        ASSERT_NEAR(found, best, 1e-9 * best);
      }
    }
  }
  EXPECT_GT(finite, 2000 / kShare);
  EXPECT_GT(infeasible, 2000 / kShare);
  EXPECT_GT(beyond, 1000 / kShare);
}

}  // namespace
}  // namespace automap::pipeline
