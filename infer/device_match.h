// Which of a profile's times are for which of a cluster's devices.
#pragma once

#include <string>

#include "common/machine/cluster.h"
#include "common/pipeline/profile.h"

namespace automap::infer {

// Names the times of the profile as the cluster names its devices, where they mean the same ("h100" and "h100-80gb";
// devices that differ in memory only are equally fast). A device of relative speed 1 that the profile is not for is an
// error, Error(kData), that names both: its times would be another device's. What no table knows is taken at its word.
void match_devices(pipeline::Profile& profile, const machine::Cluster& cluster, const std::string& source);

}  // namespace automap::infer
