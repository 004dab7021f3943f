#include "plan/planners/mixed_search.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/base/work.h"
#include "common/pipeline/any_width.h"
#include "common/pipeline/least_work.h"
#include "plan/planners/effort.h"

namespace automap::planners {
namespace {

using pipeline::MixedPlan;
using pipeline::MixedProblem;

// Simulations for each split of the batch, and of them for the cuts behind one change of widths.
constexpr int kMostSimulated = 6000;
constexpr int kMostCutMoves = 24;
// Stages of which every assignment of widths is tried as a start.
constexpr int kMostAssigned = 4;

class MixedSearch {
 public:
  MixedSearch(const MixedProblem& problem, Work& time) : problem_(problem), time_(time), widths_(problem.widths()) {}

  // The plan with its widths changed, stage by stage, and cuts moved, as long as the step gets shorter.
  void run(MixedPlan start) {
    consider(start);
    if (start.num_stages() <= kMostAssigned) {
      const auto all = static_cast<std::size_t>(start.num_stages());
      std::vector<std::size_t> digits(all, 0);
      for (bool more = true; more && !over();) {
        MixedPlan assigned = start;
        for (std::size_t s = 0; s < all; ++s) assigned.widths[s] = widths_[digits[s]];
        consider(rebalanced(std::move(assigned)));
        more = false;
        for (std::size_t s = 0; s < all && !more; ++s) {
          more = ++digits[s] < widths_.size();
          if (!more) digits[s] = 0;
        }
      }
    }
    for (bool shorter = best_ms_ < kInfinity; shorter && !over();) {
      shorter = false;
      for (int s = 1; s <= best_.num_stages() && !over(); ++s) {
        for (const int width : widths_) {
          for (int v = 0; v < problem_.problem(width).num_variants(); ++v) {
            MixedPlan next = best_;
            next.widths[at(s - 1)] = width;
            next.variants[at(s - 1)] = static_cast<std::uint8_t>(v);
            if (next == best_) continue;
            shorter = consider(rebalanced(std::move(next))) || shorter;
          }
        }
      }
      for (std::size_t b = 0; b < best_.device_cuts.size() && !over(); ++b) {
        for (const int by : {-8, -4, -2, -1, 1, 2, 4, 8}) {
          MixedPlan next = best_;
          next.device_cuts[b] += by;
          shorter = consider(rebalanced(std::move(next))) || shorter;
        }
      }
    }
  }

  double best_mixed_ms() const { return best_mixed_ms_; }
  const MixedPlan& best_mixed() const { return best_mixed_; }

 private:
  bool over() { return judged_ >= kMostSimulated || time_.over(); }

  double judge(const MixedPlan& plan) {
    ++judged_;
    return problem_.simulated_ms(plan);
  }

  // Cuts moved between neighbours, doubling and halving steps.
  MixedPlan rebalanced(MixedPlan plan) {
    double ms = judge(plan);
    if (ms == kInfinity) {
      // It may be the cuts that do not fit: from about equal compute.
      MixedPlan even = plan;
      if (!balance(even)) return plan;
      plan = std::move(even);
      ms = judge(plan);
    }
    int moves = 0;
    for (int reach = std::max(1, problem_.num_instructions() / 8); reach >= 1 && moves < kMostCutMoves; reach /= 3) {
      for (std::size_t b = 0; b < plan.cuts.size(); ++b) {
        for (const int by : {-reach, reach}) {
          while (moves < kMostCutMoves && !over()) {
            MixedPlan next = plan;
            next.cuts[b] += by;
            ++moves;
            const double next_ms = judge(next);
            if (!(next_ms < ms)) break;
            ms = next_ms;
            plan = std::move(next);
          }
        }
      }
    }
    return plan;
  }

