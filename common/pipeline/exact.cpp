#include "common/pipeline/exact.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/pipeline/exact_program.h"

namespace automap::pipeline {
namespace {

using namespace internal;  // NOLINT(google-build-using-namespace): the solver's own parts

// With more labels per stage count than this a better incumbent pays.
constexpr std::int64_t kManyLabels = 100000;

// Further plans to look at, where some may be refused for a reason that no stage alone decides.
constexpr int kMoreWhereSomeIdle = 7;

// With more pivots than this, runs of pivots come first.
constexpr std::size_t kDirectPivots = 400;

// At most `count` of the pivots: of each of `count` runs of equal work the one that moves least.
std::vector<int> narrow_pivots(const Problem& problem, const std::vector<int>& pivots, int count) {
  if (static_cast<int>(pivots.size()) <= count) return pivots;
  const double total = problem.work_ms(0, problem.num_instructions());
  std::vector<int> chosen;
  int run = -1;
  for (int pivot : pivots) {
    const int this_run = std::min(count - 1, static_cast<int>(problem.work_ms(0, pivot) / total * count));
    if (this_run != run) {
      chosen.push_back(pivot);
    } else if (problem.activation_bytes(pivot) < problem.activation_bytes(chosen.back())) {
      chosen.back() = pivot;
    }
    run = this_run;
  }
  return chosen;
}

// About `count` device cuts, evenly spread.
std::vector<int> spread_device_cuts(const Problem& problem, int count) {
  std::vector<int> cuts;
  int step = std::max(1, problem.num_devices() / count);
  if (problem.options().replicas == Replicas::kWhole) {
    // A size that groups may have, so that cuts so far apart leave groups that can run.
    int size = 1;
    for (const int possible : problem.group_sizes()) {
      if (possible <= step) size = possible;
    }
    step = size;
  }
  for (int d = step; d < problem.num_devices(); d += step) cuts.push_back(d);
  return cuts;
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

namespace {

// Solves stage counts first..last, which agree on whether a stage must hold a variable.
class StageRange {
 public:
  StageRange(const Problem& problem, const ExactOptions& options, const std::vector<int>& pivots, int first, int last,
             Work& work)
      : problem_(problem),
        options_(options),
        pivots_(pivots),
        first_(first),
        last_(last),
        work_(work),
        simple_(problem, options.schedule) {
    work_.spend(simple_.units());
  }

  void solve(ExactStageResult* results) {
    results_ = results;
    refused_ms_.assign(static_cast<std::size_t>(last_ - first_ + 1), kInfinity);
    ProgramInput input;
    input.problem = &problem_;
    input.schedule = options_.schedule;
    input.needs_variable = problem_.stages_need_variables(first_);
    input.min_stages = first_;
    input.max_stages = last_;
    input.keep = options_.k_best;
    if (!problem_.options().allow_idle_stages) input.keep += kMoreWhereSomeIdle;
    const bool corridor = !options_.boundary_pivots.empty();
    for (int stages = first_; stages <= last_; ++stages) {
      result(stages).lower_bound_ms = simple_.ms(stages);
    }
    if (!corridor && last_ > 1) search(input);
    if (work_.over()) return;
    if (!corridor && pivots_.size() > kDirectPivots) {
      close(input);
      return;
    }
    const Points points = exact_points(problem_, pivots_);
    input.points = &points;
    if (corridor) {
      for (const std::vector<int>& cuts : options_.boundary_pivots) {
        input.boundary_points.emplace_back();
        for (int cut : cuts) {
          const auto place = std::lower_bound(pivots_.begin(), pivots_.end(), cut) - pivots_.begin();
          input.boundary_points.back().push_back(static_cast<int>(place) + 1);
        }
      }
      input.boundary_device_cuts = options_.boundary_device_cuts;
    } else {
      for (int d = 1; d < problem_.num_devices(); ++d) input.device_cuts.push_back(d);
    }
    set_limits(input);
    if (!corridor) input.most_labels = kManyLabels * (last_ - first_ + 1);
    ProgramOutput output = run_program(input, work_);
    if (output.gave_up) {
      // The best plan known leaves too much room: look for a better one among all pivots and devices first.
      improve(input, pivots_, problem_.num_devices(), 6);
      set_limits(input);
      input.most_labels = 0;
      output = run_program(input, work_);
    }
    refused_ms_.assign(input.limit_ms.size(), kInfinity);
    take(output, pivots_, nullptr);
    for (int stages = first_; stages <= last_; ++stages) {
      ExactStageResult& into = result(stages);
      into.proven = output.finished;
      if (!output.finished) continue;
      const double refused = refused_ms_[static_cast<std::size_t>(stages - first_)];
      into.lower_bound_ms = options_.upper_bound_ms;
      if (refused < limit(stages)) {
        into.proven = list_all(input, stages);
        if (!into.proven) into.lower_bound_ms = std::max(simple_.ms(stages), std::min(refused, into.lower_bound_ms));
      }
    }
  }

 private:
  ExactStageResult& result(int stages) { return results_[stages - first_]; }
  // The shortest plan of the program is refused because a stage idles beside the others, and a plan that it made
  // superfluous need not be: all plans below the limit are listed. False when there are too many.
  bool list_all(ProgramInput input, int stages) {
    input.min_stages = input.max_stages = stages;
    input.limit_ms = {limit(stages)};
    input.all_plans = true;
    input.most_labels = kManyLabels;
    const ProgramOutput output = run_program(input, work_);
    take(output, pivots_, nullptr);
    return output.finished;
  }
  double limit(int stages) {
    const ExactStageResult& known = result(stages);
    const double best = known.plans.empty() ? kInfinity : known.value_ms.front() * (1 - kEquallyGood);
    return std::min(options_.upper_bound_ms, best);
  }
  void set_limits(ProgramInput& input) {
    input.limit_ms.clear();
    for (int stages = first_; stages <= last_; ++stages) {
      // Nothing is shorter than a plan that meets the simplest bound.
      const bool settled = simple_.ms(stages) >= limit(stages) * (1 - 2 * kEquallyGood);
      input.limit_ms.push_back(settled ? 0 : limit(stages));
    }
  }
  void add(Plan plan) {
    const double value = value_ms(problem_, plan);
    if (!(value < options_.upper_bound_ms)) return;
    ExactStageResult& into = result(plan.num_stages());
    if (std::find(into.plans.begin(), into.plans.end(), plan) != into.plans.end()) return;
    const auto offset = std::upper_bound(into.value_ms.begin(), into.value_ms.end(), value) - into.value_ms.begin();
    if (offset >= options_.k_best) return;
    into.value_ms.insert(into.value_ms.begin() + offset, value);
    into.plans.insert(into.plans.begin() + offset, std::move(plan));
    if (into.plans.size() > static_cast<std::size_t>(options_.k_best)) {
      into.plans.pop_back();
      into.value_ms.pop_back();
    }
  }
  void take(const ProgramOutput& output, const std::vector<int>& cuts, std::vector<Plan>* plans) {
    for (const std::vector<Completion>& completions : output.by_stages) {
      for (const Completion& completion : completions) {
        Plan plan;
        plan.schedule = options_.schedule;
        for (int point : completion.points) plan.cuts.push_back(cuts[static_cast<std::size_t>(point - 1)]);
        plan.device_cuts = completion.device_cuts;
        plan.variants = completion.variants;
        const double value = value_ms(problem_, plan);
        AM_CHECK(std::abs(value - completion.value_ms) <= 1e-9 * std::max(value, completion.value_ms));
        if (!feasible(problem_, plan)) {
          double& refused = refused_ms_[static_cast<std::size_t>(plan.num_stages() - first_)];
          refused = std::min(refused, value);
          continue;
        }
        if (plans != nullptr) plans->push_back(plan);
        add(std::move(plan));
      }
    }
  }
  // Many pivots: relaxed programs over runs of them, refined until nothing shorter than the best plan is left.
  void close(const ProgramInput& input) {
    GapInput gap;
    gap.problem = &problem_;
    gap.schedule = options_.schedule;
    gap.needs_variable = input.needs_variable;
    gap.min_stages = first_;
    gap.max_stages = last_;
    gap.cuts = &pivots_;
    for (int stages = first_; stages <= last_; ++stages) gap.limit_ms.push_back(limit(stages));
    GapOutput output = std::move(close_gaps({gap}, false, work_).front());
    for (Plan& plan : output.plans) add(std::move(plan));
    for (int stages = first_; stages <= last_; ++stages) {
      ExactStageResult& into = result(stages);
      into.proven = output.closed[static_cast<std::size_t>(stages - first_)];
      into.lower_bound_ms =
          std::min(output.bound_ms[static_cast<std::size_t>(stages - first_)], options_.upper_bound_ms);
    }
  }
  // Finds good plans: from few pivots and few devices, then with more of both below the best known value, each time
  // moved on all of them. Where nothing is known the limit is raised from below until the beam finds a plan.
  void search(ProgramInput input) {
    struct Level {
      int pivots, devices, beam;
    };
    std::vector<Level> levels = {{std::max(16, 3 * last_), std::max(12, 2 * last_), 2},
                                 {std::max(32, 4 * last_), std::max(16, 2 * last_), 3}};
    if (pivots_.size() > kDirectPivots) levels.push_back({192, problem_.num_devices(), 4});
    for (const Level& level : levels) {
      const std::vector<int> few = narrow_pivots(problem_, pivots_, level.pivots);
      improve(input, few, level.devices, level.beam);
      if (few.size() == pivots_.size()) return;
    }
  }

  // A beam over these pivots and about so many device cuts, below the best known value, and corridors around its plans.
  void improve(ProgramInput input, const std::vector<int>& few, int devices, int beam) {
    const Points points = exact_points(problem_, few);
    input.points = &points;
    input.beam = beam;
    input.most_labels = 0;
    input.device_cuts = spread_device_cuts(problem_, devices);
    double slack = 1.1;
    std::vector<bool> tried(static_cast<std::size_t>(last_ - first_ + 1), false), last_time = tried;
    for (int round = 0; round < 8; ++round, slack = 1 + 2 * (slack - 1)) {
      input.limit_ms.clear();
      bool wanted = false;
      for (int stages = first_; stages <= last_; ++stages) {
        double most = limit(stages);
        if (tried[static_cast<std::size_t>(stages - first_)]) most = 0;
        if (result(stages).plans.empty()) {
          const double raised = slack * simple_.ms(stages);
          // Raised further it would be the same search again.
          last_time[static_cast<std::size_t>(stages - first_)] = raised >= most;
          most = std::min(most, raised);
        }
        wanted = wanted || most > 0;
        input.limit_ms.push_back(most);
      }
      if (!wanted) return;
      std::vector<Plan> plans;
      take(run_program(input, work_), few, &plans);
      for (Plan& plan : plans) {
        if (work_.over()) return;
        const std::size_t which = static_cast<std::size_t>(plan.num_stages() - first_);
        if (tried[which]) continue;
        tried[which] = true;
        if (plan.num_stages() > 1) add(refine_on_pivots(problem_, std::move(plan), pivots_, 8, 2, work_));
      }
      for (int stages = first_; stages <= last_; ++stages) {
        const std::size_t which = static_cast<std::size_t>(stages - first_);
        if (last_time[which] || !result(stages).plans.empty()) tried[which] = true;
      }
    }
  }

  const Problem& problem_;
  const ExactOptions& options_;
  const std::vector<int>& pivots_;
  int first_, last_;
  Work& work_;
  SimpleBounds simple_;
  std::vector<double> refused_ms_;  // [stages - first]: shortest plan met that feasible() refuses
  ExactStageResult* results_ = nullptr;
};

}  // namespace

ExactResult solve_exact(const Problem& problem, const ExactOptions& options) {
  const std::size_t boundaries = options.boundary_pivots.size();
  AM_CHECK(boundaries == options.boundary_device_cuts.size());
  AM_CHECK(boundaries == 0 ||
           (options.min_stages == options.max_stages && static_cast<int>(boundaries) + 1 == options.max_stages));
  Work without_end;
  Work& work = options.work == nullptr ? without_end : *options.work;
  std::vector<int> pivots = options.pivots;
  if (boundaries > 0) {
    pivots.clear();
    for (const std::vector<int>& cuts : options.boundary_pivots) pivots.insert(pivots.end(), cuts.begin(), cuts.end());
    std::sort(pivots.begin(), pivots.end());
    pivots.erase(std::unique(pivots.begin(), pivots.end()), pivots.end());
  } else if (pivots.empty()) {
    for (int i = 1; i < problem.num_instructions(); ++i) pivots.push_back(i);
  }
  ExactResult result;
  const int min_stages = std::max(1, options.min_stages);
  const int max_stages = std::min({options.max_stages, problem.num_devices(), static_cast<int>(pivots.size()) + 1});
  for (int stages = min_stages; stages <= max_stages; ++stages) {
    result.by_stages.emplace_back();
    result.by_stages.back().stages = stages;
  }
  // Stage counts that must hold a variable in each stage and those that need not are different programs.
  for (int first = min_stages; first <= max_stages;) {
    const bool needs = problem.stages_need_variables(first);
    int last = first;
    while (last < max_stages && problem.stages_need_variables(last + 1) == needs) ++last;
    StageRange(problem, options, pivots, first, last, work)
        .solve(&result.by_stages[static_cast<std::size_t>(first - min_stages)]);
    first = last + 1;
  }
  // A proof goes as far as the best plan, and no bound is above it.
  for (ExactStageResult& stage : result.by_stages) {
    if (stage.plans.empty()) continue;
    stage.lower_bound_ms =
        stage.proven ? stage.value_ms.front() : std::min(stage.lower_bound_ms, stage.value_ms.front());
  }
  return result;
}

}  // namespace automap::pipeline
