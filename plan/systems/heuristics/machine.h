// The devices that a graph is divided among: their speed and memory, and the time of a message between two of them.
#pragma once

#include <memory>
#include <vector>

#include "common/machine/cluster.h"
#include "plan/systems/heuristics/work_graph.h"
#include "plan/systems/soap/machine_links.h"

namespace automap::heuristics {

class Machine {
 public:
  // The first `devices` of the cluster; 0: all. Throws Error(kUsage) as soap::MachineLinks.
  explicit Machine(const machine::Cluster& cluster, int devices = 0);

  int num_devices() const { return static_cast<int>(speed_.size()); }
  const soap::MachineLinks& links() const { return *links_; }
  // The time on a device of a task that takes `ms` on the reference device.
  double task_ms(double ms, DeviceId device) const { return ms / speed_[at(device)]; }
  double speed(DeviceId device) const { return speed_[at(device)]; }
  double total_speed() const;
  double capacity_bytes(DeviceId device) const { return capacity_[at(device)]; }
  // Latency and bytes over the slowest link of the way (MachineLinks::send_ms); 0 on the same device, and for no bytes.
  double message_ms(DeviceId from, DeviceId to, double bytes) const {
    if (from == to || !(bytes > 0)) return 0;
    const Pair& pair = pairs_[at(from) * speed_.size() + at(to)];
    return pair.latency_ms + bytes * pair.ms_per_byte;
  }
  // The mean over all pairs of devices: the estimate of a message before anything has a place.
  double mean_message_ms(double bytes) const { return bytes > 0 ? mean_.latency_ms + bytes * mean_.ms_per_byte : 0; }

  // The first `devices` of them alone, at least 1.
  Machine first(int devices) const;
  // The same machine with device d slower by slow[d] > 0: the truth for an oracle, or the ratios that assistants
  // observed.
  Machine slowed(const std::vector<double>& slow) const;

 private:
  struct Pair {
    double latency_ms = 0, ms_per_byte = 0;
  };
  void take_means();

  std::shared_ptr<const soap::MachineLinks> links_;
  std::vector<double> speed_, capacity_;
  std::vector<Pair> pairs_;  // from, to
  Pair mean_;
};

}  // namespace automap::heuristics
