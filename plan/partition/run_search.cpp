#include <algorithm>
#include <cstdio>
#include <limits>

#include "common/base/cli.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/suggest.h"
#include "common/base/text_table.h"
#include "plan/partition/search_internal.h"

namespace automap::partition {
namespace {

// With three decimals, so that a plan that just does not fit does not read the same as the limit.
std::string exact_bytes(double bytes) {
  constexpr double kMiB = 1024.0 * 1024.0, kGiB = 1024.0 * kMiB;
  if (bytes < kMiB) return format_bytes(bytes);
  char text[64];
  const bool large = bytes >= kGiB;
  std::snprintf(text, sizeof text, "%.3f %s", bytes / (large ? kGiB : kMiB), large ? "GiB" : "MiB");
  return text;
}

}  // namespace

std::int64_t search_units(Effort effort) {
  switch (effort) {
    case Effort::kQuick: return 1'000'000'000;
    case Effort::kNormal: return 10'000'000'000;
    case Effort::kThorough: return 100'000'000'000;
  }
  return 0;
}

WorkLimits work_limits(const SearchLimits& limits) {
  WorkLimits work;
  work.units = limits.units;
  work.seconds = std::min(limits.budget_s, limits.ends_s - steady_seconds());
  work.cancelled = StopToken::stop_requested;
  return work;
}

PartitionAnswer search_greedy(const models::PartitionProblem& problem, const SearchLimits& limits) {
  Work work(work_limits(limits));
  return internal::greedy(problem, work);
}

PartitionAnswer search_enumerate(const models::PartitionProblem& problem, const SearchLimits& limits) {
  Work work(work_limits(limits));
  return internal::enumerate(problem, work);
}

PartitionAnswer search_cost(const models::PartitionProblem& problem, const SearchLimits& limits) {
  Work work(work_limits(limits));
  return internal::cost(problem, limits.seed, work);
}

std::vector<PartitionAnswer> run_search(const models::PartitionProblem& problem, const SearchRequest& request) {
  const std::string& name = request.algorithm;
  const SearchLimits& limits = request.limits;
  std::vector<PartitionAnswer> answers;
  if (name == "greedy") {
    answers.push_back(search_greedy(problem, limits));
  } else if (name == "enumerate") {
    answers.push_back(search_enumerate(problem, limits));
  } else if (name == "cost") {
    answers.push_back(search_cost(problem, limits));
  } else if (name == "rainbow") {
    if (!request.rainbow) {
      throw Error(ErrorKind::kUsage, "--algorithm rainbow: this program was built without LibTorch",
                  "build with LibTorch, or use --algorithm auto (greedy, enumerate, cost)");
    }
    answers.push_back(request.rainbow(problem, limits, request.policy));
  } else if (name == "auto") {
    Work whole(work_limits(limits));
    answers.push_back(internal::greedy(problem, whole));
    // Some of the work is kept for the local search, which helps where this search does not come to an end.
    Work part(whole, whole.left() / 10 * 7);
    answers.push_back(internal::enumerate(problem, part));
    const bool cut = answers.back().cut_by_time || answers.back().cut_by_effort;
    if (cut && !whole.stopped()) answers.push_back(internal::cost(problem, limits.seed, whole));
  } else {
    throw Error(ErrorKind::kUsage,
                "--algorithm " + name + " is unknown; there are auto, rainbow, greedy, enumerate and cost");
  }
  // A bound is a fact about the problem: it holds for every answer.
  double bound = std::numeric_limits<double>::infinity();
  for (const PartitionAnswer& answer : answers) bound = std::min(bound, answer.bound);
  for (PartitionAnswer& answer : answers) {
    answer.bound = bound;
    answer.proven = answer.proven || (answer.score.fits && answer.score.value >= bound);
  }
  // Among equals the proven one comes first, then the simpler algorithm.
  std::stable_sort(answers.begin(), answers.end(), [](const PartitionAnswer& a, const PartitionAnswer& b) {
    if (internal::better(a.score, b.score)) return true;
    if (internal::better(b.score, a.score)) return false;
    return a.proven && !b.proven;
  });
  const models::PartitionScore& best = answers.front().score;
  if (!best.fits) {
    bool nothing = false;
    for (const PartitionAnswer& answer : answers) {
      for (const auto& [key, value] : answer.statistics) nothing = nothing || (key == "nothing_fits" && value > 0);
    }
    throw Error(ErrorKind::kInfeasible,
                std::string(nothing ? "no plan" : "no plan that was found") + " fits into the " +
                    exact_bytes(problem.capacity_bytes) + " of a device: the one that needs least needs " +
                    exact_bytes(best.memory_bytes) + ", and " + exact_bytes(problem.memory_bytes) +
                    " with nothing split",
                "give more memory or more shards");
  }
  return answers;
}

}  // namespace automap::partition
