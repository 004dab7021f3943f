#include "infer/input.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/architecture/read.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/text_table.h"
#include "common/graph/user_shardings.h"
#include "common/hlo/hlo_reader.h"
#include "common/io/profile_file.h"
#include "common/pipeline/device_match.h"
#include "common/pipeline/plan_json.h"
#include "common/pipeline/plan_reader.h"
#include "infer/software.h"
#include "plan/emit/to_type.h"
#include "plan/partition/width_profile.h"
#include "profile/measured/attribution.h"
#include "profile/measured/measured_options.h"
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

// Products of a type that a device has no units for run as f32.
void note_missing_type(const std::vector<machine::DeviceModel>& devices, PlanInput* input) {
  if (input->profile.work != "matmul bf16") return;
  for (const machine::DeviceModel& device : devices) {
    const auto half = device.peak_tflops.find("f16");
    if (half == device.peak_tflops.end() || device.peak_tflops.count("bf16") > 0) continue;
    input->notices.push_back("devices of the type " + device.name.substr(0, device.name.find(':')) +
                             " have no units for bf16, in which the model multiplies: its products are counted as f32, "
                             "and in f16 (with loss scaling) they have a peak of " +
                             format_number(half->second) + " TFLOP/s");
    return;
  }
}

// The memory that attention keeps is one figure for all devices: as written where one of their types lacks kernels for
// it.
void note_mixed_kernels(const std::string& without, PlanInput* input) {
  if (without.empty() || input->fused.empty()) return;
  input->written_attention = true;
  input->notices.push_back("no kernels of libraries for attention are known for " + without +
                           ": its times are as written, and so is the memory of every device, though others have such "
                           "kernels (--attention fused: as if all had them)");
}

// Those that are asked for, as far as servers have so many devices; and what a given plan or layout has, whatever it
// is: replicas that several servers make up are looked at where somebody asks for them.
std::vector<int> widths_asked(const InputOptions& options, const machine::Cluster& cluster) {
  std::vector<int> widths = machine::widths_of(cluster);
  widths.erase(std::remove_if(widths.begin(), widths.end(), [&](int width) { return width > options.max_width; }),
               widths.end());
  for (const int width : options.given_widths) {
    if (width > 1 && std::find(widths.begin(), widths.end(), width) == widths.end()) widths.push_back(width);
  }
  std::sort(widths.begin(), widths.end());
  return widths;
}

// In place of what says that they are set aside: which widths have an axis for them is said with their partition.
void note_kept_shardings(const graph::Graph& graph, PlanInput* input) {
  const std::string aside = graph::user_shardings_text(graph);
  const auto at = std::find(input->notices.begin(), input->notices.end(), aside);
  if (at == input->notices.end()) {
    input->notices.push_back("the model has no shardings of its own: there is nothing to keep");
    return;
  }
  const bool none = input->profile.widths.empty();
  *at = none ? "the model's own shardings are for replicas of several devices, of which there are none here"
             : "the model's own shardings are kept inside replicas of several devices alone: how the batch and stored "
               "state lie over replicas is planned anew";
}

// Keeps these widths of a profile that was made for other servers, or for more widths.
void keep_widths(const std::vector<int>& widths, pipeline::Profile* profile) {
  auto& known = profile->widths;
  known.erase(std::remove_if(known.begin(), known.end(),
                             [&](const pipeline::WidthColumns& columns) {
                               return std::find(widths.begin(), widths.end(), columns.width) == widths.end();
                             }),
              known.end());
}

void keep_software_state(const InputOptions& options, PlanInput* input) {
  if (options.software == nullptr || !has_mixed_precision(input->profile)) return;
  const bool half = input->profile.work.find(" f16") != std::string::npos;
  const TrainingState& state = half ? options.software->state_f16 : options.software->state;
  if (state.weight == 0) return;
  keep_state(state, &input->profile);
  input->state = state;
}

}  // namespace

std::string read_model_bytes(const std::string& path) {
  return architecture::read_model_file(path);
}

bool is_profile(const std::string& bytes, const std::string& source) {
  return io::detect_profile(is_gzip(bytes) ? gunzip_if_gzip(bytes, source) : bytes).has_value();
}

void drop_wider(int width, pipeline::Profile* profile) {
  std::vector<int> kept = pipeline::known_widths(*profile);
  kept.erase(std::remove_if(kept.begin(), kept.end(), [&](int one) { return one > width; }), kept.end());
  keep_widths(kept, profile);
}

bool can_be_read_again(const InputOptions& options) {
  for (const std::string& path : {options.path, options.measured.path, options.measured.hlo}) {
    std::error_code failed;
    const std::filesystem::file_status status = std::filesystem::status(path, failed);
    // A name of a table is no file.
    const bool gone_once_read = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
                                !std::filesystem::is_directory(status);
    if (path == "-" || gone_once_read) return false;
  }
  return true;
}

PlanInput read_input(const InputOptions& options, const machine::Cluster& cluster) {
  return read_input(options, cluster, read_model_bytes(options.path));
}

