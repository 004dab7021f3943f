// How the module itself says that values are to be sharded: sharding= of its parameters, the marks that frameworks
// leave inside (`Sharding` custom calls), Shardy's attributes.
#pragma once

#include <string>

#include "common/graph/graph.h"

namespace automap::graph {

// One line for people, that none of it is taken up; empty when nothing is said, or only that values are whole.
std::string user_shardings_text(const Graph& graph);

}  // namespace automap::graph
