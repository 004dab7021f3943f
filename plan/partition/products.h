// Which matrix products read weights, and which only what was computed: what a planner may split follows from it.
#pragma once

#include <vector>

#include "common/sharding/linkage.h"
#include "common/sharding/model.h"

namespace automap::partition {

// Experts of a mixture: batch dimensions of products of weights, as they are or in another form: dot([experts, tokens,
// in], [experts, in, out]). (Heads are batch dimensions of products, too, but of what was computed.)
std::vector<sharding::TensorDim> expert_dims(const sharding::ShardingModel& model);

// Which linkage factors are rows of what a weight multiplies: dimensions of a product (a dot, a convolution) that reads
// the weight, but that the weight does not have. A device that gets a part of them needs all of the weight.
class RowsOfWeights {
 public:
  explicit RowsOfWeights(const sharding::ShardingModel& model);
  bool is_row(const sharding::OpFactor& factor) const;
  // By linkage group: whether splitting it splits any.
  std::vector<bool> groups() const;

 private:
  const sharding::ShardingModel& model_;
  std::vector<bool> weights_;  // by flow node, as it is or in another form
};

// Attention, forward and backward: dots with batch dimensions of which neither side is a weight. Not the gradients of
// experts. Ascending.
std::vector<sharding::NodeId> products_of_activations(const sharding::ShardingModel& model);

}  // namespace automap::partition
