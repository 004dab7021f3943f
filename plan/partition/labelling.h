// Finds the cheapest labelling of a graph: every site takes one of its labels; labels cost something by themselves, and
// in pairs between neighbouring sites (infinity: not both). Optionally labels take memory, and all of it together has
// to fit. Partitioning becomes this problem when linkage groups may be cut: a site is a piece of a group, its labels
// are whole or split, and pairs hold the prices of resharding between pieces and mutual exclusions.
//
// Exact where the graph is narrow, as models are: sites are eliminated one by one (the one with the smallest table
// first), which takes time exponential in the width of the graph only. Where a table would become too large its
// functions are minimized apart, which gives a lower bound (mini-buckets; Dechter and Rish, 2003), and the search
// branches to close the gap. Memory is priced (a Lagrangian); a gap that the best price leaves is branched on, too.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "common/base/work.h"

namespace automap::partition {

struct LabellingProblem {
  struct Site {
    std::vector<double> cost;    // by label, at least one; infinity: not allowed
    std::vector<double> memory;  // by label, finite, told apart to a thousandth; empty: none
  };
  struct Pair {
    std::int32_t a = 0, b = 0;  // different sites; the same two may come several times, in any order
    std::vector<double> cost;   // [label of a * labels of b + label of b]
  };
  std::vector<Site> sites;
  std::vector<Pair> pairs;
  double memory_limit = std::numeric_limits<double>::infinity();
};

struct Labelling {
  std::vector<std::int32_t> labels;  // by site; empty: none was found (that is allowed and fits)
  double cost = std::numeric_limits<double>::infinity();
  double memory = 0;
  double bound =
      -std::numeric_limits<double>::infinity();  // no labelling is cheaper; infinity: none is allowed and fits
  bool proven = false;                           // cost == bound but for rounding
  std::int64_t nodes = 0;                        // of the search tree
  std::int32_t width = 0;                        // sites of the largest table
};

struct LabellingOptions {
  std::int64_t most_entries = 1 << 18;  // of one table
};

// When the work is over: the best so far and a valid bound. Throws Error(kInternal) for an invalid problem.
Labelling solve_labelling(const LabellingProblem& problem, const LabellingOptions& options, Work& work);

// The cost of a labelling; its memory is added to `memory` where that is not null.
double labelling_cost(const LabellingProblem& problem, const std::vector<std::int32_t>& labels,
                      double* memory = nullptr);

}  // namespace automap::partition
