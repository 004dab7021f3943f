// The timeline of a plan, what every group does when, for pictures and traces: the record of the event simulation
// (schedule.h), the gradient sync bucket by bucket, and memory as micro-batches come and go.
#pragma once

#include <cstdint>
#include <vector>

#include "common/pipeline/placed_plan.h"

namespace automap::pipeline {

enum class TimelineKind : std::uint8_t {
  kForward,
  kBackward,  // the gradients of the weights too, where they are no pass of their own; a recomputed forward, too
  kWeights,
  kTransfer,  // activations to the next group, or gradients to the one in front
  kBucket,    // gradients summed over the replicas
  kExchange,  // shared gradients exchanged with another group
  kOptimizer
};
const char* to_string(TimelineKind kind);  // "forward", "backward", "weight gradients", "transfer", ...

struct TimelineEvent {
  TimelineKind kind = TimelineKind::kForward;
  int number = 0;  // the micro-batch or the bucket, from 1; of what happens once 0
  double start_ms = 0, end_ms = 0;
  int part = 0;  // of the model, from 1; 0: the group runs one, or it is of none
};

// From this moment on.
struct MemoryLevel {
  double start_ms = 0;
  int in_flight = 0;  // micro-batches, each counted once for every part of the group that keeps it
  double bytes = 0;   // on each device
};

struct TimelineGroup {
  // Each in the order of time, and none overlaps: a group computes, its ports sum gradients, and its two links send (of
  // the last group, where it runs several parts, to the first as to the next).
  std::vector<TimelineEvent> compute, gradients, to_next, to_previous;
  // Weights, gradients, optimizer state, workspace and buckets count all the time, a micro-batch's stash from the start
  // of its forward to the end of its backward. The largest level is that of the answer (memory_of), except for an
  // adaptive plan without a warm-up, which is simulated with a quickly chosen one: that may keep less.
  std::vector<MemoryLevel> memory;
  double capacity_bytes = 0;  // of its smallest device, without the reserve
  double busy_ms() const;     // of compute
  double most_bytes() const;  // of memory
};

struct Timeline {
  std::vector<TimelineGroup> groups;
  int micro_batches = 0;
  double step_ms = 0;  // simulate_step_ms
};

// The number of events that record_timeline() makes, without those that come once in all or once a bucket.
double timeline_events(double parts, double micro_batches, bool split_backward = false);

Timeline record_timeline(const PlacedPlan& placed);

}  // namespace automap::pipeline
