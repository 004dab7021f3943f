// Parts of a cluster for a plan: some of its devices, in an order of their own, or replicas of several devices of a
// server taken as one. A part knows the numbers of its devices in the whole cluster (Cluster::device_numbers).
#pragma once

#include <vector>

#include "common/machine/cluster.h"

namespace automap::machine {

// So many devices of a server, its first ones; servers are numbered from 0 in file order.
struct ServerShare {
  int server = 0, devices = 0;
  bool operator==(const ServerShare& o) const { return server == o.server && devices == o.devices; }
};

// These devices, numbered from 0 as `cluster` does, in this order. Throws Error(kUsage) naming a device that is not
// there or comes twice, or a server that the order comes back to: its devices stand side by side.
Cluster on_devices(const Cluster& cluster, const std::vector<int>& devices);
// The devices of these shares.
std::vector<int> devices_of(const Cluster& cluster, const std::vector<ServerShare>& shares);
// The first `devices` devices.
Cluster first_devices(const Cluster& cluster, int devices);

// The number of equal servers side by side that hold a replica of `width` devices: 1 where a server has as many. 0: no
// number of them does, or another server holds a replica alone, so that servers are not combined.
int servers_of_replica(const Cluster& cluster, const ServerGroup& group, int width);

bool one_server_holds(const Cluster& cluster, int width);
// Throws Error(kUsage) where no server has so many devices.
void require_one_server(const Cluster& cluster, int width);
// Throws Error(kUsage) where a server of `part` has fewer devices than in `whole`.
void require_whole_servers(const Cluster& part, const Cluster& whole);

// Takes every `width` devices of a server as one: replicas that many devices wide. Links are those of one of its
// devices, numbers those of its first. Left-over devices of a server take no part. Where no server has so many devices,
// a replica is several whole servers of one group, as one server of one device: it sends over the ports of all of them,
// and its inner traffic goes over ports, too. Throws Error(kUsage) where no such servers make up a replica.
Cluster replicas_of(const Cluster& cluster, int width);

// A part asked about as a cluster of its own, which it is the whole of.
Cluster as_whole(Cluster part);

// The number of a part's device `device` (0-based) in the whole, and of its server `server`.
int device_number(const Cluster& cluster, int device);
int server_number(const Cluster& cluster, int server);

// Their servers may stand for one another, whoever pays for them.
bool are_alike_and_as_dear(const ServerGroup& a, const ServerGroup& b);
// For each server the first one like it: with the same devices, as many of them, and the same links.
std::vector<int> alike_servers(const Cluster& cluster);

}  // namespace automap::machine
