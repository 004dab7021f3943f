#include "common/architecture/names.h"

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "common/base/suggest.h"

namespace automap::architecture {

namespace {

struct Named {
  const char *name, *type;
  std::int64_t hidden, layers, heads, kv_heads, inner, vocabulary, positions;  // 0: not in the file
  const char* more;                                                            // other keys, as JSON
};

constexpr const char* kBf16 = R"("torch_dtype":"bfloat16")";
constexpr const char* kTiedBf16 = R"("torch_dtype":"bfloat16","tie_word_embeddings":true)";
constexpr const char* kF32 = R"("torch_dtype":"float32")";

const std::vector<Named>& rows() {
  static const std::vector<Named> all = {
      {"gpt2", "gpt2", 768, 12, 12, 0, 3072, 50257, 1024, kF32},
      {"gpt2-medium", "gpt2", 1024, 24, 16, 0, 4096, 50257, 1024, kF32},
      {"gpt2-large", "gpt2", 1280, 36, 20, 0, 5120, 50257, 1024, kF32},
      {"gpt2-xl", "gpt2", 1600, 48, 25, 0, 6400, 50257, 1024, kF32},
      {"gpt3-1.3b", "gpt2", 2048, 24, 16, 0, 8192, 50257, 2048, kBf16},
      {"gpt3-6.7b", "gpt2", 4096, 32, 32, 0, 16384, 50257, 2048, kBf16},
      {"gpt3-13b", "gpt2", 5120, 40, 40, 0, 20480, 50257, 2048, kBf16},
      {"gpt3-175b", "gpt2", 12288, 96, 96, 0, 49152, 50257, 2048, kBf16},
      {"gpt-neo-2.7b", "gpt_neo", 2560, 32, 20, 0, 10240, 50257, 2048, R"("torch_dtype":"float32","window_size":256)"},
      {"gpt-neox-20b", "gpt_neox", 6144, 44, 64, 0, 24576, 50432, 2048, R"("torch_dtype":"float16","rotary_pct":0.25)"},
      {"pythia-6.9b", "gpt_neox", 4096, 32, 32, 0, 16384, 50432, 2048, R"("torch_dtype":"float16","rotary_pct":0.25)"},
      {"llama2-7b", "llama", 4096, 32, 32, 32, 11008, 32000, 4096, kBf16},
      {"llama2-13b", "llama", 5120, 40, 40, 40, 13824, 32000, 4096, kBf16},
      {"llama2-70b", "llama", 8192, 80, 64, 8, 28672, 32000, 4096, kBf16},
      {"llama3-8b", "llama", 4096, 32, 32, 8, 14336, 128256, 8192, kBf16},
      {"llama3-70b", "llama", 8192, 80, 64, 8, 28672, 128256, 8192, kBf16},
      {"llama3-405b", "llama", 16384, 126, 128, 8, 53248, 128256, 131072, kBf16},
      {"llama3.2-1b", "llama", 2048, 16, 32, 8, 8192, 128256, 131072, kTiedBf16},
      {"llama3.2-3b", "llama", 3072, 28, 24, 8, 8192, 128256, 131072,
       R"("torch_dtype":"bfloat16","tie_word_embeddings":true,"head_dim":128)"},
      {"mistral-7b", "mistral", 4096, 32, 32, 8, 14336, 32000, 32768,
       R"("torch_dtype":"bfloat16","sliding_window":4096)"},
      {"mixtral-8x7b", "mixtral", 4096, 32, 32, 8, 14336, 32000, 32768,
       R"("torch_dtype":"bfloat16","num_local_experts":8,"num_experts_per_tok":2)"},
      {"mixtral-8x22b", "mixtral", 6144, 56, 48, 8, 16384, 32768, 65536,
       R"("torch_dtype":"bfloat16","num_local_experts":8,"num_experts_per_tok":2)"},
      {"qwen2.5-0.5b", "qwen2", 896, 24, 14, 2, 4864, 151936, 32768,
       R"("torch_dtype":"bfloat16","tie_word_embeddings":true)"},
      {"qwen2.5-7b", "qwen2", 3584, 28, 28, 4, 18944, 152064, 131072, kBf16},
      {"qwen2.5-14b", "qwen2", 5120, 48, 40, 8, 13824, 152064, 131072, kBf16},
      {"qwen2.5-32b", "qwen2", 5120, 64, 40, 8, 27648, 152064, 131072, kBf16},
      {"qwen2.5-72b", "qwen2", 8192, 80, 64, 8, 29568, 152064, 131072, kBf16},
      {"qwen3-8b", "qwen3", 4096, 36, 32, 8, 12288, 151936, 40960, R"("torch_dtype":"bfloat16","head_dim":128)"},
      {"qwen3-32b", "qwen3", 5120, 64, 64, 8, 25600, 151936, 40960, R"("torch_dtype":"bfloat16","head_dim":128)"},
      {"qwen3-30b-a3b", "qwen3_moe", 2048, 48, 32, 4, 6144, 151936, 40960,
       R"("torch_dtype":"bfloat16","head_dim":128,"num_experts":128,"num_experts_per_tok":8,"moe_intermediate_size":768)"},
      {"qwen3-235b-a22b", "qwen3_moe", 4096, 94, 64, 4, 12288, 151936, 40960,
       R"("torch_dtype":"bfloat16","head_dim":128,"num_experts":128,"num_experts_per_tok":8,"moe_intermediate_size":1536)"},
      {"gpt-oss-20b", "gpt_oss", 2880, 24, 64, 8, 2880, 201088, 131072,
       R"("torch_dtype":"bfloat16","head_dim":64,"num_local_experts":32,"num_experts_per_tok":4,"sliding_window":128)"},
      {"gpt-oss-120b", "gpt_oss", 2880, 36, 64, 8, 2880, 201088, 131072,
       R"("torch_dtype":"bfloat16","head_dim":64,"num_local_experts":128,"num_experts_per_tok":4,"sliding_window":128)"},
      {"olmo2-7b", "olmo2", 4096, 32, 32, 32, 11008, 100352, 4096, kBf16},
      {"llama4-scout", "llama4_text", 5120, 48, 40, 8, 8192, 202048, 10485760,
       R"("torch_dtype":"bfloat16","head_dim":128,"num_local_experts":16,"num_experts_per_tok":1,)"
       R"("intermediate_size_mlp":16384,"attention_chunk_size":8192)"},
      {"llama4-maverick", "llama4_text", 5120, 48, 40, 8, 8192, 202048, 1048576,
       R"("torch_dtype":"bfloat16","head_dim":128,"num_local_experts":128,"num_experts_per_tok":1,)"
       R"("intermediate_size_mlp":16384,"attention_chunk_size":8192,"interleave_moe_layer_step":2)"},
      {"gemma3-27b", "gemma3_text", 5376, 62, 32, 16, 21504, 262208, 131072,
       R"("torch_dtype":"bfloat16","head_dim":128,"sliding_window":1024)"},
      {"gemma-7b", "gemma", 3072, 28, 16, 16, 24576, 256000, 8192, R"("torch_dtype":"bfloat16","head_dim":256)"},
      {"gemma2-27b", "gemma2", 4608, 46, 32, 16, 36864, 256000, 8192,
       R"("torch_dtype":"bfloat16","head_dim":128,"sliding_window":4096)"},
      {"phi-2", "phi", 2560, 32, 32, 32, 10240, 51200, 2048, R"("torch_dtype":"float16","partial_rotary_factor":0.4)"},
      {"deepseek-v2-lite", "deepseek_v2", 2048, 27, 16, 16, 10944, 102400, 163840,
       R"("torch_dtype":"bfloat16","n_routed_experts":64,"num_experts_per_tok":6,"n_shared_experts":2,)"
       R"("moe_intermediate_size":1408,"first_k_dense_replace":1,"kv_lora_rank":512,"qk_nope_head_dim":128,)"
       R"("qk_rope_head_dim":64,"v_head_dim":128)"},
      {"deepseek-v3", "deepseek_v3", 7168, 61, 128, 128, 18432, 129280, 163840,
       R"("torch_dtype":"bfloat16","n_routed_experts":256,"num_experts_per_tok":8,"n_shared_experts":1,)"
       R"("moe_intermediate_size":2048,"first_k_dense_replace":3,"q_lora_rank":1536,"kv_lora_rank":512,)"
       R"("qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128)"},
      {"bert-base", "bert", 768, 12, 12, 0, 3072, 30522, 512, kF32},
      {"bert-large", "bert", 1024, 24, 16, 0, 4096, 30522, 512, kF32},
      {"t5-small", "t5", 512, 6, 8, 0, 2048, 32128, 512, R"("torch_dtype":"float32","d_kv":64)"},
      {"t5-base", "t5", 768, 12, 12, 0, 3072, 32128, 512, R"("torch_dtype":"float32","d_kv":64)"},
      {"t5-large", "t5", 1024, 24, 16, 0, 4096, 32128, 512, R"("torch_dtype":"float32","d_kv":64)"},
      {"t5-3b", "t5", 1024, 24, 32, 0, 16384, 32128, 512, R"("torch_dtype":"float32","d_kv":128)"},
      {"t5-11b", "t5", 1024, 24, 128, 0, 65536, 32128, 512, R"("torch_dtype":"float32","d_kv":128)"},
      {"vit-base", "vit", 768, 12, 12, 0, 3072, 0, 0, R"("torch_dtype":"float32","image_size":224,"patch_size":16)"},
      {"vit-large", "vit", 1024, 24, 16, 0, 4096, 0, 0, R"("torch_dtype":"float32","image_size":224,"patch_size":16)"},
      {"vit-huge", "vit", 1280, 32, 16, 0, 5120, 0, 0, R"("torch_dtype":"float32","image_size":224,"patch_size":14)"},
      {"dit-xl-2", "DiTTransformer2DModel", 0, 28, 16, 0, 0, 0, 0,
       R"("torch_dtype":"float32","attention_head_dim":72,"sample_size":32,"patch_size":2,"in_channels":4)"},
  };
  return all;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Named& row : rows()) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> near_models(const std::string& typed) {
  constexpr std::size_t kMost = 5, kLongest = 100;
  const auto letters = [](const std::string& name) {
    std::string out;
    for (const char c : name) {
      const auto byte = static_cast<unsigned char>(c);
      if (std::isalnum(byte) != 0) out += static_cast<char>(std::tolower(byte));
    }
    return out;
  };
  const std::string name = typed.substr(typed.find_last_of('/') + 1);
  std::vector<std::string> names, known, near;
  for (const Named& row : rows()) {
    names.emplace_back(row.name);
    known.push_back(letters(row.name));
  }
  const auto take = [&](const auto& is_near) {
    for (std::size_t i = 0; i < names.size() && near.size() < kMost; ++i) {
      if (is_near(known[i])) near.push_back(names[i]);
    }
  };
  const std::string word = letters(name);
  if (word.size() < 2 || typed.size() > kLongest) return near;
  // Of a file's name only a slip counts.
  for (const char* ending : {".hlo", ".json", ".gz", ".h5", ".pb", ".txt", ".csv"}) {
    if (name.find(ending) == std::string::npos) continue;
    const std::string slip = closest_name(typed, names);
    return slip.empty() ? near : std::vector<std::string>{slip};
  }
  take([&](const std::string& one) { return one == word; });
  if (near.empty()) take([&](const std::string& one) { return one.rfind(word, 0) == 0; });
  if (!near.empty()) return near;
  // "Llama-2-7b-hf": the longest that it holds.
  std::size_t longest = 3;
  for (const std::string& one : known) {
    if (word.find(one) != std::string::npos) longest = std::max(longest, one.size());
  }
  take([&](const std::string& one) { return one.size() == longest && word.find(one) != std::string::npos; });
  if (!near.empty()) return near;
  const std::string slip = closest_name(word, known);
  if (!slip.empty()) take([&](const std::string& one) { return one == slip; });
  return near;
}

std::string config_of(const std::string& name) {
  for (const Named& row : rows()) {
    if (name != row.name) continue;
    std::string text = std::string("{\"model_type\":\"") + row.type + "\"";
    const auto put = [&](const char* key, std::int64_t value) {
      if (value > 0) text += std::string(",\"") + key + "\":" + std::to_string(value);
    };
    put("hidden_size", row.hidden);
    put("num_hidden_layers", row.layers);
    put("num_attention_heads", row.heads);
    put("num_key_value_heads", row.kv_heads);
    put("intermediate_size", row.inner);
    put("vocab_size", row.vocabulary);
    put("max_position_embeddings", row.positions);
    return text + "," + row.more + "}";
  }
  return "";
}

}  // namespace automap::architecture
