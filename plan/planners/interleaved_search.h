// The best interleaved 1F1B (common/pipeline/interleaved.h) of one width of replicas: even groups, parts of about equal
// compute, judged by its simulation. No bound speaks of it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "common/machine/cluster.h"
#include "common/pipeline/interleaved.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"
#include "plan/planners/step_choice.h"

namespace automap::planners {

struct InterleavedChoice {
  std::unique_ptr<pipeline::Problem> problem;
  pipeline::InterleavedPlan plan;
  double simulated_step_ms = 0;
  double memory_bytes = 0, capacity_bytes = 0;  // of the fullest device
};

// Over the splits of the batch, the numbers of groups up to max_stages and `chunks` (v, each at least 1) of each group.
// Empty: none can run. `profile` and `cluster` are those of single devices.
std::optional<InterleavedChoice> best_interleaved(const pipeline::Profile& profile, const machine::Cluster& cluster,
                                                  const pipeline::ProblemOptions& options, const StepRequest& step,
                                                  const PlanRequest& request, int width,
                                                  const std::vector<int>& chunks);

}  // namespace automap::planners
