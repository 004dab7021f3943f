#include "plan/planners/least_change.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/text_table.h"
#include "common/machine/link_kinds.h"
#include "plan/planners/effort.h"
#include "plan/planners/frameworks.h"
#include "plan/planners/step_choice.h"

namespace automap::planners {
namespace {

using machine::Cluster;
using pipeline::ProblemOptions;
using pipeline::StageVariant;

constexpr int kShare = 16;          // of the work of a quick search, for each try
constexpr double kSeconds = 10;     // for all tries together: who waits for an error does not wait long
constexpr double kSecondsEach = 3;  // for one of them
constexpr int kMostDevices = 1024;  // of a larger cluster that is tried
// Memory of devices that are sold, GiB.
constexpr double kMemories[] = {24, 32, 40, 48, 64, 80, 94, 141, 180, 192, 288};

class Tries {
 public:
  explicit Tries(const Question& question) : question_(question) {
    PlanRequest& request = question_.request;
    request.lower_bound = false;
    request.all_planners = false;
    request.effort = plan_effort(Effort::kQuick);
    request.effort.units /= kShare;
    request.effort.local_search_evaluations /= kShare;
    request.effort.polish_evaluations /= kShare;
    request.effort.explore_evaluations /= kShare;
    request.progress = {};
  }

  bool over() const { return left() <= 0 || question_.request.stopped(); }

  // The simulated step of a plan that fits; none: no plan was found.
  std::optional<double> fits(const Cluster& cluster, const ProblemOptions& options, const StepRequest& step,
                             bool any_stages = false) const {
    if (over()) return std::nullopt;
    Question changed = question_;
    changed.cluster = cluster;
    changed.options = options;
    changed.step = step;
    PlanRequest& request = changed.request;
    if (any_stages && request.stages > 0) {
      request.stages = 0;
      request.max_stages = std::max(request.max_stages, PlanRequest().max_stages);
    }
    // The second misses few plans, the first answers sooner.
    for (const PlannerKind planner : {PlannerKind::kBalanced, PlannerKind::kAuto}) {
      request.planner = planner;
      request.time_limit_s = std::min(kSecondsEach, left());
      if (over()) break;
      try {
        const StepPlan plan = plan_step(changed);
        if (plan.result.plan) return plan.result.simulated_step_ms;
      } catch (const Error& e) {
        if (e.kind() != ErrorKind::kUsage) throw;  // the change does not go with the numbers given
      }
    }
    return std::nullopt;
  }

 private:
  double left() const {
    const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - start_;
    return std::min(kSeconds, question_.request.time_limit_s) - gone.count();
  }

