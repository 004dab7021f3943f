// Tells products that read weights from those that read only computed values: it decides what a planner may split.
#pragma once

#include <vector>

#include "common/sharding/linkage.h"
#include "common/sharding/model.h"

namespace automap::partition {

// Experts of a mixture: batch dimensions of products of weights, as they are or in another form: dot([experts, tokens,
// in], [experts, in, out]). (Heads are batch dimensions of products, too, but of products of computed values.)
std::vector<sharding::TensorDim> expert_dims(const sharding::ShardingModel& model);

// Rows of the values that weights multiply: linkage groups that are dimensions of products (dots, convolutions) of data
// and weights in the forward pass, and of the weight in none of them. A device that gets a part of them needs all of
// these weights. A dimension of another weight (heads before a projection that they share; the places that a mixer
// mixes) is no row. A weight is a variable, or a frozen one of floating-point numbers, or a value made of these and
// constants alone (1 + w; w + a * b). Weights that are stored as whole numbers are taken for data.
struct RowsOfWeights {
  std::vector<bool> groups;    // by linkage group
  std::vector<bool> products;  // by flow node: of data and weights
};
RowsOfWeights rows_of_weights(const sharding::ShardingModel& model);

// Attention, forward and backward: dots with batch dimensions of which neither side is a weight. Not the gradients of
// experts. Ascending.
std::vector<sharding::NodeId> products_of_activations(const sharding::ShardingModel& model);

}  // namespace automap::partition
