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
    if (one.name == input) return rows_of_weights(model).groups[at(model.linkage().group_of(one.node, dim))];
  }
  ADD_FAILURE() << "no input " << input;
  return false;
}

// Module text of one step of inference over samples x: f32[32,8]; the first input is a weight.
sharding::ShardingModel model_of(const std::string& body, hlo::HloModule* module) {
  *module = hlo::read_hlo("HloModule m\nENTRY e {\n" + body + "}\n", "rows.hlo");
  return sharding::ShardingModel::build(module->graph, {});
}

TEST(RowsOfWeights, ADimensionOfAnotherWeightIsNoRow) {
  // Heads before a projection that they share: columns of w, and rows of what r multiplies.
  hlo::HloModule module;
  const sharding::ShardingModel heads = model_of(R"(
  x = f32[32,64] parameter(0), metadata={op_name="batch['x']"}
  w = f32[64,128] parameter(1), metadata={op_name="params['w']"}
  r = f32[16,16] parameter(2), metadata={op_name="params['r']"}
  o = f32[128,64] parameter(3), metadata={op_name="params['o']"}
  q = f32[32,128] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  h = f32[32,8,16] reshape(q)
  s = f32[32,8,16] dot(h, r), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  f = f32[32,128] reshape(s)
  ROOT y = f32[32,64] dot(f, o), lhs_contracting_dims={1}, rhs_contracting_dims={0}
)",
                                                 &module);
  EXPECT_TRUE(splits_rows(heads, "batch['x']", 0));
  EXPECT_FALSE(splits_rows(heads, "params['w']", 1));
  EXPECT_FALSE(splits_rows(heads, "params['r']", 0));
}

TEST(RowsOfWeights, LearnedQueriesAreNoWeightsOfTheirOwn) {
  // Queries that are made of weights alone, repeated for every sample: their places are rows of what follows.
  hlo::HloModule module;
  const sharding::ShardingModel queries = model_of(R"(
  x = f32[32,64,16] parameter(0), metadata={op_name="batch['x']"}
  latents = f32[8,16] parameter(1), metadata={op_name="params['latents']"}
  wq = f32[16,16] parameter(2), metadata={op_name="params['wq']"}
  wk = f32[16,16] parameter(3), metadata={op_name="params['wk']"}
  w = f32[16,128] parameter(4), metadata={op_name="params['w']"}
  all = f32[32,8,16] broadcast(latents), dimensions={1,2}
  q = f32[32,8,16] dot(all, wq), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  k = f32[32,64,16] dot(x, wk), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  s = f32[32,8,64] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}
  o = f32[32,8,16] dot(s, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
  ROOT y = f32[32,8,128] dot(o, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
)",
                                                   &module);
  EXPECT_TRUE(splits_rows(queries, "params['latents']", 0));
  EXPECT_TRUE(splits_rows(queries, "batch['x']", 0));
  EXPECT_FALSE(splits_rows(queries, "params['wk']", 1));
  EXPECT_FALSE(splits_rows(queries, "params['w']", 1));
}

TEST(RowsOfWeights, ExpertsAreNoRowsOfEachOther) {
  hlo::HloModule module;
  const sharding::ShardingModel experts = model_of(R"(
  x = f32[4,32,16] parameter(0), metadata={op_name="batch['x']"}
  w = f32[4,16,24] parameter(1), metadata={op_name="params['w']"}
  shared = f32[24,8] parameter(2), metadata={op_name="params['shared']"}
  h = f32[4,32,24] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
  ROOT y = f32[4,32,8] dot(h, shared), lhs_contracting_dims={2}, rhs_contracting_dims={0}
)",
                                                   &module);
  EXPECT_FALSE(splits_rows(experts, "params['w']", 0));
  EXPECT_TRUE(splits_rows(experts, "batch['x']", 1));
}

TEST(RowsOfWeights, OfFrozenWeightsAndOfTheAdaptersBesideThem) {
  // One step of SGD of the adapter alone.
  const hlo::HloModule text = hlo::read_hlo(R"(HloModule m
ENTRY e {
  a = f32[16,2] parameter(0), metadata={op_name="params['a']"}
  frozen = f32[16,8] parameter(1), metadata={op_name="base['w']"}
  alpha = f32[] parameter(2), metadata={op_name="alpha"}
  b = f32[2,8] parameter(3), metadata={op_name="base['b']"}
  x = f32[32,16] parameter(4), metadata={op_name="batch['x']"}
  ab = f32[16,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  scale = f32[16,8] broadcast(alpha), dimensions={}
  scaled = f32[16,8] multiply(scale, ab)
  merged = f32[16,8] add(frozen, scaled)
  y = f32[32,8] dot(x, merged), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  dm = f32[16,8] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ds = f32[16,8] multiply(scale, dm)
  da = f32[16,2] dot(ds, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  a2 = f32[16,2] subtract(a, da)
  ROOT r = (f32[16,2], f32[32,8]) tuple(a2, y)
})",
                                            "adapter.hlo");
  const sharding::ShardingModel step = sharding::ShardingModel::build(text.graph, {});
  EXPECT_TRUE(splits_rows(step, "batch['x']", 0));
  EXPECT_FALSE(splits_rows(step, "params['a']", 0));
  EXPECT_FALSE(splits_rows(step, "base['w']", 1));
}

TEST(RowsOfWeights, OfWeightsBehindArithmetic) {
  // 1 + w, and an adapter beside a frozen weight, multiply every sample.
  hlo::HloModule module;
  const sharding::ShardingModel step = model_of(R"(
  x = f32[32,64] parameter(0), metadata={op_name="batch['x']"}
  w = f32[64,64] parameter(1), metadata={op_name="params['w']"}
  a = f32[64,8] parameter(2), metadata={op_name="params['a']"}
  b = f32[8,64] parameter(3), metadata={op_name="params['b']"}
  one = f32[] constant(1)
  ones = f32[64,64] broadcast(one), dimensions={}
  scaled = f32[64,64] add(ones, w)
  y = f32[32,64] dot(x, scaled), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ab = f32[64,64] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  merged = f32[64,64] add(w, ab)
  ROOT z = f32[32,64] dot(y, merged), lhs_contracting_dims={1}, rhs_contracting_dims={0}
)",
                                                &module);
  EXPECT_TRUE(splits_rows(step, "batch['x']", 0));
  for (const char* weight : {"params['w']", "params['a']", "params['b']"}) {
    EXPECT_FALSE(splits_rows(step, weight, 0)) << weight;
    EXPECT_FALSE(splits_rows(step, weight, 1)) << weight;
  }
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
