#include "plan/planners/mixed_search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "common/base/error.h"
#include "common/base/in_order.h"
#include "common/base/numbers.h"
#include "common/base/work.h"
#include "common/machine/chosen_devices.h"
#include "plan/planners/any_width.h"
#include "plan/planners/device_choices.h"
#include "plan/planners/effort.h"
#include "plan/planners/least_work.h"

namespace automap::planners {
namespace {

using pipeline::MixedPlan;
using pipeline::MixedProblem;

// Simulations for each split of the batch, and of them for the cuts behind one change of widths.
constexpr int kMostSimulated = 6000;
constexpr int kMostCutMoves = 24;
// Stages of which every assignment of widths is tried as a start.
constexpr int kMostAssigned = 4;
// So many ways to cut are all tried.
constexpr int kMostWays = 32;
// The number of starts that are improved, the best ones.
constexpr std::size_t kMostStarts = 4;
// On few devices (kMostDevicesListed) every division among up to so many stages is tried as a start.
constexpr int kMostStagesDivided = 3;

class MixedSearch {
 public:
  MixedSearch(const MixedProblem& problem, Work& time) : problem_(problem), time_(time), widths_(problem.widths()) {}

  // Starts of up to so many stages on every division of few devices, of any widths and equal variants: the best of all.
  void start_from_every_division(int first_stages, int most_stages) {
    const int devices = problem_.num_devices();
    if (devices > kMostDevicesListed) return;
    const int most = std::min({most_stages, kMostStagesDivided, devices, problem_.num_instructions()});
    for (int stages = std::max(2, first_stages); stages <= most; ++stages) {
      MixedPlan start;
      start.schedule = pipeline::Schedule::kAdaptive;
      start.cuts.resize(at(stages - 1));
      divide(&start, stages, 0);
    }
  }

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
    improve();
  }

  // The best start, and then the others that are near it.
  void improve_starts() {
    improve();
    for (const auto& [ms, start] : starts_) {
      const MixedPlan before = best_;
      const double before_ms = best_ms_;
      best_ = start;
      best_ms_ = ms;
      improve();
      if (best_ms_ < before_ms) continue;
      best_ = before;
      best_ms_ = before_ms;
    }
  }

