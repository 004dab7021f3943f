// MaxText's keys (configs/base.yml of 0.1 and 0.2, which have the same).
#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/json.h"
#include "plan/emit/model_words.h"
#include "plan/emit/to_type.h"

namespace automap::emit {
namespace {

// An axis of the mesh inside servers (ICI) and between them (DCN), which comes first.
struct ServerAxis {
  int dcn = 1, ici = 1;
};
struct ServerMesh {
  ServerAxis stage, replica, tensor;
};

// Devices are numbered stage by stage, in it replica by replica; servers hold as many each. Replicas and stages fill
// servers, or servers them (planners::servers_inexpressible).
ServerMesh server_mesh(const FrameworkPlan& plan) {
  ServerMesh mesh;
  mesh.tensor.ici = plan.width;
  const int servers = static_cast<int>(plan.servers.size());
  if (servers <= 1) {
    mesh.stage.ici = plan.stages;
    mesh.replica.ici = plan.replicas;
    return mesh;
  }
  const int each = used_of_servers(plan).front(), of_stage = plan.replicas * plan.width;
  if (plan.width > each) {
    mesh.stage.dcn = plan.stages;
    mesh.replica.dcn = plan.replicas;
    mesh.tensor = {plan.width / each, each};
  } else if (of_stage % each == 0) {
    mesh.stage.dcn = plan.stages;
    mesh.replica = {of_stage / each, each / plan.width};
  } else {
    mesh.stage = {plan.stages / (each / of_stage), each / of_stage};
    mesh.replica.ici = plan.replicas;
  }
  return mesh;
}

// Types of products, as AutoMap and as MaxText names them.
constexpr std::pair<const char*, const char*> kTypes[] = {{"f32", "float32"}, {"bf16", "bfloat16"}, {"f16", "float16"}};

// The sizes as its keys, for a model that it has no name of.
std::string size_keys(const architecture::ModelSizes& sizes) {
  std::string text;
  for (const SizeWord& word : kSizeWords) {
    if (word.maxtext == nullptr || word.size == &architecture::ModelSizes::sequence) continue;  // what is trained with
    text += (text.empty() ? "" : " ") + std::string(word.maxtext) + "=" + std::to_string(sizes.*word.size);
  }
  return text;
}

}  // namespace

// MaxText's names (configs/models, the same in 0.1 and 0.2) of published models. Those are left out whose file has
// other sizes (gpt3), or layers in pairs (gemma2).
std::string maxtext_name(const std::string& published) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"llama2-7b", "llama2-7b"},   {"llama2-13b", "llama2-13b"},          {"llama2-70b", "llama2-70b"},
      {"llama3-8b", "llama3-8b"},   {"llama3-70b", "llama3-70b"},          {"llama3-405b", "llama3.1-405b"},
      {"mistral-7b", "mistral-7b"}, {"mixtral-8x7b", "mixtral-8x7b"},      {"mixtral-8x22b", "mixtral-8x22b"},
      {"gemma-7b", "gemma-7b"},     {"deepseek-v2-lite", "deepseek2-16b"}, {"deepseek-v3", "deepseek3-671b"},
  };
  for (const auto& [ours, theirs] : kNames) {
    if (published == ours) return theirs;
  }
  return "";
}

// decoders.py: "We chose not to pipeline the dense layers, only sparse for SPMD", which all devices then run in front
// of the pipeline, its stages as replicas.
Inexpressible maxtext_pipeline_fault(const architecture::ModelSizes& sizes) {
  if (maxtext_name(sizes.published).rfind("deepseek", 0) != 0) return {};
  return {"a pipeline of " + sizes.published + " with its dense layers: it pipelines the layers of experts alone",
          "--stages 1 plans without a pipeline; by hand ici_pipeline_parallelism=S num_layers_per_pipeline_stage=K "
          "pipeline_parallel_layers=S*K pipelines so many layers of experts, and all devices run the others in front"};
}

