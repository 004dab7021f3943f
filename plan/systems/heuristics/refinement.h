// The refinement after every heuristic: makes a division legal, then improves it one move at a time.
#pragma once

#include "plan/systems/heuristics/division.h"

namespace automap::heuristics {

// Renumbers nothing and moves only units that have to move: every unit goes at least as far, in an order of the
// devices, as all that it needs in the forward pass. The order is that of the devices' mean places. Afterwards
// acyclic_between_devices() holds; loads and memory may be worse.
void make_acyclic(const Hypergraph& graph, int num_devices, Devices* devices);

// Moves units off devices that hold too much, the largest first, to the device with the least J that has room (ties:
// the lowest number). False when that does not succeed; the moves made so far stay.
bool make_fit(Division* division);

struct RefinementCount {
  int passes = 0;
  std::int64_t moves = 0;  // that stayed
};

// The passes of Fiduccia and Mattheyses on J: a pass moves every unit at most once, always the move that lessens
// (J, bytes cut) most, or worsens it least, and goes back to the best division that it went through; passes end with
// the first that gains nothing. Only moves that are allowed (memory, cycles) are made.
//
// J is the largest load, so that only units of the most loaded device, or units whose messages it pays for, can lessen
// it: looked at are the best few moves off that device, and the best few that lessen the bytes cut. A pass ends early
// after a number of moves that brought nothing.
RefinementCount refine(Division* division);

}  // namespace automap::heuristics
