#include "models/policy_search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/exact.h"
#include "models/child_scores.h"
#include "models/features.h"

namespace automap::models {

using pipeline::Objective;
using pipeline::Plan;

namespace {

// Plans of one prefix that are compared by simulation: V errs by more than the best few differ.
constexpr int kSimulatedPerPrefix = 8;

// Plans met that are improved at the end, and how far above the best they may be.
constexpr std::size_t kMostKept = 6;
constexpr double kKeptWithin = 1.03;

// Judges candidates and keeps the shortest few that differ. Of equals the first one stays.
class Best {
 public:
  Best(const PlanSpace& space, const PolicySearchOptions& options, Work& work)
      : space_(space),
        work_(work),
        simulated_(options.objective == Objective::kSimulated),
        improves_(options.rollouts_count) {}

  // The V that a plan must be below to be of interest; by simulation every plan may be.
  double incumbent_ms() const {
    if (simulated_ || kept_.empty()) return kInfinity;
    return improves_ ? kKeptWithin * kept_.front().length_ms : kept_.front().length_ms;
  }

  void offer_rollout(const Rollouts& rollouts) {
    if (!(rollouts.best_ms < incumbent_ms())) return;
    offer(space_.plan_of(rollouts), rollouts.best_ms);
  }

  void offer_completions(const Prefix& prefix) {
    if (simulated_) {
      for (auto& [value_ms, plan] : space_.finish_best(prefix, kSimulatedPerPrefix)) offer(std::move(plan), value_ms);
      return;
    }
    Plan plan;
    const double value_ms = space_.finish(prefix, incumbent_ms(), &plan);
    if (value_ms < kInfinity) offer(std::move(plan), value_ms);
  }

  // Every boundary may move now, the first ones, too.
  void improve() {
    if (!improves_ || simulated_) return;
    std::vector<FoundPlan> before = std::move(kept_);
    kept_.clear();
    for (FoundPlan& found : before) {
      Rollouts rollouts = space_.rollouts_of(found.plan, found.length_ms);
      space_.improve(space_.root(), rollouts);
      offer(space_.plan_of(rollouts), rollouts.best_ms);
    }
  }

  std::optional<FoundPlan> take() {
    improve();
    FoundPlan found;
    for (FoundPlan& candidate : kept_) {
      // Sums in another order may turn a stage that just fits: the problem has the last word.
      if (!pipeline::feasible(space_.problem(), candidate.plan)) continue;
      if (found.plan.cuts.empty()) {
        found = std::move(candidate);
      } else if (found.runners_up.size() < kRunnersUp) {
        found.runners_up.push_back(std::move(candidate.plan));
      }
    }
    if (found.plan.cuts.empty()) return std::nullopt;
    found.length_ms =
        pipeline::length_ms(space_.problem(), found.plan, simulated_ ? Objective::kSimulated : Objective::kValue);
    return found;
  }

 private:
  void offer(Plan plan, double value_ms) {
    if (simulated_) {
      work_.spend(pipeline::judging_units(space_.problem(), plan.num_stages(), Objective::kSimulated));
    }
    const double length = simulated_ ? pipeline::length_ms(space_.problem(), plan, Objective::kSimulated) : value_ms;
    if (kept_.size() == kMostKept && !(length < kept_.back().length_ms)) return;
    for (const FoundPlan& other : kept_) {
      if (other.plan == plan) return;
    }
    const auto place = std::upper_bound(kept_.begin(), kept_.end(), length,
                                        [](double ms, const FoundPlan& other) { return ms < other.length_ms; });
    kept_.insert(place, {std::move(plan), length, {}});
    if (kept_.size() > kMostKept) kept_.pop_back();
  }

