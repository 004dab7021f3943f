// Utilization by hand.
#include "infer/utilization.h"

#include <gtest/gtest.h>

namespace automap::infer {
namespace {

TEST(Utilization, IsWorkOverPeaks) {
  PlanInput input;
  input.profile.work = "matmul bf16";
  input.profile.micro_batch_size = 2;
  input.work.tokens = 128;
  input.work.forward_flops = 0.4e12;
  input.work.model_flops = 1e12;
  input.work.executed_flops = 1.25e12;
  machine::Cluster cluster;
  cluster.servers = {{1, 2, 100, 10, "fast"}, {1, 2, 100, 10, "slow"}};
  cluster.devices["fast"].peak_tflops = {{"bf16", 150}, {"f32", 20}};
  cluster.devices["slow"].peak_tflops = {{"bf16", 50}, {"f32", 10}};
  // 64 samples in a second are 32 passes of the module's two, on one device of each kind; half of a forward pass twice.
  const pipeline::PlanUtilization use = utilization_of(input, cluster, {1, 2}, 64, 1000, 0.5);
  EXPECT_DOUBLE_EQ(use.samples_per_s, 64);
  EXPECT_DOUBLE_EQ(use.tokens_per_s, 64 * 128);
  EXPECT_DOUBLE_EQ(use.model_tflops, 16);
  EXPECT_DOUBLE_EQ(use.mfu, 32.0 / 200);
  EXPECT_DOUBLE_EQ(use.hfu, 32 * 1.45 / 200);
  EXPECT_EQ(mfu_text(use), "16.0 %");
}

}  // namespace
}  // namespace automap::infer
