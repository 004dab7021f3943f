#include "common/architecture/config.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "common/architecture/architectures.h"
#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/suggest.h"

namespace automap::architecture {

namespace {

using Keys = std::vector<const char*>;

// The names that a size has in files of different architectures.
const Keys kHidden = {"hidden_size", "n_embd", "d_model"};
const Keys kLayers = {"num_hidden_layers", "n_layer", "num_layers"};
const Keys kHeads = {"num_attention_heads", "n_head", "num_heads"};
const Keys kKvHeads = {"num_key_value_heads"};
const Keys kHeadSize = {"head_dim", "d_kv", "attention_head_dim"};
const Keys kInner = {"intermediate_size", "n_inner", "d_ff", "ffn_dim"};
const Keys kVocabulary = {"vocab_size"};
const Keys kPositions = {"max_position_embeddings", "n_positions"};
const Keys kExperts = {"num_local_experts", "n_routed_experts", "num_experts"};
const Keys kChosen = {"num_experts_per_tok", "experts_per_token"};
// Every so many-th layer has experts.
const Keys kExpertStep = {"decoder_sparse_step", "interleave_moe_layer_step"};
const Keys kAttentionDropout = {"attention_dropout", "attn_pdrop", "attention_probs_dropout_prob", "dropout_rate"};
const Keys kDropout = {"hidden_dropout", "resid_pdrop", "hidden_dropout_prob",
                       "resid_dropout",  "dropout",     "dropout_rate"};
const Keys kActivation = {"hidden_act", "activation_function", "hidden_activation", "dense_act_fn",
                          "feed_forward_proj"};

class Config {
 public:
  Config(const Json& json, const std::string& source) : json_(json), source_(source) {}

  const Json* find(const Keys& keys) const {
    for (const Json* from : {&json_, &absent_}) {
      for (const char* key : keys) {
        const Json* value = from->find(key);
        if (value != from->end() && !value->is_null()) return value;
      }
    }
    return nullptr;
  }

  std::string text(const Keys& keys, const std::string& absent) const {
    const Json* value = find(keys);
    if (value == nullptr) return absent;
    if (!value->is_string()) fail(keys.front(), *value, "a text");
    return value->string();
  }

  bool flag(const char* key, bool absent) const {
    const Json* value = find({key});
    if (value == nullptr) return absent;
    if (!value->is_boolean()) fail(key, *value, "true or false");
    return value->get<bool>();
  }

  double number(const char* key, double absent) const {
    const Json* value = find({key});
    if (value == nullptr) return absent;
    if (!value->is_number() || !(value->get<double>() >= 0 && value->get<double>() <= 1e6)) {
      fail(key, *value, "a number from 0 to 1000000");
    }
    return value->get<double>();
  }

  // 0 where none of them is there.
  double dropout(const Keys& keys) const {
    for (const char* key : keys) {
      const Json* value = find({key});
      if (value == nullptr) continue;
      if (!value->is_number() || !(value->get<double>() >= 0 && value->get<double>() <= kMostDropped)) {
        fail(key, *value, kDroppedRange);
      }
      return value->get<double>();
    }
    return 0;
  }

