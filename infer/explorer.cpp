#include "infer/explorer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/base/text_table.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/least_work.h"
#include "common/pipeline/placed_plan.h"
#include "common/pipeline/schedule.h"
#include "infer/published.h"
#include "infer/score.h"
#include "plan/planners/even_search.h"
#include "plan/planners/mixed_search.h"

namespace automap::infer {
namespace {

using machine::Cluster;
using pipeline::PlanCorner;
using pipeline::Problem;
using pipeline::ProblemOptions;
using pipeline::Profile;
using pipeline::StageVariant;

// A corner, and its plan where it has one.
struct Explored {
  PlanCorner corner;
  std::unique_ptr<Problem> problem;
  pipeline::Plan plan;
};

// A corner's memory is that of the device with the least room to spare, by share.
void keep_fullest(double bytes, double capacity_bytes, PlanCorner* corner) {
  if (corner->capacity_bytes > 0 && bytes * corner->capacity_bytes <= corner->memory_bytes * capacity_bytes) return;
  corner->memory_bytes = bytes;
  corner->capacity_bytes = capacity_bytes;
}

// "2 x 4 zero=1 + 4 x 2": replicas and their width, stage by stage.
std::string stages_text(const pipeline::PlacedPlan& placed) {
  std::string text;
  for (const pipeline::PlacedStage& stage : placed.stages) {
    const StageVariant& variant = stage.problem->variant(stage.variant);
    text += (text.empty() ? "" : " + ") + std::to_string(stage.d1 - stage.d0) + " x " + std::to_string(stage.width()) +
            (variant.zero > 0 ? " zero=" + std::to_string(variant.zero) : "") + (variant.recompute ? " recompute" : "");
  }
  return text;
}

// What a plan comes to.
PlanCorner corner_of(const std::string& name, const pipeline::PlacedPlan& placed) {
  const Problem& problem = placed.problem();
  PlanCorner corner;
  corner.name = name;
  corner.fits = true;
  corner.stages = placed.num_stages();
  corner.devices = placed.num_devices();
  corner.micro_batch_samples = problem.micro_batch_samples();
  corner.micro_batches = problem.micro_batches();
  corner.step_ms = value_ms(placed);
  corner.simulated_step_ms = simulate_step_ms(placed);
  const std::vector<double> bytes = memory_of(placed);
  std::vector<int> devices, widths;
  for (std::size_t s = 0; s < placed.stages.size(); ++s) {
    const pipeline::PlacedStage& stage = placed.stages[s];
    keep_fullest(bytes[s], stage.group().capacity_bytes, &corner);
    corner.width = std::max(corner.width, stage.width());
    widths.push_back(stage.width());
    devices.push_back((stage.d1 - stage.d0) * stage.width());
  }
  if (std::any_of(widths.begin(), widths.end(), [&](int width) { return width != corner.width; })) {
    corner.stage_devices = std::move(devices);
    corner.stage_widths = std::move(widths);
    corner.chunk_cuts = placed.plan.cuts;
    corner.layout = stages_text(placed);
  }
  const std::vector<planners::PlanLimit> limits = planners::plan_limits(placed);
  if (!limits.empty()) corner.why = limits.front().text;
  return corner;
}

Explored explored(const std::string& name, std::unique_ptr<Problem> problem, pipeline::Plan plan) {
  Explored found;
  found.corner = corner_of(name, place(*problem, plan));
  found.problem = std::move(problem);
  found.plan = std::move(plan);
  return found;
}

class Explorer {
 public:
  Explorer(const Profile& profile, const Cluster& cluster, const ProblemOptions& options,
           const planners::PlanRequest& request, const planners::StepPlan& found)
      : profile_(profile), narrow_(profile), cluster_(cluster), options_(options), request_(request) {
    narrow_.widths.clear();
    step_.batch = std::llround(found.size.batch());
    request_.lower_bound = false;
    request_.all_planners = false;
    request_.effort = planners::plan_effort(Effort::kQuick);
  }

  // One stage of replicas of one device.
  Explored data_parallel(const std::string& name, int zero) const {
    planners::PlanRequest request = request_;
    request.planner = planners::PlannerKind::kDataParallel;
    request.stages = 1;
    return searched(name, {{zero, false}}, request);
  }
  Explored pipeline(const std::string& name) const {
    planners::PlanRequest request = request_;
    request.stages = 0;
    return searched(name, {StageVariant()}, request);
  }

