// The cost model of collectives and messages: (operation, bytes, group) -> ms. Planners and profiles take all such
// times from here. Two sources: measurements of the group's links (common/machine/links.h), else ring formulas: the
// ring all-reduce of Baidu and NCCL (2 (n-1) hops of bytes / n each).
#pragma once

#include <array>
#include <cstddef>

#include "common/base/collective_kind.h"

namespace automap::machine {

struct MeasuredLinks;

constexpr double kBytesPerMsPerGByteS = 1e6;  // 1 GB/s = 1e9 B / 1e3 ms

// A straight line of bytes: a protocol or algorithm that moves a message at one pace once it has begun.
struct CollectiveLine {
  double latency_ms = 0;
  double ms_per_byte = 0;
  bool operator==(const CollectiveLine& o) const { return latency_ms == o.latency_ms && ms_per_byte == o.ms_per_byte; }
};

// ms of bytes: the least of its lines, as libraries choose the protocol that is fastest for a message; 0 for 0 bytes.
// Concave, so that time grows with the bytes and falls per byte, and that no message gets faster by being cut into
// several (bounds and the exact solver rely on this).
class CollectiveTime {
 public:
  static constexpr std::size_t kLines = 3;
  using Lines = std::array<CollectiveLine, kLines>;

  CollectiveTime() = default;
  CollectiveTime(double latency_ms, double ms_per_byte) { lines_.fill({latency_ms, ms_per_byte}); }
  // Fewer lines: the caller repeats the last.
  explicit CollectiveTime(const Lines& lines) : lines_(lines) {}

  double ms(double bytes) const {
    if (!(bytes > 0)) return 0;
    double least = lines_[0].latency_ms + bytes * lines_[0].ms_per_byte;
    for (std::size_t i = 1; i < kLines; ++i) {
      const double other = lines_[i].latency_ms + bytes * lines_[i].ms_per_byte;
      least = other < least ? other : least;
    }
    return least;
  }
  const Lines& lines() const { return lines_; }
  // The slope for endless messages: ms(bytes) >= latency_ms() + bytes * ms_per_byte().
  double ms_per_byte() const;
  // The latency of the shortest message.
  double latency_ms() const;
  // Every line's latency and pace times a factor.
  CollectiveTime times(double latency_factor, double pace_factor) const;
  bool operator==(const CollectiveTime& o) const { return lines_ == o.lines_; }
  bool operator!=(const CollectiveTime& o) const { return !(*this == o); }

 private:
  Lines lines_{};
};

// A group of devices that work together, as far as a collective sees it.
struct CollectiveGroup {
  int devices = 1;
  int servers = 1;                                      // that the devices stand in
  int devices_per_server = 1;                           // the most of them in one server
  double intra_bytes_per_ms = 0, intra_latency_ms = 0;  // inside a server; the slowest of the group's
  double inter_bytes_per_ms = 0, inter_latency_ms = 0;  // of a server's network port; the slowest of the group's
  // Measurements of the links of the group's servers, where there are any; the slowest of them. Null: the figures
  // above.
  const MeasuredLinks* measured = nullptr;
};

enum class Ring {
  // One ring through all devices, every hop as slow as the slowest link (the papers); from the figures alone.
  kFlat,
  // As NCCL has them: rings around all devices, as many as fill the links inside and the whole port of each server. All
  // hops go at once, at the pace of the slower ones, so that a port sends as much as a device does. As measured, where
  // that is known.
  kNccl,
};

// Worked case (all-reduce, flat, 4 devices of one server at 100 bytes/ms, no latency): 2 * 3 / 4 * bytes / 100.
CollectiveTime collective(CollectiveKind operation, const CollectiveGroup& group, Ring ring);
inline CollectiveTime all_reduce(const CollectiveGroup& group, Ring ring) {
  return collective(CollectiveKind::kAllReduce, group, ring);
}
inline CollectiveTime reduce_scatter(const CollectiveGroup& group, Ring ring) {
  return collective(CollectiveKind::kReduceScatter, group, ring);
}
inline CollectiveTime all_gather(const CollectiveGroup& group, Ring ring) {
  return collective(CollectiveKind::kAllGather, group, ring);
}
inline CollectiveTime all_to_all(const CollectiveGroup& group, Ring ring) {
  return collective(CollectiveKind::kAllToAll, group, ring);
}

// Links for messages between devices. Inside a server each pair has its own link. Between servers no pair exceeds its
// own way to the port, and all together share the ports.
struct MessageLinks {
  double inside_latency_ms = 0, inside_bytes_per_ms = 0;    // a pair
  double between_latency_ms = 0, between_bytes_per_ms = 0;  // a pair; infinity: what the ports have
  double port_bytes_per_ms = 0;                             // of a server
};
MessageLinks message_links(const CollectiveGroup& group);

// Between two groups, all pairs at once.
struct MessageGroups {
  int devices = 1, servers = 1;  // of the smaller group, each
  bool inside = false;           // both in one server
};
inline double bytes_per_ms(const MessageLinks& links, const MessageGroups& groups) {
  if (groups.inside) return links.inside_bytes_per_ms * groups.devices;
  const double ports = links.port_bytes_per_ms * groups.servers, pairs = links.between_bytes_per_ms * groups.devices;
  return ports < pairs ? ports : pairs;
}

// Exchange of sums with another group. Both groups hold `bytes` whole on every device, each its own; both ways at once;
// afterwards both hold the sum. Each device swaps its share, so that all ports of the group work. It runs between the
// two halves of the groups' all-reduces, the second of which gathers the swapped shares. `inside`: both groups stand in
// one server.
CollectiveTime exchange(const CollectiveGroup& group, bool inside);

}  // namespace automap::machine
