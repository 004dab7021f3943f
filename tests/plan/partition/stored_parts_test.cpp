#include "plan/partition/stored_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "common/base/error.h"
#include "common/hlo/hlo_reader.h"
#include "common/sharding/collectives.h"
#include "common/sharding/propagation.h"
#include "plan/partition/data_parallel.h"
#include "plan/partition/partition_plan.h"

namespace automap::partition {
namespace {

using sharding::Collective;
using sharding::Gather;
using sharding::Propagation;
using sharding::ShardingModel;
using sharding::TensorDim;
using sharding::TensorStateKind;

struct StoredCase {
  explicit StoredCase(const std::string& name, int shards)
      : module(hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/" + name)) {
    sharding::ModelOptions options;
    options.shards = shards;
    model = std::make_unique<ShardingModel>(ShardingModel::build(module.graph, options));
    batch = find_batch(*model);
  }
  // The batch and what is stored, split.
  Propagation decide(const StoredParts& stored) const {
    Propagation decided(model->linkage());
    for (const auto* dims : {&batch, &stored.split}) {
      for (const TensorDim at : *dims) EXPECT_FALSE(decided.split(at));
    }
    return decided;
  }
  bool is_split(const Propagation& decided, sharding::NodeId node) const {
    return decided.state(node).kind == TensorStateKind::kSplit;
  }
  hlo::HloModule module;
  std::unique_ptr<ShardingModel> model;
  std::vector<TensorDim> batch;
};

// The perceptron of docs/sharding.md, whose optimizer is plain gradient descent: four variables, no slots.
TEST(StoredParts, VariablesAreGatheredBeforeUse) {
  StoredCase c("tiny_mlp.hlo", 2);
  const StoredParts stored = store_in_parts(c.model.get(), c.batch, Zero::kFull);
  EXPECT_EQ(stored.stored.size(), 4u);
  EXPECT_TRUE(stored.whole.empty());
  const Propagation decided = c.decide(stored);
  int gathers = 0, in_parts = 0, reduced = 0;
  for (const Collective& one : find_collectives(*c.model, decided, sharding::Placement::kAtOnce)) {
    gathers += one.kind == CollectiveKind::kAllGather;
    in_parts += one.kind == CollectiveKind::kReduceScatter;
    reduced += one.reduces();
  }
  // Each variable once for both passes; every gradient is kept in parts, the loss is not.
  EXPECT_EQ(gathers, 4);
  EXPECT_EQ(reduced, 5);
  EXPECT_EQ(in_parts, 4);
  // A variable and its new value lie alike, along the largest dimension that can be split.
  for (const sharding::ModelInput& input : c.model->inputs()) {
    if (input.role != graph::InputRole::kVariable) continue;
    const auto before = decided.state(input.node);
    EXPECT_EQ(before.kind, TensorStateKind::kSplit) << input.name;
    const auto after = decided.state(c.model->flow().results()[static_cast<std::size_t>(input.result)]);
    EXPECT_EQ(after.dim, before.dim) << input.name;
    const auto& dims = c.model->flow().shape(input.node).dims;
    EXPECT_EQ(dims[static_cast<std::size_t>(before.dim)], *std::max_element(dims.begin(), dims.end())) << input.name;
  }
}

// Without slots there is nothing that ZeRO 1 and 2 could store.
TEST(StoredParts, NothingToStoreWithoutSlots) {
  StoredCase c("tiny_mlp.hlo", 2);
  const StoredParts stored = store_in_parts(c.model.get(), c.batch, Zero::kOptimizer);
  EXPECT_TRUE(stored.stored.empty());
  EXPECT_EQ(stored.whole.size(), 4u);
  EXPECT_TRUE(store_in_parts(c.model.get(), c.batch, Zero::kOff).split.empty());
}

// Slots in parts, variables whole: read in parts by their updates, their new values gathered once for the next step.
TEST(StoredParts, SlotsInPartsVariablesWhole) {
  for (const char* name : {"gpt2.hlo.gz", "transformer_bf16.hlo.gz", "scan_remat.hlo.gz"}) {
    SCOPED_TRACE(name);
    StoredCase c(name, 4);
    const StoredParts stored = store_in_parts(c.model.get(), c.batch, Zero::kOptimizer);
    EXPECT_EQ(stored.stored.size(), c.model->variables().size());
    const Propagation decided = c.decide(stored);
    std::size_t slots = 0, split_slots = 0;
    for (const sharding::ModelInput& input : c.model->inputs()) {
      if (!c.model->linkage().is_tensor(input.node)) continue;
      EXPECT_FALSE(input.role == graph::InputRole::kVariable && c.is_split(decided, input.node)) << input.name;
      if (input.role == graph::InputRole::kSlot) {
        ++slots;
        split_slots += c.is_split(decided, input.node);
      }
    }
    EXPECT_EQ(split_slots, slots);
    EXPECT_GT(slots, 0u);
    std::size_t gathers = 0;
    for (const Collective& one : find_collectives(*c.model, decided, sharding::Placement::kAtOnce)) {
      if (one.kind != CollectiveKind::kAllGather) continue;
      ++gathers;
      EXPECT_EQ(one.times, 1);  // per step, not per turn of a loop
    }
    EXPECT_GE(gathers, stored.stored.size());
    // Handed back as they were taken.
    const std::vector<sharding::TensorState> results = result_states(*c.model, decided);
    for (const sharding::ModelInput& input : c.model->inputs()) {
      if (input.result == graph::kNone || !c.model->linkage().is_tensor(input.node)) continue;
      EXPECT_EQ(results[static_cast<std::size_t>(input.result)].dim, decided.state(input.node).dim) << input.name;
    }
  }
}

// In a loop over layers each turn gathers its layer; where a layer is computed again it is gathered again.
TEST(StoredParts, LoopsGatherEveryTurn) {
  StoredCase scan("transformer_scan.hlo.gz", 4);
  const StoredParts stored = store_in_parts(scan.model.get(), scan.batch, Zero::kFull);
  const Propagation decided = scan.decide(stored);
  bool every_turn = false;
  for (const Collective& one : find_collectives(*scan.model, decided, sharding::Placement::kAtOnce)) {
    every_turn = every_turn || (one.kind == CollectiveKind::kAllGather && one.times > 1);
  }
  EXPECT_TRUE(every_turn);
  StoredCase remat("transformer_remat.hlo.gz", 4);
  const StoredParts again = store_in_parts(remat.model.get(), remat.batch, Zero::kFull);
  const Propagation twice = remat.decide(again);
  std::size_t gathers = 0;
  for (const Collective& one : find_collectives(*remat.model, twice, sharding::Placement::kAtOnce)) {
    gathers += one.kind == CollectiveKind::kAllGather;
  }
  EXPECT_GT(gathers, again.stored.size());
}

// Another axis's dimension is left alone where there is another one, and shared only if both divide it.
TEST(StoredParts, WhatAnotherAxisHasTaken) {
  StoredCase c("tiny_mlp.hlo", 4);
  std::vector<TakenDim> taken(c.model->inputs().size());
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const std::string& name = c.model->inputs()[i].name;
    if (name == "params['dense_1']['kernel']") taken[i] = {1, 2};  // [32, 64], which it would take
    if (name == "params['dense_1']['bias']") taken[i] = {0, 32};   // [64]: 4 x 32 do not divide it
  }
  const StoredParts stored = store_in_parts(c.model.get(), c.batch, Zero::kFull, taken);
  std::map<std::string, int> dims;
  for (std::size_t i = 0; i < stored.stored.size(); ++i) {
    dims[c.model->inputs()[static_cast<std::size_t>(stored.stored[i])].name] = stored.split[i].dim;
  }
  EXPECT_EQ(dims.at("params['dense_1']['kernel']"), 0);
  EXPECT_EQ(dims.count("params['dense_1']['bias']"), 0u);
}

// Splittings that somebody else chose: along the dimensions that were asked for.
TEST(StoredParts, AsAsked) {
  StoredCase c("tiny_mlp.hlo", 2);
  std::vector<TensorDim> wanted;
  for (const sharding::ModelInput& input : c.model->inputs()) {
    if (input.name == "params['dense_1']['kernel']") wanted.push_back({input.node, 1});
  }
  const StoredParts stored = gather_before_use(c.model.get(), c.batch, wanted);
  ASSERT_EQ(stored.split.size(), 1u);
  EXPECT_EQ(stored.split[0].dim, 1);
  EXPECT_TRUE(c.is_split(c.decide(stored), wanted[0].node));
}

}  // namespace
}  // namespace automap::partition
