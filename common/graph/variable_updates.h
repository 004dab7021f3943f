// Assigns the work and the state of a training step's optimizer to the variables that they update.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/training_step.h"

namespace automap::graph {

struct VariableUpdates {
  // By place in TrainingStep::variables: bytes of the gradient in the type that it is reduced in over replicas. The
  // narrowest type that the whole gradient has between where it is made and where it is used (16-bit gradients of
  // 32-bit variables are widened for the optimizer only); where micro-batches are added up, the type of the sum.
  std::vector<double> gradient_bytes;
  // By input: of a slot, the place in TrainingStep::variables of the variable whose gradient updates it; kNone where
  // nobody can tell (one slot for several variables), and for all other inputs. By data flow, else by name and shape.
  std::vector<std::int32_t> slot_of;
  // By node: of the optimizer's part, the variable whose update it works for; kNone where it works for several.
  std::vector<std::int32_t> worker_of;
};

VariableUpdates find_variable_updates(const TrainingStep& step);

}  // namespace automap::graph
