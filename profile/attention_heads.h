// Counts the equal parts into which a model's attention can be divided by whole heads, as tensor parallelism of
// training frameworks divides it.
#pragma once

#include <cstdint>

#include "common/graph/graph.h"

namespace automap::profile {

// The greatest common divisor of the heads of all attentions; of grouped queries those of keys and values count, which
// are fewer. `samples`: of the module's micro-batch, at least 1. 0: no attention, or its heads are not told apart from
// its samples.
std::int64_t attention_heads(const graph::Graph& graph, std::int64_t samples);

}  // namespace automap::profile
