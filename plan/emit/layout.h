// The layout of every tensor of a module on the devices of a mesh: the decisions of all axes together, as text for HLO.
//
// Axes are listed from the outermost: with two of D and T devices the device at (d, t) has the number d T + t, so that
// devices of the inner axis are neighbours. A dimension that both axes split is cut by the inner one first: a tensor
// that the outer axis stores in parts is gathered within the inner axis's part.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "common/sharding/collectives.h"
#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "common/sharding/reads.h"

namespace automap::emit {

using sharding::DecidedAxis;

class Layout {
 public:
  // All axes are of one flow, and must stay alive.
  explicit Layout(std::vector<DecidedAxis> axes);

  std::size_t num_axes() const { return axes_.size(); }
  const sharding::ShardingModel& model(std::size_t axis = 0) const { return *axes_[axis].model; }
  const sharding::Propagation& decided(std::size_t axis) const { return *axes_[axis].decided; }
  int devices() const;
  bool splits_anything() const;
  // A gather of its own maker: every device of the axis makes all of it and keeps its part.
  bool made_whole(sharding::NodeId node, std::size_t axis) const { return made_whole_[axis].count(node) != 0; }
  const std::set<sharding::NodeId>& made_whole(std::size_t axis) const { return made_whole_[axis]; }

  // As its readers find it, and as its instruction makes it. "{replicated}", "{devices=[1,8]<=[8]}",
  // "{devices=[4,1,2]<=[8] last_tile_dim_replicate}".
  std::string text(sharding::NodeId node) const;
  std::string text_where_made(sharding::NodeId node) const;
  // The annotations, one after the other, through which a reader reads the tensor: as it lies (where it is exchanged:
  // else XLA may exchange its operands), gathered, in parts along other dimensions. `reads`: per axis, kNone of its
  // tensor where that one's reader finds it as it lies. Empty: no annotation.
  std::vector<std::string> texts_read(sharding::NodeId node, const std::vector<sharding::Read>& reads) const;
  // Per result of the module, in order (partition::result_states).
  std::vector<std::string> result_texts() const;

 private:
  std::string text_of(sharding::NodeId node, const std::vector<sharding::TensorState>& states) const;

  std::vector<DecidedAxis> axes_;
  std::vector<std::set<sharding::NodeId>> made_whole_;
};

// The sharding of one tensor, from a state and a number of devices for each axis.
std::string sharding_text(const std::vector<sharding::TensorState>& states, const std::vector<int>& devices,
                          std::size_t rank);

}  // namespace automap::emit
