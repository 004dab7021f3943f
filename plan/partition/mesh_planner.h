// Plans a mesh of two axes in one module: the data axis splits the batch (and, under ZeRO, the state that the step
// keeps: stored_parts.h), the model axis splits variables inside every replica. Devices of the model axis are
// neighbours, inside one server; the data axis goes over replicas (design.md 2.5: the width is nested in a replica).
//
// The data axis comes first: the batch, with the gathers that it needs. The model axis is then a problem of one axis
// (planner.h) whose compute, memory and collectives are those of a replica, and for which splitting also saves part of
// the data axis's all-reduces of gradients. The levels of ZeRO are tried in turn, and dimensions that both axes could
// take are given to the model axis.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "plan/partition/mesh_plan.h"
#include "plan/partition/planner.h"
#include "plan/partition/price.h"
#include "plan/partition/stored_parts.h"

namespace automap::partition {

// Storing in parts must save this share of the step where everything fits without.
constexpr double kWorthStoring = 0.01;

struct MeshRequest {
  int data = 1, model = 1;    // devices of the axes
  std::optional<Zero> zero;   // none: the fastest that fits
  PlanningRequest operators;  // of the model axis; memory limits are those of a device
  // The model axis is partitioned as a replica of so many devices is wherever one is counted (widths.h), without a look
  // at the data axis and at memory.
  bool operators_alone = false;
};

// One axis, decided.
struct MeshAxis {
  sharding::ShardingModel model;
  std::optional<sharding::Propagation> decided;
};

struct PlannedMesh {
  MeshPlan plan;  // without model, cluster, planning_ms, provenance
  MeshAxis data, model;
  std::optional<Planned> operators;  // of the model axis, when that has several devices
  StoredParts stored;
  Price price;
  // The data axis splits more than the batch (experts): its devices are no replicas as a layout has them.
  bool experts_apart = false;
};

// Throws Error(kUsage) for a mesh that the cluster has no place for, Error(kData) when the batch cannot be split by the
// data axis, Error(kInfeasible), naming a mesh that would fit, when no plan fits.
PlannedMesh make_mesh_plan(const sharding::ShardingModel& model, const machine::DeviceModel& device,
                           const machine::Cluster& cluster, const MeshRequest& request);

// The fastest of all meshes over the cluster's devices or fewer (a larger cluster never gets a slower plan): the model
// axis divides a server, the data axis the batch. Meshes whose devices could not be faster if all of them shared all
// compute and never spoke are left out; the others become alternatives.
PlannedMesh best_mesh_plan(const sharding::ShardingModel& model, const machine::DeviceModel& device,
                           const machine::Cluster& cluster, const MeshRequest& request);

// Meshes that the cluster has a place for and whose data axis may divide the batch, those of most devices first: data,
// model.
std::vector<std::pair<int, int>> meshes_of(const sharding::ShardingModel& model, const machine::Cluster& cluster);

// No mesh over servers like the cluster's has more: an example per replica, and replicas as wide as a server.
std::int64_t most_devices(const sharding::ShardingModel& model, const machine::Cluster& cluster);

}  // namespace automap::partition
