#include "plan/partition/parts_of_sums.h"

#include <algorithm>
#include <map>
#include <set>

#include "common/sharding/reads.h"
#include "common/sharding/rule.h"
#include "common/sharding/written_sums.h"

namespace automap::partition {

namespace {

using graph::FlowGraph;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;
using sharding::Gather;
using sharding::GroupId;
using sharding::ShardingModel;
using sharding::TensorState;
using sharding::TensorStateKind;

// A partial sum of which every device keeps its part, as it arose or moved along.
struct Kept {
  std::int32_t dim = 0;
  GroupId reduced_over = kNone;  // whose partial sums it holds
  std::set<NodeId> makers;       // at whose gathers the parts are kept
};

class Mover {
 public:
  Mover(const ShardingModel& model, const sharding::Propagation& decided)
      : model_(model), flow_(model.flow()), decided_(decided) {
    kept_whole_.insert(flow_.results().begin(), flow_.results().end());
    for (const graph::FlowLoop& loop : flow_.loops()) {
      kept_whole_.insert(loop.initial.begin(), loop.initial.end());
      kept_whole_.insert(loop.next.begin(), loop.next.end());
    }
  }

  std::vector<Gather> move() {
    find_sources();
    for (NodeId node = 0; node < flow_.size(); ++node) pass(node);
    std::vector<Gather> out;
    for (const Gather& gather : model_.gathers()) {
      if (!sharding::is_made_whole(flow_, gather) || dropped_.count(gather.tensor) == 0) out.push_back(gather);
    }
    for (const auto& [node, dim] : added_) out.push_back({node, node, dim, Gather::Kind::kRead});
    return out;
  }

 private:
  void find_sources() {
    for (const auto& [node, dim] : sharding::kept_in_parts(model_, decided_)) {
      for (const sharding::OpFactor& factor : model_.linkage().factors(node)) {
        if (decided_.group_state(factor.group) != sharding::GroupState::kSplit) continue;
        if (sharding::can_write_source(model_, factor, node)) kept_[node] = {dim, factor.group, {node}};
      }
    }
  }

  // The dimension of the result that operand 0's passes to.
  std::int32_t passed_to(NodeId node, std::int32_t dim) const {
    const auto slots = static_cast<std::int32_t>(flow_.operands(node).size());
    for (const sharding::Factor& factor : sharding::rule_of(model_.graph(), flow_.node(node).instruction).factors) {
      if (std::find(factor.dims.begin(), factor.dims.end(), sharding::SlotDim{0, dim}) == factor.dims.end()) continue;
      for (const sharding::SlotDim at : factor.dims) {
        if (at.slot == slots) return at.dim;
      }
    }
    return kNone;
  }

  const Kept* read_alone(NodeId operand, NodeId reader) const {
    const auto found = kept_.find(operand);
    if (found == kept_.end() || kept_whole_.count(operand) != 0) return nullptr;
    const auto users = flow_.users(operand);
    return std::all_of(users.begin(), users.end(), [&](NodeId user) { return user == reader; }) ? &found->second
                                                                                                : nullptr;
  }

  void pass(NodeId node) {
    const auto operands = flow_.operands(node);
    const Opcode opcode = flow_.node(node).opcode;
    const bool adds = operands.size() == 2 && (opcode == Opcode::kAdd || opcode == Opcode::kSubtract);
    const bool moves = operands.size() == 1 && (opcode == Opcode::kReshape || opcode == Opcode::kTranspose ||
                                                opcode == Opcode::kCopy || opcode == Opcode::kNegate);
    if ((!adds && !moves) || !sharding::can_write_step(model_, node, std::vector<bool>(operands.size(), true))) return;
    const Kept* const one = read_alone(operands[0], node);
    const Kept* const other = adds ? read_alone(operands[1], node) : one;
    if (one == nullptr || other == nullptr || one->dim != other->dim || one->reduced_over != other->reduced_over)
      return;
    const TensorState state = decided_.state(node);
    Kept out = *one;
    out.dim = passed_to(node, one->dim);
    if (state.kind != TensorStateKind::kSplit || state.dim != out.dim) return;
    if (adds) {
      for (const Kept* sum : {one, other}) drop(sum->makers);
      added_[node] = out.dim;
      out.makers = {node};
    }
    kept_[node] = std::move(out);
  }

  void drop(const std::set<NodeId>& makers) {
    for (const NodeId maker : makers) {
      if (added_.erase(maker) == 0) dropped_.insert(maker);
    }
  }

  const ShardingModel& model_;
  const FlowGraph& flow_;
  const sharding::Propagation& decided_;
  std::set<NodeId> kept_whole_;
  std::map<NodeId, Kept> kept_;
  std::set<NodeId> dropped_;              // what keeps its parts no more where it is made
  std::map<NodeId, std::int32_t> added_;  // what does instead
};

}  // namespace

std::vector<Gather> gathers_behind_sums(const ShardingModel& model, const sharding::Propagation& decided) {
  return Mover(model, decided).move();
}

}  // namespace automap::partition
