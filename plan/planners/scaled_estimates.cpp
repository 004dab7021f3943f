#include "plan/planners/scaled_estimates.h"

#include <algorithm>
#include <vector>

namespace automap::planners {
namespace {

using pipeline::DeviceTimes;
using pipeline::Profile;

void scale_column(std::vector<double>& column, std::size_t first, std::size_t last, double factor) {
  for (std::size_t i = first; i < std::min(last, column.size()); ++i) column[i] *= factor;
}

void scale_device(DeviceTimes& times, std::size_t first, std::size_t last, double factor) {
  for (std::vector<double>& point : times.forward_ms) scale_column(point, first, last, factor);
  for (std::vector<double>& point : times.backward_ms) scale_column(point, first, last, factor);
  scale_column(times.optimizer_ms, first, last, factor);
}

// Forward and backward of replicas whose collectives take another factor than their kernels. `collective_ms`: both
// passes' at `own_samples` samples.
void scale_replica(DeviceTimes& times, const std::vector<double>& collective_ms, double own_samples, std::size_t first,
                   std::size_t last, double kernels, double collectives) {
  for (std::size_t p = 0; p < times.samples.size(); ++p) {
    const double samples = times.samples[p] / own_samples;
    std::vector<double>&forward = times.forward_ms[p], &backward = times.backward_ms[p];
    for (std::size_t i = first; i < std::min(last, forward.size()); ++i) {
      const double both = forward[i] + backward[i];
      const double share = both > 0 ? std::min(1.0, collective_ms[i] * samples / both) : 0;
      const double factor = kernels + share * (collectives - kernels);
      forward[i] *= factor;
      backward[i] *= factor;
    }
  }
  scale_column(times.optimizer_ms, first, last, kernels);
}

}  // namespace

void scale_times(Profile& profile, std::size_t first, std::size_t last, double kernels, double collectives) {
  scale_column(profile.c_ms, first, last, kernels);
  for (DeviceTimes& times : profile.times) scale_device(times, first, last, kernels);
  const auto own_samples = static_cast<double>(pipeline::own_samples(profile));
  for (pipeline::WidthColumns& width : profile.widths) {
    for (std::size_t d = 0; d < width.times.size(); ++d) {
      const bool known = d < width.collective_ms.size() && !width.collective_ms[d].empty();
      if (known && kernels != collectives) {
        scale_replica(width.times[d], width.collective_ms[d], own_samples, first, last, kernels, collectives);
      } else {
        scale_device(width.times[d], first, last, kernels);
      }
      if (known) scale_column(width.collective_ms[d], first, last, collectives);
    }
  }
}

void scale_links(machine::Cluster& cluster, Links which, double pace, double latency) {
  const bool inside = which == Links::kInside;
  (inside ? cluster.intra_latency_us : cluster.inter_latency_us) *= latency;
  for (machine::ServerGroup& servers : cluster.servers) {
    (inside ? servers.intra_gbytes_per_s : servers.inter_gbytes_per_s) *= 1 / pace;
    for (machine::MeasuredCollective& row : servers.links.rows) {
      if ((row.servers == 1) == inside) row.time = row.time.times(latency, pace);
    }
  }
}

void scale_memory(Profile& profile, double factor) {
  for (std::vector<double>* column :
       {&profile.stash_bytes, &profile.workspace_bytes, &profile.layer_entry_bytes, &profile.stage_entry_bytes}) {
    for (double& bytes : *column) bytes *= factor;
  }
  for (pipeline::WidthColumns& width : profile.widths) {
    for (std::vector<double>* column :
         {&width.stash_bytes, &width.workspace_bytes, &width.layer_entry_bytes, &width.stage_entry_bytes}) {
      for (double& bytes : *column) bytes *= factor;
    }
  }
}

}  // namespace automap::planners
