#include "profile/chain_flow.h"

#include <algorithm>

#include "common/graph/hlo_attributes.h"

namespace automap::profile {

using graph::FlowGraph;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;

namespace {

FlowGraph build_flow(const graph::Graph& graph) {
  graph::FlowOptions options;
  options.loops = true;
  return FlowGraph::build(graph, options);
}

}  // namespace

ChainFlow::ChainFlow(const graph::Graph& graph)
    : flow(build_flow(graph)), free(graph::find_free(flow)), results(static_cast<std::size_t>(flow.size()), false) {
  for (const NodeId id : flow.results()) {
    if (id != kNone) results[static_cast<std::size_t>(id)] = true;
  }
  escapes = results;
  for (const graph::FlowLoop& loop : flow.loops()) {
    for (const NodeId id : loop.next) escapes[static_cast<std::size_t>(id)] = true;
    for (const NodeId id : loop.initial) escapes[static_cast<std::size_t>(id)] = true;
  }
}

bool ChainFlow::reduces_by(NodeId id, Opcode by) const {
  if (opcode(id) != Opcode::kReduce) return false;
  const auto called = flow.graph().called(flow.node(id).instruction);
  if (called.size() != 1) return false;
  const graph::InstructionId root = flow.graph().computation(called[0]).root;
  return root != kNone && flow.graph().instruction(root).opcode == by;
}

std::optional<ChainFlow::Sum> ChainFlow::sum_of(NodeId id) const {
  const graph::Shape& shape = flow.shape(id);
  if (!shape.is_array() || shape.dims.size() < 2) return std::nullopt;
  const auto summed = [&](NodeId of) -> std::optional<Sum> {
    for (const NodeId user : flow.users(of)) {
      if (!reduces_by(user, Opcode::kAdd) || flow.operands(user)[0] != of) continue;
      const auto dims =
          graph::dimension_list_attribute(flow.graph(), flow.node(user).instruction, "dimensions", shape.dims.size());
      if (dims.size() == 1 && shape.dims[static_cast<std::size_t>(dims[0])] > 1)
        return Sum{user, static_cast<std::int32_t>(dims[0])};
    }
    return std::nullopt;
  };
  if (const auto found = summed(id)) return found;
  for (const NodeId user : flow.users(id)) {
    if (opcode(user) != Opcode::kConvert) continue;
    if (const auto found = summed(user)) return found;
  }
  return std::nullopt;
}

bool ChainFlow::is_short(NodeId id) const {
  const graph::ElementType type = flow.shape(id).type;
  return type == graph::ElementType::kF16 || type == graph::ElementType::kBf16;
}

NodeId ChainFlow::product_before(NodeId id) const {
  id = graph::skip_movement(flow, id);
  return opcode(id) == Opcode::kDot ? id : kNone;
}

bool ChainFlow::equals_places(NodeId id) const {
  constexpr std::size_t kMostSteps = 64;
  const auto counts_places = [&](NodeId from) {
    std::vector<NodeId> open{from};
    for (std::size_t next = 0; next < open.size() && next < kMostSteps; ++next) {
      if (opcode(open[next]) == Opcode::kIota) return true;
      const bool arithmetic = graph::is_elementwise(opcode(open[next])) || graph::is_movement(flow, open[next]);
      if (!arithmetic || opcode(open[next]) == Opcode::kCompare) continue;
      for (const NodeId operand : flow.operands(open[next])) open.push_back(operand);
    }
    return false;
  };
  std::vector<NodeId> open{id};
  for (std::size_t next = 0; next < open.size() && next < kMostSteps; ++next) {
    const NodeId at = open[next];
    const auto operands = flow.operands(at);
    if (opcode(at) == Opcode::kCompare && operands.size() == 2) {
      const auto direction = flow.graph().attribute(flow.node(at).instruction, "direction");
      const bool is_equal = direction && (*direction == "EQ" || *direction == "NE");
      if (is_equal && (counts_places(operands[0]) || counts_places(operands[1]))) return true;
    }
    if (!graph::is_elementwise(opcode(at)) && !graph::is_movement(flow, at)) continue;
    for (const NodeId operand : operands) open.push_back(operand);
  }
  return false;
}

}  // namespace automap::profile
