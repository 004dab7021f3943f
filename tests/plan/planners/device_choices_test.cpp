#include "plan/planners/device_choices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

namespace automap::planners {
namespace {

using machine::Cluster;
using machine::ServerShare;

Cluster cluster_of(std::vector<machine::ServerGroup> servers) {
  Cluster cluster;
  cluster.servers = std::move(servers);
  cluster.devices["a"].memory_gib = cluster.devices["b"].memory_gib = cluster.devices["c"].memory_gib = 16;
  return cluster;
}

// The key that tells choices apart: kinds of servers and numbers of devices, in their order.
std::vector<std::pair<int, int>> key(const std::vector<int>& alike, const DeviceChoice& choice) {
  std::vector<std::pair<int, int>> out;
  for (const ServerShare& share : choice) {
    out.emplace_back(alike[static_cast<std::size_t>(share.server)], share.devices);
  }
  return out;
}

// Every order of every set of servers with every number of replicas, none left out.
std::set<std::vector<std::pair<int, int>>> every(const Cluster& cluster, int width) {
  std::vector<int> devices;
  for (const machine::ServerGroup& group : cluster.servers) {
    devices.insert(devices.end(), static_cast<std::size_t>(group.count), group.devices);
  }
  const std::vector<int> alike = machine::alike_servers(cluster);
  std::set<std::vector<std::pair<int, int>>> out;
  DeviceChoice choice;
  const std::function<void()> grow = [&] {
    if (!choice.empty()) out.insert(key(alike, choice));
    for (int s = 0; s < static_cast<int>(devices.size()); ++s) {
      const auto taken = [s](const ServerShare& share) { return share.server == s; };
      if (std::any_of(choice.begin(), choice.end(), taken)) continue;
      for (int d = width; d <= devices[static_cast<std::size_t>(s)]; d += width) {
        choice.push_back({s, d});
        grow();
        choice.pop_back();
      }
    }
  };
  grow();
  return out;
}

TEST(DeviceChoices, AreAllThatDifferAndNoneTwice) {
  const std::vector<Cluster> clusters = {
      cluster_of({{1, 5, 100, 10, "a"}}), cluster_of({{2, 4, 100, 10, "a"}}), cluster_of({{4, 2, 100, 10, "a"}}),
      cluster_of({{1, 3, 100, 10, "a"}, {1, 4, 100, 10, "b"}}),
      cluster_of({{2, 1, 100, 10, "a"}, {1, 2, 100, 10, "b"}, {1, 3, 100, 10, "c"}})};
  for (const Cluster& cluster : clusters) {
    for (const int width : {1, 2}) {
      const std::vector<DeviceChoice> all = all_choices(cluster, width);
      const std::vector<int> alike = machine::alike_servers(cluster);
      std::set<std::vector<std::pair<int, int>>> keys;
      for (const DeviceChoice& choice : all) keys.insert(key(alike, choice));
      EXPECT_EQ(keys.size(), all.size());
      EXPECT_EQ(keys, every(cluster, width));
      for (const DeviceChoice& choice : all) {
        EXPECT_EQ(choice_of(cluster, machine::devices_of(cluster, choice)), choice);
      }
    }
  }
}

TEST(DeviceChoices, EvenOnesHaveAsManyOfEveryServer) {
  const Cluster cluster = cluster_of({{2, 8, 100, 10, "a"}, {1, 3, 100, 10, "a"}});
  using Choices = std::vector<DeviceChoice>;
  EXPECT_EQ(even_choices(cluster, 1, 1, false), (Choices{{{0, 8}, {1, 8}}}));
  EXPECT_EQ(even_choices(cluster, 1, 2, false), (Choices{{{0, 8}, {1, 8}}}));
  // Of stages of four devices on servers of six one would stand on both.
  EXPECT_EQ(even_choices(cluster, 1, 3, false), (Choices{{{0, 3}, {1, 3}, {2, 3}}, {{0, 6}}}));
  EXPECT_EQ(even_choices(cluster, 1, 3, true), (Choices{{{0, 3}}}));
  EXPECT_EQ(even_choices(cluster, 2, 3, false), (Choices{{{0, 6}}}));
  EXPECT_TRUE(even_choices(cluster, 16, 1, false).empty());
}

TEST(DeviceChoices, OfManyDevicesAreNotListed) {
  EXPECT_TRUE(all_choices(cluster_of({{2, 8, 100, 10, "a"}}), 1).empty());
}

// From any choice, steps to choices beside it come to every other one.
TEST(DeviceChoices, StepsComeToAllOfThem) {
  const Cluster cluster = cluster_of({{2, 2, 100, 10, "a"}, {1, 3, 100, 10, "b"}});
  const std::vector<DeviceChoice> all = all_choices(cluster, 1);
  std::vector<DeviceChoice> reached = {all.front()};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    for (const DeviceChoice& next : choices_beside(cluster, 1, reached[i])) {
      EXPECT_NE(std::find(all.begin(), all.end(), next), all.end());
      if (std::find(reached.begin(), reached.end(), next) == reached.end()) reached.push_back(next);
    }
  }
  EXPECT_EQ(reached.size(), all.size());
}

TEST(DeviceChoices, OrdersOfKindsTakeWholeServers) {
  const Cluster cluster = cluster_of({{2, 8, 100, 10, "a"}, {1, 6, 100, 10, "b"}});
  const std::vector<DeviceChoice> orders = orders_of_kinds(cluster, 4);
  EXPECT_EQ(orders.size(), 4u);  // a b, b a, a, b
  EXPECT_NE(std::find(orders.begin(), orders.end(), DeviceChoice{{2, 4}, {0, 8}, {1, 8}}), orders.end());
  EXPECT_NE(std::find(orders.begin(), orders.end(), DeviceChoice{{0, 8}, {1, 8}}), orders.end());
}

}  // namespace
}  // namespace automap::planners
