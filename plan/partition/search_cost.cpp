#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/base/rng.h"
#include "plan/partition/search_internal.h"

namespace automap::partition {
namespace {

using internal::Choice;
using models::PartitionProblem;

// Iterated local search: climb, keep, disturb. A byte that is missing costs `price`.
class LocalSearch {
 public:
  LocalSearch(const PartitionProblem& problem, std::uint64_t seed)
      : problem_(problem),
        rng_(seed, 0x0c057, 0),
        n_(static_cast<std::int32_t>(problem.groups.size())),
        need_(internal::needed_bytes(problem)),
        choice_(problem) {
    double values = 0, bytes = 0;
    for (std::int32_t g = 0; g < n_; ++g) {
      values += std::abs(problem.value(g));
      bytes += problem.groups[at(g)].saved_bytes;
    }
    value_per_byte_ = bytes > 0 ? values / bytes : 0;
    least_gain_ = 1e-12 * values;
    price_ = need_ > 0 ? 4 * value_per_byte_ : 0;
  }

  Choice& choice() { return choice_; }
  double worth() const { return choice_.value() - price_ * std::max(0.0, need_ - choice_.saved_bytes()); }

  // The worth of changing value and bytes together.
  double worth_of(double value, double bytes) const {
    if (price_ <= 0) return value;
    const double before = std::max(0.0, need_ - choice_.saved_bytes());
    const double after = std::max(0.0, need_ - choice_.saved_bytes() - bytes);
    return value + price_ * (before - after);
  }

  void climb(Work* work) {
    bool changed = true;
    while (changed && !work->over()) {
      changed = false;
      for (std::int32_t g = 0; g < n_ && !work->over(); ++g) {
        ++steps_;
        work->spend(internal::units_of(problem_.groups[at(g)]));
        if (choice_.has(g)) {
          if (worth_of(-problem_.value(g), -problem_.groups[at(g)].saved_bytes) > least_gain_) {
            choice_.remove(g);
            changed = true;
          }
          continue;
        }
        // One in, all that exclude it out: 0-1, 1-1, 2-1.
        if (worth_of(choice_.gain(g), choice_.gain_bytes(g)) > least_gain_) {
          choice_.put(g);
          changed = true;
        }
      }
      if (!changed) changed = swap_one_for_two(work);
    }
  }

  // One out, two of those that only it excluded in.
  bool swap_one_for_two(Work* work) {
    constexpr std::size_t kMost = 200;
    for (std::int32_t out = 0; out < n_ && !work->over(); ++out) {
      if (!choice_.has(out)) continue;
      freed_.clear();
      for (const std::int32_t g : problem_.groups[at(out)].excludes) {
        if (choice_.conflicts(g) == 1 && freed_.size() < kMost) freed_.push_back(g);
      }
      work->spend(internal::units_of(problem_.groups[at(out)]) +
                  internal::kPerGroup * static_cast<std::int64_t>(freed_.size() * freed_.size()));
      for (std::size_t i = 0; i < freed_.size(); ++i) {
        const auto& excludes = problem_.groups[at(freed_[i])].excludes;
        for (std::size_t j = i + 1; j < freed_.size(); ++j) {
          if (std::binary_search(excludes.begin(), excludes.end(), freed_[j])) continue;
          const models::PartitionGroup& a = problem_.groups[at(freed_[i])];
          const models::PartitionGroup& b = problem_.groups[at(freed_[j])];
          const double value = problem_.value(freed_[i]) + problem_.value(freed_[j]) - problem_.value(out);
          if (worth_of(value, a.saved_bytes + b.saved_bytes - problem_.groups[at(out)].saved_bytes) <= least_gain_)
            continue;
          choice_.remove(out);
          choice_.add(freed_[i]);
          choice_.add(freed_[j]);
          return true;
        }
      }
    }
    return false;
  }

  void disturb() {
    const std::uint64_t times = 1 + rng_.below(3);
    for (std::uint64_t i = 0; i < times; ++i)
      choice_.put(static_cast<std::int32_t>(rng_.below(static_cast<std::uint64_t>(n_))));
  }

  void start_over() {
    choice_.clear();
    std::vector<std::int32_t> order(at(n_));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng_.below(i)]);
    for (const std::int32_t g : order) {
      if (choice_.conflicts(g) == 0 && worth_of(problem_.value(g), problem_.groups[at(g)].saved_bytes) > 0)
        choice_.add(g);
    }
    if (need_ > 0) price_ = value_per_byte_ * std::exp2(rng_.uniform(-2, 10));
  }

  void set(const std::vector<std::int32_t>& groups) {
    choice_.clear();
    for (const std::int32_t g : groups) choice_.add(g);
  }

  std::int64_t steps() const { return steps_; }

 private:
  const PartitionProblem& problem_;
  Rng rng_;
  std::int32_t n_;
  double need_, value_per_byte_ = 0, price_ = 0, least_gain_ = 0;
  Choice choice_;
  std::vector<std::int32_t> freed_;
  std::int64_t steps_ = 0;
};

}  // namespace

PartitionAnswer internal::cost(const models::PartitionProblem& problem, std::uint64_t seed, Work& work) {
  // The search ends when so many starts in a row bring nothing; small problems need no whole budget.
  constexpr int kIdleStarts = 12;
  constexpr int kIdleRounds = 60;
  const Stopwatch watch;
  PartitionAnswer best = internal::make_answer(problem, "cost", greedy(problem, work).groups);
  std::int64_t rounds = 0, starts = 0, steps = 0;
  if (!problem.groups.empty()) {
    LocalSearch search(problem, seed);
    const auto keep = [&] {
      work.spend(kPerGroup * static_cast<std::int64_t>(problem.groups.size()));
      const std::vector<std::int32_t> groups = search.choice().groups();
      PartitionAnswer answer = internal::make_answer(problem, "cost", groups);
      if (!answer.score.fits) {
        Choice fitting(problem);
        for (const std::int32_t g : groups) fitting.add(g);
        if (internal::make_fit(problem, &fitting)) answer = internal::make_answer(problem, "cost", fitting.groups());
      }
      if (!internal::better(answer.score, best.score)) return false;
      best = std::move(answer);
      return true;
    };
    search.set(best.groups);
    for (int idle_starts = 0; idle_starts < kIdleStarts && !work.over(); ++idle_starts) {
      ++starts;
      search.climb(&work);
      if (keep()) idle_starts = 0;
      std::vector<std::int32_t> here = search.choice().groups();
      double worth = search.worth();
      for (int idle = 0; idle < kIdleRounds && !work.over(); ++idle) {
        ++rounds;
        search.disturb();
        search.climb(&work);
        if (keep()) idle_starts = -1;
        if (search.worth() >= worth) {
          if (search.worth() > worth) idle = -1;
          worth = search.worth();
          here = search.choice().groups();
        } else {
          search.set(here);
        }
      }
      search.start_over();
    }
    steps = search.steps();
  }
  best.cut_by_time = work.stopped();
  best.cut_by_effort = work.over() && !work.stopped();
  best.seconds = watch.seconds();
  best.statistics = {{"starts", static_cast<double>(starts)},
                     {"rounds", static_cast<double>(rounds)},
                     {"steps", static_cast<double>(steps)}};
  return best;
}

}  // namespace automap::partition
