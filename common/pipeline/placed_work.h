// Turns a placed plan into lists of work: the times and memory of its parts, and the order that its schedule gives
// them.
#pragma once

#include <optional>
#include <vector>

#include "common/pipeline/placed_plan.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/work_order.h"
#include "common/pipeline/work_simulation.h"

namespace automap::pipeline {

// The times of a plan's parts; the plan's groups must be valid.
WorkTimes work_times(const PlacedPlan& placed);
WorkOrder order_of(const PlacedPlan& placed, const WorkTimes& times);
// The lists of a schedule that asks neither for times nor for K_s: interleaved, the zero bubbles, and searched, whose
// plan has its own. Of other schedules nothing.
std::optional<WorkOrder> order_without_times(const Plan& plan, int micro_batches);
std::vector<KeptWork> kept_of(const WorkTimes& times, const WorkOrder& order);  // [S]
std::vector<KeptWork> kept_of(const PlacedPlan& placed);

// On each device of a stage, whatever is in flight; the largest workspace and buckets of its parts.
MemoryParts fixed_parts(const PlacedStage& stage);  // without stash
double fixed_bytes(const PlacedStage& stage);

// K_s of the schedule eager where the plan says none: as many as memory allows, at least one, and no more than in
// front.
std::vector<int> most_in_flight(const PlacedPlan& placed);

}  // namespace automap::pipeline
