#include "infer/explorer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/schedule.h"
#include "infer/score.h"

namespace automap::infer {
namespace {

using machine::Cluster;
using pipeline::PlanCorner;
using pipeline::Problem;
using pipeline::ProblemOptions;
using pipeline::Profile;
using pipeline::StageVariant;

// What a plan of a problem comes to.
PlanCorner corner_of(const std::string& name, const Problem& problem, const pipeline::Plan& plan) {
  PlanCorner corner;
  corner.name = name;
  corner.fits = true;
  corner.stages = plan.num_stages();
  corner.width = problem.options().width;
  corner.devices = problem.num_devices() * corner.width;
  corner.micro_batch_samples = problem.micro_batch_samples();
  corner.micro_batches = problem.micro_batches();
  corner.step_ms = pipeline::value_ms(problem, plan);
  corner.simulated_step_ms = pipeline::simulate_step_ms(problem, plan);
  const std::vector<int> in_flight = pipeline::in_flight_of(problem, plan);
  pipeline::for_each_stage(problem, plan, [&](int s, int p0, int p1, int d0, int d1) {
    const pipeline::DeviceGroup& group = problem.group(d0, d1);
    const double bytes =
        problem.memory_bytes(p0, p1, group, in_flight[static_cast<std::size_t>(s - 1)], plan.variant(s));
    corner.memory_bytes = std::max(corner.memory_bytes, bytes);
    corner.capacity_bytes =
        corner.capacity_bytes > 0 ? std::min(corner.capacity_bytes, group.capacity_bytes) : group.capacity_bytes;
    return true;
  });
  const std::vector<planners::PlanLimit> limits = planners::plan_limits(problem, plan);
  if (!limits.empty()) corner.why = limits.front().text;
  return corner;
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

  // Replicas of one device; `variants` of every stage; `stages` 0: any.
  PlanCorner searched(const std::string& name, const std::vector<StageVariant>& variants, int stages) const {
    ProblemOptions options = options_;
    options.variants = variants;
    planners::PlanRequest request = request_;
    request.stages = stages;
    return guarded(name, [&]() -> PlanCorner {
      const planners::StepPlan plan = planners::plan_step(narrow_, cluster_, options, step_, request);
      if (!plan.result.plan) return none(name, plan.result.infeasible);
      return corner_of(name, *plan.problem, *plan.result.plan);
    });
  }

  // One replica as wide as a server.
  PlanCorner one_replica(const std::string& name) const {
    if (profile_.widths.empty()) return none(name, "no width splits anything of it");
    std::optional<PlanCorner> best;
    PlanCorner last = none(name, "");
    for (const pipeline::WidthColumns& columns : profile_.widths) {
      for (const std::int64_t samples : planners::divisors(step_.batch)) {
        if (static_cast<double>(samples) > pipeline::most_samples(profile_)) break;
        Layout layout;
        layout.tp = columns.width;
        layout.micro_batch_size = samples;
        PlanCorner corner = scored(name, layout);
        if (corner.fits && (!best || corner.simulated_step_ms < best->simulated_step_ms)) {
          best = std::move(corner);
        } else if (!corner.fits) {
          last = std::move(corner);
        }
      }
    }
    return best ? *std::move(best) : last;
  }

  PlanCorner even_grid(const std::string& name) const {
    return guarded(name, [&]() -> PlanCorner {
      SweepRequest request;
      request.schedules = request_.schedules;
      const Sweep sweep = sweep_layouts(profile_, cluster_, options_, step_, request);
      const SweptLayout& best = sweep.layouts.front();
      if (best.missing_bytes > 0) return none(name, "no grid fits into memory");
      PlanCorner corner = scored(name, best.layout);
      corner.layout = best.layout.text();
      return corner;
    });
  }

 private:
  static PlanCorner none(const std::string& name, const std::string& why) {
    PlanCorner corner;
    corner.name = name;
    corner.why = why;
    return corner;
  }

  static PlanCorner guarded(const std::string& name, const std::function<PlanCorner()>& find) {
    try {
      return find();
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage && e.kind() != ErrorKind::kInfeasible) throw;
      return none(name, e.what());
    }
  }

  PlanCorner scored(const std::string& name, const Layout& layout) const {
    return guarded(name, [&]() -> PlanCorner {
      const ScoredPlan plan = score_layout(layout, profile_, cluster_, options_, step_);
      // A stage without a variable is no plan of ours, but frameworks run it.
      if (plan.missing_bytes > 0) return none(name, plan.infeasible);
      return corner_of(name, *plan.problem, plan.plan);
    });
  }

  const Profile& profile_;
  Profile narrow_;
  const Cluster& cluster_;
  const ProblemOptions& options_;
  planners::PlanRequest request_;
  planners::StepRequest step_;
};

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

std::vector<PlanCorner> explore_corners(const Profile& profile, const Cluster& cluster, const ProblemOptions& options,
                                        const planners::PlanRequest& request, const planners::StepPlan& found,
                                        double flops) {
  const Explorer explorer(profile, cluster, options, request, found);
  std::vector<PlanCorner> corners;
  corners.push_back(corner_of("this plan", *found.problem, *found.result.plan));
  corners.push_back(explorer.searched("data parallel", {StageVariant()}, 1));
  corners.push_back(explorer.searched("data parallel, ZeRO 1", {{1, false}}, 1));
  corners.push_back(explorer.searched("data parallel, ZeRO 3 (FSDP)", {{3, false}}, 1));
  corners.push_back(explorer.one_replica("operators split, one replica"));
  corners.push_back(explorer.searched("pipeline (the paper's)", {StageVariant()}, 0));
  corners.push_back(explorer.even_grid("best even grid (Megatron)"));
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
  return corners;
}

}  // namespace automap::infer
