// Replicas of several devices: partitions a module over the devices of one server, or of several whole ones (planner.h,
// the least step), and finds the share of every position of the profile that remains on a device
// (profile/width_parts.h). Design 2.5: per-position tables by width.
#pragma once

#include <string>
#include <vector>

#include "common/graph/variables.h"
#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "plan/partition/partition_plan.h"
#include "plan/partition/planner.h"
#include "profile/width_parts.h"

namespace automap::partition {

struct WidthPlan {
  PartitionPlan plan;  // over the width's devices; without model, cluster, planning_ms, provenance
  profile::WidthParts parts;
  std::string not_kept;  // of shardings that were to be kept: why none of them is
};

// The question about a width: the quickest partition of the replica alone, whatever memory there is, with as much
// search as automap-search opp does by default. A mesh's data axis is no part of the question, since the columns of a
// width stand for any number of replicas and samples.
struct WidthChoices {
  bool sequence_parallel = true;
  // The module's own shardings are taken as given by the widths whose axis they have (why_not_kept).
  bool keep_shardings = false;
  // Widths that a given plan or layout has: where splitting does not pay, they are split as if their links took no
  // time.
  std::vector<int> given = {};
};
PlanningRequest width_request(const WidthChoices& choices);
// `asked` about the variables, with as much of a width's question as a width can have.
PlanningRequest as_width_request(PlanningRequest asked);

// The shares of every position that `decided` leaves to a device; `model` is split over the width's devices. `devices`
// and `cluster` as for plan_widths.
profile::WidthParts width_parts(const sharding::ShardingModel& model, const sharding::Propagation& decided,
                                const std::vector<machine::DeviceModel>& devices, const machine::Cluster& cluster);

// The servers of the device that hold a replica of so many devices; where none does, those of other devices that do,
// and else all. Links between devices of a type of which no replica can be are never asked about.
machine::Cluster servers_of(const machine::Cluster& cluster, const std::string& device, int width);

// For each of `widths` that splits something. `devices` as ProfilerOptions::devices: the partition is found for the one
// that most replicas can stand on, its collectives are those between devices of each. `variables` may be null. A module
// that has nothing to split has no widths; `why_none` then says why, where it is not null.
std::vector<WidthPlan> plan_widths(const graph::Graph& graph, const std::vector<graph::VariableRequest>* variables,
                                   const std::vector<machine::DeviceModel>& devices, const machine::Cluster& cluster,
                                   const std::vector<int>& widths, const WidthChoices& choices, std::string* why_none);

}  // namespace automap::partition
