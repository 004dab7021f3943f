#include "plan/planners/step_choice.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/pipeline/coarse_profile.h"
#include "common/pipeline/least_work.h"
#include "plan/planners/shipped_policy.h"
#include "plan/planners/width_planner.h"

namespace automap::planners {
namespace {

using machine::Cluster;
using pipeline::ProblemOptions;
using pipeline::Profile;
using pipeline::Replicas;
using Time = WidthPlanner::Time;

// Planners that answer at once choose the split of a larger profile by so many of its positions.
constexpr int kLookPositions = 128;
// Bounds of splits that may get more work, over all widths, since the loosest split makes the bound.
constexpr int kMostCloser = 8;

// Plans of every width that the profile knows, the best of them, and what none of them can be below. All widths get a
// share of the effort, the best the rest.
StepPlan plan_all_widths(const Profile& profile, const Cluster& cluster, const ProblemOptions& options,
                         const std::vector<StepSize>& sizes, const PlanRequest& request, const StepRequest& step,
                         Time start) {
  std::vector<int> widths = {1};
  if (options.replicas != Replicas::kFractional) {
    for (const pipeline::WidthColumns& columns : profile.widths) widths.push_back(columns.width);
  }
  std::vector<std::unique_ptr<WidthPlanner>> planners;
  std::optional<Error> refused;
  double least_ms = kInfinity;
  for (const int width : widths) {
    auto planner = std::make_unique<WidthPlanner>(profile, cluster, options, request, step, width, least_ms, start);
    try {
      planner->look_at_all(sizes, widths.size() == 1);
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
    // Where no width has a plan, one that could be looked at says why.
    return std::make_pair(a->best_look_ms(), !a->looked()) < std::make_pair(b->best_look_ms(), !b->looked());
  });
  int closer = kMostCloser;
  StepPlan best = (*best_planner)->finish(&closer);
  if (widths.size() == 1) {
    best.result.planning_ms = (*best_planner)->gone_ms();
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
    best.considered.insert(best.considered.end(), planner->considered().begin(), planner->considered().end());
    if (best.result.plan && request.lower_bound) planner->tighten(best, &closer);
  }
  best.result.planning_ms = (*best_planner)->gone_ms();
  return best;
}

// Planners that answer at once: width, split and number of stages by a coarse profile, the plan by the whole one.
// `online` takes width and split from one of those, and has all of its time for the one problem. The bound is of all
// plans: it comes of the whole profile's work alone.
std::optional<StepPlan> plan_by_a_look(const Profile& profile, const Cluster& cluster, const ProblemOptions& options,
                                       const std::vector<StepSize>& sizes, const PlanRequest& request,
                                       const StepRequest& step, Time start) {
  const bool at_once = answers_at_once(request.planner);
  PlanRequest unbounded = request;
  unbounded.lower_bound = false;
  PlanRequest look = unbounded;
  if (!at_once) {
    // From a policy the split is its own, so that its one-shot plan is among the first.
    const bool policy = !request.online.from_scratch && (request.policy || shipped_policy(Objective::kSimulated));
    look.planner = policy ? PlannerKind::kPolicy : PlannerKind::kRollouts;
    look.objective = request.objective.value_or(Objective::kSimulated);
    look.effort = plan_effort(Effort::kNormal);
  }
  const Profile coarse = profile.size() > 2 * kLookPositions
                             ? pipeline::coarse_profile(profile, pipeline::thinnest_cuts(profile, kLookPositions))
                             : profile;
  StepPlan rough = plan_all_widths(coarse, cluster, options, sizes, look, step, start);
  if (!rough.result.plan) return std::nullopt;
  PlanRequest closely = unbounded;
  if (at_once) closely.stages = rough.result.plan->num_stages();
  const WidthPlanner planner(profile, cluster, options, closely, step, rough.size.width, kInfinity, start);
  StepPlan plan = planner.of_split(rough.size);
  if (!plan.result.plan) return std::nullopt;
  plan.considered = std::move(rough.considered);
  plan.why_fewer = std::move(rough.why_fewer);
  plan.widths = std::move(rough.widths);
  for (WidthAlternative& width : plan.widths) {
    if (width.width != plan.size.width) continue;
    width = {width.width, plan.result.plan->num_stages(), plan.result.step_ms, plan.result.simulated_step_ms};
  }
  if (request.lower_bound) {
    plan.result.lower_bound_ms = std::min(
        plan.result.step_ms, pipeline::least_work_bound_ms(profile, cluster, options.replicas, plan.size.batch()));
    plan.result.lower_bound_method = pipeline::kBalanceOfWork;
    plan.result.set_gap();
  }
  plan.result.planning_ms = planner.gone_ms();
  return plan;
}

StepPlan plan_widths(const Profile& profile, const Cluster& cluster, const ProblemOptions& options,
                     const std::vector<StepSize>& sizes, const PlanRequest& request, const StepRequest& step) {
  const Time start = std::chrono::steady_clock::now();
  // Twice as many positions take less time themselves than to be put together.
  const bool large = profile.size() > 2 * kLookPositions;
  if (request.planner == PlannerKind::kOnline || (answers_at_once(request.planner) && large)) {
    if (auto plan = plan_by_a_look(profile, cluster, options, sizes, request, step, start)) return std::move(*plan);
  }
  return plan_all_widths(profile, cluster, options, sizes, request, step, start);
}

}  // namespace

BoundScope StepPlan::bound_scope(int all_devices) const {
  // Of each width: the micro-batches considered on each number of devices.
  std::map<int, std::map<int, std::set<double>>> of_widths;
  std::set<double> all;
  std::set<int, std::greater<>> counts;
  for (const StepSize& one : considered) {
    const int devices = one.devices > 0 ? one.devices * one.width : all_devices;
    counts.insert(devices);
    of_widths[one.width][devices].insert(one.samples);
    all.insert(one.samples);
  }
  BoundScope scope;
  for (const int devices : counts) {
    const bool whole = std::all_of(of_widths.begin(), of_widths.end(), [&](const auto& of_width) {
      const auto& [width, on] = of_width;
      const auto sizes = on.find(devices);
      return sizes == on.end() ? devices % width != 0 : sizes->second == all;
    });
    (whole ? scope.devices : scope.devices_in_part).push_back(devices);
  }
  return scope;
}

StepPlan plan_step(const Profile& profile, const Cluster& cluster, const ProblemOptions& options,
                   const StepRequest& step, const PlanRequest& request) {
  const std::vector<StepSize> sizes = step_sizes(step, profile, options.replicas);
  StepPlan plan = plan_widths(profile, cluster, options, sizes, request, step);
  if (!step.equal_replicas) return plan;
  PlanRequest free = request;
  free.lower_bound = false;
  if (free.effort.units != WorkLimits::kNoEnd) free.effort.units /= kLookShare;
  StepRequest unequal = step;
  unequal.equal_replicas = false;
  const StepPlan other = plan_widths(profile, cluster, options, sizes, free, unequal);
  // What equal stages can do, free ones can, too.
  if (other.result.plan && plan.result.plan) {
    plan.free_plan_ms = std::min(other.result.simulated_step_ms, plan.result.simulated_step_ms);
  }
  return plan;
}

}  // namespace automap::planners
