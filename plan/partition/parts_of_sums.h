// Cuts the groups of a plan whose sums are combined (ShardingModel::sums_combined), so that parts of the sums are kept.
//
// A resharding (resharding.h) prices every partial sum by itself: where the devices go on with parts it keeps parts of
// each, q, k and v apart. Where such sums are only added up next, the parts of their sum can be kept instead: one
// reduce-scatter for all of them, and the addition done whole.
#pragma once

#include <vector>

#include "common/sharding/model.h"
#include "common/sharding/propagation.h"

namespace automap::partition {

// The model's gathers with those of partial sums moved behind the additions that alone read them; as they are where
// there are none.
std::vector<sharding::Gather> gathers_behind_sums(const sharding::ShardingModel& model,
                                                  const sharding::Propagation& decided);

}  // namespace automap::partition
