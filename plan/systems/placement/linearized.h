// The dynamic programme along orders of the units (arXiv 2006.16423, section 5.1.2, "DPL"): with a path through all
// units added to the graph there is one ideal per unit. Ours: several orders, of which the best counts, since the
// result depends on the order.
#pragma once

#include <optional>
#include <vector>

#include "plan/systems/placement/ideals_dp.h"

namespace automap::placement {

constexpr int kOrders = 8;

// Topological orders of the units' forward graph: depth first with successors as they come, reversed, by the work
// behind them, and drawn at random (seeded); and breadth first.
std::vector<std::vector<int>> unit_orders(const Units& units, int count);

// The best split along any of `count` orders; nothing when none fits.
std::optional<Split> best_linearized(const Workload& workload, const Units& units, int count, Work* work,
                                     DpCounts* counts);

}  // namespace automap::placement