PlanInput read_input(const InputOptions& options, const machine::Cluster& cluster, std::string bytes) {
  const std::string source = input_name(options.path);
  PlanInput input;
  // The hash is of the file as given; what is neither model nor profile is refused before it is hashed.
  const bool packed = is_gzip(bytes);
  if (packed) input.sha256 = sha256_hex(bytes);
  bytes = gunzip_if_gzip(std::move(bytes), source);
  if (const auto form = io::detect_profile(bytes)) {
    for (const auto& [name, value] :
         {std::pair("variables", options.variables), std::pair("device", options.device ? options.device->name : ""),
          std::pair("batch-input", options.batch_inputs), std::pair("measured", options.measured.path),
          std::pair("attention",
                    options.attention == "auto" || !options.attention_asked ? std::string() : options.attention),
          std::pair("sequence-parallel", options.sequence_parallel == "auto" || !options.sequence_parallel_asked
                                             ? std::string()
                                             : options.sequence_parallel),
          std::pair("keep-shardings",
                    std::string(options.keep_shardings && options.keep_shardings_asked ? "on" : ""))}) {
      if (value.empty()) continue;
      throw Error(ErrorKind::kUsage, std::string("--") + name + " is for HLO; " + source + " is a profile already",
                  "give it to automap-profile, which makes profiles");
    }
    if (!packed && options.sha256) input.sha256 = sha256_hex(bytes);
    input.form = std::string(io::to_string(*form)) + " profile";
    input.profile = io::read_profile(std::move(bytes), source, io::ProfileColumns::kForPlanning);
    keep_widths(widths_asked(options, cluster), &input.profile);
    if (!input.profile.widths.empty() && input.profile.widths.front().servers != cluster.name) {
      input.notices.push_back("the profile's replicas of several devices talk over the links of " +
                              input.profile.widths.front().servers + ", not of " + cluster.name +
                              "; automap-profile --cluster makes them for another cluster");
    }
    pipeline::match_devices(input.profile, cluster, source);
    note_what_is_unusual(input, cluster);
    keep_software_state(options, &input);
    return input;
  }
  if (pipeline::looks_like_plan(bytes)) {
    const Json plan = pipeline::parse_plan_json(bytes, source);
    const std::string kind = pipeline::PlanObject(plan, source).text_or_empty("kind");
    throw Error(ErrorKind::kData, source + " is a plan of the kind " + (kind.empty() ? "?" : kind) + ", not a model",
                kind == "operator" || kind == "data"
                    ? "automap-search apply MODEL --plan " + source + " sets it on a model"
                    : "automap-inspect describes it");
  }
  if (!architecture::is_description(bytes)) hlo::detect_hlo_form(bytes, source);
  if (!packed) input.sha256 = sha256_hex(bytes);
  measured::MeasuredTimes times;
  if (options.measured.any()) times = measured::read_measured(options.measured);
  if (architecture::is_description(bytes)) {
    input.sizes = architecture::described_sizes(bytes, source, options.step);
  }
  profile::ReadModule given = profile::read_module(std::move(bytes), source, options.step);
  const auto read = std::make_shared<hlo::HloModule>(std::move(given.module));
  hlo::HloModule& module = *read;
  module.sha256 = input.sha256;
  input.form = std::move(given.form);
  input.taken = std::move(given.taken);
  const std::string part =
      input.taken.empty() ? profile::require_whole_model(&module.graph, source, options.as_is) : std::string();
  profile::ProfileRequest request;
  request.variables = options.variables;
  request.batch_inputs = options.batch_inputs;
  request.attention = profile::parse_attention_mode(options.attention);
  request.whole_loops = options.whole_loops;
  request.places = options.measured.any();
  const std::vector<machine::DeviceModel> devices = profile::cluster_devices(options.device, cluster);
  std::string why_no_width;
  profile::ModelProfile model = partition::profile_with_widths(
      module, source, request, devices, cluster, widths_asked(options, cluster),
      {options.sequence_parallel == "auto", options.keep_shardings, options.given_widths}, &why_no_width);
  if (!why_no_width.empty()) input.notices.push_back("replicas have one device each: " + why_no_width);
  if (options.measured.any()) {
    const measured::AttributionSentences told = measured::attribution_sentences(
        measured::apply_measured(times, module.graph, options.measured.samples, &model));
    input.notices.push_back("times are measured ones, " + told.measured + "; " + told.scaled);
  }
  input.profile = std::move(model.profile);
  input.work = model.work;
  if (input.taken.empty()) input.made_with = emit::framework_of(module.graph, input.work.decoder);
  partition::round_times(&input.profile);
  pipeline::match_devices(input.profile, cluster, source);
  input.notices.insert(input.notices.begin(), model.warnings.begin(), model.warnings.end());
  if (!part.empty()) input.notices.insert(input.notices.begin(), part);
  note_missing_type(devices, &input);
  if (options.keep_shardings) note_kept_shardings(module.graph, &input);
  input.fused = std::move(model.fusion.found);
  note_mixed_kernels(model.fusion.without_kernels, &input);
  note_what_is_unusual(input, cluster);
  if (options.keep_module) input.module = read;
  keep_software_state(options, &input);
  return input;
}

}  // namespace automap::infer
