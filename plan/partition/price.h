// Prices a decision, by whoever made it: time, and the memory that a device needs at most.
#pragma once

#include <string>

#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "common/sharding/collectives.h"
#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "plan/partition/partition_cost.h"
#include "plan/partition/peak_memory.h"

namespace automap::partition {

using sharding::DecidedAxis;

struct Price {
  PlanEstimate estimate;  // of both axes, where there are two
  PeakMemory memory;      // per device
  double unsplit_ms = 0;  // the step with nothing split
  double capacity_bytes = 0;
  ShardLinks links, outer_links;                      // of the axis, or the model axis; of the data axis
  sharding::TensorShares left_by_outer, left_by_own;  // of a mesh: what the data axis and the model axis leave
};

// `overlap`: also with collectives beside compute (overlap.h). Throws as shard_links().
Price price(DecidedAxis axis, const machine::DeviceModel& device, const machine::Cluster& cluster,
            bool overlap = false);
// `model` is nested in `data`; both are of one flow.
Price price(DecidedAxis data, DecidedAxis model, const machine::DeviceModel& device, const machine::Cluster& cluster,
            bool overlap = false);

// The peak of a decision on one axis, or on the axis inside `outer`.
PeakMemory peak_memory_of(DecidedAxis axis, const DecidedAxis* outer = nullptr);

// The shares of work and tensors that the outer axis leaves to an inner axis of `inner` devices.
OtherAxis left_by(DecidedAxis outer, int inner, const machine::DeviceModel& device, const machine::Cluster& cluster);

// A warning that a device is too small, with `hint`, or nearly full; empty: it is large enough.
std::string memory_warning(double needed_bytes, double capacity_bytes, const std::string& hint = "");

}  // namespace automap::partition