  const PlanSpace& space_;
  Work& work_;
  bool simulated_, improves_;
  std::vector<FoundPlan> kept_;  // ascending
};

struct Ranked {
  double rank;  // smaller is better, never NaN
  double bound_ms;
  std::size_t child;
  bool operator<(const Ranked& other) const {
    if (rank != other.rank) return rank < other.rank;
    return bound_ms != other.bound_ms ? bound_ms < other.bound_ms : child < other.child;
  }
};

// Prices, units of work: a child's features, and a weight of the network that it goes through.
constexpr std::int64_t kPerFeatures = 1000;
constexpr double kPerWeight = 0.1;

std::int64_t scoring_units(const Policy& policy) {
  double weights = 0;
  int inputs = kFeatures;
  for (const int width : policy.architecture().hidden) {
    weights += static_cast<double>(inputs) * width;
    inputs = width;
  }
  return kPerFeatures + static_cast<std::int64_t>(kPerWeight * weights);
}

// Pays for what is asked of a plan space.
struct Bill {
  const PlanSpace& space;
  Work& work;
  std::int64_t paid;

  void pay() { work.spend(space.units() - std::exchange(paid, space.units())); }
  bool over() {
    pay();
    return work.over();
  }
};

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

void check_policy(const Policy& policy) {
  const Architecture& a = policy.architecture();
  if (a.family != Family::kAfterState) {
    throw Error(ErrorKind::kData, "this policy is the paper's flat network; planning needs an after-state network",
                "train with another preset than faithful");
  }
  if (a.feature_version != kFeatureVersion || a.features != kFeatures) {
    throw Error(ErrorKind::kData,
                "the policy was made for feature version " + std::to_string(a.feature_version) + " (" +
                    std::to_string(a.features) + " features), this program computes version " +
                    std::to_string(kFeatureVersion) + " (" + std::to_string(kFeatures) + " features)",
                "train it again, or use the AutoMap that wrote it");
  }
}

namespace {

// Without a network: the children with the best rollouts are looked at a second time, as a policy's are
// (score_children), so that what tells the two searches apart is the network alone.
void look_again(const PlanSpace& space, int looks, const std::vector<Prefix>& children,
                std::vector<Rollouts>& rollouts) {
  std::vector<std::pair<double, std::size_t>> best;
  for (std::size_t i = 0; i < children.size(); ++i) best.emplace_back(rollouts[i].best_ms, i);
  const auto count = static_cast<std::ptrdiff_t>(std::min(best.size(), static_cast<std::size_t>(looks)));
  std::partial_sort(best.begin(), best.begin() + count, best.end());
  best.resize(static_cast<std::size_t>(count));
  for (const auto& [ms, i] : best) {
    if (!rollouts[i].improved) space.improve(children[i], rollouts[i]);
  }
}

// One search, greedy or with a beam; everything complete that it meets is offered to `best`.
void search(const PlanSpace& space, const Policy* policy, const PolicySearchOptions& options, Bill& bill, Best& best) {
  constexpr long long kMost = 1 << 20;  // of anything; keeps sums from overflowing
  const std::size_t beam = static_cast<std::size_t>(std::min<long long>(options.beam, kMost));
  const int most = options.most_children > 0 ? options.most_children
                   : options.beam == 1
                       ? kMostChildren
                       : static_cast<int>(std::max<long long>(kMostChildren, std::min(12LL * options.beam, kMost)));

  std::vector<Prefix> kept = {space.root()};
  const double root_ms = kept.front().bound_ms;
  Rollouts of_root = space.rollouts(kept.front());
  space.improve(kept.front(), of_root);
  if (options.rollouts_count) best.offer_rollout(of_root);

  std::vector<Prefix> children;
  std::vector<int> parent_of;
  std::vector<Rollouts> rollouts;
  ChildScores scores;
  std::vector<Ranked> ranked;
  double known_ms = of_root.best_ms;  // the best rollout met
  // Prefixes of one length have different decisions, so no two of them are the same.
  for (int s = 1; s + 1 < space.stages(); ++s) {
    if (bill.over()) return;
    space.promising(kept, most, children, parent_of, rollouts);
    ranked.clear();
    if (policy != nullptr) {
      bill.work.spend(scoring_units(*policy) * static_cast<std::int64_t>(children.size()));
      score_children(space, *policy, options.objective, root_ms, std::max(kSecondLooks, options.beam), children,
                     rollouts, known_ms, scores);
    } else if (options.second_looks) {
      look_again(space, std::max(kSecondLooks, options.beam), children, rollouts);
    }
    std::size_t shortest = children.size();
    for (std::size_t i = 0; i < children.size(); ++i) {
      const double rank = policy != nullptr ? static_cast<double>(scores.y[i]) : rollouts[i].best_ms;
      ranked.push_back({std::isnan(rank) ? kInfinity : rank, children[i].bound_ms, i});
      if (shortest == children.size() || rollouts[i].best_ms < rollouts[shortest].best_ms) shortest = i;
    }
    const std::size_t keep = std::min(beam, ranked.size());
    std::partial_sort(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(keep), ranked.end());
    if (options.rollouts_count && shortest < children.size()) {
      best.offer_rollout(rollouts[shortest]);
      if (options.objective == Objective::kSimulated) {
        for (std::size_t i = 0; i < keep; ++i) {
          best.offer_rollout(rollouts[ranked[i].child]);
        }
      }
    }
    kept.clear();
    for (std::size_t i = 0; i < keep; ++i) kept.push_back(children[ranked[i].child]);
  }
  for (const Prefix& prefix : kept) {
    if (bill.over()) break;
    // No completion is below the prefix's bound.
    if (prefix.bound_ms < best.incumbent_ms()) best.offer_completions(prefix);
  }
}

}  // namespace

std::optional<FoundPlan> search_plan(const PlanSpace& space, const Policy* policy, const PolicySearchOptions& options) {
  if (options.beam < 1 || options.most_children < 0) {
    throw Error(ErrorKind::kUsage, "a beam of " + std::to_string(options.beam) + " with " +
                                       std::to_string(options.most_children) +
                                       " children scored; expected at least 1 and 0 (choose by itself)");
  }
  if (policy != nullptr) check_policy(*policy);
  if (!space.possible()) return std::nullopt;
  Work without_end;
  Bill bill{space, options.work == nullptr ? without_end : *options.work, space.units()};
  Best best(space, options, bill.work);
  if (options.beam > 1 && options.rollouts_count) {
    // A wider beam may lose what greedy finds; greedy costs a fraction of it.
    PolicySearchOptions greedy = options;
    greedy.beam = 1;
    search(space, policy, greedy, bill, best);
    best.improve();
  }
  search(space, policy, options, bill, best);
  std::optional<FoundPlan> found = best.take();
  bill.pay();
  return found;
}

std::optional<OneShotPlan> plan_in_one_shot(const pipeline::Problem& problem, const Policy* policy,
                                            const OneShotOptions& options) {
  OneShotPlan result;
  auto start = std::chrono::steady_clock::now();
  const PlanSpace space(problem, options.space);
  Work without_end;
  Work& work = options.search.work == nullptr ? without_end : *options.search.work;
  work.spend(space.units());
  result.prepare_took_ms = ms_since(start);
  start = std::chrono::steady_clock::now();
  std::optional<FoundPlan> found = search_plan(space, policy, options.search);
  result.search_took_ms = ms_since(start);
  if (!found) return std::nullopt;
  result.found = *std::move(found);
  result.searched_ms = result.found.length_ms;
  if (options.refine && !work.over()) {
    start = std::chrono::steady_clock::now();
    std::vector<Plan> plans = {result.found.plan};
    plans.insert(plans.end(), result.found.runners_up.begin(), result.found.runners_up.end());
    for (const Plan& plan : plans) {
      if (work.over()) break;
      Plan refined = pipeline::refine_in_corridor(problem, plan, options.pivot_radius, options.device_radius, &work);
      const double length = pipeline::length_ms(problem, refined, options.search.objective);
      if (length < result.found.length_ms) {
        result.found.plan = std::move(refined);
        result.found.length_ms = length;
      }
    }
    result.refine_took_ms = ms_since(start);
  }
  return result;
}

}  // namespace automap::models
