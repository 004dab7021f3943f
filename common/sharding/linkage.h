// Finds the dimensions of a module's tensors that can only be split together.
//
// Factors (rule.h) tie dimensions of the tensors of one instruction; tied through the whole module they make *linkage
// groups*: a group is split as a whole or not at all. Two groups exclude each other when they hold two dimensions of
// one tensor or two factors of one instruction that have a tensor in common (as a member, or with partial sums; all but
// those of an all-reduce of several tensors have one). A group that excludes itself, or holds a blocked or indivisible
// dimension, cannot be split: its obstacles say where. So everything a decision forces is its group, and everything it
// forbids are the group's neighbours; both are found once, in time linear in the module, and deciding is a lookup
// (propagation.h).
//
// Why that is complete: after any decisions without conflict, leaving everything undecided whole is a solution, because
// no rule demands that anything be split. So the result of propagation is exact, does not depend on the order of the
// decisions, and a search never has to backtrack out of a dead end. tests/common/sharding compares with brute force.
//
// Free tensors (made of constants, iota and scalars alone) are made again at every use: they take any splitting, tie
// nothing and are in no group. Parameters, loop parameters, random numbers, custom-calls, loops that were not expanded
// and values from outside (infeed, recv) are never free, unless they are scalars: those count as free wherever they
// come from. A free initial value of a loop is left out of the loop's ties: the loop's parameter is not free.
//
// Instructions that the flow graph has expanded follow rules of their own here: the joined result of a conditional and
// the elements of an optimization barrier are as their operands are; instructions that it could not expand (loops,
// calls, fusions) block everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "common/base/span.h"
#include "common/graph/dependence.h"
#include "common/sharding/rule.h"

