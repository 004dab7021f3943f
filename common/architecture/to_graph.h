// Turns a tape into a Graph, the same as a reader of HLO would make.
#pragma once

#include <string>
#include <vector>

#include "common/architecture/tape.h"
#include "common/graph/graph.h"

namespace automap::architecture {

// The module's results, in this order; `parameter`: of the input whose new value it is, kNoValue for none.
struct Result {
  Value value = kNoValue;
  Value parameter = kNoValue;
};

// Takes all parameters of the tape, and only those of its operations that the results need. `source` names it in
// errors.
graph::Graph to_graph(const Tape& tape, const std::vector<Result>& results, const std::string& source);

}  // namespace automap::architecture
