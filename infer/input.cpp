#include "infer/input.h"

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/graph/hlo_reader.h"
#include "common/io/profile_file.h"
#include "profile/profile_hlo.h"

namespace automap::infer {
namespace {

// The times of a profile are for a device of relative speed 1: the first such one of the cluster.
std::string reference_device(const pipeline::Cluster& cluster) {
  for (const pipeline::ServerGroup& servers : cluster.servers) {
    if (cluster.devices.at(servers.device).relative_speed == 1) return servers.device;
  }
  throw Error(ErrorKind::kConfig, cluster.name + ": no device of the cluster has relative_speed 1",
              "name the device that the times are for: --device");
}

}  // namespace

PlanInput read_input(const InputOptions& options, const pipeline::Cluster& cluster) {
  const std::string source = input_name(options.path);
  std::string bytes = read_file(options.path);
  PlanInput input;
  input.sha256 = sha256_hex(bytes);
  bytes = gunzip_if_gzip(std::move(bytes), source);
  if (const auto form = io::detect_profile(bytes)) {
    for (const auto& [name, value] : {std::pair("variables", options.variables), std::pair("device", options.device)}) {
      if (value.empty()) continue;
      throw Error(ErrorKind::kUsage, std::string("--") + name + " is for HLO; " + source + " is a profile already",
                  "give it to automap-profile, which makes profiles");
    }
    input.form = std::string(io::to_string(*form)) + " profile";
    input.profile = io::read_profile(std::move(bytes), source);
    return input;
  }
  graph::HloModule module = graph::read_hlo(std::move(bytes), source);
  module.sha256 = input.sha256;
  input.form = std::string("HLO ") + graph::to_string(module.form);
  profile::ProfileRequest request;
  request.variables = options.variables;
  request.device = options.device.empty() ? reference_device(cluster) : options.device;
  profile::ModelProfile model = profile::profile_module(module, source, request);
  input.profile = std::move(model.profile);
  input.notices = std::move(model.warnings);
  return input;
}

}  // namespace automap::infer
