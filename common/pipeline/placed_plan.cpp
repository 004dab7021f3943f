#include "common/pipeline/placed_plan.h"

#include <algorithm>
#include <cstdio>

#include "common/base/check.h"
#include "common/base/numbers.h"
#include "common/pipeline/placed_work.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/warmup.h"

namespace automap::pipeline {
namespace {

double compute_of(const PlacedStage& stage) {
  double ms = 0;
  for (const PlacedPart& part : stage.parts) {
    ms += stage.problem->compute_ms(part.p0, part.p1, stage.group(), stage.variant);
  }
  return ms;
}

// The first stage whose compute is below kIdleShare of the mean over stages; 0: none, or idle stages are allowed.
int idle_stage(const PlacedPlan& placed) {
  if (placed.problem().options().allow_idle_stages) return 0;
  std::vector<double> computes;
  double sum = 0;
  for (const PlacedStage& stage : placed.stages) {
    computes.push_back(compute_of(stage));
    sum += computes.back();
  }
  for (int s = 1; s <= placed.num_stages(); ++s) {
    const PlacedStage& stage = placed.stages[at(s - 1)];
    const bool of_one_idles =
        stage.parts.size() == 1 && stage.problem->idles(stage.part().p0, stage.part().p1, stage.group());
    if (of_one_idles || idles_beside(computes[at(s - 1)], sum, placed.num_stages())) return s;
  }
  return 0;
}

std::string reason_of_stage(const PlacedPlan& placed, int number, double bytes) {
  const PlacedStage& stage = placed.stages[at(number - 1)];
  const Problem& problem = *stage.problem;
  const DeviceGroup& group = stage.group();
  const bool variable = std::any_of(stage.parts.begin(), stage.parts.end(),
                                    [&](const PlacedPart& part) { return problem.variables(part.p0, part.p1) > 0; });
  if (problem.stages_need_variables(placed.num_stages()) && !variable) {
    return "stage " + std::to_string(number) + " has no trainable variable";
  }
  if (!problem.options().memory || bytes <= group.capacity_bytes) return "";
  char text[200];
  std::snprintf(text, sizeof text, "stage %d needs %.2f GiB of the %.2f GiB on each of its devices", number,
                bytes / (1 << 30), group.capacity_bytes / (1 << 30));
  return text;
}

// The rule of its ordered schedule that the plan breaks, in words; empty: none.
std::string reason_of_schedule(const PlacedPlan& placed) {
  const Plan& plan = placed.plan;
  const int stages = placed.num_stages(), micro_batches = placed.problem().micro_batches();
  const std::string fault = micro_batches_fault(plan.schedule, stages, micro_batches);
  if (!fault.empty()) return fault;
  if (plan.split_backward) {
    for (const PlacedStage& stage : placed.stages) {
      if (splits_backward(stage.problem->variant(stage.variant))) continue;
      return "a backward in two passes is told for stages that recompute nothing and shard no gradients";
    }
    if (!placed.problem().has_weights_pass()) {
      return "what of the backward makes gradients of weights is not told apart in this profile";
    }
  }
  return plan.order == nullptr ? ""
                               : order_fault(*plan.order, group_of_parts(plan.placement, stages, plan.chunks),
                                             micro_batches, plan.split_backward);
}

// Replicas that would share samples; empty: none do.
std::string reason_of_groups(const PlacedPlan& placed) {
  for (int s = 1; s <= placed.num_stages(); ++s) {
    const PlacedStage& stage = placed.stages[at(s - 1)];
    if (stage.group().valid) continue;
    char text[200];
    std::snprintf(text, sizeof text, "stage %d has %d %s, which do not divide the %g samples of a micro-batch", s,
                  stage.d1 - stage.d0, stage.width() == 1 ? "devices" : "replicas",
                  placed.problem().micro_batch_samples());
    return text;
  }
  return "";
}

// Groups and schedule; an invalid group has no columns to ask.
std::string reason_without_memory(const PlacedPlan& placed) {
  const std::string reason = reason_of_groups(placed);
  return reason.empty() && !is_alternating(placed.plan.schedule) ? reason_of_schedule(placed) : reason;
}

// Variables, memory and idling, of stages that need so many bytes on each of their devices.
std::string reason_of_stages(const PlacedPlan& placed, const std::vector<double>& bytes) {
  // Ordered schedules sum their memory item by item, which rounds differently.
  const double rounding = is_alternating(placed.plan.schedule) ? 1 : 1 + 1e-9;
  for (int s = 1; s <= placed.num_stages(); ++s) {
    const std::string reason = reason_of_stage(placed, s, bytes[at(s - 1)] / rounding);
    if (!reason.empty()) return reason;
  }
  const int idle = idle_stage(placed);
  return idle > 0 ? "stage " + std::to_string(idle) + " has hardly anything to compute" : "";
}

// Memory of each stage under an ordered schedule, bytes on each of its devices.
std::vector<double> memory_with(const PlacedPlan& placed, const std::vector<KeptWork>& kept) {
  std::vector<double> bytes;
  for (const PlacedStage& stage : placed.stages) bytes.push_back(fixed_bytes(stage) + kept[bytes.size()].bytes);
  return bytes;
}

}  // namespace

std::vector<int> PlacedStage::device_numbers() const {
  std::vector<int> numbers;
  for (int d = d0; d < d1; ++d) {
    for (int of_replica = 0; of_replica < width(); ++of_replica) {
      numbers.push_back(problem->device_number(d) + of_replica);
    }
  }
  return numbers;
}

std::vector<int> PlacedPlan::device_numbers() const {
  std::vector<int> numbers;
  for (const PlacedStage& stage : stages) {
    const std::vector<int> own = stage.device_numbers();
    numbers.insert(numbers.end(), own.begin(), own.end());
  }
  return numbers;
}

std::vector<PlacedPlan::PartOf> PlacedPlan::parts() const {
  std::vector<PartOf> of;
  std::vector<int> seen(stages.size(), 0);
  for (const int stage : group_of_parts(plan.placement, num_stages(), plan.chunks)) {
    of.push_back({stage, seen[at(stage)]++});
  }
  return of;
}

PlacedPlan place(const Problem& problem, const Plan& plan) {
  PlacedPlan placed;
  placed.plan = plan;
  for (int& cut : placed.plan.device_cuts) cut *= problem.options().width;
  const int stages = plan.num_stages();
  for (int s = 1; s <= stages; ++s) {
    placed.stages.push_back({&problem,
                             {},
                             s == 1 ? 0 : plan.device_cuts[at(s - 2)],
                             s == stages ? problem.num_devices() : plan.device_cuts[at(s - 1)],
                             plan.variant(s)});
  }
  const std::vector<int> groups = group_of_parts(plan.placement, stages, plan.chunks);
  for (std::size_t part = 0; part < groups.size(); ++part) {
    PlacedStage& own = placed.stages[at(groups[part])];
    const bool last = part + 1 == groups.size();
    own.parts.push_back({part == 0 ? 0 : plan.cuts[part - 1], last ? problem.num_instructions() : plan.cuts[part]});
    if (last || groups[part + 1] == groups[part]) continue;
    const PlacedStage& next = placed.stages[at(groups[part + 1])];
    if (own.group().valid && next.group().valid) {
      own.parts.back().behind = problem.link(own.d0, own.d1, next.d0, next.d1);
    }
  }
  return placed;
}

PipelineTimes pipeline_times(const PlacedPlan& placed) {
  PipelineTimes times;
  const Plan& plan = placed.plan;
  AM_CHECK(is_alternating(plan.schedule));
  times.in_flight = plan.warmup;
  for (const PlacedStage& stage : placed.stages) {
    const auto [p0, p1, behind] = stage.part();
    add_stage_times(*stage.problem, p0, p1, stage.group(), stage.variant, times);
    if (plan.schedule == Schedule::kAdaptive) {
      add_most_in_flight(*stage.problem, p0, p1, stage.group(), stage.variant, plan, times);
    }
    if (&stage != &placed.stages.back()) {
      times.transfer_ms.push_back(behind.ms(stage.problem->activation_bytes(p1)));
    }
  }
  return times;
}

std::vector<int> in_flight_of(const PlacedPlan& placed) {
  const Plan& plan = placed.plan;
  if (!plan.warmup.empty()) return plan.warmup;
  if (plan.schedule == Schedule::kAdaptive) return pipeline_times(placed).in_flight;
  std::vector<int> k;
  if (!is_alternating(plan.schedule)) {
    for (const KeptWork& kept : kept_of(placed)) k.push_back(kept.micro_batches);
    return k;
  }
  for (int s = 1; s <= placed.num_stages(); ++s) {
    k.push_back(in_flight(plan.schedule, placed.num_stages(), s, placed.problem().micro_batches()));
  }
  return k;
}

std::vector<double> memory_of(const PlacedPlan& placed) {
  if (!is_alternating(placed.plan.schedule)) return memory_with(placed, kept_of(placed));
  std::vector<double> bytes;
  const std::vector<int> in_flight = in_flight_of(placed);
  for (const PlacedStage& stage : placed.stages) {
    bytes.push_back(stage.problem->memory_bytes(stage.part().p0, stage.part().p1, stage.group(),
                                                in_flight[bytes.size()], stage.variant));
  }
  return bytes;
}

std::vector<MemoryParts> memory_parts_of(const PlacedPlan& placed) {
  std::vector<MemoryParts> all;
  if (!is_alternating(placed.plan.schedule)) {
    const std::vector<KeptWork> kept = kept_of(placed);
    for (const PlacedStage& stage : placed.stages) {
      MemoryParts parts = fixed_parts(stage);
      parts.stash = kept[all.size()].bytes;
      all.push_back(parts);
    }
    return all;
  }
  const std::vector<int> in_flight = in_flight_of(placed);
  for (const PlacedStage& stage : placed.stages) {
    all.push_back(stage.problem->memory_parts(stage.part().p0, stage.part().p1, stage.group(), in_flight[all.size()],
                                              stage.variant));
  }
  return all;
}

double fullest_share(const PlacedPlan& placed) {
  const std::vector<double> bytes = memory_of(placed);
  double share = 0;
  for (std::size_t s = 0; s < bytes.size(); ++s) {
    share = std::max(share, bytes[s] / placed.stages[s].group().capacity_bytes);
  }
  return share;
}

double value_ms(const PlacedPlan& placed) {
  if (!is_alternating(placed.plan.schedule)) return simulate_step_ms(placed);
  const Problem& problem = placed.problem();
  return step_length_ms(pipeline_times(placed), problem.micro_batches(), placed.plan.schedule, problem.options().value);
}

double simulate_step_ms(const PlacedPlan& placed) {
  if (!is_alternating(placed.plan.schedule)) {
    const WorkTimes work = work_times(placed);
    return simulate_order_ms(work, placed.problem().micro_batches(), order_of(placed, work));
  }
  PipelineTimes times = pipeline_times(placed);
  const Plan& plan = placed.plan;
  if (plan.schedule == Schedule::kAdaptive && plan.warmup.empty()) return quick_warmup(placed.problem(), plan, times);
  return simulate_step_ms(times, placed.problem().micro_batches(), plan.schedule);
}

std::string infeasible_reason(const PlacedPlan& placed) {
  const std::string reason = reason_without_memory(placed);
  return reason.empty() ? reason_of_stages(placed, memory_of(placed)) : reason;
}

double feasible_step_ms(const PlacedPlan& placed, const WorkTimes& times, const WorkOrder& order) {
  if (!reason_without_memory(placed).empty()) return kInfinity;
  if (!reason_of_stages(placed, memory_with(placed, kept_of(times, order))).empty()) return kInfinity;
  return simulate_order_ms(times, placed.problem().micro_batches(), order);
}

}  // namespace automap::pipeline
