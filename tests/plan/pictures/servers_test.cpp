// Which device has which role, and what is drawn of servers and memory.
#include "plan/pictures/servers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/numbers.h"
#include "plan/pictures/memory_bars.h"

namespace automap::pictures {
namespace {

using testing::HasSubstr;
using testing::Not;

machine::Cluster two_servers(int devices) {
  machine::Cluster cluster;
  cluster.name = "c";
  machine::ServerGroup server;
  server.count = 2;
  server.devices = devices;
  server.device = "<v100>";
  cluster.servers = {server};
  return cluster;
}

pipeline::PlanDocument plan_on(const std::vector<std::vector<int>>& devices, int width) {
  pipeline::PlanDocument document;
  for (const std::vector<int>& numbers : devices) {
    pipeline::PlanStage stage;
    stage.device_numbers = numbers;
    stage.devices = static_cast<int>(numbers.size());
    stage.width = width;
    stage.replicas = stage.devices / width;
    document.stages.push_back(stage);
  }
  return document;
}

TEST(Servers, EveryDeviceHasItsRole) {
  const std::vector<DeviceRole> roles = device_roles(two_servers(4), plan_on({{5, 6, 7, 8}, {1, 2}}, 2));
  ASSERT_EQ(roles.size(), 8U);
  EXPECT_EQ(roles[0].stage, 2);
  EXPECT_EQ(roles[1].part, 2);
  EXPECT_EQ(roles[2].stage, 0);
  EXPECT_EQ(roles[4].stage, 1);
  EXPECT_EQ(roles[6].replica, 2);
  EXPECT_EQ(roles[6].part, 1);
}

TEST(Servers, AreDrawnAsBoxes) {
  const std::string markup = servers_markup(two_servers(4), plan_on({{5, 6, 7, 8}, {1, 2}}, 2));
  EXPECT_THAT(markup, HasSubstr("server 2: 4 x &lt;v100&gt;"));
  EXPECT_THAT(markup, HasSubstr("<b>7</b> p1 d2 t1"));
  EXPECT_THAT(markup, HasSubstr("not used"));
  EXPECT_THAT(markup, Not(HasSubstr("<v100>")));
  std::size_t opened = 0, closed = 0;
  for (std::size_t i = 0; (i = markup.find("<span", i)) != std::string::npos; ++i) ++opened;
  for (std::size_t i = 0; (i = markup.find("</span>", i)) != std::string::npos; ++i) ++closed;
  EXPECT_EQ(opened, closed);
  EXPECT_THAT(servers_markup(two_servers(5000), plan_on({{1}}, 1)), HasSubstr("too many to draw"));
}

TEST(MemoryBars, HaveNumbersOnly) {
  pipeline::PlanDocument document = plan_on({{1}, {2}}, 1);
  EXPECT_THAT(memory_markup(document), Not(HasSubstr("nan")));
  document.stages[0].memory.weights = document.stages[0].memory_bytes = 3 * kBytesPerGiB;
  document.stages[0].capacity_bytes = 4 * kBytesPerGiB;
  const std::string markup = memory_markup(document);
  EXPECT_THAT(markup, HasSubstr("75.0 %"));
  EXPECT_THAT(markup, HasSubstr("3.00 GiB"));
  EXPECT_THAT(markup, Not(HasSubstr("optimizer state")));
  EXPECT_THAT(markup, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace automap::pictures
