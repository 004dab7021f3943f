#include "plan/systems/soap/operator_dims.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "common/base/numbers.h"

namespace automap::soap {

using graph::NodeId;
using graph::Opcode;

bool OperatorDims::is_tensor(NodeId node) const {
  return !free_[at(node)] && flow_.shape(node).is_array() && !flow_.shape(node).dims.empty();
}

// Operands, then results, as rules number them (common/sharding/linkage.cpp).
std::vector<NodeId> OperatorDims::slots_of(NodeId node, bool* own_slots) const {
  const auto operands = flow_.operands(node);
  std::vector<NodeId> slots(operands.begin(), operands.end());
  if (!flow_.shape(node).is_tuple()) {
    slots.push_back(node);
  } else {
    std::int32_t leaf = 0;
    for (NodeId next = node + 1; next < flow_.size(); ++next, ++leaf) {
      const graph::FlowNode& projection = flow_.node(next);
      if (projection.opcode != Opcode::kGetTupleElement || projection.leaf != leaf || flow_.producer(next) != node)
        break;
      slots.push_back(next);
    }
  }
  const graph::FlowNode& flow_node = flow_.node(node);
  *own_slots = flow_node.num_operands == flow_.graph().instruction(flow_node.instruction).num_operands;
  return slots;
}

std::int32_t OperatorDims::index(NodeDim where) {
  const auto [it, added] = index_.try_emplace(where, static_cast<std::int32_t>(parent_.size()));
  if (added) {
    parent_.push_back(it->second);
    classes_.emplace_back();
    classes_.back().extent = flow_.shape(where.first).dims[at(where.second)];
    classes_.back().members.push_back(where);
  }
  return it->second;
}

std::int32_t OperatorDims::root(std::int32_t i) const {
  while (parent_[at(i)] != i) i = parent_[at(i)] = parent_[at(parent_[at(i)])];
  return i;
}

void OperatorDims::join(std::int32_t a, std::int32_t b) {
  a = root(a);
  b = root(b);
  if (a == b) return;
  if (classes_[at(a)].members.size() < classes_[at(b)].members.size()) std::swap(a, b);
  Class &to = classes_[at(a)], &from = classes_[at(b)];
  parent_[at(b)] = a;
  to.blocked = to.blocked || from.blocked;
  to.reduced = to.reduced || from.reduced;
  to.extent = std::gcd(to.extent, from.extent);
  to.members.insert(to.members.end(), from.members.begin(), from.members.end());
  from.members.clear();
}

std::int32_t OperatorDims::member(const std::vector<NodeId>& slots, sharding::SlotDim where) {
  if (where.slot < 0 || at(where.slot) >= slots.size()) return graph::kNone;
  const NodeId node = slots[at(where.slot)];
  if (!is_tensor(node)) return graph::kNone;
  const auto& dims = flow_.shape(node).dims;
  if (where.dim < 0 || at(where.dim) >= dims.size() || dims[at(where.dim)] <= 1) return graph::kNone;
  return index({node, where.dim});
}

void OperatorDims::add_factor(const std::vector<NodeId>& slots, const sharding::Factor& factor) {
  std::int32_t first = graph::kNone;
  for (const sharding::SlotDim& where : factor.dims) {
    const std::int32_t i = member(slots, where);
    if (i == graph::kNone) continue;
    if (first == graph::kNone) first = i;
    join(first, i);
  }
  if (first == graph::kNone) return;
  Class& joined = classes_[at(root(first))];
  joined.extent = std::gcd(joined.extent, factor.extent);
  joined.reduced = joined.reduced || factor.reduction != sharding::Reduction::kNone;
  factors_.back().push_back(first);
}

// All slots from `first` on are of the same dimensions, and split alike.
void OperatorDims::add_identity(const std::vector<NodeId>& slots, std::size_t first) {
  factors_.emplace_back();
  const auto& dims = flow_.shape(slots.back()).dims;
  for (std::size_t slot = first; slot < slots.size(); ++slot) {
    if (!flow_.shape(slots[slot]).is_array() || flow_.shape(slots[slot]).dims != dims) return block_all(slots);
  }
  for (std::size_t dim = 0; dim < dims.size(); ++dim) {
    sharding::Factor factor;
    factor.extent = dims[dim];
    for (std::size_t slot = first; slot < slots.size(); ++slot)
      factor.dims.push_back({static_cast<std::int32_t>(slot), static_cast<std::int32_t>(dim)});
    add_factor(slots, factor);
  }
}

void OperatorDims::block_all(const std::vector<NodeId>& slots) {
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    if (!is_tensor(slots[slot])) continue;
    for (std::size_t dim = 0; dim < flow_.shape(slots[slot]).dims.size(); ++dim) {
      const std::int32_t i = member(slots, {static_cast<std::int32_t>(slot), static_cast<std::int32_t>(dim)});
      if (i != graph::kNone) classes_[at(root(i))].blocked = true;
    }
  }
}

