// Bounds over all cuts: relaxed programs over runs of cuts, refined where it matters.
#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/exact_program.h"

namespace automap::pipeline {
namespace internal {
namespace {

constexpr double kRounding = 1e-10;         // plans that differ by less are equally good
constexpr std::size_t kCoarsePoints = 160;  // thresholds of larger programs are computed on so many

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

// Places first..last of `cuts` in at most `parts` runs of about equal work.
void split(const Problem& problem, const std::vector<int>& cuts, std::pair<int, int> run, int parts, Runs& into) {
  const double from = problem.work_ms(0, cuts[at(run.first)]), to = problem.work_ms(0, cuts[at(run.second)]);
  const int count = run.second - run.first + 1;
  int start = run.first;
  for (int part = 1; part <= parts && start <= run.second; ++part) {
    int end = run.second;
    if (part < parts) {
      if (to > from && count > parts) {
        // Work decides, but each part gets a cut and leaves one to each part behind it.
        const double until = from + (to - from) * part / parts;
        end = start;
        while (end + 1 <= run.second && problem.work_ms(0, cuts[at(end + 1)]) <= until) ++end;
      } else {
        end = run.first + static_cast<int>(static_cast<std::int64_t>(count) * part / parts) - 1;
      }
      end = std::min(std::max(end, start), run.second);
    }
    into.emplace_back(start, end);
    start = end + 1;
  }
}

class Gap {
 public:
  Gap(const GapInput& input, Stop& stop) : in_(input), problem_(*input.problem), cuts_(*input.cuts), stop_(stop) {}

  GapOutput close();

 private:
  std::size_t count() const { return in_.limit_ms.size(); }
  void coarsen(ProgramInput& program, Points& coarse) const;
  // A plan within the runs of a completion, improved; empty cuts when none is feasible.
  bool concrete(const Completion& completion, Plan& plan) const;
  void found(Plan plan);

  const GapInput& in_;
  const Problem& problem_;
  const std::vector<int>& cuts_;
  Stop& stop_;
  Runs runs_;
  std::vector<double> limit_;
  GapOutput out_;
};

// Groups of neighbouring runs of about equal work, on which thresholds cost little.
void Gap::coarsen(ProgramInput& program, Points& coarse) const {
  if (runs_.size() <= kCoarsePoints) return;
  Runs groups;
  std::vector<int> group_of = {0};
  const double whole = problem_.work_ms(0, problem_.num_instructions());
  int last = -1;
  for (const auto& run : runs_) {
    const int group = static_cast<int>(problem_.work_ms(0, cuts_[at(run.first)]) / whole * kCoarsePoints);
    if (group != last) groups.push_back(run);
    groups.back().second = run.second;
    last = group;
    group_of.push_back(static_cast<int>(groups.size()));
  }
  group_of.push_back(static_cast<int>(groups.size()) + 1);
  coarse = run_points(problem_, cuts_, groups);
  program.coarse = &coarse;
  program.coarse_of = std::move(group_of);
}

bool Gap::concrete(const Completion& completion, Plan& plan) const {
  plan = Plan();
  plan.schedule = in_.schedule;
  plan.device_cuts = completion.device_cuts;
  int before = -1;
  for (int point : completion.points) {
    const auto& run = runs_[at(point - 1)];
    // The narrowest cut of the run that is still free.
    int best = -1;
    for (int i = std::max(run.first, before + 1); i <= run.second; ++i) {
      if (best < 0 || problem_.activation_bytes(cuts_[at(i)]) < problem_.activation_bytes(cuts_[at(best)])) best = i;
    }
    if (best < 0) return false;
    plan.cuts.push_back(cuts_[at(best)]);
    before = best;
  }
  return feasible(problem_, plan);
}

void Gap::found(Plan plan) {
  const std::size_t s = at(plan.num_stages() - in_.min_stages);
  const double value = value_ms(problem_, plan);
  if (!(value < limit_[s])) return;
  limit_[s] = value * (1 - kRounding);
  out_.plans.push_back(std::move(plan));
}

GapOutput Gap::close() {
  limit_ = in_.limit_ms;
  out_.bound_ms.resize(count());
  out_.closed.assign(count(), 0);
  for (std::size_t s = 0; s < count(); ++s) {
    out_.bound_ms[s] = balance_bound(problem_, in_.schedule, in_.min_stages + static_cast<int>(s));
  }
  if (!cuts_.empty()) split(problem_, cuts_, {0, static_cast<int>(cuts_.size()) - 1}, in_.first_runs, runs_);
  while (!stop_.now()) {
    ProgramInput program;
    program.problem = &problem_;
    program.schedule = in_.schedule;
    program.needs_variable = in_.needs_variable;
    program.min_stages = in_.min_stages;
    program.max_stages = in_.max_stages;
    for (int d = 1; d < problem_.num_devices(); ++d) program.device_cuts.push_back(d);
    program.mark = true;
    bool open = false;
    for (std::size_t s = 0; s < count(); ++s) {
      out_.closed[s] = out_.closed[s] || out_.bound_ms[s] >= limit_[s];
      program.limit_ms.push_back(out_.closed[s] ? 0 : limit_[s]);
      open = open || !out_.closed[s];
    }
    if (!open) return std::move(out_);
    while (program.max_stages > program.min_stages && out_.closed[at(program.max_stages - in_.min_stages)]) {
      program.limit_ms.pop_back();
      --program.max_stages;
    }
    const Points points = run_points(problem_, cuts_, runs_);
    program.points = &points;
    Points coarse;
    coarsen(program, coarse);
    ProgramOutput output = run_program(program, stop_);
    if (!output.finished) break;
    std::vector<Plan> plans;
    for (std::size_t s = 0; s < output.by_stages.size(); ++s) {
      if (out_.closed[s]) continue;
      if (output.by_stages[s].empty()) {
        out_.bound_ms[s] = limit_[s];
        out_.closed[s] = 1;
        continue;
      }
      const Completion& best = output.by_stages[s].front();
      out_.bound_ms[s] = std::max(out_.bound_ms[s], best.value_ms);
      Plan plan;
      if (!concrete(best, plan)) continue;
      const double value = value_ms(problem_, plan);
      if (value <= best.value_ms * (1 + kRounding)) {
        // The best there could be, and it exists.
        out_.bound_ms[s] = std::min(value, limit_[s]);
        out_.closed[s] = 1;
        found(std::move(plan));
      } else {
        plans.push_back(std::move(plan));
      }
    }
    for (Plan& plan : plans) {
      if (stop_.now()) break;
      found(refine_on_pivots(problem_, std::move(plan), cuts_, 8, 2, stop_));
    }
    // Cuts that no plan below the limit can use are gone for good; where such plans cut, look closer.
    Runs next;
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      if (!output.reached[r + 1]) continue;
      if (output.used[r + 1] && runs_[r].first < runs_[r].second) {
        split(problem_, cuts_, runs_[r], 4, next);
      } else {
        next.push_back(runs_[r]);
      }
    }
    runs_ = std::move(next);
  }
  return std::move(out_);
}

}  // namespace

double balance_bound(const Problem& problem, Schedule schedule, int stages) {
  double speed = 0, slowest = kInfinity;
  for (int d = 0; d < problem.num_devices(); ++d) {
    const double one = problem.group(d, d + 1).speed;
    speed += one;
    slowest = std::min(slowest, one);
  }
  const double work = problem.work_ms(0, problem.num_instructions()), balanced = work / speed;
  const double least = problem.micro_batches() * balanced;
  if (problem.options().value == ValueForm::kPaper || stages == 1) return least * (1 - kRounding);
  // With tau the longest stage: its own term counts it 1 + c times, and the other stages take what it leaves over.
  const double phi = problem.forward_fraction();
  const double c = problem.micro_batches() - 1 -
                   (in_flight(schedule, stages, 1, problem.micro_batches()) - 1) * std::min(phi, 1 - phi);
  const double spread = balanced * (c + stages);
  const double concentrated = work / std::max(speed - (stages - 1) * slowest, slowest) * (c + 1);
  return std::max(least, std::min(spread, concentrated)) * (1 - kRounding);
}

GapOutput close_gap(const GapInput& input, Stop& stop) {
  AM_CHECK(input.limit_ms.size() == at(input.max_stages - input.min_stages + 1));
  return Gap(input, stop).close();
}

}  // namespace internal

