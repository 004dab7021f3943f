#include "common/machine/collectives.h"

namespace automap::machine {
namespace {

// One way around a ring of n: n - 1 hops, each of a share of 1 / n.
CollectiveTime once_around(int n, double bytes_per_ms, double latency_ms) {
  if (n <= 1) return {};
  const double hops = n - 1;
  return {hops * latency_ms, hops / n / bytes_per_ms};
}

CollectiveTime times(double factor, const CollectiveTime& time) {
  return {factor * time.latency_ms, factor * time.ms_per_byte};
}

}  // namespace

CollectiveTime reduce_scatter(const CollectiveGroup& group, Ring ring) {
  const bool inside = group.servers == 1;
  if (ring == Ring::kFlat) {
    return once_around(group.devices, inside ? group.intra_bytes_per_ms : group.inter_bytes_per_ms,
                       inside ? group.intra_latency_ms : group.inter_latency_ms);
  }
  const CollectiveTime in = once_around(group.devices_per_server, group.intra_bytes_per_ms, group.intra_latency_ms);
  const CollectiveTime between = once_around(group.servers, group.inter_bytes_per_ms, group.inter_latency_ms);
  return {in.latency_ms + between.latency_ms, in.ms_per_byte + between.ms_per_byte};
}

CollectiveTime all_gather(const CollectiveGroup& group, Ring ring) {
  return reduce_scatter(group, ring);
}

CollectiveTime all_reduce(const CollectiveGroup& group, Ring ring) {
  return times(2, reduce_scatter(group, ring));
}

CollectiveTime exchange(const CollectiveGroup& group, bool inside) {
  if (inside) return {group.intra_latency_ms, 1 / (group.devices * group.intra_bytes_per_ms)};
  return {group.inter_latency_ms, 1 / (group.servers * group.inter_bytes_per_ms)};
}

}  // namespace automap::machine
