// Matches the devices of a cluster to the devices whose times a profile has.
#pragma once

#include <string>

#include "common/machine/cluster.h"
#include "common/pipeline/profile.h"

namespace automap::pipeline {

// Names the times of the profile as the cluster names its devices, where they mean the same ("h100" and "h100-80gb";
// devices that differ in memory only are equally fast). A device of relative speed 1 that the profile is not for is an
// error, Error(kData), that names both: its times would be another device's. What no table knows is taken at its word.
void match_devices(Profile& profile, const machine::Cluster& cluster, const std::string& source);

// A warning when the cluster names slower devices in front of faster ones: plans that are lists of work keep the order
// of the file. Empty when it does not, or when that is not known. After match_devices().
std::string slower_in_front(const Profile& profile, const machine::Cluster& cluster);

}  // namespace automap::pipeline
