#include "plan/partition/experts.h"

#include <cstddef>

namespace automap::partition {

namespace {

using graph::FlowGraph;
using sharding::NodeId;
using sharding::TensorDim;

std::size_t at(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

// By flow node.
std::vector<bool> made_of_data(const sharding::ShardingModel& model) {
  const FlowGraph& flow = model.flow();
  std::vector<bool> out(at(flow.size()), false);
  for (const std::int32_t input : model.data()) out[at(model.inputs()[at(input)].node)] = true;
  // A state of a loop is what any turn makes of it.
  for (bool changed = true; changed;) {
    changed = false;
    const auto depend = [&](NodeId node, NodeId on) {
      if (!out[at(on)] || out[at(node)]) return;
      out[at(node)] = changed = true;
    };
    for (NodeId node = 0; node < flow.size(); ++node) {
      for (const NodeId operand : flow.operands(node)) depend(node, operand);
      if (flow.producer(node) != node) depend(node, flow.producer(node));
    }
    for (const graph::FlowLoop& loop : flow.loops()) {
      for (std::size_t i = 0; i < loop.parameter.size(); ++i) {
        depend(loop.parameter[i], loop.initial[i]);
        depend(loop.parameter[i], loop.next[i]);
      }
    }
  }
  return out;
}

}  // namespace

std::vector<TensorDim> expert_dims(const sharding::ShardingModel& model) {
  const FlowGraph& flow = model.flow();
  const std::vector<bool> of_data = made_of_data(model);
  std::vector<TensorDim> out;
  for (NodeId op = 0; op < flow.size(); ++op) {
    if (flow.node(op).opcode != graph::Opcode::kDot) continue;
    for (const sharding::OpFactor& factor : model.linkage().factors(op)) {
      // Of both sides and the result.
      if (factor.members.size() != 3 || !factor.partial.empty()) continue;
      for (const TensorDim member : factor.members) {
        if (flow.producer(member.node) != op && !of_data[at(member.node)]) out.push_back(member);
      }
    }
  }
  return out;
}

}  // namespace automap::partition
