#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/numbers.h"
#include "plan/partition/search_internal.h"

namespace automap::partition {
namespace {

using models::PartitionObjective;
using models::PartitionProblem;

// Values and bytes as whole numbers, so that sums do not depend on their order, equal plans are equal and equal parts
// are recognised. 2^50 in all: every sum is exact in a double too.
constexpr double kLargestSum = 1125899906842624.0;
// Count: one variable, and room below it for the time, which decides between plans of equal count.
constexpr std::int64_t kOneVariable = std::int64_t{1} << 28;
// Points of a front that looks for a good plan only.
constexpr std::size_t kThinFront = 500;

// The largest power of two that keeps `sum` below `largest`.
double scale_for(double sum, double largest) {
  if (!(sum > 0)) return 1;
  return std::ldexp(1.0, std::clamp(std::ilogb(largest / sum), -1000, 1000));
}

class Enumerate {
 public:
  Enumerate(const PartitionProblem& problem, Work& work)
      : problem_(problem), work_(work), n_(static_cast<std::int32_t>(problem.groups.size())) {}

  PartitionAnswer run() {
    make_weights();
    best_ = internal::make_answer(problem_, "enumerate", {});
    // An answer in any case, and something to prune with.
    consider(internal::greedy(problem_, work_).groups);
    const double need = internal::needed_bytes(problem_);
    bool proven = false;
    if (n_ == 0) {
      bound_ = 0;
      proven = best_.score.fits;
    } else {
      SetSolver solver(&work_, &statistics_);
      const SetResult free = solver.solve(make_set_graph(neighbours_, weight_));
      bound_ = free.bound;
      consider(free.vertices);
      proven = free.exact() && models::score(problem_, free.vertices).fits;
      if (!proven && need > 0) proven = with_memory(need, free);
    }
    PartitionAnswer answer = std::move(best_);
    answer.seconds = watch_.seconds();
    const bool cut = cut_ || (!proven && !infeasible_);
    answer.cut_by_time = cut && work_.stopped();
    answer.cut_by_effort = cut && !work_.stopped();
    answer.bound = value_of_bound();
    if (answer.score.fits && (proven || answer.score.value >= answer.bound)) {
      answer.bound = answer.score.value;
      answer.proven = true;
      answer.cut_by_time = answer.cut_by_effort = false;
    }
    answer.statistics = {{"nodes", static_cast<double>(statistics_.nodes)},
                         {"equal_parts", static_cast<double>(statistics_.memo_hits)},
                         {"front_points", static_cast<double>(statistics_.points)},
                         {"nothing_fits", infeasible_ ? 1.0 : 0.0}};
    return answer;
  }

 private:
  void make_weights() {
    double sum = 0, sum_ms = 0;
    for (std::int32_t g = 0; g < n_; ++g) {
      const models::PartitionGroup& group = problem_.groups[at(g)];
      sum += std::abs(problem_.value(g));
      sum_ms += std::abs(group.saved_ms - group.collective_ms);
      sum_bytes_ += group.saved_bytes;
      neighbours_.push_back(group.excludes);
    }
    const bool count = problem_.objective == PartitionObjective::kCount;
    // Half an ulp of rounding each: the ties among n groups stay below one variable.
    const double ms_scale = scale_for(sum_ms, static_cast<double>(kOneVariable / 4));
    value_scale_ = count ? static_cast<double>(kOneVariable) : scale_for(sum, kLargestSum);
    bytes_scale_ = std::min(1024.0, scale_for(sum_bytes_, kLargestSum));
    for (std::int32_t g = 0; g < n_; ++g) {
      const models::PartitionGroup& group = problem_.groups[at(g)];
      std::int64_t w = 0;
      if (count) {
        w = kOneVariable * static_cast<std::int64_t>(group.members.size()) +
            std::llround((group.saved_ms - group.collective_ms) * ms_scale);
      } else {
        w = std::llround(problem_.value(g) * value_scale_);
      }
      weight_.push_back(w);
      bytes_.push_back(std::llround(group.saved_bytes * bytes_scale_));
    }
  }

  // The bound in the problem's own units.
  double value_of_bound() const {
    if (problem_.objective == PartitionObjective::kCount)
      return std::floor((bound_ + static_cast<double>(kOneVariable) / 2) / static_cast<double>(kOneVariable));
    // Every weight is off by half a unit at most, and the score is a sum of doubles.
    return bound_ / value_scale_ + (n_ + 2) / value_scale_;
  }

  void consider(const std::vector<std::int32_t>& groups) {
    PartitionAnswer answer = internal::make_answer(problem_, "enumerate", groups);
    if (internal::better(answer.score, best_.score)) best_ = std::move(answer);
  }

  std::int64_t sum(const std::vector<std::int64_t>& of, const std::vector<std::int32_t>& groups) const {
    std::int64_t s = 0;
    for (const std::int32_t g : groups) s += of[at(g)];
    return s;
  }

