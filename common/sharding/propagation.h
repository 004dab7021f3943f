// Completes decisions about the splittings of a module's inputs to every tensor; undone in constant time per step.
//
//   Propagation p(linkage);
//   const Outcome o = p.split({wte, 0});    // o.conflict: nothing has changed
//   p.state(node);                          // split along dim 2
//   p.undo(mark);
//
// A decision is about a linkage group: split(tensor, dim) splits its group and rules its neighbours out; keep_whole
// rules groups out. The order of decisions does not matter (linkage.h says why). Costs: split and undo take time in
// proportion to the group's neighbours, state() a lookup.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/sharding/linkage.h"

namespace automap::sharding {

enum class GroupState : std::uint8_t {
  kUndecided,
  kSplit,
  kWhole,       // decided: not split
  kExcluded,    // a neighbour is split
  kImpossible,  // Linkage::possible() is false, or nobody can decide it (no inputs)
};

enum class TensorStateKind : std::uint8_t {
  kUndecided,   // some dimension can still be split
  kReplicated,  // whole on every device
  kSplit,       // along `dim`
};
struct TensorState {
  TensorStateKind kind = TensorStateKind::kReplicated;
  std::int32_t dim = kNone;
  // The instruction that makes it leaves partial sums on the devices, by this reduction; whoever reads it (other than
  // linear instructions, collectives.h) reads the reduced, replicated value.
  Reduction partial = Reduction::kNone;
};

// Two decisions that collide, or one that cannot be. Values: explain.h turns them into text with chains.
struct Conflict {
  enum class Kind : std::uint8_t {
    kImpossible,  // the group itself cannot be split: Linkage::obstacles(group)
    kExcluded,    // `other` is split, and excludes it
    kWhole,       // an earlier decision keeps it whole
    kNoGroup,     // the dimension has extent 1 or 0, or the node is no tensor
    kSplit,       // keep_whole() of what is split already
  };
  Kind kind = Kind::kImpossible;
  TensorDim wanted;       // what was decided now
  GroupId group = kNone;  // its group
  GroupId other = kNone;  // kExcluded: the split neighbour
  TensorDim earlier;      // the decision it collides with (the input that was decided); node kNone: none
};

class Propagation {
 public:
  explicit Propagation(const Linkage& linkage);  // which must stay alive

  // nullopt: done (or it was so already). A conflict changes nothing.
  std::optional<Conflict> split(TensorDim at);
  std::optional<Conflict> split_group(GroupId group, TensorDim decided = {});
  // Excludes this dimension / all dimensions of this tensor. A dimension that cannot be split anyway (extent 1, an
  // impossible group, a scalar) is whole already; kNoGroup is only for a dimension or a node that does not exist.
  std::optional<Conflict> keep_whole(TensorDim at);
  std::optional<Conflict> keep_whole(NodeId node);

  // The trail: undo(mark()) of an earlier moment takes back everything decided since.
  std::size_t mark() const { return trail_.size(); }
  void undo(std::size_t mark);

  // kWhole before kExcluded: a group that was decided whole stays so whatever happens to its neighbours.
  GroupState group_state(GroupId group) const { return state_[static_cast<std::size_t>(group)]; }
  TensorState state(NodeId node) const;
  // The decision that split or kept a group: the dimension given to split() / keep_whole(), the group's first input
  // when none was given; node kNone for groups that nobody decided.
  TensorDim decided_by(GroupId group) const;
  // The split groups, in the order they were decided.
  std::vector<GroupId> split_groups() const;

  // No tensor is undecided.
  bool complete() const { return num_undecided_ == 0; }
  // Possible groups with inputs that nobody has decided or excluded, ascending: while there are any, it is not
  // complete.
  std::vector<GroupId> undecided() const;
  // Tensors of the flow that are undecided, ascending. Takes one pass over the flow.
  std::vector<NodeId> stuck() const;

  const Linkage& linkage() const { return *linkage_; }

 private:
  std::optional<Conflict> check_split(GroupId group, TensorDim at) const;
  void decide(GroupId group, GroupState state, TensorDim at);
  GroupState& state_of(GroupId group) { return state_[static_cast<std::size_t>(group)]; }

  const Linkage* linkage_;
  struct Change {
    GroupId group;
    GroupState before;
  };
  std::vector<Change> trail_;       // decisions only: what they exclude follows from the counts below
  std::int32_t num_undecided_ = 0;  // groups; each has an input, so a tensor is undecided exactly when a group is
  std::vector<GroupState> state_;
  std::vector<std::int32_t> split_neighbours_;  // how many
  std::vector<TensorDim> decided_by_;
};

}  // namespace automap::sharding
