// The normalized row: a problem as three arrays of 128 numbers in [0, 1], whatever the model's size and the cluster's
// speed (paper 4.5.1).
//
// Point k = 1..128 (index k-1) stands after instruction i_k = floor(k n / 128):
//   C'_k = sum of c over 1..i_k, ms;  A'_k = a of instruction i_k, not summed;  W'_k = sum of w over 1..i_k.
// Paper: A and W are bytes. Here: both are first turned into milliseconds at the cluster's slowest link, so that the
// one division by MAX = max(C', A', W') keeps the ratio between computing and communicating.
// A worked case: n = 2, c = (1, 3) ms, a = (1e6, 0), w = (0, 2e6) bytes, slowest link 1 GB/s: points 1..63 stand before
// the first instruction (i_k = 0), 64..127 after it, 128 after both; MAX = 4 ms, C' = 0 | 0.25 | 1, A' = 0 | 0.25 | 0,
// W' = 0 | 0 | 0.5.
#pragma once

#include <array>
#include <cstddef>

#include "common/machine/cluster.h"
#include "common/pipeline/profile.h"

namespace automap::pipeline {

using machine::Cluster;
using machine::DeviceType;
using machine::ServerGroup;

// Points of a row = the grid of pivots a one-shot planner sees.
constexpr int kGranularity = 128;

struct Row {
  std::array<float, kGranularity> compute{};     // C' / MAX
  std::array<float, kGranularity> activation{};  // A' / MAX
  std::array<float, kGranularity> weight{};      // W' / MAX
  double scale_ms = 0;                           // MAX
  std::array<int, kGranularity> instruction{};   // i_k, 0..n
  // True where i_k is 0 or equals i_{k-1}: the point says nothing new (n < 128).
  std::array<bool, kGranularity> repeated{};

  // A cut may be placed at point index k (0-based): not repeated and not after the last instruction.
  bool is_pivot(std::size_t k) const { return !repeated[k] && instruction[k] < instruction[kGranularity - 1]; }
};

// Bytes per ms of the slowest link there is: inter links when there are two servers or more, intra links of servers
// with two devices or more. A single device counts its own intra link.
double slowest_link_bytes_per_ms(const Cluster& cluster);

// Throws what check_profile and check_cluster throw.
Row make_row(const Profile& profile, const Cluster& cluster);

}  // namespace automap::pipeline
