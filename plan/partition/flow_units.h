// Matches the two flows of a model: that of the training step, in which loops and fusions are units, and that of the
// sharding model, in which they are expanded.
#pragma once

#include <vector>

#include "common/graph/training_step.h"
#include "common/sharding/model.h"

namespace automap::partition {

// By node of model.flow(): the node of model.step().flow that it is, or in which it stands (a loop, a fusion, a call);
// kNone for nodes that are not in the step's flow.
std::vector<sharding::NodeId> units_of(const sharding::ShardingModel& model);
// Part of every node of the model's flow: a node in a unit has the part of that.
std::vector<graph::Part> parts_of(const sharding::ShardingModel& model);

// By node of model.step().flow: the node of model.flow() that it is; for a loop's results the loop's parameters; kNone
// for nodes that are expanded into many.
std::vector<sharding::NodeId> expanded_of(const sharding::ShardingModel& model);

}  // namespace automap::partition
