// ADP: which dimension of which step input to split (paper 3.3, 4.3).
//
// The candidates are the linkage groups of the step inputs. A batch group that some instruction forbids (a similarity
// of every example with every other, a batch folded into a minor dimension, routing over all tokens) is repaired: the
// cheapest tensors on the way are gathered there (sharding::Gather), and the plan says so.
#pragma once

#include <string>
#include <vector>

#include "common/sharding/model.h"
#include "search/partition_cost.h"
#include "search/partition_search.h"

namespace automap::search {

struct RepairResult {
  bool possible = false;
  std::vector<sharding::Gather> gathers;  // for ShardingModel::relink
  double gathered_bytes = 0;              // per step
  std::string why_not;                    // when not possible
};
// Looks for few and small gathers that make `at`'s group possible. `model` is relinked while looking and is left with
// the gathers found (or as it was).
RepairResult repair(sharding::ShardingModel* model, sharding::TensorDim at, int most_gathers = 64);

}  // namespace automap::search