Emitted emit_maxtext(const FrameworkPlan& plan, const FrameworkVersion& version) {
  Emitted out;
  const bool pipeline = plan.stages > 1;
  StackCounts stack;
  if (pipeline) {
    stack = stack_counts(plan);
    if (!stack.why.empty()) {
      out.cannot = {stack.why, "--stages 1 plans without a pipeline"};
      return out;
    }
    out.cannot = maxtext_pipeline_fault(plan.sizes);
    if (!out.cannot.what.empty()) return out;
  }
  const ServerMesh mesh = server_mesh(plan);
  // Micro-batches of a pipeline are parts of a batch, those of one stage steps of which the gradients are added up.
  const std::int64_t at_once = pipeline ? plan.batch() : plan.samples * plan.replicas;
  const double per_device = static_cast<double>(at_once) / plan.devices();
  if (std::floor(per_device * plan.devices()) != static_cast<double>(at_once)) {
    out.cannot = {std::to_string(at_once) + " samples on " + std::to_string(plan.devices()) +
                      " devices, which is no decimal number for each",
                  "ask for another --batch"};
    return out;
  }
  const char* const sequence = word_of(&architecture::ModelSizes::sequence, &SizeWord::maxtext);
  std::vector<std::pair<std::string, std::string>> keys;
  const auto axis = [&](const std::string& name, const ServerAxis& of) {
    keys.emplace_back("dcn_" + name + "_parallelism", std::to_string(of.dcn));
    keys.emplace_back("ici_" + name + "_parallelism", std::to_string(of.ici));
  };
  const std::string model = maxtext_name(plan.sizes.published);
  if (!model.empty()) keys.emplace_back("model_name", model);
  if (plan.sizes.sequence > 0) keys.emplace_back(sequence, std::to_string(plan.sizes.sequence));
  for (const auto& [ours, theirs] : kTypes) {
    if (plan.sizes.dtype == ours) keys.emplace_back("dtype", theirs);
  }
  // All of them: MaxText gives unspecified axes to dcn_data and ici_fsdp.
  axis("data", plan.zero == 3 ? ServerAxis() : mesh.replica);
  axis("pipeline", mesh.stage);
  axis("fsdp", plan.zero == 3 ? mesh.replica : ServerAxis());
  axis(plan.sequence_parallel ? "tensor_sequence" : "tensor", mesh.tensor);
  keys.emplace_back("per_device_batch_size", Json(per_device).dump());
  if (pipeline) {
    keys.emplace_back("num_layers_per_pipeline_stage", std::to_string(stack.counts.front()));
    keys.emplace_back("num_pipeline_microbatches", std::to_string(plan.micro_batches));
    if (model.empty() && plan.sizes.layers == 0) {
      out.missing.push_back("the model has " + std::to_string(stack.layers) +
                            " layers: base_num_decoder_layers=" + std::to_string(stack.layers));
    }
  } else {
    keys.emplace_back("gradient_accumulation_steps", std::to_string(plan.micro_batches));
  }
  keys.emplace_back("remat_policy", plan.recompute_any() ? "full" : "minimal_with_context");
  if (!plan.recompute_any()) {
    out.missing.push_back(
        "MaxText has no policy that recomputes nothing: minimal_with_context keeps what products make");
  }
  std::string yaml = "base_config: \"base.yml\"\n";
  for (const auto& [key, value] : keys) {
    yaml += key + ": " + (key == "remat_policy" || key == "model_name" ? "\"" + value + "\"" : value) + "\n";
    out.arguments.push_back(key + "=" + value);
  }
  out.files.push_back({"", yaml});
  // Its mesh is of all devices that it sees.
  const std::vector<std::string> devices = device_texts(plan, true);
  const bool alike = std::all_of(plan.servers.begin(), plan.servers.end(), [&](const UsedServer& server) {
    return server.devices == plan.servers.front().devices;
  });
  if (!devices.empty() && alike) {
    out.launch = {"env", "CUDA_VISIBLE_DEVICES=" + numbers_text(plan.servers.front().devices, ",")};
  }
  const bool moved = !version.before(0, 2);
  out.launch.insert(out.launch.end(), {"python3", "-m", moved ? "maxtext.trainers.pre_train.train" : "MaxText.train"});
  out.arguments.insert(out.arguments.begin(), moved ? "src/maxtext/configs/base.yml" : "MaxText/configs/base.yml");
  out.with_file = "FILE";
  if (plan.servers.empty()) out.missing.push_back("the servers are not known: all axes are inside one (ici)");
  for (const std::string& text : server_texts(plan)) out.missing.push_back(text);
  if (!alike) out.missing.insert(out.missing.end(), devices.begin(), devices.end());
  if (model.empty() && plan.sizes.layers > 0) {
    out.missing.push_back("MaxText has no model of this name: its sizes are " + size_keys(plan.sizes));
  }
  std::string rest = "run_name";
  if (model.empty()) rest += ", model_name or sizes";
  if (plan.sizes.sequence == 0) rest += std::string(", ") + sequence;
  out.missing.push_back(
      "one process" +
      (plan.servers.empty() ? "" : " of " + std::to_string(plan.servers.front().devices.size()) + " devices") +
      " for each server, and the keys of the model and the data (" + rest +
      ", hardware, ...); a file's name ends in .yml");
  return out;
}

}  // namespace automap::emit
