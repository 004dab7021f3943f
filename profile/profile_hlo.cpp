#include "profile/profile_hlo.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "common/architecture/read.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/join.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "common/graph/partitioned.h"
#include "common/graph/shard_map_step.h"
#include "common/graph/training_step.h"
#include "common/io/profile_file.h"
#include "common/machine/link_kinds.h"

namespace automap::profile {

std::string model_name(const std::string& source, const std::string& fallback) {
  std::string name = source.substr(source.find_last_of('/') + 1);
  if (name.empty() || name[0] == '<' || name == "-") return fallback;
  for (bool more = true; more;) {
    more = false;
    for (const char* extension : {".gz", ".hlo", ".txt", ".pb", ".json", ".before_optimizations", ".before_opt"}) {
      const std::string ending = extension;
      if (name.size() > ending.size() && name.compare(name.size() - ending.size(), ending.size(), ending) == 0) {
        name.resize(name.size() - ending.size());
        more = true;
      }
    }
  }
  return name;
}

ReadModule read_module(std::string bytes, const std::string& source, const architecture::StepOptions& step) {
  ReadModule out;
  if (architecture::is_description(bytes)) {
    architecture::BuiltStep built =
        architecture::build_step(architecture::read_description(bytes, source), source, step);
    out.module.graph = std::move(built.graph);
    out.form = std::move(built.form);
    out.taken = std::move(built.taken);
    return out;
  }
  for (const auto& [name, given] :
       {std::pair("model-samples", step.samples > 0), std::pair("sequence", step.sequence > 0),
        std::pair("dtype", !step.dtype.empty()), std::pair("model-optimizer", !step.optimizer.empty()),
        std::pair("remat", !step.remat.empty())}) {
    if (!given) continue;
    throw Error(ErrorKind::kUsage, std::string("--") + name + " is for a config.json or a published model; " + source +
                                       " is a whole step already");
  }
  out.module.form = hlo::detect_hlo_form(bytes, source);
  out.module.graph = hlo::read_hlo_as(out.module.form, std::move(bytes), source);
  out.form = std::string("HLO ") + hlo::to_string(out.module.form);
  return out;
}

ReadModule load_model(const std::string& path, const std::string& hint, const architecture::StepOptions& step) {
  const std::string source = input_name(path);
  std::string bytes = architecture::read_model_file(path);
  const bool packed = is_gzip(bytes);
  std::string sha256;
  if (packed) sha256 = sha256_hex(bytes);
  bytes = gunzip_if_gzip(std::move(bytes), source);
  if (io::detect_profile(bytes)) throw Error(ErrorKind::kData, source + ": this is a profile already", hint);
  if (!architecture::is_description(bytes)) hlo::detect_hlo_form(bytes, source);
  if (!packed) sha256 = sha256_hex(bytes);
  ReadModule read = read_module(std::move(bytes), source, step);
  if (read.described()) log_info(source + ": " + read.taken);
  read.module.sha256 = std::move(sha256);
  return read;
}

namespace {

// One device's part is planned where somebody asks for that part, and nothing else.
std::string refuse_part(const std::string& what, std::optional<bool> as_is, const std::string& how) {
  if (!as_is) throw Error(ErrorKind::kData, what, how);
  if (!*as_is) throw Error(ErrorKind::kData, what, how + "; --as-is takes this one part");
  return what + "; as asked, that part is taken as it is, and nothing here holds for the whole model";
}

constexpr const char* kExportWhole =
    "export the step without shard_map: dividing it is what is planned (docs/getting-hlo.md)";

// The part of a parameter that a device holds: "'w', f32[8,64] of f32[64,64]".
std::string part_text(const graph::Graph& graph, const graph::ShardMapStep::Cut& cut) {
  const std::string name = graph.op_name(cut.parameter);
  return "'" + (name.empty() ? std::string(graph.instruction(cut.parameter).name) : name) + "', " +
         std::string(graph.shape_of(cut.parameter).text) + " of " + std::string(graph.shape(cut.whole).text);
}

// True if only the dimension of the samples was cut, or that of micro-batches in front of it. In inputs that are not
// known to hold any (a random key for each device, samples and sequence in one dimension) the first dimension counts as
// theirs.
bool cuts_samples_alone(const graph::Graph& graph, const graph::TrainingStep& roles, std::ptrdiff_t input,
                        const graph::ShardMapStep::Cut& cut) {
  const std::vector<std::int64_t>& part = graph.shape_of(cut.parameter).dims;
  const std::vector<std::int64_t>& whole = graph.shape(cut.whole).dims;
  std::size_t samples = 0;
  for (const graph::BatchInput& batch : roles.batch_inputs) {
    if (batch.input == input) samples = static_cast<std::size_t>(batch.dim);
  }
  for (std::size_t d = 0; d < std::min(part.size(), whole.size()); ++d) {
    if (d > samples && part[d] != whole[d]) return false;
  }
  return true;
}

std::string require_divided_samples(const graph::Graph& graph, const graph::ShardMapStep& step,
                                    const std::string& source, std::optional<bool> as_is) {
  const std::string devices = step.devices > 1 ? std::to_string(step.devices) + " devices" : "several devices";
  const auto refuse = [&](const char* how, const graph::ShardMapStep::Cut& cut) {
    return refuse_part(source + ": this step is divided by hand over " + devices + " (shard_map), " + how +
                           ": a device has of " + part_text(graph, cut),
                       as_is, kExportWhole);
  };
  const graph::TrainingStep roles = graph::analyze_training_step(graph, {});
  std::string samples;
  for (const graph::ShardMapStep::Cut& cut : step.cut) {
    const auto input = std::find_if(roles.inputs.begin(), roles.inputs.end(), [&](const graph::EntryInput& candidate) {
      return roles.flow.node(candidate.node).instruction == cut.parameter;
    });
    if (input == roles.inputs.end()) continue;
    switch (input->role) {
      case graph::InputRole::kVariable:
      case graph::InputRole::kSlot:
      case graph::InputRole::kFrozen: return refuse("weights or the optimizer's state with it", cut);
      case graph::InputRole::kUnused: break;
      default:
        if (!cuts_samples_alone(graph, roles, input - roles.inputs.begin(), cut)) {
          return refuse("along more than its samples", cut);
        }
        if (samples.empty()) samples = part_text(graph, cut);
    }
  }
  return source + ": the whole step is divided by hand over " + devices + " (shard_map), its samples alone" +
         (samples.empty() ? "" : ": a device has of " + samples) +
         "; one device's part is taken, which has all weights, with the collectives that stand there. Exported "
         "without shard_map, the step has all its samples";
}

// From this share of the FLOPs on, what is divided by hand is the step and not a part of it.
constexpr double kMostOfTheStep = 0.9;

}  // namespace

std::string require_whole_model(graph::Graph* graph, const std::string& source, std::optional<bool> as_is) {
  if (const std::optional<graph::PartitionedModule> found = graph::find_partitioned(*graph)) {
    return refuse_part(source + ": this is one device's part of a model that XLA has partitioned" +
                           (found->devices > 1 ? " over " + std::to_string(found->devices) + " devices" : "") +
                           ": shapes are those of shards (" + found->why + ")",
                       as_is,
                       "export the step before it is partitioned: jax.jit(step).lower(*args).as_text(\"hlo\", "
                       "debug_info=True), or *.before_optimizations.txt of --xla_dump_to (docs/getting-hlo.md)");
  }
  if (!graph::works_on_shards(*graph)) return "";
  if (const std::optional<graph::ShardMapStep> step = graph::take_one_device(graph)) {
    return require_divided_samples(*graph, *step, source, as_is);
  }
  const double share = graph::share_on_shards(*graph);
  if (share < kMostOfTheStep) return "";
  return refuse_part(
      source + ": " + format_percent(share) +
          " of this step's FLOPs are divided by hand (shard_map): shapes there are those of one device's part",
      as_is, kExportWhole);
}

ReadModule load_whole_model(const std::string& path, const std::string& hint, std::optional<bool> as_is,
                            const architecture::StepOptions& step) {
  ReadModule read = load_model(path, hint, step);
  const std::string part = require_whole_model(&read.module.graph, input_name(path), as_is);
  if (!part.empty()) log_warning(part);
  return read;
}

machine::DeviceModel reference_device(const std::string& asked, const machine::Cluster& cluster) {
  if (!asked.empty()) return machine::load_device(asked);
  for (const machine::ServerGroup& servers : cluster.servers) {
    const machine::DeviceType& type = cluster.devices.at(servers.device);
    if (type.relative_speed != 1) continue;
    if (auto known = machine::find_changed_device(machine::device_type(servers.device))) return *std::move(known);
    if (type.peak_tflops.count("f32") == 0 || type.memory_gbytes_per_s <= 0) {
      throw Error(
          ErrorKind::kConfig,
          cluster.name + ": device '" + servers.device + "' is in no table, and the cluster gives no figures for it",
          "give peak_tflops (with f32) and memory_gbytes_per_s in the cluster file, or --device");
    }
    machine::DeviceModel model;
    model.name = servers.device;
    model.peak_tflops = type.peak_tflops;
    model.memory_gbytes_per_s = type.memory_gbytes_per_s;
    model.memory_gib = type.memory_gib;
    return model;
  }
  throw Error(ErrorKind::kConfig, cluster.name + ": no device of the cluster has relative_speed 1",
              "name the device that the times are for: --device");
}

namespace {

void add_device(std::vector<machine::DeviceModel>* devices, machine::DeviceModel device) {
  const bool known = std::any_of(devices->begin(), devices->end(),
                                 [&](const machine::DeviceModel& other) { return other.name == device.name; });
  if (!known) devices->push_back(std::move(device));
}

}  // namespace

std::vector<machine::DeviceModel> cluster_devices(const std::optional<machine::DeviceModel>& asked,
                                                  const machine::Cluster& cluster) {
  std::vector<machine::DeviceModel> devices{asked ? *asked : reference_device("", cluster)};
  for (const machine::ServerGroup& servers : cluster.servers) {
    std::optional<machine::DeviceModel> known;
    const std::string type = machine::device_type(servers.device);
    if (type == devices.front().name) {
      known = devices.front();
    } else {
      known = machine::find_changed_device(type);
    }
    if (!known) continue;
    // Beside others that only their links tell from it.
    if (type != servers.device) known->name = servers.device;
    add_device(&devices, *std::move(known));
  }
  return devices;
}

std::vector<std::int64_t> parse_samples(const std::string& text, const std::string& option) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  constexpr std::size_t kMostPoints = 64;
  std::vector<std::int64_t> samples;
  for (const std::string& part : split_at_commas(text)) {
    std::int64_t value = 0;
    const char* const end = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data(), end, value);
    if (error != std::errc() || stop != end || value < 1 || value > kMost) {
      throw Error(
          ErrorKind::kUsage,
          option + ": found '" + excerpt(part, 40) + "', expected whole numbers from 1 to " + std::to_string(kMost),
          "write them with commas between: " + option + " 1,2,4,8");
    }
    samples.push_back(value);
  }
  std::sort(samples.begin(), samples.end());
  samples.erase(std::unique(samples.begin(), samples.end()), samples.end());
  if (samples.size() > kMostPoints) {
    throw Error(ErrorKind::kUsage, option + ": " + std::to_string(samples.size()) + " numbers, at most " +
                                       std::to_string(kMostPoints) + " are looked at");
  }
  return samples;
}

