// The least latency as an integer programme (arXiv 2006.16423, section 4): CPU cores are one pool (x[u,0]), every
// accelerator runs up to `pieces` contiguous sets one after the other (slots). With in[w,j] and out[w,j] as in
// milp_throughput.h for every producer w:
//   start_j >= lat_w - (1 - in[w,j]) H,  finish_j = start_j + compute of slot j + its transfers,
//   lat_v >= finish_j - (1 - x[v,j]) H,  lat_v >= lat_w + p_cpu(v) x[v,0] for every edge (w, v),
//   start_{j+1} >= finish_j on one accelerator; minimize the largest lat.
// Pieces are contiguous without rows of their own: a path that came back would start a slot behind its own end.
//
// Ours: H is the latency of a known placement, not the sum of all times; accelerators are ranked as in
// milp_throughput.h.
#pragma once

#include "plan/systems/placement/milp_throughput.h"

namespace automap::placement {

// Units: colour_units; no backward nodes. No latency above `most_ms` is looked for; `known`: a placement within it, of
// at most `pieces` pieces on an accelerator, or null.
MilpPlacement milp_latency(const Workload& workload, const Units& units, int pieces, const Placement* known,
                           double most_ms, const MilpLimits& limits);

}  // namespace automap::placement
