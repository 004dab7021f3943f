#include "common/architecture/layer_table.h"

#include <algorithm>
#include <map>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/json_reader.h"

namespace automap::architecture {

namespace {

std::int64_t size_or(const JsonValue& value, const char* key, std::int64_t absent, std::int64_t most) {
  return value.has(key) ? value.at(key).integer(1, most) : absent;
}

double share_or_none(const JsonValue& value, const char* key) {
  return value.has(key) ? value.at(key).number(0, kMostDropped, kDroppedRange) : 0;
}

bool flag_or(const JsonValue& value, const char* key, bool absent) {
  return value.has(key) ? value.at(key).boolean() : absent;
}

template <typename T>
T word_or(const JsonValue& value, const char* key, T absent, const std::map<std::string, T>& words) {
  if (!value.has(key)) return absent;
  const auto found = words.find(value.at(key).text());
  if (found != words.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [word, meaning] : words) known.push_back(word);
  value.at(key).wrong(join(known, " or "));
}

Block read_block(const JsonValue& value, std::int64_t hidden) {
  Block block;
  static const std::map<std::string, BlockKind> kinds = {{"attention", BlockKind::kAttention},
                                                         {"mlp", BlockKind::kMlp},
                                                         {"experts", BlockKind::kExperts},
                                                         {"convolution", BlockKind::kConvolution}};
  value.at("block");
  block.kind = word_or(value, "block", BlockKind::kMlp, kinds);
  block.bias = flag_or(value, "bias", false);
  static const std::map<std::string, Activation> activations = {{"gelu", Activation::kGelu},
                                                                {"gelu_tanh", Activation::kGeluTanh},
                                                                {"relu", Activation::kRelu},
                                                                {"silu", Activation::kSilu}};
  switch (block.kind) {
    case BlockKind::kAttention:
      value.only_keys({"block", "bias", "heads", "kv_heads", "head_size", "causal", "rotary", "window", "cross"});
      block.heads = value.at("heads").integer(1, kMostHeads);
      block.kv_heads = size_or(value, "kv_heads", block.heads, kMostHeads);
      block.head_size = size_or(value, "head_size", std::max<std::int64_t>(1, hidden / block.heads), 4096);
      block.value_size = block.head_size;
      block.query_bias = block.bias;
      block.causal = flag_or(value, "causal", false);
      block.rotary = flag_or(value, "rotary", false);
      block.cross = flag_or(value, "cross", false);
      block.window = size_or(value, "window", 0, kMostPositions);
      return block;
    case BlockKind::kMlp:
    case BlockKind::kExperts:
      value.only_keys({"block", "bias", "hidden", "gated", "activation", "experts", "chosen", "shared_hidden"});
      block.hidden = value.at("hidden").integer(1, kMostWide);
      block.gated = flag_or(value, "gated", false);
      block.activation = word_or(value, "activation", Activation::kGelu, activations);
      if (block.kind == BlockKind::kExperts) {
        block.experts = value.at("experts").integer(1, 4096);
        block.chosen = value.at("chosen").integer(1, block.experts);
        block.shared_hidden = size_or(value, "shared_hidden", 0, kMostWide);
      }
      return block;
    case BlockKind::kConvolution:
      value.only_keys({"block", "bias", "channels", "kernel", "stride", "activation"});
      block.channels = value.at("channels").integer(1, kMostWide);
      block.kernel = size_or(value, "kernel", 3, 64);
      block.stride = size_or(value, "stride", 1, 64);
      block.activation = word_or(value, "activation", Activation::kRelu, activations);
      return block;
  }
  return block;
}

Stack read_stack(const JsonValue& layers, const std::string& scope, std::int64_t hidden) {
  Stack stack;
  stack.scope = scope;
  for (const JsonValue& item : layers.items()) {
    item.only_keys({"repeat", "blocks"});
    LayerGroup group;
    group.repeat = size_or(item, "repeat", 1, kMostLayers);
    for (const JsonValue& block : item.at("blocks").items()) group.blocks.push_back(read_block(block, hidden));
    if (group.blocks.empty()) item.at("blocks").wrong("at least one block");
    stack.groups.push_back(std::move(group));
  }
  if (stack.groups.empty()) layers.wrong("at least one group of layers");
  return stack;
}

}  // namespace

Model read_layer_table(const Json& json, const std::string& source_name) {
  const JsonSource source{source_name, ErrorKind::kData, ""};
  const JsonValue root(json, source);
  root.schema("automap.layers/", 1, "a table of layers");
  root.only_keys(
      {"schema",  "name",  "input",    "head", "hidden",     "vocabulary", "classes", "sequence",          "positions",
       "image",   "patch", "channels", "norm", "norm_place", "tied",       "dropout", "attention_dropout", "dtype",
       "encoder", "layers"});
  Model model;
  model.architecture = root.has("name") ? root.at("name").text() : "a table of layers";
  model.input =
      word_or(root, "input", InputKind::kTokens,
              {{"tokens", InputKind::kTokens}, {"patches", InputKind::kPatches}, {"images", InputKind::kImages}});
  const bool words = model.input == InputKind::kTokens;
  model.head = word_or(root, "head", words ? HeadKind::kTokens : HeadKind::kClasses,
                       {{"tokens", HeadKind::kTokens}, {"classes", HeadKind::kClasses}, {"noise", HeadKind::kNoise}});
  if (words) {
    model.vocabulary = root.at("vocabulary").integer(2, kMostWords);
    model.longest = root.at("sequence").integer(1, kMostPositions);
  } else {
    model.image = root.at("image").integer(1, 16384);
    model.patch = size_or(root, "patch", 1, 16384);
    model.image_channels = size_or(root, "channels", 3, 4096);
    if (model.image % model.patch != 0)
      root.at("patch").wrong("a divisor of the image's " + std::to_string(model.image));
    const std::int64_t side = model.image / model.patch;
    model.longest = side * side;
    if (model.head == HeadKind::kTokens) root.at("head").wrong("classes or noise, where the input is no tokens");
  }
  if (model.input == InputKind::kImages) {
    model.hidden = model.image_channels;
    model.final_norm = false;
    if (model.head != HeadKind::kClasses) root.at("head").wrong("classes, where the input is images");
  } else {
    model.hidden = root.at("hidden").integer(1, kMostWide);
  }
  if (model.head == HeadKind::kClasses) model.classes = root.at("classes").integer(2, kMostWords);
  if (flag_or(root, "positions", false)) model.positions = model.longest;
  model.rms_norm = word_or(root, "norm", false, {{"rms", true}, {"layer", false}});
  model.norm = word_or(root, "norm_place", NormPlace::kBefore,
                       {{"before", NormPlace::kBefore},
                        {"behind", NormPlace::kBehind},
                        {"around", NormPlace::kAround},
                        {"after", NormPlace::kAfter}});
  model.tied = flag_or(root, "tied", false);
  model.dropout = share_or_none(root, "dropout");
  model.attention_dropout = share_or_none(root, "attention_dropout");
  if (root.has("dtype")) model.dtype = root.at("dtype").text();
  if (root.has("encoder")) model.stacks.push_back(read_stack(root.at("encoder"), "encoder", model.hidden));
  model.stacks.push_back(read_stack(root.at("layers"), "layers", model.hidden));
  return model;
}

}  // namespace automap::architecture
