// Lower bounds on all plans of a class, and the classes that they cover.
#pragma once

#include <string>
#include <vector>

#include "plan/planners/step_sizes.h"

namespace automap::planners {

// Devices that bounds are about: any of the cluster (`all`); else numbers of them, falling: with every split of the
// batch considered by every width whose replicas can be so many devices, and with some splits, widths or choices of so
// many devices only.
struct BoundScope {
  bool all = false;
  std::vector<int> devices, devices_in_part;
};

struct Bounds {
  double value_ms = 0;      // of V; 0: not known
  double simulated_ms = 0;  // of the simulated step, whatever a plan keeps in flight; 0: not known
  std::string method;       // of value_ms
  // The premises: splits of the batch, each on its devices by replicas of one width. Empty: not asked.
  std::vector<StepSize> considered;
  bool all_devices = false;  // those are all choices of devices that there are
  // close_bounds (step_bounds.h) has yet to look at the splits considered. Until then value_ms is about these alone,
  // and the simulated bound is a plan's.
  bool open = false;
  std::vector<StepSize> of_value;

  BoundScope scope(const machine::Cluster& cluster) const;
  // They are to be about `size`, too: open, they wait to be closed; of closed ones is known that no plan of it is below
  // least_ms.
  void include(const StepSize& size, double least_ms, const std::string& how);
  // Nobody asks for them after all: neither is known.
  void drop();
  // There is a plan of theirs that is as short as this: what is above came of rounding.
  void hold(double step_ms, double simulated_step_ms);
};

}  // namespace automap::planners
