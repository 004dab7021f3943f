// Experts of a mixture: weights of which a product takes one for every place of a dimension.
#pragma once

#include <vector>

#include "common/sharding/linkage.h"
#include "common/sharding/model.h"

namespace automap::partition {

// Batch dimensions of products of weights, as they are or in another form: dot([experts, tokens, in], [experts, in,
// out]). (Heads are batch dimensions of products, too, but of what was computed.)
std::vector<sharding::TensorDim> expert_dims(const sharding::ShardingModel& model);

}  // namespace automap::partition
