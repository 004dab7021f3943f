// Makes a module of its own of a set of values of a step's flow: parameters for incoming values, a tuple of the
// results.
#pragma once

#include <string>
#include <vector>

#include "common/graph/dependence.h"
#include "common/graph/graph.h"

namespace automap::programs {

// The nodes `inside` (ascending, with all operands that are not in `parameters`) copied into a new module, calls in
// place and the computations that they name copied with them; `parameters` become parameters in that order, `results`
// the leaves of a tuple. Metadata and shardings stay behind. Views in the module point into the flow's graph, which
// must outlive it. Throws Error(kData) naming an instruction that cannot be copied.
graph::Graph extract_program(const graph::FlowGraph& flow, const std::string& name,
                             const std::vector<graph::NodeId>& inside, const std::vector<graph::NodeId>& parameters,
                             const std::vector<graph::NodeId>& results);

}  // namespace automap::programs
