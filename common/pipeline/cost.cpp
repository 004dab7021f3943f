#include "common/pipeline/cost.h"

#include <algorithm>

#include "common/base/numbers.h"
#include "common/pipeline/placed_plan.h"
#include "common/pipeline/value_terms.h"

namespace automap::pipeline {

double sync_left_ms(const std::vector<SyncBucket>& buckets, double backward_ms) {
  double end = 0;
  for (const SyncBucket& bucket : buckets) end = std::max(end, bucket.ready_share * backward_ms) + bucket.ms;
  return std::max(0.0, end - backward_ms);
}

PipelineTimes pipeline_times(const Problem& problem, const Plan& plan) {
  PipelineTimes times;
  pipeline_times(problem, plan, times);
  return times;
}

void add_stage_times(const Problem& problem, int p0, int p1, const DeviceGroup& group, int variant,
                     PipelineTimes& times) {
  thread_local std::vector<SyncBucket> buckets;
  const double compute = problem.compute_ms(p0, p1, group, variant);
  const double backward = problem.backward_ms(p0, p1, group, variant);
  times.forward_ms.push_back(compute - backward);
  times.backward_ms.push_back(backward);
  const double exchange = problem.exchange_ms(p0, p1, group);
  times.allreduce_ms.push_back(problem.exposed_sync_ms(p0, p1, backward, group, variant) + exchange);
  times.optimizer_ms.push_back(problem.optimizer_ms(p0, p1, group, variant));
  if (problem.options().gradient_sync == GradientSync::kOverlap) {
    problem.sync_buckets(p0, p1, group, variant, buckets);
    times.sync_left_ms.push_back(sync_left_ms(buckets, backward) + exchange);
  }
}

void add_most_in_flight(const Problem& problem, int p0, int p1, const DeviceGroup& group, int variant, const Plan& plan,
                        PipelineTimes& times) {
  const int most = std::max(1, problem.most_in_flight(p0, p1, group, variant));
  times.value_in_flight.push_back(most);
  if (plan.warmup.empty()) {
    times.in_flight.push_back(times.in_flight.empty() ? most : std::min(most, times.in_flight.back()));
  }
}

void pipeline_times(const Problem& problem, const Plan& plan, PipelineTimes& times) {
  const int stages = plan.num_stages();
  const bool adaptive = plan.schedule == Schedule::kAdaptive;
  for (std::vector<double>* values : {&times.forward_ms, &times.backward_ms, &times.allreduce_ms, &times.transfer_ms,
                                      &times.sync_left_ms, &times.optimizer_ms}) {
    values->clear();
  }
  times.in_flight = plan.warmup;
  times.value_in_flight.clear();
  for_each_stage(problem, plan, [&](int s, int p0, int p1, int d0, int d1) {
    const DeviceGroup& group = problem.group(d0, d1);
    const int variant = plan.variant(s);
    add_stage_times(problem, p0, p1, group, variant, times);
    if (adaptive) add_most_in_flight(problem, p0, p1, group, variant, plan, times);
    if (s < stages) {
      const int d2 = s + 1 == stages ? problem.num_devices() : plan.device_cuts[static_cast<std::size_t>(s)];
      times.transfer_ms.push_back(problem.transfer_ms(p1, d0, d1, d2));
    }
    return true;
  });
}

double path_length_ms(const PipelineTimes& times, int micro_batches, Schedule schedule, ValueForm form) {
  const int stages = times.num_stages();
  double x = 0, p = 0;
  for (int s = stages; s-- > 0;) {
    const std::size_t i = static_cast<std::size_t>(s);
    if (s + 1 < stages) {
      x = terms::x_behind_transfer(x, times.transfer_ms[i], micro_batches);
      p += 2 * times.transfer_ms[i];
    }
    const double f = times.forward_ms[i], b = times.backward_ms[i];
    const int k =
        times.value_in_flight.empty() ? in_flight(schedule, stages, s + 1, micro_batches) : times.value_in_flight[i];
    x = terms::x_behind_stage(x, p, f + b, std::min(f, b), terms::InFlight(micro_batches, k), form == ValueForm::kFull);
    p += f + b;
  }
  return x;
}

double exposed_allreduce_ms(const PipelineTimes& times) {
  double y = 0;
  for (std::size_t s = times.allreduce_ms.size(); s-- > 0;) {
    if (s < times.transfer_ms.size()) y -= times.transfer_ms[s];
    const double optimizer = times.optimizer_ms.empty() ? 0 : times.optimizer_ms[s];
    y = terms::y_behind_stage(y, times.allreduce_ms[s] + optimizer, times.backward_ms[s]);
  }
  return std::max(0.0, y);
}

double step_length_ms(const PipelineTimes& times, int micro_batches, Schedule schedule, ValueForm form) {
  return path_length_ms(times, micro_batches, schedule, form) + exposed_allreduce_ms(times);
}

double value_ms(const Problem& problem, const Plan& plan) {
  thread_local PipelineTimes times;
  pipeline_times(problem, plan, times);
  return step_length_ms(times, problem.micro_batches(), plan.schedule, problem.options().value);
}

std::vector<int> in_flight_of(const Problem& problem, const Plan& plan) {
  return in_flight_of(place(problem, plan));
}

bool valid_structure(const Plan& plan, int num_instructions, int num_devices, int micro_batches, int num_variants) {
  const auto increasing_within = [](const std::vector<int>& cuts, int end) {
    int previous = 0;
    for (int cut : cuts) {
      if (cut <= previous || cut >= end) return false;
      previous = cut;
    }
    return true;
  };
  if (plan.chunks < 1 || plan.cuts.size() + 1 != (plan.device_cuts.size() + 1) * at(plan.chunks)) return false;
  if (plan.placement == Placement::kV && plan.chunks != 2) return false;
  if (!shape_expected(plan).empty()) return false;
  if ((plan.schedule == Schedule::kSearched) != (plan.order != nullptr)) return false;
  const std::size_t stages = plan.device_cuts.size() + 1;
  int most = micro_batches;
  for (const int k : plan.warmup) {
    if (k < 1 || k > most) return false;
    most = k;
  }
  return increasing_within(plan.cuts, num_instructions) && increasing_within(plan.device_cuts, num_devices) &&
         (plan.variants.empty() || plan.variants.size() == stages) &&
         (plan.warmup.empty() || plan.warmup.size() == stages) &&
         std::all_of(plan.variants.begin(), plan.variants.end(), [&](int variant) { return variant < num_variants; });
}

bool valid_structure(const Problem& problem, const Plan& plan) {
  return valid_structure(plan, problem.num_instructions(), problem.num_devices(), problem.micro_batches(),
                         problem.num_variants());
}

namespace {

bool has_idle_stage(const Problem& problem, const Plan& plan) {
  if (problem.options().allow_idle_stages) return false;
  double sum = 0;
  for_each_stage(problem, plan, [&](int s, int p0, int p1, int d0, int d1) {
    sum += problem.compute_ms(p0, p1, problem.group(d0, d1), plan.variant(s));
    return true;
  });
  bool idle = false;
  for_each_stage(problem, plan, [&](int s, int p0, int p1, int d0, int d1) {
    const DeviceGroup& group = problem.group(d0, d1);
    idle = problem.idles(p0, p1, group) ||
           idles_beside(problem.compute_ms(p0, p1, group, plan.variant(s)), sum, plan.num_stages());
    return !idle;
  });
  return idle;
}

}  // namespace

std::string infeasible_reason(const Problem& problem, const Plan& plan) {
  if (!valid_structure(problem, plan)) return "cuts or device cuts are out of order or out of range";
  return infeasible_reason(place(problem, plan));
}

bool feasible(const Problem& problem, const Plan& plan) {
  if (!valid_structure(problem, plan)) return false;
  if (!is_alternating(plan.schedule)) return infeasible_reason(place(problem, plan)).empty();
  const bool needs_variable = problem.stages_need_variables(plan.num_stages());
  bool fits = true;
  int before = problem.micro_batches();
  for_each_stage(problem, plan, [&](int s, int p0, int p1, int d0, int d1) {
    const DeviceGroup& group = problem.group(d0, d1);
    if (!group.valid) return fits = false;
    const int variant = plan.variant(s);
    int k = plan.warmup.empty() ? in_flight(plan.schedule, plan.num_stages(), s, problem.micro_batches())
                                : plan.warmup[static_cast<std::size_t>(s - 1)];
    if (plan.warmup.empty() && plan.schedule == Schedule::kAdaptive) {
      before = k = std::min(before, std::max(1, problem.most_in_flight(p0, p1, group, variant)));
    }
    return fits = problem.stage_fits(p0, p1, group, k, needs_variable, variant);
  });
  return fits && !has_idle_stage(problem, plan);
}

}  // namespace automap::pipeline
