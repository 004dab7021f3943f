#include "plan/planners/believable.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace automap::planners {
namespace {

std::string lines(const pipeline::Profile& profile, const machine::Cluster& cluster,
                  const std::optional<machine::DeviceModel>& own = {}) {
  std::string out;
  for (const std::string& line : expected_errors_text(profile, cluster, own)) out += line + "\n";
  return out;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Believable, OnlyConstantsThatMatterForTheWork) {
  pipeline::Profile profile;
  const machine::Cluster cluster = machine::load_cluster("a100-2x8");
  const std::string unknown = lines(profile, cluster);
  EXPECT_TRUE(has(unknown, "matmul.f64") && has(unknown, "work unknown")) << unknown;
  profile.work = "matmul f32";
  const std::string products = lines(profile, cluster);
  EXPECT_TRUE(has(products, "mostly matmul f32 on units for tf32")) << products;
  for (const char* other : {"matmul.f64", "matmul.i8", "matmul.f32", "convolution_efficiency"})
    EXPECT_FALSE(has(products, other)) << other << " in " << products;
  EXPECT_TRUE(has(products, "launch_us")) << products;
}

TEST(Believable, EveryDeviceOfTheClusterAndMemoryWhereItIsKnown) {
  pipeline::Profile profile;
  machine::Cluster cluster = machine::load_cluster("a100-2x8");
  cluster.servers.push_back(cluster.servers[0]);
  cluster.servers.back().device = "mine";
  cluster.devices["mine"].memory_gib = 40;
  const std::string both = lines(profile, cluster);
  EXPECT_TRUE(has(both, "a100-80gb") && has(both, "\nmine")) << both;
  EXPECT_FALSE(has(both, "memory of"));
  profile.stash_bytes = {1};
  EXPECT_TRUE(has(lines(profile, cluster), "memory of activations"));
}

// Figures taken over from another device, or made up, are no measurement.
TEST(Believable, LinksInsideAndBetweenApart) {
  const auto errors = [](const char* cluster) { return expected_errors({}, machine::load_cluster(cluster)); };
  const auto text = [](const char* cluster) { return lines({}, machine::load_cluster(cluster)); };
  EXPECT_TRUE(has(text("h100-2x8"), "links inside servers as measured: ±20 %")) << text("h100-2x8");
  EXPECT_TRUE(has(text("a100-cloud-4x8"), "links inside servers as other ones were measured: ±50 %"));
  EXPECT_LT(errors("h100-2x8").links_inside, errors("a100-2x8").links_inside);
  EXPECT_TRUE(has(text("config-a"), "links between servers by the cluster's figures: ±50 %")) << text("config-a");
  EXPECT_EQ(errors("h100-1x8").links_between, 0);
  EXPECT_EQ(text("h100-1x8").find("between"), std::string::npos);
}

// A profile of a device in no table is not credited with what was measured of the cluster's.
TEST(Believable, TimesOfAnotherDeviceAreNotTheClustersOwn) {
  pipeline::Profile profile;
  profile.work = "matmul bf16";
  const machine::Cluster cluster = machine::load_cluster("a100-2x8");
  const ExpectedErrors known = expected_errors(profile, cluster);
  EXPECT_LT(known.compute_less, known.compute_more);
  EXPECT_TRUE(has(lines(profile, cluster), "10 % shorter to 25 % longer expected, from")) << lines(profile, cluster);
  profile.device = "mine";
  EXPECT_GT(expected_errors(profile, cluster).compute_less, known.compute_less);
  EXPECT_TRUE(has(lines(profile, cluster), "counted as mine")) << lines(profile, cluster);
}

}  // namespace
}  // namespace automap::planners
