// Evaluates the mask of a softmax's scores, where it is made of places and constants, and finds the scores that it
// leaves.
#pragma once

#include <cstdint>
#include <optional>

#include "common/graph/dependence.h"

namespace automap::profile {

// Keys [query + low, query + high) of every query, cut off at both ends: what kernels of libraries know to skip
// (causal, sliding windows). Any other mask (documents, chunks, prefixes, lengths) costs them nothing less.
struct ScoreBand {
  double kept = 1;      // share of the scores
  int edges = 0;        // diagonals that bound them, 0..2: the tiles that they cross are computed whole
  bool causal = false;  // the one that bounds them is the upper one
};

// A value that is added to scores and no higher, or stands in their place, keeps their exponential at 0.
constexpr double kMaskedScore = -1000;

// The band that `at` leaves, an instruction that makes scores out of scores (operand `scores`) with keys in dimension
// `key`: a select that puts masked scores in their place, an addition of them or a subtraction of their negative. Parts
// of a mask that do not follow from places (lengths, biases) are taken to leave all scores. Rows and keys are sampled.
// Nothing: it leaves all, or no band. Throws Error(kData) on malformed attributes.
std::optional<ScoreBand> band_of(const graph::FlowGraph& flow, graph::NodeId at, graph::NodeId scores,
                                 std::int32_t key);

}  // namespace automap::profile