namespace automap::sharding {

// at() of common/base/numbers.h, for where `at` is a dimension.
inline std::size_t index(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

using graph::kNone;
using graph::NodeId;
using GroupId = std::int32_t;

struct TensorDim {
  NodeId node = kNone;
  std::int32_t dim = 0;
  bool operator==(const TensorDim& other) const { return node == other.node && dim == other.dim; }
};

// A reason why a group cannot be split.
struct Obstacle {
  enum class Kind : std::uint8_t {
    kIndivisible,  // at `a`: shards do not divide its extent (op kNone), or the extent of its factor at `op`
    kBlocked,      // `op` blocks `a` (`block` says why)
    kTwoDims,      // `a` and `b` are two dimensions of one tensor (op kNone)
    kTwoFactors,   // `op` would be split by two factors at once; `a` and `b` are members of the one and the other
    kGathered,     // `a` is whole at `op` because of a gather (LinkageOptions::gathers)
  };
  Kind kind = Kind::kBlocked;
  NodeId op = kNone;
  TensorDim a, b;
  Block block = Block::kOpaque;
  std::int64_t extent = 0;  // kIndivisible
};

// One factor of one instruction of the flow, with the nodes behind its slots; members that are free are left out.
struct OpFactor {
  NodeId op = kNone;
  GroupId group = kNone;
  Reduction reduction = Reduction::kNone;
  std::int64_t extent = 0;         // what the shards must divide, beside the members' own
  Span<const TensorDim> members;   // operands first, then results
  Span<const NodeId> partial;      // results that hold partial sums while the group is split
  const Halo* halo = nullptr;      // what devices take of their neighbours' parts of `members[0]`; null: nothing
  Span<const TensorDim> in_parts;  // operands that it takes its part of, whole as they lie (Gather::Kind::kInParts)
};

// A tensor that an instruction reads whole although it is split elsewhere: an all-gather before it, which ends a group
// there. Exactly:
//   - `op` is not split by a factor that holds the dimension, in whatever slot holds `tensor` (the factor is closed: it
//     ties nothing, reduces nothing and is none of factors(op));
//   - the members of a closed factor that no gather of `op` names are whole at `op`: obstacles kGathered of their
//     groups. So a gathered operand of an addition takes the group of the result with it, until the other operand and
//     the result are named too (the addition is then made whole on every device, and its result sliced where it is
//     needed);
//   - a dimension that `op` blocks and a gather of `op` names is no obstacle;
//   - other factors of `op` are as they were: with the right side of dot(x, transpose(x)) gathered over the batch, the
//     left side's batch still goes to the result's rows.
// Gathers of free tensors and of dimensions that are in no factor of `op` do nothing.
//
// Four more kinds, for tensors that are stored otherwise than they are computed with (plan/partition/stored_parts.h),
// or read otherwise than they were made (plan/partition/resharding.h):
//   - kInParts: `op` reads `tensor`, which is whole, in parts: nothing moves. The member alone leaves its factor, all
//     others stay; the tensor cannot be split by that dimension (obstacle kGathered of its group).
//   - kHandedOn: `op` is one side of a tie and `tensor` the other: the tie does not hold for the dimension, and the
//     tensor is gathered once for `op` (the new value of a variable that is stored whole).
//   - kExchanged: as kRead, but `op` reads the tensor in parts along another dimension (a kInParts of the same two): an
//     all-to-all takes it from the one to the other. With kRead instead it is gathered, and a part taken of that.
//   - kBegun: `op` makes `tensor`, which is split by the dimension although no input decides that: the member counts as
//     an input of its group, which can so be decided. Nothing moves by it.
struct Gather {
  enum class Kind : std::uint8_t { kRead, kInParts, kHandedOn, kExchanged, kBegun };

  NodeId op = kNone;  // the reading instruction (or the making one, when tensor is its result: then a local slice)
  NodeId tensor = kNone;
  std::int32_t dim = 0;  // the dimension that does not pass
  Kind kind = Kind::kRead;
  bool operator==(const Gather& other) const {
    return op == other.op && tensor == other.tensor && dim == other.dim && kind == other.kind;
  }
};

// True if the gather's own instruction makes the tensor, whole, and every device keeps its part: nothing moves.
bool is_made_whole(const graph::FlowGraph& flow, const Gather& gather);

// Two nodes with the same shape that must be split alike though no instruction ties them: a variable and its updated
// value, the state of a loop before and after one turn. Nodes whose dimensions differ and free nodes are not tied.
using Tie = std::pair<NodeId, NodeId>;

struct LinkageOptions {
  int shards = 8;         // devices of the mesh axis, >= 1
  std::vector<Tie> ties;  // besides those of the flow's loops
  std::vector<Gather> gathers;
  // Windows may exchange borders (OpRule::halo_factors) where one neighbour's part is enough; else dimensions that need
  // them are blocked.
  bool halos = false;
};

// rule_of, or what a test puts in its place.
using RuleFunction = std::function<OpRule(const graph::Graph&, graph::InstructionId)>;

class Linkage {
 public:
  // `flow` must stay alive. Throws Error(kUsage) when shards < 1 or when a gather or a tie names no node of the flow.
  // One shard divides everything: no group is indivisible then, the other obstacles stay.
  static Linkage build(const graph::FlowGraph& flow, const LinkageOptions& options);
  static Linkage build(const graph::FlowGraph& flow, const LinkageOptions& options, const RuleFunction& rules);

  // Spans point into it.
  Linkage(const Linkage&) = delete;
  Linkage& operator=(const Linkage&) = delete;
  Linkage(Linkage&&) = default;
  Linkage& operator=(Linkage&&) = default;

  const graph::FlowGraph& flow() const { return *flow_; }
  int shards() const { return shards_; }

  // Made again at every use, see above; scalars count as free, and so do values that are no arrays.
  bool is_free(NodeId node) const { return free_[static_cast<std::size_t>(node)]; }
  // An array of rank >= 1 that is not free: groups consist of the dimensions of such tensors.
  bool is_tensor(NodeId node) const { return first_dim_[index(node)] != first_dim_[index(node) + 1]; }

  GroupId num_groups() const { return static_cast<GroupId>(first_obstacle_.size()) - 1; }
  // kNone for dimensions of extent 1 or 0, of nodes that are no tensors, and for dimensions that do not exist.
  GroupId group_of(NodeId node, std::int32_t dim) const {
    if (node < 0 || index(node) + 1 >= first_dim_.size() || dim < 0) return kNone;
    const std::int32_t at = first_dim_[index(node)] + dim;
    return at < first_dim_[index(node) + 1] ? group_of_dim_[static_cast<std::size_t>(at)] : kNone;
  }
  GroupId group_of(TensorDim at) const { return group_of(at.node, at.dim); }
  // The groups of all dimensions of a node, kNone as above; empty when it is no tensor.
  Span<const GroupId> groups_of(NodeId node) const { return slice(group_of_dim_, first_dim_, node); }
  // Ascending by node.
  Span<const TensorDim> members(GroupId group) const { return slice(members_, first_member_, group); }
  // Members that can be decided: entry inputs (parameters), or begun by a gather. A group without any is never split.
  Span<const TensorDim> inputs(GroupId group) const { return slice(inputs_, first_input_, group); }
  bool possible(GroupId group) const { return obstacles(group).empty(); }
  // Can be split by a decision: possible, and has inputs.
  bool decidable(GroupId group) const { return possible(group) && !inputs(group).empty(); }
  // All of them, in node order (at most kMaxObstacles are kept per group).
  static constexpr std::size_t kMaxObstacles = 1000;
  Span<const Obstacle> obstacles(GroupId group) const { return slice(obstacles_, first_obstacle_, group); }
  // Groups that exclude it, ascending; only between decidable groups.
  Span<const GroupId> neighbours(GroupId group) const { return slice(neighbours_, first_neighbour_, group); }
  // The place where two neighbours meet: the first instruction or tensor in node order (kTwoDims before kTwoFactors at
  // the same node; `a` is of group a). a.node is kNone when they do not. Takes time linear in the smaller group.
  Obstacle meeting(GroupId a, GroupId b) const;

  // The factors of one instruction, and all factors of a group in node order. A factor all of whose members are free is
  // left out. The node of an instruction with several results is the unit, not its projections.
  Span<const OpFactor> factors(NodeId op) const { return slice(factors_, first_factor_, op); }
  Span<const std::int32_t> factors_of_group(GroupId group) const {  // indices for factor()
    return slice(factors_by_group_, first_factor_of_group_, group);
  }
  std::int32_t num_factors() const { return static_cast<std::int32_t>(factors_.size()); }
  const OpFactor& factor(std::int32_t i) const { return factors_[static_cast<std::size_t>(i)]; }
  // The dimensions that `op` blocks, as nodes (those that are in a group, and that no gather names).
  struct BlockedMember {
    TensorDim at;
    Block why = Block::kOpaque;
  };
  Span<const BlockedMember> blocked(NodeId op) const { return slice(blocked_, first_blocked_, op); }
  // The ties that hold: those of the options and of the flow's loops, without free nodes.
  const std::vector<Tie>& ties() const { return ties_; }

 private:
  friend class LinkageBuilder;
  Linkage() = default;
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  template <typename T>
  static Span<const T> slice(const std::vector<T>& values, const std::vector<std::int32_t>& first, std::int32_t i) {
    return Span<const T>(values.data() + first[index(i)], index(first[index(i) + 1] - first[index(i)]));
  }

  const graph::FlowGraph* flow_ = nullptr;
  int shards_ = 1;
  std::vector<bool> free_;
  // Pairs of a flat vector and where the part of each node or group begins (one more entry than there are).
  std::vector<GroupId> group_of_dim_;
  std::vector<TensorDim> members_, inputs_;
  std::vector<Obstacle> obstacles_;
  std::vector<GroupId> neighbours_;
  std::vector<OpFactor> factors_;
  std::vector<std::int32_t> factors_by_group_;
  std::vector<BlockedMember> blocked_;
  std::vector<std::int32_t> first_dim_, first_factor_, first_blocked_;  // by node
  std::vector<std::int32_t> first_member_, first_input_, first_obstacle_, first_neighbour_, first_factor_of_group_;
  std::vector<TensorDim> factor_members_, factor_in_parts_;
  std::vector<NodeId> factor_partials_;
  std::vector<Halo> halos_;
  std::vector<Tie> ties_;
};

}  // namespace automap::sharding
