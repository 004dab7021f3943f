// DeepSpeed's configuration (JSON), and of a pipeline the stages for its PipelineModule (Python).
#include <algorithm>

#include "common/base/json.h"
#include "common/base/json_text.h"
#include "plan/emit/quote.h"
#include "plan/emit/to_type.h"

namespace automap::emit {
namespace {

const char* const kPipelineClass = R"(

class PlannedPipeline(PipelineModule):
    """A PipelineModule whose stages are those of the plan: none of its own methods puts them where one wants them."""

    def _partition_layers(self, method="uniform"):
        self.parts = [0]
        for stage in STAGES:
            self.parts.append(self.parts[-1] + len(stage))
        stage = self._topo.get_coord(self.global_rank).pipe
        self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])


def pipeline_module(layers, **options):
    """layers: what PipelineModule takes (a LayerSpec, a TiedLayerSpec, a module) of every name in STAGES. Further options
    go to PipelineModule."""
    names = [name for stage in STAGES for name in stage]
    if set(layers) != set(names):
        raise ValueError(f"expected a layer for each of {names}, found {sorted(layers)}")
    topology = PipeModelDataParallelTopology(num_pp=len(STAGES), num_mp=1, num_dp=REPLICAS)
    return PlannedPipeline(layers=[layers[name] for name in names], topology=topology,
                           activation_checkpoint_interval=1 if RECOMPUTE else 0, **options)
)";

// DeepSpeed starts the devices of a server in ascending order, whatever --include says, and servers in the hostfile's
// (launcher/runner.py, parse_resource_filter). Devices of one server are alike.
std::vector<UsedServer> in_ascending_order(std::vector<UsedServer> servers) {
  for (UsedServer& server : servers) std::sort(server.devices.begin(), server.devices.end());
  return servers;
}

// "HOST2:2,3@HOST1:0,1".
std::string include_text(const std::vector<UsedServer>& servers) {
  std::string text;
  for (const UsedServer& server : servers) {
    const std::string host = servers.size() == 1 ? "localhost" : "HOST" + std::to_string(server.number);
    text += (text.empty() ? "" : "@") + host + ":" + numbers_text(server.devices, ",");
  }
  return text;
}

std::string stages_text(const FrameworkPlan& plan, const ModulePaths& paths) {
  std::string text =
      "\"\"\"The stages of a plan of AutoMap for DeepSpeed's PipelineModule.\"\"\"\n"
      "from deepspeed.pipe import PipelineModule\n"
      "from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology\n\n"
      "REPLICAS = " +
      std::to_string(plan.replicas) + "\nRECOMPUTE = " + (plan.recompute_any() ? "True" : "False") +
      "  # of every layer alone\n# The layers of each stage, each of which takes what the one before it "
      "returns.\nSTAGES = "
      "[\n";
  for (const std::vector<std::string>& stage : paths.stages) {
    std::string names;
    for (const std::string& name : stage) names += (names.empty() ? "" : ", ") + python_literal(name);
    text += "    [" + names + "],\n";
  }
  return text + "]\n" + kPipelineClass;
}

}  // namespace

Emitted emit_deepspeed(const FrameworkPlan& plan, const EmitOptions& options) {
  const std::string& layers = options.layers;
  Emitted out;
  if (plan.stages == 1 && plan.width > 1 && options.version.before(0, 16)) {
    out.cannot = {"replicas of several devices before 0.16", "tensor_parallel.autotp_size came with it: --max-width 1"};
    return out;
  }
  Json config = {{"train_batch_size", plan.batch()},
                 {"train_micro_batch_size_per_gpu", plan.samples},
                 {"gradient_accumulation_steps", plan.micro_batches},
                 {"zero_optimization", {{"stage", plan.zero}}}};
  // DeepSpeed splits the tensors of a model without a pipeline, and sums gradients beside the backward pass there.
  if (plan.stages == 1) {
    config["zero_optimization"]["overlap_comm"] = plan.overlap;
    if (plan.width > 1) config["tensor_parallel"] = {{"autotp_size", plan.width}};
  }
  if (plan.stages > 1) {
    // Names are keys here: any will do.
    const ModulePaths paths = module_paths(plan, layers, ModuleNames::kAny);
    if (!paths.why.what.empty()) {
      out.cannot = paths.why;
      return out;
    }
    if (!paths.note.empty()) out.missing.push_back(paths.note);
    config["pipeline"] = {{"stages", plan.stages}};
    if (plan.recompute_any()) {
      // The other kind of checkpoint has no gradient where none of its inputs has one, as token ids.
      config["pipeline"]["activation_checkpoint_interval"] = 1;
      config["pipeline"]["use_reentrant"] = false;
    }
    out.files.push_back({"", json_text(config)});
    out.files.push_back({"stages.py", stages_text(plan, paths)});
    out.missing.push_back("the model's layers, for pipeline_module() of the file of stages: automap emit writes it");
    if (plan.overlap && plan.replicas > 1) {
      out.missing.push_back(
          "a plan for --gradient-sync after: DeepSpeed sums a pipeline's gradients behind the backward pass");
    }
    if (plan.shares_variables) {
      out.missing.push_back(
          "stages share variables: give the layers that hold them and those that use them again as TiedLayerSpec");
    }
  } else {
    if (plan.recompute_any()) {
      config["activation_checkpointing"] = {{"partition_activations", false}, {"cpu_checkpointing", false}};
      out.missing.push_back("the model has to call deepspeed.checkpointing.checkpoint for every layer");
    }
    out.files.push_back({"", json_text(config)});
  }
  out.arguments = {"--deepspeed", "--deepspeed_config", "FILE"};
  out.with_file = shell_line(out.arguments);
  out.launch = {"deepspeed"};
  const std::vector<int> servers = used_of_servers(plan);
  // --include names servers and devices, and excludes the options that count them.
  const std::vector<UsedServer> ascending = in_ascending_order(plan.servers);
  const bool include = std::any_of(ascending.begin(), ascending.end(),
                                   [](const UsedServer& server) { return !are_first(server.devices); });
  if (servers.empty()) {
    out.missing.push_back("the servers are not known: start " + std::to_string(plan.devices()) + " processes");
  } else if (include && servers.size() == 1) {
    out.launch.insert(out.launch.end(), {"--include", include_text(ascending)});
  } else if (include) {
    out.missing.push_back("--include " + include_text(ascending) + " of deepspeed, with the names of the servers");
  } else {
    out.launch.insert(out.launch.end(), {"--num_nodes", std::to_string(servers.size())});
    const bool alike = std::all_of(servers.begin(), servers.end(), [&](int used) { return used == servers.front(); });
    if (alike) out.launch.insert(out.launch.end(), {"--num_gpus", std::to_string(servers.front())});
  }
  if (servers.size() > 1) {
    std::vector<int> slots = servers;
    for (std::size_t s = 0; include && s < slots.size(); ++s) slots[s] = plan.servers[s].has;
    out.missing.push_back("a hostfile of the servers, in the plan's order" +
                          std::string(include ? ", which --include does not change" : "") +
                          ", slots=" + numbers_text(slots));
  }
  for (const std::string& text : server_texts(plan)) out.missing.push_back(text);
  out.launch.push_back(kUsersProgram);
  out.missing.push_back("the optimizer and the precision in the same JSON");
  return out;
}

}  // namespace automap::emit
