#include "plan/systems/rivals/chain.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "common/base/in_order.h"
#include "common/base/numbers.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/schedule.h"

namespace automap::rivals {
namespace {

using pipeline::Problem;

// One stage that may be: units (u0, u1] on devices (d0, d1] with `left` stages from it on.
struct Candidate {
  int u1 = 0, d1 = 0, variant = 0;
  double ms = 0;
};

// The longest stage is held to each of these limits in turn. They are the times of stages, ascending; of such as `gap`
// takes for one the largest stands for all, so that no plan is lost.
std::vector<double> limits_of(const std::vector<double>& times, double gap) {
  std::vector<double> limits;
  double last = -1;
  for (std::size_t t = 0; t < times.size(); ++t) {
    const bool next_too = t + 1 < times.size() && times[t + 1] <= last * (1 + gap);
    if (next_too || times[t] == last) continue;
    limits.push_back(times[t]);
    last = times[t];
  }
  return limits;
}

}  // namespace

std::vector<int> unit_ends(const pipeline::Profile& profile, int most) {
  const int n = static_cast<int>(profile.size());
  std::vector<double> until(at(n) + 1);
  for (int p = 0; p < n; ++p) until[at(p) + 1] = until[at(p)] + profile.c_ms[at(p)];
  std::vector<int> ends;
  for (int p = 1; p < n; ++p) {
    if (profile.layer.empty() || profile.layer[at(p) - 1] != profile.layer[at(p)]) ends.push_back(p);
  }
  if (static_cast<int>(ends.size()) >= most) {
    std::vector<int> even;
    for (int k = 1; k < most; ++k) {
      const double wanted = until.back() * k / most;
      const auto found = std::find_if(ends.begin(), ends.end(), [&](int p) { return until[at(p)] >= wanted; });
      if (found != ends.end() && (even.empty() || even.back() < *found)) even.push_back(*found);
    }
    ends = std::move(even);
  }
  ends.push_back(n);
  return ends;
}

bool hopeless_stage(const Problem& problem, int p0, int p1, const pipeline::DeviceGroup& group, double below_ms) {
  if (below_ms == kInfinity) return false;
  for (int v = 0; v < problem.num_variants(); ++v) {
    if (problem.micro_batches() * problem.compute_ms(p0, p1, group, v) < below_ms) return false;
  }
  return true;
}

namespace {

// t_i of a stage that runs as the variant.
double stage_ms_of(const Problem& problem, int p0, int p1, const pipeline::DeviceGroup& group, double sent_ms, int v) {
  const double once = problem.sync_ms(p0, p1, group, v) + problem.optimizer_ms(p0, p1, group, v);
  return problem.compute_ms(p0, p1, group, v) + once / problem.micro_batches() + sent_ms;
}

// What a stage sends and gets for a micro-batch.
double sent_ms(const Problem& problem, int p1, int d0, int d1, Transfers transfers) {
  if (transfers == Transfers::kIgnored || d1 == problem.num_devices()) return 0;
  return 2 * problem.transfer_ms(p1, d0, d1, std::min(problem.num_devices(), d1 + (d1 - d0)));
}

// t_i of a stage for ever more stages left, which need ever more memory: of each stage the times are told once.
class StageTimes {
 public:
  StageTimes(const Problem& problem, int p0, int p1, int d0, int d1, Transfers transfers)
      : problem_(problem), group_(problem.group(d0, d1)), p0_(p0), p1_(p1) {
    const double sent = sent_ms(problem, p1, d0, d1, transfers);
    for (int v = 0; v < problem.num_variants(); ++v) {
      times_.emplace_back(stage_ms_of(problem, p0, p1, group_, sent, v), v);
    }
    std::sort(times_.begin(), times_.end());
  }

  // The least time, with its variant; of `left` stages from it on, no fewer than before. Null: no variant fits.
  const std::pair<double, int>* with(int left) {
    if (problem_.stages_need_variables(left) && problem_.variables(p0_, p1_) == 0) return nullptr;
    const int in_flight = std::min(problem_.micro_batches(), left);
    while (next_ < times_.size() && !problem_.stage_fits(p0_, p1_, group_, in_flight, false, times_[next_].second)) {
      ++next_;
    }
    return next_ < times_.size() ? &times_[next_] : nullptr;
  }

