// Chooses the values that a step keeps for its backward pass. Values that a kernel of its own reads there (operands of
// a product) are kept as they are; for values that only fused loops read, it keeps the fewest bytes from which the
// loops can recompute them. Kernels of frameworks are written like that (a softmax keeps its result, a GELU its input,
// a layer norm its input and two numbers per row), and compilers cut between forward and backward so.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "profile/step_positions.h"

namespace automap::profile {

// A loop can make the node's value again from its operands: element-wise work and movement.
bool is_made_again(const graph::FlowGraph& flow, graph::NodeId id);

// Forward values that cost something to have again, by node: activations, and random numbers with what is made of them
// (masks of dropout). Weights, step inputs and what is cheaply made of them are at hand.
std::vector<bool> find_keepable(const StepPositions& at);

// A flow, what a value takes in it, and whether a node is of its forward pass.
struct KeptFlow {
  const graph::FlowGraph& flow;
  std::function<double(graph::NodeId)> bytes;
  std::function<bool(graph::NodeId)> is_forward;
};

// The step's own.
KeptFlow kept_flow(const StepPositions& at);

// Returns the values to keep, ascending, given the arrays that the backward pass reads: `whole` are read by kernels of
// their own, `in_loops` by fused loops. All others follow from kept values, weights and step inputs; those in `whole`
// through movement alone. Of the sets of fewest bytes it takes the one nearest to the readers, so that least is
// recomputed.
//
// h = dot(..), t = tanh(h) in f32, y = t * h, all f16 but t; y is read by a product, t by a loop: keeps y and h.
std::vector<graph::NodeId> cheapest_kept(const KeptFlow& at, const std::vector<bool>& keepable,
                                         const std::vector<graph::NodeId>& whole,
                                         const std::vector<graph::NodeId>& in_loops);

}  // namespace automap::profile
