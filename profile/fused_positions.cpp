#include "profile/fused_positions.h"

#include <algorithm>
#include <unordered_set>

namespace automap::profile {

using graph::FlowGraph;
using graph::kNone;
using graph::NodeId;
using graph::Part;

FusedPositions::FusedPositions(const StepPositions& at, const FusedChains* fused) : at_(at), fused_(fused) {
  find_last_uses();
}

bool FusedPositions::is_inner(NodeId id) const {
  if (!any()) return false;
  const FlowGraph& flow = at_.flow();
  const graph::FlowNode& node = flow.node(id);
  const bool own =
      node.leaf == kNone || flow.graph().instruction(node.instruction).opcode == graph::Opcode::kGetTupleElement;
  return own && fused_->is_inner(node.instruction);
}

bool FusedPositions::is_dropped(NodeId id) const {
  if (!any()) return false;
  if (is_inner(id)) return true;
  const FlowGraph& flow = at_.flow();
  return at_.is_projection(id) &&
         fused_->dropped_leaves.count({flow.node(flow.producer(id)).instruction, flow.node(id).leaf}) != 0;
}

// Users first.
void FusedPositions::find_last_uses() {
  const FlowGraph& flow = at_.flow();
  last_use_.assign(static_cast<std::size_t>(flow.size()), kNone);
  std::vector<std::int32_t> read_at(last_use_.size(), kNone);
  for (NodeId id = flow.size(); id-- > 0;) {
    const auto i = static_cast<std::size_t>(id);
    std::int32_t last = kNone;
    for (const NodeId user : flow.users(id)) {
      if (at_.part(user) == Part::kForward && !at_.is_projection(user))
        last = std::max(last, read_at[static_cast<std::size_t>(user)]);
    }
    read_at[i] = is_inner(id) && last != kNone ? std::max(at_.position(id), last) : at_.position(id);
    last_use_[i] = std::max(at_.made_at(id), last);
  }
}

FusedPositions::Needs FusedPositions::needs_of(NodeId id) const {
  Needs needs;
  if (!is_inner(id)) return needs;
  const FlowGraph& flow = at_.flow();
  std::unordered_set<NodeId> seen{id};
  std::vector<NodeId> up{id}, down{id};
  while (!up.empty()) {
    const NodeId at = up.back();
    up.pop_back();
    for (const NodeId operand : flow.operands(at)) {
      if (!seen.insert(operand).second) continue;
      if (is_inner(operand)) {
        up.push_back(operand);
      } else {
        needs.values.push_back(operand);
      }
    }
  }
  // All of the chain that can be reached downwards from any of it, since statistics are taken in between.
  std::unordered_set<NodeId> below{id};
  while (!down.empty()) {
    const NodeId at = down.back();
    down.pop_back();
    for (const NodeId user : flow.users(at)) {
      if (at_.part(user) != Part::kForward || !below.insert(user).second) continue;
      if (is_inner(user)) {
        down.push_back(user);
        continue;
      }
      const FusedKernel* kernel = fused_->kernel_of(flow.node(user).instruction);
      if (kernel == nullptr || kernel->kind != FusedKernelKind::kAttention || flow.node(user).leaf != kNone) continue;
      needs.values.push_back(user);
      needs.kernels.push_back(user);
    }
  }
  std::sort(needs.values.begin(), needs.values.end());
  std::sort(needs.kernels.begin(), needs.kernels.end());
  return needs;
}

}  // namespace automap::profile
