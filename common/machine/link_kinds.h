// Servers whose devices are of one type and whose links inside are not: to what is split inside a server they are as
// different as two types of devices, so they are told apart by names: "h100", and "h100@2" with other links.
#pragma once

#include <string>

#include "common/machine/cluster.h"

namespace automap::machine {

// The type of a device that with_link_kinds() has named: "h100@2" -> "h100". Others are as they are.
std::string device_type(const std::string& name);

// The cluster with a name for every such kind of servers, in file order; the first of a type keeps the type's name.
// What is known of the type holds for all. Of more than kMostLinkKinds of a type the others count as the last.
constexpr int kMostLinkKinds = 8;
Cluster with_link_kinds(Cluster cluster);

}  // namespace automap::machine
