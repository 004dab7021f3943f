// Matches the devices of a cluster to the devices whose times a profile has.
#pragma once

#include <string>

#include "common/machine/cluster.h"
#include "common/pipeline/profile.h"

namespace automap::pipeline {

// Gives the times of the profile the names that the cluster has for these devices, where they mean the same ("h100" and
// "h100-80gb"; devices that differ in memory only are equally fast). A device of relative speed 1 that the profile is
// not for is an error, Error(kData), that names both: its times would be another device's. Devices in no table are not
// checked.
void match_devices(Profile& profile, const machine::Cluster& cluster, const std::string& source);

// A warning when the cluster names slower devices in front of faster ones: plans that are lists of work keep the order
// of the file. Empty when it does not, or when that is not known. After match_devices().
std::string slower_in_front(const Profile& profile, const machine::Cluster& cluster);

}  // namespace automap::pipeline
