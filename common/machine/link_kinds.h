// Tells servers apart whose devices are of one type and whose links inside differ: "h100", and "h100 (links 2)" with
// slower links. For work that is split inside a server they are as different as two types of devices.
#pragma once

#include <string>

#include "common/machine/cluster.h"

namespace automap::machine {

// The type of a device that with_link_kinds() has named: "h100 (links 2)" -> "h100". Others are as they are.
std::string device_type(const std::string& name);

// Names every such kind of servers, those with the fastest links first, which keep the type's name: so the names do not
// depend on the order of servers. Facts about the type hold for all. Of more than kMostLinkKinds of a type the others
// count as the last. Clusters that use such names themselves stay as they are.
constexpr int kMostLinkKinds = 8;
Cluster with_link_kinds(Cluster cluster);

}  // namespace automap::machine
