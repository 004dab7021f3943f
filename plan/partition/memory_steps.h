// The steps that a compiled module runs, and the buffers that they read and write: the parts of a flow that take
// memory.
//
// A step is a kernel: an instruction with everything that is fused into it. The rules are XLA's:
//   names     reshape, bitcast, tuple elements, barriers and annotations are other names of their operands
//   fused     element-wise instructions, broadcasts, transposes, slices, pads and the like have no buffer for readers
//             that can make them themselves (matrix products, convolutions, sorts and the like cannot) when
//               - that is their only reader, or
//               - they are cheap (no transcendental, no division) and made of one large tensor at most, or of no more
//                 bytes than they have, or
//               - they are cheap, all readers can, and none reads them together with a later value: keeping their
//                 operands until then would take more
//             and values made of constants alone are always made by their readers
//   layout    a product reads its operands as batch, rows, contracted or batch, contracted, rows; a convolution reads
//             images as batch, space, feature and filters as space, in, out: others are copied before it, and an
//             instruction that is fused into the copy has no buffer for it
//   in place  a step may write into an equally large buffer of which it is the last reader, when it reads it element by
//             element; the state of a loop is written over the state before, a result over the argument that
//             input_output_alias gives it
//   loops     a body is a region of its own that runs within one step of the region around it; its state lives outside.
//             So are the branches of a conditional, one of which runs
//   dead      values that nobody reads do not exist; constants are part of the program
//   scatter   a select-and-scatter first finds positions: 4 bytes for each coordinate of its operand
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/span.h"
#include "common/sharding/model.h"

namespace automap::partition {

// A tensor that is split, and whole (or split less) in a copy that some instructions read: an all-gather. One copy
// serves all readers, from the first to the last.
struct TensorCopy {
  graph::NodeId tensor = graph::kNone;
  double part = 1;                     // of the tensor that one device holds in the copy
  std::vector<graph::NodeId> readers;  // of the flow; what makes the tensor among them: it is made so, then sliced
};

struct MemoryBuffer {
  graph::NodeId node = graph::kNone;        // whose value it holds
  std::int32_t writer = graph::kNone;       // step of its region; kNone: was there before the region began
  std::int32_t in_place_of = graph::kNone;  // buffer of its region: takes its place if nobody needs that any more
  double bytes = 0;                         // of one device, while it is alive; 0 when counted elsewhere
  double result_bytes = 0;                  // of a result of the module with memory of its own (bytes is 0)
  bool stays = false;                       // until the region ends
};

struct MemoryRead {
  std::int32_t step = 0, buffer = 0;
  bool aligned = false;  // element by element: the step may write in its place
};

struct MemoryStep {
  graph::NodeId node = graph::kNone;  // what made it a step; of a loop or a conditional: its first node
  double workspace = 0;               // bytes while it runs
};

// Its steps in the order of the module's text, its buffers: ranges of MemorySteps::steps and ::buffers.
struct MemoryRegion {
  std::int32_t around = graph::kNone;  // the step of another region that runs it; kNone: the entry
  std::int32_t first_step = 0, num_steps = 0, first_buffer = 0, num_buffers = 0;
};

struct MemorySteps {
  std::vector<MemoryRegion> regions;  // the entry first, inner regions behind outer ones
  std::vector<MemoryStep> steps;
  std::vector<MemoryBuffer> buffers;
  std::vector<MemoryRead> reads;                  // by step, each buffer once: of the step's region
  std::vector<std::int32_t> first_read;           // by step, one more entry than there are
  std::vector<std::int32_t> writes, first_write;  // buffers by the step that writes them, likewise
  double arguments = 0;                           // bytes of the entry's inputs
  double results = 0;  // bytes of the results that take no argument's place; one that is given twice counts twice

  Span<const MemoryRead> reads_of(std::int32_t step) const { return slice(reads, first_read, step); }
  Span<const std::int32_t> writes_of(std::int32_t step) const { return slice(writes, first_write, step); }

 private:
  template <typename T>
  static Span<const T> slice(const std::vector<T>& values, const std::vector<std::int32_t>& first, std::int32_t i) {
    const auto k = static_cast<std::size_t>(i);
    return Span<const T>(values.data() + first[k], static_cast<std::size_t>(first[k + 1] - first[k]));
  }
};

// `part_of_node`: per node of model.flow(), the share of its tensor that one device holds.
MemorySteps memory_steps(const sharding::ShardingModel& model, const std::vector<double>& part_of_node,
                         const std::vector<TensorCopy>& copies);

}  // namespace automap::partition
