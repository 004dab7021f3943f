#include "common/machine/link_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace automap::machine {
namespace {

Cluster cluster_of(const std::vector<std::pair<std::string, double>>& servers, int devices = 8) {
  Cluster out;
  out.name = "some";
  for (const auto& [device, gbytes_per_s] : servers) {
    ServerGroup group;
    group.devices = devices;
    group.intra_gbytes_per_s = gbytes_per_s;
    group.inter_gbytes_per_s = 10;
    group.device = device;
    out.servers.push_back(group);
    out.devices[device].memory_gib = 80;
  }
  return out;
}

std::vector<std::string> names(const Cluster& cluster) {
  std::vector<std::string> out;
  for (const ServerGroup& servers : cluster.servers) out.push_back(servers.device);
  return out;
}

TEST(LinkKinds, ServersOfOneTypeAreToldApartByTheLinksInside) {
  const Cluster cluster = with_link_kinds(
      cluster_of({{"h100", 300}, {"a100", 300}, {"h100", 30}, {"h100", 300}, {"h100", 10}, {"a100", 300}}));
  EXPECT_THAT(names(cluster), testing::ElementsAre("h100", "a100", "h100 (links 2)", "h100", "h100 (links 3)", "a100"));
  EXPECT_EQ(cluster.devices.at("h100 (links 3)").memory_gib, 80);
  // Told apart already.
  EXPECT_EQ(names(with_link_kinds(cluster)), names(cluster));
}

TEST(LinkKinds, MeasuredLinksAreOthers) {
  Cluster cluster = cluster_of({{"h100", 300}, {"h100", 300}});
  cluster.servers[1].links = known_links("h100");
  ASSERT_FALSE(cluster.servers[1].links.empty());
  EXPECT_THAT(names(with_link_kinds(cluster)), testing::ElementsAre("h100", "h100 (links 2)"));
}

TEST(LinkKinds, OneDeviceHasNoLinksInside) {
  EXPECT_THAT(names(with_link_kinds(cluster_of({{"h100", 300}, {"h100", 30}}, 1))),
              testing::ElementsAre("h100", "h100"));
}

TEST(LinkKinds, TheOrderOfServersIsNoMatter) {
  EXPECT_THAT(names(with_link_kinds(cluster_of({{"h100", 30}, {"h100", 300}}))),
              testing::ElementsAre("h100 (links 2)", "h100"));
}

TEST(LinkKinds, OfManyKindsTheRestCountsAsTheLast) {
  std::vector<std::pair<std::string, double>> servers;
  for (int i = 1; i <= kMostLinkKinds + 2; ++i) servers.emplace_back("h100", 100 - i);
  const std::vector<std::string> found = names(with_link_kinds(cluster_of(servers)));
  EXPECT_EQ(found[kMostLinkKinds - 1], "h100 (links " + std::to_string(kMostLinkKinds) + ")");
  EXPECT_EQ(found.back(), found[kMostLinkKinds - 1]);
}

TEST(LinkKinds, NamesOfUsersStayTheirs) {
  EXPECT_EQ(device_type("h100 (links 2)"), "h100");
  for (const char* name : {"h100", "h100@2", " (links 2)", "h100 (links )", "h100 (links 2", "h100 (links x)"}) {
    EXPECT_EQ(device_type(name), name);
  }
  const Cluster cluster = cluster_of({{"h100", 30}, {"h100", 300}, {"h100 (links 2)", 300}});
  EXPECT_EQ(names(with_link_kinds(cluster)), names(cluster));
}

}  // namespace
}  // namespace automap::machine