  Question question_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The options' variants and those that `zeros` and `recompute` add.
ProblemOptions with_variants(ProblemOptions options, const std::vector<int>& zeros, bool recompute) {
  const std::vector<StageVariant> given = options.variants;
  for (const StageVariant& one : given) {
    for (const int zero : zeros) {
      for (int again = 0; again <= (recompute ? 1 : 0); ++again) {
        const StageVariant variant = {zero < 0 ? one.zero : zero, one.recompute || again == 1};
        if (std::find(options.variants.begin(), options.variants.end(), variant) == options.variants.end()) {
          options.variants.push_back(variant);
        }
      }
    }
  }
  return options;
}

// The step of a layout that fits and that the question's framework can run; none: it is not such a layout.
std::optional<double> fitting_step_ms(const Layout& layout, const Question& question) {
  if (question.request.stopped()) return std::nullopt;
  try {
    const ScoredPlan scored = score_layout(layout, question);
    if (!scored.infeasible.empty()) return std::nullopt;
    if (!inexpressible(*question.framework, scored.placed, question.profile()).empty()) return std::nullopt;
    return scored.simulated_step_ms;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUsage && e.kind() != ErrorKind::kInfeasible) throw;
    return std::nullopt;
  }
}

std::string servers_text(const machine::ServerGroup& servers, int count) {
  return std::to_string(count) + (count == 1 ? " server of " : " servers of ") + std::to_string(servers.devices) +
         " x " + machine::device_type(servers.device);
}

}  // namespace

std::vector<FittingChange> fitting_changes(const Question& question, bool limited) {
  const pipeline::Profile& profile = question.profile();
  const Cluster& cluster = question.cluster;
  const ProblemOptions& options = question.options;
  const StepRequest& step = question.step;
  std::vector<FittingChange> changes;
  const Tries tries(question);
  const auto note = [&](const std::string& what, std::optional<double> step_ms) {
    if (step_ms) changes.push_back({what, *step_ms});
    return step_ms.has_value();
  };
  const auto lacks = [&](const StageVariant& variant) {
    return std::find(options.variants.begin(), options.variants.end(), variant) == options.variants.end();
  };
  const bool whole = options.replicas == pipeline::Replicas::kWhole;
  const bool layers = whole && !profile.layer.empty() && profile.forward_fraction < 1;
  const bool no_zero = whole && lacks({3, options.variants.front().recompute});
  const bool no_recompute = layers && lacks({options.variants.front().zero, true});
  ProblemOptions most = options;
  bool helped = false;
  const std::string recompute = limited ? "recompute added to --limit" : "--recompute auto",
                    zero = limited ? "zero added to --limit" : "--zero auto",
                    both = limited ? "zero,recompute added to --limit" : "--zero auto with --recompute auto";
  if (no_recompute) helped = note(recompute, tries.fits(cluster, with_variants(options, {-1}, true), step));
  if (no_zero) helped = note(zero, tries.fits(cluster, with_variants(options, {1, 2, 3}, false), step)) || helped;
  if (no_zero || no_recompute) {
    most = with_variants(options, no_zero ? std::vector<int>{-1, 1, 2, 3} : std::vector<int>{-1}, no_recompute);
    if (no_zero && no_recompute && !helped) {
      note(both, tries.fits(cluster, most, step));
    }
  }
  if (step.batch > 0 && (step.micro_batch > 0 || step.micro_batches > 0)) {
    StepRequest free = step;
    free.micro_batch = free.micro_batches = 0;
    note("--micro-batch auto", tries.fits(cluster, options, free));
  } else if (step.batch == 0 && step.micro_batch > 1) {
    StepRequest smaller = step;
    for (smaller.micro_batch /= 2; smaller.micro_batch >= 1; smaller.micro_batch /= 2) {
      if (note("--micro-batch " + std::to_string(smaller.micro_batch), tries.fits(cluster, options, smaller))) break;
    }
  }
  if (question.request.stages > 0) note("--stages auto", tries.fits(cluster, options, step, true));
  if (!changes.empty()) return changes;
  // Nothing that costs no hardware: with all of it together. The first memory that fits, by halves: what fits on some
  // fits on more.
  std::vector<Cluster> larger;
  double smallest = 0;
  for (const auto& [name, device] : cluster.devices) {
    smallest = smallest == 0 ? device.memory_gib : std::min(smallest, device.memory_gib);
  }
  for (const double gib : kMemories) {
    if (gib <= smallest) continue;
    larger.push_back(cluster);
    for (auto& [name, device] : larger.back().devices) device.memory_gib = std::max(device.memory_gib, gib);
  }
  std::size_t low = 0, high = larger.size();
  std::optional<double> step_ms;
  while (low < high && !tries.over()) {
    const std::size_t middle = step_ms ? low + (high - low) / 2 : high - 1;
    const std::optional<double> found = tries.fits(larger[middle], most, step, true);
    if (!found && !step_ms) break;
    if (found) step_ms = found;
    (found ? high : low) = found ? middle : middle + 1;
  }
  if (step_ms) {
    const std::size_t sold = std::size(kMemories) - larger.size() + high;
    note("devices of " + format_number(kMemories[sold]) + " GiB", step_ms);
  }
  for (Cluster more = cluster; more.num_devices() <= kMostDevices / 2 && !tries.over();) {
    more.servers.back().count *= 2;
    const machine::ServerGroup& last = more.servers.back();
    if (note(servers_text(last, last.count) + " instead of " + std::to_string(cluster.servers.back().count),
             tries.fits(more, most, step, true))) {
      break;
    }
  }
  return changes;
}

std::vector<FittingChange> fitting_changes(const Layout& layout, const Question& asked) {
  // With a number of micro-batches that is given, smaller ones are another batch.
  const bool divides = asked.step.micro_batches == 0 && layout.micro_batch_size > 1;
  // Without a batch, it follows from the micro-batch: it stays what it is, so that the steps are of the same samples.
  Question question = asked;
  std::string batch_words;
  if (divides && question.step.batch == 0) {
    const ScoredPlan as_it_is = score_layout(layout, question);
    const pipeline::PlacedPlan& placed = as_it_is.placed;
    question.step.batch = std::llround(placed.problem().micro_batch_samples() * placed.problem().micro_batches());
    batch_words = "--batch " + std::to_string(question.step.batch) + " and ";
  }
  const bool layers = !question.profile().layer.empty() && question.profile().forward_fraction < 1;
  const bool may_recompute = layers && !layout.variant.recompute;
  constexpr int kHighestZero = 3;
  const auto words_of = [&](const Layout& changed) {
    std::vector<std::string> words;
    const bool smaller = changed.micro_batch_size < layout.micro_batch_size;
    if (smaller) words.push_back("micro-batch-size=" + std::to_string(changed.micro_batch_size));
    if (changed.variant.recompute && !layout.variant.recompute) words.emplace_back("recompute=layer");
    if (changed.variant.zero > layout.variant.zero) words.push_back("zero=" + std::to_string(changed.variant.zero));
    return (smaller ? batch_words : "") + join(words, ",");
  };
  // The largest part of the layout's micro-batches with which it fits; `smaller`: that they are is part of the change.
  const auto largest_fitting = [&](Layout changed, bool smaller) -> std::optional<FittingChange> {
    if (smaller) changed.micro_batch_size /= 2;
    while (true) {
      if (const std::optional<double> step_ms = fitting_step_ms(changed, question)) {
        return FittingChange{words_of(changed), *step_ms};
      }
      if (!divides || changed.micro_batch_size <= 1) return std::nullopt;
      changed.micro_batch_size /= 2;
    }
  };

  std::vector<FittingChange> changes;
  if (divides) {
    if (auto change = largest_fitting(layout, true)) changes.push_back(std::move(*change));
  }
  const auto note = [&](const Layout& changed) {
    const std::optional<double> step_ms = fitting_step_ms(changed, question);
    if (step_ms) changes.push_back({words_of(changed), *step_ms});
    return step_ms.has_value();
  };
  Layout again = layout;
  again.variant.recompute = true;
  if (may_recompute) note(again);
  Layout sharded = layout;
  while (sharded.variant.zero < kHighestZero) {
    ++sharded.variant.zero;
    if (note(sharded)) break;
  }
  if (!changes.empty()) return changes;
  // Several of them, the shortest.
  for (int zero = layout.variant.zero; zero <= kHighestZero; ++zero) {
    for (const bool recompute : {false, true}) {
      if (recompute && !may_recompute) continue;
      Layout all = layout;
      all.variant.zero = zero;
      if (recompute) all.variant.recompute = true;
      std::optional<FittingChange> change = largest_fitting(all, false);
      if (!change) continue;
      if (changes.empty()) {
        changes.push_back(std::move(*change));
      } else if (change->step_ms < changes.front().step_ms) {
        changes.front() = std::move(*change);
      }
    }
  }
  return changes;
}

}  // namespace automap::planners
