// Finds the shardings inside a JAX step that have to be stated, so that XLA runs it as planned.
//
// Shardings of arguments and results alone do not say where a stored variable is gathered: XLA may split activations
// along the features instead of the batch, and exchange them. Products, convolutions, look-ups, scatters and reductions
// decide, and slices, pads and concatenations of stored variables: with their operands and results as planned,
// everything between follows. An equation of a jaxpr is found by what is the same in HLO: its operation, the shapes
// that it reads and makes, and its number among equal ones in the order of the program (calls and loops opened where
// they stand).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/emit/layout.h"

namespace automap::emit {

// Per axis the dimension that is split, -1: none.
using AxisDims = std::vector<int>;

struct JaxConstraint {
  std::string equation;  // "dot_general (16, 32, 64) (64, 64) -> (16, 32, 64)"
  // Shardings of its operands (those of the text, in order) and of its result. Without a value: no constraint.
  std::vector<std::optional<AxisDims>> operands;
  std::optional<AxisDims> result;

  bool operator==(const JaxConstraint& other) const {
    return equation == other.equation && operands == other.operands && result == other.result;
  }
};

// Constraints of all such instructions that run, equal ones in the order of the program. Empty where nothing is split.
std::vector<JaxConstraint> jax_constraints(const Layout& layout);

}  // namespace automap::emit
