#include "common/machine/collectives.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "common/machine/links.h"

namespace automap::machine {
namespace {

// One way around a ring of n: n - 1 hops, each of a share of 1 / n.
CollectiveTime once_around(int n, double bytes_per_ms, double latency_ms) {
  if (n <= 1) return {};
  const double hops = n - 1;
  return {hops * latency_ms, hops / n / bytes_per_ms};
}

// Hops inside and between servers at once: both latencies, and the pace of the slower.
CollectiveTime at_once(const CollectiveTime& inside, const CollectiveTime& between) {
  CollectiveTime::Lines lines = inside.lines();
  for (CollectiveLine& line : lines) {
    line.latency_ms += between.latency_ms();
    line.ms_per_byte = std::max(line.ms_per_byte, between.ms_per_byte());
  }
  return CollectiveTime(lines);
}

// Shares of a collective's bytes, for one round of the ring: those that a device sends to others in its server, and
// those that a server sends over its port.
struct Shares {
  double inside = 0, port = 0;
};
Shares shares_of(CollectiveKind operation, const CollectiveGroup& group) {
  const double n = group.devices, of_server = group.devices_per_server;
  // Each device of a server sends to all devices of the others.
  if (operation == CollectiveKind::kAllToAll) return {(of_server - 1) / n, of_server * (n - of_server) / n};
  // A ring through all devices sends as much over every hop, wherever it lies.
  const double hop = (n - 1) / n;
  return {group.devices_per_server > 1 ? hop : 0, group.servers > 1 ? hop : 0};
}

// Ways around the rings.
double rounds(CollectiveKind operation) {
  return operation == CollectiveKind::kAllReduce ? 2 : 1;
}

CollectiveTime by_rings(CollectiveKind operation, const CollectiveGroup& group) {
  const double times = rounds(operation);
  const Shares shares = shares_of(operation, group);
  const CollectiveTime in(times * (group.devices_per_server - 1) * group.intra_latency_ms,
                          shares.inside > 0 ? times * shares.inside / group.intra_bytes_per_ms : 0);
  const CollectiveTime between(times * (group.servers - 1) * group.inter_latency_ms,
                               shares.port > 0 ? times * shares.port / group.inter_bytes_per_ms : 0);
  return at_once(in, between);
}

// Null when the inside of a server was not measured.
std::optional<CollectiveTime> as_measured(CollectiveKind operation, const CollectiveGroup& group) {
  if (group.measured == nullptr) return std::nullopt;
  if (group.servers > 1) {
    if (const auto whole = group.measured->across(operation, group.devices, group.servers)) return whole;
  }
  const std::optional<CollectiveTime> in = group.measured->inside(operation, group.devices_per_server);
  if (!in || group.servers == 1) return in;
  // The devices of a server send and receive at once.
  const MessageLinks links = message_links(group);
  const double port = bytes_per_ms(links, {group.devices_per_server, 1, false}), times = rounds(operation);
  const Shares shares = shares_of(operation, group);
  const CollectiveTime between(times * (group.servers - 1) * links.between_latency_ms, times * shares.port / port);
  // The measurement is of a ring in one server.
  const double d = group.devices_per_server, measured_share = (d - 1) / d;
  const double more = measured_share > 0 ? shares.inside / measured_share : 1;
  return at_once(in->times(1, more), between);
}

}  // namespace

double CollectiveTime::ms_per_byte() const {
  double least = lines_[0].ms_per_byte;
  for (const CollectiveLine& line : lines_) least = std::min(least, line.ms_per_byte);
  return least;
}

double CollectiveTime::latency_ms() const {
  double least = lines_[0].latency_ms;
  for (const CollectiveLine& line : lines_) least = std::min(least, line.latency_ms);
  return least;
}

CollectiveTime CollectiveTime::times(double latency_factor, double pace_factor) const {
  CollectiveTime out = *this;
  for (CollectiveLine& line : out.lines_) {
    line.latency_ms *= latency_factor;
    line.ms_per_byte *= pace_factor;
  }
  return out;
}

CollectiveTime collective(CollectiveKind operation, const CollectiveGroup& group, Ring ring) {
  if (operation == CollectiveKind::kPermute) {
    const MessageLinks links = message_links(group);
    const bool inside = group.servers == 1;
    return {inside ? links.inside_latency_ms : links.between_latency_ms, 1 / bytes_per_ms(links, {1, 1, inside})};
  }
  if (ring == Ring::kFlat) {
    const bool inside = group.servers == 1;
    const double times = rounds(operation);
    return once_around(group.devices, inside ? group.intra_bytes_per_ms : group.inter_bytes_per_ms,
                       inside ? group.intra_latency_ms : group.inter_latency_ms)
        .times(times, times);
  }
  if (const auto measured = as_measured(operation, group)) return *measured;
  return by_rings(operation, group);
}

MessageLinks message_links(const CollectiveGroup& group) {
  MessageLinks links;
  links.inside_latency_ms = group.intra_latency_ms;
  links.inside_bytes_per_ms = group.intra_bytes_per_ms;
  links.between_latency_ms = group.inter_latency_ms;
  links.between_bytes_per_ms = std::numeric_limits<double>::infinity();
  links.port_bytes_per_ms = group.inter_bytes_per_ms;
  if (group.measured == nullptr) return links;
  if (const auto pair = group.measured->send(true)) {
    links.inside_latency_ms = pair->latency_ms;
    links.inside_bytes_per_ms = 1 / pair->ms_per_byte;
  }
  if (const auto pair = group.measured->send(false)) {
    links.between_latency_ms = pair->latency_ms;
    links.between_bytes_per_ms = 1 / pair->ms_per_byte;
  }
  return links;
}

CollectiveTime exchange(const CollectiveGroup& group, bool inside) {
  const MessageLinks links = message_links(group);
  return {inside ? links.inside_latency_ms : links.between_latency_ms,
          1 / bytes_per_ms(links, {group.devices, group.servers, inside})};
}

}  // namespace automap::machine
