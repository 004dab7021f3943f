// The best plan of even groups under a schedule of common/pipeline/even_schedule.h, of one width of replicas: parts of
// about equal compute, then moved as the simulation tells. No bound speaks of it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "common/pipeline/even_schedule.h"
#include "common/pipeline/problem.h"
#include "plan/planners/question.h"

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
};

// Over the splits of the batch, the numbers of groups up to max_stages and the variants of stages. Empty: none can run.
std::optional<EvenChoice> best_even(const Question& question, int width, const EvenSchedule& schedule);

}  // namespace automap::planners
