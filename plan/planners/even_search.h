// The best plan of even groups under a schedule of common/pipeline/even_schedule.h, of one width of replicas: parts of
// about equal compute, then moved as the simulation tells. No bound speaks of it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "common/machine/cluster.h"
#include "common/pipeline/even_schedule.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/profile.h"
#include "plan/planners/step_choice.h"

namespace automap::planners {

// Which of those schedules.
struct EvenSchedule {
  std::vector<int> chunks = {1};  // v of interleaved 1F1B that are looked at
  bool zero_bubble = false;       // ZB-H1, of one chunk
};

struct EvenChoice {
  std::unique_ptr<pipeline::Problem> problem;
  pipeline::EvenPlan plan;
  double simulated_step_ms = 0;
  double memory_bytes = 0, capacity_bytes = 0;  // of the fullest device
};

// Over the splits of the batch, the numbers of groups up to max_stages and the variants of stages. Empty: none can run.
// `profile` and `cluster` are those of single devices.
std::optional<EvenChoice> best_even(const pipeline::Profile& profile, const machine::Cluster& cluster,
                                    const pipeline::ProblemOptions& options, const StepRequest& step,
                                    const PlanRequest& request, int width, const EvenSchedule& schedule);

}  // namespace automap::planners