  // One replica as wide as a server.
  Explored one_replica(const std::string& name) const {
    if (profile_.widths.empty()) return none(name, "no width splits anything of it");
    std::optional<Explored> best;
    Explored last = none(name, "");
    for (const pipeline::WidthColumns& columns : profile_.widths) {
      for (const std::int64_t samples : planners::divisors(step_.batch)) {
        if (static_cast<double>(samples) > pipeline::most_samples(profile_)) break;
        Layout layout;
        layout.tp = columns.width;
        layout.micro_batch_size = samples;
        Explored one = scored(name, layout);
        if (one.corner.fits && (!best || one.corner.simulated_step_ms < best->corner.simulated_step_ms)) {
          best = std::move(one);
        } else if (!one.corner.fits) {
          last = std::move(one);
        }
      }
    }
    return best ? *std::move(best) : std::move(last);
  }

  Explored even_grid(const std::string& name) const {
    return guarded(name, [&]() -> Explored {
      SweepRequest request;
      request.schedules = request_.schedules;
      request.limits.seconds = request_.time_limit_s;
      const Sweep sweep = sweep_layouts(profile_, cluster_, options_, step_, request);
      const SweptLayout& best = sweep.layouts.front();
      if (best.missing_bytes > 0) return none(name, "no grid fits into memory");
      Explored found = scored(name, best.layout);
      found.corner.layout = best.layout.text();
      return found;
    });
  }

 private:
  Explored searched(const std::string& name, const std::vector<StageVariant>& variants,
                    const planners::PlanRequest& request) const {
    ProblemOptions options = options_;
    options.variants = variants;
    return guarded(name, [&]() -> Explored {
      planners::StepPlan plan = planners::plan_step(narrow_, cluster_, options, step_, request);
      if (!plan.result.plan) return none(name, plan.result.infeasible);
      return explored(name, std::move(plan.problem), *std::move(plan.result.plan));
    });
  }

  static Explored none(const std::string& name, const std::string& why) {
    Explored one;
    one.corner.name = name;
    one.corner.why = why;
    return one;
  }

  static Explored guarded(const std::string& name, const std::function<Explored()>& find) {
    try {
      return find();
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage && e.kind() != ErrorKind::kInfeasible) throw;
      return none(name, e.what());
    }
  }

  Explored scored(const std::string& name, const Layout& layout) const {
    return guarded(name, [&]() -> Explored {
      ScoredPlan plan = score_layout(layout, profile_, cluster_, options_, step_);
      // A stage without a variable is no plan of ours, but frameworks run it.
      if (plan.missing_bytes > 0) return none(name, plan.infeasible);
      return explored(name, std::move(plan.problem), std::move(plan.plan));
    });
  }

