// A decided module as something XLA and JAX execute.
#pragma once

#include <string>

#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "search/partition_plan.h"

namespace automap::search {

// "{devices=[1,8]<=[8]}", "{replicated}".
std::string sharding_text(const sharding::TensorState& state, std::size_t rank, int shards);

// The module's text with `sharding` on the entry's parameters and on its ROOT, num_partitions in the header, Shardy's
// attributes and other shardings removed; nothing else changes. Throws Error(kData) when the module elides constants
// ("{...}"): XLA could not run it.
std::string emit_hlo(const sharding::ShardingModel& model, const sharding::Propagation& decided);

// A Python file: MESH_AXIS, SHARDS, SPECS = {"params/wte/embedding": ("devices", None), ...} and functions that turn
// it into jax.sharding.PartitionSpec trees and check names and shapes of a given pytree.
std::string emit_jax(const sharding::ShardingModel& model, const PartitionPlan& plan);

}  // namespace automap::search
