// HLO bytes in, profile out: what automap-profile and automap-infer do with a model.
#pragma once

#include <string>

#include "common/graph/hlo_reader.h"
#include "profile/device_model.h"
#include "profile/profiler.h"

namespace automap::profile {

struct ProfileRequest {
  std::string device = "v100-16gb";  // a known name or a file (device_model.h)
  std::string variables;             // path of a variable list (graph/variables.h); empty: find them
  std::string model;                 // name for people; empty: from the source's name
};

// `module` as load_hlo or read_hlo returned it; `source` names it in errors.
// Throws Error(kData, kConfig, kIo) as the reader, the device table and build_profile do.
ModelProfile profile_module(const graph::HloModule& module, const std::string& source, const ProfileRequest& request);
// The same on a device that stands in no table: request.device is not looked at.
ModelProfile profile_module(const graph::HloModule& module, const std::string& source, const ProfileRequest& request,
                            const DeviceModel& device);

// "models/bert48.hlo.gz" -> "bert48"; "<stdin>" -> the fallback.
std::string model_name(const std::string& source, const std::string& fallback);

}  // namespace automap::profile
