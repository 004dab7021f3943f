#include "common/architecture/read.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>

#include "common/architecture/config.h"
#include "common/architecture/layer_table.h"
#include "common/architecture/megatron.h"
#include "common/architecture/names.h"
#include "common/architecture/step_builder.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/join.h"
#include "common/base/json_reader.h"
#include "common/base/suggest.h"
#include "common/graph/shape.h"

namespace automap::architecture {

namespace {

constexpr std::size_t kLargestDescription = std::size_t{1} << 20;
constexpr std::int64_t kLongestUnasked = 8192;
// The module's own samples; the planner chooses those of the training.
constexpr std::int64_t kSamples = 16;

bool is_layer_table(const Json& json) {
  const Json* schema = json.find("schema");
  return schema != json.end() && schema->is_string() && schema->string().rfind("automap.layers/", 0) == 0;
}

Type product_type(const std::string& name, const std::string& where) {
  if (name == "bf16" || name == "bfloat16") return Type::kBf16;
  if (name == "f16" || name == "float16" || name == "fp16" || name == "half") return Type::kF16;
  if (name == "f32" || name == "float32" || name == "fp32" || name == "float") return Type::kF32;
  throw Error(where == "--dtype" ? ErrorKind::kUsage : ErrorKind::kData,
              where + ": found '" + name + "', expected f32, bf16 or f16");
}

Type product_type(const Described& described, const std::string& source, const StepOptions& options) {
  if (!options.dtype.empty()) return product_type(options.dtype, "--dtype");
  const std::string& said = described.said.dtype;
  return product_type(said.empty() ? described.model.dtype : said, source + ": torch_dtype");
}

// The first of `words` where none is given.
template <typename T>
T word_of(const char* option, const std::string& word, const std::vector<std::pair<const char*, T>>& words) {
  if (word.empty()) return words.front().second;
  std::vector<std::string> known;
  for (const auto& [name, meaning] : words) {
    if (word == name) return meaning;
    known.emplace_back(name);
  }
  throw Error(ErrorKind::kUsage, std::string(option) + ": found '" + word + "', expected " + join(known, " or "));
}

[[noreturn]] void does_not_fit(const std::string& source, const std::string& what, const std::string& hint = "") {
  throw Error(ErrorKind::kData, source + ": " + what, hint);
}

// Sizes fit each other, and nothing is larger than shapes can say.
void check_model(const Model& model, std::int64_t samples, const std::string& source) {
  std::int64_t layers = 0;
  const double places = static_cast<double>(samples) * static_cast<double>(model.longest);
  double most = places * static_cast<double>(std::max(model.vocabulary, model.hidden));
  for (const Stack& stack : model.stacks) {
    for (const LayerGroup& group : stack.groups) {
      layers += group.repeat;
      for (const Block& block : group.blocks) {
        most = std::max(most, places * static_cast<double>(std::max(block.hidden, block.shared_hidden)));
        if (block.kind == BlockKind::kExperts) {
          most = std::max(most, places * static_cast<double>(std::max(
                                             block.experts, block.chosen * std::max(block.hidden, model.hidden))));
          most = std::max(most, static_cast<double>(block.experts) * static_cast<double>(block.hidden) *
                                    static_cast<double>(model.hidden));
        }
        if (block.kind == BlockKind::kConvolution) {
          const double kernel = static_cast<double>(block.kernel), channels = static_cast<double>(block.channels);
          most = std::max({most, places * channels, kernel * kernel * channels * channels});
        }
        if (block.kind == BlockKind::kConvolution && model.input != InputKind::kImages) {
          does_not_fit(source, "convolutions are of images, and the input is none", "give \"input\": \"images\"");
        }
        if (block.kind != BlockKind::kConvolution && model.input == InputKind::kImages) {
          does_not_fit(source, "of images only convolutions are known here",
                       "give \"input\": \"patches\" for attention");
        }
        if (block.kind != BlockKind::kAttention) continue;
        const double size = static_cast<double>(stack.sequence);
        most = std::max(most, static_cast<double>(samples) * static_cast<double>(block.heads) *
                                  std::max(size * size, size * static_cast<double>(block.head_size)));
        if (block.heads % block.kv_heads != 0) {
          does_not_fit(source, std::to_string(block.heads) + " heads are not divided into " +
                                   std::to_string(block.kv_heads) + " heads of keys and values");
        }
        const std::int64_t turned = block.rotary_size > 0 ? block.rotary_size : block.head_size;
        if (block.rotary && (turned % 2 != 0 || turned > block.head_size)) {
          does_not_fit(source, "rotary positions turn " + std::to_string(turned) + " features of heads of " +
                                   std::to_string(block.head_size) + ": expected an even number within the head");
        }
        if (block.cross && (model.stacks.size() < 2 || &stack == &model.stacks.front())) {
          does_not_fit(source, "cross attention needs an encoder before it");
        }
      }
    }
  }
  if (layers > 2048) does_not_fit(source, std::to_string(layers) + " layers; at most 2048 are looked at");
  if (most > 1e15) does_not_fit(source, "an array of more than 10^15 numbers comes of these sizes");
}

// The sequence that is trained with; of patches it follows from the image.
std::int64_t sequence_of(const Described& described, const std::string& source, const StepOptions& options) {
  const Model& model = described.model;
  const std::int64_t asked = options.sequence > 0 ? options.sequence : described.said.sequence;
  if (model.input != InputKind::kTokens) {
    if (asked > 0 && asked != model.longest) {
      throw Error(ErrorKind::kUsage,
                  "--sequence: " + source + " takes images, which are " + std::to_string(model.longest) + " positions",
                  "drop --sequence");
    }
    return model.longest;
  }
  const std::int64_t sequence = asked > 0 ? asked : std::min(model.longest, kLongestUnasked);
  if (model.positions > 0 && sequence > model.positions) {
    throw Error(ErrorKind::kUsage,
                "--sequence " + std::to_string(sequence) + ": " + source + " has " + std::to_string(model.positions) +
                    " learned positions",
                "give at most that many");
  }
  return sequence;
}

std::string of_dropout(const Model& model) {
  const auto share = [](double rate) {
    char text[40];
    std::snprintf(text, sizeof text, "%g", rate);
    return std::string(text);
  };
  const double rest = model.dropout, attention = model.attention_dropout;
  if (rest <= 0 && attention <= 0) return "";
  if (rest <= 0) return ", dropout " + share(attention) + " in attention alone";
  return ", dropout " + share(rest) + (rest == attention ? "" : " (" + share(attention) + " in attention)");
}

// Of a decoder whose layers are attention and one MLP, each like the others.
ModelSizes sizes_of(const Model& model) {
  ModelSizes sizes;
  if (model.input != InputKind::kTokens) return sizes;
  sizes.sequence = model.longest;
  if (model.stacks.size() != 1) return sizes;
  ModelSizes all = sizes;
  all.hidden = model.hidden;
  all.vocabulary = model.vocabulary;
  all.positions = model.positions;
  for (const LayerGroup& group : model.stacks.front().groups) {
    all.layers += group.repeat;
    for (const Block& block : group.blocks) {
      const auto take = [&](std::int64_t value, std::int64_t& size) {
        const bool like = size == 0 || size == value;
        size = value;
        return like;
      };
      if (block.kind == BlockKind::kMlp) {
        if (!take(block.hidden, all.inner)) return sizes;
      } else if (block.kind == BlockKind::kAttention && block.causal && block.kv_rank == 0) {
        const bool heads = take(block.heads, all.heads), of_keys = take(block.kv_heads, all.kv_heads);
        if (!heads || !of_keys || !take(block.head_size, all.head_size)) return sizes;
      } else {
        return sizes;
      }
    }
  }
  return all.heads > 0 && all.inner > 0 ? all : sizes;
}

std::string of_weights(double weights) {
  char text[40];
  if (weights >= 1e9) {
    std::snprintf(text, sizeof text, "%.4g billion weights", weights * 1e-9);
  } else {
    std::snprintf(text, sizeof text, "%.4g million weights", weights * 1e-6);
  }
  return text;
}

}  // namespace

std::string read_model_file(const std::string& path) {
  struct stat there {};
  if (path == "-" || stat(path.c_str(), &there) == 0) return read_file(path);
  std::string config = config_of(path);
  if (!config.empty()) return config;
  const std::string near = join(near_models(path), " or ");
  try {
    return read_file(path);
  } catch (const Error& error) {
    const std::string names = near.empty() ? "" : "did you mean the published model " + near + "? ";
    throw Error(error.kind(), error.what(), names + "names that need no file: docs/describing-models.md");
  }
}

bool is_description(std::string_view bytes) {
  if (bytes.size() > kLargestDescription) return false;
  if (is_megatron(bytes)) return true;
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || bytes[first] != '{') return false;
  const Json json = Json::parse_or_null(bytes);
  if (!json.is_object()) return false;
  return is_layer_table(json) || json.contains("model_type") || json.contains("_class_name") ||
         json.contains("architectures");
}

