// Checks whether fewer devices would be faster: beyond a server's own links a splitting may cost more than it saves.
#pragma once

#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "common/sharding/model.h"
#include "plan/partition/partition_search.h"

namespace automap::partition {

struct FewerDevices {
  int devices = 0;  // 0: no number has a plan
  double step_ms = 0;
  bool cut_by_time = false;
};

// The least estimated step of the variables' splittings over half the model's devices, half of those, and so on down
// to two or three.
// memory_limit_bytes 0: no limit. rows_whole: PlanningRequest. `model` is left as it was; groups keep their numbers.
FewerDevices best_with_fewer(sharding::ShardingModel* model, const machine::DeviceModel& device,
                             const machine::Cluster& cluster, double memory_limit_bytes, bool rows_whole,
                             const SearchRequest& search);

}  // namespace automap::partition
