#include "plan/planners/framework_search.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/base/text_table.h"
#include "common/machine/chosen_devices.h"
#include "common/pipeline/coarse_profile.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/schedule.h"
#include "plan/planners/candidate.h"
#include "plan/planners/frameworks.h"
#include "plan/planners/layers.h"

namespace automap::planners {
namespace {

using pipeline::Plan;
using pipeline::Problem;
using pipeline::Schedule;
using pipeline::StageVariant;

// The number of plans that the exact solver gives on the layers of one plan. It ranks by V; the simulation chooses
// among them.
constexpr int kLayerPlans = 8;
constexpr std::int64_t kLayerUnits = 20'000'000;
constexpr int kMemoryTries = 2;

// Numbers of devices that stages alike are made of: all, and the most that leave each stage a power of two, which
// batches mostly divide by.
std::vector<int> device_counts(const Question& question) {
  const int all = question.cluster.num_devices();
  // On such servers the search has choices of its own (even_choices).
  if (question.framework->even_servers) return {all};
  int fewer = std::max(1, question.request.stages);
  while (2 * fewer <= all) fewer *= 2;
  if (fewer >= all) return {all};
  return {all, fewer};
}

// Restates a plan that was found on the cluster's first `devices` devices for the whole cluster.
void say_of_all_devices(const Question& question, int devices, StepPlan* found) {
  if (devices == question.cluster.num_devices()) return;
  const auto fix = [&](StepSize* size) {
    if (size->devices == 0) size->devices = devices / size->width;
  };
  fix(&found->size);
  for (StepSize& size : found->bounds.considered) fix(&size);
  if (found->why_fewer.empty()) found->why_fewer = "no plan on more of them was found to be shorter";
}

// A question whose every plan holds to what the stages of the framework have in common.
struct Part {
  Question question;
  int devices = 0;  // the first of the cluster, which the question's cluster is
  // The cuts that its plans have, and n; empty: any.
  std::vector<int> ends;
  bool refine = false;  // whether other cuts of `ends` may be tried for as many stages
};

std::vector<StageVariant> of_levels(const std::vector<StageVariant>& variants, const std::vector<int>& levels) {
  std::vector<StageVariant> out;
  for (const StageVariant& variant : variants) {
    if (std::find(levels.begin(), levels.end(), variant.zero) != levels.end()) out.push_back(variant);
  }
  return out;
}

class Parts {
 public:
  explicit Parts(const Question& question) : question_(question), framework_(*question.framework) {
    const PlanRequest& request = question.request;
    if (request.stages <= 1) add_one_stage();
    if (request.stages != 1 && (request.stages > 1 || request.max_stages > 1)) add_several_stages();
    for (Part& part : parts_) {
      part.question.framework = &any_framework();
      PlanRequest& own = part.question.request;
      own.lower_bound = false;
      own.progress = {};
      // A session of learning is for one problem.
      if (own.planner == PlannerKind::kOnline) own.planner = PlannerKind::kAuto;
      const PlanEffort quick = plan_effort(Effort::kQuick);
      // The other half is for the bounds.
      const auto share = static_cast<std::int64_t>(2 * parts_.size());
      own.effort.units = own.effort.units == WorkLimits::kNoEnd ? quick.units : own.effort.units / share;
      if (part.ends.empty()) continue;
      const auto positions = static_cast<int>(part.ends.size());
      own.max_stages = std::min(own.max_stages, positions);
      part.question.set_profile(pipeline::coarse_profile(question.profile(), part.ends));
    }
  }
  const std::vector<Part>& all() const { return parts_; }

 private:
  // With one stage, properties that all stages share are free.
  void add_one_stage() {
    Question one = question_;
    one.cluster = machine::first_devices(question_.cluster, device_counts(question_).front());
    one.request.stages = one.request.max_stages = 1;
    one.step.equal_replicas = false;
    one.options = framework_options(framework_, 1, std::move(one.options));
    const std::vector<Schedule>& asked = one.request.schedules;
    const bool adds_up = std::find(asked.begin(), asked.end(), Schedule::k1f1b) != asked.end();
    if (adds_up) one.request.schedules = {Schedule::k1f1b};
    const std::vector<StageVariant> wide = of_levels(question_.options.variants, framework_.zero_wide);
    const std::vector<StageVariant> alone = of_levels(question_.options.variants, framework_.zero_alone);
    if (!wide.empty()) {
      one.options.variants = wide;
      parts_.push_back({one, one.cluster.num_devices(), {}, false});
    }
    if (alone.empty() || alone == wide) return;
    pipeline::Profile narrow = one.profile();
    narrow.widths.clear();
    one.set_profile(std::move(narrow));
    one.options.variants = alone;
    const int devices = one.cluster.num_devices();
    parts_.push_back({std::move(one), devices, {}, false});
  }