 private:
  const Problem& problem_;
  const pipeline::DeviceGroup& group_;
  const int p0_, p1_;
  std::vector<std::pair<double, int>> times_;  // ascending
  std::size_t next_ = 0;
};

}  // namespace

double stage_ms(const Problem& problem, int p0, int p1, int d0, int d1, int stages_left, Transfers transfers,
                int* variant) {
  const pipeline::DeviceGroup& group = problem.group(d0, d1);
  const int in_flight = std::min(problem.micro_batches(), stages_left);
  // Asked of the stages left, as all stages are not known: no weaker than the rule for all of them.
  const bool needs_variable = problem.stages_need_variables(stages_left);
  const double sent = sent_ms(problem, p1, d0, d1, transfers);
  const auto ms_of = [&](int v) { return stage_ms_of(problem, p0, p1, group, sent, v); };
  return least_of_variants(problem, p0, p1, group, in_flight, needs_variable, ms_of, variant);
}

double chain_ms(const Problem& problem, double sum_ms, double longest_ms) {
  return sum_ms + (problem.micro_batches() - 1) * longest_ms;
}

std::optional<ChainPlan> best_chain(const Problem& problem, const std::vector<int>& ends, const GroupSizes& sizes,
                                    int max_stages, double gap, Transfers transfers, double below_ms) {
  const int units = static_cast<int>(ends.size()), devices = problem.num_devices();
  const int most_stages = std::min({max_stages, units, devices});
  const auto start = [&](int unit) { return unit == 0 ? 0 : ends[at(unit - 1)]; };
  // [stages left][unit][device]
  const auto state = [&](int left, int unit, int device) {
    return (at(left) * at(units + 1) + at(unit)) * at(devices + 1) + at(device);
  };
  std::vector<std::vector<Candidate>> candidates(state(most_stages + 1, 0, 0));
  std::vector<double> thresholds;
  for (int d0 = 0; d0 < devices; ++d0) {
    for (const int size : sizes(d0)) {
      const int d1 = d0 + size;
      const pipeline::DeviceGroup& group = problem.group(d0, d1);
      if (!group.valid) continue;
      // The last stage has the last devices and ends the model.
      const bool last = d1 == devices;
      for (int u0 = 0; u0 < units; ++u0) {
        for (int u1 = last ? units : u0 + 1; u1 <= units - (last ? 0 : 1); ++u1) {
          if (hopeless_stage(problem, start(u0), start(u1), group, below_ms)) break;
          StageTimes times(problem, start(u0), start(u1), d0, d1, transfers);
          for (int left = last ? 1 : 2; left <= std::min(last ? 1 : most_stages, units - u1 + 1); ++left) {
            const std::pair<double, int>* least = times.with(left);
            if (least == nullptr) continue;
            candidates[state(left, u0, d0)].push_back({u1, d1, least->second, least->first});
            thresholds.push_back(least->first);
          }
        }
      }
    }
  }
  std::sort(thresholds.begin(), thresholds.end());
  const std::vector<double> limits = limits_of(thresholds, gap);
  if (limits.empty()) return std::nullopt;
  const double steady = problem.micro_batches() - 1;
  std::vector<double> sum(candidates.size());
  std::vector<const Candidate*> chosen(candidates.size());
  // The least sums of stages that are no longer than `most`; returns the least of all numbers of stages.
  const auto sum_up = [&](double most) {
    std::fill(sum.begin(), sum.end(), kInfinity);
    for (int left = 1; left <= most_stages; ++left) {
      for (int unit = units - 1; unit >= 0; --unit) {
        for (int device = devices - 1; device >= 0; --device) {
          const std::size_t here = state(left, unit, device);
          for (const Candidate& one : candidates[here]) {
            if (one.ms > most) continue;
            const double ms = one.ms + (left == 1 ? 0 : sum[state(left - 1, one.u1, one.d1)]);
            if (ms >= sum[here]) continue;
            sum[here] = ms;
            chosen[here] = &one;
          }
        }
      }
    }
    double least = kInfinity;
    for (int stages = 1; stages <= most_stages; ++stages) least = std::min(least, sum[state(stages, 0, 0)]);
    return least;
  };
  // No plan has a smaller sum, and none at all is of stages below the first limit that leaves one.
  const double least_sum = sum_up(limits.back());
  if (least_sum == kInfinity) return std::nullopt;
  const auto first =
      std::partition_point(limits.begin(), limits.end() - 1, [&](double limit) { return sum_up(limit) == kInfinity; });
  ChainPlan best;
  best.objective_ms = kInfinity;
  for (auto limit = first; limit != limits.end(); ++limit) {
    // Every plan from here on has a longer stage than the limit before.
    if (limit != limits.begin() && least_sum + steady * *(limit - 1) >= best.objective_ms) break;
    sum_up(*limit);
    for (int stages = 1; stages <= most_stages; ++stages) {
      if (sum[state(stages, 0, 0)] == kInfinity) continue;
      ChainPlan found;
      found.plan.schedule = pipeline::Schedule::k1f1b;
      double longest = 0;
      for (int left = stages, unit = 0, device = 0; left >= 1; --left) {
        const Candidate& one = *chosen[state(left, unit, device)];
        longest = std::max(longest, one.ms);
        found.plan.variants.push_back(static_cast<std::uint8_t>(one.variant));
        unit = one.u1;
        device = one.d1;
        if (left == 1) break;
        found.plan.cuts.push_back(start(unit));
        found.plan.device_cuts.push_back(device);
      }
      found.objective_ms = chain_ms(problem, sum[state(stages, 0, 0)], longest);
      if (found.objective_ms < best.objective_ms) best = std::move(found);
    }
  }
  if (best.objective_ms == kInfinity || !pipeline::feasible(problem, best.plan)) return std::nullopt;
  return best;
}

namespace {

// A split whose bound this is has no plan worth having where others take below_ms.
bool hopeless(double bound_ms, double below_ms) {
  return bound_ms > planners::kAboveSimulation * below_ms;
}

double least_bound_ms(const Problem& problem, int max_stages) {
  const int most = std::min({max_stages, problem.num_devices(), problem.num_instructions()});
  const std::vector<double> bounds = pipeline::simple_lower_bounds_ms(problem, pipeline::Schedule::kAdaptive, most);
  return *std::min_element(bounds.begin(), bounds.end());
}

// The plan's simulated step, with as much in flight as our plans may have where that is feasible and shorter.
double settle_schedule(const Problem& problem, pipeline::Plan& plan) {
  const double as_found_ms = pipeline::simulate_step_ms(problem, plan);
  pipeline::Plan adaptive = plan;
  adaptive.schedule = pipeline::Schedule::kAdaptive;
  if (!pipeline::feasible(problem, adaptive)) return as_found_ms;
  const double adaptive_ms = pipeline::simulate_step_ms(problem, adaptive);
  if (!(adaptive_ms < as_found_ms)) return as_found_ms;
  plan = std::move(adaptive);
  return adaptive_ms;
}

}  // namespace

std::vector<planners::StepSize> splits_of(const planners::Question& question) {
  const pipeline::Profile& profile = question.profile();
  const std::vector<planners::StepSize> sizes = planners::step_sizes(question.step, profile, question.options.replicas);
  std::vector<planners::StepSize> splits;
  for (const int width : pipeline::known_widths(profile)) {
    for (planners::StepSize size : sizes) {
      size.width = width;
      splits.push_back(std::move(size));
    }
  }
  return splits;
}

RivalPlan best_over_splits(const planners::Question& question, const std::vector<Planner>& planners, double below_ms) {
  const std::vector<planners::StepSize> sizes = splits_of(question);
  struct Split {
    double best_ms = kInfinity;  // what others take that were known when it was begun
    std::unique_ptr<Problem> problem;
    double bound_ms = kInfinity;
    std::vector<std::pair<std::optional<ChainPlan>, double>> found;  // by planner, with its simulated step
    std::exception_ptr failure;
  };
  std::vector<Split> splits(sizes.size());
  RivalPlan best;
  InOrder loop;
  loop.begin = [&](std::size_t i) { splits[i].best_ms = best.simulated_step_ms; };
  loop.work = [&](std::size_t i, const Dropped&) {
    Split& split = splits[i];
    split.problem = planners::possible_problem(question, sizes[i], question.options);
    if (!split.problem) return;
    split.bound_ms = least_bound_ms(*split.problem, question.request.max_stages);
    bool any = false;
    const bool left = !hopeless(split.bound_ms, std::min(below_ms, split.best_ms));
    try {
      for (std::size_t k = 0; left && k < planners.size(); ++k) {
        std::optional<ChainPlan> found = planners[k](*split.problem, below_ms);
        const double simulated_ms = found ? settle_schedule(*split.problem, found->plan) : kInfinity;
        any = any || simulated_ms < split.best_ms;
        split.found.emplace_back(std::move(found), simulated_ms);
      }
    } catch (...) {
      split.failure = std::current_exception();
    }
    if (any) return;
    split.problem.reset();  // it waits for others, and is large
    split.found.clear();
  };
  loop.take = [&](std::size_t i) {
    Split split = std::move(splits[i]);
    if (hopeless(split.bound_ms, std::min(below_ms, best.simulated_step_ms))) return;
    if (split.failure) std::rethrow_exception(split.failure);
    bool shorter = false;
    for (std::size_t k = 0; k < split.found.size(); ++k) {
      auto& [found, simulated_ms] = split.found[k];
      if (!(simulated_ms < best.simulated_step_ms)) continue;
      shorter = true;
      best.simulated_step_ms = simulated_ms;
      best.objective_ms = found->objective_ms;
      best.plan = std::move(found->plan);
      best.planner = k;
    }
    if (shorter) best.problem = std::move(split.problem);
  };
  run_in_order(sizes.size(), loop);
  return best;
}

}  // namespace automap::rivals
