#include "common/pipeline/device_match.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/machine/device.h"
#include "common/machine/link_kinds.h"

namespace automap::pipeline {
namespace {

// True if both devices have the same compute and memory rates; nullopt when one of them is in no table.
std::optional<bool> equally_fast(const std::string& a, const std::string& b) {
  const std::string type_a = machine::device_type(a), type_b = machine::device_type(b);
  if (type_a == type_b) return true;
  const std::optional<machine::DeviceModel> first = machine::find_device(type_a), second = machine::find_device(type_b);
  if (!first || !second) return std::nullopt;
  return first->peak_tflops == second->peak_tflops && first->memory_gbytes_per_s == second->memory_gbytes_per_s;
}

// The devices that the profile has times of, for people.
std::string devices_of(const Profile& profile) {
  std::vector<std::string> names;
  for (const DeviceTimes& times : profile.times) {
    const std::string type = machine::device_type(times.device);
    if (std::find(names.begin(), names.end(), type) == names.end()) names.push_back(type);
  }
  return names.empty() ? profile.device : join(names);
}

}  // namespace

void match_devices(Profile& profile, const machine::Cluster& cluster, const std::string& source) {
  struct Named {
    std::size_t times;  // of profile.times
    std::string device;
  };
  std::vector<Named> named;
  std::set<std::string> seen;
  for (const machine::ServerGroup& servers : cluster.servers) {
    const std::string& name = servers.device;
    if (!seen.insert(name).second || cluster.devices.at(name).relative_speed != 1) continue;
    auto same = std::find_if(profile.times.begin(), profile.times.end(),
                             [&](const DeviceTimes& times) { return times.device == name; });
    if (same == profile.times.end()) {
      same = std::find_if(profile.times.begin(), profile.times.end(),
                          [&](const DeviceTimes& times) { return equally_fast(times.device, name).value_or(false); });
    }
    if (same != profile.times.end()) {
      named.push_back({static_cast<std::size_t>(same - profile.times.begin()), name});
      continue;
    }
    if (profile.device.empty() || equally_fast(profile.device, name).value_or(true)) continue;
    throw Error(ErrorKind::kData,
                source + " is a profile for " + devices_of(profile) + ", and " + cluster.name + " has " +
                    machine::device_type(name),
                "plan the model itself, make the profile with --device " + machine::device_type(name) +
                    ", or say relative_speed in a cluster file");
  }
  // The times that relative speeds refer to stay in front.
  for (std::size_t t = 0; t < profile.times.size(); ++t) {
    const std::string& device = profile.times[t].device;
    if (seen.count(device) == 0 || cluster.devices.at(device).relative_speed != 1) named.push_back({t, device});
  }
  std::stable_partition(named.begin(), named.end(), [&](const Named& one) { return one.device == profile.device; });
  const auto rename = [&](std::vector<DeviceTimes>& times) {
    std::vector<DeviceTimes> renamed;
    for (const Named& one : named) {
      renamed.push_back(times[one.times]);
      renamed.back().device = one.device;
    }
    times = std::move(renamed);
  };
  rename(profile.times);
  for (WidthColumns& columns : profile.widths) {
    rename(columns.times);
    std::vector<std::vector<double>> collectives;
    for (const Named& one : named) collectives.push_back(columns.collective_ms[one.times]);
    columns.collective_ms = std::move(collectives);
  }
}

std::string slower_in_front(const Profile& profile, const machine::Cluster& cluster) {
  // The module's time on a device, at the fewest samples.
  const auto whole_ms = [&](const std::string& device) {
    const auto times = std::find_if(profile.times.begin(), profile.times.end(),
                                    [&](const DeviceTimes& of) { return of.device == device; });
    const DeviceTimes* of = times != profile.times.end() ? &*times
                            : profile.times.empty()      ? nullptr
                                                         : &profile.times[0];
    double ms = 1;
    if (of != nullptr) {
      ms = std::accumulate(of->forward_ms[0].begin(), of->forward_ms[0].end(), 0.0) +
           std::accumulate(of->backward_ms[0].begin(), of->backward_ms[0].end(), 0.0);
    }
    return ms / cluster.devices.at(device).relative_speed;
  };
  constexpr double kFaster = 1.05;
  for (std::size_t g = 1; g < cluster.servers.size(); ++g) {
    const std::string &front = cluster.servers[g - 1].device, &behind = cluster.servers[g].device;
    if (whole_ms(front) > kFaster * whole_ms(behind)) {
      return cluster.name + " names " + machine::device_type(front) + " in front of " + machine::device_type(behind) +
             ", which is faster here: lists of work (interleaved, zero bubble, searched) keep that order; try the "
             "cluster file with the faster servers first, too";
    }
  }
  return "";
}

}  // namespace automap::pipeline
