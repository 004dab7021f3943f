// Applies --device to a cluster.
#pragma once

#include "common/machine/cluster.h"
#include "common/machine/device.h"

namespace automap::planners {

// A device that is in no table (a file's, measured with automap-profile --calibrate, say) stands for the cluster's
// devices, its memory included, when they are all of one type that a table knows: their times are estimated on it.
// Where the cluster has devices that no table knows, or with a relative speed, `device` is what their times refer to
// and nothing changes. Throws Error(kUsage) when `device` would count for nothing: another device of the table than the
// cluster's own, or a cluster of several known types.
void set_device(const machine::DeviceModel& device, machine::Cluster* cluster);

}  // namespace automap::planners
