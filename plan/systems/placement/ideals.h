// The ideals of a graph: sets that contain all predecessors of their members (arXiv 2006.16423, section 5). A set is
// contiguous exactly when it is the difference of two of them, so a pipeline is a chain of ideals.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/systems/placement/units.h"

namespace automap::placement {

class Ideals {
 public:
  // All ideals of the units' forward graph, which must have no cycles; nothing when there are more than `most`.
  static std::optional<Ideals> all(const Units& units, int most);
  // Only those that are beginnings of `order`, a topological order of all units: order.size() + 1.
  static Ideals along(const std::vector<int>& order);

  // By size; 0 is the empty set, size() - 1 all units.
  int size() const { return static_cast<int>(down_begin_.size()) - 1; }
  // Ideals that lack one unit of ideal i: (ideal, unit) at positions down_begin(i) .. down_begin(i + 1) of down().
  struct Step {
    int ideal, unit;
  };
  int down_begin(int i) const { return down_begin_[static_cast<std::size_t>(i)]; }
  const Step& down(int position) const { return down_[static_cast<std::size_t>(position)]; }

 private:
  std::vector<int> down_begin_ = {0};
  std::vector<Step> down_;
};

}  // namespace automap::placement
