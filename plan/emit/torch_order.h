// Writes lists of work in the words of torch.distributed.pipelining, as _PipelineScheduleRuntime reads them from a CSV.
#pragma once

#include <string>
#include <vector>

#include "common/pipeline/work_order.h"

namespace automap::emit {

// The work of each group, with `between` separating the words: "0F0,0F1,0B0". 2F0 is the forward of part 2 with
// micro-batch 0; a backward in two passes is I (the gradients that the part in front waits for) and W.
std::vector<std::string> torch_order(const pipeline::WorkOrder& order, char between);

// True if gradients of weights have a pass of their own.
bool has_weights_pass(const pipeline::WorkOrder& order);

}  // namespace automap::emit