  void improve() {
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

  // Stages as of the next one, on the devices behind `d0`.
  void divide(MixedPlan* start, int stages, int d0) {
    const auto taken = static_cast<int>(start->widths.size());
    if (taken == stages) {
      for (int v = 0; v < problem_.problem(widths_.front()).num_variants() && !over(); ++v) {
        MixedPlan plan = *start;
        plan.variants.assign(at(stages), static_cast<std::uint8_t>(v));
        if (!is_mixed(plan) || !balance(plan)) continue;
        plan = rebalanced(std::move(plan));
        keep_start(judge(plan), plan);
        consider(plan);
      }
      return;
    }
    const bool last = taken + 1 == stages;
    for (int d1 = last ? problem_.num_devices() : d0 + 1; d1 <= problem_.num_devices() - (stages - taken - 1); ++d1) {
      for (const int width : widths_) {
        if (d0 % width != 0 || d1 % width != 0 || over()) continue;
        start->widths.push_back(width);
        if (!last) start->device_cuts.push_back(d1);
        divide(start, stages, d1);
        if (!last) start->device_cuts.pop_back();
        start->widths.pop_back();
      }
    }
  }

  double judge(const MixedPlan& plan) {
    ++judged_;
    return problem_.simulated_ms(plan);
  }

  // Few positions are cut in every way.
  MixedPlan best_cut(MixedPlan plan) {
    const auto cuts = static_cast<int>(plan.cuts.size()), n = problem_.num_instructions();
    for (int s = 0; s < cuts; ++s) plan.cuts[at(s)] = s + 1;
    MixedPlan best = plan;
    double least = kInfinity;
    for (;;) {
      if (const double ms = judge(plan); ms < least) {
        least = ms;
        best = plan;
      }
      int s = cuts - 1;
      while (s >= 0 && plan.cuts[at(s)] == n - cuts + s) --s;
      if (s < 0) return best;
      ++plan.cuts[at(s)];
      for (int behind = s + 1; behind < cuts; ++behind) plan.cuts[at(behind)] = plan.cuts[at(behind - 1)] + 1;
    }
  }

  // In how many ways the positions can be cut; more than kMostWays are not counted.
  int ways_to_cut(int stages) const {
    double ways = 1;
    for (int s = 1; s < stages; ++s) ways = ways * (problem_.num_instructions() - s) / s;
    return ways > kMostWays ? kMostWays + 1 : static_cast<int>(std::lround(ways));
  }

  // Cuts moved between neighbours, doubling and halving steps.
  MixedPlan rebalanced(MixedPlan plan) {
    if (ways_to_cut(plan.num_stages()) <= kMostWays) return best_cut(std::move(plan));
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

  void keep_start(double ms, const MixedPlan& plan) {
    if (ms == kInfinity) return;
    starts_.emplace_back(ms, plan);
    std::stable_sort(starts_.begin(), starts_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    if (starts_.size() > kMostStarts) starts_.pop_back();
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
  std::vector<std::pair<double, MixedPlan>> starts_;  // the best divisions, rising
  double best_ms_ = kInfinity, best_mixed_ms_ = kInfinity;
  int judged_ = 0;
};

}  // namespace

namespace {

// The least share of the plan's devices that other choices have.
constexpr double kNearlyAll = 0.75;

// The plan found as one of a width for each stage, where as many stages may be; of one stage two of about half.
std::optional<MixedPlan> start_of(const Candidate& found, const PlanRequest& request, int devices) {
  const pipeline::Plan& plan = found.plan;
  const int width = found.problem->options().width, stages = plan.num_stages();
  MixedPlan start;
  start.schedule = pipeline::Schedule::kAdaptive;
  start.cuts = plan.cuts;
  for (const int cut : plan.device_cuts) start.device_cuts.push_back(cut * width);
  if (stages > 1 && start.device_cuts.back() >= devices) return std::nullopt;  // of a choice of fewer than the plan has
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

// A split of the batch on devices, and what no plan on those is below.
struct Place {
  std::vector<int> devices;
  double samples = 0;
  int micro_batches = 0;
  double bound_ms = 0;
  bool near = false;  // plans may start from the one found: on about its devices, of its split or one next to it
  bool own = false;   // on its very devices: there is something to say of them, however long their plans are
};

// The places where plans are searched: the plan's own devices and others considered that are nearly as many, with
// splits near its own; where the choices of devices are few, any split on all of them, too. The most promising come
// first.
std::vector<Place> places(const Question& question, const Candidate& found, const Bounds& bounds) {
  const machine::Cluster& cluster = question.cluster;
  std::vector<std::vector<int>> choices = {found.devices()};
  for (const StepSize& size : bounds.considered) {
    std::vector<int> devices = devices_of(cluster, size);
    const bool nearly_all = static_cast<double>(devices.size()) >= kNearlyAll * static_cast<double>(choices[0].size());
    if (nearly_all && std::find(choices.begin(), choices.end(), devices) == choices.end()) {
      choices.push_back(std::move(devices));
    }
  }
  const std::size_t considered = choices.size();
  for (const DeviceChoice& choice : all_choices(cluster, 1)) {
    std::vector<int> devices = machine::devices_of(cluster, choice);
    if (devices.size() > 1 && std::find(choices.begin(), choices.end(), devices) == choices.end()) {
      choices.push_back(std::move(devices));
    }
  }
  std::map<double, int> splits = {{found.size.samples, found.size.micro_batches}};
  for (const StepSize& size : bounds.considered) splits[size.samples] = size.micro_batches;
  std::vector<Place> out;
  for (std::size_t c = 0; c < choices.size(); ++c) {
    const double bound_ms = least_work_bound_ms(question.profile(), machine::on_devices(cluster, choices[c]),
                                                question.options.replicas, found.size.batch());
    for (const auto& [samples, micro_batches] : splits) {
      const double factor = samples / found.size.samples;
      const bool near = c < considered && (factor == 1 || factor == 2 || factor == 0.5);
      if (near || static_cast<int>(choices[c].size()) <= kMostDevicesListed) {
        out.push_back({choices[c], samples, micro_batches, bound_ms, near, near && c == 0});
      }
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const Place& a, const Place& b) {
    return std::make_pair(!a.own, a.bound_ms) < std::make_pair(!b.own, b.bound_ms);
  });
  return out;
}

int stages_asked(const PlanRequest& request) {
  return request.stages > 0 ? request.stages : request.max_stages;
}

int last_stages(const PlanRequest& request, const pipeline::Problem& problem) {
  return std::min({stages_asked(request), problem.num_devices(), problem.num_instructions()});
}

// A lower bound on all plans of several stages, whatever their widths.
double simple_bound_ms(const MixedProblem& problem, const Question& question, const machine::Cluster& used) {
  const auto relaxed = any_width_problem(problem, question.profile(), used);
  const int most = last_stages(question.request, *relaxed);
  const std::vector<double> bounds = simple_lower_bounds_ms(*relaxed, pipeline::Schedule::kAdaptive, most);
  double least = kInfinity;
  for (int stages = std::max(2, question.request.stages); stages <= most; ++stages) {
    least = std::min(least, bounds[at(stages - 1)]);
  }
  return least;
}

}  // namespace

std::optional<Candidate> best_mixed(const std::string& kind, const Question& question, const Candidate& found,
                                    const Bounds& bounds) {
  const pipeline::CheckedProfile profile = question.profile_of(1);
  const machine::Cluster& cluster = question.cluster;
  const pipeline::ProblemOptions& options = question.options;
  const PlanRequest& request = question.request;
  const bool adaptive = std::find(request.schedules.begin(), request.schedules.end(), pipeline::Schedule::kAdaptive) !=
                        request.schedules.end();
  if (!adaptive || profile->widths.empty() || options.replicas != pipeline::Replicas::kWhole ||
      cluster.num_devices() > pipeline::kMostDenseDevices) {
    return std::nullopt;
  }
  if (request.stages == 1 || request.max_stages < 2) return std::nullopt;
  std::shared_ptr<const MixedProblem> best_problem;
  MixedPlan best;
  double least_ms = kInfinity;
  Work time(request.time_limits());
  for (const Place& place : places(question, found, bounds)) {
    const double best_ms = std::min(least_ms, found.simulated_step_ms);
    if (!place.own && (place.bound_ms >= best_ms || time.over())) continue;
    const machine::Cluster used = machine::on_devices(cluster, place.devices);
    pipeline::ProblemOptions own = options;
    own.micro_batch_samples = place.samples;
    own.micro_batches = place.micro_batches;
    std::unique_ptr<MixedProblem> problem;
    try {
      problem = std::make_unique<MixedProblem>(profile, used, own);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage) throw;  // more samples than there are times for
      continue;
    }
    if (!place.own && simple_bound_ms(*problem, question, used) >= best_ms) continue;
    MixedSearch search(*problem, time);
    search.start_from_every_division(request.stages, stages_asked(request));
    const std::optional<MixedPlan> start = place.near ? start_of(found, request, used.num_devices()) : std::nullopt;
    if (start) search.run(*start);
    search.improve_starts();
    if (search.best_mixed_ms() == kInfinity) continue;
    MixedPlan plan = search.best_mixed();
    plan.warmup = chosen_warmup(problem->place(plan));
    const double ms = problem->simulated_ms(plan);
    if (!(ms < least_ms)) continue;
    least_ms = ms;
    best = std::move(plan);
    best_problem = std::move(problem);
  }
  if (!best_problem) return std::nullopt;
  return candidate_of(kind, best_problem, best);
}

namespace {

constexpr double kRounding = 1e-9;

// A split of the batch on devices, whatever the width.
struct SplitOn {
  std::vector<int> devices;
  double samples = 0;
  int micro_batches = 0;
};

std::vector<SplitOn> splits_bounded(const Candidate& found, const Bounds& bounds, const machine::Cluster& cluster) {
  std::map<std::pair<std::vector<int>, double>, int> micro_batches;
  const auto add = [&](const StepSize& size) {
    micro_batches[{devices_of(cluster, size), size.samples}] = size.micro_batches;
  };
  add(found.size);
  for (const StepSize& size : bounds.considered) add(size);
  std::vector<SplitOn> splits;
  for (const auto& [split, count] : micro_batches) splits.push_back({split.first, split.second, count});
  return splits;
}

}  // namespace

pipeline::LowerBound any_width_bound(const Question& question, const Candidate& found, const Bounds& bounds) {
  const pipeline::CheckedProfile profile = question.profile_of(1);
  const machine::Cluster& cluster = question.cluster;
  const pipeline::ProblemOptions& options = question.options;
  const PlanRequest& request = question.request;
  if (!(bounds.value_ms > 0) || cluster.num_devices() > pipeline::kMostDenseDevices) return {};
  // Plans of one width have bounds of their own, those of one stage among them.
  const bool known = bounds.simulated_ms > 0;
  struct Least {
    double ms;
    const char* method;
    bool all;  // whether every split was looked at
    bool operator==(const Least& other) const { return ms == other.ms && all == other.all; }
  };
  const Least of_one_width{
      known ? std::min(bounds.value_ms, bounds.simulated_ms) : std::min(found.step_ms, found.simulated_step_ms),
      "that of one width", true};
  const Deadline deadline(request.time_limits());
  const std::vector<SplitOn> splits = splits_bounded(found, bounds, cluster);
  const Least least = fold_in_order(splits.size(), of_one_width, [&](std::size_t i, Least so_far) {
    if (!so_far.all || deadline.passed()) {
      so_far.all = false;
      return so_far;
    }
    const machine::Cluster used = machine::on_devices(cluster, splits[i].devices);
    pipeline::ProblemOptions own = options;
    own.micro_batch_samples = splits[i].samples;
    own.micro_batches = splits[i].micro_batches;
    std::unique_ptr<pipeline::Problem> relaxed;
    try {
      relaxed = any_width_problem(MixedProblem(profile, used, own), profile, used);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage) throw;  // no width has times for so many samples: no plan has
      return so_far;
    }
    const int first = std::max(known ? 2 : 1, request.stages);
    const int last = last_stages(request, *relaxed);
    if (first > last) return so_far;
    Work work(deadline.limits(std::min(kBoundUnits, request.effort.units)));
    pipeline::LowerBound bound =
        lower_bound_all_cuts(*relaxed, {pipeline::Schedule::kAdaptive}, first, last, so_far.ms, work);
    if (!(bound.ms * (1 - kRounding) < so_far.ms)) return so_far;
    so_far.ms = bound.ms * (1 - kRounding);
    so_far.method = bound.exact() ? "every stage as the best of all widths" : bound.method;
    return so_far;
  });
  pipeline::LowerBound bound;
  bound.ms = least.ms;
  bound.method = least.method;
  // A plan that was not tried may be shorter.
  if (least.all) return bound;
  const double work_ms = least_step_bound_ms(profile, cluster, options.replicas, found.size.batch());
  if (work_ms < bound.ms) {
    bound.ms = work_ms;
    bound.method = kWorkAndWay;
  }
  return bound;
}

}  // namespace automap::planners
