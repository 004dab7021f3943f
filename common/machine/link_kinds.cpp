#include "common/machine/link_kinds.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <vector>

namespace automap::machine {
namespace {

constexpr std::string_view kMark = " (links ";

bool alike_inside(const ServerGroup& a, const ServerGroup& b) {
  return a.intra_gbytes_per_s == b.intra_gbytes_per_s && a.links == b.links;
}

}  // namespace

std::string device_type(const std::string& name) {
  const std::size_t mark = name.rfind(kMark);
  if (mark == std::string::npos || mark == 0 || name.back() != ')') return name;
  const std::size_t number = mark + kMark.size();
  const bool digits =
      number + 1 < name.size() && std::all_of(name.begin() + static_cast<std::ptrdiff_t>(number), name.end() - 1,
                                              [](char c) { return c >= '0' && c <= '9'; });
  return digits ? name.substr(0, mark) : name;
}

Cluster with_link_kinds(Cluster cluster) {
  for (const auto& [name, type] : cluster.devices) {
    if (device_type(name) != name) return cluster;
  }
  std::map<std::string, std::vector<ServerGroup>> kinds;  // by type, one of each
  for (const ServerGroup& servers : cluster.servers) {
    std::vector<ServerGroup>& known = kinds[servers.device];
    const bool is_known =
        std::any_of(known.begin(), known.end(), [&](const ServerGroup& kind) { return alike_inside(kind, servers); });
    // One device has no links inside.
    if (servers.devices > 1 && !is_known) known.push_back(servers);
  }
  for (auto& [type, known] : kinds) {
    std::stable_sort(known.begin(), known.end(), [](const ServerGroup& a, const ServerGroup& b) {
      return a.intra_gbytes_per_s > b.intra_gbytes_per_s;
    });
  }
  for (ServerGroup& servers : cluster.servers) {
    if (servers.devices == 1) continue;
    const std::vector<ServerGroup>& known = kinds[servers.device];
    const auto own =
        std::find_if(known.begin(), known.end(), [&](const ServerGroup& kind) { return alike_inside(kind, servers); });
    const auto kind = std::min<std::ptrdiff_t>(own - known.begin(), kMostLinkKinds - 1);
    if (kind == 0) continue;
    const std::string name = servers.device + std::string(kMark) + std::to_string(kind + 1) + ")";
    cluster.devices[name] = cluster.devices.at(servers.device);
    servers.device = name;
  }
  return cluster;
}

}  // namespace automap::machine
