// Detects modules that XLA's partitioner has already split: one device's part of a model, whose shapes are those of
// shards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/graph/graph.h"

namespace automap::graph {

struct PartitionedModule {
  std::int64_t devices = 0;  // it was partitioned for; 0 when nothing says it
  std::string why;           // "parameter 'w', annotated {devices=[8,1]<=[8]}, is gathered from f32[64,2048] to ..."
};

// Nothing for a module at full shape, annotated or not, and for the collectives that users write themselves (shard_map,
// pmap). It is one when its own collectives make more of an annotated parameter than its shape: an all-gather along a
// dimension that the annotation cuts. Or when XLA has named its entry "..._spmd" and it has collectives between
// partitions.
std::optional<PartitionedModule> find_partitioned(const Graph& graph);

// True if a part of the step is written for one device's part of its values (shard_map): shapes there are of shards.
bool works_on_shards(const Graph& graph);

}  // namespace automap::graph
