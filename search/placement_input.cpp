#include "search/placement_input.h"

#include "common/architecture/read.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/join.h"
#include "common/graph/training_step.h"
#include "common/io/profile_file.h"
#include "common/machine/cluster.h"
#include "plan/systems/placement/workload_json.h"
#include "profile/profile_hlo.h"
#include "search/commands.h"

namespace automap::search {

using namespace placement;

namespace {

constexpr const char* kAsItIs = "auto";
constexpr OptionTraits kOfModels = kFirstOwnTrait;        // not of workloads
constexpr OptionTraits kOfModules = kFirstOwnTrait << 1;  // of HLO alone

// Refuses options that do not apply to the input.
void refuse(const OptionTable& table, OptionTraits which, const std::string& what) {
  for (const std::string& option : table.names_with(which)) {
    if (table.source_of(option) == "default") continue;
    throw Error(ErrorKind::kUsage, "--" + option + " is for models; " + what, "leave it out");
  }
}

ModelWorkload of_module(const hlo::HloModule& module, const PlacementInputOptions& options, const std::string& source,
                        const machine::DeviceModel& device, const ModelMachine& machine) {
  if (options.granularity == to_string(Granularity::kLayers)) {
    profile::ProfileRequest request;
    request.variables = options.variables;
    const profile::ModelProfile profile = profile::profile_module(module, source, request, {device});
    ModelWorkload out = layer_workload(profile.profile, machine);
    out.warnings.insert(out.warnings.begin(), profile.warnings.begin(), profile.warnings.end());
    return out;
  }
  std::optional<std::vector<graph::VariableRequest>> variables;
  if (!options.variables.empty()) variables = graph::load_variable_list(options.variables);
  graph::TrainingStepOptions step_options;
  if (variables) step_options.variables = &*variables;
  const graph::TrainingStep step = graph::analyze_training_step(module.graph, step_options);
  const soap::ModelSpace space = soap::operators_of(module.graph, step, device);
  ModelWorkload out = operator_workload(space, machine);
  out.warnings.insert(out.warnings.begin(), space.warnings.begin(), space.warnings.end());
  out.warnings.insert(out.warnings.begin(), step.warnings.begin(), step.warnings.end());
  return out;
}

}  // namespace

void PlacementInputOptions::declare_input(OptionTable* table) {
  table->group("Input");
  table
      ->positional(&path, "MODEL|WORKLOAD",
                   "HLO in any form, a profile, or a graph with times and a machine (the JSON of "
                   "msr-fiddle/dnn-partitioning or piper), gzipped or not; - reads standard input")
      .reads_file()
      .required();
  table
      ->add(&granularity, "granularity",
            "of models: operators, a graph with backward nodes, or layers, a chain; auto: operators of HLO, layers of "
            "a profile")
      .choices({kAsItIs, to_string(Granularity::kOperators), to_string(Granularity::kLayers)})
      .traits(kInProvenance | kOfModels);
  table->add(&variables, "variables", "of HLO: the trained parameters, one per line or JSON")
      .reads_file()
      .metavar("FILE")
      .shown_default("found by data flow")
      .traits(kInProvenance | kOfModels | kOfModules);
  table
      ->add(&transfer_scale, "transfer-scale",
            "multiply what a workload says of edges; 1000 where it says seconds beside times in ms")
      .range(0, 1e12)
      .metavar("X")
      .traits(kInProvenance);
}

void PlacementInputOptions::declare_machine(OptionTable* table) {
  table->add(&cluster, "cluster", "of models: a preset (" + join(machine::cluster_preset_names()) + ") or a JSON file")
      .reads_file()
      .suggestions(machine::cluster_preset_names())
      .metavar("CLUSTER")
      .traits(kInProvenance | kOfModels);
  table->add(&device, "device", "of HLO: reference device for the times, a name or a file")
      .reads_file()
      .metavar("DEVICE")
      .shown_default("the cluster's first")
      .traits(kInProvenance | kOfModels | kOfModules);
  table->add(&transfer_gbytes_per_s, "transfer-gbytes-per-s", "of models: what an accelerator sends and receives with")
      .range(1e-6, 1e9)
      .metavar("GB/S")
      .shown_default("the cluster's slowest link")
      .traits(kInProvenance | kOfModels);
}

PlacementInput PlacementInputOptions::read(const OptionTable& table) const {
  PlacementInput out;
  out.name = input_name(path);
  std::string bytes = gunzip_if_gzip(architecture::read_model_file(path), out.name);
  if (looks_like_workload(bytes)) {
    refuse(table, kOfModels, out.name + " is a workload, which has its times and machine in it");
    WorkloadFile file = parse_workload(bytes, out.name, transfer_scale);
    out.workload = std::move(file.workload);
    out.warnings = std::move(file.warnings);
    out.provenance["workload_sha256"] = file.sha256;
    return out;
  }
  if (table.source_of("transfer-scale") != "default") {
    throw Error(ErrorKind::kUsage, "--transfer-scale is for workloads; " + out.name + " is none",
                "--transfer-gbytes-per-s says what transfers of a model take");
  }
  const machine::Cluster machines = machine::load_cluster(cluster);
  const ModelMachine machine = machine_of(machines, table.source_of("transfer-gbytes-per-s") == "default"
                                                        ? std::nullopt
                                                        : std::optional<double>(transfer_gbytes_per_s));
  if (io::detect_profile(bytes)) {
    refuse(table, kOfModules, out.name + " is a profile already");
    if (granularity == to_string(Granularity::kOperators)) {
      throw Error(ErrorKind::kUsage, "--granularity operators is for HLO; " + out.name + " is a profile, a chain",
                  "give it the model, or --granularity layers");
    }
    out.provenance = {{"input_sha256", sha256_hex(bytes)}, {"cluster_sha256", sha256_hex(to_json_text(machines))}};
    out.made = layer_workload(io::read_profile(std::move(bytes), out.name, io::ProfileColumns::kForPlanning), machine);
  } else {
    const std::string sha256 = sha256_hex(bytes);
    profile::ReadModule read = profile::read_module(std::move(bytes), out.name, {});
    hlo::HloModule& module = read.module;
    module.sha256 = sha256;
    const std::string part = profile::require_whole_model(&module.graph, out.name, std::nullopt);
    const machine::DeviceModel reference = profile::reference_device(device, machines);
    note_model(read.form, module.sha256, machines, reference, &out.provenance);
    out.made = of_module(module, *this, out.name, reference, machine);
    if (!part.empty()) out.made->warnings.insert(out.made->warnings.begin(), part);
  }
  out.workload = out.made->workload;
  out.warnings = out.made->warnings;
  return out;
}

}  // namespace automap::search
