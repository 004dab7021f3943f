// Shows rows as text for people and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/pipeline/row_problem.h"

namespace automap::datagen {

// Facts in two lines, then the compute, activations and weights of each of 64 equal parts of the model, as bars whose
// height is relative to the largest of the array:
//   row 0  transformer  n 3120  4 servers x 8 devices  ...
//   compute     ▁▁▃▃▃▃▃▃▃▃▃▃█
std::string row_text(const pipeline::RowProblem& row, const std::vector<std::string>& distributions,
                     std::uint64_t index);

Json row_json(const pipeline::RowProblem& row, const std::vector<std::string>& distributions, std::uint64_t index);

}  // namespace automap::datagen
