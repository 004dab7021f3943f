#include "plan/planners/own_device.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/printable.h"

namespace automap::planners {

void set_device(const machine::DeviceModel& device, machine::Cluster* cluster) {
  std::set<std::string> types;
  for (const machine::ServerGroup& servers : cluster->servers) {
    const std::string& type = servers.device;
    const auto known = machine::find_device(type);
    if (!known || cluster->devices.at(type).relative_speed != 1 || known->name == device.name) return;
    types.insert(type);
  }
  const std::string has = "--device " + printable(device.name) + ": " + printable(cluster->name) + " has " +
                          join(std::vector<std::string>(types.begin(), types.end())) + ", whose times are known";
  if (machine::find_device(device.name)) {
    throw Error(ErrorKind::kUsage, has, "name a cluster of " + device.name + ", or leave --device out");
  }
  if (types.size() > 1) {
    throw Error(ErrorKind::kUsage, has, "a device file stands for the devices of a cluster that has one type");
  }
  for (machine::ServerGroup& servers : cluster->servers) servers.device = device.name;
  machine::DeviceType type;
  type.memory_gib = device.memory_gib;
  type.peak_tflops = device.peak_tflops;
  type.memory_gbytes_per_s = device.memory_gbytes_per_s;
  cluster->devices = {{device.name, type}};
}

}  // namespace automap::planners
