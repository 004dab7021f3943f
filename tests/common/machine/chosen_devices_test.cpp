#include "common/machine/chosen_devices.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "common/base/error.h"

namespace automap::machine {
namespace {

// A server of two slow devices, two of five fast ones.
Cluster uneven() {
  Cluster cluster;
  cluster.name = "uneven";
  cluster.servers = {{1, 2, 100, 10, "slow"}, {2, 5, 100, 10, "fast"}};
  cluster.devices["slow"].memory_gib = cluster.devices["fast"].memory_gib = 16;
  cluster.devices["slow"].relative_speed = 0.5;
  return cluster;
}

TEST(ChosenDevices, StandInTheOrderGivenAndKnowWhatTheyAreCalled) {
  const Cluster part = on_devices(uneven(), {7, 8, 2, 3, 0});
  ASSERT_EQ(part.servers.size(), 2u);  // the two fast servers have as many devices each
  EXPECT_EQ(part.servers[0].count, 2);
  EXPECT_EQ(part.servers[0].devices, 2);
  EXPECT_EQ(part.servers[0].device, "fast");
  EXPECT_EQ(part.servers[1].devices, 1);
  EXPECT_EQ(part.servers[1].device, "slow");
  EXPECT_EQ(part.device_numbers, (std::vector<int>{7, 8, 2, 3, 0}));
  EXPECT_EQ(part.server_numbers, (std::vector<int>{2, 1, 0}));
  // A part of a part is called as in the whole.
  const Cluster less = on_devices(part, {2, 3});
  EXPECT_EQ(less.device_numbers, (std::vector<int>{2, 3}));
  EXPECT_EQ(less.server_numbers, (std::vector<int>{1}));
}

TEST(ChosenDevices, AreThereOnceAndServerByServer) {
  const auto what = [](const std::vector<int>& devices) {
    try {
      on_devices(uneven(), devices);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(what({12}), "device 13 of cluster 'uneven', which has 12");
  EXPECT_EQ(what({-1}), "device 0 of cluster 'uneven', which has 12");
  EXPECT_EQ(what({2, 2}), "device 3 comes twice");
  EXPECT_EQ(what({2, 0, 3}), "the order of devices comes back to server 2 of cluster 'uneven' at device 4");
}

TEST(ChosenDevices, FirstOnes) {
  EXPECT_TRUE(first_devices(uneven(), 12).device_numbers.empty());
  const Cluster some = first_devices(uneven(), 8);
  EXPECT_EQ(some.num_devices(), 8);
  EXPECT_EQ(some.num_servers(), 3);
  EXPECT_EQ(some.servers.back().devices, 1);
}

TEST(ChosenDevices, ReplicasLeaveDevicesOfAServerOver) {
  const Cluster pairs = replicas_of(uneven(), 2);
  EXPECT_EQ(pairs.num_devices(), 5);
  EXPECT_EQ(pairs.device_numbers, (std::vector<int>{0, 2, 4, 7, 9}));
  // The server of two has no replica of four.
  const Cluster fours = replicas_of(uneven(), 4);
  EXPECT_EQ(fours.device_numbers, (std::vector<int>{2, 7}));
  EXPECT_EQ(fours.server_numbers, (std::vector<int>{1, 2}));
  try {
    replicas_of(uneven(), 8);
    ADD_FAILURE() << "no server has eight devices";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "replicas of 8 devices are more than the 5 devices of the largest server of cluster 'uneven'");
  }
  EXPECT_THROW(replicas_of(uneven(), 0), Error);
}

TEST(ChosenDevices, ReplicasWiderThanAServerAreSeveralWholeServers) {
  Cluster cluster = uneven();
  cluster.servers = {{5, 4, 100, 10, "fast"}, {2, 2, 100, 30, "slow"}};
  const Cluster eights = replicas_of(cluster, 8);
  EXPECT_EQ(eights.num_devices(), 2);  // the fifth server of four is left over, and the two slow ones hold four
  EXPECT_EQ(eights.num_servers(), 2);
  EXPECT_EQ(eights.device_numbers, (std::vector<int>{0, 8}));
  EXPECT_EQ(eights.server_numbers, (std::vector<int>{0, 2}));
  EXPECT_EQ(eights.servers_taken_for_one, (std::vector<int>{2, 2}));
  EXPECT_EQ(first_devices(eights, 1).servers_taken_for_one, (std::vector<int>{2}));
  // They send over both ports, and talk inside over the ports, too.
  EXPECT_EQ(eights.servers[0].inter_gbytes_per_s, 20);
  EXPECT_EQ(eights.servers[0].intra_gbytes_per_s, 10);
  EXPECT_TRUE(eights.servers[0].links.empty());
  EXPECT_EQ(replicas_of(cluster, 16).num_devices(), 1);
  EXPECT_EQ(replicas_of(cluster, 4).num_devices(), 5);  // these stand in one server, and so no replica is two
  EXPECT_EQ(servers_of_replica(cluster, cluster.servers[1], 4), 0);
  EXPECT_EQ(servers_of_replica(cluster, cluster.servers[0], 4), 1);
  EXPECT_NO_THROW(require_one_server(cluster, 4));
  EXPECT_THROW(require_one_server(cluster, 8), Error);
  for (const int width : {6, 32}) EXPECT_THROW(replicas_of(cluster, width), Error) << width;
  // Chosen devices: servers are side by side if the whole numbers them so.
  const Cluster turned = on_devices(cluster, {4, 5, 6, 7, 0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15});
  EXPECT_EQ(replicas_of(turned, 8).device_numbers, (std::vector<int>{8}));
  // Halves of servers look like servers of their own, and are none.
  const Cluster halves = on_devices(cluster, {2, 3, 4, 5});
  EXPECT_NO_THROW(require_whole_servers(turned, cluster));
  EXPECT_THROW(require_whole_servers(halves, cluster), Error);
  // Servers of two kinds: of each as many as a replica takes.
  cluster.servers = {{2, 4, 100, 10, "fast"}, {4, 2, 100, 30, "slow"}};
  EXPECT_EQ(replicas_of(cluster, 8).servers_taken_for_one, (std::vector<int>{2, 4}));
}

TEST(ChosenDevices, AlikeServersHaveTheSameDevicesAndLinks) {
  Cluster cluster = uneven();
  cluster.servers.push_back({1, 5, 100, 10, "fast"});
  cluster.servers.push_back({1, 5, 100, 20, "fast"});
  EXPECT_EQ(alike_servers(cluster), (std::vector<int>{0, 1, 1, 1, 4}));
}

}  // namespace
}  // namespace automap::machine
