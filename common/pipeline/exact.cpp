#include "common/pipeline/exact.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <tuple>

#include "common/base/check.h"

namespace automap::pipeline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What a suffix of the pipeline means to the stages in front of it (docs/exact-solver.md).
struct Label {
  double x = 0;           // the longest path term, measured from the suffix's start
  double p = 0;           // one micro-batch through the suffix, forward and backward
  double y = 0;           // all-reduce not hidden by the suffix's backward drain
  int next = -1;          // label of the suffix one stage shorter
  int point = 0, d0 = 0;  // where the suffix starts
};

struct State {
  int point = 0, d0 = 0, d1 = 0;
  std::vector<int> labels;
};

class LabelSearch {
 public:
  LabelSearch(const Problem& problem, const ExactOptions& options, bool needs_variable)
      : problem_(problem), options_(options), needs_variable_(needs_variable) {}

  void run(int min_stages, int max_stages, std::vector<ExactStageResult>& results);
  bool out_of_time() const { return out_of_time_; }

 private:
  bool poll() {
    if (++polls_ % 256 == 0 || out_of_time_) {
      out_of_time_ =
          out_of_time_ || (options_.cancelled && options_.cancelled()) ||
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count() > options_.time_limit_s;
    }
    return out_of_time_;
  }
  // A stage (p0, p1] on (d0, d1], and the transfer behind it, in front of the suffix `next`.
  Label extend(const Label& next, int next_index, int p0, int p1, int d0, int d1, double transfer, int in_flight) const;
  std::vector<int> allowed(const std::vector<std::vector<int>>& per_boundary, int boundary, int end) const;
  void keep_undominated(std::vector<int>& labels) const;
  void complete(int label, int stages, ExactStageResult& result) const;

