#include "common/pipeline/timeline.h"

#include <algorithm>

#include "common/base/numbers.h"
#include "common/pipeline/placed_work.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/warmup.h"

namespace automap::pipeline {
namespace {

// The sync as sync_left_ms() replays it beside the last backward, then the exchange, then the optimizer.
void add_gradients(const PlacedStage& stage, double last_backward_ms, const RecordedStep::End& end,
                   TimelineGroup* group) {
  const DeviceGroup& devices = stage.group();
  const double start = end.backward_ms - last_backward_ms;
  std::vector<SyncBucket> buckets;
  stage.problem->sync_buckets(stage.part().p0, stage.part().p1, devices, stage.variant, buckets);
  double summed = start;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const double begins = std::max(summed, start + buckets[i].ready_share * last_backward_ms);
    summed = begins + buckets[i].ms;
    group->gradients.push_back({TimelineKind::kBucket, static_cast<int>(i) + 1, begins, summed});
  }
  const double exchange = stage.problem->exchange_ms(stage.part().p0, stage.part().p1, devices);
  if (exchange > 0) {
    group->gradients.push_back(
        {TimelineKind::kExchange, 0, std::max(summed, end.sync_ms - exchange), std::max(summed, end.sync_ms)});
  }
  if (end.all_ms > end.sync_ms) {
    group->compute.push_back({TimelineKind::kOptimizer, 0, end.sync_ms, end.all_ms});
  }
}

// The memory that a stage keeps for a micro-batch, from the start of its part's forward to the end of `done`.
struct Kept {
  double fixed_bytes = 0;
  TimelineKind done = TimelineKind::kBackward;
  std::vector<double> by_part;  // of the model's parts, from 0; of one part for each stage, one
};

std::vector<MemoryLevel> memory_levels(const Kept& kept, const std::vector<TimelineEvent>& compute) {
  std::vector<MemoryLevel> levels = {{0, 0, kept.fixed_bytes}};
  int in_flight = 0;
  double bytes = 0;
  for (const TimelineEvent& event : compute) {
    const bool forward = event.kind == TimelineKind::kForward;
    if (!forward && event.kind != kept.done) continue;
    in_flight += forward ? 1 : -1;
    const double each = kept.by_part[at(std::max(0, event.part - 1))];
    // One part is multiplied, not summed, so that it rounds as the cost of a stage does.
    bytes = kept.by_part.size() == 1 ? each * in_flight : bytes + (forward ? each : -each);
    const double when = forward ? event.start_ms : event.end_ms;
    const MemoryLevel level = {when, in_flight, kept.fixed_bytes + bytes};
    // Memory released and taken at the same moment makes no step.
    if (forward && levels.back().start_ms == when) {
      levels.back() = level;
    } else {
      levels.push_back(level);
    }
  }
  return levels;
}

TimelineKind kind_of(WorkKind kind) {
  return kind == WorkKind::kForward    ? TimelineKind::kForward
         : kind == WorkKind::kBackward ? TimelineKind::kBackward
                                       : TimelineKind::kWeights;
}

// Records a schedule that is lists of work.
Timeline record_order(const PlacedPlan& placed) {
  const WorkTimes times = work_times(placed);
  Timeline timeline;
  timeline.micro_batches = placed.problem().micro_batches();
  WorkRecord record;
  timeline.step_ms = simulate_order_ms(times, timeline.micro_batches, order_of(placed, times), &record);
  timeline.groups.resize(placed.stages.size());
  const int groups = times.num_groups();
  const auto part_of = [&](const WorkItem& item) { return placed.plan.chunks > 1 ? item.part + 1 : 0; };
  for (int g = 0; g < groups; ++g) {
    TimelineGroup& group = timeline.groups[at(g)];
    const PlacedStage& stage = placed.stages[at(g)];
    for (const WorkInterval& one : record.work[at(g)]) {
      group.compute.push_back(
          {kind_of(one.item.kind), one.item.micro_batch + 1, one.start_ms, one.end_ms, part_of(one.item)});
    }
    Kept kept;
    kept.fixed_bytes = fixed_bytes(stage);
    kept.done = kind_of(last_pass(times.split_backward()));
    kept.by_part = placed.plan.chunks > 1 ? times.stash_bytes : std::vector<double>{times.stash_bytes[at(g)]};
    group.memory = memory_levels(kept, group.compute);
    group.capacity_bytes = stage.group().capacity_bytes;
    int number = 0;
    for (const WorkInterval& bucket : record.sync[at(g)]) {
      group.gradients.push_back(
          {TimelineKind::kBucket, ++number, bucket.start_ms, bucket.end_ms, part_of(bucket.item)});
    }
    const double synced = record.sync_end_ms[at(g)];
    if (times.exchange_ms[at(g)] > 0) {
      group.gradients.push_back({TimelineKind::kExchange, 0, synced - times.exchange_ms[at(g)], synced});
    }
    if (record.end_ms[at(g)] > synced) {
      group.compute.push_back({TimelineKind::kOptimizer, 0, synced, record.end_ms[at(g)]});
    }
  }
  for (const WorkRecord::Message& one : record.messages) {
    TimelineGroup& from = timeline.groups[at(one.from)];
    const bool around = groups > 2 && (one.from == groups - 1 ? one.to == 0 : one.from == 0 && one.to == groups - 1);
    const bool to_next = around ? one.to == 0 : one.to > one.from;
    (to_next ? from.to_next : from.to_previous)
        .push_back({TimelineKind::kTransfer, one.item.micro_batch + 1, one.start_ms, one.end_ms, part_of(one.item)});
  }
  return timeline;
}

}  // namespace

