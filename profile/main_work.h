// Names the operation that most of a module's compute is.
#pragma once

#include <string>

#include "common/graph/graph.h"
#include "common/graph/hlo_cost.h"

namespace automap::profile {

// "matmul bf16", "convolution f32": the operation and type with the most FLOPs, each instruction counted once (a loop's
// body as one turn). Empty: the module has neither.
std::string main_work(const graph::Graph& graph, const graph::ModuleCost& cost);

}  // namespace automap::profile
