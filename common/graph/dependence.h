// The data flow of a module's entry computation, without the instructions that only hand values on.
//
// Calls, conditionals and async pairs are expanded in place; tuple, get-tuple-element, domain and loop-invariant
// elements of a `while` disappear (their users read the producer). The remaining nodes are in topological order. A node
// has one value, or it is a unit with several results (while, fusion, custom-call, sort, ...), each of which is a
// projection node of its own (opcode get-tuple-element, `leaf` = its number) right behind it.
//
// `while` and `fusion` stay units unless FlowOptions says otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/span.h"
#include "common/graph/graph.h"

namespace automap::graph {

using NodeId = std::int32_t;

// The most nodes that FlowGraph::build makes by expanding. A call that would go beyond stays a unit.
constexpr std::int64_t kMaxFlowNodes = 4'000'000;

struct FlowOptions {
  // These are expanded as if they ran their body once on the initial state (a loop over micro-batches is a training
  // step of its own).
  std::vector<InstructionId> expanded_whiles;
  // Every other `while` is expanded once, as one turn of many: its body reads loop parameters (FlowLoop), and readers
  // of its result read the values that the body hands on. The condition is left out: no value of the flow reads it, and
  // it compares only counters. A `while` stays a unit when the module's expansion would go beyond kMaxFlowNodes.
  bool loops = false;
  // Fusions of all kinds are expanded like calls.
  bool fusions = false;
};

struct FlowNode {
  InstructionId instruction = kNone;
  std::int32_t site = kNone;  // index of the CallSite it was reached through; kNone in the entry itself
  std::int32_t leaf = kNone;  // which result of a unit, which leaf of a tuple parameter, which element of a barrier or
                              // a conditional; kNone for a plain node
  // The instruction's own opcode, but kGetTupleElement for a projection and kConditional for the joined result of the
  // branches (operands: the selector, then that leaf of every branch). kParameter: an input of the entry, or a loop
  // parameter (of a FlowLoop; instruction: the parameter of the body, site: the loop's, leaf: which one, no operands).
  Opcode opcode = Opcode::kUnknown;
  ShapeId shape = kNone;
  std::int32_t first_operand = 0, num_operands = 0;
};

struct CallSite {
  InstructionId caller = kNone;  // a call, conditional, async-start, expanded while or fusion
  std::int32_t parent = kNone;   // the site that the caller itself was reached through
  std::int32_t branch = kNone;   // of a conditional: which branch
};

// One leaf of the entry's parameters: a parameter, or a leaf of a tuple parameter.
struct FlowInput {
  std::int32_t parameter = 0;  // number
  std::int32_t leaf = kNone;   // of a tuple parameter
  NodeId node = kNone;
};

// A `while` expanded by FlowOptions::loops: `parameter` is the state that a turn begins with, `next` the state that it
// ends with and `initial` the state of the first one. Leaves that the body hands on as they came are no entries:
// whoever reads them, inside or behind the loop, reads the initial node. In the order in which the loops end: inner
// ones first.
struct FlowLoop {
  InstructionId instruction = kNone;  // the while
  std::int32_t site = kNone;          // of the body
  std::vector<NodeId> initial, parameter, next;
};

class FlowGraph {
 public:
  // Throws Error(kData) when the tuples of the module have more leaves than anybody can mean (a tuple bomb).
  static FlowGraph build(const Graph& graph, const FlowOptions& options = {});

  std::int32_t size() const { return static_cast<std::int32_t>(nodes_.size()); }
  const FlowNode& node(NodeId id) const { return nodes_[static_cast<std::size_t>(id)]; }
  Span<const NodeId> operands(NodeId id) const {
    const FlowNode& n = node(id);
    return Span<const NodeId>(operands_.data() + n.first_operand, static_cast<std::size_t>(n.num_operands));
  }
  // Nodes that read `id`, ascending; a node that reads it twice stands there once.
  Span<const NodeId> users(NodeId id) const {
    const auto i = static_cast<std::size_t>(id);
    return Span<const NodeId>(users_.data() + first_user_[i],
                              static_cast<std::size_t>(first_user_[i + 1] - first_user_[i]));
  }
  // Inputs of the entry; parameters of loops are not among them.
  const std::vector<FlowInput>& inputs() const { return inputs_; }
  // The leaves of the entry's result, in order.
  const std::vector<NodeId>& results() const { return results_; }
  const std::vector<CallSite>& sites() const { return sites_; }
  const std::vector<FlowLoop>& loops() const { return loops_; }
  const Graph& graph() const { return *graph_; }
  const Shape& shape(NodeId id) const { return graph_->shape(node(id).shape); }

  // The unit that a projection belongs to; the node itself otherwise.
  NodeId producer(NodeId id) const {
    const FlowNode& n = node(id);
    return n.opcode == Opcode::kGetTupleElement && n.num_operands == 1 ? operands(id)[0] : id;
  }

 private:
  friend class FlowBuilder;
  const Graph* graph_ = nullptr;
  std::vector<FlowNode> nodes_;
  std::vector<NodeId> operands_, users_;
  std::vector<std::int32_t> first_user_;
  std::vector<FlowInput> inputs_;
  std::vector<NodeId> results_;
  std::vector<CallSite> sites_;
  std::vector<FlowLoop> loops_;
};

// Targets of the marks around a part that a user partitioned by hand (jax.shard_map): the whole goes in and a device's
// part comes out, and the other way round.
bool enters_shards(std::string_view target);
bool leaves_shards(std::string_view target);
// Targets of custom-calls that say how values lie on devices, and do nothing to them.
bool is_sharding_mark(std::string_view target);
// Sharding annotations and the like: custom-calls that hand their one operand on.
bool is_annotation(const Graph& graph, InstructionId id);
// The node's value holds its first operand's elements, each at least once: reshape, bitcast, transpose, copy, convert,
// broadcast, reverse, optimization barrier, annotations.
bool is_movement(const FlowGraph& flow, NodeId id);
// `id` with the movement before it skipped.
NodeId skip_movement(const FlowGraph& flow, NodeId id);
// Computed from constants and iota alone (parameters and random numbers are not): free, made again at every use.
std::vector<bool> find_free(const FlowGraph& flow);

}  // namespace automap::graph
