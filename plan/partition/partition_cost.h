// The cost model of partitioning: the estimate behind --objective time, and the figures that every plan reports.
//
// Everything counts as often as its instruction runs: its loops' trip counts; of a conditional the branch that computes
// longest (with nothing split), and of the others neither compute nor collectives.
//
// Compute: each instruction's time on the reference device (common/machine/device.h). Where one of its factors is
// split, all of it but the kernel's launch is divided by the shards. Free tensors (linkage.h) take their whole time on
// every device, although XLA makes only the part that is read where that is split (masks of dropouts count too much for
// it); instructions that only name values (tuple elements, parameters) take none; the optimizer's instructions count
// like all others.
//
// Collectives: the times of common/machine/collectives.h (measured links, else ring formulas), added without overlap.
// Collectives of one group that do not wait for each other (the gradients of all variables, say) go out together, as
// XLA combines them: their bytes are added, the latency is paid once. The link is a server's inner one when the shards
// fit into one server, else the network; borders that neighbours exchange are single messages over it.
//
// Memory per device: parameters (variables, slots, frozen weights, state, data) over their splittings, with new values
// in the place of the old ones, plus the activations kept for the backward pass: values that the forward pass makes and
// the backward pass reads, once in the form they were made in; another form of a parameter is made again; and the
// gathered copies that both passes read. Gradients and buffers within an instruction are not counted; the peak counts
// them (peak_memory.h).
//
// Everything is a sum over instructions, tensors and collectives, each of which one group at most changes: the effect
// of a plan is the sum of its groups' effects. There are two exceptions: all-to-alls, between two groups (in the effect
// of one group its tensor is gathered), and combined sums (ShardingModel::sums_combined): effects are of every group by
// itself, and an estimate also has the savings from combining sums of several groups.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/machine/cluster.h"
#include "common/machine/collectives.h"
#include "common/machine/device.h"
#include "common/sharding/collectives.h"
#include "common/sharding/model.h"
#include "common/sharding/propagation.h"
#include "models/partition_problem.h"

namespace automap::partition {

// The links between the devices of one mesh axis. The mesh, all its axes, stands in the first server that has enough
// devices, else in the first servers of the cluster; of all servers in use the slowest links count, as every replica
// waits for the others. Those devices' speed and memory count, too.
struct ShardLinks {
  machine::CollectiveTime all_reduce, all_gather, reduce_scatter;  // of the bytes of the whole tensor
  machine::CollectiveTime all_to_all;                              // the same
  machine::CollectiveTime send;                                    // of a border, to a neighbour
  double gbytes_per_s = 0;                                         // of the slowest link in use
  bool inside_server = true;
};
// `stride`: the axis's devices stand so far apart (an axis of `stride` devices is nested in it, and as many rings share
// the ports of the servers). `replicas`: so many such groups stand side by side (of the axis that this one is nested
// in). Throws Error(kUsage) when the cluster has fewer than shards x stride x replicas devices, or when a nested axis
// is larger than its servers or does not divide them.
ShardLinks shard_links(const machine::Cluster& cluster, int shards, int stride = 1, int replicas = 1);

// The shares of work and tensors that the other axis of a mesh leaves to every device, and its own collectives.
struct OtherAxis {
  std::vector<double> op_share;  // by flow node: 1 where it splits nothing
  sharding::TensorShares shares;
  std::vector<sharding::Collective> collectives;  // of the whole tensors, reduced at once
  ShardLinks links;
  double waits_ms = 0;  // of its collectives, whatever they move
  int devices = 1;
};

struct PlanEstimate {
  double step_ms = 0, compute_ms = 0, collective_ms = 0;  // step: the others added up
  std::optional<double> overlapped_ms;  // the step with collectives beside compute (overlap.h); none: nobody asked
  double other_axis_ms = 0;             // of collective_ms: the other axis's
  double memory_bytes = 0, parameter_bytes = 0, stash_bytes = 0, copy_bytes = 0;  // per device, kept
  // The collectives of the written module, in all branches; all_reduce_delayed: the least that could be.
  sharding::CollectiveTotals all_reduce, all_reduce_delayed, all_gather, all_to_all, permute;

