// How long collectives take: (operation, bytes, group) -> ms by ring formulas. The one place that knows them; planners,
// the propagation's costs and the profiles ask here. Sources: the ring all-reduce of Baidu and NCCL (2 (n-1) hops of
// bytes / n each), hierarchical rings as NCCL builds them between servers.
#pragma once

namespace automap::machine {

// A group of devices that work together, as far as a collective sees it.
struct CollectiveGroup {
  int devices = 1;
  int servers = 1;                                      // that the devices stand in
  int devices_per_server = 1;                           // the most of them in one server
  double intra_bytes_per_ms = 0, intra_latency_ms = 0;  // inside a server; the slowest of the group's
  double inter_bytes_per_ms = 0, inter_latency_ms = 0;  // of a server's network port; the slowest of the group's
};

// ms = latency_ms + bytes * ms_per_byte; nothing for 0 bytes.
struct CollectiveTime {
  double latency_ms = 0;
  double ms_per_byte = 0;
  double ms(double bytes) const { return bytes > 0 ? latency_ms + bytes * ms_per_byte : 0; }
};

enum class Ring {
  // One ring through all devices, every hop as slow as the slowest link (the papers).
  kFlat,
  // A ring inside each server and one between the servers, which has the whole port of each.
  kHierarchical,
};

// Of `bytes` that every device holds: afterwards each holds the sum. Worked case (flat, 4 devices of one server at 100
// bytes/ms, no latency): 2 * 3 / 4 * bytes / 100.
CollectiveTime all_reduce(const CollectiveGroup& group, Ring ring);
// Half of it: each device ends with its part of the sum, or begins with its part of `bytes`.
CollectiveTime reduce_scatter(const CollectiveGroup& group, Ring ring);
CollectiveTime all_gather(const CollectiveGroup& group, Ring ring);

// Of `bytes` that this group and another one hold whole on every device, each its own, both ways at once: afterwards
// both hold the sum. Each device swaps its share, so that all ports of the group work; between two all-reduces' halves,
// which gather what was swapped. `inside`: both groups stand in one server.
CollectiveTime exchange(const CollectiveGroup& group, bool inside);

}  // namespace automap::machine
