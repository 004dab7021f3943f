#include "plan/partition/what_fits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/hlo/hlo_reader.h"
#include "plan/partition/mesh_planner.h"
#include "profile/profile_hlo.h"

namespace automap::partition {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct FitsCase {
  hlo::HloModule module = hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/tiny_mlp.hlo");
  sharding::ShardingModel model;
  machine::Cluster cluster = machine::load_cluster("config-a");  // 2 servers of 8
  machine::DeviceModel device = profile::reference_device("", cluster);

  FitsCase() {
    sharding::ModelOptions options;
    options.shards = 2;
    model = sharding::ShardingModel::build(module.graph, options);
  }
  std::string fits(double limit_bytes, bool cluster_was_tried = false) const {
    PlanningRequest request;
    request.memory_limit_bytes = limit_bytes;
    return what_fits(model, device, cluster, request, cluster_was_tried);
  }
};

TEST(WhatFits, NamesTheLeastThatWould) {
  const FitsCase c;
  // On the cluster as it is; on more servers; nowhere: a batch of 16 has no use for more than 128 devices.
  EXPECT_THAT(c.fits(20e3), HasSubstr("--mesh data=1,model=8 fits: 8.64 KiB per device, "));
  EXPECT_THAT(c.fits(20e3), Not(HasSubstr("with")));
  EXPECT_THAT(c.fits(20e3, true), HasSubstr("with 32 devices of such servers --mesh "));
  EXPECT_THAT(c.fits(4e3), HasSubstr("with 32 devices of such servers --mesh "));
  EXPECT_EQ(c.fits(10), "");
  EXPECT_EQ(most_devices(c.model, c.cluster), 16 * 8);
}

// More servers have room for more than the least: the hint is what planning there would give.
TEST(WhatFits, NamesTheQuickestOnMoreServers) {
  const hlo::HloModule module =
      hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/transformer_scan.hlo.gz");
  const sharding::ShardingModel model = sharding::ShardingModel::build(module.graph, {});
  machine::Cluster cluster = machine::load_cluster("config-a");
  const machine::DeviceModel device = profile::reference_device("", cluster);
  PlanningRequest request;
  request.reshard = true;
  request.memory_limit_bytes = 700.0 * (1 << 20);
  const std::string hint = what_fits(model, device, cluster, request, true);
  cluster.servers.back().count *= 2;
  MeshRequest there;
  there.operators = request;
  const MeshPlan plan = best_mesh_plan(model, device, cluster, there).plan;
  EXPECT_THAT(hint, HasSubstr(mesh_text(plan.data_axis.shards, plan.model_axis.shards, plan.zero)));
}

}  // namespace
}  // namespace automap::partition