  std::int64_t size(const Keys& keys, std::int64_t most, std::optional<std::int64_t> absent = std::nullopt,
                    std::int64_t least = 1) const {
    const Json* value = find(keys);
    if (value == nullptr) {
      if (absent) return *absent;
      std::vector<std::string> names(keys.begin(), keys.end());
      throw Error(ErrorKind::kData, source_ + ": the key " + join(names, " or ") + " is missing",
                  "a config.json of " + type_ + " has it; docs/describing-models.md lists the keys that are read");
    }
    const bool whole = value->is_number_integer();
    if (!whole || value->get<double>() < static_cast<double>(least) ||
        value->get<double>() > static_cast<double>(most)) {
      fail(keys.front(), *value, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return value->get<std::int64_t>();
  }

  // One for each layer; empty: the key is not there.
  std::vector<std::string> texts(const char* key, std::int64_t layers) const {
    const Json* value = find({key});
    if (value == nullptr) return {};
    const std::string expected = "a list of " + std::to_string(layers) + " texts, one for each layer";
    if (!value->is_array() || value->size() != static_cast<std::size_t>(layers)) fail(key, *value, expected);
    std::vector<std::string> out;
    for (const Json& one : *value) {
      if (!one.is_string()) fail(key, *value, expected);
      out.push_back(one.string());
    }
    return out;
  }

  void set_type(const std::string& type) { type_ = type; }
  // An object: what is taken of keys that the file does not have.
  void set_absent(Json absent) { absent_ = std::move(absent); }

  [[noreturn]] void fail(const char* key, const Json& found, const std::string& expected) const {
    std::string text = found.dump(-1, Json::BadUtf8::kReplace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    throw Error(ErrorKind::kData, source_ + ": " + key + ": found " + text + ", expected " + expected);
  }

 private:
  const Json& json_;
  Json absent_ = Json::object();
  std::string source_, type_ = "this architecture";
};

bool has(const Architecture& row, Trait trait) {
  return (row.traits & trait) != 0;
}

Activation activation_of(const std::string& name, const std::string& source) {
  std::string word = name.rfind("gated-", 0) == 0 ? name.substr(6) : name;
  if (word == "silu" || word == "swish") return Activation::kSilu;
  if (word == "relu") return Activation::kRelu;
  if (word == "gelu") return name == word ? Activation::kGelu : Activation::kGeluTanh;
  if (word == "gelu_new" || word == "gelu_pytorch_tanh" || word == "gelu_fast" || word == "quick_gelu" ||
      word == "gelu-approximate") {
    return Activation::kGeluTanh;
  }
  throw Error(ErrorKind::kData, source + ": the activation '" + name + "' is not known",
              "known are gelu, gelu_new, gelu_pytorch_tanh, relu, silu");
}

Block attention_block(const Config& config, const Architecture& row, std::int64_t hidden, bool causal) {
  Block block;
  block.kind = BlockKind::kAttention;
  block.causal = causal;
  block.heads = config.size(kHeads, kMostHeads);
  block.kv_heads = config.size(kKvHeads, kMostHeads, block.heads);
  block.rotary = has(row, kRotary);
  block.scaled = !has(row, kUnscaled);
  block.head_norm = has(row, kHeadNorm);
  block.one_product = has(row, kOneProduct);
  const bool bias = config.flag("attention_bias", has(row, kBias));
  block.bias = bias;
  block.query_bias = has(row, kQueryBias) || (bias && !has(row, kBias));
  if (row.family == Family::kImages) block.query_bias = config.flag("qkv_bias", true);
  if (has(row, kCompressed)) {
    const std::int64_t still = config.size({"qk_nope_head_dim"}, 4096);
    block.rotary_size = config.size({"qk_rope_head_dim"}, 4096);
    block.head_size = still + block.rotary_size;
    block.value_size = config.size({"v_head_dim"}, 4096);
    block.query_rank = config.size({"q_lora_rank"}, kMostWide, 0, 0);
    block.kv_rank = config.size({"kv_lora_rank"}, kMostWide);
    block.kv_heads = block.heads;
  } else {
    block.head_size = config.size(kHeadSize, 4096, std::max<std::int64_t>(1, hidden / block.heads));
    block.value_size = block.head_size;
    const double share = config.number("rotary_pct", config.number("partial_rotary_factor", 1));
    if (share < 1) {
      block.rotary_size =
          std::max<std::int64_t>(2, static_cast<std::int64_t>(share * static_cast<double>(block.head_size)) / 2 * 2);
    }
  }
  return block;
}

Block mlp_block(const Config& config, const Architecture& row, std::int64_t hidden, const std::string& source) {
  Block block;
  const std::string name = config.text(kActivation, row.activation);
  block.activation = activation_of(name, source);
  block.gated = has(row, kGated) || name.rfind("gated-", 0) == 0;
  block.bias = config.flag("mlp_bias", has(row, kBias));
  block.hidden = config.size(kInner, kMostWide, 4 * hidden);
  return block;
}

// Layers of experts, behind some without or between them, where the file has experts.
std::vector<LayerGroup> decoder_groups(const Config& config, const Architecture& row, const Block& attention,
                                       const Block& mlp, std::int64_t layers) {
  const std::int64_t experts = config.size(kExperts, 4096, 0, 0);
  if (experts == 0) return {{layers, {attention, mlp}}};
  Block block = mlp, dense = mlp;
  block.kind = BlockKind::kExperts;
  block.experts = experts;
  block.chosen = config.size(kChosen, experts);
  block.hidden = config.size({"moe_intermediate_size"}, kMostWide, mlp.hidden);
  const std::int64_t shared = config.size({"n_shared_experts"}, 4096, has(row, kSharedExpert) ? 1 : 0, 0);
  block.shared_hidden = config.size({"shared_expert_intermediate_size"}, kMostWide, shared * block.hidden, 0);
  if (has(row, kSharedExpert)) dense.hidden = config.size({"intermediate_size_mlp"}, kMostWide, mlp.hidden);
  const std::int64_t plain = std::min(layers, config.size({"first_k_dense_replace"}, kMostLayers, 0, 0));
  const std::int64_t step = config.size(kExpertStep, kMostLayers, 1);
  std::vector<LayerGroup> groups;
  if (plain > 0) groups.push_back({plain, {attention, dense}});
  for (std::int64_t at = plain; at < layers;) {
    const std::int64_t next = step == 1 ? layers - 1 : (at / step + 1) * step - 1;  // with experts
    if (next > at && step > 1) groups.push_back({std::min(next, layers) - at, {attention, dense}});
    if (next < layers) groups.push_back({step == 1 ? layers - at : 1, {attention, block}});
    at = next + 1;
  }
  return groups;
}

// The keys that a query sees in each layer, 0: all, as the file lists them, by the step between layers that see all, or
// by the architecture. Empty: all see all.
std::vector<std::int64_t> windows_of(const Config& config, const Architecture& row, std::int64_t layers) {
  const std::int64_t window = config.size({"sliding_window", "window_size"}, kMostPositions, 0, 0);
  const std::int64_t chunk = config.size({"attention_chunk_size"}, kMostPositions, 0, 0);
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), 0);
  const std::vector<std::string> listed = config.texts("layer_types", layers);
  for (std::size_t i = 0; i < listed.size(); ++i) {
    if (listed[i] == "sliding_attention") windows[i] = window;
    if (listed[i] == "chunked_attention") windows[i] = chunk;
    if (listed[i] == "sliding_attention" || listed[i] == "chunked_attention" || listed[i] == "full_attention") continue;
    config.fail("layer_types", Json(listed[i]), "full_attention, sliding_attention or chunked_attention");
  }
  const std::int64_t seen = window > 0 ? window : chunk;
  if (!listed.empty() || seen == 0 || !config.flag("use_sliding_window", true)) return windows;
  const std::int64_t step = config.size({"sliding_window_pattern", "_sliding_window_pattern"}, kMostLayers,
                                        has(row, kEverySecond) ? 2 : row.pattern, 0);
  const bool first = row.type != std::string("gpt_neo");  // those with windows come first
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool all = step > 0 && ((i + 1) % step == 0) == first;
    if (!all) windows[static_cast<std::size_t>(i)] = seen;
  }
  return windows;
}

std::vector<LayerGroup> with_windows(const std::vector<LayerGroup>& groups, const std::vector<std::int64_t>& windows) {
  std::vector<LayerGroup> out;
  std::size_t number = 0;
  for (const LayerGroup& group : groups) {
    for (std::int64_t i = 0; i < group.repeat; ++i, ++number) {
      const bool more = i > 0 && windows[number] == windows[number - 1];
      if (!more) {
        out.push_back(group);
        out.back().repeat = 0;
        out.back().blocks.front().window = windows[number];
      }
      ++out.back().repeat;
    }
  }
  return out;
}

void set_decoder(const Config& config, const Architecture& row, const std::string& source, Model* model) {
  const Block attention = attention_block(config, row, model->hidden, row.family == Family::kDecoder);
  const Block mlp = mlp_block(config, row, model->hidden, source);
  const std::int64_t layers = config.size(kLayers, kMostLayers);
  Stack stack;
  stack.groups = with_windows(decoder_groups(config, row, attention, mlp, layers), windows_of(config, row, layers));
  model->stacks = {std::move(stack)};
}

void set_images(const Config& config, Model* model) {
  model->input = InputKind::kPatches;
  model->head = HeadKind::kClasses;
  model->image = config.size({"image_size"}, 16384, 224);
  model->patch = config.size({"patch_size"}, 16384, 16);
  model->image_channels = config.size({"num_channels"}, 4096, 3);
  const Json* labels = config.find({"id2label"});
  const bool listed = labels != nullptr && labels->is_object() && labels->size() > 2;
  model->classes = listed ? static_cast<std::int64_t>(labels->size()) : config.size({"num_labels"}, kMostWords, 1000);
  model->class_token = true;
}

void set_diffusion(const Config& config, const Architecture& row, const std::string& source, Model* model) {
  const std::string norm = config.text({"norm_type"}, "ada_norm_zero");
  if (norm != "ada_norm_zero") {
    throw Error(ErrorKind::kData, source + ": norm_type: found '" + norm + "', expected ada_norm_zero",
                "of diffusion transformers DiT is known");
  }
  model->input = InputKind::kPatches;
  model->head = HeadKind::kNoise;
  model->conditioned = true;
  model->final_norm = false;
  model->image = config.size({"sample_size"}, 16384);
  model->patch = config.size({"patch_size"}, 16384);
  model->image_channels = config.size({"in_channels"}, 4096);
  model->classes = config.size({"num_embeds_ada_norm"}, kMostWords, 1000);
  const std::int64_t heads = config.size(kHeads, kMostHeads);
  model->hidden = heads * config.size(kHeadSize, 4096);
  set_decoder(config, row, source, model);
  model->positions = 0;
}

void set_encoder_decoder(const Config& config, const Architecture& row, const std::string& source, Model* model) {
  Block attention = attention_block(config, row, model->hidden, false);
  attention.position_buckets = config.size({"relative_attention_num_buckets"}, 4096, 32);
  Block own = attention, cross = attention;
  own.causal = true;
  cross.cross = true;
  cross.position_buckets = 0;
  const Block mlp = mlp_block(config, row, model->hidden, source);
  const std::int64_t layers = config.size(kLayers, kMostLayers);
  Stack encoder{"encoder", 0, {{layers, {attention, mlp}}}};
  Stack decoder{"decoder", 0, {{config.size({"num_decoder_layers"}, kMostLayers, layers), {own, cross, mlp}}}};
  model->stacks = {std::move(encoder), std::move(decoder)};
}

std::string type_of(const Json& json, const std::string& source) {
  for (const char* key : {"model_type", "_class_name"}) {
    const Json* value = json.find(key);
    if (value != json.end() && value->is_string()) return value->string();
  }
  throw Error(ErrorKind::kData, source + ": the key model_type is missing, which says what model this is",
              "known are " + join(architecture_names()));
}

}  // namespace

Model read_config(const Json& file, const std::string& source) {
  // Of a model of several kinds of input, the part that reads text.
  const Json* inner = file.find("text_config");
  const bool part = inner != file.end() && inner->is_object() && inner->contains("model_type");
  const Json& json = part ? *inner : file;
  Config config(json, source);
  const std::string type = type_of(json, source);
  const Architecture* row = find_architecture(type);
  if (row == nullptr) {
    const std::string near = closest_name(type, architecture_names());
    throw Error(ErrorKind::kData,
                source + ": the architecture '" + type + "' is not known" +
                    (near.empty() ? "" : ": did you mean " + near + "?"),
                "known are " + join(architecture_names()) +
                    "; others are described in the layer language (docs/describing-models.md)");
  }
  config.set_type(type);
  Json absent = Json::parse(row->absent);
  if (part) {  // What holds for the whole file holds for the part.
    for (const char* key : {"torch_dtype", "dtype", "tie_word_embeddings"}) {
      if (file.contains(key)) absent[key] = *file.find(key);
    }
  }
  config.set_absent(std::move(absent));
  Model model;
  model.architecture = type;
  model.rms_norm = has(*row, kRms);
  model.norm = row->family == Family::kEncoder ? NormPlace::kBehind
               : has(*row, kAround)            ? NormPlace::kAround
               : has(*row, kAfter)             ? NormPlace::kAfter
                                               : NormPlace::kBefore;
  model.parallel = has(*row, kParallel) && config.flag("use_parallel_residual", true);
  model.one_norm = has(*row, kOneNorm);
  model.tied = config.flag("tie_word_embeddings", has(*row, kTied));
  model.head_bias = has(*row, kHeadBias);
  model.attention_dropout = config.dropout(kAttentionDropout);
  model.dropout = config.dropout(kDropout);
  model.dtype = config.text({"torch_dtype", "dtype"}, "float32");
  if (row->family != Family::kDiffusion) model.hidden = config.size(kHidden, kMostWide);
  if (row->family == Family::kImages || row->family == Family::kDiffusion) {
    if (row->family == Family::kImages) {
      set_images(config, &model);
      set_decoder(config, *row, source, &model);
    } else {
      set_diffusion(config, *row, source, &model);
    }
    const std::int64_t side = std::max<std::int64_t>(1, model.image / model.patch);
    model.longest = side * side + (model.class_token ? 1 : 0);
    if (row->family == Family::kImages) model.positions = model.longest;
    return model;
  }
  model.vocabulary = config.size(kVocabulary, kMostWords);
  model.longest = row->positions > 0 ? config.size(kPositions, kMostPositions, row->positions)
                                     : config.size(kPositions, kMostPositions);
  if (has(*row, kLearned)) model.positions = model.longest;
  if (row->family == Family::kEncoderDecoder) {
    set_encoder_decoder(config, *row, source, &model);
    return model;
  }
  set_decoder(config, *row, source, &model);
  if (row->family == Family::kEncoder) {
    model.token_types = config.size({"type_vocab_size"}, 4096, 2, 0);
    model.embedding_norm = true;
    model.final_norm = false;
    model.head_transform = true;
  }
  return model;
}

}  // namespace automap::architecture
