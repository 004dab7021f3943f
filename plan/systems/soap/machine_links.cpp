#include "plan/systems/soap/machine_links.h"

#include <algorithm>
#include <limits>
#include <string>

#include "common/base/error.h"
#include "common/base/numbers.h"

namespace automap::soap {

MachineLinks::MachineLinks(const machine::Cluster& cluster, int devices) : cluster_(cluster) {
  const int all = cluster_.num_devices(), wanted = devices == 0 ? all : devices;
  if (wanted < 1 || wanted > all || wanted > kMostDevices) {
    throw Error(ErrorKind::kUsage,
                "found " + std::to_string(wanted) + " devices, expected 1 to " +
                    std::to_string(std::min(all, kMostDevices)) + ": cluster '" + cluster_.name + "' has " +
                    std::to_string(all),
                wanted > all ? "give fewer devices or a larger cluster" : "--devices N uses the first N");
  }
  int left = wanted, first = 0;
  for (const machine::ServerGroup& kind : cluster_.servers) {
    for (int k = 0; k < kind.count && left > 0; ++k) {
      Server server;
      server.first = first;
      server.devices = std::min(kind.devices, left);
      server.kind = &kind;
      machine::CollectiveGroup pair;
      pair.devices = 2;
      pair.intra_bytes_per_ms = kind.intra_gbytes_per_s * machine::kBytesPerMsPerGByteS;
      pair.inter_bytes_per_ms = kind.inter_gbytes_per_s * machine::kBytesPerMsPerGByteS;
      pair.intra_latency_ms = cluster_.intra_latency_us * 1e-3;
      pair.inter_latency_ms = cluster_.inter_latency_us * 1e-3;
      pair.measured = kind.links.empty() ? nullptr : &kind.links;
      server.messages = machine::message_links(pair);
      for (int d = 0; d < server.devices; ++d) {
        server_of_.push_back(static_cast<int>(servers_.size()));
        speed_.push_back(cluster_.devices.at(kind.device).relative_speed);
        memory_.push_back(cluster_.devices.at(kind.device).memory_gib * kBytesPerGiB);
      }
      left -= server.devices;
      first += server.devices;
      servers_.push_back(server);
    }
  }
  num_resources_ = wanted;
  for (Server& server : servers_) {
    server.first_link = num_resources_;
    num_resources_ += server.devices * server.devices;
    server.port = num_resources_++;
  }
}

std::int32_t MachineLinks::link(std::int32_t from, std::int32_t to) const {
  const Server& source = server(from);
  if (server_of(from) != server_of(to)) return source.port;
  return source.first_link + (from - source.first) * source.devices + (to - source.first);
}

double MachineLinks::send_ms(std::int32_t from, std::int32_t to, double bytes) const {
  const machine::MessageLinks& a = server(from).messages;
  if (server_of(from) == server_of(to)) return a.inside_latency_ms + bytes / a.inside_bytes_per_ms;
  const machine::MessageLinks& b = server(to).messages;
  const auto pace = [](const machine::MessageLinks& links) { return machine::bytes_per_ms(links, {1, 1, false}); };
  return std::max(a.between_latency_ms, b.between_latency_ms) + bytes / std::min(pace(a), pace(b));
}

machine::CollectiveTime MachineLinks::all_reduce(const std::vector<std::int32_t>& devices) const {
  std::vector<std::int32_t> members(servers_.size(), 0);
  for (const std::int32_t device : devices) ++members[static_cast<std::size_t>(server_of(device))];
  const auto known = known_.find(members);
  if (known != known_.end()) return known->second;
  machine::CollectiveGroup group;
  group.devices = static_cast<int>(devices.size());
  group.servers = 0;
  group.intra_latency_ms = cluster_.intra_latency_us * 1e-3;
  group.inter_latency_ms = cluster_.inter_latency_us * 1e-3;
  group.intra_bytes_per_ms = group.inter_bytes_per_ms = std::numeric_limits<double>::infinity();
  for (std::size_t s = 0; s < members.size(); ++s) {
    if (members[s] == 0) continue;
    const machine::ServerGroup& kind = *servers_[s].kind;
    const machine::MeasuredLinks* links = kind.links.empty() ? nullptr : &kind.links;
    group.measured = group.servers == 0 ? links : machine::slower(group.measured, links);
    ++group.servers;
    group.devices_per_server = std::max(group.devices_per_server, members[s]);
    group.intra_bytes_per_ms =
        std::min(group.intra_bytes_per_ms, kind.intra_gbytes_per_s * machine::kBytesPerMsPerGByteS);
    group.inter_bytes_per_ms =
        std::min(group.inter_bytes_per_ms, kind.inter_gbytes_per_s * machine::kBytesPerMsPerGByteS);
  }
  if (group.servers == 1) group.inter_bytes_per_ms = std::numeric_limits<double>::infinity();
  return known_.emplace(std::move(members), machine::all_reduce(group, machine::Ring::kNccl)).first->second;
}

}  // namespace automap::soap
