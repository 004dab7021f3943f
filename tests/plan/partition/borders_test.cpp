// Data plans of images whose batch the devices do not divide: borders are exchanged there, and nowhere else.
#include <gtest/gtest.h>

#include <string>

#include "common/hlo/hlo_text.h"
#include "common/sharding/collectives.h"
#include "plan/partition/apply_plan.h"
#include "plan/partition/partition_plan.h"
#include "plan/partition/planner.h"
#include "profile/profile_hlo.h"

namespace automap::partition {
namespace {

// Two convolutions; between them, with `blocked`, something that needs all rows.
graph::Graph images(int batch, int rows, bool blocked = false) {
  const std::string shape = "f32[" + std::to_string(batch) + "," + std::to_string(rows) + ",30,4]";
  return hlo::read_hlo_text(
      "HloModule m\nENTRY e {\n  x = " + shape +
          " parameter(0)\n  w = f32[3,3,4,4] parameter(1)\n  v = f32[5,5,4,4] constant({...})\n  a = " + shape +
          " convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f\n  t = " + shape +
          (blocked ? " reverse(a), dimensions={1,2}" : " tanh(a)") + "\n  ROOT b = " + shape +
          " convolution(t, v), window={size=5x5 pad=2_2x2_2}, dim_labels=b01f_01io->b01f\n}\n",
      "test");
}

struct BordersCase {
  graph::Graph graph;
  sharding::ShardingModel model;
  machine::Cluster cluster = machine::load_cluster("config-a");

  BordersCase(graph::Graph g, int shards)
      : graph(std::move(g)), model(sharding::ShardingModel::build(graph, options(shards))) {}
  static sharding::ModelOptions options(int shards) {
    sharding::ModelOptions o;
    o.shards = shards;
    return o;
  }
  Planned plan() {
    PlanningRequest request;
    request.data = true;
    request.objective = models::PartitionObjective::kCount;
    return make_plan(&model, profile::reference_device("", cluster), cluster, request);
  }
};

TEST(Borders, AreExchangedWhereTheBatchCannotBeSplit) {
  for (const int batch : {1, 2}) {
    BordersCase c(images(batch, 64), 8);
    const Planned planned = c.plan();
    const PartitionPlan& plan = planned.plan;
    EXPECT_TRUE(plan.halos);
    EXPECT_EQ(plan.inputs[0].dim, 1);
    ASSERT_EQ(plan.permutes, 4);
    // A row of x and two of t, to either side.
    EXPECT_EQ(plan.permute_bytes, 2 * (1 + 2) * batch * 30 * 4 * 4);
    EXPECT_EQ(plan.all_reduces + plan.all_gathers, 0);
    EXPECT_EQ(planned.estimate.permute.bytes, plan.permute_bytes);
    EXPECT_GT(planned.estimate.collective_ms, 0);
    ASSERT_FALSE(plan.warnings.empty());
    EXPECT_NE(plan.warnings[0].find("dimension 1 (64) can be split when neighbours exchange borders"),
              std::string::npos)
        << plan.warnings[0];
  }
}

TEST(Borders, AreNotExchangedWhereTheBatchCanBeSplit) {
  BordersCase c(images(8, 64), 8);
  const Planned planned = c.plan();
  EXPECT_FALSE(planned.plan.halos);
  EXPECT_EQ(planned.plan.inputs[0].dim, 0);
  EXPECT_EQ(to_json_text(planned.plan).find("halos"), std::string::npos);
  EXPECT_EQ(to_json_text(planned.plan).find("permute"), std::string::npos);
}

// 60 rows are not divided by 8, and 30 columns neither.
TEST(Borders, NeedRowsThatTheDevicesDivide) {
  BordersCase c(images(1, 60), 8);
  const Planned planned = c.plan();
  EXPECT_FALSE(planned.plan.halos);
  EXPECT_EQ(planned.plan.inputs[0].dim, -1);
}

TEST(Borders, WhatIsBlockedIsGathered) {
  BordersCase c(images(1, 64, true), 8);
  const Planned planned = c.plan();
  EXPECT_EQ(planned.plan.partitioned, 1);
  EXPECT_EQ(planned.plan.all_gathers, 1);
  EXPECT_EQ(planned.plan.permutes, 2);
}

TEST(Borders, PlansAreReadAndAppliedAgain) {
  BordersCase c(images(1, 64), 8);
  const Planned planned = c.plan();
  for (const std::string& text : {to_json_text(planned.plan), decision_json_text(planned.plan)}) {
    const PartitionPlan read = parse_partition_plan(text, "test");
    EXPECT_TRUE(read.halos);
    BordersCase other(images(1, 64), 4);
    const sharding::Propagation decided = apply_plan(&other.model, read, "", nullptr);
    const auto found = find_collectives(other.model, decided, sharding::Placement::kAtOnce);
    EXPECT_EQ(sharding::total(found, CollectiveKind::kPermute).bytes, planned.plan.permute_bytes);
    PartitionPlan again = read;
    describe_decision(other.model, decided, &again);
    ASSERT_EQ(again.collectives.size(), 4U);
    EXPECT_EQ(again.collectives[0].border, -1);
    EXPECT_EQ(again.collectives[0].kind, "collective-permute");
  }
  // The same decision without the word: what the windows read is gathered.
  PartitionPlan without = parse_partition_plan(decision_json_text(planned.plan), "test");
  without.halos = false;
  BordersCase other(images(1, 64), 8);
  const auto found =
      find_collectives(other.model, apply_plan(&other.model, without, "", nullptr), sharding::Placement::kAtOnce);
  EXPECT_EQ(sharding::total(found, CollectiveKind::kPermute).count, 0);
  EXPECT_GT(sharding::total(found, CollectiveKind::kAllGather).count, 0);
}

}  // namespace
}  // namespace automap::partition