  void add_several_stages() {
    Question several = question_;
    drop_widths(2, several);
    std::vector<Schedule>& schedules = several.request.schedules;
    schedules.erase(std::remove_if(schedules.begin(), schedules.end(),
                                   [&](Schedule schedule) {
                                     const std::vector<Schedule>& has = framework_.schedules;
                                     return std::find(has.begin(), has.end(), schedule) == has.end();
                                   }),
                    schedules.end());
    if (schedules.empty()) return;
    add_levels(several, framework_.zero_stages);
    // Stages of one replica each have nothing to shard, whatever the levels.
    const std::vector<int>& levels = framework_.zero_stages;
    if (std::find(levels.begin(), levels.end(), 0) != levels.end()) return;
    several.step.lone_replicas = true;
    several.step.equal_replicas = false;
    add_levels(several, {0});
  }

  // One part for each of what all stages have in common.
  void add_levels(Question several, const std::vector<int>& levels) {
    const std::vector<StageVariant> variants = of_levels(question_.options.variants, levels);
    std::set<std::pair<int, bool>> seen;
    for (const StageVariant& variant : variants) {
      // The planners choose properties that may differ from stage to stage.
      const bool by_stage = framework_.recompute_by_stage;
      if (!seen.insert({variant.zero, by_stage ? false : variant.recompute}).second) continue;
      several.options.variants.clear();
      for (const StageVariant& other : variants) {
        if (other.zero == variant.zero && (by_stage || other.recompute == variant.recompute)) {
          several.options.variants.push_back(other);
        }
      }
      for (const int devices : device_counts(question_)) {
        several.cluster = machine::first_devices(question_.cluster, devices);
        add_cuts(several);
      }
    }
  }

  void add_cuts(const Question& several) {
    const int devices = several.cluster.num_devices();
    const pipeline::Profile& profile = several.profile();
    if (framework_.cuts == FrameworkCuts::kInstructions || layer_cuts(profile).empty()) {
      parts_.push_back({several, devices, {}, false});
      return;
    }
    if (framework_.cuts != FrameworkCuts::kEqualLayers) {
      std::vector<int> between = framework_cuts(framework_, profile);
      if (static_cast<int>(between.size()) + 1 < std::max(2, several.request.stages)) return;
      between.push_back(profile.size());
      parts_.push_back({several, devices, std::move(between), true});
      return;
    }
    const std::vector<int> starts = stack_starts(profile);
    const PlanRequest& request = several.request;
    const auto layers = static_cast<int>(starts.size());
    for (int stages = std::max(2, request.stages); stages <= std::min(layers, request.max_stages); ++stages) {
      if (layers % stages != 0 || (request.stages > 0 && stages != request.stages)) continue;
      Part part{several, devices, {}, false};
      part.question.request.stages = stages;
      if (framework_.whole_rounds) part.question.step.rounds_of = stages;
      for (int s = 1; s < stages; ++s) part.ends.push_back(starts[at(s * (layers / stages))]);
      part.ends.push_back(profile.size());
      parts_.push_back(std::move(part));
    }
  }