  const Profile& profile_;
  Profile narrow_;
  const Cluster& cluster_;
  const ProblemOptions& options_;
  planners::PlanRequest request_;
  planners::StepRequest step_;
};

// The best under a schedule of even groups at the width of the plan found, which `found` cannot become.
PlanCorner even_corner(const std::string& name, const std::string& why_none, const Profile& profile,
                       const Cluster& cluster, const ProblemOptions& options, planners::StepRequest step,
                       const planners::PlanRequest& request, const planners::EvenSchedule& schedule,
                       const planners::StepPlan& found) {
  PlanCorner corner;
  corner.name = name;
  corner.why = why_none;
  step.batch = std::llround(found.size.batch());
  const int width = found.problem->options().width;
  const auto best = planners::best_even(profile, cluster, options, step, request, width, schedule);
  if (!best) return corner;
  const Problem& problem = *best->problem;
  const int replicas = problem.num_devices() / best->plan.groups;
  corner.fits = true;
  corner.stages = best->plan.groups;
  corner.width = width;
  corner.devices = problem.num_devices() * width;
  corner.micro_batch_samples = problem.micro_batch_samples();
  corner.micro_batches = problem.micro_batches();
  corner.step_ms = corner.simulated_step_ms = best->simulated_step_ms;
  corner.memory_bytes = best->memory_bytes;
  corner.capacity_bytes = best->capacity_bytes;
  const StageVariant& variant = problem.variant(best->plan.variant);
  corner.layout = "dp=" + std::to_string(replicas) + ",pp=" + std::to_string(best->plan.groups) +
                  (width > 1 ? ",tp=" + std::to_string(width) : "") +
                  (best->plan.zero_bubble ? ",schedule=zb-h1" : ",chunks=" + std::to_string(best->plan.chunks)) +
                  (variant.zero > 0 ? ",zero=" + std::to_string(variant.zero) : "") +
                  (variant.recompute ? ",recompute=layer" : "");
  corner.chunk_cuts = best->plan.cuts;
  double most_ms = 0, all_ms = 0;
  const pipeline::EvenTimes times = even_times(problem, best->plan);
  for (int g = 0; g < best->plan.groups; ++g) {
    double work = 0;
    for (int part = g; part < best->plan.parts(); part += best->plan.groups) {
      const auto p = static_cast<std::size_t>(part);
      work += times.forward_ms[p] + times.backward_ms[p] + (times.weights_ms.empty() ? 0 : times.weights_ms[p]);
    }
    most_ms = std::max(most_ms, work * problem.micro_batches());
    all_ms += work * problem.micro_batches() / best->plan.groups;
  }
  corner.why = "the busiest group computes " + format_percent(most_ms / corner.simulated_step_ms) +
               " of the step, the mean one " + format_percent(all_ms / corner.simulated_step_ms);
  return corner;
}

// `plan` of `of` on a problem of the call's own options, and whether it is one that the call asked for.
bool within(const planners::PlanRequest& request, const ProblemOptions& options, const Problem& of,
            pipeline::Plan* plan) {
  const int stages = plan->num_stages();
  if (request.stages > 0 ? stages != request.stages : stages > request.max_stages) return false;
  if (std::find(request.schedules.begin(), request.schedules.end(), plan->schedule) == request.schedules.end()) {
    return false;
  }
  std::vector<std::uint8_t> variants;
  for (int s = 1; s <= stages; ++s) {
    const auto same = std::find(options.variants.begin(), options.variants.end(), of.variant(plan->variant(s)));
    if (same == options.variants.end()) return false;
    variants.push_back(static_cast<std::uint8_t>(same - options.variants.begin()));
  }
  plan->variants = std::move(variants);
  return true;
}

// By what the call judges plans by; another objective than the simulation knows no corner that is.
bool shorter(double simulated_step_ms, const planners::PlanResult& result) {
  return result.objective == planners::Objective::kSimulated &&
         simulated_step_ms < result.simulated_step_ms * (1 - planners::kProvenGap);
}

// Puts a corner's plan into the place of the found one, if it is shorter by what the call judges plans by.
bool adopt(const Profile& profile, const Cluster& cluster, const ProblemOptions& options,
           const planners::PlanRequest& request, const Explored& one, planners::StepPlan* found) {
  planners::PlanResult& result = found->result;
  if (!one.corner.fits || !shorter(one.corner.simulated_step_ms, result)) return false;
  pipeline::Plan plan = one.plan;
  if (!within(request, options, *one.problem, &plan)) return false;
  ProblemOptions own = one.problem->options();
  own.variants = options.variants;
  const Cluster replicas = own.width == 1 ? cluster : machine::replicas_of(cluster, own.width);
  const int devices = one.problem->num_devices();
  auto problem = std::make_unique<Problem>(
      own.width == 1 ? profile : profile_at(profile, own.width),
      devices < replicas.num_devices() ? planners::first_devices(replicas, devices) : replicas, own);
  if (!feasible(*problem, plan)) return false;
  found->size.samples = problem->micro_batch_samples();
  found->size.micro_batches = problem->micro_batches();
  found->size.devices = devices < replicas.num_devices() ? devices : 0;
  found->size.group_size = 0;
  found->size.width = own.width;
  if (std::find(found->considered.begin(), found->considered.end(), found->size) == found->considered.end()) {
    // No search bounded this split.
    found->considered.push_back(found->size);
    const double least = pipeline::least_work_bound_ms(profile, cluster, options.replicas, found->size.batch());
    if (result.lower_bound_ms > least) result.lower_bound_method = pipeline::kBalanceOfWork;
    result.lower_bound_ms = std::min(result.lower_bound_ms, least);
    found->simulated_bound_ms = std::min(found->simulated_bound_ms, least);
  }
  if (devices == replicas.num_devices()) found->why_fewer.clear();
  result.step_ms = one.corner.step_ms;
  result.simulated_step_ms = one.corner.simulated_step_ms;
  result.planner = one.corner.name;
  result.proven_ms = 0;
  result.lower_bound_ms = std::min(result.lower_bound_ms, result.step_ms);
  found->simulated_bound_ms = std::min(found->simulated_bound_ms, result.simulated_step_ms);
  result.set_gap();
  result.limits = planners::plan_limits(*problem, plan);
  result.plan = std::move(plan);
  found->problem = std::move(problem);
  return true;
}

// A plan that the call asked for may be shorter than what the look at its width found; the plan's own row is the plan.
void note_widths(const planners::PlanRequest& request, const ProblemOptions& options, const Explored& one,
                 planners::StepPlan* found) {
  const bool simulated = found->result.objective == planners::Objective::kSimulated;
  pipeline::Plan plan = one.plan;
  const bool asked = one.corner.fits && simulated && within(request, options, *one.problem, &plan);
  for (planners::WidthAlternative& of : found->widths) {
    if (of.width == found->size.width) {
      of = {of.width, found->result.plan->num_stages(), found->result.step_ms, found->result.simulated_step_ms};
    } else if (asked && of.width == one.corner.width && one.corner.simulated_step_ms < of.simulated_step_ms) {
      of = {of.width, one.corner.stages, one.corner.step_ms, one.corner.simulated_step_ms};
    }
  }
}

// The best whose stages are of different widths: its corner, and it where it takes the place of the plan of one width.
Exploration explore_mixed(const Profile& profile, const Cluster& cluster, const ProblemOptions& options,
                          const planners::PlanRequest& request, const planners::StepPlan& found) {
  const char* name = "stages of different widths";
  Exploration out;
  std::optional<planners::MixedChoice> best = planners::best_mixed(profile, cluster, options, request, found);
  if (!best) {
    out.corners.emplace_back();
    out.corners.back().name = name;
    out.corners.back().why = "no plan with stages of different widths was found";
    return out;
  }
  out.corners.push_back(corner_of(name, best->problem->place(best->plan)));
  if (shorter(best->simulated_step_ms, found.result)) out.mixed = std::move(best);
  return out;
}

// The peak of the cluster's first device for what most of the module's compute is ("matmul bf16"); 0: not known.
double peak_tflops(const Profile& profile, const Cluster& cluster) {
  const machine::DeviceType& device = cluster.devices.at(cluster.servers.front().device);
  const std::size_t space = profile.work.rfind(' ');
  const std::string type = space == std::string::npos ? "f32" : profile.work.substr(space + 1);
  double peak = 0;
  for (const auto& [name, tflops] : device.peak_tflops) {
    // Matrix products of f32 run on tf32 units, where there are any.
    if (name == type || (type == "f32" && name == "tf32")) peak = std::max(peak, tflops);
  }
  return peak;
}

}  // namespace

