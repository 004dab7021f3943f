// Backward loops over layers: what of a turn makes gradients of weights alone, which the next turn does not wait for.
#pragma once

#include <vector>

#include "common/graph/graph.h"

namespace automap::profile {

// Of the time of the body of `loop` (a `while`; `ms` by instruction, instruction_times.h), the share in [0, 1] that
// only leads to parts of the state that no turn reads but to write them on: stacked gradients, and those that are added
// up. 0 where the body's result is no tuple.
double loop_weight_share(const graph::Graph& graph, graph::InstructionId loop, const std::vector<double>& ms);

}  // namespace automap::profile