  // The best within the memory. True: best_ is proven (or it is proven that nothing fits).
  bool with_memory(double need_bytes, const SetResult& free) {
    // The plan that saves most; of those, one of the most value.
    SetSolver most_solver(&work_, &statistics_);
    const SetResult most = most_solver.solve(make_set_graph(neighbours_, bytes_));
    consider(most.vertices);
    if (!models::score(problem_, most.vertices).fits) {
      infeasible_ = most.exact();
      cut_ = !infeasible_;
      return false;
    }
    const auto need = static_cast<std::int64_t>(std::ceil((need_bytes - 0.5) * bytes_scale_));
    double best_price = 0;
    tighten(static_cast<double>(need), free, most, &best_price);
    {
      internal::Choice choice(problem_);
      for (const std::int32_t g : best_.groups) choice.add(g);
      if (internal::make_fit(problem_, &choice)) consider(choice.groups());
    }
    if (best_.score.fits && best_.score.value >= value_of_bound()) return true;
    return fronts(need, best_price);
  }

  // Lagrange: a byte is paid `price`. Every price gives a bound, the best price the best one; plans found on the way
  // are candidates.
  void tighten(double need, SetResult low, SetResult high, double* best_price) {
    double low_bytes = static_cast<double>(sum(bytes_, low.vertices));
    double low_value = static_cast<double>(sum(weight_, low.vertices));
    double high_bytes = static_cast<double>(sum(bytes_, high.vertices));
    double high_value = static_cast<double>(sum(weight_, high.vertices));
    for (int round = 0; round < 60 && high_bytes > low_bytes && low_value > high_value; ++round) {
      const double price = (low_value - high_value) / (high_bytes - low_bytes);
      if (price * sum_bytes_ * bytes_scale_ > 1e17) return;  // no longer exact
      std::vector<std::int64_t> priced;
      for (std::int32_t g = 0; g < n_; ++g) {
        const double w = static_cast<double>(weight_[at(g)]) + price * static_cast<double>(bytes_[at(g)]);
        priced.push_back(static_cast<std::int64_t>(std::ceil(w + std::abs(w) * 1e-15)));
      }
      SetSolver solver(&work_, &statistics_);
      const SetResult r = solver.solve(make_set_graph(neighbours_, priced));
      const double bound = static_cast<double>(r.bound) - price * need * (1 - 1e-15) + 1;
      if (bound < bound_) {
        bound_ = bound;
        *best_price = price;
      }
      consider(r.vertices);
      const double bytes = static_cast<double>(sum(bytes_, r.vertices));
      const double value = static_cast<double>(sum(weight_, r.vertices));
      const double here = value + price * bytes, there = low_value + price * low_bytes;
      if (!r.exact() || here - there <= n_ + 1e-12 * std::abs(here)) return;
      if (bytes >= need) {
        high_bytes = bytes;
        high_value = value;
      } else {
        low_bytes = bytes;
        low_value = value;
      }
    }
  }

  bool fronts(std::int64_t need, double price) {
    if (price * sum_bytes_ * bytes_scale_ > 1e17) price = 0;
    const double slack = 4.0 * n_ + 8 + 1e-12 * (std::abs(bound_) + price * static_cast<double>(need));
    const SetGraph graph = make_set_graph(neighbours_, weight_, bytes_);
    const double top = bound_;
    double all = 0;
    for (const std::int64_t w : weight_) all += std::abs(static_cast<double>(w));
    // A good plan first.
    bool solved = false;
    fronts_within(graph, need, price, 8 * all + slack, kThinFront, &solved);
    for (double reach = all / 65536 + slack;; reach *= 4) {
      // All plans that stay less than `reach` below the bound; the best of them is the best there is, if there is one.
      const double known =
          best_.score.fits ? static_cast<double>(sum(weight_, best_.groups)) : -std::numeric_limits<double>::infinity();
      const double gap = top - known + slack;
      const bool last = reach >= gap || reach > 8 * all;
      const double heaviest = fronts_within(graph, need, price, std::min(reach, gap), 0, &solved);
      if (!solved) {
        cut_ = true;
        return false;
      }
      if (last) break;
      if (heaviest >= top - reach + slack) break;
      bound_ = std::min(bound_, top - reach + slack);
    }
    return best_.score.fits;
  }

  // The best plan among those that stay less than `gap` below the bound, and its weight; -infinity: there is none.
  double fronts_within(const SetGraph& graph, std::int64_t need, double price, double gap, std::size_t thin,
                       bool* solved) {
    FrontSolver solver(&work_, &statistics_, need, price, gap);
    solver.thin_out(thin);
    std::vector<FrontSolver::Point> front;
    *solved = solver.solve(graph, &front);
    const FrontSolver::Point* best = nullptr;
    if (*solved) {
      for (const FrontSolver::Point& p : front) {
        if (p.second >= need && (best == nullptr || p.weight > best->weight)) best = &p;
      }
    }
    if (best == nullptr) return -std::numeric_limits<double>::infinity();
    consider(solver.vertices(*best));
    return static_cast<double>(best->weight);
  }

  const PartitionProblem& problem_;
  Work& work_;
  const internal::Stopwatch watch_;
  SetStatistics statistics_;
  std::int32_t n_;
  std::vector<std::vector<std::int32_t>> neighbours_;
  std::vector<std::int64_t> weight_, bytes_;
  double value_scale_ = 1, bytes_scale_ = 1, sum_bytes_ = 0;
  double bound_ = 0;  // in weights
  bool infeasible_ = false, cut_ = false;
  PartitionAnswer best_;
};

}  // namespace

PartitionAnswer internal::enumerate(const models::PartitionProblem& problem, Work& work) {
  return Enumerate(problem, work).run();
}

}  // namespace automap::partition
