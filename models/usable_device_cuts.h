// Chooses the device cuts of a plan space: all of them, or where these are too many a choice of those that plans have.
// Whole samples restrict the number of devices of a stage: a cut is usable when some plan of so many stages has it, and
// each chosen cut comes with the other cuts of one such plan.
#pragma once

#include <vector>

#include "common/pipeline/problem.h"

namespace automap::models {

// True for those of the cuts 0..D that are at most `radius` from a server boundary (paper 4.4), and for 0 and D; -1:
// all.
std::vector<char> cuts_near_servers(const pipeline::Problem& problem, int radius);

// Ascending, within 1..D-1. `radius`: as above. Up to `most` of them are all returned, whether plans have them or not.
// Of more a choice of at most `most` (at least stages - 1), of cuts that plans of `stages` stages have; empty when no
// such plan can be placed: server boundaries first, then what is nearest to an even grid.
std::vector<int> usable_device_cuts(const pipeline::Problem& problem, int stages, int most, int radius);

}  // namespace automap::models
