#include "plan/planners/least_work.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "plan/planners/step_sizes.h"

namespace automap::planners {

using machine::Cluster;
using pipeline::DeviceTimes;
using pipeline::Profile;
using pipeline::Replicas;

namespace {

constexpr double kWorkRounding = 1e-9;

// The largest relative speed of the devices in use, 1 at least.
double fastest_of(const Cluster& cluster) {
  double fastest = 1;
  for (const machine::ServerGroup& servers : cluster.servers) {
    fastest = std::max(fastest, cluster.devices.at(servers.device).relative_speed);
  }
  return fastest;
}

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

// Weights of the way in a mean of way and work: 0, 1 / 16, ..., 1.
constexpr int kWeights = 16;

// How a position may be computed: b samples at once, by replicas of so many devices of one type.
struct Computed {
  const DeviceTimes* times;
  const std::vector<double>* weight_share;  // may be empty
  int width;
  double samples;
  std::size_t point;  // the first point that is not below `samples`
  double part;        // of it, the rest of the one in front
};

double ms_at(const std::vector<std::vector<double>>& points, const Computed& how, std::size_t position) {
  const double ms = points[how.point][position];
  return how.part < 1 ? how.part * ms + (1 - how.part) * points[how.point - 1][position] : ms;
}

void add_computed(const std::vector<DeviceTimes>& times, int width, const std::vector<double>& weight_share,
                  const std::vector<double>& samples, std::vector<Computed>* out) {
  for (const DeviceTimes& one : times) {
    // Up to the first point times are the same, so that more samples are never worse.
    const auto first_point = [&](double b) { return one.samples.empty() || b <= one.samples.front(); };
    double most_of_first = 0;
    for (const double b : samples) most_of_first = first_point(b) ? std::max(most_of_first, b) : most_of_first;
    for (const double b : samples) {
      if (first_point(b) && b < most_of_first) continue;
      const auto point = std::lower_bound(one.samples.begin(), one.samples.end(), b) - one.samples.begin();
      if (point == static_cast<std::ptrdiff_t>(one.samples.size())) continue;
      Computed how{&one, &weight_share, width, b, static_cast<std::size_t>(point), 1};
      if (point > 0) {
        const double before = one.samples[how.point - 1];
        how.part = (b - before) / (one.samples[how.point] - before);
      }
      out->push_back(how);
    }
  }
}

}  // namespace

double least_step_bound_ms(const Profile& profile, const Cluster& cluster, Replicas replicas, double batch) {
  const double of_work = least_work_bound_ms(profile, cluster, replicas, batch);
  // Divisors of larger batches take long to find.
  constexpr double kMostBatch = 1e9;
  if (replicas == Replicas::kFractional || profile.times.empty() || batch != std::floor(batch) || batch > kMostBatch) {
    return of_work;
  }
  std::vector<Computed> ways;
  const std::vector<std::int64_t> whole = divisors(std::llround(batch));
  const std::vector<double> samples(whole.begin(), whole.end());
  add_computed(profile.times, 1, profile.weight_share, samples, &ways);
  for (const pipeline::WidthColumns& columns : profile.widths) {
    add_computed(columns.times, columns.width, columns.weight_share, samples, &ways);
  }
  std::array<double, kWeights + 1> sums{};
  for (std::size_t i = 0; i < profile.c_ms.size(); ++i) {
    std::array<double, kWeights + 1> least;
    least.fill(std::numeric_limits<double>::infinity());
    for (const Computed& how : ways) {
      const double forward = ms_at(how.times->forward_ms, how, i), backward = ms_at(how.times->backward_ms, how, i);
      const double for_weights = how.weight_share->empty() ? 0 : (*how.weight_share)[i];
      const double way = forward + backward * (1 - for_weights);
      const double work = batch / how.samples * how.width * (forward + backward) / cluster.num_devices();
      for (int k = 0; k <= kWeights; ++k) {
        const double weight = k / static_cast<double>(kWeights);
        least[static_cast<std::size_t>(k)] =
            std::min(least[static_cast<std::size_t>(k)], weight * way + (1 - weight) * work);
      }
    }
    for (int k = 0; k <= kWeights; ++k) sums[static_cast<std::size_t>(k)] += least[static_cast<std::size_t>(k)];
  }
  const double most = *std::max_element(sums.begin(), sums.end()) / fastest_of(cluster) * (1 - kWorkRounding);
  return most < std::numeric_limits<double>::infinity() ? std::max(of_work, most) : of_work;
}

double least_work_bound_ms(const Profile& profile, const Cluster& cluster, Replicas replicas, double batch) {
  double speeds = 0;
  for (const machine::ServerGroup& servers : cluster.servers) {
    speeds += cluster.devices.at(servers.device).relative_speed * servers.count * servers.devices;
  }
  double work = 0;
  if (replicas == Replicas::kFractional || profile.times.empty()) {
    for (const double ms : profile.c_ms) work += ms;
    work /= profile.micro_batch_size > 0 ? profile.micro_batch_size : 1;
  } else {
    std::vector<double> least(profile.size(), std::numeric_limits<double>::infinity());
    lower_by(profile.times, 1, &least);
    for (const pipeline::WidthColumns& columns : profile.widths) lower_by(columns.times, columns.width, &least);
    for (const double ms : least) work += ms;
    // Whose times are for which device is not asked: none is more than so much faster than any of them.
    speeds = fastest_of(cluster) * cluster.num_devices();
  }
  return batch * work / speeds * (1 - kWorkRounding);
}

SampleTimes::SampleTimes(const Profile& profile, const Cluster& cluster, Replicas replicas)
    : fastest_(fastest_of(cluster)) {
  const auto sum = [](const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); };
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

}  // namespace automap::planners
