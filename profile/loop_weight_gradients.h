// Finds the share of a turn of a backward loop over layers that makes gradients of weights alone; the next turn does
// not wait for it.
#pragma once

#include <vector>

#include "common/graph/graph.h"

namespace automap::profile {

// The share in [0, 1] of the time of the body of `loop` (a `while`; `ms` by instruction, instruction_times.h) that only
// leads to parts of the state that no turn reads except to write them on: stacked gradients, and those that are added
// up. 0 where the body's result is no tuple.
double loop_weight_share(const graph::Graph& graph, graph::InstructionId loop, const std::vector<double>& ms);

}  // namespace automap::profile
