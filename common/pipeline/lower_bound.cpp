// Bounds over all cuts: relaxed programs over runs of cuts, refined where it matters.
#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/numbers.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/exact_tables.h"
#include "common/pipeline/value_terms.h"

namespace automap::pipeline {
namespace internal {
namespace {

// Thresholds of larger programs are computed on so many points to begin with, and on twice as many each time that
// the labels they let pass take much longer than they do.
constexpr std::size_t kCoarsePoints = 160;
constexpr std::int64_t kLabelsPerThreshold = 3;
// Prices, units of work.
constexpr std::int64_t kPerInstruction = 20;  // sorted for a simple bound, or put into a run
constexpr std::int64_t kPerGroup = 10;        // of devices, compared with those alike, or tried for an instruction

// Cuts run.first..run.second of `cuts` in at most `parts` runs of about equal work, or of equal count where there is
// no work between them.
void split_evenly(const Problem& problem, const std::vector<int>& cuts, std::pair<int, int> run, int parts,
                  Runs& into) {
  const double from = problem.work_ms(0, cuts[at(run.first)]), to = problem.work_ms(0, cuts[at(run.second)]);
  const int count = run.second - run.first + 1;
  int start = run.first;
  for (int part = 1; part <= parts && start <= run.second; ++part) {
    int end = run.second;
    if (part < parts) {
      if (to > from && count > parts) {
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

// Splits a run of many cuts whose relaxation is too optimistic. A run looks better than its cuts for two reasons: no
// stage is charged for the work between its ends, and all cuts count as its narrowest one. The split removes the larger
// error.
void split_run(const Problem& problem, const std::vector<int>& cuts, std::pair<int, int> run, double ms_per_work,
               double ms_per_byte, Runs& into) {
  int narrowest = run.first;
  double next = kInfinity;  // of the second narrowest
  for (int i = run.first + 1; i <= run.second; ++i) {
    const double bytes = problem.activation_bytes(cuts[at(i)]), least = problem.activation_bytes(cuts[at(narrowest)]);
    next = std::min(next, std::max(bytes, least));
    if (bytes < least) narrowest = i;
  }
  const double work_ms = ms_per_work * problem.work_ms(cuts[at(run.first)], cuts[at(run.second)]);
  const double narrow_ms = ms_per_byte * (next - problem.activation_bytes(cuts[at(narrowest)]));
  if (narrow_ms <= work_ms) {
    split_evenly(problem, cuts, run, 4, into);
    return;
  }
  if (narrowest > run.first) split_evenly(problem, cuts, {run.first, narrowest - 1}, 2, into);
  into.emplace_back(narrowest, narrowest);
  if (narrowest < run.second) split_evenly(problem, cuts, {narrowest + 1, run.second}, 2, into);
}

class Gap {
 public:
  Gap(const GapInput& input, Work& work);

  // Solves the relaxed program once and looks closer where it says so. False when the work was over.
  bool step();
  bool open() const {
    for (std::size_t s = 0; s < count(); ++s) {
      if (!out_.closed[s] && !stuck_[s]) return true;
    }
    return false;
  }
  double least_open_bound() const;
  // Plans of this length or more are of no interest any more.
  void lower_limits(double value);
  const GapInput& input() const { return in_; }
  const GapOutput& output() const { return out_; }

 private:
  std::size_t count() const { return limit_.size(); }
  void close_settled();
  void coarsen(ProgramInput& program, Points& coarse) const;
  bool concrete(const Completion& completion, Plan& plan) const;
  bool single_cuts(const Completion& completion) const;
  void found(Plan plan);

  GapInput in_;
  const Problem& problem_;
  const std::vector<int>& cuts_;
  Work& work_;
  Runs runs_;
  std::size_t coarse_points_ = kCoarsePoints;
  std::vector<double> limit_;
  // Stage counts whose best plan is refused for a reason that no stage alone decides (stages that idle beside the
  // others): their bound holds, and looking again brings it no closer.
  std::vector<char> stuck_;
  GapOutput out_;
};

// Groups of neighbouring runs of about equal work, on which thresholds cost little.
void Gap::coarsen(ProgramInput& program, Points& coarse) const {
  if (runs_.size() <= coarse_points_) return;
  Runs groups;
  std::vector<int> group_of = {0};
  const double whole = problem_.work_ms(0, problem_.num_instructions());
  int last = -1;
  for (const auto& run : runs_) {
    const int group =
        static_cast<int>(problem_.work_ms(0, cuts_[at(run.first)]) / whole * static_cast<double>(coarse_points_));
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

// A plan within the runs of a completion; false when the narrowest cuts make none that fits.
bool Gap::concrete(const Completion& completion, Plan& plan) const {
  plan = Plan();
  plan.schedule = in_.schedule;
  plan.device_cuts = completion.device_cuts;
  plan.variants = completion.variants;
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

bool Gap::single_cuts(const Completion& completion) const {
  return std::all_of(completion.points.begin(), completion.points.end(), [&](int point) {
    const auto& run = runs_[at(point - 1)];
    return run.first == run.second;
  });
}

void Gap::found(Plan plan) {
  const std::size_t s = at(plan.num_stages() - in_.min_stages);
  const double value = value_ms(problem_, plan);
  if (!(value < limit_[s])) return;
  limit_[s] = value * (1 - kEquallyGood);
  out_.plans.push_back(std::move(plan));
}

Gap::Gap(const GapInput& input, Work& work)
    : in_(input), problem_(*input.problem), cuts_(*input.cuts), work_(work), limit_(input.limit_ms) {
  out_.closed.assign(count(), 0);
  stuck_.assign(count(), 0);
  const SimpleBounds simple(problem_, in_.schedule);
  work_.spend(simple.units() + kPerInstruction * static_cast<std::int64_t>(cuts_.size()));
  for (std::size_t s = 0; s < count(); ++s) out_.bound_ms.push_back(simple.ms(in_.min_stages + static_cast<int>(s)));
  if (!cuts_.empty()) split_evenly(problem_, cuts_, {0, static_cast<int>(cuts_.size()) - 1}, in_.first_runs, runs_);
  close_settled();
}

void Gap::close_settled() {
  for (std::size_t s = 0; s < count(); ++s) {
    if (out_.closed[s] || out_.bound_ms[s] < limit_[s] * (1 - 2 * kEquallyGood)) continue;
    out_.closed[s] = 1;
    out_.bound_ms[s] = std::max(out_.bound_ms[s], limit_[s]);
  }
}

void Gap::lower_limits(double value) {
  for (double& limit : limit_) limit = std::min(limit, value * (1 - kEquallyGood));
  close_settled();
}

double Gap::least_open_bound() const {
  double least = kInfinity;
  for (std::size_t s = 0; s < count(); ++s) {
    if (!out_.closed[s] && !stuck_[s]) least = std::min(least, out_.bound_ms[s]);
  }
  return least;
}

bool Gap::step() {
  ProgramInput program;
  program.problem = &problem_;
  program.schedule = in_.schedule;
  program.needs_variable = in_.needs_variable;
  program.min_stages = in_.min_stages;
  program.max_stages = in_.max_stages;
  for (int d = 1; d < problem_.num_devices(); ++d) program.device_cuts.push_back(d);
  program.mark = true;
  const auto settled = [&](std::size_t s) { return out_.closed[s] || stuck_[s]; };
  for (std::size_t s = 0; s < count(); ++s) program.limit_ms.push_back(settled(s) ? 0 : limit_[s]);
  while (program.max_stages > program.min_stages && settled(at(program.max_stages - in_.min_stages))) {
    program.limit_ms.pop_back();
    --program.max_stages;
  }
  const Points points = run_points(problem_, cuts_, runs_);
  work_.spend(kPerInstruction * static_cast<std::int64_t>(cuts_.size()));
  program.points = &points;
  Points coarse;
  coarsen(program, coarse);
  const ProgramOutput output = run_program(program, work_);
  if (!output.finished) return false;
  if (program.coarse != nullptr) {
    for (std::int64_t tried = output.tried; tried > kLabelsPerThreshold * output.transitions; tried /= 4) {
      coarse_points_ *= 2;
    }
  }
  std::vector<Plan> plans;
  for (std::size_t s = 0; s < output.by_stages.size(); ++s) {
    if (settled(s)) continue;
    if (output.by_stages[s].empty()) {
      out_.bound_ms[s] = std::max(out_.bound_ms[s], limit_[s]);
      out_.closed[s] = 1;
      continue;
    }
    const Completion& best = output.by_stages[s].front();
    out_.bound_ms[s] = std::max(out_.bound_ms[s], best.value_ms);
    Plan plan;
    if (!concrete(best, plan)) {
      stuck_[s] = single_cuts(best);
      continue;
    }
    const double value = value_ms(problem_, plan);
    if (value <= best.value_ms * (1 + kEquallyGood)) {
      // The best there could be, and it exists.
      out_.bound_ms[s] = std::min(value, limit_[s]);
      out_.closed[s] = 1;
      found(std::move(plan));
    } else {
      plans.push_back(std::move(plan));
    }
  }
  for (Plan& plan : plans) {
    if (work_.over()) break;
    found(refine_on_pivots(problem_, std::move(plan), cuts_, 8, 2, work_));
  }
  close_settled();
  // Cuts that no plan below the limit can use are gone for good; where such plans cut, look closer.
  const int devices = problem_.num_devices();
  double speed = 0;
  for (int d = 0; d < devices; ++d) speed += problem_.device_speed(d);
  const double ms_per_work = in_.max_stages / speed;
  const double ms_per_byte = devices > 1 ? 1 / problem_.link(0, devices / 2, devices).bytes_per_ms : 0;
  Runs next;
  for (std::size_t r = 0; r < runs_.size(); ++r) {
    if (!output.reached[r + 1]) continue;
    if (output.used[r + 1] && runs_[r].first < runs_[r].second) {
      split_run(problem_, cuts_, runs_[r], ms_per_work, ms_per_byte, next);
    } else {
      next.push_back(runs_[r]);
    }
  }
  runs_ = std::move(next);
  return true;
}

}  // namespace

SimpleBounds::SimpleBounds(const Problem& problem, Schedule schedule)
    : problem_(problem), schedule_(schedule), largest_instruction_ms_(at(problem.num_devices()) + 1, 0) {
  // All cuts in one run, of which nothing else is known.
  std::vector<int> cuts;
  for (int i = 1; i < problem.num_instructions(); ++i) cuts.push_back(i);
  const Points points = run_points(problem, cuts, {{0, static_cast<int>(cuts.size()) - 1}});
  StageTables tables(problem, points);
  tables.find_shares(true);
  small_share_ = tables.small_share();
  units_ += tables.take_units();
  if (problem.group(0, problem.num_devices()).valid) {
    one_stage_ms_ = kInfinity;
    Plan plan;
    plan.schedule = schedule;
    for (int v = 0; v < problem.num_variants(); ++v) {
      plan.variants = {static_cast<std::uint8_t>(v)};
      one_stage_ms_ = std::min(one_stage_ms_, value_ms(problem, plan));
    }
  }
  // The instructions that take longest and those with the most gradients: the others say less.
  constexpr std::size_t kTried = 8;
  std::vector<int> by_work, by_gradient;
  for (int i = 1; i <= problem.num_instructions(); ++i) by_work.push_back(i);
  by_gradient = by_work;
  const std::size_t tried = std::min(kTried, by_work.size());
  const auto largest_first = [&](std::vector<int>& order, auto size_of) {
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(tried), order.end(),
                      [&](int a, int b) { return size_of(a) > size_of(b); });
    order.resize(tried);
  };
  largest_first(by_work, [&](int i) { return problem.work_ms(i - 1, i); });
  largest_first(by_gradient, [&](int i) { return problem.gradient_bytes(i - 1, i); });
  by_work.insert(by_work.end(), by_gradient.begin(), by_gradient.end());

  // Groups of one size that no single instruction can tell apart count once: on alike servers there are few others.
  const int devices = problem.num_devices();
  std::vector<std::vector<const DeviceGroup*>> groups(largest_instruction_ms_.size());
  for (int d0 = 0; d0 < devices; ++d0) {
    for (const int size : problem.group_sizes()) {
      if (d0 + size > devices) break;
      const DeviceGroup& group = problem.group(d0, d0 + size);
      std::vector<const DeviceGroup*>& alike = groups[at(group.size)];
      const auto same = [&](const DeviceGroup* other) {
        return other->columns == group.columns && other->scale == group.scale &&
               other->capacity_bytes == group.capacity_bytes && other->all_reduce == group.all_reduce &&
               other->scatter == group.scatter;
      };
      units_ += kPerGroup;
      if (std::none_of(alike.begin(), alike.end(), same)) alike.push_back(&group);
    }
  }
  units_ += kPerInstruction * problem.num_instructions();
  std::vector<double> least(largest_instruction_ms_.size());
  for (int i : by_work) {
    std::fill(least.begin(), least.end(), kInfinity);
    for (const std::vector<const DeviceGroup*>& alike : groups) {
      units_ += kPerGroup * static_cast<std::int64_t>(alike.size());
      for (const DeviceGroup* group : alike) {
        for (const int v : problem.useful_variants(*group)) {
          if (!tables.may_fit_cuts(i - 1, i, *group, v, 1)) continue;
          // More in the stage makes each of these larger, and their sum.
          const double ms = problem.micro_batches() * problem.compute_ms(i - 1, i, *group, v) +
                            problem.least_exposed_sync_ms(problem.gradient_bytes(i - 1, i),
                                                          problem.backward_ms(i - 1, i, *group, v), *group, v) +
                            problem.optimizer_ms(i - 1, i, *group, v);
          least[at(group->size)] = std::min(least[at(group->size)], ms);
        }
      }
    }
    for (std::size_t size = 1; size < least.size(); ++size) {
      least[size] = std::min(least[size], least[size - 1]);
      // Where it fits nowhere there is no plan at all, which is not for a bound to say.
      if (least[size] == kInfinity) continue;
      largest_instruction_ms_[size] = std::max(largest_instruction_ms_[size], least[size]);
    }
  }
}

double SimpleBounds::ms(int stages) const {
  if (stages > problem_.num_devices()) return kInfinity;
  if (stages == 1 && one_stage_ms_ > 0) return one_stage_ms_ * (1 - kEquallyGood);
  // Every other stage has a device, too.
  const double instruction = largest_instruction_ms_[at(problem_.num_devices() - stages + 1)];
  return std::max(balance_ms(stages), instruction * (1 - kEquallyGood));
}

double SimpleBounds::balance_ms(int stages) const {
  const Problem& problem = problem_;
  double speed = 0, slowest = kInfinity;
  for (int d = 0; d < problem.num_devices(); ++d) {
    const double one = problem.device_speed(d);
    speed += one;
    slowest = std::min(slowest, one);
  }
  const double work = problem.work_ms(0, problem.num_instructions()), balanced = work / speed;
  const double least = problem.micro_batches() * balanced;
  if (problem.options().value == ValueForm::kPaper || stages == 1) return least * (1 - kEquallyGood);
  // With tau the longest stage: its own term counts it 1 + c times, and the other stages take what it leaves over.
  const terms::InFlight k(problem.micro_batches(), in_flight(schedule_, stages, 1, problem.micro_batches()));
  const double c = k.steady - k.ahead * small_share_;
  const double spread = balanced * (c + stages);
  const double concentrated = work / std::max(speed - (stages - 1) * slowest, slowest) * (c + 1);
  return std::max(least, std::min(spread, concentrated)) * (1 - kEquallyGood);
}

std::vector<GapOutput> close_gaps(const std::vector<GapInput>& inputs, bool only_best, Work& work) {
  // Stage counts that differ much need different runs.
  std::vector<Gap> gaps;
  std::vector<std::size_t> input_of;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const GapInput& input = inputs[i];
    AM_CHECK(input.limit_ms.size() == at(input.max_stages - input.min_stages + 1));
    for (int first = input.min_stages; first <= input.max_stages;) {
      GapInput part = input;
      part.min_stages = first;
      part.max_stages = std::min(input.max_stages, first + first / 2);
      part.limit_ms.assign(input.limit_ms.begin() + (first - input.min_stages),
                           input.limit_ms.begin() + (part.max_stages - input.min_stages) + 1);
      first = part.max_stages + 1;
      gaps.emplace_back(part, work);
      input_of.push_back(i);
    }
  }
  std::vector<std::size_t> plans_seen(gaps.size(), 0);
  while (!work.over()) {
    Gap* lowest = nullptr;
    for (Gap& gap : gaps) {
      if (gap.open() && (lowest == nullptr || gap.least_open_bound() < lowest->least_open_bound())) lowest = &gap;
    }
    if (lowest == nullptr || !lowest->step()) break;
    if (!only_best) continue;
    const std::vector<Plan>& plans = lowest->output().plans;
    for (std::size_t& seen = plans_seen[static_cast<std::size_t>(lowest - gaps.data())]; seen < plans.size(); ++seen) {
      const double value = value_ms(*lowest->input().problem, plans[seen]);
      for (Gap& gap : gaps) gap.lower_limits(value);
    }
  }
  std::vector<GapOutput> outputs(inputs.size());
  for (std::size_t g = 0; g < gaps.size(); ++g) {
    const GapOutput& part = gaps[g].output();
    GapOutput& into = outputs[input_of[g]];
    into.bound_ms.insert(into.bound_ms.end(), part.bound_ms.begin(), part.bound_ms.end());
    into.closed.insert(into.closed.end(), part.closed.begin(), part.closed.end());
    into.plans.insert(into.plans.end(), part.plans.begin(), part.plans.end());
  }
  return outputs;
}

}  // namespace internal

std::vector<double> simple_lower_bounds_ms(const Problem& problem, Schedule schedule, int max_stages) {
  const internal::SimpleBounds simple(problem, schedule);
  std::vector<double> bounds;
  for (int stages = 1; stages <= max_stages; ++stages) bounds.push_back(simple.ms(stages));
  return bounds;
}

LowerBound lower_bound_all_cuts(const Problem& problem, const std::vector<Schedule>& schedules, int min_stages,
                                int max_stages, double incumbent_ms, Work& work) {
  using namespace internal;  // NOLINT(google-build-using-namespace): its own parts
  std::vector<int> cuts;
  for (int i = 1; i < problem.num_instructions(); ++i) cuts.push_back(i);
  const int first_stages = std::max(1, min_stages);
  const int last_stages = std::min({max_stages, problem.num_devices(), problem.num_instructions()});
  std::vector<GapInput> inputs;
  for (Schedule schedule : schedules) {
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
      first = input.max_stages + 1;
      inputs.push_back(std::move(input));
    }
  }
  double least = incumbent_ms;
  bool exact = true, relaxed = false;
  const std::vector<GapOutput> outputs = close_gaps(inputs, true, work);
  LowerBound bound;
  for (const GapOutput& output : outputs) {
    for (const Plan& plan : output.plans) {
      const double value = value_ms(problem, plan);
      if (!(value < least)) continue;
      least = value;
      bound.better = plan;
    }
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const SimpleBounds simple(problem, inputs[i].schedule);
    work.spend(simple.units());
    for (std::size_t s = 0; s < outputs[i].bound_ms.size(); ++s) {
      const double part = outputs[i].bound_ms[s];
      if (outputs[i].closed[s] || part >= least) continue;
      exact = false;
      relaxed = relaxed || part > simple.ms(inputs[i].min_stages + static_cast<int>(s));
    }
  }
  for (const GapOutput& output : outputs) {
    for (double part : output.bound_ms) least = std::min(least, part);
  }
  bound.ms = least;
  bound.method = exact ? kExactBound.data() : relaxed ? "bucket relaxation" : kBalanceOfWork;
  return bound;
}

}  // namespace automap::pipeline