  // Positions shared out by what each stage's devices compute of all of them.
  bool balance(MixedPlan& plan) const {
    const int n = problem_.num_instructions(), stages = plan.num_stages();
    std::vector<double> speed;
    double all = 0;
    for (int s = 1; s <= stages; ++s) {
      const int d0 = s == 1 ? 0 : plan.device_cuts[at(s - 2)],
                d1 = s == stages ? problem_.num_devices() : plan.device_cuts[at(s - 1)];
      const int width = plan.widths[at(s - 1)];
      if (d0 < 0 || d1 <= d0 || d1 > problem_.num_devices() || d0 % width != 0 || d1 % width != 0) return false;
      const pipeline::Problem& own = problem_.problem(width);
      const pipeline::DeviceGroup& group = own.group(d0 / width, d1 / width);
      if (!group.valid) return false;
      speed.push_back(1 / own.compute_ms(0, n, group, plan.variant(s)));
      all += speed.back();
    }
    const pipeline::Problem& any = problem_.problem(widths_.front());
    double until = 0;
    int p = 0;
    for (int s = 1; s < stages; ++s) {
      until += speed[at(s - 1)] / all * any.work_ms(0, n);
      const int most = n - (stages - s);
      ++p;
      while (p < most && any.work_ms(0, p) < until) ++p;
      plan.cuts[at(s - 1)] = p;
    }
    return true;
  }

  static bool is_mixed(const MixedPlan& plan) {
    return std::adjacent_find(plan.widths.begin(), plan.widths.end(), std::not_equal_to<>()) != plan.widths.end();
  }

  bool consider(const MixedPlan& plan) {
    const double ms = judge(plan);
    if (is_mixed(plan) && ms < best_mixed_ms_) {
      best_mixed_ms_ = ms;
      best_mixed_ = plan;
    }
    if (!(ms < best_ms_ * (1 - 1e-6))) return false;
    best_ms_ = ms;
    best_ = plan;
    return true;
  }

  const MixedProblem& problem_;
  Work& time_;
  const std::vector<int> widths_;
  MixedPlan best_, best_mixed_;
  double best_ms_ = kInfinity, best_mixed_ms_ = kInfinity;
  int judged_ = 0;
};

}  // namespace

namespace {

// The plan found as one of a width for each stage, where as many stages may be; of one stage two of about half.
std::optional<MixedPlan> start_of(const Candidate& found, const PlanRequest& request, int devices) {
  const pipeline::Plan& plan = found.plan;
  const int width = found.problem->options().width, stages = plan.num_stages();
  MixedPlan start;
  start.schedule = pipeline::Schedule::kAdaptive;
  start.cuts = plan.cuts;
  for (const int cut : plan.device_cuts) start.device_cuts.push_back(cut * width);
  start.widths.assign(at(stages), width);
  for (int s = 1; s <= stages; ++s) start.variants.push_back(static_cast<std::uint8_t>(plan.variant(s)));
  if (stages > 1) return start;
  const bool two = devices > 1 && request.stages != 1 && (request.stages == 2 || request.max_stages > 1);
  if (!two) return std::nullopt;
  start.cuts = {std::max(1, found.problem->num_instructions() / 2)};
  start.device_cuts = {devices / 2};
  start.widths.push_back(width);
  start.variants.push_back(start.variants.front());
  return start;
}

// Splits near that of the plan found, of those on as many devices that it was chosen from; its own first.
std::vector<StepSize> splits_near(const Candidate& found, const Bounds& bounds) {
  std::vector<StepSize> splits = {found.size};
  for (const double factor : {2.0, 0.5}) {
    const double samples = found.size.samples * factor;
    const auto same = std::find_if(bounds.considered.begin(), bounds.considered.end(), [&](const StepSize& size) {
      return size.samples == samples && size.batch() == found.size.batch() && size.width == found.size.width &&
             size.devices == found.size.devices;
    });
    if (same != bounds.considered.end()) splits.push_back(*same);
  }
  return splits;
}

}  // namespace

std::optional<MixedChoice> best_mixed(const Question& question, const Candidate& found, const Bounds& bounds) {
  const pipeline::Profile& profile = question.profile();
  const machine::Cluster& cluster = question.cluster;
  const pipeline::ProblemOptions& options = question.options;
  const PlanRequest& request = question.request;
  const bool adaptive = std::find(request.schedules.begin(), request.schedules.end(), pipeline::Schedule::kAdaptive) !=
                        request.schedules.end();
  if (!adaptive || profile.widths.empty() || options.replicas != pipeline::Replicas::kWhole ||
      cluster.num_devices() > pipeline::kMostDenseDevices) {
    return std::nullopt;
  }
  const machine::Cluster used = first_devices(cluster, found.problem->num_devices() * found.problem->options().width);
  const std::optional<MixedPlan> start = start_of(found, request, used.num_devices());
  if (!start) return std::nullopt;
  std::optional<MixedChoice> best;
  Work time(request.time_limits());
  for (const StepSize& size : splits_near(found, bounds)) {
    pipeline::ProblemOptions own = options;
    own.micro_batch_samples = size.samples;
    own.micro_batches = size.micro_batches;
    std::unique_ptr<MixedProblem> problem;
    try {
      problem = std::make_unique<MixedProblem>(profile, used, own);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage) throw;  // more samples than there are times for
      continue;
    }
    MixedSearch search(*problem, time);
    search.run(*start);
    if (search.best_mixed_ms() == kInfinity) continue;
    MixedPlan plan = search.best_mixed();
    plan.warmup = chosen_warmup(problem->place(plan));
    const double ms = problem->simulated_ms(plan);
    if (!(ms < (best ? best->simulated_step_ms : kInfinity))) continue;
    best.emplace();
    best->plan = std::move(plan);
    best->simulated_step_ms = ms;
    best->problem = std::move(problem);
  }
  return best;
}

