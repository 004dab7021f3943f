// MaxText's keys (configs/base.yml of 0.1 and 0.2, which have the same).
#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/json.h"
#include "plan/emit/to_type.h"

namespace automap::emit {
namespace {

// An axis of the mesh inside servers (ICI) and between them (DCN), which comes first.
struct ServerAxis {
  int dcn = 1, ici = 1;
};
struct ServerMesh {
  ServerAxis stage, replica, tensor;
  Inexpressible cannot;
};

// Devices are numbered stage by stage, in it replica by replica; servers hold as many each. A replica stands in one, or
// is several whole ones.
ServerMesh server_mesh(const FrameworkPlan& plan) {
  ServerMesh mesh;
  mesh.tensor.ici = plan.width;
  const int servers = static_cast<int>(plan.servers.size());
  if (servers <= 1) {
    mesh.stage.ici = plan.stages;
    mesh.replica.ici = plan.replicas;
    return mesh;
  }
  const std::vector<int> used_of_each = used_of_servers(plan);
  const int each = used_of_each.front();
  for (const int used : used_of_each) {
    if (used != each) {
      mesh.cannot = {"servers of different numbers of devices", "plan it on servers that are alike"};
      return mesh;
    }
  }
  const int of_stage = plan.replicas * plan.width;
  if (std::max(plan.width, each) % std::min(plan.width, each) != 0) {
    mesh.cannot = {"replicas of " + std::to_string(plan.width) + " devices on servers of " + std::to_string(each),
                   "every replica has to fill servers, or every server replicas: ask for another --max-width"};
  } else if (plan.width > each) {
    mesh.stage.dcn = plan.stages;
    mesh.replica.dcn = plan.replicas;
    mesh.tensor = {plan.width / each, each};
  } else if (of_stage % each == 0) {
    mesh.stage.dcn = plan.stages;
    mesh.replica = {of_stage / each, each / plan.width};
  } else if (each % of_stage == 0) {
    mesh.stage = {plan.stages / (each / of_stage), each / of_stage};
    mesh.replica.ici = plan.replicas;
  } else {
    mesh.cannot = {"stages of " + std::to_string(of_stage) + " devices on servers of " + std::to_string(each),
                   "every stage has to fill servers, or every server stages: ask for other --stages"};
  }
  return mesh;
}

}  // namespace

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
    if (plan.micro_batches % plan.stages != 0) {
      out.cannot = {std::to_string(plan.micro_batches) + " micro-batches in " + std::to_string(plan.stages) +
                        " stages, of which it wants a multiple",
                    "ask for --micro-batches " +
                        std::to_string((plan.micro_batches + plan.stages - 1) / plan.stages * plan.stages)};
      return out;
    }
  }
  const ServerMesh mesh = server_mesh(plan);
  if (!mesh.cannot.what.empty()) {
    out.cannot = mesh.cannot;
    return out;
  }
  // Micro-batches of a pipeline are parts of a batch, those of one stage steps of which the gradients are added up.
  const std::int64_t at_once = pipeline ? plan.batch() : plan.samples * plan.replicas;
  const double per_device = static_cast<double>(at_once) / plan.devices();
  if (std::floor(per_device * plan.devices()) != static_cast<double>(at_once)) {
    out.cannot = {std::to_string(at_once) + " samples on " + std::to_string(plan.devices()) +
                      " devices, which is no decimal number for each",
                  "ask for another --batch"};
    return out;
  }
  std::vector<std::pair<std::string, std::string>> keys;
  const auto axis = [&](const std::string& name, const ServerAxis& of) {
    keys.emplace_back("dcn_" + name + "_parallelism", std::to_string(of.dcn));
    keys.emplace_back("ici_" + name + "_parallelism", std::to_string(of.ici));
  };
  // All of them: MaxText gives unspecified axes to dcn_data and ici_fsdp.
  axis("data", plan.zero == 3 ? ServerAxis() : mesh.replica);
  axis("pipeline", mesh.stage);
  axis("fsdp", plan.zero == 3 ? mesh.replica : ServerAxis());
  axis(plan.sequence_parallel ? "tensor_sequence" : "tensor", mesh.tensor);
  keys.emplace_back("per_device_batch_size", Json(per_device).dump());
  if (pipeline) {
    keys.emplace_back("num_layers_per_pipeline_stage", std::to_string(stack.counts.front()));
    keys.emplace_back("num_pipeline_microbatches", std::to_string(plan.micro_batches));
    out.missing.push_back("the model has " + std::to_string(stack.layers) +
                          " layers: base_num_decoder_layers=" + std::to_string(stack.layers));
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
    yaml += key + ": " + (key == "remat_policy" ? "\"" + value + "\"" : value) + "\n";
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
  out.missing.push_back(
      "one process" +
      (plan.servers.empty() ? "" : " of " + std::to_string(plan.servers.front().devices.size()) + " devices") +
      " for each server, and the keys of the model and the data (run_name, model_name, max_target_length, hardware, "
      "...); a file's name ends in .yml");
  return out;
}

}  // namespace automap::emit
