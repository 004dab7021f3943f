// What attention keeps is counted as written on all devices of a cluster where one of their types has no kernels of
// libraries for it (PlanInput::written_attention). The others alone keep less, which may make another plan fit.
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

// A plan for the devices with kernels alone, found with little effort, where its step is that much shorter that it is
// worth naming (planners::kRuleWorthNaming). The model is read again; nothing where that is
// not possible.
std::optional<pipeline::PlanDocument::Relaxed> kernels_alone(const KernelsAlone& asked, double step_ms);

}  // namespace automap::infer
