#include "plan/partition/products.h"

#include <gtest/gtest.h>

#include <set>

#include "common/hlo/hlo_reader.h"

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

}  // namespace
}  // namespace automap::partition
