#include "profile/measured/scope_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace automap::measured {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Words, OfPaths) {
  EXPECT_THAT(words_of("transformer.h.3.attn"), ElementsAre("transformer", "h", "3", "attn"));
  EXPECT_THAT(words_of("Net_0/GPT2Block_12"), ElementsAre("net", "0", "gpt2block", "12"));
  EXPECT_THAT(words_of("encoderblock_07/MlpBlock_0"), ElementsAre("encoderblock", "7", "mlpblock", "0"));
  EXPECT_THAT(words_of("layer10 forward"), ElementsAre("layer", "10", "forward"));
  EXPECT_THAT(words_of("model.layers[3]"), ElementsAre("model", "layers", "3"));
  EXPECT_THAT(words_of("conv2d_x/fp8"), ElementsAre("conv2d_x", "fp", "8"));
  EXPECT_THAT(words_of("block 17 of 48"), ElementsAre("block", "17"));
  EXPECT_THAT(words_of("00"), ElementsAre("0"));
  EXPECT_THAT(words_of("/._-"), IsEmpty());
}

TEST(LayerNames, FindsByWords) {
  const LayerNames names({"embed", "encoder/layer/0", "encoder/layer/1", "decoder/layer/0", "decoder/layer/1", "head"});
  EXPECT_THAT(names.kinds(), ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4)));
  EXPECT_THAT(names.outside(), ElementsAre(0, 5));
  EXPECT_THAT(names.find("model.encoder.layer.1.attention"), ElementsAre(2));
  EXPECT_THAT(names.find("decoder.layer.0"), ElementsAre(3));
  EXPECT_THAT(names.find("layer.0"), IsEmpty());  // of either
  EXPECT_THAT(names.find("encoder"), ElementsAre(1, 2));
  EXPECT_THAT(names.find("Embed"), ElementsAre(0));
  EXPECT_THAT(names.find("pooler"), IsEmpty());
  EXPECT_THAT(names.find(""), IsEmpty());
}

TEST(LayerNames, FindsByNumbers) {
  LayerNames names({"wte", "h/0", "h/1", "h/2", "ln_f"});
  const std::vector<std::string> paths = {"GPT_0/Block_4/Attention_1/Linear_0", "GPT_0/Block_5/Attention_2/Linear_1",
                                          "GPT_0/Block_10/Attention_3", "GPT_0/Linear_9",
                                          "GPT_0/Block_10/Mlp_0/Linear_3"};
  EXPECT_THAT(names.find(paths[0]), IsEmpty());
  names.match_numbers(paths);
  EXPECT_TRUE(names.knows_kinds());
  EXPECT_THAT(names.find(paths[0]), ElementsAre(1));
  EXPECT_THAT(names.find(paths[1]), ElementsAre(2));
  EXPECT_THAT(names.find(paths[4]), ElementsAre(3));  // 10 behind 5
  EXPECT_THAT(names.find(paths[3]), IsEmpty());
  // What is beside the layers, in the module that all of them are in.
  EXPECT_TRUE(names.is_in_root(words_of(paths[3])));
  EXPECT_TRUE(names.is_in_root(words_of("GPT_0")));
  EXPECT_FALSE(names.is_in_root(words_of("Accuracy_0/Linear_9")));
  // Two kinds of as many layers are not told apart so.
  LayerNames two({"e/0", "e/1", "d/0", "d/1"});
  two.match_numbers({"Block_0", "Block_1"});
  EXPECT_FALSE(two.knows_kinds());
}

TEST(LayerNames, RootIsTheOutermostModule) {
  LayerNames names({"wte", "h/0", "h/1", "norm"});
  names.match_numbers({"LM_0/Stack_0/Block_0", "LM_0/Stack_0/Block_1", "Block_1/Mlp_0"});  // the last is run again
  EXPECT_TRUE(names.is_in_root(words_of("LM_0/Linear_7")));
  LayerNames alone({"wte", "h/0", "h/1", "norm"});
  alone.match_numbers({"Block_0", "Block_1", "sampler"});
  EXPECT_FALSE(alone.is_in_root(words_of("sampler")));
  EXPECT_FALSE(alone.is_in_root({}));
}

TEST(LayerNames, WordsWithoutNumbersAreOutsideOfNumberedLayers) {
  LayerNames names({"embed", "h/0", "h/1", "norm"});
  EXPECT_THAT(names.find("net/h.1/norm"), ElementsAre(2));
  names.match_numbers({"Net_0/Block_0/norm", "Net_0/Block_1/norm", "Net_0/norm"});
  EXPECT_THAT(names.find("Net_0/Block_0/norm"), ElementsAre(1));
  EXPECT_THAT(names.find("Net_0/norm"), ElementsAre(3));
}

}  // namespace
}  // namespace automap::measured
