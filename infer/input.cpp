#include "infer/input.h"

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/graph/hlo_reader.h"
#include "common/io/profile_file.h"
#include "profile/profile_hlo.h"

namespace automap::infer {
namespace {

// The device that the times of an HLO input are for: what the user names, else the cluster's first device of relative
// speed 1, by the figures of the cluster when the table does not know it.
profile::DeviceModel reference_device(const std::string& asked, const pipeline::Cluster& cluster) {
  if (!asked.empty()) return profile::load_device(asked);
  for (const pipeline::ServerGroup& servers : cluster.servers) {
    const pipeline::DeviceType& type = cluster.devices.at(servers.device);
    if (type.relative_speed != 1) continue;
    if (auto known = profile::find_device(servers.device)) return *std::move(known);
    if (type.peak_tflops.count("f32") == 0 || type.memory_gbytes_per_s <= 0) {
      throw Error(
          ErrorKind::kConfig,
          cluster.name + ": device '" + servers.device + "' is in no table, and the cluster gives no figures for it",
          "give peak_tflops (with f32) and memory_gbytes_per_s in the cluster file, or --device");
    }
    profile::DeviceModel model;
    model.name = servers.device;
    model.peak_tflops = type.peak_tflops;
    model.memory_gbytes_per_s = type.memory_gbytes_per_s;
    model.memory_gib = type.memory_gib;
    return model;
  }
  throw Error(ErrorKind::kConfig, cluster.name + ": no device of the cluster has relative_speed 1",
              "name the device that the times are for: --device");
}

}  // namespace

PlanInput read_input(const InputOptions& options, const pipeline::Cluster& cluster) {
  const std::string source = input_name(options.path);
  std::string bytes = read_file(options.path);
  PlanInput input;
  // The hash is of the file as given; what is neither model nor profile is refused before it is hashed.
  const bool packed = is_gzip(bytes);
  if (packed) input.sha256 = sha256_hex(bytes);
  bytes = gunzip_if_gzip(std::move(bytes), source);
  if (const auto form = io::detect_profile(bytes)) {
    for (const auto& [name, value] : {std::pair("variables", options.variables), std::pair("device", options.device)}) {
      if (value.empty()) continue;
      throw Error(ErrorKind::kUsage, std::string("--") + name + " is for HLO; " + source + " is a profile already",
                  "give it to automap-profile, which makes profiles");
    }
    if (!packed) input.sha256 = sha256_hex(bytes);
    input.form = std::string(io::to_string(*form)) + " profile";
    input.profile = io::read_profile(std::move(bytes), source, io::ProfileColumns::kForPlanning);
    return input;
  }
  graph::HloModule module;
  module.form = graph::detect_hlo_form(bytes, source);
  if (!packed) input.sha256 = sha256_hex(bytes);
  module.sha256 = input.sha256;
  module.graph = graph::read_hlo_as(module.form, std::move(bytes), source);
  input.form = std::string("HLO ") + graph::to_string(module.form);
  profile::ProfileRequest request;
  request.variables = options.variables;
  profile::ModelProfile model =
      profile::profile_module(module, source, request, reference_device(options.device, cluster));
  input.profile = std::move(model.profile);
  input.notices = std::move(model.warnings);
  return input;
}

}  // namespace automap::infer
