// Finds the nodes of a module that belong to one stage of a pipeline, so that a partition can be found for these alone
// (PlanningRequest::in_stage) instead of for the whole module.
#pragma once

#include <vector>

#include "common/sharding/model.h"

namespace automap::partition {

// By node of model.flow(): it belongs to one of the forward positions p0+1 .. p1 (as Profile has them) or to their
// backward pass. Weights, slots and values made of them alone stand where they are first used. The update of variables
// belongs to no position.
std::vector<bool> stage_counts(const sharding::ShardingModel& model, int p0, int p1);

}  // namespace automap::partition
