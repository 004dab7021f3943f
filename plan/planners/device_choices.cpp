#include "plan/planners/device_choices.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "common/base/numbers.h"
#include "plan/planners/frameworks.h"

namespace automap::planners {
namespace {

using machine::Cluster;
using machine::ServerShare;

// Kinds of servers in every order of which choices are made.
constexpr std::size_t kMostKindsOrdered = 3;

// Servers with replicas of a width.
struct Servers {
  Servers(const Cluster& cluster, int width) : alike(machine::alike_servers(cluster)) {
    for (const machine::ServerGroup& group : cluster.servers) {
      for (int s = 0; s < group.count; ++s) replicas.push_back(group.devices / width);
    }
    for (std::size_t s = 0; s < alike.size(); ++s) {
      if (replicas[s] > 0) of_kind[alike[s]].push_back(static_cast<int>(s));
    }
  }

  std::vector<int> alike, replicas;         // of each server
  std::map<int, std::vector<int>> of_kind;  // kind -> its servers
};

int devices_in(const DeviceChoice& choice) {
  return std::accumulate(choice.begin(), choice.end(), 0,
                         [](int sum, const ServerShare& share) { return sum + share.devices; });
}

class Listing {
 public:
  Listing(const Servers& servers, int width, std::size_t most) : servers_(servers), width_(width), most_(most) {}

  // Returns true if there were no more than `most`.
  bool list() {
    extend();
    return out_.size() <= most_;
  }

  std::vector<DeviceChoice> take() { return std::move(out_); }

 private:
  // Everything that begins with the servers taken so far.
  void extend() {
    for (const auto& [kind, servers] : servers_.of_kind) {
      std::size_t& used = used_[kind];
      if (used == servers.size()) continue;
      const int server = servers[used];
      ++used;
      for (int replicas = servers_.replicas[at(server)]; replicas >= 1 && out_.size() <= most_; --replicas) {
        choice_.push_back({server, replicas * width_});
        out_.push_back(choice_);
        extend();
        choice_.pop_back();
      }
      --used_[kind];
    }
  }

  const Servers& servers_;
  const int width_;
  const std::size_t most_;
  std::map<int, std::size_t> used_;
  DeviceChoice choice_;
  std::vector<DeviceChoice> out_;
};

// Replaces servers by the first ones like them, in their order.
DeviceChoice canonical(const Servers& servers, DeviceChoice choice) {
  std::map<int, std::size_t> used;
  for (ServerShare& share : choice) {
    const int kind = servers.alike[at(share.server)];
    share.server = servers.of_kind.at(kind)[used[kind]++];
  }
  return choice;
}

}  // namespace

std::vector<DeviceChoice> all_choices(const Cluster& cluster, int width) {
  if (cluster.num_devices() > kMostDevicesListed) return {};
  const Servers servers(cluster, width);
  Listing listing(servers, width, kMostChoices);
  if (!listing.list()) return {};
  std::vector<DeviceChoice> all = listing.take();
  std::stable_sort(all.begin(), all.end(),
                   [](const DeviceChoice& a, const DeviceChoice& b) { return devices_in(a) > devices_in(b); });
  return all;
}

std::vector<DeviceChoice> choices_beside(const Cluster& cluster, int width, const DeviceChoice& choice) {
  const Servers servers(cluster, width);
  std::vector<DeviceChoice> out;
  const auto add = [&](DeviceChoice one) {
    if (one.empty()) return;
    one = canonical(servers, std::move(one));
    if (one != choice && std::find(out.begin(), out.end(), one) == out.end()) out.push_back(std::move(one));
  };
  // A change is tried only at the ends of a run of equal shares, since it is the same elsewhere in the run.
  const auto ends_a_run = [&](std::size_t s) {
    const auto same = [&](std::size_t a, std::size_t b) {
      return choice[a].devices == choice[b].devices &&
             servers.alike[at(choice[a].server)] == servers.alike[at(choice[b].server)];
    };
    return s == 0 || s + 1 == choice.size() || !same(s - 1, s) || !same(s, s + 1);
  };
  int smallest = choice.empty() ? 0 : choice.front().devices;
  std::map<int, std::size_t> used;
  for (const ServerShare& share : choice) {
    smallest = std::min(smallest, share.devices);
    ++used[servers.alike[at(share.server)]];
  }
  for (std::size_t s = 0; s < choice.size(); ++s) {
    if (!ends_a_run(s)) continue;
    DeviceChoice without = choice;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(s));
    add(std::move(without));
    const int there = choice[s].devices / width, all = servers.replicas[at(choice[s].server)];
    for (const int replicas : {there - 1, there / 2, there + 1, all}) {
      if (replicas < 1 || replicas > all || replicas == there) continue;
      DeviceChoice changed = choice;
      changed[s].devices = replicas * width;
      add(std::move(changed));
    }
    if (s + 1 < choice.size()) {
      DeviceChoice swapped = choice;
      std::swap(swapped[s], swapped[s + 1]);
      add(std::move(swapped));
    }
  }
  for (const auto& [kind, of_kind] : servers.of_kind) {
    if (used[kind] == of_kind.size()) continue;
    const int all = servers.replicas[at(of_kind.front())] * width;
    for (const std::size_t place : {std::size_t{0}, choice.size()}) {
      DeviceChoice more = choice;
      more.insert(more.begin() + static_cast<std::ptrdiff_t>(place), {of_kind[used[kind]], all});
      add(std::move(more));
    }
  }
  DeviceChoice level = choice;
  for (ServerShare& share : level) share.devices = smallest;
  add(std::move(level));
  return out;
}

