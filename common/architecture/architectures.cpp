#include "common/architecture/architectures.h"

namespace automap::architecture {

namespace {

constexpr std::uint32_t kGptTraits = kBias | kQueryBias | kLearned | kTied;
constexpr std::uint32_t kLlamaTraits = kRms | kRotary | kGated;

}  // namespace

const std::vector<Architecture>& all_architectures() {
  static const std::vector<Architecture> rows = {
      {"gpt2", Family::kDecoder, kGptTraits | kOneProduct, "gelu_new", 0},
      {"gpt_neo", Family::kDecoder, kBias | kLearned | kTied | kUnscaled | kEverySecond, "gelu_new", 0},
      {"gpt_neox", Family::kDecoder, kBias | kQueryBias | kRotary | kParallel | kOneProduct, "gelu", 0},
      {"opt", Family::kDecoder, kGptTraits, "relu", 0},
      {"llama", Family::kDecoder, kLlamaTraits, "silu", 0},
      {"mistral", Family::kDecoder, kLlamaTraits, "silu", 0},
      {"qwen2", Family::kDecoder, kLlamaTraits | kQueryBias, "silu", 0},
      {"qwen3", Family::kDecoder, kLlamaTraits | kHeadNorm, "silu", 0},
      {"gemma", Family::kDecoder, kLlamaTraits | kTied, "gelu_pytorch_tanh", 8192},
      {"gemma2", Family::kDecoder, kLlamaTraits | kTied | kAround | kEverySecond, "gelu_pytorch_tanh", 8192},
      {"gemma3_text", Family::kDecoder, kLlamaTraits | kTied | kAround | kHeadNorm, "gelu_pytorch_tanh", 131072, 6,
       R"({"vocab_size":262208,"num_attention_heads":8,"num_key_value_heads":4,"head_dim":256})"},
      {"phi", Family::kDecoder, kBias | kQueryBias | kRotary | kParallel | kOneNorm | kHeadBias, "gelu_new", 2048},
      {"phi3", Family::kDecoder, kLlamaTraits | kOneProduct, "silu", 0},
      {"olmo2", Family::kDecoder, kLlamaTraits | kHeadNorm | kAfter, "silu", 0},
      {"llama4_text", Family::kDecoder, kLlamaTraits | kSharedExpert, "silu", 0, 4},
      {"gpt_oss", Family::kDecoder, kLlamaTraits | kBias | kQueryBias | kEverySecond, "silu", 0},
      {"mixtral", Family::kDecoder, kLlamaTraits, "silu", 0},
      {"qwen2_moe", Family::kDecoder, kLlamaTraits | kQueryBias, "silu", 0},
      {"qwen3_moe", Family::kDecoder, kLlamaTraits | kHeadNorm, "silu", 0},
      {"deepseek_v2", Family::kDecoder, kLlamaTraits | kCompressed, "silu", 0},
      {"deepseek_v3", Family::kDecoder, kLlamaTraits | kCompressed, "silu", 0},
      {"bert", Family::kEncoder, kBias | kQueryBias | kLearned | kTied | kHeadBias, "gelu", 512},
      {"t5", Family::kEncoderDecoder, kRms | kTied | kUnscaled, "relu", 512},
      {"vit", Family::kImages, kBias | kQueryBias, "gelu", 0},
      {"DiTTransformer2DModel", Family::kDiffusion, kBias | kQueryBias, "gelu_new", 0},
      {"Transformer2DModel", Family::kDiffusion, kBias | kQueryBias, "gelu_new", 0},
  };
  return rows;
}

const Architecture* find_architecture(const std::string& type) {
  for (const Architecture& row : all_architectures()) {
    if (type == row.type) return &row;
  }
  return nullptr;
}

std::vector<std::string> architecture_names() {
  std::vector<std::string> names;
  for (const Architecture& row : all_architectures()) names.emplace_back(row.type);
  return names;
}

}  // namespace automap::architecture
