#include "plan/planners/step_bounds.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/in_order.h"
#include "common/base/work.h"
#include "common/machine/chosen_devices.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/schedule.h"
#include "plan/planners/effort.h"

namespace automap::planners {

using pipeline::Problem;
using pipeline::ProblemOptions;

namespace {

// For the bound of one split that comes to no end with kBoundUnits.
constexpr std::int64_t kCloserUnits = 1'000'000'000;
// Bounds of splits that may get so much, since the loosest split makes the bound.
constexpr int kMostCloser = 8;
constexpr double kLeastBoundTime = 1e-3;  // seconds, for a bound that comes when the time is over

// The least of the plans of one stage; infinite where none fits or several stages are asked for.
struct LeastOfOneStage {
  double value_ms = kInfinity, simulated_ms = kInfinity;
};

LeastOfOneStage least_of_one_stage(const Problem& problem, const PlanRequest& request) {
  LeastOfOneStage least;
  if (request.stages > 1) return least;
  for (const pipeline::Schedule schedule : request.schedules) {
    pipeline::Plan plan;
    plan.schedule = schedule;
    for (int v = 0; v < problem.num_variants(); ++v) {
      plan.variants = {static_cast<std::uint8_t>(v)};
      if (!feasible(problem, plan)) continue;
      least.value_ms = std::min(least.value_ms, value_ms(problem, plan));
      least.simulated_ms = std::min(least.simulated_ms, simulate_step_ms(problem, plan));
    }
  }
  return least;
}

// The lower bound over the splits so far, and the number of bounds that may still get more work.
struct Bounded {
  double value_ms;
  std::string method;  // of value_ms
  double simulated_ms;
  int closer;
  bool operator==(const Bounded& other) const {
    return value_ms == other.value_ms && simulated_ms == other.simulated_ms && closer == other.closer;
  }
};

class StepBounds {
 public:
  StepBounds(const Question& question, const Bounds& bounds) : question_(question) {
    for (const StepSize& size : bounds.considered) work_.try_emplace(size.width, question, size.width);
  }

  double work_ms(const StepSize& size) const { return work_.at(size.width).ms(size); }

  // With those of one more split. `own`: there is a bound of its V already.
  Bounded with(const StepSize& size, bool own, Bounded so_far) const {
    const PlanRequest& asked = question_.request;
    if (size.devices > 0 && asked.stages > size.devices) return so_far;
    if (work_ms(size) >= std::max(so_far.value_ms, so_far.simulated_ms)) return so_far;
    // The path to the last backward is neither longer than V nor, with several stages, longer than a simulation
    // (cost.h).
    const double value = own ? 0 : so_far.value_ms;
    ProblemOptions of_path = question_.options;
    of_path.behind_backward = false;
    const std::unique_ptr<Problem> path = possible_problem(question_, size, of_path);
    if (!path) return so_far;
    const PlanRequest request = request_for(*path, asked);
    const SimpleBound simple = simple_bound(*path, request);
    if (simple.ms >= std::max(value, so_far.simulated_ms)) return so_far;
    const std::unique_ptr<Problem> problem = problem_of(question_, size, question_.options);
    const LeastOfOneStage one = least_of_one_stage(*problem, request);
    double& simulated = so_far.simulated_ms;
    simulated = std::min(simulated, one.simulated_ms);
    const bool value_open = value > 0 && simple_bound(*problem, request).ms < value;
    // If one stage has a lower V, the V of several stages does not settle the bound.
    const bool by_path = value_open && one.value_ms >= value;
    const double most_ms = by_path ? std::max(value, simulated) : simulated;
    const double several_ms =
        simple.several_ms < most_ms ? of_cuts(*path, request, 2, most_ms, &so_far.closer).ms : most_ms;
    simulated = std::min(simulated, several_ms);
    if (!value_open || (by_path && several_ms >= value)) return so_far;
    const pipeline::LowerBound bound = of_cuts(*problem, request, 1, value, &so_far.closer);
    if (bound.ms < so_far.value_ms) {
      so_far.value_ms = bound.ms;
      so_far.method = bound.method;
    }
    return so_far;
  }

