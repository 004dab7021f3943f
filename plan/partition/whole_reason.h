// Explains, for people, why a decided tensor stays whole.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "models/partition_problem.h"
#include "plan/partition/partition_cost.h"

namespace automap::partition {

// Extents that the devices have to divide for the group to be split: their greatest common divisor; 0 when all do.
std::int64_t indivisible_extent(const sharding::Linkage& linkage, sharding::GroupId group);
// "8 devices do not divide 2, the parts that 256 become in layers/attention (128 each); 2 would"
std::string indivisible_text(const sharding::ShardingModel& model, sharding::GroupId group);

// The most telling of the reasons of an input's dimensions. `impossible` remembers those of groups.
std::string why_whole(const sharding::ShardingModel& model, const sharding::Propagation& decided,
                      const std::map<sharding::GroupId, PartitionCost::GroupEffect>& effects, std::int32_t input,
                      models::PartitionObjective objective, std::map<sharding::GroupId, std::string>* impossible);

// The "dimension 1: " that a reason begins with, or nothing. Tensors with one reason share a row also where it is about
// different dimensions of theirs; the row then names none.
std::string own_dimension(const std::string& reason);

}  // namespace automap::partition
