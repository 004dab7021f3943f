#include "common/architecture/megatron.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include "common/base/error.h"

namespace automap::architecture {

namespace {

// Megatron's default dropout of attention and of hidden states, where its arguments do not give one.
constexpr double kMegatronsDropout = 0.1;

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(word);
    word.clear();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '#' && word.empty()) {  // a comment
      while (i < text.size() && text[i] != '\n') ++i;
    } else if (c == '=' && word.rfind("--", 0) == 0) {
      end_word();
    } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\\' || c == '"' || c == '\'') {
      end_word();
    } else {
      word += c;
    }
  }
  end_word();
  return words;
}

class Arguments {
 public:
  Arguments(std::string_view text, std::string source) : source_(std::move(source)) {
    const std::vector<std::string> words = words_of(text);
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i].rfind("--", 0) != 0) continue;
      const bool value = i + 1 < words.size() && words[i + 1].rfind("--", 0) != 0;
      values_[words[i]] = value ? words[i + 1] : "";
    }
  }

  bool has(const std::string& name) const { return values_.count(name) > 0; }

  std::string text(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? "" : found->second;
  }

  std::int64_t size(const std::string& name, std::int64_t most, std::int64_t absent = 0) const {
    const auto found = values_.find(name);
    if (found == values_.end()) {
      if (absent > 0) return absent;
      throw Error(ErrorKind::kData, source_ + ": the argument " + name + " is missing",
                  "needed are --num-layers, --hidden-size and --num-attention-heads");
    }
    std::int64_t value = 0;
    const std::string& word = found->second;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || stop != word.data() + word.size() || value < 1 || value > most) {
      throw Error(ErrorKind::kData, source_ + ": " + name + ": found '" + word +
                                        "', expected a whole number from 1 to " + std::to_string(most));
    }
    return value;
  }

  double share(const std::string& name, double absent) const {
    const auto found = values_.find(name);
    if (found == values_.end()) return absent;
    const std::string& word = found->second;
    char* stop = nullptr;
    const double value = std::strtod(word.c_str(), &stop);
    if (word.empty() || *stop != '\0' || !(value >= 0 && value <= kMostDropped)) {
      throw Error(ErrorKind::kData, source_ + ": " + name + ": found '" + word + "', expected " + kDroppedRange);
    }
    return value;
  }

 private:
  std::string source_;
  std::map<std::string, std::string> values_;
};

}  // namespace

bool is_megatron(std::string_view text) {
  if (text.find("--num-layers") == std::string_view::npos || text.size() > (1u << 20)) return false;
  // HLO has braces, and no argument.
  return text.find('{') == std::string_view::npos;
}

Model read_megatron(std::string_view text, const std::string& source, StepOptions* said) {
  const Arguments arguments(text, source);
  Model model;
  model.architecture = "Megatron's GPT";
  model.hidden = arguments.size("--hidden-size", 1 << 20);
  const std::int64_t layers = arguments.size("--num-layers", 1024);
  Block attention;
  attention.kind = BlockKind::kAttention;
  attention.causal = true;
  attention.heads = arguments.size("--num-attention-heads", 4096);
  const bool grouped = arguments.has("--group-query-attention");
  attention.kv_heads = grouped ? arguments.size("--num-query-groups", 4096, attention.heads) : attention.heads;
  attention.head_size =
      arguments.size("--kv-channels", 4096, model.hidden >= attention.heads ? model.hidden / attention.heads : 1);
  attention.value_size = attention.head_size;
  attention.one_product = true;
  attention.rotary =
      arguments.has("--use-rotary-position-embeddings") || arguments.text("--position-embedding-type") == "rope";
  attention.bias = !arguments.has("--disable-bias-linear");
  attention.query_bias = attention.bias || arguments.has("--add-qkv-bias");
  Block mlp;
  mlp.gated = arguments.has("--swiglu");
  mlp.activation = mlp.gated ? Activation::kSilu : Activation::kGelu;
  mlp.hidden =
      arguments.size("--ffn-hidden-size", 1 << 20,
                     mlp.gated ? std::max<std::int64_t>(64, 8 * model.hidden / 3 / 64 * 64) : 4 * model.hidden);
  mlp.bias = attention.bias;
  if (arguments.has("--num-experts")) {
    mlp.kind = BlockKind::kExperts;
    mlp.bias = false;
    mlp.experts = arguments.size("--num-experts", 4096);
    mlp.chosen = arguments.size("--moe-router-topk", mlp.experts, mlp.experts > 1 ? 2 : 1);
    mlp.hidden = arguments.size("--moe-ffn-hidden-size", 1 << 20, mlp.hidden);
  }
  model.attention_dropout = arguments.share("--attention-dropout", kMegatronsDropout);
  model.dropout = arguments.share("--hidden-dropout", kMegatronsDropout);
  model.rms_norm = arguments.text("--normalization") == "RMSNorm";
  model.tied = !arguments.has("--untie-embeddings-and-output-weights");
  model.vocabulary = arguments.size("--vocab-size", 1 << 24, 50304);
  const std::int64_t sequence = arguments.size("--seq-length", 1 << 24, 2048);
  model.longest = arguments.size("--max-position-embeddings", 1 << 24, sequence);
  if (!attention.rotary) model.positions = model.longest;
  Stack stack;
  stack.groups = {{layers, {attention, mlp}}};
  model.stacks = {std::move(stack)};
  said->sequence = sequence;
  said->dtype = arguments.has("--bf16") ? "bf16" : arguments.has("--fp16") ? "f16" : "f32";
  const std::string optimizer = arguments.text("--optimizer");
  if (optimizer == "sgd") said->optimizer = "sgd";
  if (!optimizer.empty() && optimizer != "sgd" && optimizer != "adam") {
    throw Error(ErrorKind::kData, source + ": --optimizer: found '" + optimizer + "', expected adam or sgd");
  }
  return model;
}

}  // namespace automap::architecture
