// Local search over cuts, device cuts and variants, judged by V or by the simulation.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/in_order.h"
#include "common/base/numbers.h"
#include "common/pipeline/baselines.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/warmup.h"

namespace automap::pipeline {
namespace {

constexpr std::int64_t kPerPlaces = 400;  // places looked for around a boundary, units of work

class LocalSearch {
 public:
  LocalSearch(const Problem& problem, Objective objective, int max_evaluations, Work& work)
      : problem_(problem), objective_(objective), left_(max_evaluations), work_(work) {}

  bool exhausted() const { return left_ <= 0 || stopped_; }
  double best_ms() const { return best_ms_; }
  const Plan& best() const { return best_; }

  // Judges a feasible plan; one evaluation.
  void start(const Plan& plan) {
    --left_;
    work_.spend(judging_units(problem_, plan.num_stages(), objective_));
    best_ = plan;
    best_ms_ = length_ms(problem_, plan, objective_);
  }

  // Moves until none improves or the effort is spent.
  void improve() {
    const int boundaries = best_.num_stages() - 1;
    for (bool improved = true; improved && !exhausted();) {
      improved = false;
      for (int b = 0; b < boundaries && !exhausted(); ++b) {
        while (move_cut(b) && !exhausted()) improved = true;
        while (move_devices(b) && !exhausted()) improved = true;
      }
      if (improved) continue;
      for (int b = 0; b < boundaries && !exhausted(); ++b) {
        if (move_cut_and_devices(b)) improved = true;
        if (b + 1 < boundaries && move_neighbours(b)) improved = true;
      }
      for (int s = 1; s <= boundaries + 1 && !exhausted(); ++s) {
        if (move_variant(s)) improved = true;
      }
    }
  }

 private:
  // Takes `trial_` when it is feasible and shorter.
  bool accept() {
    if (exhausted()) return false;
    work_.spend(judging_units(problem_, trial_.num_stages(), Objective::kValue));
    if ((++tried_ & 63) == 0 && work_.over()) stopped_ = true;
    if (!feasible(problem_, trial_)) return false;
    --left_;
    pipeline_times(problem_, trial_, times_);
    const double limit = best_ms_ * (1 - 1e-12);
    double length;
    if (objective_ == Objective::kValue) {
      length = step_length_ms(times_, problem_.micro_batches(), trial_.schedule, problem_.options().value);
    } else {
      // The path terms never exceed the simulation and cost a tenth of it.
      if (path_length_ms(times_, problem_.micro_batches(), trial_.schedule, ValueForm::kFull) >= limit) return false;
      // With many micro-batches each takes milliseconds.
      work_.spend(judging_units(problem_, trial_.num_stages(), Objective::kSimulated));
      stopped_ = stopped_ || work_.over();
      length = trial_.schedule == Schedule::kAdaptive
                   ? quick_warmup(problem_, trial_, times_)
                   : simulate_step_ms(times_, problem_.micro_batches(), trial_.schedule);
    }
    if (!(length < limit)) return false;
    best_ms_ = length;
    std::swap(best_, trial_);
    return true;
  }

  int cut_before(int b) const { return b == 0 ? 0 : best_.cuts[at(b - 1)]; }
  int cut_after(int b) const {
    return b + 1 == best_.num_stages() - 1 ? problem_.num_instructions() : best_.cuts[at(b + 1)];
  }
  int devices_before(int b) const { return b == 0 ? 0 : best_.device_cuts[at(b - 1)]; }
  int devices_after(int b) const {
    return b + 1 == best_.num_stages() - 1 ? problem_.num_devices() : best_.device_cuts[at(b + 1)];
  }

  // The narrowest cut of low..high, the one nearest to `center` of equals.
  int narrowest(int low, int high, int center) const {
    int narrow = center;
    for (int p = low; p <= high; ++p) {
      const double here = problem_.activation_bytes(p), best = problem_.activation_bytes(narrow);
      if (here < best || (here == best && std::abs(p - center) < std::abs(narrow - center))) narrow = p;
    }
    return narrow;
  }

  // Places worth trying for boundary b around `center`, between its neighbours: a few near, doubling steps, and the
  // narrowest cuts within 8, 32 and 128 instructions.
  void places(int b, int center, std::vector<int>& out) const {
    out.clear();
    const int low = cut_before(b) + 1, high = cut_after(b) - 1;
    if (low > high) return;
    work_.spend(kPerPlaces);
    center = std::clamp(center, low, high);
    for (int window : {8, 32, 128}) {
      out.push_back(narrowest(std::max(low, center - window), std::min(high, center + window), center));
    }
    for (int step = 1; step <= high - low; step = step < 4 ? step + 1 : 2 * step) {
      if (center + step <= high) out.push_back(center + step);
      if (center - step >= low) out.push_back(center - step);
    }
    out.push_back(center);
  }

