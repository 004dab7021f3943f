// Which dimensions of which tensors of a module can only be split together.
//
// Factors (rule.h) tie dimensions of the tensors of one instruction; tied through the whole module they make *linkage
// groups*: a group is split as a whole or not at all. Two groups exclude each other when they hold two dimensions of
// one tensor or two factors of one instruction. A group that excludes itself, or holds a blocked or indivisible
// dimension, cannot be split: its obstacles say where. So everything a decision forces is its group, and everything it
// forbids are the group's neighbours; both are found once, in time linear in the module, and deciding is a lookup
// (propagation.h).
//
// Why that is complete: after any decisions without conflict, leaving everything undecided whole is a solution, because
// no rule demands that anything be split. So the result of propagation is exact, does not depend on the order of the
// decisions, and a search never has to backtrack out of a dead end. tests/common/sharding compares with brute force.
//
// Free tensors (made of constants, iota and scalars alone) are made again at every use: they take any splitting, tie
// nothing and are in no group.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/span.h"
#include "common/graph/dependence.h"
#include "common/sharding/rule.h"

namespace automap::sharding {

using graph::kNone;
using graph::NodeId;
using GroupId = std::int32_t;

struct TensorDim {
  NodeId node = kNone;
  std::int32_t dim = 0;
  bool operator==(const TensorDim& other) const { return node == other.node && dim == other.dim; }
};

// Why a group cannot be split.
struct Obstacle {
  enum class Kind : std::uint8_t {
    kIndivisible,  // at `a`: shards do not divide its extent (or the factor's extent at `op`)
    kBlocked,      // `op` blocks `a` (`block` says why)
    kTwoDims,      // `a` and `b` are two dimensions of one tensor
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
  Span<const TensorDim> members;  // operands first, then results
  Span<const NodeId> partial;     // results that hold partial sums while the group is split
};

// A tensor that an instruction reads whole although it is split elsewhere: an all-gather before it. What ends a group
// there.
struct Gather {
  NodeId op = kNone;  // the reading instruction (or the making one, when tensor is its result: then a local slice)
  NodeId tensor = kNone;
  std::int32_t dim = 0;  // the dimension that does not pass
  bool operator==(const Gather& other) const { return op == other.op && tensor == other.tensor && dim == other.dim; }
};

// Two nodes with the same shape that must be split alike though no instruction ties them: a variable and its updated
// value, the state of a loop before and after one turn.
using Tie = std::pair<NodeId, NodeId>;

struct LinkageOptions {
  int shards = 8;         // devices of the mesh axis, >= 1
  std::vector<Tie> ties;  // besides those of the flow's loops
  std::vector<Gather> gathers;
};

class Linkage {
 public:
  // `flow` must stay alive. Throws Error(kUsage) when shards < 1 (shards 1: every group is possible).
  static Linkage build(const graph::FlowGraph& flow, const LinkageOptions& options);

  const graph::FlowGraph& flow() const { return *flow_; }
  int shards() const { return shards_; }

  // Made again at every use, see above; scalars count as free.
  bool is_free(NodeId node) const { return free_[static_cast<std::size_t>(node)]; }
  // An array of rank >= 1 that is not free: what groups are made of.
  bool is_tensor(NodeId node) const;

  GroupId num_groups() const;
  // kNone for dimensions of extent 1 and of nodes that are no tensors.
  GroupId group_of(NodeId node, std::int32_t dim) const;
  GroupId group_of(TensorDim at) const { return group_of(at.node, at.dim); }
  // Ascending by node.
  Span<const TensorDim> members(GroupId group) const;
  // Members that are entry inputs (parameters): what can be decided. A group without any is never split.
  Span<const TensorDim> inputs(GroupId group) const;
  bool possible(GroupId group) const { return obstacles(group).empty(); }
  // All of them, in node order (at most kMaxObstacles are kept per group).
  static constexpr std::size_t kMaxObstacles = 1000;
  Span<const Obstacle> obstacles(GroupId group) const;
  // Groups that exclude it, ascending; only between possible groups that have inputs.
  Span<const GroupId> neighbours(GroupId group) const;
  // Where two neighbours meet: the first instruction or tensor in node order. Slow: for explanations.
  Obstacle meeting(GroupId a, GroupId b) const;

  // The factors of one instruction, and all factors of a group in node order.
  Span<const OpFactor> factors(NodeId op) const;
  Span<const std::int32_t> factors_of_group(GroupId group) const;  // indices for factor()
  const OpFactor& factor(std::int32_t index) const { return factors_[static_cast<std::size_t>(index)]; }
  // The dimensions that `op` blocks, as nodes.
  struct BlockedMember {
    TensorDim at;
    Block why;
  };
  std::vector<BlockedMember> blocked(NodeId op) const;

 private:
  friend class LinkageBuilder;
  const graph::FlowGraph* flow_ = nullptr;
  int shards_ = 1;
  std::vector<bool> free_;
  std::vector<OpFactor> factors_;
  // linkage.cpp adds what it needs here.
};

}  // namespace automap::sharding
