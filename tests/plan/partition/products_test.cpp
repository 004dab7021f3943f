#include "plan/partition/products.h"

#include <gtest/gtest.h>

#include <set>

#include "common/base/numbers.h"
#include "common/hlo/hlo_reader.h"
#include "plan/partition/planner.h"
#include "plan/partition/widths.h"
#include "profile/profile_hlo.h"

namespace automap::partition {
namespace {

// The variables behind the dimensions' groups.
std::set<std::string> experts_of(const std::string& fixture) {
  const hlo::HloModule module = hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/" + fixture);
  const sharding::ShardingModel model = sharding::ShardingModel::build(module.graph, {});
  std::set<std::string> out;
  for (const sharding::TensorDim dim : expert_dims(model)) {
    for (const std::int32_t variable : model.variables()) {
      const sharding::ModelInput& input = model.inputs()[static_cast<std::size_t>(variable)];
      if (input.node == dim.node) out.insert(input.name);
    }
    if (out.empty()) out.insert("another form");
  }
  return out;
}

TEST(Experts, WeightsOfMixturesAndNoHeads) {
  EXPECT_FALSE(experts_of("moe_dense.hlo.gz").empty());
  EXPECT_FALSE(experts_of("moe_sort.hlo.gz").empty());
  for (const std::string& name : experts_of("moe_small.hlo.gz")) {
    EXPECT_TRUE(name.find("expert") != std::string::npos || name == "another form") << name;
  }
  for (const char* name : {"gpt2.hlo.gz", "bert_large.hlo.gz", "t5_6_6.hlo.gz", "mamba.hlo.gz", "scan_remat.hlo.gz",
                           "set_prediction.hlo.gz", "lit_small.hlo.gz"}) {
    EXPECT_TRUE(experts_of(name).empty()) << name;
  }
}

// The linkage group of a named input's dimension, and whether its splitting splits rows of what a weight multiplies.
bool splits_rows(const sharding::ShardingModel& model, const std::string& input, std::int32_t dim) {
  for (const sharding::ModelInput& one : model.inputs()) {
    if (one.name == input) return RowsOfWeights(model).groups()[at(model.linkage().group_of(one.node, dim))];
  }
  ADD_FAILURE() << "no input " << input;
  return false;
}

TEST(RowsOfWeights, SamplesAndLearnedPositionsAndNoDimensionOfTheWeight) {
  const hlo::HloModule module = hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/tiny_mlp.hlo");
  const sharding::ShardingModel model = sharding::ShardingModel::build(module.graph, {});
  EXPECT_TRUE(splits_rows(model, "batch['x']", 0));
  EXPECT_FALSE(splits_rows(model, "params['dense_1']['kernel']", 1));
  // Positions are added to every token, and go with it through the products behind. One step of SGD.
  const hlo::HloModule text = hlo::read_hlo(R"(HloModule m
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY e {
  positions = f32[16,4] parameter(0)
  weights = f32[4,8] parameter(1)
  x = f32[32,16,4] parameter(2)
  zero = f32[] constant(0)
  all = f32[32,16,4] broadcast(positions), dimensions={1,2}
  h = f32[32,16,4] add(x, all)
  y = f32[32,16,8] dot(h, weights), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  dw = f32[4,8] dot(h, y), lhs_contracting_dims={0,1}, rhs_contracting_dims={0,1}
  dh = f32[32,16,4] dot(y, weights), lhs_contracting_dims={2}, rhs_contracting_dims={1}
  dp = f32[16,4] reduce(dh, zero), dimensions={0}, to_apply=sum
  p2 = f32[16,4] subtract(positions, dp)
  w2 = f32[4,8] subtract(weights, dw)
  ROOT r = (f32[16,4], f32[4,8]) tuple(p2, w2)
})",
                                            "step.hlo");
  const sharding::ShardingModel step = sharding::ShardingModel::build(text.graph, {});
  // Nothing else can be split by two devices with a gain: a replica is one device, and the reason is said.
  sharding::ModelOptions two;
  two.shards = 2;
  sharding::ShardingModel halves = sharding::ShardingModel::build(text.graph, two);
  const machine::Cluster cluster = machine::load_cluster("a100-1x8");
  const Planned planned = make_plan(&halves, profile::reference_device("", cluster), cluster, width_request({}));
  EXPECT_EQ(planned.plan.partitioned, 0);
  EXPECT_FALSE(planned.whole.empty());
  EXPECT_TRUE(splits_rows(step, "positions", 0));
  EXPECT_TRUE(splits_rows(step, "x", 0));
  EXPECT_FALSE(splits_rows(step, "positions", 1));
  EXPECT_FALSE(splits_rows(step, "weights", 0));
  EXPECT_FALSE(splits_rows(step, "weights", 1));
}

}  // namespace
}  // namespace automap::partition
