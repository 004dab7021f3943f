// Shardings that the module itself asks for: sharding= of its parameters, the marks that frameworks leave inside
// (`Sharding` custom calls), Shardy's attributes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/graph/graph.h"
#include "common/graph/mesh_split.h"

namespace automap::graph {

// The sharding asked for one array.
struct UserSharding {
  std::string_view text;  // as it is written
  // Without dimensions where the words do not say how it is cut (lies on one device, is the partitioner's own).
  MeshSplit split;
  bool whole = false;  // on every device
};

// The sharding of the result of `id`, or of its leaf if it is a tuple. nullopt: none is given, or it is left to the
// compiler.
std::optional<UserSharding> user_sharding(const Graph& graph, InstructionId id, std::size_t leaf = 0);

// One line for people, that none of it is taken up; empty when nothing is said, or only that values are whole.
std::string user_shardings_text(const Graph& graph);

}  // namespace automap::graph
