// Loops over layers: a `while` whose every turn takes its slice of weights that are stacked along their first dimension
// (jax.lax.scan over layers). A turn is a layer, and a place to cut: the loop's one position becomes one for each turn.
//
// All turns do the same work, so that a turn has its share of the loop's time, stacked weights, gradients, slots and
// stash; what all turns read whole (a shared bias) stands at the first one. Across the cut between two turns go as many
// bytes as come in: what the loop hands from turn to turn has one shape, what all turns read has to be at all of them,
// and what passes the loop passes every turn. A loop and its backward loop are one position (profiler.h), so its turns
// are those of both: the backward loop runs them in reverse.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/pipeline/profile.h"

namespace automap::profile {

struct LayerLoop {
  std::int32_t position = 0;  // 0-based
  std::int64_t turns = 0;     // at least 2
  std::string layer;          // of turn k, from 0: "layer/k"
  // The bytes of the position that are not stacked.
  double whole_weights = 0, whole_gradients = 0, whole_slots = 0, whole_frozen = 0;
  double carried_bytes = 0;               // activations that a turn hands to the next
  std::vector<double> carried_at_widths;  // the same on each device of the profile's widths
};

// Positions before and after. `loops` ascend.
class Turns {
 public:
  Turns(std::int32_t positions, std::vector<LayerLoop> loops);
  bool none() const { return loops_.empty(); }
  std::int32_t size() const { return size_; }
  // The first and the last turn of a position, 0-based.
  std::int32_t first(std::int32_t position) const { return first_[static_cast<std::size_t>(position)]; }
  std::int32_t last(std::int32_t position) const { return first_[static_cast<std::size_t>(position) + 1] - 1; }
  // The profile with every turn a position.
  pipeline::Profile cut(const pipeline::Profile& profile) const;

 private:
  std::int32_t size_ = 0;
  std::vector<LayerLoop> loops_;
  std::vector<std::int32_t> first_;     // by position, and the end
  std::vector<const LayerLoop*> loop_;  // by position; null: none
};

}  // namespace automap::profile
