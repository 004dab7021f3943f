// Draws the servers of a cluster as boxes, with their devices coloured by their roles in a plan.
#pragma once

#include <string>
#include <vector>

#include "common/machine/cluster.h"
#include "common/pipeline/plan_json.h"

namespace automap::pictures {

// The role of a device in the plan: everything from 1; 0: it is not used.
struct DeviceRole {
  int stage = 0;    // pipeline
  int replica = 0;  // data
  int part = 0;     // tensor: which part of its replica
};
// The role of every device of the cluster, in its order.
std::vector<DeviceRole> device_roles(const machine::Cluster& cluster, const pipeline::PlanDocument& document);

// Markup: the boxes and the meaning of their colours; a sentence where there are more devices than one can look at.
std::string servers_markup(const machine::Cluster& cluster, const pipeline::PlanDocument& document);

}  // namespace automap::pictures