  const Problem& problem_;
  const ExactOptions& options_;
  bool needs_variable_;
  std::vector<Label> labels_;
  std::int64_t polls_ = 0;
  bool out_of_time_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Label LabelSearch::extend(const Label& next, int next_index, int p0, int p1, int d0, int d1, double transfer,
                          int in_flight) const {
  const DeviceGroup& group = problem_.group(d0, d1);
  const double phi = problem_.forward_fraction();
  const double stage = problem_.compute_ms(p0, p1, group);
  const double steady = problem_.micro_batches() - 1;
  Label label;
  label.p = next.p + 2 * transfer + stage;
  double x = std::max(next.x + 2 * transfer, (2 + steady) * transfer);
  x = std::max(x, steady * stage);
  x += stage;
  if (problem_.options().value == ValueForm::kFull) {
    x = std::max(x, label.p + steady * stage - (in_flight - 1) * std::min(phi, 1 - phi) * stage);
    if (problem_.micro_batches() > in_flight) {
      const double stall = label.p - in_flight * stage;
      const int laps = (problem_.micro_batches() - 1) / in_flight;
      x = std::max(x, label.p + steady * stage + std::max(stall, laps * stall));
    }
  }
  label.x = x;
  label.y = std::max(problem_.allreduce_ms(p0, p1, group), next.y - transfer - (1 - phi) * stage);
  label.next = next_index;
  label.point = p0;
  label.d0 = d0;
  return label;
}

std::vector<int> LabelSearch::allowed(const std::vector<std::vector<int>>& per_boundary, int boundary, int end) const {
  if (!per_boundary.empty()) return per_boundary[static_cast<std::size_t>(boundary - 1)];
  std::vector<int> all;
  for (int i = 1; i < end; ++i) all.push_back(i);
  return all;
}

// Drops a label that is no better than `k_best` others in x, p and y: those make as many plans as short as its own.
void LabelSearch::keep_undominated(std::vector<int>& labels) const {
  std::sort(labels.begin(), labels.end(), [&](int a, int b) {
    const Label& l = labels_[static_cast<std::size_t>(a)];
    const Label& r = labels_[static_cast<std::size_t>(b)];
    return std::tie(l.x, l.p, l.y, a) < std::tie(r.x, r.p, r.y, b);
  });
  std::vector<int> kept;
  for (int index : labels) {
    const Label& label = labels_[static_cast<std::size_t>(index)];
    int better = 0;
    for (int other : kept) {
      const Label& o = labels_[static_cast<std::size_t>(other)];
      if (o.p <= label.p && o.y <= label.y && ++better >= options_.k_best) break;
    }
    if (better < options_.k_best) kept.push_back(index);
  }
  labels = std::move(kept);
}

void LabelSearch::complete(int label, int stages, ExactStageResult& result) const {
  Plan plan;
  plan.schedule = options_.schedule;
  const double expected = labels_[static_cast<std::size_t>(label)].x + labels_[static_cast<std::size_t>(label)].y;
  for (int at = labels_[static_cast<std::size_t>(label)].next; at >= 0;
       at = labels_[static_cast<std::size_t>(at)].next) {
    plan.cuts.push_back(labels_[static_cast<std::size_t>(at)].point);
    plan.device_cuts.push_back(labels_[static_cast<std::size_t>(at)].d0);
  }
  AM_CHECK(plan.num_stages() == stages);
  const double value = value_ms(problem_, plan);
  AM_CHECK(std::abs(value - expected) <= 1e-9 * std::max(value, expected));
  if (!(value < options_.upper_bound_ms)) return;
  const auto at = std::upper_bound(result.value_ms.begin(), result.value_ms.end(), value);
  const auto offset = at - result.value_ms.begin();
  if (offset >= options_.k_best) return;
  result.value_ms.insert(at, value);
  result.plans.insert(result.plans.begin() + offset, std::move(plan));
  if (result.plans.size() > static_cast<std::size_t>(options_.k_best)) {
    result.plans.pop_back();
    result.value_ms.pop_back();
  }
}

void LabelSearch::run(int min_stages, int max_stages, std::vector<ExactStageResult>& results) {
  const int n = problem_.num_instructions(), devices = problem_.num_devices();
  std::vector<State> behind;  // the states of the suffixes one stage shorter
  behind.push_back({n, devices, devices, {0}});
  labels_.assign(1, Label());
  labels_[0].point = n;
  labels_[0].d0 = devices;
  for (int length = 1; length <= max_stages; ++length) {
    const int in_flight_here = in_flight(options_.schedule, length, 1, problem_.micro_batches());
    std::vector<State> states;
    const auto extend_to = [&](int p0, int d0, bool whole) {
      // One state per end of its first stage's devices.
      std::vector<std::vector<int>> by_end(static_cast<std::size_t>(devices) + 1);
      for (const State& state : behind) {
        if (state.point <= p0 || state.d0 <= d0) continue;
        if (poll()) return;
        if (!problem_.stage_fits(p0, state.point, problem_.group(d0, state.d0), in_flight_here, needs_variable_))
          continue;
        const double transfer = state.d0 == devices ? 0 : problem_.transfer_ms(state.point, d0, state.d0, state.d1);
        for (int next : state.labels) {
          const Label label = extend(labels_[static_cast<std::size_t>(next)], length == 1 ? -1 : next, p0, state.point,
                                     d0, state.d0, transfer, in_flight_here);
          if (!(label.x + label.y < options_.upper_bound_ms)) continue;
          labels_.push_back(label);
          by_end[static_cast<std::size_t>(state.d0)].push_back(static_cast<int>(labels_.size()) - 1);
        }
      }
      for (int d1 = d0 + 1; d1 <= devices; ++d1) {
        std::vector<int>& labels = by_end[static_cast<std::size_t>(d1)];
        if (labels.empty()) continue;
        if (whole) {
          for (int label : labels) complete(label, length, results[static_cast<std::size_t>(length - min_stages)]);
        } else {
          keep_undominated(labels);
          states.push_back({p0, d0, d1, std::move(labels)});
        }
      }
    };
    if (length >= min_stages) extend_to(0, 0, true);
    if (length < max_stages) {
      const int boundary = max_stages - length;
      std::vector<int> points = options_.boundary_pivots.empty()
                                    ? (options_.pivots.empty() ? allowed({}, boundary, n) : options_.pivots)
                                    : allowed(options_.boundary_pivots, boundary, n);
      for (int p0 : points) {
        for (int d0 : allowed(options_.boundary_device_cuts, boundary, devices)) extend_to(p0, d0, false);
      }
    }
    behind = std::move(states);
    if (out_of_time_) return;
  }
}

// Every device at work all the time: no plan is shorter, whatever its stages.
double balance_bound(const Problem& problem) {
  double speed = 0;
  for (int d = 0; d < problem.num_devices(); ++d) speed += problem.group(d, d + 1).speed;
  return problem.micro_batches() * problem.work_ms(0, problem.num_instructions()) / speed;
}

}  // namespace

const ExactStageResult* ExactResult::best() const {
  const ExactStageResult* best = nullptr;
  for (const ExactStageResult& result : by_stages) {
    if (!result.plans.empty() && (best == nullptr || result.value_ms.front() < best->value_ms.front())) best = &result;
  }
  return best;
}

