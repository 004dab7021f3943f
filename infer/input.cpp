#include "infer/input.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/hlo/hlo_reader.h"
#include "common/io/profile_file.h"
#include "common/pipeline/device_match.h"
#include "common/pipeline/plan_json.h"
#include "common/pipeline/plan_reader.h"
#include "plan/partition/widths.h"
#include "profile/profile_hlo.h"

namespace automap::infer {
namespace {

void note_what_is_unusual(PlanInput& input, const machine::Cluster& cluster) {
  if (input.profile.forward_fraction >= 1) {
    input.notices.push_back("the model has no backward pass: what is planned is a forward pass, no training step");
  }
  if (std::string order = pipeline::slower_in_front(input.profile, cluster); !order.empty()) {
    input.notices.push_back(std::move(order));
  }
}

void round_times(std::vector<pipeline::DeviceTimes>* of_devices) {
  for (pipeline::DeviceTimes& times : *of_devices) {
    for (auto* table : {&times.forward_ms, &times.backward_ms}) {
      for (std::vector<double>& row : *table) {
        for (double& ms : row) ms = static_cast<float>(ms);
      }
    }
  }
}

// The partitions at the widths that were asked for, as far as servers have so many devices.
void add_widths(const graph::Graph& graph, const InputOptions& options,
                const std::vector<machine::DeviceModel>& devices, const machine::Cluster& cluster,
                profile::ProfileRequest* request, PlanInput* input) {
  std::vector<int> widths = machine::widths_of(cluster);
  widths.erase(std::remove_if(widths.begin(), widths.end(), [&](int width) { return width > options.max_width; }),
               widths.end());
  if (widths.empty()) return;
  std::vector<graph::VariableRequest> variables;
  if (!options.variables.empty()) variables = graph::load_variable_list(options.variables);
  std::string why_none;
  for (partition::WidthPlan& found : partition::plan_widths(graph, options.variables.empty() ? nullptr : &variables,
                                                            devices, cluster, widths, &why_none)) {
    input->partitions.emplace(found.parts.width, std::move(found.plan));
    request->widths.push_back(std::move(found.parts));
  }
  if (request->widths.empty()) {
    input->notices.push_back("replicas have one device each: " + why_none);
  }
}

}  // namespace

PlanInput read_input(const InputOptions& options, const machine::Cluster& cluster) {
  const std::string source = input_name(options.path);
  std::string bytes = read_file(options.path);
  PlanInput input;
  // The hash is of the file as given; what is neither model nor profile is refused before it is hashed.
  const bool packed = is_gzip(bytes);
  if (packed) input.sha256 = sha256_hex(bytes);
  bytes = gunzip_if_gzip(std::move(bytes), source);
  if (const auto form = io::detect_profile(bytes)) {
    for (const auto& [name, value] :
         {std::pair("variables", options.variables), std::pair("device", options.device ? options.device->name : ""),
          std::pair("batch-input", options.batch_inputs),
          std::pair("attention",
                    options.attention == "auto" || !options.attention_asked ? std::string() : options.attention)}) {
      if (value.empty()) continue;
      throw Error(ErrorKind::kUsage, std::string("--") + name + " is for HLO; " + source + " is a profile already",
                  "give it to automap-profile, which makes profiles");
    }
    if (!packed && options.sha256) input.sha256 = sha256_hex(bytes);
    input.form = std::string(io::to_string(*form)) + " profile";
    input.profile = io::read_profile(std::move(bytes), source, io::ProfileColumns::kForPlanning);
    pipeline::match_devices(input.profile, cluster, source);
    note_what_is_unusual(input, cluster);
    return input;
  }
  if (pipeline::looks_like_plan(bytes)) {
    const pipeline::PlanJson plan = pipeline::parse_plan_json(bytes, source);
    const std::string kind = pipeline::PlanObject(plan, source).text_or_empty("kind");
    throw Error(ErrorKind::kData, source + " is a plan of the kind " + (kind.empty() ? "?" : kind) + ", not a model",
                kind == "operator" || kind == "data"
                    ? "automap-search apply MODEL --plan " + source + " sets it on a model"
                    : "automap-inspect describes it");
  }
  hlo::HloModule module;
  module.form = hlo::detect_hlo_form(bytes, source);
  if (!packed) input.sha256 = sha256_hex(bytes);
  module.sha256 = input.sha256;
  module.graph = hlo::read_hlo_as(module.form, std::move(bytes), source);
  input.form = std::string("HLO ") + hlo::to_string(module.form);
  profile::ProfileRequest request;
  request.variables = options.variables;
  request.batch_inputs = options.batch_inputs;
  request.attention = profile::parse_attention_mode(options.attention);
  request.whole_loops = options.whole_loops;
  const std::vector<machine::DeviceModel> devices = profile::cluster_devices(options.device, cluster);
  add_widths(module.graph, options, devices, cluster, &request, &input);
  profile::ModelProfile model = profile::profile_module(module, source, request, devices);
  input.profile = std::move(model.profile);
  input.flops = model.executed_flops;
  // As a profile file keeps them, so that the model and its profile give the same plan.
  round_times(&input.profile.times);
  for (pipeline::WidthColumns& width : input.profile.widths) round_times(&width.times);
  pipeline::match_devices(input.profile, cluster, source);
  input.notices.insert(input.notices.begin(), model.warnings.begin(), model.warnings.end());
  input.fused = std::move(model.fusion.found);
  note_what_is_unusual(input, cluster);
  return input;
}

}  // namespace automap::infer
