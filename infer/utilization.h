// Computes the utilization of a step's devices by the field's conventions (profile/model_work.h).
#pragma once

#include <vector>

#include "common/machine/cluster.h"
#include "common/pipeline/placed_plan.h"
#include "common/pipeline/plan_json.h"
#include "infer/input.h"

namespace automap::infer {

// The utilization in a step of `batch` samples that takes `step_ms` on these devices of the cluster (0-based).
// `recomputed`: the compute that its stages repeat, as a share of the forward pass.
pipeline::PlanUtilization utilization_of(const PlanInput& input, const machine::Cluster& cluster,
                                         const std::vector<int>& devices, double batch, double step_ms,
                                         double recomputed);
// The share of the forward pass that is recomputed, by the compute of the stages that recompute.
double recomputed_share(const pipeline::PlacedPlan& placed, const pipeline::Profile& profile);

// The text of the table's column MFU.
std::string mfu_text(const pipeline::PlanUtilization& of);

}  // namespace automap::infer
