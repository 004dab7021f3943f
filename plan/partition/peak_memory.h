// The most memory that a device needs at once in one step of a module: arguments, results, and everything that lives
// between (activations, gradients, buffers of single instructions), as XLA would allocate it.
//
//   total = arguments                    every input of the entry
//         + results                      those that take no argument's place (input_output_alias)
//         + temporaries                  the most that is alive at once besides, over the steps (memory_steps.h)
//
// The order of the steps is that of XLA's memory scheduler: depth first from the results. Among the operands of a step
// it first takes those that are read most often before and behind them, then the largest. A loop's or a branch's own
// peak counts in the step that runs it.
//
// A result that has memory of its own has it from the beginning. A temporary that is written before it, and read no
// more when it is written, lies there for free, if it fits: XLA places temporaries so, one at a time in each result.
//
// Not counted: gaps between buffers (XLA's heap has a few percent), copies that a backend makes for itself (bf16
// widened to f32 by XLA on a CPU), buffers of collectives, the program and its constants.
//
// Worked case (tests/plan/partition/peak_memory_test.cpp): x = f32[4,4], y = dot(x, x), z = tanh(dot(y, y)), result z:
// arguments 64, results 64; y and the second product, 64 each, live at once, but y lies where z will: temporaries 64.
#pragma once

#include <cstdint>
#include <vector>

#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "plan/partition/memory_steps.h"

namespace automap::partition {

struct PeakMemory {
  double arguments = 0, results = 0, temporaries = 0;  // bytes of one device
  double total = 0;                                    // their sum
  graph::NodeId at = graph::kNone;  // of model.flow(): while this runs; in a loop, a node of it; kNone: no temporaries
};

// `part_of_node`: per node of model.flow() the share of its tensor that one device holds, 0 to 1. Takes time in
// proportion to the module but for sorting.
PeakMemory peak_memory(const sharding::ShardingModel& model, const std::vector<double>& part_of_node,
                       const std::vector<TensorCopy>& copies = {});
PeakMemory peak_memory(const MemorySteps& steps);

// The steps of a region in the order they run; and its peak in a given order. `inside`: per step, the memory of the
// regions that run within it.
std::vector<std::int32_t> order_steps(const MemorySteps& steps, std::int32_t region);
struct RegionPeak {
  double bytes = 0;
  std::int32_t step = graph::kNone;
};
RegionPeak peak_of_region(const MemorySteps& steps, std::int32_t region, const std::vector<std::int32_t>& order,
                          const std::vector<double>& inside);

// For a plan of one mesh axis: the share of each tensor (1 / shards if it is split, else 1), and the copies that
// model.gathers() lets instructions read whole.
std::vector<double> parts_of_axis(const sharding::Propagation& decided);
std::vector<TensorCopy> copies_of_axis(const sharding::ShardingModel& model, const sharding::Propagation& decided);

}  // namespace automap::partition
