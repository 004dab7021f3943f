// The whole plan beside the enumeration of all whole plans: every split of the batch, every width of replicas, every
// number of devices, every cut, every group, every variant of every stage and, where the simulation judges, everything
// in flight. What they share with the planners is the cost of one plan alone (cost.h, schedule.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/machine/chosen_devices.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/mixed_widths.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/warmup.h"
#include "plan/planners/answer.h"
#include "plan/planners/device_choices.h"
#include "plan/planners/effort.h"
#include "plan/planners/leaner.h"
#include "plan/planners/step_choice.h"
#include "tests/plan/planners/random_policy.h"
#include "tests/plan/planners/random_width.h"
#include "tests/sanitized.h"

namespace automap::planners {
namespace {

using pipeline::Plan;
using pipeline::Problem;
using pipeline::ProblemOptions;
using pipeline::RandomProblem;
using pipeline::Schedule;

constexpr int kMostStages = 3;

// AUTOMAP_TWIN_CASES=20 compares twenty times as many.
int twin_cases(int usual) {
  const char* times = std::getenv("AUTOMAP_TWIN_CASES");
  return usual * (times != nullptr ? std::max(1, std::atoi(times)) : 1) / kShare;
}

struct Case {
  RandomProblem made;
  std::int64_t batch = 0;
};

Case random_whole_case(std::uint64_t seed, int most_instructions = 5, int most_servers = 2, int most_devices = 2) {
  pipeline::RandomProblemOptions how;
  how.min_instructions = 2;
  how.max_instructions = most_instructions;
  how.min_servers = 1;
  how.max_servers = most_servers;
  how.min_devices = 1;
  how.max_devices = most_devices;
  how.heterogeneous = 0.5;
  how.with_latency = 0.5;
  how.with_memory_limit = 0.5;
  how.measured = 0.2;
  how.whole = 1;
  Case c{random_problem(seed, how)};
  for (const int width : machine::widths_of(c.made.cluster)) {
    c.made.profile.widths.push_back(random_width(c.made.profile, width, seed));
  }
  constexpr std::int64_t kBatches[] = {1, 2, 3, 4, 6};
  c.batch = kBatches[seed % 5];
  return c;
}

// Ascending choices of `count` cuts below `end`.
void for_each_choice(int count, int end, const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> cuts;
  const std::function<void()> grow = [&] {
    if (static_cast<int>(cuts.size()) == count) return visit(cuts);
    for (int cut = cuts.empty() ? 1 : cuts.back() + 1; cut < end; ++cut) {
      cuts.push_back(cut);
      grow();
      cuts.pop_back();
    }
  };
  grow();
}

// Every list of `length` numbers below `base`.
void for_each_number(int length, int base, const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> digits(static_cast<std::size_t>(length), 0);
  for (;;) {
    visit(digits);
    std::size_t i = 0;
    while (i < digits.size() && ++digits[i] == base) digits[i++] = 0;
    if (i == digits.size()) return;
  }
}

// The shortest simulated step of a plan over all that may be in flight.
double least_simulated(const Problem& problem, Plan plan) {
  const int micro_batches = problem.micro_batches();
  double least = kInfinity;
  for_each_number(plan.num_stages(), micro_batches, [&](const std::vector<int>& below) {
    plan.warmup.clear();
    for (const int k : below) plan.warmup.push_back(k + 1);
    if (!std::is_sorted(plan.warmup.rbegin(), plan.warmup.rend())) return;
    if (feasible(problem, plan)) least = std::min(least, simulate_step_ms(problem, plan));
  });
  return least;
}

struct Least {
  double value_all = kInfinity;  // on all devices, in file order
  double value_any = kInfinity;  // on any devices, in any order of their servers
  double simulated_any = kInfinity;
};

// Every way to take whole replicas of servers, one server after the other in any order. Of servers that are alike, and
// of the devices of a server, every one is taken in its turn: nothing here knows what is interchangeable.
void for_each_standing(const machine::Cluster& cluster, int width,
                       const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<std::vector<int>> servers;
  int device = 0;
  for (const machine::ServerGroup& group : cluster.servers) {
    for (int s = 0; s < group.count; ++s) {
      servers.emplace_back();
      for (int d = 0; d < group.devices; ++d) servers.back().push_back(device++);
    }
  }
  std::vector<char> used(servers.size(), 0);
  std::vector<int> standing;
  const std::function<void()> grow = [&] {
    if (!standing.empty()) visit(standing);
    for (std::size_t s = 0; s < servers.size(); ++s) {
      if (used[s] != 0) continue;
      used[s] = 1;
      for (std::size_t count = at(width); count <= servers[s].size(); count += at(width)) {
        standing.insert(standing.end(), servers[s].begin(), servers[s].begin() + static_cast<std::ptrdiff_t>(count));
        grow();
        standing.resize(standing.size() - count);
      }
      used[s] = 0;
    }
  };
  grow();
}

ProblemOptions options_at(const Case& c, std::int64_t samples, int width) {
  ProblemOptions options = c.made.options;
  options.micro_batch_samples = static_cast<double>(samples);
  options.micro_batches = static_cast<int>(c.batch / samples);
  options.width = width;
  return options;
}

// Every plan of one width on these devices.
void enumerate_on(const Case& c, const std::vector<int>& standing, int width, bool simulate, Least* least) {
  const pipeline::Profile profile = width == 1 ? c.made.profile : profile_at(c.made.profile, width);
  const machine::Cluster cluster = machine::replicas_of(machine::on_devices(c.made.cluster, standing), width);
  const bool all = static_cast<int>(standing.size()) == c.made.cluster.num_devices() &&
                   std::is_sorted(standing.begin(), standing.end());
  const int devices = cluster.num_devices();
  for (std::int64_t samples = 1; samples <= c.batch; ++samples) {
    if (c.batch % samples != 0) continue;
    std::unique_ptr<Problem> problem;
    try {
      problem = std::make_unique<Problem>(profile, cluster, options_at(c, samples, width));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUsage) throw;  // more samples than times are known for
      continue;
    }
    const int n = problem->num_instructions();
    for (int stages = 1; stages <= std::min({kMostStages, n, devices}); ++stages) {
      Plan plan;
      plan.schedule = Schedule::kAdaptive;
      for_each_choice(stages - 1, n, [&](const std::vector<int>& cuts) {
        plan.cuts = cuts;
        for_each_choice(stages - 1, devices, [&](const std::vector<int>& device_cuts) {
          plan.device_cuts = device_cuts;
          for_each_number(stages, problem->num_variants(), [&](const std::vector<int>& variants) {
            plan.variants.assign(variants.begin(), variants.end());
            if (!feasible(*problem, plan)) return;
            const double value = value_ms(*problem, plan);
            least->value_any = std::min(least->value_any, value);
            if (all) least->value_all = std::min(least->value_all, value);
            if (simulate) least->simulated_any = std::min(least->simulated_any, least_simulated(*problem, plan));
          });
        });
      });
    }
  }
}

std::vector<int> widths_of(const Case& c) {
  std::vector<int> widths = {1};
  for (const pipeline::WidthColumns& columns : c.made.profile.widths) widths.push_back(columns.width);
  return widths;
}

Least enumerate(const Case& c, bool simulate) {
  Least least;
  for (const int width : widths_of(c)) {
    for_each_standing(c.made.cluster, width,
                      [&](const std::vector<int>& standing) { enumerate_on(c, standing, width, simulate, &least); });
  }
  return least;
}

// The shortest plan whose stages are of any widths, as MixedProblem simulates it.
double least_of_any_widths(const Case& c) {
  double least = kInfinity;
  for_each_standing(c.made.cluster, 1, [&](const std::vector<int>& standing) {
    const machine::Cluster cluster = machine::on_devices(c.made.cluster, standing);
    for (std::int64_t samples = 1; samples <= c.batch; ++samples) {
      if (c.batch % samples != 0) continue;
      std::unique_ptr<pipeline::MixedProblem> problem;
      try {
        problem = std::make_unique<pipeline::MixedProblem>(c.made.profile, cluster, options_at(c, samples, 1));
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kUsage) throw;
        continue;
      }
      const std::vector<int> widths = problem->widths();
      const int n = problem->num_instructions(), devices = problem->num_devices();
      const int variants = problem->problem(widths.front()).num_variants();
      pipeline::MixedPlan plan;
      plan.schedule = Schedule::kAdaptive;
      for (int stages = 2; stages <= std::min({kMostStages, n, devices}); ++stages) {
        for_each_choice(stages - 1, n, [&](const std::vector<int>& cuts) {
          plan.cuts = cuts;
          for_each_choice(stages - 1, devices, [&](const std::vector<int>& device_cuts) {
            plan.device_cuts = device_cuts;
            for_each_number(stages, static_cast<int>(widths.size()), [&](const std::vector<int>& of_stages) {
              plan.widths.clear();
              for (const int w : of_stages) plan.widths.push_back(widths[at(w)]);
              for_each_number(stages, variants, [&](const std::vector<int>& of) {
                plan.variants.assign(of.begin(), of.end());
                least = std::min(least, problem->simulated_ms(plan));
              });
            });
          });
        });
      }
    }
  });
  return least;
}

