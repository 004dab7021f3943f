#include "common/sharding/propagation.h"

namespace automap::sharding {

namespace {

Conflict conflict(Conflict::Kind kind, TensorDim wanted, GroupId group) {
  Conflict out;
  out.kind = kind;
  out.wanted = wanted;
  out.group = group;
  return out;
}

}  // namespace

Propagation::Propagation(const Linkage& linkage)
    : linkage_(&linkage),
      state_(index(linkage.num_groups()), GroupState::kImpossible),
      split_neighbours_(index(linkage.num_groups()), 0),
      decided_by_(index(linkage.num_groups())) {
  for (GroupId group = 0; group < linkage.num_groups(); ++group) {
    if (!linkage.decidable(group)) continue;
    state_of(group) = GroupState::kUndecided;
    ++num_undecided_;
  }
}

std::optional<Conflict> Propagation::check_split(GroupId group, TensorDim at) const {
  switch (group_state(group)) {
    case GroupState::kUndecided:
    case GroupState::kSplit: return std::nullopt;
    case GroupState::kImpossible: return conflict(Conflict::Kind::kImpossible, at, group);
    case GroupState::kWhole: {
      Conflict out = conflict(Conflict::Kind::kWhole, at, group);
      out.earlier = decided_by(group);
      return out;
    }
    case GroupState::kExcluded: break;
  }
  Conflict out = conflict(Conflict::Kind::kExcluded, at, group);
  for (const GroupId other : linkage_->neighbours(group)) {
    if (group_state(other) != GroupState::kSplit) continue;
    out.other = other;
    out.earlier = decided_by(other);
    break;
  }
  return out;
}

void Propagation::decide(GroupId group, GroupState state, TensorDim at) {
  const GroupState before = group_state(group);
  trail_.push_back({group, before});
  state_of(group) = state;
  decided_by_[index(group)] = at.node != kNone ? at : linkage_->inputs(group)[0];
  if (before == GroupState::kUndecided) --num_undecided_;
  if (state != GroupState::kSplit) return;
  for (const GroupId other : linkage_->neighbours(group)) {
    ++split_neighbours_[index(other)];
    if (group_state(other) != GroupState::kUndecided) continue;
    state_of(other) = GroupState::kExcluded;
    --num_undecided_;
  }
}

std::optional<Conflict> Propagation::split(TensorDim at) {
  const GroupId group = linkage_->group_of(at);
  if (group == kNone) return conflict(Conflict::Kind::kNoGroup, at, kNone);
  return split_group(group, at);
}

std::optional<Conflict> Propagation::split_group(GroupId group, TensorDim decided) {
  if (group < 0 || group >= linkage_->num_groups()) return conflict(Conflict::Kind::kNoGroup, decided, kNone);
  std::optional<Conflict> out = check_split(group, decided);
  if (!out && group_state(group) == GroupState::kUndecided) decide(group, GroupState::kSplit, decided);
  return out;
}

std::optional<Conflict> Propagation::keep_whole(TensorDim at) {
  const graph::FlowGraph& flow = linkage_->flow();
  if (at.node < 0 || at.node >= flow.size() || at.dim < 0 || index(at.dim) >= flow.shape(at.node).dims.size())
    return conflict(Conflict::Kind::kNoGroup, at, kNone);
  const GroupId group = linkage_->group_of(at);
  if (group == kNone) return std::nullopt;
  switch (group_state(group)) {
    case GroupState::kWhole:
    case GroupState::kImpossible: return std::nullopt;
    case GroupState::kSplit: {
      Conflict out = conflict(Conflict::Kind::kSplit, at, group);
      out.earlier = decided_by(group);
      return out;
    }
    case GroupState::kUndecided:
    case GroupState::kExcluded: break;
  }
  decide(group, GroupState::kWhole, at);
  return std::nullopt;
}

std::optional<Conflict> Propagation::keep_whole(NodeId node) {
  if (node < 0 || node >= linkage_->flow().size()) return conflict(Conflict::Kind::kNoGroup, {node, 0}, kNone);
  const std::size_t before = mark();
  for (std::size_t dim = 0; dim < linkage_->groups_of(node).size(); ++dim) {
    std::optional<Conflict> out = keep_whole(TensorDim{node, static_cast<std::int32_t>(dim)});
    if (!out) continue;
    undo(before);
    return out;
  }
  return std::nullopt;
}

void Propagation::undo(std::size_t mark) {
  while (trail_.size() > mark) {
    const auto [group, before] = trail_.back();
    trail_.pop_back();
    if (group_state(group) == GroupState::kSplit) {
      for (const GroupId other : linkage_->neighbours(group)) {
        if (--split_neighbours_[index(other)] > 0 || group_state(other) != GroupState::kExcluded) continue;
        state_of(other) = GroupState::kUndecided;
        ++num_undecided_;
      }
    }
    state_of(group) = before;
    decided_by_[index(group)] = {};
    if (before == GroupState::kUndecided) ++num_undecided_;
  }
}

TensorState Propagation::state(NodeId node) const {
  TensorState out;
  const Span<const GroupId> groups = linkage_->groups_of(node);
  for (std::size_t dim = 0; dim < groups.size(); ++dim) {
    if (groups[dim] == kNone) continue;
    const GroupState group = group_state(groups[dim]);
    if (group == GroupState::kSplit) {
      out.kind = TensorStateKind::kSplit;
      out.dim = static_cast<std::int32_t>(dim);
      break;
    }
    if (group == GroupState::kUndecided) out.kind = TensorStateKind::kUndecided;
  }
  for (const OpFactor& factor : linkage_->factors(linkage_->flow().producer(node))) {
    if (factor.partial.empty() || group_state(factor.group) != GroupState::kSplit) continue;
    for (const NodeId partial : factor.partial) {
      if (partial == node) out.partial = factor.reduction;
    }
  }
  return out;
}

TensorDim Propagation::decided_by(GroupId group) const {
  return decided_by_[index(group)];
}

std::vector<GroupId> Propagation::split_groups() const {
  std::vector<GroupId> out;
  for (const Change& change : trail_) {
    if (group_state(change.group) == GroupState::kSplit) out.push_back(change.group);
  }
  return out;
}

std::vector<GroupId> Propagation::undecided() const {
  std::vector<GroupId> out;
  if (complete()) return out;
  for (GroupId group = 0; group < linkage_->num_groups(); ++group) {
    if (group_state(group) == GroupState::kUndecided) out.push_back(group);
  }
  return out;
}

std::vector<NodeId> Propagation::stuck() const {
  std::vector<NodeId> out;
  if (complete()) return out;
  for (NodeId node = 0; node < linkage_->flow().size(); ++node) {
    for (const GroupId group : linkage_->groups_of(node)) {
      if (group == kNone || group_state(group) != GroupState::kUndecided) continue;
      out.push_back(node);
      break;
    }
  }
  return out;
}

}  // namespace automap::sharding
