// Model FLOPs beside the formulas that people use.
#include "profile/model_work.h"

#include <gtest/gtest.h>

#include <string>

#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_text.h"
#include "profile/profile_hlo.h"
#include "tests/common/graph/training_modules.h"

namespace automap::profile {
namespace {

ModelWork work_of(const hlo::HloModule& module, const char* device = "h100") {
  ProfileRequest request;
  request.device = device;
  return profile_module(module, "test", request).work;
}

ModelWork of_fixture(const std::string& name, const char* device = "h100") {
  return work_of(hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/" + name), device);
}

ModelWork of_text(const std::string& text) {
  hlo::HloModule module;
  module.graph = hlo::read_hlo_text(text, "test");
  return work_of(module);
}

// A decoder's forward pass: weights once for every token, and of the scores those that the mask leaves.
double decoder_flops(double layers, double width, double weights_of_layer, double vocabulary, double length,
                     double batch) {
  const double kept = (length + 1) / (2 * length);
  const double of_token = 2 * (layers * weights_of_layer + width * vocabulary) + layers * 4 * length * width * kept;
  return of_token * length * batch;
}

TEST(ModelWork, IsWhatTheFormulasOfDecodersSay) {
  const double gpt2 = decoder_flops(12, 768, 12.0 * 768 * 768, 50257, 1024, 4);
  // In f32 a V100 has no kernel that skips what the mask hides: that is executed, and still no work of the model.
  for (const char* device : {"h100", "v100-16gb"}) {
    const ModelWork work = of_fixture("gpt2.hlo.gz", device);
    EXPECT_NEAR(work.forward_flops, gpt2, 1e-3 * gpt2) << device;
    EXPECT_NEAR(work.model_flops, 3 * work.forward_flops, 1e-6 * gpt2);
    EXPECT_EQ(work.masked_attentions, 12);
    EXPECT_EQ(work.tokens, 1024);
    EXPECT_GT(work.executed_flops, 1.02 * work.model_flops);
    EXPECT_LT(work.executed_flops, 1.10 * work.model_flops);
  }
}

TEST(ModelWork, CountsTheTurnsOfLoopsAndNoRematerializedCopy) {
  // SwiGLU: three products of the hidden width.
  const double scan = decoder_flops(24, 1024, 4.0 * 1024 * 1024 + 3.0 * 1024 * 2816, 32000, 512, 4);
  const ModelWork of_scan = of_fixture("transformer_scan.hlo.gz");
  EXPECT_NEAR(of_scan.forward_flops, scan, 2e-3 * scan);
  EXPECT_EQ(of_scan.masked_attentions, 24);

  const double remat = decoder_flops(6, 512, 4.0 * 512 * 512 + 3.0 * 512 * 1408, 8192, 256, 8);
  const ModelWork of_remat = of_fixture("transformer_remat.hlo.gz");
  EXPECT_NEAR(of_remat.forward_flops, remat, 2e-3 * remat);
  // Its layers are computed again: a third more of what is no head.
  EXPECT_GT(of_remat.executed_flops, 1.2 * of_remat.model_flops);
  EXPECT_LT(of_remat.executed_flops, 1.4 * of_remat.model_flops);
  // The head is computed once, and so is the last product of every layer, whose result no gradient reads.
  const double tokens = 256.0 * 8;
  const double again = remat - 2 * 512 * 8192 * tokens - 6 * 2 * 512 * 1408 * tokens;
  EXPECT_NEAR(of_remat.repeated_flops, again, 0.01 * again);
  EXPECT_NEAR(of_fixture("scan_remat.hlo.gz").repeated_share(), 0.7, 0.02);
  for (const char* once : {"gpt2.hlo.gz", "transformer_scan.hlo.gz", "bert48.hlo.gz", "resnet50.hlo.gz",
                           "t5_6_6.hlo.gz", "moe_small.hlo.gz", "gpt2_forward.hlo.gz", "mamba.hlo.gz"}) {
    EXPECT_LT(of_fixture(once).repeated_share(), 0.05) << once;
  }
}

// Frozen parts have no gradients of their own: lit_small's image tower.
TEST(ModelWork, NothingIsExecutedLessThanTheModelAsks) {
  for (const char* name : {"lit_small.hlo.gz", "gpt2.hlo.gz", "resnet50.hlo.gz", "moe_small.hlo.gz",
                           "set_prediction.hlo.gz", "transformer_remat.hlo.gz", "scan_remat.hlo.gz", "vgg19.hlo.gz"}) {
    for (const char* device : {"h100", "v100-16gb"}) {
      const ModelWork work = of_fixture(name, device);
      EXPECT_GE(work.executed_flops, work.model_flops * (1 - 1e-9)) << name;
      EXPECT_GT(work.model_flops, work.forward_flops) << name;
    }
  }
  const ModelWork frozen = of_fixture("lit_small.hlo.gz");
  EXPECT_LT(frozen.model_flops, 2.5 * frozen.forward_flops);
}

TEST(ModelWork, InferenceIsItsForwardPassAlone) {
  const ModelWork work = of_fixture("gpt2_forward.hlo.gz");
  EXPECT_EQ(work.model_flops, work.forward_flops);
  EXPECT_GT(work.forward_flops, 0);
}

TEST(ModelWork, DecodersHaveCausalAttentionAlone) {
  for (const char* name : {"gpt2.hlo.gz", "grouped_query.hlo.gz", "scan_remat.hlo.gz"}) {
    EXPECT_TRUE(of_fixture(name, "h100").decoder) << name;
  }
  // Encoders look at everything, and what has no attention is none.
  for (const char* name : {"bert_large.hlo.gz", "t5_6_6.hlo.gz", "vgg19.hlo.gz", "mamba.hlo.gz"}) {
    EXPECT_FALSE(of_fixture(name, "h100").decoder) << name;
  }
}

TEST(ModelWork, TokensAreWhatLooksUpRowsOfWeights) {
  EXPECT_EQ(of_fixture("t5_6_6.hlo.gz").tokens, 256);
  EXPECT_EQ(of_fixture("resnet50.hlo.gz").tokens, 0);  // its labels look nothing up
  EXPECT_EQ(of_fixture("tiny_mlp.hlo").tokens, 0);
}

TEST(ModelWork, OfSmallProductsByHand) {
  // 16 samples of 4 through 8 to 2 features: forward 2 * 16 * (4 * 8 + 8 * 2).
  const ModelWork work = of_text(graph::two_layers("", R"(
  nw1 = f32[4,8] subtract(w1, gw1)
  nw2 = f32[8,2] subtract(w2, gw2)
  nb1 = f32[8] subtract(b1, gb1)
  nb2 = f32[2] subtract(b2, gb2)
  ROOT r = (f32[4,8], f32[8], f32[8,2], f32[2], f32[]) tuple(nw1, nb1, nw2, nb2, loss))"));
  EXPECT_EQ(work.forward_flops, 2 * 16 * (4 * 8 + 8 * 2));
  // The first layer has no gradient of its input.
  EXPECT_EQ(work.model_flops, 3 * work.forward_flops - 2 * 16 * 4 * 8);
  EXPECT_EQ(work.executed_flops, work.model_flops);
  EXPECT_EQ(work.tokens, 0);
  EXPECT_EQ(work.masked_attentions, 0);
}

}  // namespace
}  // namespace automap::profile
