// The event simulation of lists of work (work_order.h): an item starts when its group is free, its inputs have come,
// and the item in front of it in the list is done. Links are full-duplex: one FIFO from each group to each other one. A
// group's gradients are summed bucket by bucket, as its parts' last backwards (or passes for the weights) make them
// ready; behind that come the exchange of shared gradients and the optimizer.
#pragma once

#include <vector>

#include "common/pipeline/problem.h"
#include "common/pipeline/work_order.h"

namespace automap::pipeline {

// Times of the model's parts for one micro-batch.
struct WorkTimes {
  std::vector<int> group_of_part;                 // [C], from 0
  std::vector<double> forward_ms, backward_ms;    // [C]
  std::vector<double> weights_ms;                 // [C], beside backward_ms; empty: the backward is one pass
  std::vector<double> transfer_ms;                // [C - 1], one way, behind each part; 0 where both are of one group
  bool sync_behind = false;                       // all of a group's sync behind its last work (GradientSync::kAfter)
  std::vector<std::vector<SyncBucket>> sync;      // [C]
  std::vector<double> exchange_ms, optimizer_ms;  // [S], once, behind the sync
  // For orders that are made within memory: a part's stash of a micro-batch, from its forward to the end of its
  // backward (of its pass for the weights), and the room of each group for it.
  std::vector<double> stash_bytes;  // [C]
  std::vector<double> room_bytes;   // [S]

  int num_parts() const { return static_cast<int>(group_of_part.size()); }
  int num_groups() const { return static_cast<int>(exchange_ms.size()); }
  bool split_backward() const { return !weights_ms.empty(); }
  double item_ms(const WorkItem& item) const {
    const std::size_t part = static_cast<std::size_t>(item.part);
    return item.kind == WorkKind::kForward    ? forward_ms[part]
           : item.kind == WorkKind::kBackward ? backward_ms[part]
                                              : weights_ms[part];
  }
  // All of a group's work on one micro-batch.
  double group_ms(int group) const;
};

// An interval of the simulation's record, for pictures.
struct WorkInterval {
  WorkItem item;  // of a message: what was sent behind this work
  double start_ms = 0, end_ms = 0;
};
struct WorkRecord {
  struct Message : WorkInterval {
    int from = 0, to = 0;  // groups, from 0
  };
  std::vector<std::vector<WorkInterval>> work;  // [S], each in the order of time
  std::vector<Message> messages;                // those from one group to another in the order of time
  std::vector<std::vector<WorkInterval>> sync;  // [S]: buckets; of an item only the part counts
  std::vector<double> sync_end_ms, end_ms;      // [S]
};

// The step in ms; infinite where the lists wait for each other. The lists must hold what order_fault() asks of each
// alone.
double simulate_order_ms(const WorkTimes& times, int micro_batches, const WorkOrder& order,
                         WorkRecord* record = nullptr);

// The memory that a group keeps for its micro-batches at the fullest moment of its list, bytes, and the number of those
// micro-batches (each counted once for every part of the group that keeps it).
struct KeptWork {
  double bytes = 0;
  int micro_batches = 0;
};
KeptWork kept_at_most(const GroupOrder& order, const std::vector<double>& stash_bytes, bool split_backward);

// No list of work on these groups takes less, whatever their order: the work of a group, behind the least time before
// it can begin and in front of the least time that follows it, and one micro-batch's way through all parts and back. A
// group has nothing but forwards to do until its first backward can begin, and no more of these than its memory holds.
double any_order_bound_ms(const WorkTimes& times, int micro_batches);

}  // namespace automap::pipeline
