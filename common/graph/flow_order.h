// The order of the forward instructions in which a pipeline is cut: by data flow, layer after layer, never by the text.
//
// - A depth-first post-order from the loss (or from the results), always into the deepest operand first: a distant
//   operand is finished before anything else begins, so branches (residuals, towers, encoder and decoder) stay
//   together.
// - Nodes that depend on weights alone, or cheaply on step inputs alone, stand directly before their first use.
// - Results of a unit (get-tuple-element) stand directly behind it.
// - A side branch that ends early (an auxiliary loss, a cache that is handed out) is moved up behind its operands when
//   that keeps fewer bytes alive.
// The order depends on operands, shapes and roles only: writing the instructions in another valid order changes
// nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/dependence.h"
#include "common/graph/training_step.h"

namespace automap::graph {

// The sources that a node is computed from.
enum class Origin : std::uint8_t {
  kNothing,  // free (constants and iota alone)
  kWeights,  // variables, frozen weights, state: at hand wherever it is used
  kInputs,   // step inputs alone, cheaply: can be computed in any stage
  kFlow,     // an activation
};

struct FlowOrder {
  std::vector<NodeId> order;           // the forward nodes, projections included
  std::vector<std::int32_t> position;  // per node: its place in `order`; kNone for the others
  std::vector<Origin> origin;          // per node, for all nodes
};

FlowOrder order_forward(const TrainingStep& step);

// kHeavy work is never "cheaply" computed again: products, convolutions, loops, sorts, collectives, unknown calls.
bool is_cheap(const FlowGraph& flow, NodeId id);

}  // namespace automap::graph
