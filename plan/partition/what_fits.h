// Suggests plans that would fit where nothing that was asked for does.
#pragma once

#include <functional>
#include <string>

#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "common/sharding/model.h"
#include "plan/partition/planner.h"

namespace automap::partition {

// For people, with memory and time: the fastest mesh of the cluster whose plan fits, else of a cluster with more
// servers like its last ones. `operators`: as for a mesh (MeshRequest). `cluster_was_tried`: its own meshes are not
// tried again. `typed`: how the options of a mesh are to be typed. Empty: nothing that was tried fits.
std::string what_fits(
    const sharding::ShardingModel& model, const machine::DeviceModel& device, const machine::Cluster& cluster,
    const PlanningRequest& operators, bool cluster_was_tried,
    const std::function<std::string(const std::string&)>& typed = [](const std::string& mesh) { return mesh; });

}  // namespace automap::partition
