#include "infer/training_state.h"

#include <gtest/gtest.h>

namespace automap::infer {
namespace {

// f32 weights of 4 and 40 bytes whose gradients are made in bf16, with Adam's two moments.
pipeline::Profile mixed() {
  pipeline::Profile profile;
  profile.work = "matmul bf16";
  profile.w_bytes = {4, 0, 40};
  profile.gradient_bytes = {2, 0, 20};
  profile.slot_bytes = {8, 0, 80};
  profile.shared = {{1, 3, 4, 2, 8}};
  pipeline::WidthColumns half;
  half.width = 2;
  half.w_bytes = {2, 0, 20};
  half.gradient_bytes = {1, 0, 10};
  half.slot_bytes = {4, 0, 40};
  profile.widths = {half};
  return profile;
}

double bytes_of_parameter(const pipeline::Profile& profile) {
  return profile.w_bytes[0] + profile.gradient_bytes[0] + profile.slot_bytes[0];
}

TEST(TrainingState, IsWhatTheSoftwareKeeps) {
  // Megatron's own table: 18 bytes a parameter in bf16, of which ZeRO 1 shards 12.
  pipeline::Profile megatron = mixed();
  keep_state({2, 4}, &megatron);
  EXPECT_EQ(megatron.w_bytes, (std::vector<double>{2, 0, 20}));
  EXPECT_EQ(megatron.gradient_bytes, (std::vector<double>{4, 0, 40}));
  EXPECT_EQ(megatron.slot_bytes, (std::vector<double>{12, 0, 120}));
  EXPECT_EQ(bytes_of_parameter(megatron), 18);
  EXPECT_EQ(megatron.shared[0].weight_bytes, 2);
  EXPECT_EQ(megatron.shared[0].gradient_bytes, 4);
  EXPECT_EQ(megatron.shared[0].slot_bytes, 12);
  EXPECT_EQ(megatron.widths[0].w_bytes, (std::vector<double>{1, 0, 10}));
  EXPECT_EQ(megatron.widths[0].slot_bytes, (std::vector<double>{6, 0, 60}));
  // 16 of ZeRO's paper; f32 weights whose gradients are of their type.
  pipeline::Profile deepspeed = mixed(), torch = mixed();
  keep_state({2, 2}, &deepspeed);
  keep_state({4, 4}, &torch);
  EXPECT_EQ(bytes_of_parameter(deepspeed), 16);
  EXPECT_EQ(torch.w_bytes, mixed().w_bytes);
  EXPECT_EQ(torch.slot_bytes, mixed().slot_bytes);
  EXPECT_EQ(bytes_of_parameter(torch), 16);
}

TEST(TrainingState, IsTheModulesWhereNothingIsMixed) {
  EXPECT_TRUE(has_mixed_precision(mixed()));
  pipeline::Profile other = mixed();
  other.work = "matmul f32";
  EXPECT_FALSE(has_mixed_precision(other));
  other = mixed();
  other.gradient_bytes = other.w_bytes;  // weights of 16 bits, or gradients added up in f32
  EXPECT_FALSE(has_mixed_precision(other));
  other = mixed();
  other.slot_bytes.clear();
  EXPECT_FALSE(has_mixed_precision(other));
}

}  // namespace
}  // namespace automap::infer
