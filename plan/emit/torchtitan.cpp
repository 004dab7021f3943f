// torchtitan's tables (torchtitan/config/job_config.py of 0.2, config_manager.py of 0.1), as TOML and as options of its
// command line.
#include <algorithm>
#include <utility>

#include "plan/emit/quote.h"
#include "plan/emit/to_type.h"
#include "plan/emit/torch_order.h"
#include "plan/planners/frameworks.h"

namespace automap::emit {
namespace {

struct TomlKey {
  const char* table;
  const char* key;
  std::string value;  // as a person types it
  bool text;          // a string, which has quotes in TOML
};

const planners::Framework& torchtitan() {
  return planners::find_framework("torchtitan");
}

// The names of torchtitan's own Transformer: tok_embeddings, layers.0 .., norm, output. torchtitan uses them whatever
// names the layers have in the module.
ModulePaths torchtitan_paths(const FrameworkPlan& plan) {
  ModulePaths paths;
  const StackCounts stack = stack_counts(plan);
  if (!stack.why.empty()) {
    paths.why = {stack.why, "name the layers as your model has them: --layers \"layers.{i}\""};
    return paths;
  }
  int number = 0;
  for (std::size_t s = 0; s < stack.counts.size(); ++s) {
    std::vector<std::string>& stage = paths.stages.emplace_back();
    if (s == 0) stage.emplace_back(torchtitan().own_first_module);
    for (int i = 0; i < stack.counts[s]; ++i) stage.push_back("layers." + std::to_string(number++));
  }
  paths.stages.back().insert(paths.stages.back().end(), {"norm", "output"});
  return paths;
}

// True if the module names its layers as torchtitan's models do.
bool has_torchtitan_names(const FrameworkPlan& plan) {
  return std::any_of(plan.parts.begin(), plan.parts.end(),
                     [](const FrameworkStage& part) { return planners::has_own_names(torchtitan(), part.modules); });
}

// The modules of every part; before 0.2 those that begin one, the first's left out.
std::string parts_text(const ModulePaths& paths, bool begins) {
  std::string text, list;
  for (const std::vector<std::string>& stage : paths.stages) {
    std::string names;
    for (const std::string& name : stage) names += (names.empty() ? "" : ", ") + toml_literal(name);
    text += "  [" + names + "],\n";
    if (&stage != &paths.stages.front()) list += (list.empty() ? "" : ", ") + toml_literal(stage.front());
  }
  return begins ? "pipeline_parallel_split_points = [" + list + "]\n"
                : "module_fqns_per_model_part = [\n" + text + "]\n";
}

constexpr const char* kListsBeside = "schedule.csv";

// Where it is given lists of work the name says where parts lie: on the devices in turn, or as a V.
std::string schedule_name(const FrameworkPlan& plan) {
  const bool as_v = plan.chunks == 2 && plan.stage_of_part == group_of_parts(pipeline::Placement::kV, plan.stages, 2);
  if (plan.chunks > 1) return as_v ? "ZBVZeroBubble" : "Interleaved1F1B";
  return plan.schedule == pipeline::Schedule::kGpipe ? "GPipe" : "1F1B";
}

}  // namespace

Emitted emit_torchtitan(const FrameworkPlan& plan, const EmitOptions& options) {
  const std::string& layers = options.layers;
  const bool begins = options.version.before(0, 2);
  Emitted out;
  const bool pipeline = plan.stages > 1;
  const std::string schedule = schedule_name(plan);
  ModulePaths paths;
  if (pipeline) {
    const bool own_names = !layers.empty() || has_torchtitan_names(plan) || plan.stacks.size() != 1;
    paths = own_names ? module_paths(plan, layers) : torchtitan_paths(plan);
    if (!paths.why.what.empty()) {
      out.cannot = paths.why;
      return out;
    }
    if (!paths.note.empty()) out.missing.push_back(paths.note);
    if (!own_names) {
      out.missing.push_back(
          "modules are called as in torchtitan's own models (tok_embeddings, layers.0, norm, output); --layers "
          "\"NAME.{i}\" writes those of the module");
    }
    if (plan.shares_variables) {
      out.missing.push_back("stages share variables: torchtitan sums no gradients between stages, untie them");
    }
  }
  const std::int64_t local = pipeline ? plan.samples * plan.micro_batches : plan.samples;
  std::vector<TomlKey> keys = {{"training", "local_batch_size", std::to_string(local), false},
                               {"training", "global_batch_size", std::to_string(plan.batch()), false}};
  const auto parallel = [&](const char* key, int value) {
    keys.push_back({"parallelism", key, std::to_string(value), false});
  };
  const bool sharded = plan.zero >= 2;
  parallel("data_parallel_replicate_degree", sharded ? 1 : plan.replicas);
  parallel("data_parallel_shard_degree", sharded ? plan.replicas : 1);
  if (sharded) {
    keys.push_back({"parallelism", "fsdp_reshard_after_forward", plan.zero == 3 ? "always" : "never", true});
  }
  parallel("tensor_parallel_degree", plan.width);
  parallel("pipeline_parallel_degree", plan.stages);
  if (pipeline) {
    keys.push_back({"parallelism", "pipeline_parallel_schedule", schedule, true});
    if (!plan.order.empty()) {
      keys.push_back({"parallelism", "pipeline_parallel_schedule_csv", path_beside(options.file, kListsBeside), true});
    }
    keys.push_back({"parallelism", "pipeline_parallel_microbatch_size", std::to_string(plan.samples), false});
  }
  keys.push_back({"activation_checkpoint", "mode", plan.recompute_any() ? "full" : "none", true});

  std::string toml, table;
  for (const TomlKey& key : keys) {
    if (pipeline && table == "parallelism" && key.table != table) {
      toml += parts_text(paths, begins);
    }
    if (key.table != table) {
      table = key.table;
      toml += (toml.empty() ? "[" : "\n[") + table + "]\n";
    }
    toml += std::string(key.key) + " = " + (key.text ? toml_literal(key.value) : key.value) + "\n";
    out.arguments.push_back("--" + table + "." + key.key);
    out.arguments.push_back(key.value);
  }
  out.files.push_back({"", toml});
  if (!plan.order.empty()) {
    std::string lists;
    for (const std::string& row : torch_order(plan.order, ',')) lists += row + "\n";
    out.files.push_back({kListsBeside, lists});
    out.missing.push_back(
        "the file of pipeline_parallel_schedule_csv, which automap emit writes, on every server; it is looked for from "
        "the folder that training starts in");
    if (schedule == "ZBVZeroBubble") {
      out.missing.push_back("PyTorch 2.8 or later: before, lists of work do not say that parts lie as a V");
    }
  }
  if (pipeline) {
    out.missing.push_back(std::string("parallelism.") +
                          (begins ? "pipeline_parallel_split_points" : "module_fqns_per_model_part") +
                          ", which the command line does not take: automap emit writes the file");
  }
  if (plan.width > 1 && !plan.sequence_parallel) {
    out.missing.push_back(
        "torchtitan's tensor parallelism also splits what lies between products along the sequence; the plan counts it "
        "whole");
  }
  if (!plan.overlap) out.missing.push_back(kSumsBeside);
  out.launch = torchrun_words(plan, &out.missing);
  out.launch.insert(out.launch.end(), {"-m", "torchtitan.train"});
  out.with_file = "--job.config_file FILE";
  out.needs_file = pipeline;
  out.missing.push_back(
      "one --job.config_file, which also has the tables of the model (name, flavor), the optimizer and the data "
      "(dataset, seq_len, steps)");
  return out;
}

}  // namespace automap::emit
