// The least largest load as an integer programme (arXiv 2006.16423, section 5.1.3): any placement, or contiguous ones.
//
// x[u,d]: unit u is on device d. in[t,d] >= x[r,d] - x[o,d] and out[t,d] >= x[o,d] - x[r,d] for every reader r of
// transfer t of owner o; the load of an accelerator is its compute plus its incoming and outgoing transfers, and L is
// at least every load. Colours share their x.
//
// Departure, contiguous: instead of the paper's rows, which make every set contiguous by itself (placement.h), devices
// stand in the order of the pipeline and may be of either type: y[u,s] = 1 when u is on device s or an earlier one,
// y[u,s] >= y[v,s] for every edge (u, v). The optimum is then that of the dynamic programme. Ours: accelerators are
// alike, so that the unit of rank r, the heaviest first, is on one of the first r + 1 (any placement; a pipeline's
// order leaves no choice).
#pragma once

#include <optional>

#include "plan/systems/placement/milp.h"
#include "plan/systems/placement/units.h"

namespace automap::placement {

struct MilpPlacement {
  MilpAnswer::End end = MilpAnswer::End::kTime;
  std::optional<std::vector<int>> device_of_unit;  // nothing: none was found
  std::vector<int> piece_of_unit;                  // latency only
  double bound_ms = 0;
};

// `start`: a known split, or empty; of contiguous ones it must be contiguous. Units: colour_units, or contiguous_units
// when `contiguous`.
MilpPlacement milp_throughput(const Workload& workload, const Units& units, bool contiguous,
                              const std::vector<int>& start, const MilpLimits& limits);

}  // namespace automap::placement
