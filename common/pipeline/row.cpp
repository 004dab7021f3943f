#include "common/pipeline/row.h"

#include <algorithm>
#include <limits>

namespace automap::pipeline {

double slowest_link_bytes_per_ms(const Cluster& cluster) {
  double slowest = std::numeric_limits<double>::infinity();
  const bool single_device = cluster.num_devices() == 1;
  for (const ServerGroup& group : cluster.servers) {
    if (cluster.num_servers() > 1) slowest = std::min(slowest, group.inter_gbytes_per_s);
    if (group.devices > 1 || single_device) slowest = std::min(slowest, group.intra_gbytes_per_s);
  }
  return slowest * machine::kBytesPerMsPerGByteS;
}

Row make_row(const Profile& profile, const Cluster& cluster) {
  check_profile(profile, profile.model.empty() ? "profile" : profile.model);
  check_cluster(cluster, cluster.name.empty() ? "cluster" : cluster.name);
  const double bytes_per_ms = slowest_link_bytes_per_ms(cluster);
  std::array<double, kGranularity> compute{}, activation{}, weight{};
  Row row;
  double compute_ms = 0, weight_bytes = 0;
  std::int64_t done = 0;
  for (std::size_t k = 0; k < kGranularity; ++k) {
    const std::int64_t i = static_cast<std::int64_t>(k + 1) * profile.size() / kGranularity;
    row.repeated[k] = i == done;
    for (; done < i; ++done) {
      compute_ms += profile.c_ms[static_cast<std::size_t>(done)];
      weight_bytes += profile.w_bytes[static_cast<std::size_t>(done)];
    }
    row.instruction[k] = static_cast<int>(i);
    compute[k] = compute_ms;
    weight[k] = weight_bytes / bytes_per_ms;
    activation[k] = i == 0 ? 0 : profile.a_bytes[static_cast<std::size_t>(i - 1)] / bytes_per_ms;
    row.scale_ms = std::max({row.scale_ms, compute[k], weight[k], activation[k]});
  }
  for (std::size_t k = 0; k < kGranularity; ++k) {
    row.compute[k] = static_cast<float>(compute[k] / row.scale_ms);
    row.activation[k] = static_cast<float>(activation[k] / row.scale_ms);
    row.weight[k] = static_cast<float>(weight[k] / row.scale_ms);
  }
  return row;
}

}  // namespace automap::pipeline
