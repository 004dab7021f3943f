// Sets a partition plan, from any source, on a model.
#pragma once

#include <string>
#include <vector>

#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "plan/partition/partition_plan.h"

namespace automap::partition {

// Sets the plan's splittings on a model. A plan that lists no gathers is completed where its splittings collide: the
// data is split first, then the inputs that agree with it; the others are stored as the plan says and gathered before
// use (stored_parts.h); `warnings` says so. Throws Error(kData) naming the tensor when the plan is of another model
// (names, shapes, source hash), when a dimension is out of range or shards do not divide it; Error(kInfeasible) with
// the explanation when two splittings collide in spite of that. `model` is relinked to the plan's shards and gathers,
// and combines sums as the plan does. With `model_sha256` (of the module's bytes) a plan whose provenance names another
// one is refused, too, unless names and shapes of all inputs agree: then `warnings` says so.
sharding::Propagation apply_plan(sharding::ShardingModel* model, const PartitionPlan& plan,
                                 const std::string& model_sha256 = "", std::vector<std::string>* warnings = nullptr);

}  // namespace automap::partition