LowerBound lower_bound_all_cuts(const Problem& problem, const std::vector<Schedule>& schedules, int min_stages,
                                int max_stages, double incumbent_ms, double time_limit_s) {
  using namespace internal;  // NOLINT(google-build-using-namespace): its own parts
  Stop stop(time_limit_s, nullptr);
  std::vector<int> cuts;
  for (int i = 1; i < problem.num_instructions(); ++i) cuts.push_back(i);
  const int first_stages = std::max(1, min_stages);
  const int last_stages = std::min({max_stages, problem.num_devices(), problem.num_instructions()});
  double least = incumbent_ms;
  bool exact = true, relaxed = false;
  for (std::size_t which = 0; which < schedules.size(); ++which) {
    const Schedule schedule = schedules[which];
    Stop share((time_limit_s - stop.seconds()) / static_cast<double>(schedules.size() - which), nullptr);
    for (int first = first_stages; first <= last_stages;) {
      GapInput input;
      input.problem = &problem;
      input.schedule = schedule;
      input.needs_variable = problem.stages_need_variables(first);
      input.min_stages = input.max_stages = first;
      while (input.max_stages < last_stages &&
             problem.stages_need_variables(input.max_stages + 1) == input.needs_variable) {
        ++input.max_stages;
      }
      input.cuts = &cuts;
      input.limit_ms.assign(at(input.max_stages - first + 1), incumbent_ms);
      const GapOutput output = close_gap(input, share);
      for (std::size_t s = 0; s < output.bound_ms.size(); ++s) {
        exact = exact && output.closed[s];
        if (!output.closed[s]) {
          relaxed = relaxed || output.bound_ms[s] > balance_bound(problem, schedule, first + static_cast<int>(s));
        }
        least = std::min(least, output.bound_ms[s]);
      }
      first = input.max_stages + 1;
    }
  }
  return {least, exact ? "exact over all cuts" : relaxed ? "bucket relaxation" : "balance"};
}

}  // namespace automap::pipeline
