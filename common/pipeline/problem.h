// A planning problem: one profile on one cluster with M micro-batches, prepared so that every stage, transfer and
// memory question is answered in O(1). Every planner and the value function read it; nobody else computes
// stage times.
//
// Instruction cuts p are 0..n, device cuts d are 0..D. A stage is (p0, p1] on devices (d0, d1].
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/span.h"
#include "common/pipeline/cluster.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/profile.h"

namespace automap::pipeline {

enum class ValueForm : std::uint8_t { kFull, kPaper };

struct ProblemOptions {
  int micro_batches = 16;
  bool memory = true;               // refuse plans that exceed a device's memory
  double state_factor = 4;          // bytes of training state per weight byte: weight, gradient, two Adam moments
  bool allow_empty_stages = false;  // allow stages without a trainable variable (paper 4.4)
  ValueForm value = ValueForm::kFull;
};

// What devices (d0, d1] are as a group of replicas.
struct DeviceGroup {
  int size = 0;          // g_s
  int servers = 0;       // v_s, servers touched
  int first_server = 0;  // 0-based
  int last_server = 0;
  double speed = 0;              // slowest relative speed
  double capacity_bytes = 0;     // smallest device memory
  double ring_bytes_per_ms = 0;  // bandwidth of its all-reduce
  double ring_latency_ms = 0;    // latency of one of its hops
};

// The way between two neighbouring groups: t = latency + bytes / bandwidth, and 0 for nothing to move.
struct Link {
  double latency_ms = 0;
  double bytes_per_ms = 0;
};

class Problem {
 public:
  // Throws Error(kData/kConfig) through check_profile / check_cluster, Error(kUsage) on M < 1.
  Problem(const Profile& profile, const Cluster& cluster, const ProblemOptions& options);

  int num_instructions() const { return n_; }
  int num_devices() const { return num_devices_; }
  int num_servers() const { return static_cast<int>(intra_bytes_per_ms_.size()); }
  int micro_batches() const { return options_.micro_batches; }
  double forward_fraction() const { return forward_fraction_; }
  const ProblemOptions& options() const { return options_; }
  int server_of_device(int device) const { return server_of_device_[static_cast<std::size_t>(device)]; }  // 0-based

  const DeviceGroup& group(int d0, int d1) const { return groups_[group_index(d0, d1)]; }

  // comp_s = F + B of one micro-batch, ms.
  double compute_ms(int p0, int p1, const DeviceGroup& g) const {
    return (compute_[idx(p1)] - compute_[idx(p0)]) / (g.size * g.speed);
  }
  // Reference-device compute of (p0, p1], ms.
  double work_ms(int p0, int p1) const { return compute_[idx(p1)] - compute_[idx(p0)]; }
  double weight_bytes(int p0, int p1) const { return weights_[idx(p1)] - weights_[idx(p0)]; }
  double stash_bytes(int p0, int p1) const { return stash_[idx(p1)] - stash_[idx(p0)]; }
  // Instructions with w > 0 in (p0, p1].
  int variables(int p0, int p1) const { return variables_[idx(p1)] - variables_[idx(p0)]; }
  double activation_bytes(int p) const { return activation_[idx(p)]; }

  double allreduce_ms(double bytes, const DeviceGroup& g) const {
    if (g.size == 1 || bytes <= 0) return 0;
    const double hops = 2.0 * (g.size - 1);
    return hops * g.ring_latency_ms + hops / g.size * bytes / g.ring_bytes_per_ms;
  }
  double allreduce_ms(int p0, int p1, const DeviceGroup& g) const { return allreduce_ms(weight_bytes(p0, p1), g); }

  // How bytes get from the group (d0, d1] to the group (d1, d2].
  Link link(int d0, int d1, int d2) const;
  // t_s of `bytes` from the group (d0, d1] to the group (d1, d2], ms one way.
  double transfer_ms(double bytes, int d0, int d1, int d2) const;
  double transfer_ms(int p, int d0, int d1, int d2) const { return transfer_ms(activation_[idx(p)], d0, d1, d2); }

  // Bytes on one device of the stage with `in_flight` micro-batches kept.
  double memory_bytes(int p0, int p1, const DeviceGroup& g, int in_flight) const {
    return options_.state_factor * weight_bytes(p0, p1) + stash_bytes(p0, p1) * in_flight / g.size;
  }
  // Memory and variable constraints of one stage. `needs_variable` as given by stages_need_variables(S).
  bool stage_fits(int p0, int p1, const DeviceGroup& g, int in_flight, bool needs_variable) const {
    return p1 > p0 && (!needs_variable || variables(p0, p1) > 0) &&
           (!options_.memory || memory_bytes(p0, p1, g, in_flight) <= g.capacity_bytes);
  }
  // True when a plan of S stages must hold a trainable variable in each (paper 4.4): the profile has at least S
  // instructions with w > 0 and --allow-empty-stages was not given.
  bool stages_need_variables(int num_stages) const {
    return !options_.allow_empty_stages && variables_.back() >= num_stages;
  }

 private:
  static std::size_t idx(int i) { return static_cast<std::size_t>(i); }
  std::size_t group_index(int d0, int d1) const { return idx(d0) * (idx(num_devices_) + 1) + idx(d1); }
  double smallest_inter(int first_server, int last_server) const {
    return inter_bytes_per_ms_[idx(first_server) * intra_bytes_per_ms_.size() + idx(last_server)];
  }

  ProblemOptions options_;
  int n_ = 0;
  int num_devices_ = 0;
  double forward_fraction_ = 0;
  double intra_latency_ms_ = 0;
  double inter_latency_ms_ = 0;
  std::vector<double> compute_, weights_, stash_, activation_;  // [n+1]; prefix sums but for activation_
  std::vector<int> variables_;                                  // [n+1], prefix counts of w > 0
  std::vector<int> server_of_device_;
  std::vector<double> intra_bytes_per_ms_;  // per server
  std::vector<double> inter_bytes_per_ms_;  // [servers x servers], smallest over the range
  std::vector<DeviceGroup> groups_;         // [(D+1) x (D+1)], d0 < d1
};

}  // namespace automap::pipeline
