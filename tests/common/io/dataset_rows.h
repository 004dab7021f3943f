// Rows made by hand for tests of datasets: valid, different from one another, and easily told apart.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/rng.h"
#include "common/pipeline/row_problem.h"

namespace automap::io {

inline pipeline::RowProblem hand_made_row(std::uint64_t index) {
  using pipeline::kGranularity;
  Rng rng(99, 7, index);
  pipeline::RowProblem row;
  row.num_instructions = static_cast<std::uint32_t>(index % 3 == 0 ? 20 + index % 50 : 200 + index);
  const auto n = std::min<std::uint32_t>(row.num_instructions, kGranularity);
  float c[kGranularity + 1] = {}, a[kGranularity + 1] = {}, w[kGranularity + 1] = {};
  for (std::uint32_t i = 1; i <= n; ++i) {
    c[i] = c[i - 1] + static_cast<float>(0.1 + rng.uniform());
    w[i] = w[i - 1] + static_cast<float>(0.1 + rng.uniform());
    a[i] = i == n ? 0 : static_cast<float>(rng.uniform());
  }
  const float most = std::max(c[n], w[n]);
  for (std::uint32_t k = 1; k <= kGranularity; ++k) {
    const std::uint32_t i = k * n / kGranularity;
    row.caw[k - 1] = c[i] / most;
    row.caw[kGranularity + k - 1] = a[i] / most;
    row.caw[2 * kGranularity + k - 1] = w[i] / most;
  }
  row.scale_ms = static_cast<float>(1 + rng.below(100));
  row.distribution = static_cast<std::uint8_t>(index % 2);
  row.servers = static_cast<std::uint16_t>(1 + index % 3);
  row.devices_per_server = 4;
  row.intra_over_inter = index % 3 == 0 ? 1.0f : 8.0f;
  row.micro_batches = static_cast<std::uint16_t>(8 + index % 9);
  row.stages = static_cast<std::uint16_t>(2 + index % 3);
  row.schedule = index % 2 == 0 ? pipeline::Schedule::k1f1b : pipeline::Schedule::k1f1bOverlap;
  row.forward_fraction = 0.25f;
  row.stash_factor = 1.5f;
  row.hop_latency = 0.001f;
  if (index % 5 == 4) row.memory_limit = 4;
  if (index % 4 == 3) {
    row.samples = 8;
    row.schedule = pipeline::Schedule::kAdaptive;
    row.launch_share = 0.25f;
    row.launch_even = 0.75f;
    row.gradient_share = 0.5f;
    row.slot_factor = static_cast<float>(index % 3);
    row.gradient_sync = 1;
    row.bucket = 0.01f;
    row.optimizer_factor = 0.125f;
    row.workspace_factor = 3;
    row.zero = static_cast<std::uint8_t>(index % 2);
    row.layers = static_cast<std::uint16_t>(index % 7);
  }
  return row;
}

inline bool same_row(const pipeline::RowProblem& a, const pipeline::RowProblem& b) {
  return a.caw == b.caw && a.scale_ms == b.scale_ms && a.num_instructions == b.num_instructions &&
         a.distribution == b.distribution && a.servers == b.servers && a.devices_per_server == b.devices_per_server &&
         a.intra_over_inter == b.intra_over_inter && a.micro_batches == b.micro_batches && a.stages == b.stages &&
         a.memory_limit == b.memory_limit && a.schedule == b.schedule && a.forward_fraction == b.forward_fraction &&
         a.stash_factor == b.stash_factor && a.hop_latency == b.hop_latency && a.server_seed == b.server_seed &&
         a.samples == b.samples && a.launch_share == b.launch_share && a.launch_even == b.launch_even &&
         a.gradient_share == b.gradient_share && a.slot_factor == b.slot_factor && a.gradient_sync == b.gradient_sync &&
         a.bucket == b.bucket && a.optimizer_factor == b.optimizer_factor && a.workspace_factor == b.workspace_factor &&
         a.zero == b.zero && a.layers == b.layers;
}

}  // namespace automap::io