  // The cut at which both stages beside boundary b take equally long when it is moved to device cut d.
  int balance_point(int b, int d) const {
    const int low = cut_before(b), high = cut_after(b);
    const DeviceGroup& left = problem_.group(devices_before(b), d);
    const DeviceGroup& right = problem_.group(d, devices_after(b));
    int from = low, to = high;
    while (to - from > 1) {
      const int middle = from + (to - from) / 2;
      (problem_.compute_ms(low, middle, left) <= problem_.compute_ms(middle, high, right) ? from : to) = middle;
    }
    return from;
  }

  void device_places(int b, std::vector<int>& out) const {
    out.clear();
    const int low = devices_before(b) + 1, high = devices_after(b) - 1;
    const int center = best_.device_cuts[at(b)];
    for (int step = 1; step <= high - low; step = step < 4 ? step + 1 : 2 * step) {
      if (center + step <= high) out.push_back(center + step);
      if (center - step >= low) out.push_back(center - step);
    }
    // The nearest server boundaries on either side.
    for (int d = center - 1; d >= low; --d) {
      if (problem_.server_of_device(d - 1) != problem_.server_of_device(d)) {
        out.push_back(d);
        break;
      }
    }
    for (int d = center + 1; d <= high; ++d) {
      if (problem_.server_of_device(d - 1) != problem_.server_of_device(d)) {
        out.push_back(d);
        break;
      }
    }
  }

  bool move_cut(int b) {
    places(b, best_.cuts[at(b)], places_);
    for (int p : places_) {
      if (p == best_.cuts[at(b)]) continue;
      trial_ = best_;
      trial_.cuts[at(b)] = p;
      if (accept()) return true;
    }
    return false;
  }

  bool move_devices(int b) {
    device_places(b, device_places_);
    for (int d : device_places_) {
      trial_ = best_;
      trial_.device_cuts[at(b)] = d;
      if (accept()) return true;
    }
    return false;
  }

  // Stage s, and all stages from s on, as another variant.
  bool move_variant(int s) {
    for (int variant = 0; variant < problem_.num_variants(); ++variant) {
      for (const int last : {s, best_.num_stages()}) {
        if (variant == best_.variant(s)) break;
        trial_ = best_;
        trial_.variants.resize(at(best_.num_stages()), 0);
        for (int stage = s; stage <= last; ++stage) trial_.variants[at(stage - 1)] = static_cast<std::uint8_t>(variant);
        if (accept()) return true;
      }
    }
    return false;
  }

  bool move_cut_and_devices(int b) {
    device_places(b, device_places_);
    for (int d : device_places_) {
      places(b, balance_point(b, d), places_);
      for (int p : places_) {
        trial_ = best_;
        trial_.device_cuts[at(b)] = d;
        trial_.cuts[at(b)] = p;
        if (accept()) return true;
      }
    }
    return false;
  }

  // Boundaries b and b + 1 by the same steps: cuts alone, device cuts alone, both.
  bool move_neighbours(int b) {
    const std::size_t i = at(b);
    const int n = problem_.num_instructions(), devices = problem_.num_devices();
    for (int sign : {1, -1}) {
      for (int step = 1; step < n; step *= 2) {
        trial_ = best_;
        trial_.cuts[i] += sign * step;
        trial_.cuts[i + 1] += sign * step;
        if (!valid_structure(problem_, trial_)) break;
        if (accept()) return true;
      }
      for (int step = 1; step < devices; step *= 2) {
        trial_ = best_;
        trial_.device_cuts[i] += sign * step;
        trial_.device_cuts[i + 1] += sign * step;
        if (!valid_structure(problem_, trial_)) break;
        if (accept()) return true;
        for (int cut_sign : {1, -1}) {
          for (int cut_step = 1; cut_step < n; cut_step *= 4) {
            trial_ = best_;
            trial_.device_cuts[i] += sign * step;
            trial_.device_cuts[i + 1] += sign * step;
            trial_.cuts[i] += cut_sign * cut_step;
            trial_.cuts[i + 1] += cut_sign * cut_step;
            if (!valid_structure(problem_, trial_)) break;
            if (accept()) return true;
          }
        }
      }
    }
    return false;
  }

