#include "common/pipeline/least_work.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace automap::pipeline {
namespace {

constexpr double kWorkRounding = 1e-9;

// Into `least`, by position: device-ms of a sample on replicas of `width` devices.
void lower_by(const std::vector<DeviceTimes>& times, int width, std::vector<double>* least) {
  for (const DeviceTimes& one : times) {
    for (std::size_t point = 0; point < one.samples.size(); ++point) {
      for (std::size_t i = 0; i < least->size(); ++i) {
        const double ms = one.forward_ms[point][i] + one.backward_ms[point][i];
        (*least)[i] = std::min((*least)[i], width * ms / one.samples[point]);
      }
    }
  }
}

}  // namespace

double least_work_bound_ms(const Profile& profile, const Cluster& cluster, Replicas replicas, double batch) {
  double speeds = 0, fastest = 1;
  for (const ServerGroup& servers : cluster.servers) {
    const double speed = cluster.devices.at(servers.device).relative_speed;
    speeds += speed * servers.count * servers.devices;
    fastest = std::max(fastest, speed);
  }
  double work = 0;
  if (replicas == Replicas::kFractional || profile.times.empty()) {
    for (const double ms : profile.c_ms) work += ms;
    work /= profile.micro_batch_size > 0 ? profile.micro_batch_size : 1;
  } else {
    std::vector<double> least(profile.size(), std::numeric_limits<double>::infinity());
    lower_by(profile.times, 1, &least);
    for (const WidthColumns& columns : profile.widths) lower_by(columns.times, columns.width, &least);
    for (const double ms : least) work += ms;
    // Whose times are for which device is not asked: none is more than so much faster than any of them.
    speeds = fastest * cluster.num_devices();
  }
  return batch * work / speeds * (1 - kWorkRounding);
}

}  // namespace automap::pipeline
