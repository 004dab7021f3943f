#include "plan/partition/products.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "common/base/numbers.h"
#include "common/graph/dependence.h"

namespace automap::partition {

namespace {

using graph::FlowGraph;
using graph::NodeId;
using graph::Opcode;
using sharding::TensorDim;

// By flow node: a variable, or a part of it, in whatever shape and type.
std::vector<bool> forms_of_variables(const sharding::ShardingModel& model) {
  const FlowGraph& flow = model.flow();
  std::vector<bool> out(at(flow.size()), false);
  for (const std::int32_t variable : model.variables()) out[at(model.inputs()[at(variable)].node)] = true;
  const auto keeps_form = [&](NodeId node) {
    const Opcode opcode = flow.node(node).opcode;
    return graph::is_movement(flow, node) || opcode == Opcode::kConvert || opcode == Opcode::kSlice ||
           opcode == Opcode::kDynamicSlice;
  };
  for (bool changed = true; changed;) {
    changed = false;
    const auto follow = [&](NodeId node, NodeId from) {
      if (!out[at(from)] || out[at(node)]) return;
      out[at(node)] = changed = true;
    };
    for (NodeId node = 0; node < flow.size(); ++node) {
      if (keeps_form(node) && flow.operands(node).size() > 0) follow(node, flow.operands(node)[0]);
    }
    // Stacked weights, of which a loop takes a slice each turn.
    for (const graph::FlowLoop& loop : flow.loops()) {
      for (std::size_t i = 0; i < loop.parameter.size(); ++i) follow(loop.parameter[i], loop.initial[i]);
    }
  }
  return out;
}

bool has_batch_dimensions(const FlowGraph& flow, NodeId op) {
  const auto list = flow.graph().attribute(flow.node(op).instruction, "lhs_batch_dims");
  return list && *list != "{}";
}

// Of both sides and the result.
bool is_batch(const sharding::OpFactor& factor) {
  return factor.members.size() == 3 && factor.partial.empty();
}

}  // namespace

std::vector<TensorDim> expert_dims(const sharding::ShardingModel& model) {
  const FlowGraph& flow = model.flow();
  const std::vector<bool> weights = forms_of_variables(model);
  std::vector<TensorDim> out;
  for (NodeId op = 0; op < flow.size(); ++op) {
    if (flow.node(op).opcode != Opcode::kDot) continue;
    for (const sharding::OpFactor& factor : model.linkage().factors(op)) {
      if (!is_batch(factor)) continue;
      for (const TensorDim member : factor.members) {
        if (flow.producer(member.node) != op && weights[at(member.node)]) out.push_back(member);
      }
    }
  }
  return out;
}

RowsOfWeights::RowsOfWeights(const sharding::ShardingModel& model)
    : model_(model), weights_(forms_of_variables(model)) {}

bool RowsOfWeights::is_row(const sharding::OpFactor& factor) const {
  const FlowGraph& flow = model_.flow();
  const Opcode opcode = flow.node(factor.op).opcode;
  if (opcode != Opcode::kDot && opcode != Opcode::kConvolution) return false;
  const auto operands = flow.operands(factor.op);
  const auto is_weight = [&](NodeId node) { return weights_[at(node)]; };
  if (std::none_of(operands.begin(), operands.end(), is_weight)) return false;
  return std::none_of(factor.members.begin(), factor.members.end(),
                      [&](const TensorDim& member) { return is_weight(member.node); });
}

std::vector<bool> RowsOfWeights::groups() const {
  const sharding::Linkage& linkage = model_.linkage();
  std::vector<bool> out(at(linkage.num_groups()), false);
  for (NodeId op = 0; op < model_.flow().size(); ++op) {
    for (const sharding::OpFactor& factor : linkage.factors(op)) {
      if (is_row(factor)) out[at(factor.group)] = true;
    }
  }
  return out;
}

std::vector<NodeId> products_of_activations(const sharding::ShardingModel& model) {
  const FlowGraph& flow = model.flow();
  const sharding::Linkage& linkage = model.linkage();
  const std::vector<bool> weights = forms_of_variables(model);
  std::set<sharding::GroupId> experts;
  for (const TensorDim dim : expert_dims(model)) experts.insert(linkage.group_of(dim));
  std::vector<NodeId> out;
  for (NodeId op = 0; op < flow.size(); ++op) {
    // A batch dimension of extent 1 is one, too: an example at a time.
    if (flow.node(op).opcode != Opcode::kDot || !has_batch_dimensions(flow, op)) continue;
    const auto operands = flow.operands(op);
    const bool computed = std::all_of(operands.begin(), operands.end(), [&](NodeId operand) {
      return linkage.is_tensor(operand) && !weights[at(operand)];
    });
    const auto factors = linkage.factors(op);
    const bool of_experts = std::any_of(factors.begin(), factors.end(), [&](const sharding::OpFactor& factor) {
      return is_batch(factor) && experts.count(factor.group) != 0;
    });
    if (computed && !of_experts) out.push_back(op);
  }
  return out;
}

}  // namespace automap::partition
