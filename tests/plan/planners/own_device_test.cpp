#include "plan/planners/own_device.h"

#include <gtest/gtest.h>

#include "common/base/error.h"
#include "plan/planners/believable.h"

namespace automap::planners {
namespace {

machine::DeviceModel mine() {
  machine::DeviceModel device = *machine::find_device("a100-40gb");
  device.name = "a100-40gb (calibrated)";
  device.memory_gib = 39;
  return device;
}

TEST(OwnDevice, StandsForTheClustersDevices) {
  const machine::Cluster before = machine::load_cluster("a100-2x8");
  machine::Cluster cluster = before;
  set_device(mine(), &cluster);
  ASSERT_EQ(cluster.devices.size(), 1u);
  EXPECT_EQ(cluster.devices.at(mine().name).memory_gib, 39);
  for (std::size_t i = 0; i < cluster.servers.size(); ++i) {
    EXPECT_EQ(cluster.servers[i].device, mine().name);
    EXPECT_EQ(cluster.servers[i].links, before.servers[i].links);
    EXPECT_EQ(cluster.servers[i].devices, before.servers[i].devices);
  }
  check_cluster(cluster, "with a device of its own");
}

TEST(OwnDevice, ItsOwnNameChangesNothing) {
  machine::Cluster cluster = machine::load_cluster("h100-1x8");
  set_device(machine::load_device("h100-80gb"), &cluster);
  EXPECT_EQ(to_json_text(cluster), to_json_text(machine::load_cluster("h100-1x8")));
}

// Times are another device's where the cluster says how much faster its devices are.
TEST(OwnDevice, WhatSpeedsReferToIsNoDeviceOfTheCluster) {
  machine::Cluster cluster = machine::load_cluster("a100-2x8");
  cluster.devices.begin()->second.relative_speed = 2;
  const std::string before = to_json_text(cluster);
  set_device(mine(), &cluster);
  set_device(machine::load_device("v100-16gb"), &cluster);
  EXPECT_EQ(to_json_text(cluster), before);
}

TEST(OwnDevice, WhatWouldCountForNothingIsRefused) {
  machine::Cluster cluster = machine::load_cluster("a100-2x8");
  EXPECT_THROW(set_device(machine::load_device("h100"), &cluster), Error);
  machine::Cluster mixed = cluster;
  mixed.servers.push_back(machine::load_cluster("h100-1x8").servers[0]);
  mixed.devices["h100-80gb"].memory_gib = 80;
  mixed.devices[mixed.servers.back().device].memory_gib = 80;
  EXPECT_THROW(set_device(mine(), &mixed), Error);
}

TEST(Believable, AnOwnDeviceSaysWhatItAssumes) {
  machine::DeviceModel device = *machine::find_device("a100-40gb");
  device.name = "mine";
  device.sources = {{"launch_us", "fitted"}};
  machine::Cluster cluster = machine::load_cluster("a100-2x8");
  set_device(device, &cluster);
  pipeline::Profile profile;
  profile.work = "matmul bf16";
  std::string text;
  for (const std::string& line : planners::expected_errors_text(profile, cluster, device)) text += line + "\n";
  EXPECT_NE(text.find("assumptions: "), std::string::npos) << text;
  EXPECT_NE(text.find("gather_efficiency"), std::string::npos) << text;
  EXPECT_EQ(text.find("launch_us"), std::string::npos) << text;
}

}  // namespace
}  // namespace automap::planners
