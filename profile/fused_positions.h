// Maps fused kernels to a step's positions: values inside a chain do not exist there, and the chain's inputs are read
// where its kernel stands.
#pragma once

#include <cstdint>
#include <vector>

#include "profile/fused_chains.h"
#include "profile/step_positions.h"

namespace automap::profile {

class FusedPositions {
 public:
  // Both must stay alive; `fused` may be null: nothing is.
  FusedPositions(const StepPositions& at, const FusedChains* fused);

  bool any() const { return fused_ != nullptr && !fused_->role.empty(); }
  const FusedChains* chains() const { return fused_; }
  // Never written: inside a chain, or a result of a loop that holds what is inside, one layer per turn.
  bool is_dropped(graph::NodeId id) const;
  // The last forward position that reads a forward value, chains as a whole: what reads inside one reads at its kernel.
  // At least the position that makes it.
  std::int32_t last_use(graph::NodeId id) const { return last_use_[static_cast<std::size_t>(id)]; }

  // The values that a backward pass needs when it reads the dropped forward value `id`: the chain's inputs, and the
  // results of its attention kernels, ascending. Kernels of loops are in kept_by_loop.
  struct Needs {
    std::vector<graph::NodeId> values;
    std::vector<graph::NodeId> kernels;  // anchors whose statistic of rows is kept, too
  };
  Needs needs_of(graph::NodeId id) const;

 private:
  bool is_inner(graph::NodeId id) const;
  void find_last_uses();

  const StepPositions& at_;
  const FusedChains* fused_;
  std::vector<std::int32_t> last_use_;
};

}  // namespace automap::profile
