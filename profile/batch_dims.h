// Finds the dimensions of a module's tensors that hold the batch and grow with the number of samples.
//
// From the leading dimensions of the step's data through every instruction, by the factors of the propagation rules
// (common/sharding/rule.h): dimensions that can only be split together also grow together. So this is the closure that
// linkage groups are, followed from the batch alone. Beyond it: a batch that is the minor part of a reshape, that is
// sliced, padded, concatenated or sorted along, grows all the same, though it cannot be split there; and constants are
// as large as what reads them needs.
//
// A module of one sample has dimensions of 1 for its batch, which reshapes add and drop at will. There the factors are
// followed through dimensions of 1 as well, and what weights alone decide never grows: no mark enters it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/graph/resized_graph.h"
#include "common/graph/training_step.h"

namespace automap::profile {

struct BatchDims {
  std::int64_t batch = 0;  // samples that the module's shapes are for
  graph::DimMarks marks;   // the dimensions that hold them
  bool made_up = false;    // some are no input's, but places that the module sorts samples into (capacity of experts)
  // The reason why it is unknown how the module grows; empty when the marks are good. Then `inputs` could be named
  // (--batch-input): the step's data, the largest first.
  std::string problem;
  std::vector<std::string> inputs;
};

// `step` as analyze_training_step made it of `graph`: step.batch_inputs are where the batch comes from.
BatchDims find_batch_dims(const graph::Graph& graph, const graph::TrainingStep& step);

}  // namespace automap::profile
