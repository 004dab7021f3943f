// Clusters by name: presets, and names that describe the cluster.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/machine/cluster.h"

namespace automap::machine {

// The form of a name that describes a cluster, for people.
constexpr const char* kClusterGrammar =
    "DEVICE-SERVERSxDEVICES[@NETWORK] (h100-512x8@400g, a100-80gb-128x8@hdr4, l4-1x4)";

// A preset, or a name made so; nothing where it is neither. Throws Error(kConfig) for a name of the second kind with
// too many devices or a network that is not known.
std::optional<Cluster> cluster_by_name(const std::string& name);

// The presets whose words ("a100", "2x8") the name shares most, less those of their own; none when it shares none.
std::vector<std::string> presets_by_words(const std::string& name);

// A device that is known without an entry under "devices".
std::optional<DeviceType> known_device(const std::string& name);

}  // namespace automap::machine
