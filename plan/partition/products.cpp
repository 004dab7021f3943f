#include "plan/partition/products.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "common/base/numbers.h"
#include "common/graph/dependence.h"
#include "plan/partition/flow_units.h"

namespace automap::partition {

namespace {

using graph::FlowGraph;
using graph::kNone;
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

// By flow node.
struct Weights {
  std::vector<bool> made;   // of variables, frozen weights and constants alone, and of some of the first two
  std::vector<bool> forms;  // of these such that dimensions are a weight's own: not repeated, and no products
};

// Dimensions come in that no weight has.
bool repeats(const FlowGraph& flow, NodeId node) {
  return flow.node(node).opcode == Opcode::kBroadcast &&
         flow.shape(node).dims.size() > flow.shape(flow.operands(node)[0]).dims.size();
}

bool keeps_dimensions(const FlowGraph& flow, NodeId node) {
  const Opcode opcode = flow.node(node).opcode;
  switch (opcode) {
    case Opcode::kConvert:
    case Opcode::kSlice:
    case Opcode::kDynamicSlice:
    case Opcode::kConcatenate:
    case Opcode::kPad: return true;
    default: return (graph::is_movement(flow, node) && !repeats(flow, node)) || graph::is_elementwise(opcode);
  }
}

Weights weights_of(const sharding::ShardingModel& model) {
  const FlowGraph& flow = model.flow();
  std::vector<bool> some(at(flow.size()), false), forms = some, others = some;
  for (const graph::FlowInput& input : flow.inputs()) {
    // A scalar, such as the scale of an adapter, has no rows.
    others[at(input.node)] = !flow.shape(input.node).is_array() || !flow.shape(input.node).dims.empty();
  }
  const auto seed = [&](const sharding::ModelInput& input) {
    some[at(input.node)] = forms[at(input.node)] = true;
    others[at(input.node)] = false;
  };
  for (const std::int32_t variable : model.variables()) seed(model.inputs()[at(variable)]);
  for (const sharding::ModelInput& input : model.inputs()) {
    const graph::Shape& shape = flow.shape(input.node);
    if (input.role == graph::InputRole::kFrozen && shape.is_array() && !shape.dims.empty()) seed(input);
  }
  const std::vector<bool> free = graph::find_free(flow);
  std::vector<NodeId> initial(at(flow.size()), kNone);
  for (const graph::FlowLoop& loop : flow.loops()) {
    for (std::size_t i = 0; i < loop.parameter.size(); ++i) initial[at(loop.parameter[i])] = loop.initial[i];
  }
  // Nodes come behind their operands, except for values that a turn of a loop hands to the next.
  for (bool changed = true; changed;) {
    const auto follow = [&](NodeId node, NodeId from) {
      const bool form = forms[at(from)] && (initial[at(node)] != kNone || keeps_dimensions(flow, node));
      if ((some[at(from)] && !some[at(node)]) || (others[at(from)] && !others[at(node)]) ||
          (form && !forms[at(node)])) {
        some[at(node)] = some[at(node)] || some[at(from)];
        others[at(node)] = others[at(node)] || others[at(from)];
        forms[at(node)] = forms[at(node)] || form;
        changed = true;
      }
    };
    for (NodeId node = 0; node < flow.size(); ++node) {
      const auto operands = flow.operands(node);
      if (initial[at(node)] != kNone) {
        follow(node, initial[at(node)]);
      } else if (operands.empty() && flow.node(node).opcode != Opcode::kParameter) {
        others[at(node)] = !free[at(node)];  // what comes from elsewhere
      }
      for (const NodeId operand : operands) follow(node, operand);
    }
    changed = false;  // by the next turns alone is another pass needed
    for (const graph::FlowLoop& loop : flow.loops()) {
      for (std::size_t i = 0; i < loop.parameter.size(); ++i) follow(loop.parameter[i], loop.next[i]);
    }
  }
  for (std::size_t node = 0; node < some.size(); ++node) {
    some[node] = some[node] && !others[node];
    forms[node] = forms[node] && some[node];
  }
  return {std::move(some), std::move(forms)};
}

bool has_batch_dimensions(const FlowGraph& flow, NodeId op) {
  const auto list = flow.graph().attribute(flow.node(op).instruction, "lhs_batch_dims");
  return list && *list != "{}";
}

// True if both operands and the result have the dimension.
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
  const Weights weights = weights_of(model);
  const std::vector<graph::Part> parts = parts_of(model);
  RowsOfWeights out{std::vector<bool>(at(linkage.num_groups()), false), std::vector<bool>(at(flow.size()), false)};
  std::vector<bool> own = out.groups;
  bool any_forward = false;
  for (NodeId op = 0; op < flow.size(); ++op) {
    const Opcode opcode = flow.node(op).opcode;
    if (opcode != Opcode::kDot && opcode != Opcode::kConvolution) continue;
    const auto operands = flow.operands(op);
    const auto of_weights =
        std::count_if(operands.begin(), operands.end(), [&](NodeId node) { return weights.made[at(node)]; });
    // A product of weights alone is a weight.
    if (of_weights == 0 || of_weights == static_cast<std::ptrdiff_t>(operands.size())) continue;
    out.products[at(op)] = true;
    any_forward = any_forward || parts[at(op)] != graph::Part::kBackward;
  }
  for (NodeId op = 0; op < flow.size(); ++op) {
    // In the backward pass learned queries are multiplied as if they were data, and their places are summed over. (A
    // step without a loss has no other.)
    if (!out.products[at(op)] || (any_forward && parts[at(op)] == graph::Part::kBackward)) continue;
    for (const sharding::OpFactor& factor : linkage.factors(op)) {
      bool has = false;
      for (const auto* dims : {&factor.members, &factor.in_parts}) {
        for (const TensorDim dim : *dims) {
          if (flow.producer(dim.node) == op) continue;
          has = has || weights.made[at(dim.node)];
          if (weights.forms[at(dim.node)]) own[at(factor.group)] = true;
        }
      }
      if (!has) out.groups[at(factor.group)] = true;
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
