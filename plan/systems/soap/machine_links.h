// The devices and links that tasks run on. A link is a device for messages: one at a time, first come first served
// (FlexFlow, section 5.1).
//
// Inside a server every ordered pair of devices has a link of its own; messages that leave a server go through its
// port, one after the other, at the pace of the slower of both servers' ports. They do not queue a second time where
// they come in. Times are those of common/machine/collectives.h: measured links where they are known, latency included
// (which the paper leaves out).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/machine/cluster.h"
#include "common/machine/collectives.h"

namespace automap::soap {

// Two operators on so many devices may have a message for every pair of their parts; beyond, memory would not do.
constexpr int kMostDevices = 256;

class MachineLinks {
 public:
  // The first `devices` of the cluster; 0: all. Throws Error(kUsage) when it has fewer, or when they are more than
  // kMostDevices.
  explicit MachineLinks(const machine::Cluster& cluster, int devices = 0);
  MachineLinks(const MachineLinks&) = delete;
  MachineLinks& operator=(const MachineLinks&) = delete;

  int num_devices() const { return static_cast<int>(server_of_.size()); }
  int num_servers() const { return static_cast<int>(servers_.size()); }
  int server_of(std::int32_t device) const { return server_of_[static_cast<std::size_t>(device)]; }
  // Against the reference device; 2: twice as fast.
  double speed(std::int32_t device) const { return speed_[static_cast<std::size_t>(device)]; }
  double memory_bytes(std::int32_t device) const { return memory_[static_cast<std::size_t>(device)]; }
  // Devices are resources 0 .. num_devices()-1, links those behind them.
  int num_resources() const { return num_resources_; }
  // The link and the time of a message; the devices differ.
  std::int32_t link(std::int32_t from, std::int32_t to) const;
  double send_ms(std::int32_t from, std::int32_t to, double bytes) const;
  // All-reduce over distinct devices, ascending, at least two of them: rings as frameworks build them.
  machine::CollectiveTime all_reduce(const std::vector<std::int32_t>& devices) const;

 private:
  struct Server {
    int first = 0, devices = 0;
    std::int32_t first_link = 0, port = 0;
    const machine::ServerGroup* kind = nullptr;
    machine::MessageLinks messages;
  };
  const Server& server(std::int32_t device) const { return servers_[static_cast<std::size_t>(server_of(device))]; }

  machine::Cluster cluster_;
  std::vector<Server> servers_;
  std::vector<int> server_of_;
  std::vector<double> speed_, memory_;
  int num_resources_ = 0;
  mutable std::map<std::vector<std::int32_t>, machine::CollectiveTime> known_;  // by members per server used
};

}  // namespace automap::soap
