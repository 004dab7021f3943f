#include "common/pipeline/cost.h"

#include <algorithm>
#include <cstdio>

namespace automap::pipeline {

PipelineTimes pipeline_times(const Problem& problem, const Plan& plan) {
  PipelineTimes times;
  pipeline_times(problem, plan, times);
  return times;
}

void pipeline_times(const Problem& problem, const Plan& plan, PipelineTimes& times) {
  const int stages = plan.num_stages();
  const double phi = problem.forward_fraction();
  times.forward_ms.clear();
  times.backward_ms.clear();
  times.allreduce_ms.clear();
  times.transfer_ms.clear();
  int p0 = 0, d0 = 0;
  for (int s = 0; s < stages; ++s) {
    const std::size_t i = static_cast<std::size_t>(s);
    const bool last = s == stages - 1;
    const int p1 = last ? problem.num_instructions() : plan.cuts[i];
    const int d1 = last ? problem.num_devices() : plan.device_cuts[i];
    const DeviceGroup& group = problem.group(d0, d1);
    const double compute = problem.compute_ms(p0, p1, group);
    times.forward_ms.push_back(phi * compute);
    times.backward_ms.push_back((1 - phi) * compute);
    times.allreduce_ms.push_back(problem.allreduce_ms(p0, p1, group));
    if (!last) {
      const int d2 = s + 2 == stages ? problem.num_devices() : plan.device_cuts[i + 1];
      times.transfer_ms.push_back(problem.transfer_ms(p1, d0, d1, d2));
    }
    p0 = p1;
    d0 = d1;
  }
}

double path_length_ms(const PipelineTimes& times, int micro_batches, Schedule schedule, ValueForm form) {
  const int stages = times.num_stages();
  const double steady = micro_batches - 1;
  // Round trips R_s and P from the back, so that sums are formed the same way in every solver.
  double round_trip = 0;
  // Reused between calls: local searches evaluate millions of plans.
  thread_local std::vector<double> round_trips;
  round_trips.resize(static_cast<std::size_t>(stages));
  for (int s = stages - 1; s >= 0; --s) {
    const std::size_t i = static_cast<std::size_t>(s);
    if (s + 1 < stages) round_trip += 2 * times.transfer_ms[i];
    round_trip += times.forward_ms[i] + times.backward_ms[i];
    round_trips[i] = round_trip;
  }
  const double total = round_trip;

  double length = 0, filled = 0;
  for (int s = 0; s < stages; ++s) {
    const std::size_t i = static_cast<std::size_t>(s);
    const double f = times.forward_ms[i], b = times.backward_ms[i], stage = f + b;
    filled += stage;
    length = std::max(length, filled + steady * stage);
    if (form == ValueForm::kFull) {
      const int k = in_flight(schedule, stages, s + 1, micro_batches);
      length = std::max(length, total + steady * stage - (k - 1) * std::min(f, b));
      if (micro_batches > k) {
        const double stall = round_trips[i] - k * stage;
        const int laps = (micro_batches - 1) / k;
        length = std::max(length, total + steady * stage + std::max(stall, laps * stall));
      }
    }
    if (s + 1 < stages) {
      const double t = times.transfer_ms[i];
      filled += 2 * t;
      length = std::max(length, filled + steady * t);
    }
  }
  return length;
}

double exposed_allreduce_ms(const PipelineTimes& times) {
  double exposed = 0, drained = 0;
  for (std::size_t s = 0; s < times.allreduce_ms.size(); ++s) {
    exposed = std::max(exposed, times.allreduce_ms[s] - drained);
    drained += times.backward_ms[s];
    if (s < times.transfer_ms.size()) drained += times.transfer_ms[s];
  }
  return exposed;
}

double step_length_ms(const PipelineTimes& times, int micro_batches, Schedule schedule, ValueForm form) {
  return path_length_ms(times, micro_batches, schedule, form) + exposed_allreduce_ms(times);
}

double value_ms(const Problem& problem, const Plan& plan) {
  thread_local PipelineTimes times;
  pipeline_times(problem, plan, times);
  return step_length_ms(times, problem.micro_batches(), plan.schedule, problem.options().value);
}

bool valid_structure(const Problem& problem, const Plan& plan) {
  const auto increasing_within = [](const std::vector<int>& cuts, int end) {
    int previous = 0;
    for (int cut : cuts) {
      if (cut <= previous || cut >= end) return false;
      previous = cut;
    }
    return true;
  };
  return plan.cuts.size() == plan.device_cuts.size() && increasing_within(plan.cuts, problem.num_instructions()) &&
         increasing_within(plan.device_cuts, problem.num_devices());
}

namespace {

// Calls visit(stage from 1, p0, p1, group, in flight) for every stage until it returns false.
template <typename Visit>
void for_each_stage(const Problem& problem, const Plan& plan, const Visit& visit) {
  const int stages = plan.num_stages();
  int p0 = 0, d0 = 0;
  for (int s = 1; s <= stages; ++s) {
    const std::size_t i = static_cast<std::size_t>(s - 1);
    const int p1 = s == stages ? problem.num_instructions() : plan.cuts[i];
    const int d1 = s == stages ? problem.num_devices() : plan.device_cuts[i];
    const int k = in_flight(plan.schedule, stages, s, problem.micro_batches());
    if (!visit(s, p0, p1, problem.group(d0, d1), k)) return;
    p0 = p1;
    d0 = d1;
  }
}

}  // namespace

std::string infeasible_reason(const Problem& problem, const Plan& plan) {
  if (!valid_structure(problem, plan)) return "cuts or device cuts are out of order or out of range";
  const bool needs_variable = problem.stages_need_variables(plan.num_stages());
  std::string reason;
  for_each_stage(problem, plan, [&](int stage, int p0, int p1, const DeviceGroup& group, int k) {
    if (needs_variable && problem.variables(p0, p1) == 0) {
      reason = "stage " + std::to_string(stage) + " has no trainable variable";
    } else if (!problem.stage_fits(p0, p1, group, k, needs_variable)) {
      char text[160];
      std::snprintf(text, sizeof text, "stage %d needs %.2f GiB of the %.2f GiB on each of its devices", stage,
                    problem.memory_bytes(p0, p1, group, k) / (1 << 30), group.capacity_bytes / (1 << 30));
      reason = text;
    }
    return reason.empty();
  });
  return reason;
}

bool feasible(const Problem& problem, const Plan& plan) {
  if (!valid_structure(problem, plan)) return false;
  const bool needs_variable = problem.stages_need_variables(plan.num_stages());
  bool fits = true;
  for_each_stage(problem, plan, [&](int, int p0, int p1, const DeviceGroup& group, int k) {
    return fits = problem.stage_fits(p0, p1, group, k, needs_variable);
  });
  return fits;
}

}  // namespace automap::pipeline