std::vector<machine::DeviceModel> named_devices(const ProfileRequest& request) {
  std::vector<machine::DeviceModel> devices{machine::load_device(request.device)};
  for (const std::string& name : request.more_devices) add_device(&devices, machine::load_device(name));
  return devices;
}

namespace {

// With kernels where `rule` has them, on every device.
ModelProfile profile_by_rule(const hlo::HloModule& module, const FusionRule& rule,
                             const std::vector<machine::DeviceModel>& devices, ProfilerOptions options) {
  const ModuleStructure structure(module.graph, find_fused_chains(module.graph, rule));
  TimeEstimator estimator(module.graph, structure);
  estimator.measure();
  options.device = devices.front().name;
  options.estimator = &estimator;
  options.devices = devices;
  ModelProfile profile = build_profile(module.graph, estimator.estimate(devices.front()), options);
  profile.fusion = {rule.attention,
                    rule.only_16bit,
                    structure.fused.summary(),
                    structure.fused.missed,
                    structure.fused.missed_type,
                    structure.fused.missed_head,
                    ""};
  return profile;
}

// Devices that have the kernels take the times of `with`; what is kept stays as written, as it is on the others.
void take_kernel_times(const ModelProfile& with, ModelProfile* model) {
  pipeline::Profile& profile = model->profile;
  for (std::size_t d = 0; d < with.profile.times.size(); ++d) {
    for (std::size_t all = 0; all < profile.times.size(); ++all) {
      if (profile.times[all].device != with.profile.times[d].device) continue;
      profile.times[all] = with.profile.times[d];
      // Those of widths are of the same devices.
      for (std::size_t w = 0; w < profile.widths.size(); ++w) {
        profile.widths[w].times[all] = with.profile.widths[w].times[d];
        profile.widths[w].collective_ms[all] = with.profile.widths[w].collective_ms[d];
      }
    }
  }
  if (with.profile.device != profile.device) return;
  // These are the columns of the first device.
  profile.c_ms = with.profile.c_ms;
  profile.forward_fraction = with.profile.forward_fraction;
  model->forward_ms = with.forward_ms;
  model->backward_ms = with.backward_ms;
  for (std::size_t i = 0; i < model->layers.size(); ++i) model->layers[i].c_ms = with.layers[i].c_ms;
  profile.weight_share = with.profile.weight_share;
  for (std::size_t w = 0; w < profile.widths.size(); ++w) {
    profile.widths[w].weight_share = with.profile.widths[w].weight_share;
  }
}

}  // namespace

