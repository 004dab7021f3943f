// Megatron-LM's arguments (megatron/training/arguments.py, core 0.12 to 0.16).
#include <algorithm>
#include <utility>

#include "plan/emit/model_words.h"
#include "plan/emit/quote.h"
#include "plan/emit/to_type.h"

namespace automap::emit {
namespace {

// "Ettt|ttt|tttL": the layers of each stage, by --pipeline-model-parallel-layout. Letters are written out instead of
// "t*3", so that a shell takes the word as it is wherever it stands.
std::string layout_word(const std::vector<int>& counts) {
  std::string word = "E";
  for (std::size_t s = 0; s < counts.size(); ++s) {
    word += (s > 0 ? "|" : "") + std::string(static_cast<std::size_t>(counts[s]), 't');
  }
  return word + "L";
}

bool all_equal(const std::vector<int>& counts) {
  for (const int count : counts) {
    if (count != counts.front()) return false;
  }
  return true;
}

}  // namespace

Emitted emit_megatron(const FrameworkPlan& plan, const FrameworkVersion& version) {
  Emitted out;
  std::vector<std::string>& words = out.arguments;
  const auto add = [&](const std::string& option, const std::string& value = "") {
    words.push_back("--" + option);
    if (!value.empty()) words.push_back(value);
  };
  if (plan.width > 1) add("tensor-model-parallel-size", std::to_string(plan.width));
  if (plan.sequence_parallel) add("sequence-parallel");
  if (plan.stages > 1) {
    const StackCounts stack = stack_counts(plan);
    if (!stack.why.empty()) {
      out.cannot = {stack.why, "its stages are counted in layers of one stack: --stages 1 plans without a pipeline"};
      words.clear();
      return out;
    }
    add("pipeline-model-parallel-size", std::to_string(plan.stages));
    // Even stages need no layout, in any version. A layout itself determines the number of parts of a stage.
    if (!all_equal(stack.counts)) {
      if (version.before(0, 13)) {
        out.cannot = {"stages of different numbers of layers before core 0.13",
                      "--pipeline-model-parallel-layout came with it; --layout dp=..,pp=.. plans even stages"};
        words.clear();
        return out;
      }
      add("pipeline-model-parallel-layout", layout_word(stack.counts));
    } else if (plan.chunks > 1) {
      add("num-layers-per-virtual-pipeline-stage", std::to_string(stack.counts.front()));
    }
    if (plan.sizes.layers == 0) {
      out.missing.push_back("the model has " + std::to_string(stack.layers) + " layers: --num-layers " +
                            std::to_string(stack.layers));
    }
  }
  add("micro-batch-size", std::to_string(plan.samples));
  add("global-batch-size", std::to_string(plan.batch()));
  if (plan.zero >= 2) {
    // Renamed in core 0.14, with a form of checkpoints of its own.
    const bool renamed = !version.before(0, 14);
    add(renamed ? "use-megatron-fsdp" : "use-custom-fsdp");
    add("no-gradient-accumulation-fusion");
    add("use-distributed-optimizer");
    add("data-parallel-sharding-strategy", plan.zero == 2 ? "optim_grads" : "optim_grads_params");
    // Megatron-FSDP has no other way: early versions want these said, later ones turn them on themselves.
    add("overlap-grad-reduce");
    if (plan.zero == 3) add("overlap-param-gather");
    if (renamed) add("ckpt-format", "fsdp_dtensor");
    if (!plan.overlap) out.missing.push_back(kSumsBeside);
    out.missing.push_back("Megatron-FSDP wants CUDA_DEVICE_MAX_CONNECTIONS unset");
  } else {
    if (plan.zero == 1) add("use-distributed-optimizer");
    // Also where a stage is one replica, so that reading the words again gives the same plan.
    if (plan.overlap) add("overlap-grad-reduce");
    if (plan.width > 1) {
      out.missing.push_back("CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment, on devices before Blackwell");
    }
  }
  if (plan.recompute_any()) {
    add("recompute-granularity", "full");
    add("recompute-method", "uniform");
    add("recompute-num-layers", "1");
  }
  const architecture::ModelSizes& sizes = plan.sizes;
  using architecture::ModelSizes;
  const auto add_size = [&](std::int64_t ModelSizes::*size) {
    add(word_of(size, &SizeWord::megatron), std::to_string(sizes.*size));
  };
  if (sizes.layers > 0) {
    for (const auto size : {&ModelSizes::layers, &ModelSizes::hidden, &ModelSizes::inner, &ModelSizes::heads})
      add_size(size);
    if (sizes.kv_heads != sizes.heads) {
      add("group-query-attention");
      add_size(&ModelSizes::kv_heads);
    }
    if (sizes.head_size * sizes.heads != sizes.hidden) add_size(&ModelSizes::head_size);
  }
  if (sizes.sequence > 0) {
    add_size(&ModelSizes::sequence);
    add("max-position-embeddings", std::to_string(std::max(sizes.positions, sizes.sequence)));
  }
  if (sizes.dtype == "bf16") add("bf16");
  if (sizes.dtype == "f16") add("fp16");
  out.launch = torchrun_words(plan, &out.missing);
  out.launch.push_back("pretrain_gpt.py");
  out.with_file = "$(cat FILE)";
  out.missing.push_back(sizes.layers > 0 ? "the rest of the model's own arguments (norm, activation, positions) and "
                                           "those of the data"
                                         : "the model's own arguments (sizes, precision) and those of the data");
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool option = words[i].compare(0, 2, "--") == 0;
    text += (i == 0 ? "" : option ? "\n" : " ") + words[i];
  }
  out.files.push_back({"", text + "\n"});
  return out;
}

}  // namespace automap::emit
