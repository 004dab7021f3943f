// Writes a decided module in forms that XLA and JAX execute.
#pragma once

#include <string>

#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "plan/emit/layout.h"
#include "plan/partition/mesh_plan.h"
#include "plan/partition/partition_plan.h"

namespace automap::emit {

// The module's text with `sharding` on the entry's parameters, on its ROOT and on the few instructions inside that XLA
// would split otherwise (inner_shardings.h), num_partitions in the header, Shardy's attributes and all other shardings
// removed (annotating custom-calls become copies); nothing else changes, and of a module that was read from text all
// other lines stay as they were (hlo::edit_hlo_text). Undecided tensors, results that are partial sums and results that
// are free count as replicated (but for new values of inputs: result_states). An input_output_alias of two that are
// split differently goes. Sums that the model combines are written out (combined_sums.h).
// Throws Error(kData) when XLA could not run or partition it: elided constants ("{...}"), a module that is partitioned
// already, one that partitions a part of itself by hand (shard_map).
std::string emit_hlo(const Layout& layout);
std::string emit_hlo(const sharding::ShardingModel& model, const sharding::Propagation& decided);  // of one axis

// A Python file that needs nothing but JAX: MESH = {"devices": 8} (or {"data": 4, "model": 2}), SHARDS,
// SPECS = {"params/wte/embedding": P("devices", None), ...}, RESULTS, INSIDE (jax_constraints.h), and functions that
// turn them into PartitionSpec trees for the arguments of the step, checking names and shapes, and that put constraints
// into the step. `layout`: of the plan's axes, in order. Throws Error(kData) when the plan lists no inputs with shapes:
// describe_decision() completes it.
std::string emit_jax(const sharding::ShardingModel& model, const partition::PartitionPlan& plan, const Layout& layout);
std::string emit_jax(const sharding::ShardingModel& model, const partition::MeshPlan& plan, const Layout& layout);

}  // namespace automap::emit
