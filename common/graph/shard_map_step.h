// Handles steps that their users partitioned by hand (jax.shard_map): between two marks shapes are those of one
// device's part, and the collectives there are the user's own.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/graph/graph.h"

namespace automap::graph {

struct ShardMapStep {
  // A parameter of the entry of which a device has a part, and the shape that it had.
  struct Cut {
    InstructionId parameter = kNone;
    ShapeId whole = kNone;
  };
  std::int64_t devices = 0;  // it was written for; 0 when nothing says it
  std::vector<Cut> cut;
};

// Turns a module whose whole step stands between marks into the program of one device. Marks hand their values on,
// parameters and results get the shapes of a device's part, and all annotations of the whole's sharding are removed.
// Returns nullopt, and leaves `graph` as it was, where a value that is split is also read outside the marks, or where
// there are no marks.
std::optional<ShardMapStep> take_one_device(Graph* graph);

// The share of the entry's FLOPs that stands between marks; iterations of loops are counted where they are known.
double share_on_shards(const Graph& graph);

}  // namespace automap::graph
