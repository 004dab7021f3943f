// Replicas of several devices: the partition of a module over the devices of one server (planner.h, the least step),
// and what it leaves of every position of the profile (profile/width_parts.h). Design 2.5: per-position tables by
// width.
#pragma once

#include <vector>

#include "common/graph/variables.h"
#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "plan/partition/partition_plan.h"
#include "profile/width_parts.h"

namespace automap::partition {

struct WidthPlan {
  PartitionPlan plan;  // over the width's devices; without model, cluster, planning_ms, provenance
  profile::WidthParts parts;
};

// For each of `widths` that splits something. `devices` as ProfilerOptions::devices: the partition is found for the
// first, its collectives are those between devices of each. `sequence_parallel`: PlanningRequest's. `variables` may be
// null. A module that has nothing to split
// has no widths; `why_none` then says why, where it is not null.
std::vector<WidthPlan> plan_widths(const graph::Graph& graph, const std::vector<graph::VariableRequest>* variables,
                                   const std::vector<machine::DeviceModel>& devices, const machine::Cluster& cluster,
                                   const std::vector<int>& widths, bool sequence_parallel, std::string* why_none);

}  // namespace automap::partition
