// Units: nodes that are placed together, and the load of a set of such units.
#pragma once

#include <utility>
#include <vector>

#include "plan/systems/placement/placement.h"
#include "plan/systems/placement/workload.h"

namespace automap::placement {

struct Unit {
  std::vector<int> nodes;  // ascending
  double accelerator_ms = 0, cpu_ms = 0, bytes = 0;
  bool on_accelerators = true;
};

// A transfer is paid once by each set that has readers, and once by the owner's set when some reader is in another set.
// Outputs of one unit that the same units read are one transfer.
struct Transfer {
  int owner = 0;
  std::vector<int> readers;  // units, ascending, without the owner; at least one
  double ms = 0;             // above 0
};

struct Units {
  std::vector<Unit> units;
  std::vector<Transfer> transfers;
  std::vector<std::vector<int>> transfers_of;  // of each unit: those that it owns or reads
  // The forward graph between units, which contiguity is about; each pair once.
  std::vector<std::vector<int>> next, before;

  int size() const { return static_cast<int>(units.size()); }
};

// Edges that contiguity is about: forward ones, and for backward edges (u, v) of which one end has a colour without any
// forward node (or none at all) the mirror image (v, u), since then nothing forward says where that node belongs.
std::vector<std::pair<int, int>> forward_order(const Workload& workload);

// Every colour a unit, every node without one, too. `next` may have cycles.
Units colour_units(const Workload& workload);

// The same, merged until there are no cycles (arXiv 2006.16423, section 5 and appendix on training; the steps are those
// of the authors' code): colours that paths tie together in both directions have to be on one device; and a unit that
// takes no time, has one neighbour and nothing to do with the backward pass (a weight beside its only reader) joins
// that neighbour, which takes load from both if the memory is there. Departure: that last merge is left out where only
// one of the two runs on accelerators, and where backward nodes of the unit have another neighbour (theirs looks at the
// forward nodes' edges only, and may lose the optimum).
Units contiguous_units(const Workload& workload);

// The device of each node, from that of its unit.
Placement placement_of(const Workload& workload, const Units& units, const std::vector<int>& device_of_unit);

// The load of a set of units that grows and shrinks by one at a time, in the units' transfers each time.
class SetLoad {
 public:
  explicit SetLoad(const Units& units);

  struct Sums {
    double accelerator_ms = 0, cpu_ms = 0, bytes = 0, transfer_ms = 0;
    int not_on_accelerators = 0;  // units
  };
  const Sums& sums() const { return sums_; }
  void add(int unit);  // not in the set
  // Removes the unit added last; `before` is sums() as it was then, so that no rounding is left behind.
  void take_back(int unit, const Sums& before);

 private:
  const Units& units_;
  Sums sums_;
  std::vector<char> inside_;         // of units
  std::vector<int> readers_inside_;  // of transfers
};

}  // namespace automap::placement
