// The table of devices that are known by name.
#pragma once

#include <vector>

#include "common/machine/device.h"

namespace automap::machine {

// In the order of device_names().
const std::vector<DeviceModel>& device_table();

}  // namespace automap::machine
