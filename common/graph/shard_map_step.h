// Steps that their users divided by hand (jax.shard_map): between two marks shapes are those of one device's part, and
// the collectives there are the user's own.
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

// Of a module whose whole step stands inside: makes of `graph` what one device runs. Marks hand their values on,
// parameters and results have the shapes of a device's part, and nothing says any more how the whole lies on devices.
// Nothing, and `graph` as it was, where a value that is cut is read outside the marks too, or where there are no marks.
std::optional<ShardMapStep> take_one_device(Graph* graph);

// Of all FLOPs of the entry the share that stands inside, turns of loops counted where they are known.
double share_on_shards(const Graph& graph);

}  // namespace automap::graph
