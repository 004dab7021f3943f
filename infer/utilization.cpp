#include "infer/utilization.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "common/base/text_table.h"

namespace automap::infer {
namespace {

// The sum of the devices' peaks for what most of the module's compute is ("matmul bf16"); 0: one is not known.
double peak_tflops(const pipeline::Profile& profile, const machine::Cluster& cluster, const std::vector<int>& devices) {
  const std::size_t space = profile.work.rfind(' ');
  const std::string type = space == std::string::npos ? "f32" : profile.work.substr(space + 1);
  std::vector<double> peak_of;  // by device of the cluster
  for (const machine::ServerGroup& group : cluster.servers) {
    double peak = 0;
    for (const auto& [name, tflops] : cluster.devices.at(group.device).peak_tflops) {
      // Matrix products of f32 run on tf32 units, where there are any.
      if (name == type || (type == "f32" && name == "tf32")) peak = std::max(peak, tflops);
    }
    peak_of.insert(peak_of.end(), static_cast<std::size_t>(group.count) * static_cast<std::size_t>(group.devices),
                   peak);
  }
  double sum = 0;
  for (const int device : devices) {
    const double peak = peak_of.at(static_cast<std::size_t>(device));
    if (peak <= 0) return 0;
    sum += peak;
  }
  return sum;
}

}  // namespace

pipeline::PlanUtilization utilization_of(const PlanInput& input, const machine::Cluster& cluster,
                                         const std::vector<int>& devices, double batch, double step_ms,
                                         double recomputed) {
  pipeline::PlanUtilization out;
  if (step_ms <= 0 || devices.empty()) return out;
  out.samples_per_s = batch / step_ms * 1e3;
  out.tokens_per_s = out.samples_per_s * static_cast<double>(input.work.tokens);
  if (input.work.model_flops <= 0) return out;
  const double passes = batch / pipeline::own_samples(input.profile);
  const double per_ms = passes / step_ms * 1e-9;  // TFLOP/s of one FLOP of a pass
  out.model_tflops = input.work.model_flops * per_ms / static_cast<double>(devices.size());
  const double peak = peak_tflops(input.profile, cluster, devices);
  if (peak <= 0) return out;
  out.mfu = input.work.model_flops * per_ms / peak;
  out.hfu = (input.work.executed_flops + recomputed * input.work.forward_flops) * per_ms / peak;
  return out;
}

double recomputed_share(const pipeline::PlacedPlan& placed, const pipeline::Profile& profile) {
  const double all = std::accumulate(profile.c_ms.begin(), profile.c_ms.end(), 0.0);
  double twice = 0;
  for (const pipeline::PlacedStage& stage : placed.stages) {
    if (!stage.problem->variant(stage.variant).recompute) continue;
    for (const pipeline::PlacedPart& part : stage.parts) {
      twice += std::accumulate(profile.c_ms.begin() + part.p0, profile.c_ms.begin() + part.p1, 0.0);
    }
  }
  return all > 0 ? twice / all : 0;
}

std::string mfu_text(const pipeline::PlanUtilization& of) {
  if (of.mfu > 0) return format_percent(of.mfu);
  return of.model_tflops > 0 ? format_number(of.model_tflops) + " TFLOP/s" : "-";
}

}  // namespace automap::infer
