// Which parts of a cluster are looked at, and which of them is chosen.
#include "infer/frontier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "common/base/error.h"

namespace automap::infer {
namespace {

using machine::Cluster;
using pipeline::FrontierPoint;
using testing::ElementsAre;
using testing::HasSubstr;

Cluster cluster_of(std::vector<machine::ServerGroup> servers) {
  Cluster cluster;
  cluster.name = "c";
  for (const machine::ServerGroup& group : servers) cluster.devices[group.device].memory_gib = 16;
  cluster.servers = std::move(servers);
  return cluster;
}

std::vector<int> sizes_of(const std::vector<Rented>& parts) {
  std::vector<int> sizes;
  for (const Rented& part : parts) {
    EXPECT_EQ(part.cluster.num_devices(), static_cast<int>(part.devices.size()));
    sizes.push_back(part.cluster.num_devices());
  }
  return sizes;
}

FrontierPoint point_of(int devices, double step_ms, double price = 0) {
  FrontierPoint point;
  point.devices = devices;
  point.servers = std::to_string(devices) + " x 1 a";
  point.step_ms = step_ms;
  if (step_ms > 0) point.samples_per_s = 1e5 / step_ms;
  point.cost = pipeline::cost_of(price, step_ms, point.samples_per_s, 0);
  return point;
}

TEST(RentedParts, AreWholeServersAndPowersOfTwoOfOne) {
  const std::vector<Rented> parts = rented_parts(cluster_of({{3, 8, 100, 10, "a"}}));
  EXPECT_THAT(sizes_of(parts), ElementsAre(24, 16, 8, 4, 2, 1));
  EXPECT_TRUE(parts.front().whole);
  EXPECT_EQ(servers_text(parts[1]), "2 x 8 a");
  EXPECT_EQ(servers_text(parts[3]), "1 x 4 a");
  EXPECT_THAT(sizes_of(rented_parts(cluster_of({{1, 6, 100, 10, "a"}}))), ElementsAre(6, 4, 2, 1));
}

TEST(RentedParts, AreFewOfLargeClusters) {
  const std::vector<Rented> many = rented_parts(cluster_of({{100, 1, 100, 10, "a"}}));
  EXPECT_THAT(sizes_of(many), ElementsAre(100, 96, 64, 48, 32, 24, 16, 12, 8, 7, 6, 5, 4, 3, 2, 1));
  std::vector<machine::ServerGroup> groups;
  for (int g = 0; g < 9; ++g) groups.push_back({4, 8, 100, 10.0 + g, "a"});
  const std::vector<Rented> kinds = rented_parts(cluster_of(groups));
  EXPECT_LT(kinds.size(), 80u);
  EXPECT_TRUE(kinds.front().whole);
  std::set<std::vector<int>> seen;
  for (const Rented& part : kinds) EXPECT_TRUE(seen.insert(part.devices).second) << servers_text(part);
}

TEST(RentedParts, OfServersThatDifferInPriceAloneAreAllLookedAt) {
  machine::ServerGroup cheap{1, 1, 100, 10, "a"}, dear = cheap;
  EXPECT_EQ(rented_parts(cluster_of({cheap, dear})).size(), 2u);
  dear.price_per_device_hour = 2;
  const std::vector<Rented> parts = rented_parts(cluster_of({cheap, dear}));
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[1].cluster.servers.front().price_per_device_hour, 2);
  EXPECT_THAT(parts[1].devices, ElementsAre(1));
  // Beside one another they keep their prices.
  for (const Rented& part : rented_parts(cluster_of({cheap, dear, {1, 2, 100, 10, "b"}}))) {
    if (part.devices == std::vector<int>{0, 1}) {
      EXPECT_EQ(part.cluster.servers.size(), 2u);
    }
  }
}

TEST(Choice, IsTheLeastOfThoseThatDo) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> draw(1, 100);
  for (int round = 0; round < 200; ++round) {
    std::vector<FrontierPoint> points;
    for (int p = 0; p < 6; ++p) points.push_back(point_of(p + 1, p == 2 ? 0 : draw(random), draw(random)));
    FrontierRequest request;
    request.least = round % 2 == 0 ? "cost" : "devices";
    if (round % 3 > 0) request.within = 0.5;
    double least_ms = 1e9;
    for (const FrontierPoint& point : points) {
      if (point.found()) least_ms = std::min(least_ms, point.step_ms);
    }
    if (round % 5 == 0) request.reach = 1e5 / (least_ms * 1.2);
    std::size_t best = 99;
    for (std::size_t p = 0; p < points.size(); ++p) {
      const double over = points[p].step_ms / least_ms;
      if (!points[p].found() || (request.within && over > 1.5) || (request.reach && over > 1.2 * (1 + 1e-12))) continue;
      const auto value = [&](std::size_t q) {
        return request.least == "cost" ? points[q].cost.per_step : points[q].devices;
      };
      if (best == 99 || value(p) < value(best)) best = p;
    }
    EXPECT_EQ(choose(points, request), best);
  }
}

TEST(Choice, OfNothingIsNothingAndWhatIsNotReachedNamesTheBest) {
  FrontierRequest request;
  request.least = "devices";
  EXPECT_EQ(choose({point_of(1, 0)}, request), std::nullopt);
  request.reach = 1e6;
  const std::vector<FrontierPoint> points = {point_of(1, 0), point_of(2, 40), point_of(4, 30), point_of(8, 35)};
  EXPECT_EQ(choose(points, request), std::nullopt);
  const Error e = unreached(points, request, "c");
  EXPECT_EQ(e.kind(), ErrorKind::kInfeasible);
  EXPECT_THAT(e.what(), HasSubstr("the most is 3333.33, on 4 devices"));
  EXPECT_THAT(e.hint(), HasSubstr("--reach 3330samples"));
  request.reach_unit = "tokens";
  EXPECT_THROW(choose({point_of(2, 40)}, request), Error);
}

TEST(Choice, GapsBesideItAreHalved) {
  const Cluster cluster = cluster_of({{16, 1, 100, 10, "a"}});
  FrontierRequest request;
  request.least = "devices";
  request.within = 0.1;
  std::vector<Rented> rented = rented_parts(cluster);
  // 13 and more are within 10 % of the fastest.
  const auto step = [](int devices) { return devices >= 13 ? 100.0 : 200.0; };
  std::vector<FrontierPoint> points;
  for (const Rented& part : rented)
    points.push_back(point_of(part.cluster.num_devices(), step(part.cluster.num_devices())));
  while (auto next = part_between(cluster, rented, points, request)) {
    rented.push_back(*next);
    points.push_back(point_of(next->cluster.num_devices(), step(next->cluster.num_devices())));
  }
  EXPECT_EQ(points[*choose(points, request)].devices, 13);
  EXPECT_LT(points.size(), 16u);
}

TEST(Frontier, MarksWhatNothingBesideIsBetterThan) {
  FrontierRequest request;
  request.least = "time";
  const pipeline::PlanFrontier frontier =
      frontier_of({point_of(4, 30, 8), point_of(1, 100, 2), point_of(2, 100, 4), point_of(3, 0, 6)}, 0, request);
  std::vector<int> devices, best;
  for (const FrontierPoint& point : frontier.points) {
    devices.push_back(point.devices);
    if (point.best) best.push_back(point.devices);
  }
  EXPECT_THAT(devices, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(best, ElementsAre(1, 4));
  EXPECT_EQ(frontier.chosen().devices, 4);
}

}  // namespace
}  // namespace automap::infer