  double expected_ms() const { return overlapped_ms.value_or(step_ms); }
};

class PartitionCost {
 public:
  // `other`: in a mesh of two axes, the other one; null: there is none. `stride` as for shard_links. `in_stage`: by
  // flow node, whether it counts (stage_counts.h); null: all do.
  PartitionCost(const sharding::ShardingModel& model, const machine::DeviceModel& device,
                const machine::Cluster& cluster, const OtherAxis* other = nullptr, int stride = 1,
                const std::vector<bool>* in_stage = nullptr);
  // Undecided groups count as whole. collective_ms by sharding::written_placement; gathers included.
  PlanEstimate estimate(const sharding::Propagation& decided) const;
  // The terms that estimate() adds up.
  struct CollectivePart {
    sharding::Collective collective;
    bool other_axis = false;
    double ms = 0;  // per step; waits that a group's collectives pay together are shared out by how often each runs
  };
  struct StepParts {
    std::vector<double> compute_ms;  // by flow node, per step
    std::vector<CollectivePart> collectives;
  };
  StepParts parts(const sharding::Propagation& decided) const;
  // The change that one group makes, additive.
  struct GroupEffect {
    double saved_ms = 0, collective_ms = 0, saved_bytes = 0, collective_bytes = 0;
    std::int32_t collectives = 0;
  };
  GroupEffect effect(sharding::GroupId group) const;
  // Effects of many groups, in much less time than one by one.
  std::vector<GroupEffect> effects(const std::vector<sharding::GroupId>& groups) const;
  double capacity_bytes() const;  // of the smallest device in use
  // No step over so many devices is shorter, overlapped or not: all compute that can be divided divided by all, and no
  // collectives.
  double least_step_ms(int devices) const;
  // The number of times a node runs per step: loops count, and it is 0 in the branches that do not count.
  double runs(sharding::NodeId node) const { return runs_[static_cast<std::size_t>(node)]; }
  // The time per step and device that splitting one instruction saves, and the bytes of one tensor (as parameter and
  // stash).
  double saved_ms(sharding::NodeId op) const { return shared_saving(divisible_ms_[static_cast<std::size_t>(op)]); }
  double kept_bytes(sharding::NodeId tensor) const {
    return parameter_bytes_[static_cast<std::size_t>(tensor)] + stash_bytes_[static_cast<std::size_t>(tensor)];
  }
  // Bytes of a tensor's gathered copy that are kept from the forward to the backward pass: all where both read the
  // tensor.
  double copy_bytes(sharding::NodeId tensor) const { return copy_bytes_[static_cast<std::size_t>(tensor)]; }
  // Likewise for the copy that a collective makes.
  double copy_bytes_of(const sharding::Collective& c) const {
    if (c.kind == CollectiveKind::kAllGather) return copy_bytes(c.node);
    return c.kind == CollectiveKind::kAllToAll ? copy_bytes(c.node) / model_.linkage().shards() : 0;
  }
  // The time that the other axis's collectives save when this one splits the tensor; the time that its reductions save
  // where this one also makes the tensor in parts.
  double other_saved_ms(sharding::NodeId tensor) const { return of_other(other_saved_ms_, tensor); }
  double other_reduction_saved_ms(sharding::NodeId tensor) const { return of_other(other_reduction_saved_ms_, tensor); }
  // Bytes of a tensor that a collective of this axis moves: the share that the other axis leaves.
  double moved_bytes(sharding::NodeId tensor, CollectiveKind kind) const;
  // A decision of this axis as the other one sees it.
  OtherAxis as_other(const sharding::Propagation& decided) const;
  const ShardLinks& links() const { return links_; }
  // The time of one of this axis's collectives, as a function of its bytes.
  const machine::CollectiveTime& time_of(const sharding::Collective& c) const;
  const sharding::ShardingModel& model() const { return model_; }

 private:
  class Waits;
  using CollectiveList = std::vector<const sharding::Collective*>;  // of one group

  const sharding::ShardingModel& model_;
  ShardLinks links_;
  double capacity_bytes_ = 0;
  std::vector<double> collectives_ms(const std::vector<CollectiveList>& groups) const;     // per group
  std::vector<double> own_ms(const std::vector<sharding::Collective>& collectives) const;  // the same
  double shared_saving(double whole) const;  // what splitting takes away of it
  bool is_split(const sharding::Propagation& decided, sharding::NodeId tensor) const;
  static double of_other(const std::vector<double>& saved, sharding::NodeId tensor) {
    return saved.empty() ? 0 : saved[static_cast<std::size_t>(tensor)];
  }
  // By flow node: this axis makes it whole and keeps it in parts, where it splits it.
  std::vector<bool> made_whole() const;

  double compute_ms(const sharding::Propagation& decided, sharding::NodeId op) const;
  double moved_ms(const sharding::Collective& c) const;                      // without the wait for its first byte
  double other_moved_ms(const sharding::Collective& c, bool divided) const;  // the same, `divided` by this axis
  void add_other(const OtherAxis& other);
  // As often as they count.
  std::vector<sharding::Collective> counted(std::vector<sharding::Collective> collectives) const;

  sharding::TensorShares shares_;  // left by the other axis; empty: all
  // Per flow node; empty: there is no other axis.
  std::vector<double> other_saved_ms_, other_reduction_saved_ms_;
  double other_ms_ = 0;        // of the other axis's collectives while this one splits nothing
  double other_waits_ms_ = 0;  // of that, OtherAxis::waits_ms
  ShardLinks other_links_;
  std::vector<sharding::Collective> other_collectives_;
  std::vector<double> runs_;             // per flow node: runs()
  std::vector<double> node_ms_;          // per flow node and step
  std::vector<double> divisible_ms_;     // of that, what splitting divides
  std::vector<double> parameter_bytes_;  // per flow node
  std::vector<double> stash_bytes_;      // per flow node
  std::vector<double> copy_bytes_;       // per flow node
};

// The problem of a set of inputs (indices into model.inputs()): variables for OPP, data for ADP. `groups_of` gets the
// linkage group behind each problem group. memory_limit_bytes 0: no limit. Groups that decide other inputs only are
// left whole, and so are those of `kept_whole` (by linkage group; null: none).
models::PartitionProblem make_problem(const sharding::ShardingModel& model, const PartitionCost& cost,
                                      const std::vector<std::int32_t>& inputs, models::PartitionObjective objective,
                                      double memory_limit_bytes, std::vector<sharding::GroupId>* groups_of,
                                      const std::vector<bool>* kept_whole = nullptr);

}  // namespace automap::partition
