#include "profile/attention_heads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "common/hlo/hlo_text.h"

namespace automap::profile {
namespace {

// 2 sequences of 16; the softmax of the scores `s`.
std::int64_t heads(const std::string& scores, const std::string& shape, std::int64_t samples = 2) {
  const std::string dims = std::to_string(std::count(shape.begin(), shape.end(), ','));
  const std::string rows = shape.substr(0, shape.rfind(',')) + "]";
  const std::string text =
      "HloModule m\nadd { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] "
      "add(a, b) }\nENTRY e {\n" +
      scores + "  c = f32[] constant(0.3)\n  cb = " + shape + " broadcast(c), dimensions={}\n  m = " + shape +
      " multiply(s, cb)\n  x = " + shape + " exponential(m)\n  zero = f32[] constant(0)\n  sum = " + rows +
      " reduce(x, zero), dimensions={" + dims + "}, to_apply=add\n  ROOT t = (" + shape + ", " + rows +
      ") tuple(x, sum)\n}\n";
  return attention_heads(hlo::read_hlo_text(text, "test"), samples);
}

const std::string kBothBatch =
    ", lhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_batch_dims={0,1}, "
    "rhs_contracting_dims={3}\n";

TEST(AttentionHeads, AreBatchDimensionsBesideTheSamples) {
  EXPECT_EQ(
      heads("  q = f32[2,12,16,8] parameter(0)\n  k = f32[2,12,16,8] parameter(1)\n  s = f32[2,12,16,16] dot(q, k)" +
                kBothBatch,
            "f32[2,12,16,16]"),
      12);
  // Samples and heads in one dimension, as PyTorch's bmm has them.
  EXPECT_EQ(heads("  q = f32[24,16,8] parameter(0)\n  k = f32[24,16,8] parameter(1)\n  s = f32[24,16,16] dot(q, k), "
                  "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={2}\n",
                  "f32[24,16,16]"),
            12);
}

TEST(AttentionHeads, OfGroupedQueriesAreThoseOfKeys) {
  // Keys repeated for the queries of their group.
  EXPECT_EQ(heads("  q = f32[2,12,16,8] parameter(0)\n  k0 = f32[2,4,16,8] parameter(1)\n  kb = f32[2,4,3,16,8] "
                  "broadcast(k0), dimensions={0,1,3,4}\n  k = f32[2,12,16,8] reshape(kb)\n  s = f32[2,12,16,16] dot(q, "
                  "k)" +
                      kBothBatch,
                  "f32[2,12,16,16]"),
            4);
  // The group is a free dimension of the queries.
  EXPECT_EQ(
      heads("  q = f32[2,4,3,16,8] parameter(0)\n  k = f32[2,4,16,8] parameter(1)\n  s = f32[2,4,3,16,16] dot(q, "
            "k), lhs_batch_dims={0,1}, lhs_contracting_dims={4}, rhs_batch_dims={0,1}, rhs_contracting_dims={3}\n",
            "f32[2,4,3,16,16]"),
      4);
}

TEST(AttentionHeads, QueriesOfAllSamplesAreNoGroup) {
  // Learned queries, the same for every sample.
  EXPECT_EQ(heads("  q0 = f32[12,16,8] parameter(0)\n  q = f32[2,12,16,8] broadcast(q0), dimensions={1,2,3}\n  k = "
                  "f32[2,12,16,8] parameter(1)\n  s = f32[2,12,16,16] dot(q, k)" +
                      kBothBatch,
                  "f32[2,12,16,16]"),
            12);
}

TEST(AttentionHeads, OfLibrariesAreThoseOfKeys) {
  const auto of_call = [](const std::string& keys) {
    return attention_heads(
        hlo::read_hlo_text("HloModule m\nENTRY e {\n  q = bf16[2,16,12,8] parameter(0)\n  k = " + keys +
                               " parameter(1)\n  v = " + keys +
                               " parameter(2)\n  ROOT o = (bf16[2,16,12,8], u8[64]) custom-call(q, k, v), "
                               "custom_call_target=\"__cudnn$fmhaSoftmax\"\n}\n",
                           "test"),
        2);
  };
  EXPECT_EQ(of_call("bf16[2,16,12,8]"), 12);
  EXPECT_EQ(of_call("bf16[2,16,4,8]"), 4);
}

TEST(AttentionHeads, WithoutAttentionThereAreNone) {
  // A loss: its scores have no batch dimensions.
  EXPECT_EQ(heads("  q = f32[32,8] parameter(0)\n  k = f32[8,100] parameter(1)\n  s = f32[32,100] dot(q, k), "
                  "lhs_contracting_dims={1}, rhs_contracting_dims={0}\n",
                  "f32[32,100]"),
            0);
  // Batch dimensions that are no multiple of the samples: which of them are heads is not known.
  EXPECT_EQ(
      heads("  q = f32[2,12,16,8] parameter(0)\n  k = f32[2,12,16,8] parameter(1)\n  s = f32[2,12,16,16] dot(q, k)" +
                kBothBatch,
            "f32[2,12,16,16]", 7),
      0);
}

}  // namespace
}  // namespace automap::profile