namespace {

constexpr double kRounding = 1e-9;

// A number of devices and a split of the batch: (devices, samples) -> micro-batches.
std::map<std::pair<int, double>, int> splits_bounded(const Candidate& found, const Bounds& bounds, int all_devices) {
  std::map<std::pair<int, double>, int> splits;
  const auto add = [&](const StepSize& size) {
    const int devices = size.devices > 0 ? size.devices * size.width : all_devices;
    splits[{devices, size.samples}] = size.micro_batches;
  };
  add(found.size);
  for (const StepSize& size : bounds.considered) add(size);
  return splits;
}

}  // namespace

pipeline::LowerBound any_width_bound(const Question& question, const Candidate& found, const Bounds& bounds) {
  const pipeline::Profile& profile = question.profile();
  const machine::Cluster& cluster = question.cluster;
  const pipeline::ProblemOptions& options = question.options;
  const PlanRequest& request = question.request;
  pipeline::LowerBound least;
  if (!(bounds.value_ms > 0) || cluster.num_devices() > pipeline::kMostDenseDevices) return least;
  // Plans of one width have bounds of their own, those of one stage among them.
  const bool known = bounds.simulated_ms > 0;
  least.ms = known ? std::min(bounds.value_ms, bounds.simulated_ms) : std::min(found.step_ms, found.simulated_step_ms);
  least.method = "that of one width";
  Work whole(request.time_limits());
  for (const auto& [size, micro_batches] : splits_bounded(found, bounds, cluster.num_devices())) {
    const auto& [devices, samples] = size;
    const machine::Cluster used = first_devices(cluster, devices);
    if (whole.stopped() || whole.over()) {
      // What was not looked at may be shorter.
      const double work_ms = pipeline::least_work_bound_ms(profile, cluster, options.replicas, found.size.batch());
      if (work_ms < least.ms) {
        least.ms = work_ms;
        least.method = pipeline::kBalanceOfWork;
      }
      return least;
    }
    pipeline::ProblemOptions own = options;
    own.micro_batch_samples = samples;
    own.micro_batches = micro_batches;
    std::unique_ptr<pipeline::Problem> relaxed;
    try {
      relaxed = pipeline::any_width_problem(MixedProblem(profile, used, own), profile, used);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage) throw;  // no width has times for so many samples: no plan has
      continue;
    }
    const int first = std::max(known ? 2 : 1, request.stages);
    const int last = std::min({request.stages > 0 ? request.stages : request.max_stages, relaxed->num_devices(),
                               relaxed->num_instructions()});
    if (first > last) continue;
    Work work(whole, std::min(kBoundUnits, request.effort.units));
    pipeline::LowerBound bound =
        lower_bound_all_cuts(*relaxed, {pipeline::Schedule::kAdaptive}, first, last, least.ms, work);
    if (!(bound.ms * (1 - kRounding) < least.ms)) continue;
    least.ms = bound.ms * (1 - kRounding);
    least.method = bound.exact() ? "every stage as the best of all widths" : bound.method;
  }
  return least;
}

}  // namespace automap::planners
