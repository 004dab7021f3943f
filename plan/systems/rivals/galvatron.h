// Galvatron's and Piper's kind of plan (arXiv 2211.13878, NeurIPS 2021): for every number of stages that divides the
// devices, equal groups of devices, and a dynamic program over layers that also chooses how each stage runs (ZeRO,
// recomputation) within memory, transfers counted. Departures: layers of one stage run alike, and all stages have one
// width, as our plans have.
#pragma once

#include "plan/systems/rivals/chain.h"

namespace automap::rivals {

constexpr int kGalvatronUnits = 64;

// The best plan of equal groups for one problem.
std::optional<ChainPlan> galvatron_chain(const pipeline::Problem& problem, const std::vector<int>& ends, int max_stages,
                                         double gap);
Planner galvatron(const pipeline::Profile& profile, int max_stages);

}  // namespace automap::rivals
