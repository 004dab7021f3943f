// Finds a plan on the devices of a cluster that have library kernels for attention, where other types lack them. On the
// whole cluster attention is then counted as written (PlanInput::written_attention). The devices with kernels keep
// less, so that another plan may fit on them.
#pragma once

#include <optional>

#include "common/machine/cluster.h"
#include "common/pipeline/plan_json.h"
#include "infer/options.h"
#include "plan/planners/frameworks.h"
#include "plan/planners/measured_step.h"
#include "plan/planners/planning.h"

namespace automap::infer {

struct KernelsAlone {
  const InferOptions& options;
  const planners::PlanRequest& request;
  const planners::Framework& framework;
  const machine::Cluster& cluster;
  double spent_ms;  // of the request's time limit
  planners::Correction correction;
};

// Returns a plan for the devices with kernels alone, found with little effort, where its step is so much shorter that
// it is worth naming (planners::kRuleWorthNaming). The model is read again; returns nothing where that is not possible.
std::optional<pipeline::PlanDocument::Relaxed> kernels_alone(const KernelsAlone& asked, double step_ms);

}  // namespace automap::infer