Described read_description(std::string_view bytes, const std::string& source) {
  Described out;
  if (is_megatron(bytes)) {
    out.form = "arguments of Megatron";
    out.model = read_megatron(bytes, source, &out.said);
    return out;
  }
  const Json json = parse_json(bytes, {source, ErrorKind::kData, ""});
  const bool table = is_layer_table(json);
  out.form = table ? "table of layers" : "config.json";
  out.model = table ? read_layer_table(json, source) : read_config(json, source);
  return out;
}

ModelSizes described_sizes(std::string_view bytes, const std::string& source, const StepOptions& options) {
  Described described = read_description(bytes, source);
  described.model.longest = sequence_of(described, source, options);
  ModelSizes sizes = sizes_of(described.model);
  sizes.dtype = graph::element_type_name(product_type(described, source, options));
  if (bytes == config_of(source)) sizes.published = source;
  return sizes;
}

BuiltStep build_step(const Described& described, const std::string& source, const StepOptions& options) {
  Model model = described.model;
  const StepOptions& said = described.said;
  StepSettings settings;
  settings.samples = options.samples > 0 ? options.samples : kSamples;
  settings.compute = product_type(described, source, options);
  const std::string optimizer = !options.optimizer.empty() ? options.optimizer : said.optimizer;
  settings.optimizer =
      word_of<Optimizer>("--model-optimizer", optimizer,
                         {{"adamw", Optimizer::kAdamW}, {"adam", Optimizer::kAdam}, {"sgd", Optimizer::kSgd}});
  settings.remat = word_of<Remat>("--remat", options.remat,
                                  {{"none", Remat::kNone}, {"layer", Remat::kLayer}, {"selective", Remat::kSelective}});
  const std::int64_t sequence = sequence_of(described, source, options);
  if (model.image > 0 && model.image % model.patch != 0) {
    does_not_fit(source, "an image of " + std::to_string(model.image) + " is not divided into patches of " +
                             std::to_string(model.patch));
  }
  model.longest = sequence;
  std::int64_t layers = 0;
  for (Stack& stack : model.stacks) {
    stack.sequence = sequence;
    for (const LayerGroup& group : stack.groups) layers += group.repeat;
  }
  check_model(model, settings.samples, source);
  BuiltStep out;
  StepBuilder builder(model, settings);
  out.graph = builder.build(source);
  out.form = described.form;
  const std::string type(graph::element_type_name(settings.compute));
  out.taken = model.architecture + " of " + std::to_string(layers) + " layers, " + of_weights(builder.num_weights()) +
              ", sequence " + std::to_string(sequence) + ", " +
              (settings.compute == Type::kF32 ? "f32" : type + " over f32 weights") + ", " +
              (settings.optimizer == Optimizer::kSgd    ? "SGD with momentum"
               : settings.optimizer == Optimizer::kAdam ? "Adam"
                                                        : "AdamW");
  out.taken += of_dropout(model);
  if (settings.remat != Remat::kNone)
    out.taken += ", " + std::string(settings.remat == Remat::kLayer ? "layers" : "attention") + " computed again";
  return out;
}

}  // namespace automap::architecture
