#include "plan/planners/candidate.h"

#include <algorithm>
#include <utility>

#include "common/base/numbers.h"
#include "common/base/text_table.h"
#include "common/machine/chosen_devices.h"
#include "common/pipeline/cost.h"

namespace automap::planners {
namespace {

using pipeline::MixedPlan;
using pipeline::MixedProblem;
using pipeline::PlacedStage;
using pipeline::Plan;
using pipeline::Problem;

void keep_fullest(double bytes, double capacity_bytes, Candidate* one) {
  if (one->capacity_bytes > 0 && bytes * one->capacity_bytes <= one->memory_bytes * capacity_bytes) return;
  one->memory_bytes = bytes;
  one->capacity_bytes = capacity_bytes;
}

// All devices of a problem, as if one stage had them.
PlacedStage all_of(const Problem& problem) {
  return {&problem, {{0, 0}}, 0, problem.num_devices(), 0};
}

StepSize split_of(const Problem& problem) {
  StepSize size;
  size.samples = problem.micro_batch_samples();
  size.micro_batches = problem.micro_batches();
  size.devices = problem.num_devices();
  size.width = problem.options().width;
  size.on = all_of(problem).device_numbers();
  return size;
}

// Computes the figures of the candidate from its stages.
void count(Candidate* one) {
  const pipeline::PlacedPlan& placed = one->placed;
  one->step_ms = value_ms(placed);
  one->simulated_step_ms = simulate_step_ms(placed);
  const std::vector<double> bytes = memory_of(placed);
  for (std::size_t s = 0; s < placed.stages.size(); ++s) {
    keep_fullest(bytes[s], placed.stages[s].group().capacity_bytes, one);
  }
  const std::vector<PlanLimit> limits = plan_limits(placed);
  if (!limits.empty()) one->why = limits.front().text;
}

// As frameworks name the shape of stages that are alike; empty: they are not.
std::string even_layout(const Candidate& one) {
  const Plan& plan = one.placed.plan;
  // No layout says lists, nor stages that are not alike.
  if (plan.schedule == pipeline::Schedule::kSearched) return "";
  const PlacedStage& first = one.placed.stages.front();
  const int replicas = first.d1 - first.d0, stages = one.num_stages();
  const pipeline::StageVariant& variant = first.problem->variant(first.variant);
  for (const PlacedStage& stage : one.placed.stages) {
    if (stage.d1 - stage.d0 != replicas || !(stage.problem->variant(stage.variant) == variant)) return "";
  }
  return "dp=" + std::to_string(replicas) + ",pp=" + std::to_string(stages) +
         (first.width() > 1 ? ",tp=" + std::to_string(first.width()) : "") + ",schedule=" + to_string(plan.schedule) +
         (pipeline::shape_of(plan.schedule)->chunks == 0 ? ",chunks=" + std::to_string(plan.chunks) : "") +
         (variant.zero > 0 ? ",zero=" + std::to_string(variant.zero) : "") +
         (variant.recompute ? ",recompute=layer" : "");
}

// "2 x 4 zero=1 + 4 x 2": replicas and their width, stage by stage.
std::string stages_text(const pipeline::PlacedPlan& placed) {
  std::string text;
  for (const PlacedStage& stage : placed.stages) {
    const pipeline::StageVariant& variant = stage.problem->variant(stage.variant);
    text += (text.empty() ? "" : " + ") + std::to_string(stage.d1 - stage.d0) + " x " + std::to_string(stage.width()) +
            (variant.zero > 0 ? " zero=" + std::to_string(variant.zero) : "") + (variant.recompute ? " recompute" : "");
  }
  return text;
}

}  // namespace

int Candidate::width() const {
  int widest = 1;
  for (const PlacedStage& stage : placed.stages) widest = std::max(widest, stage.width());
  return widest;
}

MixedPlan Candidate::mixed_plan() const {
  MixedPlan out;
  static_cast<Plan&>(out) = placed.plan;
  for (const PlacedStage& stage : placed.stages) out.widths.push_back(stage.width());
  return out;
}

Candidate no_candidate(const std::string& kind, const std::string& why) {
  Candidate one;
  one.kind = kind;
  one.why = why;
  return one;
}

Candidate candidate_of(const std::string& kind, std::shared_ptr<const Problem> problem, Plan plan) {
  Candidate one;
  one.kind = one.found_by = kind;
  one.problem = std::move(problem);
  one.plan = std::move(plan);
  one.placed = place(*one.problem, one.plan);
  one.size = split_of(*one.problem);
  count(&one);
  if (one.ordered()) one.layout = even_layout(one);
  return one;
}

Candidate candidate_of(const std::string& kind, StepPlan found) {
  if (!found.result.plan) {
    Candidate none = no_candidate(kind, found.result.infeasible);
    none.memory_bytes = found.result.least_memory_bytes;
    none.capacity_bytes = found.result.available_memory_bytes;
    return none;
  }
  Candidate one = candidate_of(kind, std::move(found.problem), *std::move(found.result.plan));
  one.found_by = found.result.planner;
  one.size = found.size;
  // As the search counted them: in its value form, and to the bit.
  one.step_ms = found.result.step_ms;
  one.simulated_step_ms = found.result.simulated_step_ms;
  return one;
}

Candidate candidate_of(const std::string& kind, std::shared_ptr<const MixedProblem> problem, const MixedPlan& plan) {
  Candidate one;
  one.kind = one.found_by = kind;
  one.mixed = std::move(problem);
  one.placed = one.mixed->place(plan);
  one.size = split_of(one.placed.problem());
  one.size.devices = one.placed.num_devices();
  one.size.width = 1;
  one.size.on = one.placed.device_numbers();
  one.layout = stages_text(one.placed);
  count(&one);
  return one;
}

Bounds bounds_of(const StepPlan& found) {
  Bounds bounds = found.bounds;
  bounds.value_ms = found.result.lower_bound_ms;
  bounds.method = found.result.lower_bound_method;
  return bounds;
}

std::optional<Candidate> as_asked(const Question& question, const Candidate& one, std::string* why_not) {
  const StepRequest& step = question.step;
  const PlanRequest& request = question.request;
  const auto no = [&](const std::string& why) {
    if (why_not != nullptr) *why_not = why;
    return std::nullopt;
  };
  if (!one.found() || !one.of_one_width()) return no("it is no plan of stages of one width");
  if (step.micro_batch != 0 || step.micro_batches != 0) return no("the split of the batch is given");
  const int stages = one.num_stages();
  const PlacedStage& first = one.placed.stages.front();
  const bool equal = std::all_of(one.placed.stages.begin(), one.placed.stages.end(),
                                 [&](const PlacedStage& stage) { return stage.d1 - stage.d0 == first.d1 - first.d0; });
  if (step.lone_replicas) return no("stages of several replicas are left out");
  if (step.equal_replicas && !equal) return no("its stages have different numbers of replicas");
  if (request.stages > 0 ? stages != request.stages : stages > request.max_stages) {
    if (request.stages > 0) return no("--stages " + std::to_string(request.stages) + " leaves it out");
    return no("it has " + plural(stages, "stage") + ", and --max-stages or --limit allows " +
              std::to_string(request.max_stages));
  }
  if (std::find(request.schedules.begin(), request.schedules.end(), one.plan.schedule) == request.schedules.end()) {
    return no(std::string("its schedule is ") + to_string(one.plan.schedule));
  }
  Plan plan = one.plan;
  plan.variants.clear();
  const std::vector<pipeline::StageVariant>& variants = question.options.variants;
  for (int s = 1; s <= stages; ++s) {
    const pipeline::StageVariant& variant = one.problem->variant(one.plan.variant(s));
    const auto same = std::find(variants.begin(), variants.end(), variant);
    if (same == variants.end()) {
      return no("the options leave out ZeRO " + std::to_string(variant.zero) +
                (variant.recompute ? " with recomputation" : " without recomputation"));
    }
    plan.variants.push_back(static_cast<std::uint8_t>(same - variants.begin()));
  }
  pipeline::ProblemOptions options = one.problem->options();
  options.variants = variants;
  // A layout may have an idle stage, and stages of equal size; whether a plan may is the question's to say.
  options.allow_idle_stages = question.options.allow_idle_stages;
  StepSize size = one.size;
  size.group_size = 0;
  const machine::Cluster replicas = machine::replicas_of(question.cluster, size.width);
  put_on(replicas, one.devices(), &size);
  std::shared_ptr<const Problem> problem = problem_of(question, size, options);
  if (!feasible(*problem, plan)) return no(infeasible_reason(place(*problem, plan)));
  Candidate own = one;
  own.problem = std::move(problem);
  own.plan = std::move(plan);
  own.placed = place(*own.problem, own.plan);
  own.size = size;
  if (size.on.empty() && size.devices * size.width == question.cluster.num_devices()) own.size.devices = 0;
  own.size.group_size = step.equal_replicas ? first.d1 - first.d0 : 0;
  return own;
}

std::string plan_text(const pipeline::PlacedPlan& placed) {
  std::string devices;
  const int width = placed.stages.front().width();
  bool of_one_width = true;
  for (const PlacedStage& stage : placed.stages) {
    devices += (devices.empty() ? "" : ", ") + std::to_string((stage.d1 - stage.d0) * stage.width());
    of_one_width = of_one_width && stage.width() == width;
  }
  return plural(placed.num_stages(), "stage") + " on " + devices + " devices" +
         (width > 1 && of_one_width ? ", replicas of " + std::to_string(width) : "") + ", micro-batches of " +
         format_amount(placed.problem().options().micro_batch_samples);
}

}  // namespace automap::planners
