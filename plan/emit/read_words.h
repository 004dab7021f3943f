// Reads layouts in the words of frameworks: the output of to_type.h, and the lines that people have in their scripts.
// They become a layout as automap-infer --layout takes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/architecture/model.h"

namespace automap::emit {

// What words say of the model, which another place says, too.
struct SaidSize {
  std::string word, value;  // "--num-layers", "40"
  std::int64_t architecture::ModelSizes::*size;
};

struct ReadWords {
  std::string framework;           // whose words they are
  std::string layout;              // "dp=4,pp=2,tp=4,micro-batch-size=2,zero=1,schedule=1f1b,layers=17+15"
  std::int64_t batch = 0;          // samples of a step; 0: they do not say
  std::int64_t micro_batches = 0;  // of a step, where they say these and not its samples
  std::optional<bool> overlap;     // gradients are summed beside the last backward
  std::optional<bool> sequence_parallel;
  std::string batch_word;            // that names the batch: "--global-batch-size 256"
  std::vector<SaidSize> sizes;       // of the model
  std::string dtype;                 // of the model: "bf16", "f16", "f32"; empty: they do not say
  std::string maxtext_name;          // of the model, as MaxText has it: "llama3.1-405b"; empty: they do not say
  std::vector<std::string> ignored;  // options that say nothing of a layout
  std::vector<std::string> notes;    // what is counted otherwise than they say, a sentence each
};

// nullopt: these are no words of a framework. Reads Megatron's arguments (with torchrun's in front, where dp is not all
// that the cluster has devices for), MaxText's keys, torchtitan's options or tables, DeepSpeed's JSON, the files for
// torch and JAX that to_type.h writes. Throws Error(kUsage) naming the word that is wrong, or a word that is not
// planned (context parallelism, experts).
std::optional<ReadWords> read_words(std::string_view text);

}  // namespace automap::emit
