// --effort sets how much work each part of the planner may do. Work is counted, so that the same question gets the same
// plan on every machine and under any load (docs/planner.md, "Effort").
#pragma once

#include <cstdint>

#include "common/base/work.h"

namespace automap::planners {

struct PlanEffort {
  // The work of the whole call, in units; planners take turns at parts of it. kNoEnd: every planner runs to its end.
  std::int64_t units = 0;
  // Plans judged: by the local search of a stage count and schedule, by a polish, by an exploration.
  int local_search_evaluations = 0, polish_evaluations = 0, explore_evaluations = 0;
  // Moves of cuts that are tried, of every number of even groups, chunks and variant (even_search.h).
  int even_moves = 0;
  // Rules of the list scheduler that are tried for each order that is searched (common/pipeline/list_scheduler.h).
  int order_tries = 0;
  // Plans beside the best of each schedule that orders are searched for (order_search.h).
  int order_starts = 0;
  // The work of the exact solver on whole layers, which runs after the plan is chosen (layers.h), in units.
  std::int64_t layer_units = 0;
};

// The units of work for the bound of one split of the batch.
constexpr std::int64_t kBoundUnits = 100'000'000;

PlanEffort plan_effort(Effort effort);

}  // namespace automap::planners
