#include "common/pipeline/least_work.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>
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

SampleTimes::SampleTimes(const Profile& profile, const Cluster& cluster, Replicas replicas) {
  const auto sum = [](const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); };
  for (const auto& [name, device] : cluster.devices) fastest_ = std::max(fastest_, device.relative_speed);
  if (replicas == Replicas::kFractional || profile.times.empty()) {
    const double both = sum(profile.c_ms), forward = both * profile.forward_fraction;
    devices_.push_back({{std::max(1.0, profile.micro_batch_size)}, {forward}, {both - forward}});
    return;
  }
  for (const DeviceTimes& times : profile.times) {
    OfDevice one;
    one.samples = times.samples;
    for (std::size_t point = 0; point < times.samples.size(); ++point) {
      one.forward_ms.push_back(sum(times.forward_ms[point]));
      one.backward_ms.push_back(sum(times.backward_ms[point]));
    }
    devices_.push_back(std::move(one));
  }
}

double SampleTimes::least_ms(double at_most, bool recompute) const {
  double least = std::numeric_limits<double>::infinity();
  for (const OfDevice& times : devices_) {
    const auto ms_at = [&](std::size_t i) { return (recompute ? 2 : 1) * times.forward_ms[i] + times.backward_ms[i]; };
    for (std::size_t i = 0; i < times.samples.size(); ++i) {
      double samples = times.samples[i], ms = ms_at(i);
      if (i > 0 && samples > at_most) {
        const double before = times.samples[i - 1];
        if (before >= at_most) break;
        ms = ms_at(i - 1) + (ms - ms_at(i - 1)) * (at_most - before) / (samples - before);
        samples = at_most;
      }
      least = std::min(least, ms / samples);
    }
  }
  return least / fastest_ * (1 - kWorkRounding);
}

}  // namespace automap::pipeline
