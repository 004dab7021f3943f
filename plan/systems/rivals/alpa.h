// Alpa's inter-operator planner (arXiv 2201.12023): stages of layers on submeshes of 1, 2, 4, ... devices of a server
// or of whole servers, by the dynamic program of chain.h. In place of its search inside a submesh stands our partition
// at one width, the same in all stages of a plan: the program runs once for each width, and the best is taken.
// Transfers between stages are not in its objective.
#pragma once

#include "plan/systems/rivals/chain.h"

namespace automap::rivals {

constexpr int kAlpaUnits = 24;     // layers that operators are clustered to
constexpr double kAlpaGap = 0.01;  // largest t that differ by less are one

// The shapes of submeshes that begin at device d0.
std::vector<int> alpa_submeshes(const pipeline::Problem& problem, int d0);
Planner alpa(const pipeline::Profile& profile, int max_stages);

}  // namespace automap::rivals
