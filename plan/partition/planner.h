// Plans a partition of a model: the work of `automap-search opp` and `automap-search adp` between reading and printing.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "common/machine/cluster.h"
#include "common/machine/device.h"
#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "plan/partition/kept_shardings.h"
#include "plan/partition/partition_cost.h"
#include "plan/partition/partition_plan.h"
#include "plan/partition/partition_search.h"
#include "plan/partition/price.h"

namespace automap::partition {

struct PlanningRequest {
  bool data = false;  // false: split variables (OPP); true: split the data of the step (ADP)
  models::PartitionObjective objective = models::PartitionObjective::kTime;
  bool none_slower = false;       // kCount of data: not where the step is longer than with nothing split
  bool fit_device = false;        // memory is limited to what the smallest device has
  double memory_limit_bytes = 0;  // per device, instead of that; 0: none
  bool compare = true;  // also name what else could be done: other objectives, data parallelism, fewer devices
  // If nothing fits: return the plan with the least memory found, instead of an error. useless_ms: from this step on a
  // plan is of no use, so that no plan that fits is looked for where the quickest of all is as long.
  bool or_least = false;
  double useless_ms = std::numeric_limits<double>::infinity();
  bool keep_shardings = false;    // the module's own shardings are taken as given (kept_shardings.h)
  bool overlap = false;           // collectives beside compute (overlap.h): among what is at hand the shortest step so
  bool reshard = false;           // kTime of variables: also cut linkage groups where that pays (resharding.h)
  bool sequence_parallel = true;  // what lies between split products may be split, too (resharding.h, Between)
  // Of variables, by time: products with weights are not split along the weights' rows (rows_of_weights). Beside
  // replicas such a split would do the same as the replicas do, with the weights whole in every device of each.
  bool rows_whole = false;
  // In a mesh, the axis that this one is nested in: what it leaves to this axis, and its decision.
  const OtherAxis* other = nullptr;
  const DecidedAxis* outer = nullptr;
  // The nodes of model->flow() whose time and memory count, those of a stage (stage_counts.h); null: all.
  const std::vector<bool>* in_stage = nullptr;
  SearchRequest search;
};

// Decided tensors that stay whole for the same reason.
struct WholeTensors {
  std::vector<std::int32_t> inputs;  // of the model
  std::string reason;                // for people
};

// Split linkage groups that are equal up to the numbers in names: repeated layers.
struct SplitGroups {
  std::vector<sharding::GroupId> groups;
  std::vector<std::pair<std::string, int>> members;  // (path, dimension) of their decided tensors
  PartitionCost::GroupEffect effect;                 // of all of them
};

struct Planned {
  PartitionPlan plan;
  PlanEstimate estimate, unsplit;
  PeakMemory memory, unsplit_memory;  // per device
  sharding::Propagation decided;
  std::vector<SplitGroups> split;
  std::vector<WholeTensors> whole;
  std::vector<PartitionAnswer> answers;  // of the algorithms that ran, best first
  ShardLinks links;
  KeptShardings kept;           // of the module's own shardings, where they are asked for
  std::string nothing_split;    // why, when several devices split nothing; also among the plan's warnings
  std::string memory_warning;   // that it hardly fits, or does not; also among the plan's warnings
  bool memory_decided = false;  // what was quickest without the limit of the memory does not fit
  bool weights_only = false;    // rows of what weights multiply were kept whole (PlanningRequest::rows_whole)
  bool nearly_cut = false;      // cutting linkage groups would save something, but too little
  bool cut_added_up = false;    // of an overlapped step: it would save something added up (alternative "groups cut")
};

// The plan without the facts that only its caller knows: model, cluster, planning_ms, provenance. `model` keeps the
// gathers of a data plan (ShardingModel::relink). If sums are combined in `model`, and the step is shorter with sums
// apart, that plan is taken, and the model set so. Throws as run_search does, Error(kData) when there is nothing to
// decide (no variables, no data), Error(kUsage) when the cluster is too small.
Planned make_plan(sharding::ShardingModel* model, const machine::DeviceModel& device, const machine::Cluster& cluster,
                  const PlanningRequest& request);

// The linkage groups of the data that make a data-parallel step, the one of the batch first.
struct DataChoice {
  std::vector<sharding::GroupId> groups;
  std::vector<sharding::Gather> gathers;  // for ShardingModel::relink
  std::string note;                       // why the batch is not split, or what its splitting needs; may be empty
};
// `model` is relinked to the gathers of the choice.
DataChoice choose_batch(sharding::ShardingModel* model);
// The same for data of which the batch cannot be split, but a dimension that windows move along (the height of images)
// can, when neighbours exchange borders; `model` is relinked so then, and left as it was where nothing can.
DataChoice choose_images(sharding::ShardingModel* model, DataChoice without);

}  // namespace automap::partition
