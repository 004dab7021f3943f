#include "plan/planners/lightest.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

#include "common/base/numbers.h"
#include "common/base/text_table.h"
#include "common/pipeline/baselines.h"
#include "common/pipeline/schedule.h"

namespace automap::planners {
namespace {

using pipeline::DeviceGroup;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::Schedule;

// The stage (from 1) that uses the largest share of its devices' memory, and that share.
std::pair<int, double> worst_stage(const Problem& problem, const Plan& plan) {
  std::pair<int, double> worst = {0, -1};
  pipeline::for_each_stage(problem, plan, [&](int s, int p0, int p1, int d0, int d1) {
    const DeviceGroup& group = problem.group(d0, d1);
    const int k = plan.schedule == Schedule::kAdaptive
                      ? 1
                      : pipeline::in_flight(plan.schedule, plan.num_stages(), s, problem.micro_batches());
    const double share = problem.memory_bytes(p0, p1, group, k, plan.variant(s)) / group.capacity_bytes;
    if (share > worst.second) worst = {s, share};
    return true;
  });
  return worst;
}

}  // namespace

LightestPlan lightest_plan(const Problem& problem, const StageChoice& choice, Work& work) {
  using pipeline::BalanceBy;
  LightestPlan lightest;
  lightest.share = kInfinity;
  // The last variant mostly takes the least, so that a glance at the others is enough; of equals the first is taken.
  const int variants = problem.num_variants(), last = variants - 1;
  const auto in_turn = [&](const auto& look) {
    look(last);
    for (int variant = 0; variant < last; ++variant) look(variant);
  };
  const auto bound = [&](const std::vector<int>& device_cuts, Schedule schedule) {
    double least = kInfinity;
    in_turn([&](int variant) {
      least = std::min(
          least, pipeline::balanced_bound(problem, device_cuts, schedule, BalanceBy::kMemory, &work, variant, least));
    });
    return least;
  };
  struct Choice {
    double bound;
    std::vector<int> device_cuts;
    Schedule schedule;
  };
  const auto choice_of = [&](const std::vector<int>& device_cuts, Schedule schedule) {
    double& here = lightest.by_stages.emplace(static_cast<int>(device_cuts.size()) + 1, kInfinity).first->second;
    const double least = bound(device_cuts, schedule);
    here = std::min(here, least);
    return Choice{least, device_cuts, schedule};
  };
  const auto consider = [&](const Choice& one) {
    if (lightest.plan && !(one.bound < lightest.share)) return false;
    std::optional<Plan> best;
    double least = kInfinity;
    in_turn([&](int variant) {
      std::optional<Plan> plan =
          pipeline::balanced_on(problem, one.device_cuts, one.schedule, BalanceBy::kMemory, 0, &work, variant, least);
      if (!plan) return;
      const double share = worst_stage(problem, *plan).second;
      if (!(share < least || (share == least && best->variant(1) == last))) return;
      least = share;
      best = std::move(plan);
    });
    if (!(least < lightest.share)) return false;
    lightest.share = least;
    lightest.plan = std::move(best);
    return true;
  };
  std::vector<Choice> too_full;
  // Without work left one choice is enough.
  const auto enough = [&] { return (lightest.plan || !too_full.empty()) && work.over(); };
  for (const Schedule schedule : choice.schedules) {
    for (int stages = choice.first_stages; stages <= choice.last_stages && !enough(); ++stages) {
      for (const std::vector<int>& cuts : pipeline::device_share_candidates(problem, stages)) {
        if (lightest.plan && lightest.share <= 1) return lightest;
        if (enough()) break;
        Choice one = choice_of(cuts, schedule);
        if (one.bound <= 1) {
          consider(one);
        } else {
          too_full.push_back(std::move(one));
        }
      }
    }
  }
  // None fits: those that may come nearest first.
  std::stable_sort(too_full.begin(), too_full.end(),
                   [](const Choice& a, const Choice& b) { return a.bound < b.bound; });
  for (const Choice& one : too_full) {
    if (lightest.plan && (!(one.bound < lightest.share) || work.over())) break;
    consider(one);
  }
  for (bool moved = lightest.plan.has_value(); moved && lightest.share > 1;) {
    moved = false;
    for (std::size_t b = 0; b < lightest.plan->device_cuts.size() && !work.over(); ++b) {
      for (int step : {1, -1, 2, -2, 4, -4, 8, -8}) {
        if (work.over()) break;
        Plan next = *lightest.plan;
        next.device_cuts[b] += step;
        if (pipeline::valid_structure(problem, next) && consider(choice_of(next.device_cuts, next.schedule)))
          moved = true;
      }
    }
  }
  return lightest;
}

NothingFits explain_nothing_fits(const Problem& problem, const StageChoice& choice, const LightestPlan& lightest) {
  NothingFits why;
  const int first = choice.first_stages, last = choice.last_stages;
  const std::string range = first == last ? std::to_string(first) + (first == 1 ? " stage" : " stages")
                                          : std::to_string(first) + " to " + std::to_string(last) + " stages";
  const auto shares = [&] {
    for (int stages = first; stages <= last; ++stages) {
      if (!pipeline::device_share_candidates(problem, stages).empty()) return true;
    }
    return false;
  };
  why.devices_divide = shares();
  if (!why.devices_divide) {
    const std::string samples = format_count(std::llround(problem.micro_batch_samples()));
    why.text =
        "No plan of " + range + " on " + std::to_string(problem.num_devices()) + " devices: a micro-batch has " +
        samples + (problem.micro_batch_samples() == 1 ? " sample" : " samples") +
        ", and the devices of every stage have to divide them. A larger --batch or --micro-batch, or other stage "
        "counts would do; --replicas fractional plans with parts of samples.";
    return why;
  }
  if (!lightest.plan) {
    why.text = "No plan of " + range +
               ": the trainable variables cannot be spread so that every stage holds one. "
               "--allow-empty-stages lifts that rule.";
    return why;
  }
  if (!problem.options().memory || lightest.share <= 1) {
    why.text = "No feasible plan of " + range + " was found by the planners asked for. Try --planner auto.";
    return why;
  }
  const Plan& best = *lightest.plan;
  const auto [stage, share] = worst_stage(problem, best);
  const int d0 = stage == 1 ? 0 : best.device_cuts[at(stage - 2)];
  const int d1 = stage == best.num_stages() ? problem.num_devices() : best.device_cuts[at(stage - 1)];
  why.available_memory_bytes = problem.group(d0, d1).capacity_bytes;
  why.least_memory_bytes = share * why.available_memory_bytes;
  why.text = "No plan of " + range + " fits in memory. The plan found with the least memory has " +
             std::to_string(best.num_stages()) + (best.num_stages() == 1 ? " stage" : " stages") + " (" +
             to_string(best.schedule) + "): stage " + std::to_string(stage) + " needs " +
             format_bytes(why.least_memory_bytes) + " of the " + format_bytes(why.available_memory_bytes) +
             " on each of its devices.";
  if (first != last) {
    std::string by_stages;
    for (const auto& [stages, of_stages] : lightest.by_stages) {
      if (!(of_stages < kInfinity)) continue;
      char text[64];
      std::snprintf(text, sizeof text, "%s%d: %.0f %%", by_stages.empty() ? "" : ", ", stages, 100 * of_stages);
      by_stages += text;
    }
    why.text +=
        " No plan needs less than these shares of a device's memory, by its number of stages: " + by_stages + ".";
  }
  why.text += " --memory off ignores the limit.";
  return why;
}

}  // namespace automap::planners
