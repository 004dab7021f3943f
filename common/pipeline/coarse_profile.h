// Coarsens a profile: all positions between two of the chosen cuts become one position.
#pragma once

#include <vector>

#include "common/pipeline/profile.h"

namespace automap::pipeline {

// Chooses the ends of runs, ascending, the last of them n. In each of `positions` equal parts of 1..n (in all
// positions, where there are no more) the run ends at the position behind which fewest bytes cross, where planners
// mostly cut. Positions that compute more than such a part does in the mean stand alone, so that no run is much of the
// whole.
//
// a = 9, 5, 7, 0 and 2 positions: 2, 4. Where c = 1, 1, 9, 1: 2, 3, 4.
std::vector<int> thinnest_cuts(const Profile& profile, int positions);

// `ends`: as above. Widths likewise; of names only those of layers, of the run's first position.
//
// A stage between two of these cuts has the same compute, transfer, weights, gradients and stash as in the profile
// (but for rounding). Recomputation, ZeRO 2 and 3, and buckets of gradients go by coarser layers and positions.
//
// c = 1, 2, 3, 4 and a = 9, 5, 7, 0 with ends 2, 4: c = 3, 7 and a = 5, 0.
Profile coarse_profile(const Profile& profile, const std::vector<int>& ends);

}  // namespace automap::pipeline
