#include "common/pipeline/placed_work.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/numbers.h"
#include "common/pipeline/list_scheduler.h"

namespace automap::pipeline {

MemoryParts fixed_parts(const PlacedStage& stage) {
  MemoryParts all;
  for (const PlacedPart& part : stage.parts) {
    const MemoryParts own = stage.problem->memory_parts(part.p0, part.p1, stage.group(), 0, stage.variant);
    all.weights += own.weights;
    all.gradients += own.gradients;
    all.slots += own.slots;
    all.frozen += own.frozen;
    all.workspace = std::max(all.workspace, own.workspace);
    all.buckets = std::max(all.buckets, own.buckets);
  }
  return all;
}

double fixed_bytes(const PlacedStage& stage) {
  // The same to the bit as for alternating schedules.
  if (stage.parts.size() == 1) {
    return stage.problem->fixed_bytes(stage.part().p0, stage.part().p1, stage.group(), stage.variant);
  }
  const MemoryParts parts = fixed_parts(stage);
  return parts.weights + parts.gradients + parts.slots + parts.frozen + parts.workspace + parts.buckets;
}

WorkTimes work_times(const PlacedPlan& placed) {
  WorkTimes times;
  const bool split = placed.plan.split_backward;
  times.sync_behind = placed.problem().options().gradient_sync == GradientSync::kAfter;
  times.exchange_ms.assign(placed.stages.size(), 0);
  times.optimizer_ms.assign(placed.stages.size(), 0);
  for (const PlacedPlan::PartOf& of : placed.parts()) {
    const PlacedStage& stage = placed.stages[at(of.stage)];
    const PlacedPart& part = stage.parts[at(of.number)];
    const Problem& problem = *stage.problem;
    const DeviceGroup& group = stage.group();
    times.group_of_part.push_back(of.stage);
    const double both = problem.compute_ms(part.p0, part.p1, group, stage.variant);
    const double backward = problem.backward_ms(part.p0, part.p1, group, stage.variant);
    const double weights = split ? problem.weights_ms(part.p0, part.p1, group, stage.variant) : 0;
    times.forward_ms.push_back(both - backward);
    times.backward_ms.push_back(backward - weights);
    if (split) times.weights_ms.push_back(weights);
    times.sync.emplace_back();
    problem.sync_buckets(part.p0, part.p1, group, stage.variant, times.sync.back());
    times.exchange_ms[at(of.stage)] += problem.exchange_ms(part.p0, part.p1, group);
    times.optimizer_ms[at(of.stage)] += problem.optimizer_ms(part.p0, part.p1, group, stage.variant);
    times.stash_bytes.push_back(problem.flight_bytes(part.p0, part.p1, group, stage.variant));
    times.transfer_ms.push_back(part.behind.ms(problem.activation_bytes(part.p1)));
  }
  times.transfer_ms.pop_back();
  // Links between parts of one group take no time.
  for (std::size_t p = 0; p + 1 < times.group_of_part.size(); ++p) {
    if (times.group_of_part[p] == times.group_of_part[p + 1]) times.transfer_ms[p] = 0;
  }
  for (const PlacedStage& stage : placed.stages) {
    const bool limited = stage.problem->options().memory;
    times.room_bytes.push_back(limited ? stage.group().capacity_bytes - fixed_bytes(stage) : kInfinity);
  }
  return times;
}

std::optional<WorkOrder> order_without_times(const Plan& plan, int micro_batches) {
  const int stages = plan.num_stages();
  switch (plan.schedule) {
    case Schedule::kInterleaved: return interleaved_order(stages, plan.chunks, micro_batches);
    case Schedule::kZbH1: return zero_bubble_order(stages, micro_batches);
    case Schedule::kZbV: return zb_v_order(stages, micro_batches);
    case Schedule::kSearched: AM_CHECK(plan.order != nullptr); return *plan.order;
    default: return std::nullopt;
  }
}

WorkOrder order_of(const PlacedPlan& placed, const WorkTimes& times) {
  const Plan& plan = placed.plan;
  const int micro_batches = placed.problem().micro_batches();
  if (std::optional<WorkOrder> order = order_without_times(plan, micro_batches)) return *std::move(order);
  if (plan.schedule == Schedule::kEager) {
    return eager_order(times, plan.warmup.empty() ? most_in_flight(placed) : plan.warmup, micro_batches);
  }
  return alternating_order(in_flight_of(placed), micro_batches);
}

std::vector<KeptWork> kept_of(const WorkTimes& times, const WorkOrder& order) {
  std::vector<KeptWork> kept;
  for (const GroupOrder& own : order) kept.push_back(kept_at_most(own, times.stash_bytes, times.split_backward()));
  return kept;
}

std::vector<KeptWork> kept_of(const PlacedPlan& placed) {
  const WorkTimes times = work_times(placed);
  return kept_of(times, order_of(placed, times));
}

std::vector<int> most_in_flight(const PlacedPlan& placed) {
  std::vector<int> k;
  int before = placed.problem().micro_batches();
  for (const PlacedStage& stage : placed.stages) {
    const PlacedPart& part = stage.part();
    before =
        std::min(before, std::max(1, stage.problem->most_in_flight(part.p0, part.p1, stage.group(), stage.variant)));
    k.push_back(before);
  }
  return k;
}

}  // namespace automap::pipeline
