#include "common/sharding/written_sums.h"

#include <algorithm>

#include "common/graph/hlo_attributes.h"

namespace automap::sharding {

namespace {

using graph::FlowGraph;
using graph::FlowNode;
using graph::Graph;
using graph::InstructionId;
using graph::Opcode;

// Fusions and asynchronous wrappers are one instruction to the partitioner: nothing in them can be marked.
bool in_open_computation(const FlowGraph& flow, NodeId node) {
  for (std::int32_t site = flow.node(node).site; site != kNone;) {
    const graph::CallSite& call = flow.sites()[static_cast<std::size_t>(site)];
    const Opcode caller = flow.graph().instruction(call.caller).opcode;
    if (caller != Opcode::kCall && caller != Opcode::kWhile && caller != Opcode::kConditional) return false;
    site = call.parent;
  }
  return true;
}

// True if the node is its instruction's result, an array, in a computation that goes on behind it.
bool can_write(const FlowGraph& flow, NodeId node) {
  const FlowNode& at = flow.node(node);
  const graph::Instruction& instruction = flow.graph().instruction(at.instruction);
  return at.leaf == kNone && at.opcode == instruction.opcode && flow.graph().shape_of(at.instruction).is_array() &&
         flow.graph().computation(instruction.computation).root != at.instruction &&
         flow.operands(node).size() == flow.graph().operands(at.instruction).size() && in_open_computation(flow, node);
}

// Parts of the features of groups are not the groups of parts.
bool has_groups(const Graph& graph, InstructionId id) {
  for (const char* key : {"feature_group_count", "batch_group_count"}) {
    const auto count = graph.attribute(id, key);
    if (count && *count != "1") return true;
  }
  return false;
}

}  // namespace

bool can_write_source(const ShardingModel& model, const OpFactor& factor, NodeId node) {
  const FlowGraph& flow = model.flow();
  const Graph& graph = model.graph();
  const InstructionId id = flow.node(node).instruction;
  if (node != factor.op || factor.reduction != Reduction::kAdd || !can_write(flow, node)) return false;
  switch (flow.node(node).opcode) {
    case Opcode::kDot: break;
    case Opcode::kReduce: break;
    case Opcode::kConvolution:
      if (has_groups(graph, id)) return false;
      break;
    default: return false;
  }
  return !parts_read(model, factor).empty();
}

bool can_write_step(const ShardingModel& model, NodeId node, const std::vector<bool>& partial) {
  const FlowGraph& flow = model.flow();
  const InstructionId id = flow.node(node).instruction;
  // An annotation is another opcode in the written module.
  if (!can_write(flow, node) || flow.node(node).opcode == Opcode::kCustomCall) return false;
  const auto operands = model.graph().operands(id);
  for (std::size_t i = 0; i < partial.size(); ++i) {
    const FlowNode& from = flow.node(flow.operands(node)[i]);
    if (partial[i] && (from.instruction != operands[i] || from.site != flow.node(node).site)) return false;
  }
  return true;
}

bool can_write_share(const ShardingModel& model, const graph::Shape& shape) {
  constexpr int kNarrowestBits = 16;
  const auto shards = static_cast<unsigned>(model.linkage().shards());
  const bool complex = shape.type == graph::ElementType::kC64 || shape.type == graph::ElementType::kC128;
  return (shards & (shards - 1)) == 0 && graph::is_float(shape) && !complex && shape.bits >= kNarrowestBits;
}

std::vector<SlotDim> parts_read(const ShardingModel& model, const OpFactor& factor) {
  const FlowGraph& flow = model.flow();
  const auto operands = flow.operands(factor.op);
  const auto slots = static_cast<std::int32_t>(operands.size());
  for (const Factor& rule : rule_of(model.graph(), flow.node(factor.op).instruction).factors) {
    if (rule.reduction != factor.reduction || rule.partial.empty()) continue;
    // The one that ties these members.
    std::vector<SlotDim> parts;
    std::size_t tied = 0;
    bool same = true;
    for (const SlotDim at : rule.dims) {
      if (at.slot >= slots) continue;
      const TensorDim dim{operands[static_cast<std::size_t>(at.slot)], at.dim};
      parts.push_back(at);
      if (model.linkage().is_free(dim.node)) continue;
      const bool member = std::find(factor.members.begin(), factor.members.end(), dim) != factor.members.end();
      same = same && member;
      tied += member;
    }
    if (same && tied > 0) return parts;
  }
  return {};
}

}  // namespace automap::sharding