  const Problem& problem_;
  Objective objective_;
  int left_;
  int tried_ = 0;
  bool stopped_ = false;
  Work& work_;
  Plan best_, trial_;
  double best_ms_ = kInfinity;
  PipelineTimes times_;
  std::vector<int> places_, device_places_;
};

// A few boundaries of `plan` thrown elsewhere between their neighbours.
Plan kicked(const Problem& problem, const Plan& plan, CounterRandom& random) {
  Plan moved = plan;
  const int boundaries = plan.num_stages() - 1;
  const int kicks = random.integer(1, std::min(3, boundaries));
  for (int i = 0; i < kicks; ++i) {
    const int b = random.integer(0, boundaries - 1);
    const int low = b == 0 ? 0 : moved.cuts[at(b - 1)];
    const int high = b + 1 == boundaries ? problem.num_instructions() : moved.cuts[at(b + 1)];
    moved.cuts[at(b)] = random.integer(low + 1, high - 1);
    if (random.uniform() < 0.5) {
      const int before = b == 0 ? 0 : moved.device_cuts[at(b - 1)];
      const int after = b + 1 == boundaries ? problem.num_devices() : moved.device_cuts[at(b + 1)];
      moved.device_cuts[at(b)] = random.integer(before + 1, after - 1);
    }
  }
  return moved;
}

// Searches choose the warm-up of every plan they judge.
Plan without_warmup(Plan plan) {
  plan.warmup.clear();
  return plan;
}

// Kicks `best` and improves the result until the search is exhausted.
void kick_and_improve(const Problem& problem, LocalSearch& search, Plan& best, double& best_ms, Work& work) {
  if (best.num_stages() == 1) return;
  CounterRandom random(1, static_cast<std::uint32_t>(best.num_stages()));
  // Kicks onto infeasible ground cost no evaluation; their number is limited apart.
  int infeasible = 0;
  while (!search.exhausted() && infeasible < 1000) {
    const Plan plan = kicked(problem, best, random);
    work.spend(judging_units(problem, plan.num_stages(), Objective::kValue));
    if (!feasible(problem, plan)) {
      if ((++infeasible & 63) == 0 && work.over()) return;
      continue;
    }
    search.start(plan);
    search.improve();
    if (search.best_ms() < best_ms) {
      best_ms = search.best_ms();
      best = search.best();
    }
  }
}

}  // namespace

std::optional<Plan> local_search_plan(const Problem& problem, const LocalSearchOptions& options) {
  if (!fits_shape(problem, options.stages)) return std::nullopt;
  if (options.stages == 1) return data_parallel_plan(problem, options.schedule);
  Work without_end;
  Work& work = options.work == nullptr ? without_end : *options.work;
  std::vector<Plan> starts;
  const auto add = [&](std::optional<Plan> plan) {
    if (plan && !feasible(problem, *plan)) plan.reset();
    if (plan && std::find(starts.begin(), starts.end(), *plan) == starts.end()) starts.push_back(std::move(*plan));
  };
  struct Start {
    std::vector<int> device_cuts;
    int variant;
    BalanceBy by;
    double slack;
    std::optional<Plan> plan = {};
    std::int64_t spent = 0;
  };
  std::vector<Start> balanced;
  for (const std::vector<int>& device_cuts : device_share_candidates(problem, options.stages)) {
    for (const int variant : useful_variants(problem, device_cuts)) {
      balanced.push_back({device_cuts, variant, BalanceBy::kCompute, 0});
      balanced.push_back({device_cuts, variant, BalanceBy::kCompute, 0.1});
      balanced.push_back({device_cuts, variant, BalanceBy::kParameters, 0});
    }
  }
  InOrder loop;
  loop.wanted = [&](std::size_t) { return work.left() > 0 || starts.empty(); };
  loop.over = [&] { return !starts.empty() && work.over(); };
  loop.work = [&](std::size_t i, const Dropped&) {
    Start& one = balanced[i];
    Work own;
    one.plan = balanced_on(problem, one.device_cuts, options.schedule, one.by, one.slack, &own, one.variant, kInfinity,
                           options.known);
    one.spent = own.spent();
  };
  loop.take = [&](std::size_t i) {
    work.spend(balanced[i].spent);
    add(std::move(balanced[i].plan));
  };
  run_in_order(balanced.size(), loop);
  add(uniform_plan(problem, options.stages, options.schedule, &work));
  if (starts.empty()) return std::nullopt;

  LocalSearch search(problem, Objective::kValue, options.max_evaluations, work);
  Plan best = starts.front();
  double best_ms = kInfinity;
  for (const Plan& start : starts) {
    search.start(start);
    search.improve();
    if (search.best_ms() < best_ms) {
      best_ms = search.best_ms();
      best = search.best();
    }
  }
  kick_and_improve(problem, search, best, best_ms, work);
  if (options.objective == Objective::kValue) return best;
  // Among the starts and the V-optimum the simulation decides, then moves go on under it.
  double simulated_ms = simulate_step_ms(problem, best);
  for (const Plan& start : starts) {
    work.spend(judging_units(problem, options.stages, Objective::kSimulated));
    if (work.over()) break;
    const double start_ms = simulate_step_ms(problem, start);
    if (!(start_ms < simulated_ms)) continue;
    simulated_ms = start_ms;
    best = start;
  }
  return polish_simulated(problem, best, work);
}

Plan polish(const Problem& problem, const Plan& plan, Objective objective, Work& work, int max_evaluations) {
  if (!feasible(problem, plan)) return plan;
  LocalSearch search(problem, objective, max_evaluations, work);
  search.start(without_warmup(plan));
  search.improve();
  return search.best();
}

Plan explore(const Problem& problem, const Plan& plan, Objective objective, Work& work, int max_evaluations) {
  if (!feasible(problem, plan)) return plan;
  LocalSearch search(problem, objective, max_evaluations, work);
  search.start(without_warmup(plan));
  search.improve();
  Plan best = search.best();
  double best_ms = search.best_ms();
  kick_and_improve(problem, search, best, best_ms, work);
  return best;
}

Plan polish_simulated(const Problem& problem, const Plan& plan, Work& work) {
  return polish(problem, plan, Objective::kSimulated, work);
}

}  // namespace automap::pipeline
