#include "plan/planners/step_choice.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/pipeline/coarse_profile.h"
#include "common/pipeline/exact.h"
#include "plan/planners/candidate.h"
#include "plan/planners/framework_search.h"
#include "plan/planners/least_work.h"
#include "plan/planners/shipped_policy.h"
#include "plan/planners/step_bounds.h"
#include "plan/planners/width_planner.h"

namespace automap::planners {
namespace {

using pipeline::Profile;
using pipeline::Replicas;
using Time = WidthPlanner::Time;

// Planners that answer at once choose the split of a larger profile by so many of its positions.
constexpr int kLookPositions = 128;

// A split of the batch without the devices.
StepSize split_alone(const StepSize& size) {
  return {size.samples, size.micro_batches};
}

// Devices that replicas of a width leave over are not planned for: not all then.
void count_devices(const machine::Cluster& cluster, StepSize* size) {
  if (size->devices > 0) return;
  const auto devices = static_cast<int>(devices_of(cluster, *size).size());
  if (devices < cluster.num_devices()) size->devices = devices / size->width;
}

void count_devices(const machine::Cluster& cluster, StepPlan* plan) {
  count_devices(cluster, &plan->size);
  for (StepSize& size : plan->bounds.considered) count_devices(cluster, &size);
}

// Plans of every width that the profile knows, and the best of them. All widths get a share of the effort, the best the
// rest.
StepPlan plan_all_widths(const Question& question, const std::vector<StepSize>& sizes, Time start) {
  const Profile& profile = question.profile();
  const std::vector<StepSize> further = further_sizes(question.step, profile, question.options.replicas);
  const bool any_width = question.options.replicas != Replicas::kFractional;
  const std::vector<int> widths = any_width ? pipeline::known_widths(profile) : std::vector<int>{1};
  std::vector<std::unique_ptr<WidthPlanner>> planners;
  std::optional<Error> refused;
  double least_ms = kInfinity;
  for (const int width : widths) {
    auto planner = std::make_unique<WidthPlanner>(question, width, least_ms, start);
    try {
      planner->look_at_all(sizes, further, widths.size() == 1);
    } catch (const Error& e) {
      // No split is one for replicas of this width; of another it may be.
      if (widths.size() == 1 || e.kind() != ErrorKind::kUsage) throw;
      if (!refused) refused.emplace(e);
      continue;
    }
    least_ms = std::min(least_ms, planner->best_look_ms());
    planners.push_back(std::move(planner));
  }
  if (planners.empty()) throw *refused;
  const auto best_planner = std::min_element(planners.begin(), planners.end(), [](const auto& a, const auto& b) {
    // Where no width has a plan, one that could be tried gives the reason.
    return std::make_pair(a->best_look_ms(), !a->looked()) < std::make_pair(b->best_look_ms(), !b->looked());
  });
  StepPlan best = (*best_planner)->finish();
  if (widths.size() == 1) {
    best.result.planning_ms = (*best_planner)->gone_ms();
    best.bounds.all_devices = (*best_planner)->considered_all_devices();
    return best;
  }
  for (const auto& planner : planners) {
    if (planner == *best_planner) {
      if (!best.result.plan) continue;
      best.widths.push_back(
          {best.size.width, best.result.plan->num_stages(), best.result.step_ms, best.result.simulated_step_ms});
      continue;
    }
    if (const std::optional<WidthAlternative> found = planner->best_look()) best.widths.push_back(*found);
    best.bounds.considered.insert(best.bounds.considered.end(), planner->considered().begin(),
                                  planner->considered().end());
  }
  // Splits that one width alone looked at are no premise of what is said of all.
  if (std::find(further.begin(), further.end(), split_alone(best.size)) == further.end()) {
    const auto alone = [&](const StepSize& size) {
      return std::find(further.begin(), further.end(), split_alone(size)) != further.end();
    };
    best.bounds.considered.erase(std::remove_if(best.bounds.considered.begin(), best.bounds.considered.end(), alone),
                                 best.bounds.considered.end());
  }
  best.result.planning_ms = (*best_planner)->gone_ms();
  best.bounds.all_devices = std::all_of(planners.begin(), planners.end(),
                                        [](const auto& planner) { return planner->considered_all_devices(); });
  count_devices(question.cluster, &best);
  return best;
}

// Planners that answer at once know no bound of their own split.
void open_bounds(const PlanRequest& request, StepPlan* plan) {
  plan->bounds.open = true;
  if (answers_at_once(request.planner)) {
    plan->result.lower_bound_ms = plan->result.step_ms;
    plan->result.lower_bound_method = pipeline::kBalanceOfWork;
  } else {
    plan->bounds.of_value = {plan->size};
  }
  const bool closely = request.planner == PlannerKind::kAuto || request.planner == PlannerKind::kExact;
  if (closely) plan->bounds.simulated_ms = plan->result.simulated_step_ms;
}

// Planners that answer at once: width, split and number of stages by a coarse profile, the plan by the whole one.
// `online` takes width and split from one of those, and has all of its time for the one problem. The bound is of all
// plans: it comes of the whole profile's work alone.
std::optional<StepPlan> plan_by_a_look(const Question& question, const std::vector<StepSize>& sizes, Time start) {
  const Profile& profile = question.profile();
  const PlanRequest& request = question.request;
  const bool at_once = answers_at_once(request.planner);
  Question unbounded = question;
  unbounded.request.lower_bound = false;
  Question coarse = unbounded;
  PlanRequest& look = coarse.request;
  look.better = {};  // its plans are of other positions
  if (!at_once) {
    // From a policy the split is its own, so that its one-shot plan is among the first.
    const bool policy = !request.online.from_scratch && (request.policy || shipped_policy(Objective::kSimulated));
    look.planner = policy ? PlannerKind::kPolicy : PlannerKind::kRollouts;
    look.objective = request.objective.value_or(Objective::kSimulated);
    look.effort = plan_effort(Effort::kNormal);
  }
  if (profile.size() > 2 * kLookPositions) {
    coarse.set_profile(pipeline::coarse_profile(profile, pipeline::thinnest_cuts(profile, kLookPositions)));
  }
  StepPlan rough = plan_all_widths(coarse, sizes, start);
  if (!rough.result.plan) return std::nullopt;
  Question closely = unbounded;
  if (at_once) closely.request.stages = rough.result.plan->num_stages();
  const WidthPlanner planner(closely, rough.size.width, kInfinity, start);
  StepPlan plan = planner.of_split(rough.size);
  if (!plan.result.plan) return std::nullopt;
  plan.bounds.considered = std::move(rough.bounds.considered);
  plan.why_fewer = std::move(rough.why_fewer);
  plan.bounds.all_devices = rough.bounds.all_devices;
  plan.widths = std::move(rough.widths);
  for (WidthAlternative& width : plan.widths) {
    if (width.width != plan.size.width) continue;
    width = {width.width, plan.result.plan->num_stages(), plan.result.step_ms, plan.result.simulated_step_ms};
  }
  if (request.lower_bound) {
    plan.result.lower_bound_ms =
        std::min(plan.result.step_ms,
                 least_step_bound_ms(profile, question.cluster, question.options.replicas, plan.size.batch()));
    plan.result.lower_bound_method = kWorkAndWay;
    plan.result.set_gap();
  }
  plan.result.planning_ms = planner.gone_ms();
  return plan;
}

StepPlan plan_widths(const Question& question, const std::vector<StepSize>& sizes) {
  const PlanRequest& request = question.request;
  const Time start = std::chrono::steady_clock::now();
  // Twice as many positions take less time themselves than to be put together.
  const bool large = question.profile().size() > 2 * kLookPositions;
  if (request.planner == PlannerKind::kOnline || (answers_at_once(request.planner) && large)) {
    if (auto plan = plan_by_a_look(question, sizes, start)) return std::move(*plan);
  }
  StepPlan plan = plan_all_widths(question, sizes, start);
  if (plan.result.plan && request.lower_bound) open_bounds(request, &plan);
  return plan;
}

}  // namespace

StepPlan search_step_alone(const Question& question) {
  return plan_widths(question, step_sizes(question.step, question.profile(), question.options.replicas));
}

StepPlan search_step(const Question& question) {
  if (limits_plans(*question.framework)) return search_for_framework(question);
  StepPlan plan = search_step_alone(question);
  if (!question.step.equal_replicas) return plan;
  Question free = question;
  free.request.lower_bound = false;
  free.request.better = {};
  if (free.request.effort.units != WorkLimits::kNoEnd) free.request.effort.units /= kLookShare;
  free.step.equal_replicas = false;
  const StepPlan other = search_step_alone(free);
  // Free stages can do all that equal stages can.
  if (other.result.plan && plan.result.plan) {
    plan.free_plan_ms = std::min(other.result.simulated_step_ms, plan.result.simulated_step_ms);
  }
  return plan;
}

StepPlan plan_step(const Question& question) {
  const Time start = std::chrono::steady_clock::now();
  StepPlan plan = search_step(question);
  if (!plan.bounds.open) return plan;
  Question rest = question;
  rest.request.time_limit_s -= seconds_since(start);
  plan.bounds = bounds_of(plan);
  close_bounds(rest, &plan.bounds);
  PlanResult& result = plan.result;
  result.lower_bound_ms = plan.bounds.value_ms;
  result.lower_bound_method = plan.bounds.method;
  result.set_gap();
  if (result.gap > kProvenGap) result.proven_ms = 0;
  result.planning_ms = 1e3 * seconds_since(start);
  return plan;
}

}  // namespace automap::planners