ModelProfile profile_module(const hlo::HloModule& module, const std::string& source, const ProfileRequest& request) {
  return profile_module(module, source, request, named_devices(request));
}

ModelProfile profile_module(const hlo::HloModule& module, const std::string& source, const ProfileRequest& request,
                            std::vector<machine::DeviceModel> devices) {
  std::vector<graph::VariableRequest> variables, batch_inputs;
  if (!request.variables.empty()) variables = graph::load_variable_list(request.variables);
  for (const std::string& name : split_at_commas(request.batch_inputs)) {
    if (!name.empty()) batch_inputs.push_back({name, "", "--batch-input"});
  }
  ProfilerOptions options;
  options.model = request.model.empty() ? model_name(source, std::string(module.graph.name())) : request.model;
  options.source_sha256 = module.sha256;
  if (!request.variables.empty()) options.variables = &variables;
  if (!request.batch_inputs.empty()) options.batch_inputs = &batch_inputs;
  options.samples = request.samples;
  options.widths = request.widths;
  options.whole_loops = request.whole_loops;
  options.places = request.places;
  const FusionRule rule = fusion_rule(request.attention, devices);
  ModelProfile profile = profile_by_rule(module, rule, devices, options);
  if (request.attention == AttentionMode::kAuto && !rule.attention) {
    std::vector<machine::DeviceModel> with, without;
    for (WidthParts& parts : options.widths) parts.collectives.clear();
    for (std::size_t d = 0; d < devices.size(); ++d) {
      const bool has = devices[d].has_fused_attention();
      (has ? with : without).push_back(devices[d]);
      for (std::size_t w = 0; has && w < options.widths.size(); ++w) {
        options.widths[w].collectives.push_back(request.widths[w].collectives[d]);
      }
    }
    if (!with.empty()) {
      if (!profile.profile.times.empty()) {
        const std::vector<double>& samples = profile.profile.times.front().samples;
        options.samples.assign(samples.begin(), samples.end());
      }
      const ModelProfile fused = profile_by_rule(module, fusion_rule(request.attention, with), with, options);
      profile.fusion = fused.fusion;
      if (!fused.fusion.found.empty()) take_kernel_times(fused, &profile);
    }
    if (find_fused_chains(module.graph, {true, false, false}).attention != 0) {
      profile.fusion.without_kernels = without.front().name;
    }
  }
  pipeline::check_profile(profile.profile, source);
  return profile;
}

}  // namespace automap::profile