  const Question& question_;
  const Framework& framework_;
  std::vector<Part> parts_;
};

std::unique_ptr<Problem> problem_of_size(const Question& question, const StepSize& size, int stages,
                                         const std::vector<StageVariant>& variants) {
  pipeline::ProblemOptions options = framework_options(*question.framework, stages, question.options);
  options.variants = variants;
  return problem_of(question, size, std::move(options));
}

double length_of(const Problem& problem, const Plan& plan, Objective objective) {
  return objective == Objective::kValue ? value_ms(problem, plan) : simulate_step_ms(problem, plan);
}

// Prices the plan of a part on the instructions. If no plan can run there, `found` loses its plan; the result is then
// the share of its devices' memory that it needs, 0 where memory is not the reason.
double count_on_instructions(const Question& question, const Part& part, StepPlan* found) {
  PlanResult& result = found->result;
  Plan plan = *std::exchange(result.plan, std::nullopt);
  for (int& cut : plan.cuts) cut = part.ends[at(cut - 1)];
  // Properties that are chosen stage by stage may turn out differently there.
  found->problem = problem_of_size(question, found->size, plan.num_stages(), part.question.options.variants);
  const Problem& problem = *found->problem;
  std::vector<Plan> plans = {plan};
  if (part.refine) {
    pipeline::ExactOptions exact;
    exact.min_stages = exact.max_stages = plan.num_stages();
    exact.schedule = plan.schedule;
    exact.pivots.assign(part.ends.begin(), part.ends.end() - 1);
    exact.k_best = kLayerPlans;
    WorkLimits limits = question.request.time_limits();
    limits.units = kLayerUnits;
    Work work(limits);
    exact.work = &work;
    if (plan.num_stages() > 1) {
      for (const pipeline::ExactStageResult& by_stages : solve_exact(problem, exact).by_stages) {
        plans.insert(plans.end(), by_stages.plans.begin(), by_stages.plans.end());
      }
    }
  }
  double least = kInfinity;
  for (Plan& one : plans) {
    if (!feasible(problem, one)) continue;
    const double length = length_of(problem, one, result.objective);
    if (!(length < least)) continue;
    least = length;
    result.plan = std::move(one);
  }
  if (!result.plan) {
    const pipeline::PlacedPlan placed = place(problem, plan);
    result.infeasible = infeasible_reason(placed);
    const double share = fullest_share(placed);
    return share > 1 && problem.options().memory ? share : 0;
  }
  result.step_ms = value_ms(problem, *result.plan);
  result.simulated_step_ms = simulate_step_ms(problem, *result.plan);
  result.limits = plan_limits(problem, *result.plan);
  return 0;
}

// The plan of a part. A layer that is one position may take less memory (recomputation keeps what enters it, and parts
// of layers have names, too): where its plan does not fit on the instructions, a shorter memory is planned for.
StepPlan plan_of_part(const Question& question, const Part& part, const std::function<double()>& seconds_left) {
  Question own = part.question;
  for (int more = kMemoryTries;; --more) {
    own.request.time_limit_s = seconds_left();
    StepPlan found = search_step_alone(own);
    say_of_all_devices(question, part.devices, &found);
    if (!found.result.plan || part.ends.empty()) return found;
    const double share = count_on_instructions(question, part, &found);
    if (found.result.plan || share == 0 || more == 0) return found;
    own.options.memory_reserve = 1 - (1 - own.options.memory_reserve) / share;
  }
}

// Removes the ZeRO level where a stage has one replica and the level shards nothing, and puts the plan on a problem
// with all variants of the question.
void take_all_variants(const Question& question, StepPlan* found) {
  PlanResult& result = found->result;
  const Problem& problem = *found->problem;
  const pipeline::PlacedPlan placed = place(problem, *result.plan);
  Plan plan = *result.plan;
  plan.variants.clear();
  const std::vector<StageVariant>& variants = question.options.variants;
  for (const pipeline::PlacedStage& stage : placed.stages) {
    StageVariant variant = problem.variant(stage.variant);
    const StageVariant plain{0, variant.recompute};
    const bool has_plain = std::find(variants.begin(), variants.end(), plain) != variants.end();
    if (stage.d1 - stage.d0 == 1 && has_plain) variant = plain;
    plan.variants.push_back(
        static_cast<std::uint8_t>(std::find(variants.begin(), variants.end(), variant) - variants.begin()));
  }
  // All stages alike, as the bounds are about them.
  if (question.step.equal_replicas) found->size.group_size = placed.stages.front().d1 - placed.stages.front().d0;
  found->problem = problem_of_size(question, found->size, plan.num_stages(), variants);
  result.step_ms = value_ms(*found->problem, plan);
  result.simulated_step_ms = simulate_step_ms(*found->problem, plan);
  result.limits = plan_limits(*found->problem, plan);
  result.plan = std::move(plan);
}

// The best of each width.
void join_widths(const std::vector<WidthAlternative>& others, std::vector<WidthAlternative>* widths) {
  for (const WidthAlternative& other : others) {
    const auto same = std::find_if(widths->begin(), widths->end(),
                                   [&](const WidthAlternative& width) { return width.width == other.width; });
    if (same == widths->end()) {
      widths->push_back(other);
    } else if (other.simulated_step_ms < same->simulated_step_ms) {
      *same = other;
    }
  }
}

// The reason why there is no part; empty: the model is not the reason.
std::string why_no_part(const Question& question) {
  const Framework& framework = *question.framework;
  const pipeline::Profile& profile = question.profile();
  const int stages = question.request.stages;
  if (stages <= 1 || framework.cuts == FrameworkCuts::kInstructions || layer_cuts(profile).empty()) return "";
  const auto layers = static_cast<int>(stack_starts(profile).size());
  if (framework.cuts == FrameworkCuts::kStackLayers && layers == 0) {
    return std::string(framework.name) + " cuts at layers of one stack, and the model is not one stack of layers";
  }
  if (framework.cuts != FrameworkCuts::kEqualLayers) {
    return "the model has " + plural(static_cast<long long>(framework_cuts(framework, profile).size()) + 1, "layer") +
           ", too few for " + std::to_string(stages) + " stages, and " + framework.name + " cuts at whole layers";
  }
  if (layers == 0) {
    return std::string(framework.name) + " has as many layers in every stage, and the model is not one stack of layers";
  }
  return std::string(framework.name) + " has as many layers in every stage, and the " + std::to_string(layers) +
         " layers of the model do not divide into " + std::to_string(stages) + " stages";
}

// Among parts that found nothing, the one that lacks least memory gives the reason.
bool says_better_why(const PlanResult& one, const PlanResult& than) {
  const auto lacks = [](const PlanResult& r) { return r.least_memory_bytes > 0 ? r.least_memory_bytes : kInfinity; };
  return lacks(one) < lacks(than);
}

// The question's plans of any framework, as a search of half the effort comes to them on each number of devices, with
// their bounds open. Those whose numbers of devices and samples leave none are left out.
std::vector<StepPlan> plans_of_any_framework(const Question& question) {
  const std::vector<int> counts = device_counts(question);
  Question any = of_any_framework(question);
  any.request.all_planners = false;
  const auto shares = static_cast<int>(2 * counts.size());
  if (any.request.effort.units != WorkLimits::kNoEnd) any.request.effort.units /= shares;
  any.request.time_limit_s /= shares;
  std::vector<StepPlan> plans;
  for (const int devices : counts) {
    any.cluster = machine::first_devices(question.cluster, devices);
    try {
      plans.push_back(search_step_alone(any));
      say_of_all_devices(question, devices, &plans.back());
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage) throw;
    }
  }
  return plans;
}

const StepPlan* shortest_of(const std::vector<StepPlan>& plans) {
  const StepPlan* best = nullptr;
  for (const StepPlan& one : plans) {
    if (one.result.plan && (best == nullptr || one.result.length_ms() < best->result.length_ms())) best = &one;
  }
  return best;
}

void take_bounds(const std::vector<StepPlan>& any, StepPlan* found) {
  PlanResult& result = found->result;
  Bounds bounds;
  bounds.value_ms = bounds.simulated_ms = kInfinity;
  bounds.method = pipeline::kBalanceOfWork;
  bounds.open = true;
  bool simulated = true;
  for (const StepPlan& one : any) {
    // Without a plan there is none of the framework either.
    if (!one.result.plan) continue;
    const Bounds own = bounds_of(one);
    if (own.value_ms < bounds.value_ms) bounds.method = own.method;
    bounds.value_ms = std::min(bounds.value_ms, own.value_ms);
    bounds.simulated_ms = std::min(bounds.simulated_ms, own.simulated_ms);
    simulated = simulated && own.simulated_ms > 0;
    bounds.considered.insert(bounds.considered.end(), own.considered.begin(), own.considered.end());
    bounds.of_value.insert(bounds.of_value.end(), own.of_value.begin(), own.of_value.end());
    result.cut_by_time = result.cut_by_time || one.result.cut_by_time;
    result.cut_by_effort = result.cut_by_effort || one.result.cut_by_effort;
  }
  // It may be on devices that were not looked at there.
  bounds.include(found->size, 0, "");
  bounds.hold(result.step_ms, result.simulated_step_ms);
  result.lower_bound_ms = bounds.value_ms;
  result.lower_bound_method = bounds.method;
  if (!simulated) bounds.simulated_ms = 0;
  bounds.all_devices =
      !any.empty() && std::all_of(any.begin(), any.end(), [](const StepPlan& one) { return one.bounds.all_devices; });
  found->bounds = std::move(bounds);
  result.set_gap();
}

}  // namespace

