// Computes the values that the turns of a loop keep for the backward pass. A module says it by arrays with a slice for
// each turn (stacks). But these values depend on how the loop was written down, where the same layers without a loop
// keep the least from which their backward pass can recompute the rest (kept_values.h). So the turns are analysed, and
// keep that.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "profile/step_positions.h"

namespace automap::profile {

class LoopStash {
 public:
  explicit LoopStash(const StepPositions& at) : at_(at) {}

  // True if a projection of the step's flow is a stack: each turn of its loop writes a slice, and turns of other loops
  // read these one by one.
  bool is_stack(graph::NodeId projection);
  // The bytes that all turns of `loop` keep in place of `stacks`, leaves of its result.
  double kept_bytes(graph::NodeId loop, const std::vector<std::int32_t>& stacks);

 private:
  void open();
  const graph::FlowLoop* loop_of(graph::InstructionId instruction) const;
  std::int32_t site_of(graph::NodeId id) const;
  // The value that a turn writes into a stack; kNone: the leaf is no stack.
  graph::NodeId written_by_turn(const graph::FlowLoop& loop, std::int32_t leaf) const;
  bool read_slice_by_slice(graph::NodeId stack, std::vector<graph::NodeId>* slices) const;

  const StepPositions& at_;
  std::optional<graph::FlowGraph> flow_;  // loops expanded
  std::vector<std::int32_t> loop_site_;   // by site: the site of the loop's body around it; kNone: none
  std::vector<char> in_loops_;            // by node: it reads while it computes, as do all who read it in another form
};

}  // namespace automap::profile