PlanRequest whole_request(PlannerKind planner, Objective objective) {
  PlanRequest request;
  request.effort = plan_effort(Effort::kNormal);
  request.schedules = {Schedule::kAdaptive};
  request.max_stages = kMostStages;
  request.planner = planner;
  request.objective = objective;
  request.lower_bound = true;
  request.policy = random_policy();
  return request;
}

StepPlan planned(const Case& c, const PlanRequest& request) {
  StepRequest step;
  step.batch = c.batch;
  try {
    return plan_step({c.made.profile, c.made.cluster, c.made.options, step, request});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUsage) throw;  // no split can be shared at all
    return {};
  }
}

class WholePlan : public testing::TestWithParam<int> {};

// If the search is exact, V is the least over all plans on all devices, at least, and no bound is above a plan.
TEST_P(WholePlan, ExactIsTheLeastOfAll) {
  constexpr int kCases = 5000 / kShare;
  int none = 0, wide = 0, fewer = 0, sharded = 0, recomputed = 0, least_of_all = 0;
  for (int i = 0; i < kCases && !HasFailure(); ++i) {
    const auto seed = static_cast<std::uint64_t>(GetParam() * kCases + i);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Case c = random_whole_case(seed);
    const Least least = enumerate(c, false);
    const StepPlan plan = planned(c, whole_request(PlannerKind::kExact, Objective::kValue));
    ASSERT_EQ(plan.result.plan.has_value(), least.value_any < kInfinity);
    if (!plan.result.plan) {
      ++none;
      continue;
    }
    const double slack = 1 + 1e-9;
    ASSERT_TRUE(feasible(*plan.problem, *plan.result.plan));
    // Stages are as plain as they may be within that.
    ASSERT_LE(plan.result.step_ms, least.value_all * (1 + pipeline::kWarmupSlack) * slack);
    ASSERT_GE(plan.result.step_ms * slack, least.value_any);
    ASSERT_LE(plan.result.lower_bound_ms, least.value_all * slack);
    if (plan.result.proven_ms > 0) {
      ASSERT_LE(plan.result.step_ms, least.value_all * slack);
    }
    wide += plan.size.width > 1;
    fewer += plan.size.devices > 0;
    least_of_all += plan.result.step_ms <= least.value_any * (1 + pipeline::kWarmupSlack);
    for (int s = 1; s <= plan.result.plan->num_stages(); ++s) {
      const pipeline::StageVariant& variant = plan.problem->variant(plan.result.plan->variant(s));
      sharded += variant.zero > 0;
      recomputed += variant.recompute;
    }
  }
  for (const int count : {none, wide, fewer, sharded, least_of_all}) EXPECT_GT(count, kCases / 100);
  // A few in thousands.
  if (!kSanitized) {
    EXPECT_GT(recomputed, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, WholePlan, testing::Range(0, 4));

// Judged by the simulation: never shorter than what can be, seldom longer, and no bound above it.
TEST(WholePlanSimulated, IsSeldomLongerThanTheLeastOfAll) {
  constexpr int kCases = 2000 / kShare;
  int found = 0, least_of_all = 0;
  double gaps = 0;
  for (int i = 0; i < kCases && !HasFailure(); ++i) {
    SCOPED_TRACE(testing::Message() << "seed " << i);
    const Case c = random_whole_case(static_cast<std::uint64_t>(1'000'000 + i));
    const Least least = enumerate(c, true);
    const StepPlan plan = planned(c, whole_request(PlannerKind::kAuto, Objective::kSimulated));
    ASSERT_EQ(plan.result.plan.has_value(), least.simulated_any < kInfinity);
    if (!plan.result.plan) continue;
    const double gap = plan.result.simulated_step_ms / least.simulated_any - 1;
    ASSERT_GE(gap, -1e-9);
    ASSERT_LE(plan.bounds.simulated_ms, plan.result.simulated_step_ms * (1 + 1e-9));
    ++found;
    least_of_all += gap < 1e-9;
    gaps += gap;
  }
  std::cout << "  of " << found << " plans " << least_of_all << " are the least of all, mean gap " << 100 * gaps / found
            << " %\n";
  EXPECT_GT(found, kCases / 2);
  EXPECT_LT(gaps / found, 0.005);
}

// Whole answers, stages of several widths among them, on servers that differ: how far they are behind the least of all.
void compare_answers(const std::function<Case(int)>& make, Effort effort, int cases, double most_gap) {
  int found = 0, mixed = 0, fewer = 0;
  double gaps = 0, worst = 0;
  for (int i = 0; i < cases; ++i) {
    SCOPED_TRACE(testing::Message() << "seed " << i);
    const Case c = make(i);
    if (c.batch > 4 || c.made.cluster.num_devices() > kMostDevicesListed) continue;
    const double least = std::min(enumerate(c, true).simulated_any, least_of_any_widths(c));
    PlanRequest request = whole_request(PlannerKind::kAuto, Objective::kSimulated);
    request.effort = plan_effort(effort);
    StepRequest step;
    step.batch = c.batch;
    Question question(c.made.profile, c.made.cluster, c.made.options, step, request);
    question.beside.mixed_widths = true;
    std::vector<KindRow> kinds = uniform_kinds();
    kinds.insert(kinds.end(), beside_kinds().begin(), beside_kinds().end());
    Answer found_answer;
    try {
      found_answer = answer(question, kinds);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUsage) throw;
      continue;
    }
    if (!found_answer.one_width.found()) continue;
    const Candidate& plan = found_answer.plan();
    const double gap = plan.simulated_step_ms / least - 1;
    ++found;
    mixed += !plan.of_one_width();
    fewer += plan.num_devices() < c.made.cluster.num_devices();
    gaps += gap;
    worst = std::max(worst, gap);
    EXPECT_LE(gap, most_gap + (found_answer.leaner.empty() ? kSameLength : kLittleLonger))
        << plan_text(plan.placed) << ", " << plan.simulated_step_ms << " ms; of one width "
        << enumerate(c, true).simulated_any << ", of any " << least_of_any_widths(c);
    EXPECT_GE(gap, -1e-9);
    for (const Bounds* bounds : {&found_answer.bounds, &found_answer.any_widths}) {
      if (bounds == &found_answer.bounds && found_answer.mixed) continue;  // about plans of one width
      EXPECT_LE(bounds->simulated_ms, plan.simulated_step_ms * (1 + 1e-9));
      if (bounds == &found_answer.any_widths && bounds->all_devices) {
        EXPECT_LE(bounds->simulated_ms, least * (1 + 1e-9));
      }
    }
  }
  std::cout << "  of " << found << " answers " << mixed << " have several widths and " << fewer
            << " leave devices free; mean gap " << 100 * gaps / found << " %, worst " << 100 * worst << " %\n";
  EXPECT_GT(mixed, 0);
  EXPECT_GT(fewer, 0);
}

// Each series begins where the tenth of it that a sanitized build looks at has stages of several widths, too.
TEST(WholeAnswers, AreNearTheLeastOfAllAtNormalEffort) {
  const auto make = [](int i) { return random_whole_case(static_cast<std::uint64_t>(2'000'100 + i), 4); };
  compare_answers(make, Effort::kNormal, twin_cases(600), 0.01);
}

TEST(WholeAnswers, AreTheLeastOfAllAtThoroughEffort) {
  const auto make = [](int i) { return random_whole_case(static_cast<std::uint64_t>(3'000'020 + i), 4); };
  compare_answers(make, Effort::kThorough, twin_cases(200), 0.001);
}

TEST(WholeAnswers, AreNearTheLeastOfAllOnUpToThreeServers) {
  const auto make = [](int i) { return random_whole_case(static_cast<std::uint64_t>(4'000'005 + i), 3, 3, 3); };
  compare_answers(make, Effort::kNormal, twin_cases(60), 0.01);
}

}  // namespace
}  // namespace automap::planners
