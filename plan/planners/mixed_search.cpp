#include "plan/planners/mixed_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/error.h"

namespace automap::planners {
namespace {

using pipeline::MixedPlan;
using pipeline::MixedProblem;
using pipeline::MixedStage;
using pipeline::PipelineTimes;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Simulations for each split of the batch, and of them for the cuts behind one change of widths.
constexpr int kMostJudged = 6000;
constexpr int kMostCutMoves = 24;
// Stages of which every assignment of widths is tried as a start.
constexpr int kMostAssigned = 4;

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

class Search {
 public:
  Search(const MixedProblem& problem, const PlanRequest& request)
      : problem_(problem), request_(request), widths_(problem.widths()) {}

  // The plan with its widths changed, stage by stage, and cuts moved, as long as the step gets shorter.
  void run(MixedPlan start) {
    consider(start);
    if (start.num_stages() <= kMostAssigned) {
      const auto all = static_cast<std::size_t>(start.num_stages());
      std::vector<std::size_t> digits(all, 0);
      for (bool more = true; more && !over();) {
        MixedPlan assigned = start;
        for (std::size_t s = 0; s < all; ++s) assigned.stages[s].width = widths_[digits[s]];
        consider(rebalanced(std::move(assigned)));
        more = false;
        for (std::size_t s = 0; s < all && !more; ++s) {
          more = ++digits[s] < widths_.size();
          if (!more) digits[s] = 0;
        }
      }
    }
    for (bool shorter = true; shorter && !over();) {
      shorter = false;
      for (int s = 1; s <= best_.num_stages() && !over(); ++s) {
        for (const int width : widths_) {
          for (int v = 0; v < problem_.problem(width).num_variants(); ++v) {
            const MixedStage changed = {width, static_cast<std::uint8_t>(v)};
            if (s > best_.num_stages() || best_.stages[at(s - 1)] == changed) continue;
            MixedPlan next = best_;
            next.stages[at(s - 1)] = changed;
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
  bool over() const { return judged_ >= kMostJudged || (request_.cancelled && request_.cancelled()); }

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
      const int width = plan.stages[at(s - 1)].width;
      if (d0 < 0 || d1 <= d0 || d1 > problem_.num_devices() || d0 % width != 0 || d1 % width != 0) return false;
      const pipeline::Problem& own = problem_.problem(width);
      const pipeline::DeviceGroup& group = own.group(d0 / width, d1 / width);
      if (!group.valid) return false;
      speed.push_back(1 / own.compute_ms(0, n, group, plan.stages[at(s - 1)].variant));
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
    return std::any_of(plan.stages.begin(), plan.stages.end(),
                       [&](const MixedStage& stage) { return stage.width != plan.stages.front().width; });
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
  const PlanRequest& request_;
  const std::vector<int> widths_;
  MixedPlan best_, best_mixed_;
  double best_ms_ = kInfinity, best_mixed_ms_ = kInfinity;
  int judged_ = 0;
};

}  // namespace

std::optional<MixedChoice> best_mixed(const pipeline::Profile& profile, const machine::Cluster& cluster,
                                      const pipeline::ProblemOptions& options, const PlanRequest& request,
                                      const StepPlan& found) {
  if (profile.widths.empty() || options.replicas != pipeline::Replicas::kWhole) return std::nullopt;
  const int width = found.problem->options().width;
  if (cluster.num_devices() > pipeline::kMostDenseDevices) return std::nullopt;
  const machine::Cluster used = first_devices(cluster, found.problem->num_devices() * width);
  MixedPlan start;
  start.cuts = found.result.plan->cuts;
  for (const int cut : found.result.plan->device_cuts) start.device_cuts.push_back(cut * width);
  for (int s = 1; s <= found.result.plan->num_stages(); ++s) {
    start.stages.push_back({width, static_cast<std::uint8_t>(found.result.plan->variant(s))});
  }
  // One stage has no widths to mix: two of about half.
  if (start.num_stages() == 1 && used.num_devices() > 1) {
    start.cuts = {std::max(1, found.problem->num_instructions() / 2)};
    start.device_cuts = {used.num_devices() / 2};
    start.stages.push_back(start.stages.front());
  }
  std::optional<MixedChoice> best;
  const auto batch = std::llround(found.size.batch());
  for (const double factor : {1.0, 2.0, 0.5}) {
    const double samples = found.size.samples * factor;
    if (samples < 1 || std::fmod(samples, 1) != 0 || batch % std::llround(samples) != 0) continue;
    pipeline::ProblemOptions own = options;
    own.micro_batch_samples = samples;
    own.micro_batches = static_cast<int>(batch / std::llround(samples));
    std::unique_ptr<MixedProblem> problem;
    try {
      problem = std::make_unique<MixedProblem>(profile, used, own);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage) throw;  // more samples than there are times for
      continue;
    }
    Search search(*problem, request);
    search.run(start);
    if (!(search.best_mixed_ms() < (best ? best->simulated_step_ms : kInfinity))) continue;
    best.emplace();
    best->plan = search.best_mixed();
    best->simulated_step_ms = problem->simulated_ms(best->plan, &best->times);
    best->problem = std::move(problem);
  }
  return best;
}

}  // namespace automap::planners
