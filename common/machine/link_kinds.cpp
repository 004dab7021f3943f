#include "common/machine/link_kinds.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

namespace automap::machine {
namespace {

constexpr char kMark = '@';

bool alike_inside(const ServerGroup& a, const ServerGroup& b) {
  return a.intra_gbytes_per_s == b.intra_gbytes_per_s && a.links == b.links;
}

}  // namespace

std::string device_type(const std::string& name) {
  const std::size_t mark = name.rfind(kMark);
  if (mark == std::string::npos || mark == 0 || mark + 1 == name.size()) return name;
  const bool number = std::all_of(name.begin() + static_cast<std::ptrdiff_t>(mark) + 1, name.end(),
                                  [](char c) { return c >= '0' && c <= '9'; });
  return number ? name.substr(0, mark) : name;
}

Cluster with_link_kinds(Cluster cluster) {
  std::map<std::string, std::vector<ServerGroup>> kinds;  // by type, one of each
  for (ServerGroup& servers : cluster.servers) {
    // One device has no links inside.
    if (servers.devices == 1) continue;
    std::vector<ServerGroup>& known = kinds[servers.device];
    std::size_t kind = 0;
    while (kind < known.size() && !alike_inside(known[kind], servers)) ++kind;
    if (kind == known.size() && kind < kMostLinkKinds) known.push_back(servers);
    kind = std::min(kind, known.size() - 1);
    if (kind == 0) continue;
    const std::string name = servers.device + kMark + std::to_string(kind + 1);
    cluster.devices[name] = cluster.devices.at(servers.device);
    servers.device = name;
  }
  return cluster;
}

}  // namespace automap::machine
