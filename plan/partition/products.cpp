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

// By flow node: made of variables, frozen weights and constants alone, and of some of the first two.
std::vector<bool> made_of_weights(const sharding::ShardingModel& model) {
  const FlowGraph& flow = model.flow();
  std::vector<bool> some(at(flow.size()), false), others = some;
  for (const graph::FlowInput& input : flow.inputs()) others[at(input.node)] = true;
  const auto seed = [&](const sharding::ModelInput& input) {
    some[at(input.node)] = true;
    others[at(input.node)] = false;
  };
  for (const std::int32_t variable : model.variables()) seed(model.inputs()[at(variable)]);
  for (const sharding::ModelInput& input : model.inputs()) {
    const graph::Shape& shape = flow.shape(input.node);
    if (input.role == graph::InputRole::kFrozen && shape.is_array() && !shape.dims.empty()) seed(input);
  }
  for (bool changed = true; changed;) {
    changed = false;
    const auto follow = [&](std::vector<bool>& kind, NodeId node, NodeId from) {
      if (!kind[at(from)] || kind[at(node)]) return;
      kind[at(node)] = changed = true;
    };
    for (NodeId node = 0; node < flow.size(); ++node) {
      for (const NodeId operand : flow.operands(node)) {
        follow(some, node, operand);
        follow(others, node, operand);
      }
    }
    for (const graph::FlowLoop& loop : flow.loops()) {
      for (std::size_t i = 0; i < loop.parameter.size(); ++i) {
        for (const NodeId from : {loop.initial[i], loop.next[i]}) {
          follow(some, loop.parameter[i], from);
          follow(others, loop.parameter[i], from);
        }
      }
    }
  }
  for (std::size_t node = 0; node < some.size(); ++node) some[node] = some[node] && !others[node];
  return some;
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

RowsOfWeights rows_of_weights(const sharding::ShardingModel& model) {
  const FlowGraph& flow = model.flow();
  const sharding::Linkage& linkage = model.linkage();
  const std::vector<bool> forms = forms_of_variables(model), weights = made_of_weights(model);
  RowsOfWeights out{std::vector<bool>(at(linkage.num_groups()), false), std::vector<bool>(at(flow.size()), false)};
  std::vector<bool> own = out.groups;
  const auto is_weight = [&](NodeId node) { return weights[at(node)]; };
  for (NodeId op = 0; op < flow.size(); ++op) {
    const Opcode opcode = flow.node(op).opcode;
    if (opcode != Opcode::kDot && opcode != Opcode::kConvolution) continue;
    const auto operands = flow.operands(op);
    const auto of_weights = std::count_if(operands.begin(), operands.end(), is_weight);
    // Of weights alone: a weight.
    if (of_weights == 0 || of_weights == static_cast<std::ptrdiff_t>(operands.size())) continue;
    out.products[at(op)] = true;
    for (const sharding::OpFactor& factor : linkage.factors(op)) {
      bool has = false, decides = false;
      for (const auto* dims : {&factor.members, &factor.in_parts}) {
        for (const TensorDim dim : *dims) {
          if (flow.producer(dim.node) == op || !is_weight(dim.node)) continue;
          has = true;
          // Weights that are repeated for every example have no examples.
          decides = decides || !is_batch(factor) || forms[at(dim.node)];
        }
      }
      if (!has) out.groups[at(factor.group)] = true;
      if (decides) own[at(factor.group)] = true;
    }
  }
  for (std::size_t group = 0; group < own.size(); ++group) out.groups[group] = out.groups[group] && !own[group];
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