std::vector<DeviceChoice> orders_of_kinds(const Cluster& cluster, int width) {
  const Servers servers(cluster, width);
  std::vector<std::vector<int>> kinds;
  for (const auto& [kind, of_kind] : servers.of_kind) kinds.push_back(of_kind);
  std::vector<std::vector<int>> orders;  // of kinds' numbers
  std::vector<int> all(kinds.size());
  std::iota(all.begin(), all.end(), 0);
  if (kinds.size() > kMostKindsOrdered) {
    orders = {all, {all.rbegin(), all.rend()}};
    for (const int kind : all) orders.push_back({kind});
  } else {
    for (std::size_t subset = (std::size_t{1} << kinds.size()) - 1; subset > 0; --subset) {
      std::vector<int> some;
      for (const int kind : all) {
        if ((subset >> kind & 1) != 0) some.push_back(kind);
      }
      do orders.push_back(some);
      while (std::next_permutation(some.begin(), some.end()));
    }
  }
  std::vector<DeviceChoice> out;
  for (const std::vector<int>& order : orders) {
    DeviceChoice choice;
    for (const int kind : order) {
      for (const int server : kinds[at(kind)]) choice.push_back({server, servers.replicas[at(server)] * width});
    }
    out.push_back(std::move(choice));
  }
  return out;
}

std::vector<DeviceChoice> even_choices(const Cluster& cluster, int width, int stages, bool lone) {
  const Servers servers(cluster, width);
  struct Even {
    int servers = 0, replicas = 0;  // of each
    int all() const { return servers * replicas; }
  };
  Even most, power;
  const auto have = [&](int replicas) {
    return static_cast<int>(
        std::count_if(servers.replicas.begin(), servers.replicas.end(), [&](int own) { return own >= replicas; }));
  };
  // Of choices of as many devices the one on fewer servers.
  for (int replicas = *std::max_element(servers.replicas.begin(), servers.replicas.end()); replicas >= 1; --replicas) {
    for (Even one{have(replicas), replicas}; one.all() > std::min(most.all(), power.all()); --one.servers) {
      const int of_stage = one.all() / stages;
      if (one.all() % stages != 0 || (lone && of_stage != 1)) continue;
      const std::vector<int> used(std::min<std::size_t>(2, at(one.servers)), replicas * width);
      if (!servers_inexpressible(used, of_stage * width, width).empty()) continue;
      if (one.all() > most.all()) most = one;
      if ((of_stage & (of_stage - 1)) == 0 && one.all() > power.all()) power = one;
    }
  }
  std::vector<DeviceChoice> out;
  for (const Even& even : {most, power}) {
    DeviceChoice choice;
    for (std::size_t s = 0; choice.size() < at(even.servers); ++s) {
      if (servers.replicas[s] >= even.replicas) choice.push_back({static_cast<int>(s), even.replicas * width});
    }
    if (!choice.empty() && (out.empty() || out.front() != choice)) out.push_back(std::move(choice));
  }
  return out;
}

DeviceChoice choice_of(const Cluster& cluster, const std::vector<int>& devices) {
  std::vector<int> server_of;
  int server = 0;
  for (const machine::ServerGroup& group : cluster.servers) {
    for (int s = 0; s < group.count; ++s, ++server) server_of.insert(server_of.end(), at(group.devices), server);
  }
  DeviceChoice out;
  for (const int device : devices) {
    const int own = server_of[at(device)];
    if (out.empty() || out.back().server != own) out.push_back({own, 0});
    ++out.back().devices;
  }
  return out;
}

}  // namespace automap::planners
