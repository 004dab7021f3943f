// Plans whose stages are of different widths (common/pipeline/mixed_widths.h), found from plans of one width by moves
// judged by simulation. No bound speaks of them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "common/machine/cluster.h"
#include "common/pipeline/mixed_widths.h"
#include "common/pipeline/profile.h"
#include "plan/planners/step_choice.h"

namespace automap::planners {

struct MixedChoice {
  std::unique_ptr<pipeline::MixedProblem> problem;
  pipeline::MixedPlan plan;
  pipeline::PipelineTimes times;  // with the warm-up in in_flight
  double simulated_step_ms = 0;
};

// The shortest found on the devices and near the split of the batch of `found`, a plan of one width that is not empty.
// Empty: none has stages of different widths, or the profile knows one width only. `profile` and `cluster` are those of
// single devices.
std::optional<MixedChoice> best_mixed(const pipeline::Profile& profile, const machine::Cluster& cluster,
                                      const pipeline::ProblemOptions& options, const PlanRequest& request,
                                      const StepPlan& found);

}  // namespace automap::planners
