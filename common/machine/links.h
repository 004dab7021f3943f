// Measured links: times of collectives and messages by operation and number of devices, of known devices, and of a
// user's own cluster (the `collectives` of a cluster file, docs/formats/cluster.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/machine/collectives.h"

namespace automap::machine {

struct DeviceModel;

// The measured time of one operation on one group.
struct MeasuredCollective {
  CollectiveKind operation = CollectiveKind::kAllReduce;
  int devices = 2;  // kSend: 2
  int servers = 1;  // that they stand in, equally many in each; kSend: 1 inside a server, 2 between two
  CollectiveTime time;
  bool assumed = false;  // taken over from other links or figures, without a measurement of these
  bool operator==(const MeasuredCollective& o) const {
    return operation == o.operation && devices == o.devices && servers == o.servers && time == o.time &&
           assumed == o.assumed;
  }
};

// Measurements of the links of one kind of server.
struct MeasuredLinks {
  std::vector<MeasuredCollective> rows;

  bool empty() const { return rows.empty(); }
  // True if some row about the links inside a server (or between servers) is assumed and not measured. nullopt: no row
  // is about them, so that the cluster's figures count.
  std::optional<bool> assumed(bool inside) const;
  // The time on so many devices of one server. A number that was not measured has the bandwidth of the next smaller
  // measured one (of the smallest, when all are larger), by the ring's share (n-1)/n of the bytes, and its latency by
  // log2 n. An operation that was not measured is half an all-reduce, as in a ring (an all-reduce: twice the measured
  // one). nullopt: none of them was measured.
  std::optional<CollectiveTime> inside(CollectiveKind operation, int devices) const;
  // Over several servers: only exact measurements.
  std::optional<CollectiveTime> across(CollectiveKind operation, int devices, int servers) const;
  // From one device to another: its endless line, which sizes of a few MB and more keep to.
  std::optional<CollectiveLine> send(bool inside) const;
  bool operator==(const MeasuredLinks& o) const { return rows == o.rows; }
};

// Links of a device of common/machine/device.h, by name or alias, eight in a server: inside the server, and from one of
// its devices to one of another server where that was measured. Empty: not known.
const MeasuredLinks& known_links(const std::string& device);
// Links of a device model: the known ones, unless a file gives a known device another link_gbytes_per_s.
const MeasuredLinks& known_links(const DeviceModel& device);
// `rows`, and of `known` those operations inside servers (between them) of which `rows` has none there.
MeasuredLinks with_known(const MeasuredLinks& rows, const MeasuredLinks& known);
// Bytes per ms and device of an endless all-reduce of the largest measured group inside a server; 0: not measured. The
// figure that ring formulas have for `intra`.
double bus_bytes_per_ms(const MeasuredLinks& links);
// The slower of two servers' links, which counts for both; null where one of them was not measured.
const MeasuredLinks* slower(const MeasuredLinks* a, const MeasuredLinks* b);

}  // namespace automap::machine
