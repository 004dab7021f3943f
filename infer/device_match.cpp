#include "infer/device_match.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "common/base/error.h"
#include "common/machine/device.h"

namespace automap::infer {
namespace {

using pipeline::DeviceTimes;

// Whether what is known of the two says that they compute equally fast; nothing when one is in no table.
std::optional<bool> equally_fast(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const std::optional<machine::DeviceModel> first = machine::find_device(a), second = machine::find_device(b);
  if (!first || !second) return std::nullopt;
  return first->peak_tflops == second->peak_tflops && first->memory_gbytes_per_s == second->memory_gbytes_per_s;
}

// The devices that the profile has times of, for people.
std::string devices_of(const pipeline::Profile& profile) {
  std::string names;
  for (const DeviceTimes& times : profile.times) names += (names.empty() ? "" : ", ") + times.device;
  return names.empty() ? profile.device : names;
}

}  // namespace

void match_devices(pipeline::Profile& profile, const machine::Cluster& cluster, const std::string& source) {
  std::vector<DeviceTimes> named;
  std::set<std::string> seen;
  for (const machine::ServerGroup& servers : cluster.servers) {
    const std::string& name = servers.device;
    if (!seen.insert(name).second || cluster.devices.at(name).relative_speed != 1) continue;
    const auto same = std::find_if(profile.times.begin(), profile.times.end(), [&](const DeviceTimes& times) {
      return equally_fast(times.device, name).value_or(false);
    });
    if (same != profile.times.end()) {
      named.push_back(*same);
      named.back().device = name;
      continue;
    }
    if (profile.device.empty() || equally_fast(profile.device, name).value_or(true)) continue;
    throw Error(
        ErrorKind::kData,
        source + " is a profile for " + devices_of(profile) + ", and " + cluster.name + " has " + name,
        "plan the model itself, make the profile with --device " + name + ", or say relative_speed in a cluster file");
  }
  // The times that relative speeds refer to stay in front.
  for (DeviceTimes& times : profile.times) {
    if (seen.count(times.device) == 0 || cluster.devices.at(times.device).relative_speed != 1) {
      named.push_back(std::move(times));
    }
  }
  if (!profile.times.empty()) {
    std::stable_partition(named.begin(), named.end(),
                          [&](const DeviceTimes& times) { return times.device == profile.device; });
    profile.times = std::move(named);
  }
}

}  // namespace automap::infer
