#include "plan/partition/widths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "common/hlo/hlo_reader.h"
#include "plan/partition/partition_cost.h"
#include "plan/partition/planner.h"
#include "profile/profile_hlo.h"
#include "tests/sum.h"

namespace automap::partition {
namespace {

struct WidthsCase {
  hlo::HloModule module;
  machine::Cluster cluster = machine::load_cluster("config-a");
  std::vector<machine::DeviceModel> devices = profile::cluster_devices(std::nullopt, cluster);

  explicit WidthsCase(const std::string& name)
      : module(hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/" + name)) {}
  std::vector<WidthPlan> plans(const std::vector<int>& widths) const {
    return plan_widths(module.graph, nullptr, devices, cluster, widths, {}, nullptr);
  }
  pipeline::Profile profile(std::vector<profile::WidthParts> widths) const {
    profile::ProfileRequest request;
    request.widths = std::move(widths);
    return profile::profile_module(module, "test", request, devices).profile;
  }
};

// The time of a step at the module's own samples, on one replica.
double step_ms(const pipeline::Profile& profile) {
  const pipeline::DeviceTimes& times = profile.times.front();
  const auto own = std::find(times.samples.begin(), times.samples.end(), profile.micro_batch_size);
  EXPECT_NE(own, times.samples.end());
  const auto point = static_cast<std::size_t>(own - times.samples.begin());
  return sum(times.forward_ms[point]) + sum(times.backward_ms[point]) + sum(times.optimizer_ms);
}

// Parts that leave everything where it was.
TEST(Widths, NothingSplitIsTheProfileItself) {
  const WidthsCase c("transformer_bf16.hlo.gz");
  std::vector<profile::WidthParts> parts;
  for (WidthPlan& plan : c.plans({2})) parts.push_back(std::move(plan.parts));
  ASSERT_EQ(parts.size(), 1u);
  std::fill(parts[0].op_share.begin(), parts[0].op_share.end(), 1);
  std::fill(parts[0].inner_share.begin(), parts[0].inner_share.end(), 1);
  std::fill(parts[0].tensor_share.begin(), parts[0].tensor_share.end(), 1);
  std::fill(parts[0].inner_copy_share.begin(), parts[0].inner_copy_share.end(), 0);
  std::fill(parts[0].copy_share.begin(), parts[0].copy_share.end(), 0);
  for (auto& collectives : parts[0].collectives) collectives.clear();
  const pipeline::Profile whole = c.profile(parts);
  const pipeline::Profile same = profile_at(whole, 2);
  EXPECT_EQ(same.w_bytes, whole.w_bytes);
  EXPECT_EQ(same.gradient_bytes, whole.gradient_bytes);
  EXPECT_EQ(same.slot_bytes, whole.slot_bytes);
  EXPECT_EQ(same.frozen_bytes, whole.frozen_bytes);
  EXPECT_EQ(same.stash_bytes, whole.stash_bytes);
  EXPECT_EQ(same.workspace_bytes, whole.workspace_bytes);
  EXPECT_EQ(same.layer_entry_bytes, whole.layer_entry_bytes);
  EXPECT_EQ(same.stage_entry_bytes, whole.stage_entry_bytes);
  ASSERT_EQ(same.times.size(), whole.times.size());
  EXPECT_EQ(same.times[0].forward_ms, whole.times[0].forward_ms);
  EXPECT_EQ(same.times[0].backward_ms, whole.times[0].backward_ms);
  EXPECT_EQ(same.times[0].optimizer_ms, whole.times[0].optimizer_ms);
}

// Values that the turns of a loop over layers stack for the backward pass are held in parts, as without the loop.
TEST(Widths, StacksOfALoopAreHeldInParts) {
  const WidthsCase c("transformer_scan.hlo.gz");
  std::vector<profile::WidthParts> parts;
  for (WidthPlan& plan : c.plans({2, 8})) parts.push_back(std::move(plan.parts));
  ASSERT_EQ(parts.size(), 2u);
  const pipeline::Profile whole = c.profile(parts);
  for (const int width : {2, 8}) {
    const pipeline::Profile wide = profile_at(whole, width);
    EXPECT_LT(sum(wide.stash_bytes), 1.3 * sum(whole.stash_bytes) / width) << width;
    EXPECT_LT(sum(wide.layer_entry_bytes), 1.3 * sum(whole.layer_entry_bytes) / width) << width;
  }
}

class OfFixtures : public ::testing::TestWithParam<const char*> {};

// The positions of a replica add up to what the partition is estimated to take.
TEST_P(OfFixtures, PositionsAddUpToThePartition) {
  const WidthsCase c(GetParam());
  const std::vector<WidthPlan> plans = c.plans({2, 8});
  ASSERT_FALSE(plans.empty());
  std::vector<profile::WidthParts> parts;
  for (const WidthPlan& plan : plans) parts.push_back(plan.parts);
  const pipeline::Profile whole = c.profile(parts);
  ASSERT_EQ(whole.widths.size(), plans.size());
  for (const WidthPlan& plan : plans) {
    const pipeline::Profile at = profile_at(whole, plan.parts.width);
    // Glue between the parts of a step belongs to no position.
    const double glue = plan.plan.replicated_step_ms - step_ms(whole);
    EXPECT_NEAR(step_ms(at) + glue, plan.plan.step_ms, 0.03 * plan.plan.step_ms) << plan.parts.width;
    EXPECT_LT(step_ms(at), step_ms(whole));
    // State that stays for a step: variables, slots, frozen weights.
    const double kept = sum(at.w_bytes) + sum(at.slot_bytes) + sum(at.frozen_bytes);
    EXPECT_LE(kept, sum(whole.w_bytes) + sum(whole.slot_bytes) + sum(whole.frozen_bytes));
    EXPECT_GE(kept * plan.parts.width,
              (sum(whole.w_bytes) + sum(whole.slot_bytes) + sum(whole.frozen_bytes)) * (1 - 1e-9));
    for (std::size_t i = 0; i < at.w_bytes.size(); ++i) EXPECT_LE(at.w_bytes[i], whole.w_bytes[i] * (1 + 1e-12));
    EXPECT_LE(sum(at.stash_bytes), sum(whole.stash_bytes) * (1 + 1e-12));
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, OfFixtures,
                         ::testing::Values("tiny_mlp.hlo", "gpt2.hlo.gz", "t5_6_6.hlo.gz", "bert_large.hlo.gz",
                                           "transformer_scan.hlo.gz", "scan_remat.hlo.gz", "moe_small.hlo.gz",
                                           "grouped_query.hlo.gz", "resnet50.hlo.gz", "vit_forward.hlo.gz"));

// tiny_mlp over 2 devices by hand: [16, 32] x [32, 64], relu, x [64, 10], SGD: columns, then rows.
TEST(Widths, AModuleByHand) {
  const WidthsCase c("tiny_mlp.hlo");
  const std::vector<WidthPlan> plans = c.plans({2});
  ASSERT_EQ(plans.size(), 1u);
  const pipeline::Profile whole = c.profile({plans[0].parts}), at = profile_at(whole, 2);
  double expected = 0;
  for (const PlanTensor& input : plans[0].plan.inputs) {
    if (input.role != "variable") continue;
    const double bytes = input.name.find("dense_1") != std::string::npos
                             ? (input.name.find("kernel") != std::string::npos ? 32 * 64 * 4 : 64 * 4)
                             : (input.name.find("kernel") != std::string::npos ? 64 * 10 * 4 : 10 * 4);
    expected += input.dim >= 0 ? bytes / 2 : bytes;
  }
  EXPECT_DOUBLE_EQ(sum(at.w_bytes), expected);
}

TEST(Widths, WhatCannotBeSplitHasNone) {
  WidthsCase c("tiny_mlp.hlo");
  std::string why;
  // 7 devices divide nothing of it.
  EXPECT_TRUE(plan_widths(c.module.graph, nullptr, c.devices, c.cluster, {7}, {}, &why).empty());
  EXPECT_NE(why, "");
}

}  // namespace
}  // namespace automap::partition