const char* to_string(TimelineKind kind) {
  switch (kind) {
    case TimelineKind::kForward: return "forward";
    case TimelineKind::kBackward: return "backward";
    case TimelineKind::kWeights: return "weight gradients";
    case TimelineKind::kTransfer: return "transfer";
    case TimelineKind::kBucket: return "gradient bucket";
    case TimelineKind::kExchange: return "shared gradients";
    case TimelineKind::kOptimizer: return "optimizer";
  }
  return "";
}

double TimelineGroup::busy_ms() const {
  double busy = 0;
  for (const TimelineEvent& event : compute) busy += event.end_ms - event.start_ms;
  return busy;
}

double TimelineGroup::most_bytes() const {
  double most = 0;
  for (const MemoryLevel& level : memory) most = std::max(most, level.bytes);
  return most;
}

double timeline_events(double parts, double micro_batches, bool split_backward) {
  return (split_backward ? 5 : 4) * parts * micro_batches;
}

Timeline record_timeline(const PlacedPlan& placed) {
  if (!is_alternating(placed.plan.schedule)) return record_order(placed);
  PipelineTimes times = pipeline_times(placed);
  const Plan& plan = placed.plan;
  Timeline timeline;
  timeline.micro_batches = placed.problem().micro_batches();
  if (plan.schedule == Schedule::kAdaptive && plan.warmup.empty()) quick_warmup(placed.problem(), plan, times);
  const RecordedStep step = record_step(times, timeline.micro_batches, plan.schedule);
  timeline.step_ms = step.step_ms;
  timeline.groups.resize(placed.stages.size());
  for (const StageInterval& one : step.work) {
    timeline.groups[at(one.stage - 1)].compute.push_back(
        {one.backward ? TimelineKind::kBackward : TimelineKind::kForward, one.micro_batch, one.start_ms, one.end_ms});
  }
  for (const StageInterval& one : step.messages) {
    TimelineGroup& group = timeline.groups[at(one.stage - 1)];
    (one.backward ? group.to_previous : group.to_next)
        .push_back({TimelineKind::kTransfer, one.micro_batch, one.start_ms, one.end_ms});
  }
  for (std::size_t s = 0; s < timeline.groups.size(); ++s) {
    TimelineGroup& group = timeline.groups[s];
    group.capacity_bytes = placed.stages[s].group().capacity_bytes;
    const PlacedStage& stage = placed.stages[s];
    Kept kept;
    kept.fixed_bytes = fixed_bytes(stage);
    kept.by_part = {stage.problem->flight_bytes(stage.part().p0, stage.part().p1, stage.group(), stage.variant)};
    group.memory = memory_levels(kept, group.compute);
    add_gradients(placed.stages[s], times.backward_ms[s], step.ends[s], &group);
  }
  return timeline;
}

}  // namespace automap::pipeline
