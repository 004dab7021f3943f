#include "common/pipeline/placed_plan.h"

#include <algorithm>
#include <cstdio>

#include "common/base/numbers.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/warmup.h"

namespace automap::pipeline {
namespace {

// The first stage whose compute is below kIdleShare of the mean over stages; 0: none, or idle stages are allowed.
int idle_stage(const PlacedPlan& placed) {
  if (placed.problem().options().allow_idle_stages) return 0;
  std::vector<double> computes;
  double sum = 0;
  for (const PlacedStage& stage : placed.stages) {
    computes.push_back(stage.problem->compute_ms(stage.p0, stage.p1, stage.group(), stage.variant));
    sum += computes.back();
  }
  for (int s = 1; s <= placed.num_stages(); ++s) {
    const PlacedStage& stage = placed.stages[at(s - 1)];
    if (stage.problem->idles(stage.p0, stage.p1, stage.group()) ||
        idles_beside(computes[at(s - 1)], sum, placed.num_stages())) {
      return s;
    }
  }
  return 0;
}

std::string reason_of_stage(const PlacedPlan& placed, int number, int in_flight) {
  const PlacedStage& stage = placed.stages[at(number - 1)];
  const Problem& problem = *stage.problem;
  const DeviceGroup& group = stage.group();
  if (problem.stages_need_variables(placed.num_stages()) && problem.variables(stage.p0, stage.p1) == 0) {
    return "stage " + std::to_string(number) + " has no trainable variable";
  }
  const double bytes = problem.memory_bytes(stage.p0, stage.p1, group, in_flight, stage.variant);
  if (!problem.options().memory || bytes <= group.capacity_bytes) return "";
  char text[200];
  std::snprintf(text, sizeof text, "stage %d needs %.2f GiB of the %.2f GiB on each of its devices", number,
                bytes / (1 << 30), group.capacity_bytes / (1 << 30));
  return text;
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

PlacedPlan place(const Problem& problem, const Plan& plan) {
  PlacedPlan placed;
  placed.plan = plan;
  for (int& cut : placed.plan.device_cuts) cut *= problem.options().width;
  for_each_stage(problem, plan, [&](int s, int p0, int p1, int d0, int d1) {
    placed.stages.push_back({&problem, p0, p1, d0, d1, plan.variant(s), {}});
    if (s > 1) {
      PlacedStage& before = placed.stages[at(s - 2)];
      before.behind = problem.link(before.d0, before.d1, d1);
    }
    return true;
  });
  return placed;
}

PipelineTimes pipeline_times(const PlacedPlan& placed) {
  PipelineTimes times;
  const Plan& plan = placed.plan;
  times.in_flight = plan.warmup;
  for (const PlacedStage& stage : placed.stages) {
    add_stage_times(*stage.problem, stage.p0, stage.p1, stage.group(), stage.variant, times);
    if (plan.schedule == Schedule::kAdaptive) {
      add_most_in_flight(*stage.problem, stage.p0, stage.p1, stage.group(), stage.variant, plan, times);
    }
    if (&stage != &placed.stages.back()) {
      times.transfer_ms.push_back(stage.behind.ms(stage.problem->activation_bytes(stage.p1)));
    }
  }
  return times;
}

std::vector<int> in_flight_of(const PlacedPlan& placed) {
  const Plan& plan = placed.plan;
  if (!plan.warmup.empty()) return plan.warmup;
  if (plan.schedule == Schedule::kAdaptive) return pipeline_times(placed).in_flight;
  std::vector<int> k;
  for (int s = 1; s <= placed.num_stages(); ++s) {
    k.push_back(in_flight(plan.schedule, placed.num_stages(), s, placed.problem().micro_batches()));
  }
  return k;
}

std::vector<double> memory_of(const PlacedPlan& placed) {
  const std::vector<int> in_flight = in_flight_of(placed);
  std::vector<double> bytes;
  for (const PlacedStage& stage : placed.stages) {
    bytes.push_back(
        stage.problem->memory_bytes(stage.p0, stage.p1, stage.group(), in_flight[bytes.size()], stage.variant));
  }
  return bytes;
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
  const Problem& problem = placed.problem();
  return step_length_ms(pipeline_times(placed), problem.micro_batches(), placed.plan.schedule, problem.options().value);
}

double simulate_step_ms(const PlacedPlan& placed) {
  PipelineTimes times = pipeline_times(placed);
  const Plan& plan = placed.plan;
  if (plan.schedule == Schedule::kAdaptive && plan.warmup.empty()) return quick_warmup(placed.problem(), plan, times);
  return simulate_step_ms(times, placed.problem().micro_batches(), plan.schedule);
}

std::string infeasible_reason(const PlacedPlan& placed) {
  // An invalid group has no columns to ask.
  std::string reason = reason_of_groups(placed);
  if (!reason.empty()) return reason;
  const std::vector<int> k = in_flight_of(placed);
  for (int s = 1; s <= placed.num_stages() && reason.empty(); ++s) reason = reason_of_stage(placed, s, k[at(s - 1)]);
  if (!reason.empty()) return reason;
  if (const int idle = idle_stage(placed); idle > 0) {
    reason = "stage " + std::to_string(idle) + " has hardly anything to compute";
  }
  return reason;
}

}  // namespace automap::pipeline
