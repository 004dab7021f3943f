// Computes the memory that a position needs beside what is kept for it: temporaries of its forward work, and of its
// backward work.
#pragma once

#include <vector>

#include "profile/fused_positions.h"
#include "profile/step_positions.h"
#include "profile/time_estimator.h"

namespace automap::profile {

// Bytes by position: the largest set of values alive at once while the position works, forward or backward, without
// what crosses its cut (a), what is kept for the backward pass (`kept`, as stash_bytes says), weights and gradients of
// weights. Values that a fused loop hands on without storing them take no room (`estimator`; null: all take room). A
// loop that is one position counts its body's.
std::vector<double> workspace_bytes(const StepPositions& at, const FusedPositions& fused,
                                    const std::vector<std::int32_t>& backward, const std::vector<bool>& kept,
                                    const TimeEstimator* estimator);

}  // namespace automap::profile
