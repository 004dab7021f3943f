// What the paper compares its optima with (arXiv 2006.16423, section 7), as the authors' code has it, and what is
// different here.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/work.h"
#include "plan/placement/ideals_dp.h"
#include "plan/placement/units.h"

namespace automap::placement {

// Units in a depth-first order fill one accelerator after the other to its memory; what is larger than an accelerator
// or does not run there, and what is left, goes to the CPU cores. Nothing when it would need one and there is none.
// A heuristic for latency; contiguous units.
std::optional<std::vector<int>> greedy(const Workload& workload, const Units& units);

// From random placements on accelerators the move of one unit to another accelerator that lowers the largest load most,
// until none lowers it by kLeastGain; the best of `restarts`. Contiguity is not asked for. Departures: memory counts
// (the bytes above it are lowered first), and what runs on no accelerator is on the first CPU core. Nothing when none
// fits.
constexpr double kLeastGain = 1e-5;  // ms
std::optional<Split> local_search(const Workload& workload, const Units& units, int restarts, std::uint64_t seed,
                                  Work* work);

// PipeDream's way with graphs: what branches is merged until a chain is left, then the dynamic programme along it. Of
// each biconnected component of the units' undirected forward graph all but its first unit, in topological order,
// become one. Contiguous units; the result is of them.
std::optional<Split> pipedream(const Workload& workload, const Units& units, Work* work, DpCounts* counts);

// All on one accelerator, whatever its memory; nothing when something runs on none.
std::optional<std::vector<int>> one_accelerator(const Workload& workload, const Units& units);

}  // namespace automap::placement
