// Makes the operators of a module as if it had been exported with another batch.
#pragma once

#include <cstdint>

#include "plan/systems/soap/operators.h"

namespace automap::soap {

// The operators and their dimensions are the module's own (operators.h); sample dimensions, tensors, times and kept
// bytes are those of the module resized (common/graph/resized_graph.h), whose attributes still have the old extents and
// would forbid splits that are possible. A sample dimension of which some tensor does not grow keeps its extent. Throws
// Error(kData) as operators_of, and where the module cannot be resized to another batch (profile/batch_dims.h says
// why).
ModelSpace operators_at_batch(const graph::Graph& graph, const machine::DeviceModel& device, std::int64_t samples);

}  // namespace automap::soap