StepPlan search_for_framework(const Question& asked) {
  const auto start = std::chrono::steady_clock::now();
  const auto gone_ms = [&] { return 1e3 * seconds_since(start); };
  Question question = asked;
  apply_framework(question);
  question.request.better = {};  // what it can run is told, not every plan that is looked at
  const Framework& framework = *question.framework;
  const PlanRequest& request = question.request;
  std::vector<StepPlan> any;
  if (request.lower_bound) any = plans_of_any_framework(question);

  std::optional<StepPlan> best, none;
  std::optional<Error> refused;
  std::vector<WidthAlternative> widths;
  std::int64_t units = 0;
  for (const StepPlan& one : any) units += one.result.work_units;
  bool stopped = false;
  const auto consider = [&](StepPlan found) {
    if (best && best->result.length_ms() <= found.result.length_ms()) return;
    found.result.found_ms = gone_ms();
    best = std::move(found);
    if (asked.request.better) {
      asked.request.better(place(*best->problem, *best->result.plan), best->result.length_ms());
    }
  };
  const auto expressed = [&](const StepPlan& one) {
    return inexpressible(framework, place(*one.problem, *one.result.plan), question.profile()).empty();
  };
  for (const StepPlan& one : any) {
    if (!one.result.plan || !expressed(one)) continue;
    StepPlan same;
    same.size = one.size;
    same.result = one.result;
    const int stages = one.result.plan->num_stages();
    if (framework_options(framework, stages, question.options).whole_gradients) {
      same.problem = problem_of_size(question, one.size, stages, one.problem->options().variants);
      if (!feasible(*same.problem, *same.result.plan)) continue;
    } else {
      same.problem = std::make_unique<Problem>(*one.problem);
    }
    same.why_fewer = one.why_fewer;
    consider(std::move(same));
  }
  const Parts parts(question);
  std::size_t left = parts.all().size();
  for (const Part& part : parts.all()) {
    // The remaining time is shared by the remaining parts.
    const auto seconds = [&, among = static_cast<double>(left--)] {
      return std::max(1e-3, (request.time_limit_s - gone_ms() * 1e-3) / among);
    };
    stopped = request.stopped() || gone_ms() * 1e-3 >= request.time_limit_s;
    if (stopped && best) break;
    try {
      StepPlan found = plan_of_part(question, part, seconds);
      units += found.result.work_units;
      if (found.result.plan) {
        join_widths(found.widths, &widths);
        take_all_variants(question, &found);
        if (expressed(found)) consider(std::move(found));
      } else if (!none || says_better_why(found.result, none->result)) {
        none = std::move(found);
      }
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage) throw;
      if (!refused) refused.emplace(e);
    }
  }
  if (best) {
    best->result.cut_by_time = best->result.cut_by_time || stopped;
    best->result.proven_ms = 0;
    if (request.lower_bound) {
      take_bounds(any, &*best);
    }
    for (WidthAlternative& width : widths) {
      if (width.width != best->size.width) continue;
      width = {width.width, best->result.plan->num_stages(), best->result.step_ms, best->result.simulated_step_ms};
    }
    best->widths = std::move(widths);
    best->result.work_units = units;
    best->result.planning_ms = gone_ms();
    return *std::move(best);
  }
  StepPlan out;
  const std::string no_part = parts.all().empty() ? why_no_part(question) : "";
  if (!no_part.empty()) {
    out.result.objective = objective_of(request);
    out.result.infeasible = no_part;
    out.result.planning_ms = gone_ms();
    return out;
  }
  // The shortest plan of any framework shows the property that this framework lacks.
  if (any.empty()) any = plans_of_any_framework(question);
  if (none) out = *std::move(none);
  if (const StepPlan* other = shortest_of(any)) {
    const std::string lacks = inexpressible(framework, place(*other->problem, *other->result.plan), question.profile());
    const int stages = request.stages;
    const bool rounds = !micro_batches_inexpressible(framework, stages, other->size.micro_batches).empty();
    out.result.infeasible = std::string("no plan that ") + framework.name + " can run was found" +
                            (lacks.empty() ? "" : "; the shortest of others has " + lacks + ", which it cannot run") +
                            (rounds ? "; give a --batch that splits into a multiple of " + std::to_string(stages) +
                                          " micro-batches, or other --stages"
                                    : "") +
                            (out.result.infeasible.empty() ? "" : " (" + out.result.infeasible + ")");
    // Memory is not what it lacks.
    out.result.least_memory_bytes = 0;
  } else if (!none) {
    if (!any.empty()) {
      out = std::move(any.front());
    } else if (refused) {
      throw Error(refused->kind(), std::string("for ") + framework.name + ": " + refused->what(),
                  "give another --batch or --micro-batch, other stage counts, or drop --for");
    }
  }
  out.result.objective = objective_of(request);
  if (out.result.infeasible.empty()) {
    out.result.infeasible = std::string("no plan that ") + framework.name + " can run is among those asked for";
  }
  out.result.planning_ms = gone_ms();
  return out;
}

}  // namespace automap::planners