Exploration explore_corners(const Profile& profile, const Cluster& cluster, const ProblemOptions& options,
                            const planners::StepRequest& step, const planners::PlanRequest& request, double flops,
                            const BesidePlan& beside, planners::StepPlan& found) {
  const auto start = std::chrono::steady_clock::now();
  const double planned_ms = found.result.planning_ms;
  const auto spent_ms = [&] {
    const std::chrono::duration<double, std::milli> gone = std::chrono::steady_clock::now() - start;
    return planned_ms + gone.count();
  };
  planners::PlanRequest rest = request;
  const auto out_of_time = [&] {
    rest.time_limit_s = request.time_limit_s - spent_ms() * 1e-3;
    return !(rest.time_limit_s > 0) || (request.cancelled && request.cancelled());
  };
  using Find = std::function<Explored(const Explorer&, const std::string&)>;
  const std::vector<std::pair<std::string, Find>> kinds = {
      {"data parallel", [](const Explorer& e, const std::string& name) { return e.data_parallel(name, 0); }},
      {"data parallel, ZeRO 1", [](const Explorer& e, const std::string& name) { return e.data_parallel(name, 1); }},
      {"data parallel, ZeRO 3 (FSDP)",
       [](const Explorer& e, const std::string& name) { return e.data_parallel(name, 3); }},
      {"operators split, one replica", [](const Explorer& e, const std::string& name) { return e.one_replica(name); }},
      {"pipeline (the paper's)", [](const Explorer& e, const std::string& name) { return e.pipeline(name); }},
      {"best even grid (Megatron)", [](const Explorer& e, const std::string& name) { return e.even_grid(name); }},
  };
  // Whether a plan of another split may take the place of the one found.
  const bool open = !step.equal_replicas && !step.lone_replicas && step.micro_batch == 0 && step.micro_batches == 0;
  Exploration out;
  std::vector<PlanCorner>& corners = out.corners;
  for (const auto& [name, find] : kinds) {
    if (out_of_time()) break;
    Explored one = find(Explorer(profile, cluster, options, rest, found), name);
    if (open) {
      if (adopt(profile, cluster, options, request, one, &found)) found.result.found_ms = spent_ms();
      note_widths(request, options, one, &found);
    }
    corners.push_back(std::move(one.corner));
  }
  // Where none is shorter there is nothing to say of them.
  if (open && found.result.objective == planners::Objective::kSimulated && !out_of_time()) {
    planners::StepRequest same = step;
    same.batch = std::llround(found.size.batch());
    PublishedPlan published = best_published({profile, cluster, options, same, rest.max_stages,
                                              found.result.simulated_step_ms * (1 - planners::kProvenGap)});
    if (published.plan.problem) {
      Explored one = explored("published planner: " + published.name, std::move(published.plan.problem),
                              std::move(published.plan.plan));
      if (adopt(profile, cluster, options, request, one, &found)) found.result.found_ms = spent_ms();
      note_widths(request, options, one, &found);
      corners.push_back(std::move(one.corner));
    }
  }
  if (!beside.chunks.empty() && !out_of_time()) {
    corners.push_back(even_corner(
        "interleaved 1F1B (even)",
        "no even groups of devices, three or more, can run it: the micro-batches have to be a multiple of them",
        profile, cluster, options, step, rest, {beside.chunks, false}, found));
  }
  if (beside.zero_bubble && !out_of_time()) {
    const bool known =
        std::any_of(profile.weight_share.begin(), profile.weight_share.end(), [](double s) { return s > 0; });
    corners.push_back(even_corner("zero bubble, ZB-H1 (even)",
                                  known ? "no even groups of devices, two or more, can run it within memory"
                                        : "what of the backward makes gradients of weights is not told apart here",
                                  profile, cluster, options, step, rest, {{1}, true}, found));
  }
  if (beside.mixed_widths && !profile.widths.empty() && !step.equal_replicas && !step.lone_replicas && !out_of_time()) {
    Exploration mixed = explore_mixed(profile, cluster, options, rest, found);
    out.corners.push_back(std::move(mixed.corners.front()));
    out.mixed = std::move(mixed.mixed);
    out.mixed_found_ms = spent_ms();
    if (request.lower_bound && !out_of_time()) {
      out.any_widths = planners::any_width_bound(profile, cluster, options, rest, found);
    }
  }
  found.result.planning_ms = spent_ms();
  out.corners.insert(out.corners.begin(),
                     corner_of("this plan", out.mixed ? out.mixed->problem->place(out.mixed->plan)
                                                      : place(*found.problem, *found.result.plan)));
  const double own = pipeline::own_samples(profile), peak = peak_tflops(profile, cluster);
  for (PlanCorner& corner : corners) {
    if (!corner.fits) continue;
    const double samples = corner.micro_batch_samples * corner.micro_batches;
    corner.samples_per_s = samples / corner.simulated_step_ms * 1e3;
    corner.tflops = flops * samples / own / (corner.simulated_step_ms * 1e9) / corner.devices;
    corner.peak_share = peak > 0 ? corner.tflops / peak : 0;
  }
  std::stable_sort(corners.begin(), corners.end(), [](const PlanCorner& a, const PlanCorner& b) {
    return std::make_pair(!a.fits, a.simulated_step_ms) < std::make_pair(!b.fits, b.simulated_step_ms);
  });
  return out;
}

}  // namespace automap::infer
