#include "common/pipeline/timeline.h"

#include <algorithm>

#include "common/base/numbers.h"
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
  stage.problem->sync_buckets(stage.p0, stage.p1, devices, stage.variant, buckets);
  double summed = start;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const double begins = std::max(summed, start + buckets[i].ready_share * last_backward_ms);
    summed = begins + buckets[i].ms;
    group->gradients.push_back({TimelineKind::kBucket, static_cast<int>(i) + 1, begins, summed});
  }
  const double exchange = stage.problem->exchange_ms(stage.p0, stage.p1, devices);
  if (exchange > 0) {
    group->gradients.push_back(
        {TimelineKind::kExchange, 0, std::max(summed, end.sync_ms - exchange), std::max(summed, end.sync_ms)});
  }
  if (end.all_ms > end.sync_ms) {
    group->compute.push_back({TimelineKind::kOptimizer, 0, end.sync_ms, end.all_ms});
  }
}

std::vector<MemoryLevel> memory_levels(const PlacedStage& stage, const std::vector<TimelineEvent>& compute) {
  const double fixed = stage.problem->fixed_bytes(stage.p0, stage.p1, stage.group(), stage.variant);
  const double each = stage.problem->flight_bytes(stage.p0, stage.p1, stage.group(), stage.variant);
  std::vector<MemoryLevel> levels = {{0, 0, fixed}};
  int in_flight = 0;
  for (const TimelineEvent& event : compute) {
    const bool forward = event.kind == TimelineKind::kForward;
    if (!forward && event.kind != TimelineKind::kBackward) continue;
    in_flight += forward ? 1 : -1;
    const double when = forward ? event.start_ms : event.end_ms;
    const MemoryLevel level = {when, in_flight, fixed + each * in_flight};
    // What is given back and taken at the same moment is no step.
    if (forward && levels.back().start_ms == when) {
      levels.back() = level;
    } else {
      levels.push_back(level);
    }
  }
  return levels;
}

}  // namespace

const char* to_string(TimelineKind kind) {
  switch (kind) {
    case TimelineKind::kForward: return "forward";
    case TimelineKind::kBackward: return "backward";
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

double timeline_events(double groups, double micro_batches) {
  return 4 * groups * micro_batches;
}

Timeline record_timeline(const PlacedPlan& placed) {
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
    group.memory = memory_levels(placed.stages[s], group.compute);
    add_gradients(placed.stages[s], times.backward_ms[s], step.ends[s], &group);
  }
  return timeline;
}

}  // namespace automap::pipeline