bool OperatorDims::add_border(NodeId node, std::int32_t dim, const sharding::Halo& halo) {
  if (!is_tensor(node)) return false;
  Border& border = borders_[{node, dim}];
  border.left = std::max(border.left, halo.left);
  border.right = std::max(border.right, halo.right);
  return true;
}

void OperatorDims::tie(NodeId a, NodeId b) {
  if (a == b || !is_tensor(a) || !is_tensor(b) || flow_.shape(a).dims != flow_.shape(b).dims) return;
  for (std::size_t d = 0; d < flow_.shape(a).dims.size(); ++d) {
    const auto dim = static_cast<std::int32_t>(d);
    const std::int32_t i = member({a}, {0, dim});
    if (i != graph::kNone) join(i, member({b}, {0, dim}));
  }
}

void OperatorDims::finish() {
  // Two dimensions of one tensor, or two factors of one instruction, cannot be split as one.
  std::set<std::pair<NodeId, std::int32_t>> of_node;
  for (const auto& [where, i] : index_) {
    if (!of_node.emplace(where.first, root(i)).second) classes_[at(root(i))].blocked = true;
  }
  for (const std::vector<std::int32_t>& factors : factors_) {
    std::set<std::int32_t> seen;
    for (const std::int32_t i : factors) {
      if (!seen.insert(root(i)).second) classes_[at(root(i))].blocked = true;
    }
  }
}

std::int32_t OperatorDims::class_of(NodeId node, std::int32_t dim) const {
  const auto it = index_.find({node, dim});
  return it == index_.end() ? graph::kNone : root(it->second);
}

OperatorDims::Border OperatorDims::border(NodeId node, std::int32_t dim) const {
  const auto it = borders_.find({node, dim});
  return it == borders_.end() ? Border() : it->second;
}

void OperatorDims::add(NodeId node, const std::function<bool(NodeId)>& own) {
  const graph::FlowNode& flow_node = flow_.node(node);
  if (flow_node.opcode == Opcode::kGetTupleElement || flow_node.opcode == Opcode::kParameter) return;
  bool own_slots = false;
  const std::vector<NodeId> slots = slots_of(node, &own_slots);
  if (flow_node.opcode == Opcode::kConditional && flow_node.leaf != graph::kNone) return add_identity(slots, 1);
  if (flow_node.opcode == Opcode::kOptBarrier && flow_node.leaf != graph::kNone) return add_identity(slots, 0);
  if (!own_slots) return block_all(slots);
  const sharding::OpRule rule = sharding::rule_of(flow_.graph(), flow_node.instruction);
  factors_.emplace_back();
  for (const sharding::Factor& factor : rule.factors) add_factor(slots, factor);
  std::vector<sharding::SlotDim> split;  // though blocked
  for (const sharding::Factor& factor : rule.halo_factors) {
    const std::int32_t of = factor.halo.of.slot;
    if (of < 0 || at(of) >= slots.size()) continue;
    const NodeId operand = slots[at(of)];
    if (own(operand) || !add_border(operand, factor.halo.of.dim, factor.halo)) continue;
    add_factor(slots, factor);
    split.insert(split.end(), factor.dims.begin(), factor.dims.end());
  }
  for (const sharding::BlockedDim& blocked : rule.blocked) {
    bool crossed = false;
    for (const sharding::SlotDim& where : split) crossed = crossed || where == blocked.at;
    const std::int32_t i = crossed ? graph::kNone : member(slots, blocked.at);
    if (i != graph::kNone) classes_[at(root(i))].blocked = true;
  }
}

}  // namespace automap::soap
