// What frameworks and plan files call the sizes of a model.
#pragma once

#include <cstdint>

#include "common/architecture/model.h"

namespace automap::emit {

struct SizeWord {
  std::int64_t architecture::ModelSizes::*size;
  const char* in_plan;  // key of a plan's provenance
  // Null: it has none.
  const char* megatron;  // an option, without its dashes
  const char* maxtext;
  const char* torchtitan;
};

// In the order in which they are written.
constexpr SizeWord kSizeWords[] = {
    {&architecture::ModelSizes::layers, "model_layers", "num-layers", "base_num_decoder_layers", nullptr},
    {&architecture::ModelSizes::hidden, "model_hidden", "hidden-size", "base_emb_dim", nullptr},
    {&architecture::ModelSizes::inner, "model_inner", "ffn-hidden-size", "base_mlp_dim", nullptr},
    {&architecture::ModelSizes::heads, "model_heads", "num-attention-heads", "base_num_query_heads", nullptr},
    {&architecture::ModelSizes::kv_heads, "model_kv_heads", "num-query-groups", "base_num_kv_heads", nullptr},
    {&architecture::ModelSizes::head_size, "model_head_size", "kv-channels", "head_dim", nullptr},
    {&architecture::ModelSizes::vocabulary, "model_vocabulary", nullptr, "vocab_size", nullptr},
    {&architecture::ModelSizes::sequence, "model_sequence", "seq-length", "max_target_length", "training.seq_len"},
    {&architecture::ModelSizes::positions, "model_positions", nullptr, nullptr, nullptr},
};

// The word of a framework that has one.
inline const char* word_of(std::int64_t architecture::ModelSizes::*size, const char* SizeWord::*framework) {
  for (const SizeWord& word : kSizeWords) {
    if (word.size == size) return word.*framework;
  }
  return nullptr;
}

}  // namespace automap::emit
