// The baselines that the paper compares its optima with (arXiv 2006.16423, section 7), as in the authors' code, and the
// differences here.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/work.h"
#include "plan/systems/placement/ideals_dp.h"
#include "plan/systems/placement/units.h"

namespace automap::placement {

// Units in a depth-first order fill one accelerator after the other to its memory; units that are larger than an
// accelerator or do not run there, and those left over, go to the CPU cores. nullopt when it would need one and there
// is none. A heuristic for latency; contiguous units.
std::optional<std::vector<int>> greedy(const Workload& workload, const Units& units);

// From random placements on accelerators it makes the move of one unit to another accelerator that lowers the largest
// load most, until none lowers it by kLeastGain; the best of `restarts`. Contiguity is not asked for. Departures:
// memory counts (the bytes above it are lowered first), and units that run on no accelerator are on the first CPU core.
// nullopt when none fits.
constexpr double kLeastGain = 1e-5;  // ms
std::optional<Split> local_search(const Workload& workload, const Units& units, int restarts, std::uint64_t seed,
                                  Work* work);

// PipeDream's way with graphs: branches are merged until a chain is left, then the dynamic programme runs along it. Of
// each biconnected component of the units' undirected forward graph all but its first unit, in topological order,
// become one. Contiguous units; the result is of them.
std::optional<Split> pipedream(const Workload& workload, const Units& units, Work* work, DpCounts* counts);

// The reason why there is no Scotch, as a sentence; empty: there is.
std::string scotch_missing();

// Scotch's cut of the units' undirected graph into as many parts of like compute as there are accelerators, with small
// transfers between parts: `scotch_gpart`, another program (Pellegrini and Roman; CeCILL-C). It knows neither memory
// nor contiguity, and the answer may not fit. Departure: units that run on no accelerator are on the first CPU core.
// nullopt when there is none, or when `late` says so while it runs. Throws Error(kUsage) with scotch_missing(),
// Error(kIo) when the program fails or writes something else.
std::optional<std::vector<int>> scotch(const Workload& workload, const Units& units, const std::function<bool()>& late);

// All on one accelerator, whatever its memory; nothing when something runs on none.
std::optional<std::vector<int>> one_accelerator(const Workload& workload, const Units& units);

}  // namespace automap::placement
