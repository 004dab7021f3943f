#include "common/machine/chosen_devices.h"

#include <algorithm>
#include <numeric>

#include "common/base/error.h"

namespace automap::machine {
namespace {

std::size_t idx(int i) {
  return static_cast<std::size_t>(i);
}

// One server, as its group describes it.
struct Server {
  const ServerGroup* group = nullptr;
  int first_device = 0, number = 0;
  int taken = 1;  // Cluster::servers_taken_for_one
};

std::vector<Server> servers_of(const Cluster& cluster) {
  std::vector<Server> out;
  int device = 0;
  for (const ServerGroup& group : cluster.servers) {
    for (int s = 0; s < group.count; ++s) {
      const std::vector<int>& taken = cluster.servers_taken_for_one;
      out.push_back({&group, device, server_number(cluster, static_cast<int>(out.size())),
                     taken.empty() ? 1 : taken[out.size()]});
      device += group.devices;
    }
  }
  return out;
}

bool are_alike(const ServerGroup& a, const ServerGroup& b) {
  return a.devices == b.devices && a.device == b.device && a.intra_gbytes_per_s == b.intra_gbytes_per_s &&
         a.inter_gbytes_per_s == b.inter_gbytes_per_s && a.links == b.links;
}

// A server of so many devices behind those that `part` has already.
void add_server(const Server& server, int devices, Cluster* part) {
  part->server_numbers.push_back(server.number);
  part->servers_taken_for_one.push_back(server.taken);
  ServerGroup one = *server.group;
  one.count = 1;
  one.devices = devices;
  if (!part->servers.empty() && are_alike_and_as_dear(part->servers.back(), one)) {
    ++part->servers.back().count;
  } else {
    part->servers.push_back(std::move(one));
  }
}

Cluster nothing_of(const Cluster& cluster) {
  Cluster part = as_whole(cluster);
  part.servers.clear();
  return part;
}

[[noreturn]] void refuse_width(const Cluster& cluster, int width, const std::string& hint) {
  int largest = 0;
  for (const ServerGroup& group : cluster.servers) largest = std::max(largest, group.devices);
  throw Error(ErrorKind::kUsage,
              "replicas of " + std::to_string(width) + " devices are more than the " + std::to_string(largest) +
                  " devices of the largest server of cluster '" + cluster.name + "'",
              hint);
}

// That `count` servers from `first` on are of one group, and their devices numbered one after the other in the whole.
bool stand_side_by_side(const Cluster& cluster, const std::vector<Server>& servers, std::size_t first, int count) {
  if (first + idx(count) > servers.size()) return false;
  const Server& last = servers[first + idx(count) - 1];
  return last.group == servers[first].group &&
         device_number(cluster, last.first_device) - device_number(cluster, servers[first].first_device) ==
             last.first_device - servers[first].first_device;
}

}  // namespace

Cluster as_whole(Cluster part) {
  part.device_numbers.clear();
  part.server_numbers.clear();
  part.servers_taken_for_one.clear();
  return part;
}

int device_number(const Cluster& cluster, int device) {
  return cluster.device_numbers.empty() ? device : cluster.device_numbers[static_cast<std::size_t>(device)];
}

int server_number(const Cluster& cluster, int server) {
  return cluster.server_numbers.empty() ? server : cluster.server_numbers[static_cast<std::size_t>(server)];
}

Cluster on_devices(const Cluster& cluster, const std::vector<int>& devices) {
  const std::vector<Server> servers = servers_of(cluster);
  const int all = cluster.num_devices();
  const auto refuse = [&](const std::string& what, const std::string& hint) {
    throw Error(ErrorKind::kUsage, what, hint);
  };
  std::vector<char> taken(static_cast<std::size_t>(all), 0), seen(servers.size(), 0);
  Cluster part = nothing_of(cluster);
  for (std::size_t i = 0; i < devices.size();) {
    const auto server_of = [&](int device) {
      if (device < 0 || device >= all) {
        refuse("device " + std::to_string(device + 1) + " of cluster '" + cluster.name + "', which has " +
                   std::to_string(all),
               "devices are numbered from 1, server by server");
      }
      const auto behind = std::upper_bound(servers.begin(), servers.end(), device,
                                           [](int d, const Server& server) { return d < server.first_device; });
      return static_cast<std::size_t>(behind - servers.begin() - 1);
    };
    const std::size_t server = server_of(devices[i]);
    if (seen[server] != 0) {
      refuse("the order of devices comes back to server " + std::to_string(server + 1) + " of cluster '" +
                 cluster.name + "' at device " + std::to_string(devices[i] + 1),
             "name the devices of a server one after the other");
    }
    seen[server] = 1;
    int count = 0;
    for (; i < devices.size() && server_of(devices[i]) == server; ++i, ++count) {
      char& own = taken[static_cast<std::size_t>(devices[i])];
      if (own != 0) refuse("device " + std::to_string(devices[i] + 1) + " comes twice", "name every device once");
      own = 1;
      part.device_numbers.push_back(device_number(cluster, devices[i]));
    }
    add_server(servers[server], count, &part);
  }
  return part;
}

std::vector<int> devices_of(const Cluster& cluster, const std::vector<ServerShare>& shares) {
  const std::vector<Server> servers = servers_of(cluster);
  std::vector<int> devices;
  for (const ServerShare& share : shares) {
    const int first = servers[static_cast<std::size_t>(share.server)].first_device;
    for (int d = 0; d < share.devices; ++d) devices.push_back(first + d);
  }
  return devices;
}

Cluster first_devices(const Cluster& cluster, int devices) {
  if (devices >= cluster.num_devices()) return cluster;
  std::vector<int> numbers(static_cast<std::size_t>(devices));
  std::iota(numbers.begin(), numbers.end(), 0);
  return on_devices(cluster, numbers);
}

bool one_server_holds(const Cluster& cluster, int width) {
  const auto holds = [&](const ServerGroup& servers) { return servers.devices >= width; };
  return std::any_of(cluster.servers.begin(), cluster.servers.end(), holds);
}

void require_one_server(const Cluster& cluster, int width) {
  if (one_server_holds(cluster, width)) return;
  refuse_width(cluster, width, "only a layout of one width (--layout tp=16), or its plan, has replicas over servers");
}

void require_whole_servers(const Cluster& part, const Cluster& whole) {
  const std::vector<Server> of_whole = servers_of(whole);
  for (const Server& server : servers_of(part)) {
    const int all = of_whole[idx(server.number)].group->devices;
    if (server.group->devices == all) continue;
    throw Error(ErrorKind::kUsage,
                "replicas over several servers have all " + std::to_string(all) + " devices of each, and of server " +
                    std::to_string(server.number + 1) + " of cluster '" + whole.name + "' there are " +
                    std::to_string(server.group->devices),
                "name whole servers, one after the other");
  }
}

int servers_of_replica(const Cluster& cluster, const ServerGroup& group, int width) {
  if (group.devices >= width) return 1;
  if (one_server_holds(cluster, width) || width % group.devices != 0) return 0;
  const int servers = width / group.devices;
  return servers <= group.count ? servers : 0;
}

Cluster replicas_of(const Cluster& cluster, int width) {
  if (width == 1) return cluster;
  Cluster out = nothing_of(cluster);
  const std::vector<Server> servers = servers_of(cluster);
  for (std::size_t s = 0; width > 0 && s < servers.size();) {
    const ServerGroup& group = *servers[s].group;
    const int together = servers_of_replica(cluster, group, width);
    if (together == 0 || !stand_side_by_side(cluster, servers, s, together)) {
      ++s;
      continue;
    }
    const int replicas = together == 1 ? group.devices / width : 1;
    for (int r = 0; r < replicas; ++r) {
      out.device_numbers.push_back(device_number(cluster, servers[s].first_device + r * width));
    }
    if (together == 1) {
      add_server(servers[s], replicas, &out);
    } else {
      ServerGroup wide = group;
      wide.intra_gbytes_per_s = std::min(group.intra_gbytes_per_s, group.inter_gbytes_per_s);
      wide.inter_gbytes_per_s *= together;
      wide.links = {};
      add_server({&wide, servers[s].first_device, servers[s].number, together}, replicas, &out);
    }
    s += idx(together);
  }
  if (out.servers.empty()) {
    refuse_width(cluster, width, "a replica stands in one server, or is several whole servers that are alike");
  }
  return out;
}

bool are_alike_and_as_dear(const ServerGroup& a, const ServerGroup& b) {
  return are_alike(a, b) && a.price_per_device_hour == b.price_per_device_hour;
}

std::vector<int> alike_servers(const Cluster& cluster) {
  std::vector<int> first;
  const std::vector<Server> servers = servers_of(cluster);
  for (std::size_t s = 0; s < servers.size(); ++s) {
    std::size_t f = 0;
    while (f < s && servers[f].group != servers[s].group && !are_alike(*servers[f].group, *servers[s].group)) ++f;
    first.push_back(static_cast<int>(f));
  }
  return first;
}

}  // namespace automap::machine
