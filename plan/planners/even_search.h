// The best plan of even groups under a schedule that is lists of work (common/pipeline/work_order.h), of one width of
// replicas: parts of about equal compute, then moved as the simulation tells. No bound speaks of it but those of any
// order.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"
#include "plan/planners/question.h"

namespace automap::planners {

// Which plans are looked at.
struct EvenShape {
  pipeline::Schedule schedule = pipeline::Schedule::kInterleaved;  // one that needs no lists of its own
  std::vector<int> chunks = {1};                                   // v
  int least_groups = 2;
};

struct EvenChoice {
  std::unique_ptr<pipeline::Problem> problem;
  pipeline::Plan plan;
  double simulated_step_ms = 0;
};

// Over the splits of the batch, the numbers of groups up to max_stages and the variants of stages. Empty: none can run.
std::optional<EvenChoice> best_even(const Question& question, int width, const EvenShape& shape);

// Cuts of parts of about equal compute for a plan of so many stages on equally many devices, whose placement, chunks
// and variants stand in `plan`; false: there are fewer instructions than parts, or devices that no stage can have.
bool balance_parts(const pipeline::Problem& problem, int stages, pipeline::Plan* plan);

}  // namespace automap::planners
