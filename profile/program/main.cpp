// automap-profile: what each forward instruction of a model costs. Parses, calls, prints.
#include <optional>
#include <string>

#include "common/base/cli.h"
#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/fitted_table.h"
#include "common/base/in_order.h"
#include "common/base/join.h"
#include "common/base/log.h"
#include "common/base/options.h"
#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_writer.h"
#include "common/io/profile_file.h"
#include "common/machine/chosen_devices.h"
#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "common/machine/link_kinds.h"
#include "plan/partition/width_profile.h"
#include "profile/calibration.h"
#include "profile/description_options.h"
#include "profile/measured/attribution.h"
#include "profile/measured/measured_options.h"
#include "profile/profile_hlo.h"
#include "profile/report.h"

namespace {

using namespace automap;

constexpr std::uint64_t kMaxMeasurementBytes = 16 << 20;

// --calibrate: a device file from measured times, to `output` or standard output, and how well it fits.
void calibrate(const std::string& measurements, const std::string& base, const std::string& output) {
  std::optional<AtomicFile> file;
  if (!output.empty() && output != "-") file.emplace(output);
  const std::string source = input_name(measurements);
  const profile::Measurements measured =
      profile::parse_measurements(read_file(measurements, kMaxMeasurementBytes), source);
  const profile::Calibration made = profile::calibrate(measured, base, source);
  const std::string text = machine::to_json_text(made.device);
  if (file) {
    file->write(text);
    file->prepare();
    print_report(profile::calibration_text(made));
    file->commit();
    log_info("wrote " + output + "; use it with --device " + output);
  } else {
    for (const std::string& line : profile::calibration_warnings(made)) log_warning(line);
    print_exact(text);
  }
}

struct ProfileOptions {
  bool as_is = false;
  std::string input, output, hlo, samples, widths, cluster, measurements;
  measured::MeasuredOptions measured;
  std::string attention = "auto", sequence_parallel = "auto";
  profile::ProfileRequest request;
  architecture::StepOptions step;
  bool json = false;
};

void declare_options(OptionTable& table, ProfileOptions& o) {
  table.example("automap-profile fixtures/hlo/bert48.hlo.gz", "layer by layer, on a V100");
  table.example("automap-profile fixtures/hlo/gpt2.hlo.gz --device h100 --also-device v100-32gb --samples 1,2,4,8,16",
                "times at other micro-batches, on two devices");
  table.example("automap-profile fixtures/hlo/gpt2.hlo.gz --cluster h100-2x8 --widths 1,2,4,8 -o gpt2.profile.h5",
                "with replicas of several devices, as automap-infer plans them on that cluster");
  table.example("automap-profile fixtures/hlo/tiny_mlp.stripped.hlo --json", "the same facts for scripts");
  table
      .positional(
          &o.input, "MODEL",
          "HLO in any form (text, binary or JSON protobuf), gzipped or not, a config.json, or a published model's "
          "name; - reads standard input")
      .reads_file();
  profile::declare_description(table, &o.step);
  table.add(&o.request.device, "device", "reference device: " + join(machine::device_names()) + ", or a file")
      .reads_file()
      .metavar("DEVICE");
  table.add(&o.request.more_devices, "also-device", "more devices to estimate times on; may be repeated")
      .reads_file()
      .metavar("DEVICE");
  table
      .add(&o.attention, "attention",
           "attention and cross-entropy as kernels of libraries (fused), as the module says (as-written), or fused for "
           "f16 and bf16 on devices from A100 on (auto)")
      .choices(profile::attention_modes());
  table
      .add_flag(&o.as_is, "as-is",
                "take a module that XLA or shard_map has partitioned already as what it is, one device's part")
      .advanced();
  table.add(&o.hlo, "hlo", "also write the module as HLO text: what a config.json's step is")
      .writes_file()
      .metavar("FILE")
      .advanced();
  table.add_flag(&o.request.whole_loops, "whole-loops", "loops over layers stay one position").advanced();
  table
      .add(&o.samples, "samples",
           "numbers of samples of a micro-batch to estimate times at; default: powers of two to 4 times the module's "
           "batch")
      .no_file()
      .metavar("B[,B...]");
  table
      .add(&o.widths, "widths",
           "also replicas of so many devices of one server, which hold the tensors in parts: what each of them "
           "computes, "
           "exchanges and keeps")
      .no_file()
      .metavar("T[,T...]");
  table
      .add(
          &o.sequence_parallel, "sequence-parallel",
          "of these replicas: auto also splits what lies between split products (norms, residuals, dropout) where that "
          "is quicker, by reduce-scatters and all-gathers; off keeps it whole, by all-reduces")
      .choices({"auto", "off"});
  table
      .add(&o.cluster, "cluster",
           "the devices of a cluster, between which the widths' collectives are, in place of --device: a preset (" +
               join(machine::cluster_preset_names()) +
               ") or a JSON file; default: one server of --device with the links that are known of it")
      .reads_file()
      .suggestions(machine::cluster_preset_names())
      .metavar("CLUSTER");
  table
      .add(&o.request.batch_inputs, "batch-input",
           "the inputs that lead with the samples, by name, HLO name or number; default: found")
      .no_file()
      .metavar("NAME[,NAME...]");
  table
      .add(&o.request.variables, "variables",
           "the trained parameters, one per line or JSON; default: found by data flow")
      .reads_file()
      .metavar("FILE");
  table.add(&o.request.model, "model-name", "the name to write into the profile; default: from the file's")
      .no_file()
      .metavar("NAME")
      .advanced();
  table
      .add(&o.measurements, "calibrate",
           "no MODEL: fit a device to the kernels timed in FILE and write it as a device file; with --device NAME on "
           "that device's peaks")
      .reads_file()
      .metavar("FILE");
  measured::declare_measured(table, &o.measured);
  table.add(&o.output, "output", "write the profile: .h5, .hdf5 or .csv (- for CSV on standard output)")
      .writes_file()
      .shorthand('o')
      .metavar("FILE");
  table.add_common(&o.json);
}

// With the widths asked for, if any.
profile::ModelProfile profiled(const hlo::HloModule& module, const std::string& source, const ProfileOptions& o) {
  std::vector<machine::DeviceModel> devices;
  std::optional<machine::Cluster> cluster;
  if (!o.cluster.empty()) {
    cluster = machine::with_link_kinds(machine::load_cluster(o.cluster));
    devices = profile::cluster_devices(std::nullopt, *cluster);
  } else {
    devices = profile::named_devices(o.request);
  }
  if (o.widths.empty()) return profile::profile_module(module, source, o.request, devices);
  std::vector<int> widths;
  for (const std::int64_t width : profile::parse_samples(o.widths, "--widths")) {
    if (width > 1) widths.push_back(static_cast<int>(width));
  }
  if (!cluster && !widths.empty()) {
    if (devices.size() > 1) {
      throw Error(ErrorKind::kUsage, "--widths on several devices: it is not said how they are linked",
                  "name the cluster: --cluster, in place of --device and --also-device");
    }
    cluster = machine::one_server(devices.front(), widths.back());
  }
  for (const int width : widths) machine::require_one_server(*cluster, width);
  std::string why_none;
  profile::ModelProfile result =
      partition::profile_with_widths(module, source, o.request, devices, widths.empty() ? machine::Cluster() : *cluster,
                                     widths, {o.sequence_parallel == "auto"}, &why_none);
  if (!why_none.empty()) result.warnings.push_back("--widths: there is none beyond 1: " + why_none);
  return result;
}

// The profile of a model, printed and written.
void profile_model(const ProfileOptions& o) {
  // A file that cannot be written is refused before the work.
  std::optional<AtomicFile> file;
  if (!o.output.empty()) {
    io::check_profile_name(o.output);
    file.emplace(o.output);
  }
  // So is a file that cannot be read.
  measured::MeasuredTimes times;
  if (o.measured.any()) times = measured::read_measured(o.measured);
  const std::string source = input_name(o.input);
  const profile::ReadModule read =
      profile::load_whole_model(o.input, "automap-inspect shows it, automap-infer plans it", o.as_is, o.step);
  const hlo::HloModule& module = read.module;
  if (!o.hlo.empty()) {
    write_file_atomic(o.hlo, hlo::write_hlo_text(module.graph));
    log_info("wrote " + o.hlo);
  }
  profile::ModelProfile result = profiled(module, source, o);
  std::optional<measured::Attribution> attribution;
  if (o.measured.any()) {
    attribution = measured::apply_measured(times, module.graph, o.measured.samples, &result);
  }
  if (file) {
    io::write_profile(*file, o.output, result.profile);
    file->prepare();
  }
  const std::string form = read.described() ? read.form : hlo::form_for_people(module.form);
  if (o.json) {
    print_exact(profile::report_json(result, form, attribution ? measured::attribution_json(*attribution) : Json()));
  } else if (o.output != "-") {
    print(profile::report_text(result, form, report_columns()));
    if (attribution) {
      const measured::AttributionSentences told = measured::attribution_sentences(*attribution);
      print_report("measured    " + told.measured + "\nscaled      " + told.scaled + "\n");
    }
  }
  if (file) {
    file->commit();
    if (o.output != "-") log_info("wrote " + o.output);
  }
  for (const std::string& warning : result.warnings) log_warning(warning);
}

int profile_main(int argc, char** argv) {
  ProfileOptions options;
  OptionTable table("profile",
                    "say what each forward instruction of a model costs: compute, activations, weights, stash");
  declare_options(table, options);
  if (!table.parse(argc, argv)) return 0;
  set_loop_threads(0);
  if (options.output == "-" && options.json) {
    throw Error(ErrorKind::kUsage, "--json and -o - both want standard output", "give one of them a file");
  }
  if (!options.measurements.empty()) {
    if (!options.input.empty() || options.json) {
      throw Error(ErrorKind::kUsage,
                  std::string("--calibrate makes a device file and takes no ") + (options.json ? "--json" : "MODEL"),
                  "calibrate first, then profile the model with --device FILE");
    }
    calibrate(options.measurements, table.source_of("device") == "default" ? "" : options.request.device,
              options.output);
    return 0;
  }
  if (!options.cluster.empty() &&
      (table.source_of("device") != "default" || table.source_of("also-device") != "default")) {
    throw Error(ErrorKind::kUsage, "--cluster names the devices, and --device and --also-device do, too",
                "give one of them");
  }
  if (!options.widths.empty() && !options.output.empty() && !io::keeps_tables(options.output)) {
    throw Error(ErrorKind::kUsage, "CSV has no columns for --widths", "write an .h5 profile");
  }
  measured::check_measured_options(options.measured);
  if (options.input.empty()) {
    throw Error(ErrorKind::kUsage, "missing MODEL: HLO in any form",
                "usage: automap-profile MODEL [OPTIONS], or automap-profile --calibrate FILE");
  }
  options.request.attention = profile::parse_attention_mode(options.attention);
  options.request.places = options.measured.any();
  if (!options.samples.empty()) options.request.samples = profile::parse_samples(options.samples, "--samples");
  profile_model(options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return automap::run_main(argc, argv, profile_main);
}
