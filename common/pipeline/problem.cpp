#include "common/pipeline/problem.h"

#include <algorithm>
#include <limits>

#include "common/base/error.h"

namespace automap::pipeline {
namespace {

constexpr double kBytesPerGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kBytesPerMsPerGByteS = 1e6;  // 1 GB/s = 1e9 B / 1e3 ms

}  // namespace

Problem::Problem(const Profile& profile, const Cluster& cluster, const ProblemOptions& options)
    : options_(options), n_(static_cast<int>(profile.size())), num_devices_(cluster.num_devices()) {
  check_profile(profile, profile.model.empty() ? "profile" : profile.model);
  check_cluster(cluster, cluster.name.empty() ? "cluster" : cluster.name);
  if (options.micro_batches < 1) {
    throw Error(ErrorKind::kUsage, "micro-batches must be at least 1, found " + std::to_string(options.micro_batches));
  }
  forward_fraction_ = profile.forward_fraction;
  intra_latency_ms_ = cluster.intra_latency_us * 1e-3;
  inter_latency_ms_ = cluster.inter_latency_us * 1e-3;

  const std::size_t points = idx(n_) + 1;
  compute_.assign(points, 0);
  weights_.assign(points, 0);
  stash_.assign(points, 0);
  activation_.assign(points, 0);
  variables_.assign(points, 0);
  for (std::size_t i = 1; i < points; ++i) {
    compute_[i] = compute_[i - 1] + profile.c_ms[i - 1];
    weights_[i] = weights_[i - 1] + profile.w_bytes[i - 1];
    stash_[i] = stash_[i - 1] + profile.stash_bytes[i - 1];
    activation_[i] = profile.a_bytes[i - 1];
    variables_[i] = variables_[i - 1] + (profile.w_bytes[i - 1] > 0 ? 1 : 0);
  }

  std::vector<double> speed, capacity, inter;
  for (const ServerGroup& servers : cluster.servers) {
    const DeviceType& device = cluster.devices.at(servers.device);
    for (int s = 0; s < servers.count; ++s) {
      for (int d = 0; d < servers.devices; ++d) {
        server_of_device_.push_back(num_servers());
        speed.push_back(device.relative_speed);
        capacity.push_back(device.memory_gib * kBytesPerGiB);
      }
      intra_bytes_per_ms_.push_back(servers.intra_gbytes_per_s * kBytesPerMsPerGByteS);
      inter.push_back(servers.inter_gbytes_per_s * kBytesPerMsPerGByteS);
    }
  }
  const std::size_t servers = intra_bytes_per_ms_.size();
  inter_bytes_per_ms_.assign(servers * servers, 0);
  for (std::size_t first = 0; first < servers; ++first) {
    double smallest = inter[first];
    for (std::size_t last = first; last < servers; ++last) {
      smallest = std::min(smallest, inter[last]);
      inter_bytes_per_ms_[first * servers + last] = smallest;
    }
  }

  groups_.assign((idx(num_devices_) + 1) * (idx(num_devices_) + 1), DeviceGroup());
  for (int d0 = 0; d0 < num_devices_; ++d0) {
    DeviceGroup g;
    g.first_server = server_of_device(d0);
    g.speed = std::numeric_limits<double>::infinity();
    g.capacity_bytes = std::numeric_limits<double>::infinity();
    for (int d1 = d0 + 1; d1 <= num_devices_; ++d1) {
      g.size = d1 - d0;
      g.last_server = server_of_device(d1 - 1);
      g.servers = g.last_server - g.first_server + 1;
      g.speed = std::min(g.speed, speed[idx(d1 - 1)]);
      g.capacity_bytes = std::min(g.capacity_bytes, capacity[idx(d1 - 1)]);
      const bool inside = g.servers == 1;
      g.ring_bytes_per_ms =
          inside ? intra_bytes_per_ms_[idx(g.first_server)] : smallest_inter(g.first_server, g.last_server);
      g.ring_latency_ms = inside ? intra_latency_ms_ : inter_latency_ms_;
      groups_[group_index(d0, d1)] = g;
    }
  }
}

Link Problem::link(int d0, int d1, int d2) const {
  const DeviceGroup& from = group(d0, d1);
  const DeviceGroup& to = group(d1, d2);
  if (from.first_server == to.last_server) {
    return {intra_latency_ms_, intra_bytes_per_ms_[idx(from.first_server)] * std::min(from.size, to.size)};
  }
  return {inter_latency_ms_, smallest_inter(from.first_server, to.last_server) * std::min(from.servers, to.servers)};
}

double Problem::transfer_ms(double bytes, int d0, int d1, int d2) const {
  if (bytes <= 0) return 0;
  const Link way = link(d0, d1, d2);
  return way.latency_ms + bytes / way.bytes_per_ms;
}

}  // namespace automap::pipeline