bool ExactResult::proven() const {
  return std::all_of(by_stages.begin(), by_stages.end(), [](const ExactStageResult& r) { return r.proven; });
}

std::vector<int> grid_pivots(int num_instructions, int grid) {
  std::vector<int> pivots;
  for (std::int64_t k = 1; k <= grid; ++k) {
    const int pivot = static_cast<int>(k * num_instructions / grid);
    if (pivot > 0 && pivot < num_instructions && (pivots.empty() || pivots.back() < pivot)) pivots.push_back(pivot);
  }
  return pivots;
}

ExactResult solve_exact(const Problem& problem, const ExactOptions& options) {
  const std::size_t boundaries = options.boundary_pivots.size();
  AM_CHECK(boundaries == options.boundary_device_cuts.size());
  AM_CHECK(boundaries == 0 ||
           (options.min_stages == options.max_stages && static_cast<int>(boundaries) + 1 == options.max_stages));
  ExactResult result;
  const int pivots = boundaries > 0           ? problem.num_instructions() - 1
                     : options.pivots.empty() ? problem.num_instructions() - 1
                                              : static_cast<int>(options.pivots.size());
  const int min_stages = std::max(1, options.min_stages);
  const int max_stages = std::min({options.max_stages, problem.num_devices(), pivots + 1});
  for (int stages = min_stages; stages <= max_stages; ++stages) {
    result.by_stages.emplace_back();
    result.by_stages.back().stages = stages;
  }
  // Stage counts that must hold a variable in each stage and those that need not are different programs.
  for (int first = min_stages; first <= max_stages;) {
    const bool needs = problem.stages_need_variables(first);
    int last = first;
    while (last < max_stages && problem.stages_need_variables(last + 1) == needs) ++last;
    std::vector<ExactStageResult> part(static_cast<std::size_t>(last - first + 1));
    LabelSearch search(problem, options, needs);
    search.run(first, last, part);
    for (int stages = first; stages <= last; ++stages) {
      ExactStageResult& stage_result = result.by_stages[static_cast<std::size_t>(stages - min_stages)];
      stage_result = std::move(part[static_cast<std::size_t>(stages - first)]);
      stage_result.stages = stages;
      stage_result.proven = !search.out_of_time();
      stage_result.lower_bound_ms = !stage_result.proven         ? balance_bound(problem)
                                    : stage_result.plans.empty() ? options.upper_bound_ms
                                                                 : stage_result.value_ms.front();
    }
    first = last + 1;
  }
  return result;
}

Plan refine_in_corridor(const Problem& problem, Plan plan, int pivot_radius, int device_radius) {
  if (plan.num_stages() == 1 || !feasible(problem, plan)) return plan;
  double value = value_ms(problem, plan);
  const auto around = [](int at, int radius, int end) {
    std::vector<int> values;
    for (int i = std::max(1, at - radius); i <= std::min(end - 1, at + radius); ++i) values.push_back(i);
    return values;
  };
  while (true) {
    ExactOptions options;
    options.min_stages = options.max_stages = plan.num_stages();
    options.schedule = plan.schedule;
    options.upper_bound_ms = value;
    for (std::size_t s = 0; s < plan.cuts.size(); ++s) {
      options.boundary_pivots.push_back(around(plan.cuts[s], pivot_radius, problem.num_instructions()));
      options.boundary_device_cuts.push_back(around(plan.device_cuts[s], device_radius, problem.num_devices()));
    }
    const ExactResult result = solve_exact(problem, options);
    const ExactStageResult* best = result.best();
    // A step of rounding size is no step.
    if (best == nullptr || best->value_ms.front() >= value * (1 - 1e-12)) return plan;
    plan = best->plans.front();
    value = best->value_ms.front();
  }
}

LowerBound lower_bound_all_cuts(const Problem& problem, const std::vector<Schedule>& schedules, int min_stages,
                                int max_stages, double incumbent_ms, double time_limit_s) {
  LowerBound bound{balance_bound(problem), "balance"};
  double exact = incumbent_ms;
  for (Schedule schedule : schedules) {
    ExactOptions options;
    options.min_stages = min_stages;
    options.max_stages = max_stages;
    options.schedule = schedule;
    options.upper_bound_ms = incumbent_ms;
    options.time_limit_s = time_limit_s / static_cast<double>(schedules.size());
    const ExactResult result = solve_exact(problem, options);
    if (!result.proven()) return bound;
    if (const ExactStageResult* best = result.best()) exact = std::min(exact, best->value_ms.front());
  }
  return exact > bound.ms ? LowerBound{exact, "exact over all cuts"} : bound;
}

}  // namespace automap::pipeline