  // The same by what costs nothing or, with `sums`, by sums alone.
  Bounded with_work(const StepSize& size, bool own, bool sums, Bounded so_far) const {
    double ms = work_ms(size);
    so_far.simulated_ms = std::min(so_far.simulated_ms, ms);
    if (own || ms >= so_far.value_ms) return so_far;
    if (sums) {
      const std::unique_ptr<Problem> problem = possible_problem(question_, size, question_.options);
      ms = problem ? simple_bound(*problem, request_for(*problem, question_.request)).ms : kInfinity;
    }
    if (ms >= so_far.value_ms) return so_far;
    so_far.value_ms = ms;
    so_far.method = pipeline::kBalanceOfWork;
    return so_far;
  }

  bool stopped() const {
    return question_.request.stopped() || seconds_since(start_) >= question_.request.time_limit_s;
  }

 private:
  // A lower bound on all plans of the problem with at least `first` stages, at most `most_ms`.
  pipeline::LowerBound of_cuts(const Problem& problem, const PlanRequest& request, int first, double most_ms,
                               int* closer) const {
    const auto with_units = [&](std::int64_t units) {
      WorkLimits limits = request.time_limits();
      limits.seconds = std::max(kLeastBoundTime, request.time_limit_s - seconds_since(start_));
      limits.units = std::min(units, request.effort.units);
      Work work(limits);
      return pipeline::lower_bound_all_cuts(problem, request.schedules, std::max(first, request.stages),
                                            most_stages(problem, request), most_ms, work);
    };
    pipeline::LowerBound bound = with_units(kBoundUnits);
    if (bound.exact() || bound.ms >= most_ms || request.effort.units <= kBoundUnits || *closer <= 0) return bound;
    --*closer;
    return with_units(kCloserUnits);
  }

  const Question& question_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::map<int, WorkBound> work_;  // of each width
};

}  // namespace

PlanRequest request_for(const Problem& problem, PlanRequest request) {
  const int group = problem.options().group_size;
  if (group > 0) request.stages = problem.num_devices() / group;
  return request;
}

int most_stages(const Problem& problem, const PlanRequest& request) {
  if (request.stages > 0) return request.stages;
  return std::min({request.max_stages, problem.num_devices(), problem.num_instructions()});
}

SimpleBound simple_bound(const Problem& problem, const PlanRequest& request) {
  const int most = most_stages(problem, request);
  SimpleBound least;
  for (const pipeline::Schedule schedule : request.schedules) {
    const std::vector<double> bounds = pipeline::simple_lower_bounds_ms(problem, schedule, most);
    for (int stages = std::max(1, request.stages); stages <= most; ++stages) {
      const double ms = bounds[static_cast<std::size_t>(stages - 1)];
      least.ms = std::min(least.ms, ms);
      if (stages > 1) least.several_ms = std::min(least.several_ms, ms);
    }
  }
  return least;
}

WorkBound::WorkBound(const Question& question, int width)
    : times_(question.profile_of(width), machine::replicas_of(question.cluster, width), question.options.replicas),
      devices_(machine::replicas_of(question.cluster, width).num_devices()) {}

double WorkBound::ms(const StepSize& size) const {
  return size.batch() * times_.least_ms(size.samples) / (size.devices > 0 ? size.devices : devices_);
}

void close_bounds(const Question& asked, Bounds* bounds) {
  if (!bounds->open) return;
  const Question question = of_any_framework(asked);
  const StepBounds all(question, *bounds);
  const bool at_once = answers_at_once(question.request.planner);
  const bool by_sums = at_once || !(bounds->simulated_ms > 0);
  const std::vector<StepSize>& sizes = bounds->considered;
  const bool simulated = bounds->simulated_ms > 0;
  const Bounded before{bounds->value_ms, bounds->method, bounds->simulated_ms, kMostCloser};
  const Bounded closed = fold_in_order(sizes.size(), before, [&](std::size_t i, const Bounded& so_far) {
    const std::vector<StepSize>& known_of = bounds->of_value;
    const bool known = std::find(known_of.begin(), known_of.end(), sizes[i]) != known_of.end();
    const bool stopped = all.stopped();
    if (stopped || by_sums) return all.with_work(sizes[i], known, !stopped, so_far);
    return all.with(sizes[i], known, so_far);
  });
  bounds->value_ms = closed.value_ms;
  bounds->method = closed.method;
  bounds->simulated_ms = simulated ? closed.simulated_ms : 0;
  bounds->open = false;
  bounds->of_value.clear();
}

}  // namespace automap::planners
