#include "profile/profile_hlo.h"

#include <algorithm>
#include <vector>

#include "common/base/error.h"

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

ModelProfile profile_module(const graph::HloModule& module, const std::string& source, const ProfileRequest& request) {
  return profile_module(module, source, request, load_device(request.device));
}

ModelProfile profile_module(const graph::HloModule& module, const std::string& source, const ProfileRequest& request,
                            const DeviceModel& device) {
  std::vector<graph::VariableRequest> variables;
  if (!request.variables.empty()) variables = graph::load_variable_list(request.variables);
  const InstructionTimes times = estimate_times(module.graph, device);
  ProfilerOptions options;
  options.model = request.model.empty() ? model_name(source, std::string(module.graph.name())) : request.model;
  options.device = device.name;
  options.source_sha256 = module.sha256;
  if (!request.variables.empty()) options.variables = &variables;
  ModelProfile profile = build_profile(module.graph, times, options);
  pipeline::check_profile(profile.profile, source);
  return profile;
}

}  // namespace automap::profile
