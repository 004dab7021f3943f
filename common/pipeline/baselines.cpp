#include "common/pipeline/baselines.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"
#include "common/base/in_order.h"
#include "common/base/numbers.h"
#include "common/pipeline/schedule.h"

namespace automap::pipeline {
namespace {

// Prices, units of work.
constexpr std::int64_t kPerStage = 25;    // of a plan that is judged by V
constexpr std::int64_t kPerTask = 8;      // a stage and micro-batch simulated
constexpr std::int64_t kPerSearch = 100;  // the end or the begin of a stage, by halves
constexpr std::int64_t kPerPlace = 12;    // a place swept over for one stage

std::vector<int> equal_cuts(int stages, int end) {
  std::vector<int> cuts;
  for (int s = 1; s < stages; ++s) cuts.push_back(static_cast<int>(static_cast<std::int64_t>(s) * end / stages));
  return cuts;
}

// The least K_s with which the schedule runs the stage.
int least_in_flight(const Problem& problem, Schedule schedule, int stages, int stage) {
  return schedule == Schedule::kAdaptive ? 1 : in_flight(schedule, stages, stage, problem.micro_batches());
}

// The stages of given device cuts, with the cost and the limits of a stage (p0, p1] of them. All of compute, weight and
// memory grow with the interval; the sweeps below rely on that.
class Shares {
 public:
  Shares(const Problem& problem, const std::vector<int>& device_cuts, Schedule schedule, BalanceBy by, int variant)
      : problem_(problem),
        by_(by),
        variant_(variant),
        stages_(static_cast<int>(device_cuts.size()) + 1),
        key_(device_cuts, schedule, by, variant) {
    needs_variable_ = problem.stages_need_variables(stages_);
    limited_ = problem.options().memory && by != BalanceBy::kMemory;
    int d0 = 0;
    for (int s = 0; s < stages_; ++s) {
      const int d1 = s + 1 == stages_ ? problem.num_devices() : device_cuts[at(s)];
      first_.push_back(d0);
      groups_.push_back(&problem.group(d0, d1));
      valid_ = valid_ && groups_.back()->valid;
      in_flight_.push_back(least_in_flight(problem, schedule, stages_, s + 1));
      d0 = d1;
    }
    first_.push_back(d0);
  }

  bool valid() const { return valid_; }  // whether a stage can run on every group; else nothing else may be asked
  int stages() const { return stages_; }
  const Problem& problem() const { return problem_; }
  // Units of work that questions about these shares have cost and that nobody has paid yet.
  void spend(std::int64_t units) const { units_ += units; }
  std::int64_t unpaid() const { return units_; }
  const BalancedCuts::Key& key() const { return key_; }
  void pay(Work* work) const {
    if (work != nullptr) work->spend(std::exchange(units_, 0));
  }
  bool needs_variable() const { return needs_variable_; }

  double cost(int s, int p0, int p1) const {
    switch (by_) {
      case BalanceBy::kCompute: return problem_.compute_ms(p0, p1, *groups_[at(s)], variant_);
      case BalanceBy::kParameters: return problem_.weight_bytes(p0, p1);
      case BalanceBy::kMemory: break;
    }
    return memory_bytes(s, p0, p1) / groups_[at(s)]->capacity_bytes;
  }
  // Not too long: cost within `limit` and the memory respected. Holds for every earlier end, too.
  bool short_enough(int s, int p0, int p1, double limit) const {
    return within(cost(s, p0, p1), limit) && (!limited_ || memory_bytes(s, p0, p1) <= groups_[at(s)]->capacity_bytes);
  }
  // Where this is false, so is the above; and it holds for every part of the stage, too.
  bool may_be_short_enough(int s, int p0, int p1, double limit) const {
    const bool by_memory = by_ == BalanceBy::kMemory;
    if (!by_memory && !within(cost(s, p0, p1), limit)) return false;
    if (!by_memory && !limited_) return true;
    const DeviceGroup& group = *groups_[at(s)];
    const double share = problem_.least_memory_bytes(p0, p1, group, in_flight_[at(s)], variant_) / group.capacity_bytes;
    return (!by_memory || within(share, limit)) && (!limited_ || share <= 1);
  }
  // True if short_enough() may differ from may_be_short_enough() for stages that begin at p0.
  bool needs_more_than_parts(int s, int p0) const {
    return (limited_ || by_ == BalanceBy::kMemory) &&
           problem_.entry_beyond_least(p0, *groups_[at(s)], in_flight_[at(s)], variant_) > 0;
  }
  // The least cost above a limit for which anything was refused since the last call: an answer under that limit is the
  // same under every limit below that cost.
  double least_refused() const { return std::exchange(least_refused_, kInfinity); }
  bool long_enough(int s, int p0, int p1) const {
    return p1 > p0 && (!needs_variable_ || problem_.variables(p0, p1) > 0) && !problem_.idles(p0, p1, *groups_[at(s)]);
  }
  Link link_behind(int s) const { return problem_.link(first_[at(s)], first_[at(s + 1)], first_[at(s + 2)]); }

 private:
  bool within(double cost, double limit) const {
    if (cost <= limit) return true;
    least_refused_ = std::min(least_refused_, cost);
    return false;
  }
  double memory_bytes(int s, int p0, int p1) const {
    return problem_.memory_bytes(p0, p1, *groups_[at(s)], in_flight_[at(s)], variant_);
  }

  const Problem& problem_;
  BalanceBy by_;
  int variant_;
  int stages_;
  BalancedCuts::Key key_;
  bool valid_ = true;
  bool needs_variable_ = false, limited_ = false;
  std::vector<int> first_;  // [S+1]: devices before stage s; D at the end
  std::vector<const DeviceGroup*> groups_;
  std::vector<int> in_flight_;
  mutable std::int64_t units_ = 0;
  mutable double least_refused_ = kInfinity;
};

double largest_cost(const Shares& shares, const std::vector<int>& cuts) {
  double largest = 0;
  int p0 = 0;
  for (int s = 0; s < shares.stages(); ++s) {
    const int p1 = s + 1 == shares.stages() ? shares.problem().num_instructions() : cuts[at(s)];
    largest = std::max(largest, shares.cost(s, p0, p1));
    p0 = p1;
  }
  return largest;
}

// The furthest end that stage s may have when it begins at p0, and the earliest begin when it ends at p1; p0 and p1
// when nothing fits.
int furthest_end(const Shares& shares, int s, int p0, double limit) {
  shares.spend(kPerSearch);
  int reached = p0, beyond = shares.problem().num_instructions() + 1;
  while (beyond - reached > 1) {
    const int middle = reached + (beyond - reached) / 2;
    (shares.may_be_short_enough(s, p0, middle, limit) ? reached : beyond) = middle;
  }
  return reached;
}
int earliest_begin(const Shares& shares, int s, int p1, double limit) {
  shares.spend(kPerSearch);
  int reached = p1, beyond = -1;
  while (reached - beyond > 1) {
    const int middle = beyond + (reached - beyond) / 2;
    (shares.may_be_short_enough(s, middle, p1, limit) ? reached : beyond) = middle;
  }
  return reached;
}

// The largest cost of stages within `limit` that cover the model, each as long as it may be, when they need not be long
// enough; infinite where none cover it: then nothing does. Cheap: S binary searches.
double largest_of_cover(const Shares& shares, double limit) {
  int p = 0;
  double largest = 0;
  for (int s = 0; s < shares.stages(); ++s) {
    const int end = furthest_end(shares, s, p, limit);
    largest = std::max(largest, shares.cost(s, p, end));
    p = end;
  }
  return p == shares.problem().num_instructions() ? largest : kInfinity;
}
bool covers(const Shares& shares, double limit) {
  return largest_of_cover(shares, limit) < kInfinity;
}

// The last of the ends low..high that a stage s from p0 is short enough for; low - 1 for none.
int last_short_enough(const Shares& shares, int s, int p0, int low, int high, double limit) {
  shares.spend(kPerSearch);
  int reached = low - 1, beyond = high + 1;
  while (beyond - reached > 1) {
    const int middle = reached + (beyond - reached) / 2;
    (shares.short_enough(s, p0, middle, limit) ? reached : beyond) = middle;
  }
  return reached;
}

// Where the least of values first..last stands, whose range the table was made for; made when it is first asked.
class LeastOf {
 public:
  explicit LeastOf(const std::vector<double>& values) : values_(values) {}
  int place(int first, int last) {
    if (levels_.empty()) make();
    std::size_t level = 0;
    while ((2 << level) <= last - first + 1) ++level;
    return least(levels_[level][at(first)], levels_[level][at(last + 1 - (1 << level))]);
  }

 private:
  int least(int a, int b) const { return values_[at(b)] < values_[at(a)] ? b : a; }
  void make() {
    levels_.emplace_back(values_.size());
    for (std::size_t i = 0; i < values_.size(); ++i) levels_[0][i] = static_cast<int>(i);
    for (std::size_t width = 2; width <= values_.size(); width *= 2) {
      const std::vector<int> below = levels_.back();
      std::vector<int> level(values_.size() - width + 1);
      for (std::size_t i = 0; i < level.size(); ++i) level[i] = least(below[i], below[i + width / 2]);
      levels_.push_back(std::move(level));
    }
  }

  const std::vector<double>& values_;
  std::vector<std::vector<int>> levels_;
};

// Cuts with every stage long enough and within `limit` whose transfers sum to the least; nullopt: none.
// here[p] = the least transfer time behind stage s when it begins at p. Stage s can only begin between what the stages
// behind it must cover and what those before it can reach, and the ends [low, high] it may have move right with its
// begin, so each stage is one sweep over a window with a monotone queue. A begin that needs more memory than its parts
// say has fewer ends, of which a table names the least.
std::optional<std::vector<int>> narrowest_cuts(const Shares& shares, double limit) {
  const int n = shares.problem().num_instructions();
  const int stages = shares.stages();
  std::vector<int> first(at(stages) + 1), last(at(stages) + 1);  // window of the begin of stage s; S: the end of all
  first.back() = last.back() = n;
  for (int s = stages - 1; s >= 0; --s) {
    first[at(s)] = std::max(s, earliest_begin(shares, s, first[at(s + 1)], limit));
  }
  if (first[0] > 0) return std::nullopt;
  last[0] = 0;
  for (int s = 1; s < stages; ++s) {
    last[at(s)] = std::min(n - (stages - s), furthest_end(shares, s - 1, last[at(s - 1)], limit));
    if (last[at(s)] < first[at(s)]) return std::nullopt;
  }
  std::vector<double> behind = {0}, here;
  std::vector<std::vector<int>> choice(at(stages));
  std::vector<int> queue;
  for (int s = stages - 1; s >= 0; --s) {
    const int begin = first[at(s + 1)], end = last[at(s + 1)];
    shares.spend(kPerPlace * (end - begin + last[at(s)] - first[at(s)] + 2));
    if (s + 1 < stages) {
      const Link way = shares.link_behind(s);
      for (int p = begin; p <= end; ++p) {
        double& entry = behind[at(p - begin)];
        if (entry < kInfinity) entry += way.ms(shares.problem().activation_bytes(p));
      }
    }
    here.assign(at(last[at(s)] - first[at(s)] + 1), kInfinity);
    choice[at(s)].assign(here.size(), -1);
    queue.assign(behind.size(), 0);
    LeastOf least_behind(behind);
    std::size_t head = 0, tail = 0;
    int low = begin, high = begin;  // the next ends to be dropped and to be put into the queue
    for (int p = first[at(s)]; p <= last[at(s)]; ++p) {
      while (low <= end && !shares.long_enough(s, p, low)) ++low;
      if (low > end) break;
      high = std::max(high, p + 1);
      while (high <= end && shares.may_be_short_enough(s, p, high, limit)) {
        const double entry = behind[at(high - begin)];
        if (entry < kInfinity) {
          while (tail > head && behind[at(queue[tail - 1] - begin)] >= entry) --tail;
          queue[tail++] = high;
        }
        ++high;
      }
      while (head < tail && queue[head] < low) ++head;
      if (head == tail) continue;
      int chosen = queue[head];
      if (shares.needs_more_than_parts(s, p) && !shares.short_enough(s, p, chosen, limit)) {
        const int reached = last_short_enough(shares, s, p, low, chosen, limit);
        if (reached < low) continue;
        chosen = least_behind.place(low - begin, reached - begin) + begin;
        if (!(behind[at(chosen - begin)] < kInfinity)) continue;
      }
      here[at(p - first[at(s)])] = behind[at(chosen - begin)];
      choice[at(s)][at(p - first[at(s)])] = chosen;
    }
    behind.swap(here);
  }
  if (!(behind.front() < kInfinity)) return std::nullopt;
  std::vector<int> cuts;
  int p = 0;
  for (int s = 0; s + 1 < stages; ++s) cuts.push_back(p = choice[at(s)][at(p - first[at(s)])]);
  return cuts;
}

// Halving an interval of doubles this often leaves nothing of it, whatever its ends are.
constexpr int kMostBaselineHalvings = 128;
// Limits are tried at growing distances above the bound, as shares of it: the first distance, the factor from one to
// the next, and the largest one before no limit is set.
constexpr double kFirstStep = 1e-4, kStepGrowth = 8, kLastStep = 100;

// The relaxation without lower limits on the stages, by greedy covers: a lower bound that is mostly tight.
double least_cost_of_covers(const Shares& shares) {
  if (!covers(shares, kInfinity)) return kInfinity;  // memory
  double too_low = 0, relaxed = 0;
  for (int s = 0; s < shares.stages(); ++s) {
    relaxed = std::max(relaxed, shares.cost(s, 0, shares.problem().num_instructions()));
  }
  for (int halvings = 0; halvings < kMostBaselineHalvings && relaxed - too_low > 1e-10 * relaxed; ++halvings) {
    const double middle = too_low + (relaxed - too_low) / 2;
    shares.least_refused();
    const double largest = largest_of_cover(shares, middle);
    if (largest < kInfinity) {
      relaxed = std::min(middle, largest);
    } else {
      too_low = std::max(middle, shares.least_refused());
    }
  }
  return relaxed;
}

// The least T such that cuts with every stage cost <= T exist (to 1e-9), or infinity.
double least_largest_cost(const Shares& shares) {
  const double relaxed = least_cost_of_covers(shares);
  if (!(relaxed < kInfinity)) return kInfinity;
  // Mostly the bound is reached, or nearly: the limit moves away from it in growing steps, since one near it leaves few
  // cuts to look at.
  double too_low = relaxed;
  std::optional<std::vector<int>> cuts = narrowest_cuts(shares, relaxed * (1 + 1e-12));
  if (cuts) return largest_cost(shares, *cuts);
  for (double more = kFirstStep; !cuts; more *= kStepGrowth) {
    const double limit = more > kLastStep ? kInfinity : relaxed * (1 + more);
    if (limit <= too_low) continue;
    shares.least_refused();
    cuts = narrowest_cuts(shares, limit);
    if (!cuts) too_low = std::max(limit, shares.least_refused());
    if (!(too_low < kInfinity)) return kInfinity;
  }
  double reached = largest_cost(shares, *cuts);  // always attained by some cuts
  for (int halvings = 0; halvings < kMostBaselineHalvings && reached - too_low > 1e-9 * reached; ++halvings) {
    const double middle = too_low + (reached - too_low) / 2;
    shares.least_refused();
    cuts = narrowest_cuts(shares, middle);
    if (cuts) {
      reached = largest_cost(shares, *cuts);
    } else {
      too_low = std::max(middle, shares.least_refused());  // no limit below that leaves other cuts
    }
  }
  return reached;
}

// The same from the cache, or computed and stored there.
double least_largest_cost(const Shares& shares, BalancedCuts* known) {
  if (known == nullptr) return least_largest_cost(shares);
  if (const std::optional<BalancedCuts::Least> found = known->least(shares.key())) {
    shares.spend(found->units);
    return found->cost;
  }
  const std::int64_t before = shares.unpaid();
  const double least = least_largest_cost(shares);
  known->keep(shares.key(), BalancedCuts::Least{least, shares.unpaid() - before});
  return least;
}

// The narrowest cuts within a limit, which must admit some cuts.
std::vector<int> narrowest_cuts(const Shares& shares, double limit, BalancedCuts* known) {
  if (known != nullptr) {
    if (std::optional<BalancedCuts::Cuts> found = known->within(shares.key(), limit)) {
      shares.spend(found->units);
      return std::move(found->cuts);
    }
  }
  const std::int64_t before = shares.unpaid();
  std::optional<std::vector<int>> cuts = narrowest_cuts(shares, limit);
  AM_CHECK(cuts.has_value());
  if (known != nullptr) known->keep(shares.key(), limit, BalancedCuts::Cuts{*cuts, shares.unpaid() - before});
  return *std::move(cuts);
}

// One variant for every stage; empty for the first.
std::vector<std::uint8_t> variants_of(int stages, int variant) {
  if (variant == 0) return {};
  return std::vector<std::uint8_t>(at(stages), static_cast<std::uint8_t>(variant));
}

// Device cuts as near to the wanted ones as stages that can run allow; nullopt: none.
std::optional<std::vector<int>> nearest_valid_cuts(const Problem& problem, const std::vector<int>& wanted) {
  const int devices = problem.num_devices(), stages = static_cast<int>(wanted.size()) + 1;
  const std::vector<int>& sizes = problem.group_sizes();
  if (static_cast<int>(sizes.size()) == devices) return wanted;  // every group can run
  if (stages == 1 && !std::binary_search(sizes.begin(), sizes.end(), devices)) return std::nullopt;
  // behind[k][d]: whether k stages can take the devices after d.
  std::vector<std::vector<char>> behind(at(stages), std::vector<char>(at(devices) + 1, 0));
  behind[0][at(devices)] = 1;
  for (int k = 1; k < stages; ++k) {
    for (int d = devices - k; d >= 0; --d) {
      for (const int size : sizes) {
        if (d + size <= devices && behind[at(k - 1)][at(d + size)]) behind[at(k)][at(d)] = 1;
      }
    }
  }
  std::vector<int> cuts;
  int d0 = 0;
  for (int s = 1; s < stages; ++s) {
    int best = -1;
    for (const int size : sizes) {
      const int d = d0 + size;
      const bool works = d < devices && behind[at(stages - s)][at(d)];
      if (works && (best < 0 || std::abs(d - wanted[at(s - 1)]) < std::abs(best - wanted[at(s - 1)]))) best = d;
    }
    if (best < 0) return std::nullopt;
    cuts.push_back(d0 = best);
  }
  return cuts;
}

// The plan, when it can run.
std::optional<Plan> if_feasible(const Problem& problem, Plan plan) {
  if (!feasible(problem, plan)) return std::nullopt;
  return plan;
}

}  // namespace

std::optional<BalancedCuts::Least> BalancedCuts::least(const Key& key) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = least_.find(key);
  return known == least_.end() ? std::nullopt : std::optional<Least>(known->second);
}

std::optional<BalancedCuts::Cuts> BalancedCuts::within(const Key& key, double limit) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = within_.find({key, limit});
  return known == within_.end() ? std::nullopt : std::optional<Cuts>(known->second);
}

void BalancedCuts::keep(const Key& key, Least least) {
  const std::lock_guard<std::mutex> lock(mutex_);
  least_.emplace(key, least);
}

void BalancedCuts::keep(const Key& key, double limit, Cuts cuts) {
  const std::lock_guard<std::mutex> lock(mutex_);
  within_.emplace(std::make_pair(key, limit), std::move(cuts));
}

bool fits_shape(const Problem& problem, int stages) {
  return stages >= 1 && stages <= problem.num_instructions() && stages <= problem.num_devices();
}

const char* to_string(Objective objective) {
  return objective == Objective::kValue ? "value" : "simulated";
}

double length_ms(const Problem& problem, const Plan& plan, Objective objective) {
  return objective == Objective::kValue ? value_ms(problem, plan) : simulate_step_ms(problem, plan);
}

std::vector<int> useful_variants(const Problem& problem, const std::vector<int>& device_cuts) {
  std::vector<char> useful(at(problem.num_variants()), 0);
  int d0 = 0;
  for (std::size_t s = 0; s <= device_cuts.size(); ++s) {
    const int d1 = s < device_cuts.size() ? device_cuts[s] : problem.num_devices();
    const DeviceGroup& group = problem.group(d0, d1);
    if (group.valid) {
      for (const int variant : problem.useful_variants(group)) useful[at(variant)] = 1;
    }
    d0 = d1;
  }
  std::vector<int> variants;
  for (int v = 0; v < problem.num_variants(); ++v) {
    if (useful[at(v)] != 0) variants.push_back(v);
  }
  return variants;
}

std::int64_t judging_units(const Problem& problem, int stages, Objective objective) {
  const std::int64_t simulated = objective == Objective::kSimulated ? problem.micro_batches() : 0;
  return stages * (kPerStage + kPerTask * simulated);
}

std::optional<Plan> data_parallel_plan(const Problem& problem, Schedule schedule) {
  std::optional<Plan> best;
  double best_ms = kInfinity;
  for (int variant = 0; variant < problem.num_variants(); ++variant) {
    Plan plan{{}, {}, schedule, variants_of(1, variant)};
    if (!feasible(problem, plan)) continue;
    const double length = value_ms(problem, plan);
    if (!(length < best_ms)) continue;
    best_ms = length;
    best = std::move(plan);
  }
  return best;
}

std::optional<Plan> uniform_plan(const Problem& problem, int stages, Schedule schedule, Work* work) {
  if (!fits_shape(problem, stages)) return std::nullopt;
  const int n = problem.num_instructions();
  std::optional<std::vector<int>> shares = nearest_valid_cuts(problem, equal_cuts(stages, problem.num_devices()));
  if (!shares) return std::nullopt;
  Plan plan{equal_cuts(stages, n), std::move(*shares), schedule};
  for (int variant = 0; variant < problem.num_variants(); ++variant) {
    plan.variants = variants_of(stages, variant);
    if (feasible(problem, plan)) return plan;
  }
  // No variant fits as it is: the last one, which takes the least memory by convention, is moved.
  // Repair: the least r such that cuts within r of the uniform ones are feasible. Reachable cuts of boundary s, stage
  // by stage; `from` remembers one predecessor each, the nearest to its own uniform place.
  const std::vector<int> uniform = plan.cuts;
  const bool needs_variable = problem.stages_need_variables(stages);
  const auto repaired = [&](int radius) -> std::optional<std::vector<int>> {
    std::vector<std::vector<int>> from(at(stages), std::vector<int>());
    std::vector<int> reachable = {0};
    int d0 = 0;
    std::vector<std::vector<int>> layers;
    for (int s = 0; s < stages; ++s) {
      const bool last = s + 1 == stages;
      const int d1 = last ? problem.num_devices() : plan.device_cuts[at(s)];
      const DeviceGroup& group = problem.group(d0, d1);
      const int k = least_in_flight(problem, schedule, stages, s + 1), variant = plan.variant(s + 1);
      const int low = last ? n : std::max(1, uniform[at(s)] - radius);
      const int high = last ? n : std::min(n - 1, uniform[at(s)] + radius);
      if (work != nullptr) work->spend(kPerPlace * (high - low + 1));
      layers.push_back(reachable);
      std::vector<int> next;
      // A stage (p0, p1] that ends too late for p0 is so for every later p1: the first begin that suits p1 moves right
      // with it.
      std::size_t suits = 0;
      for (int p1 = low; p1 <= high; ++p1) {
        const std::size_t before = suits;
        while (suits < reachable.size() && reachable[suits] < p1 && problem.options().memory &&
               problem.memory_bytes(reachable[suits], p1, group, k, variant) > group.capacity_bytes) {
          ++suits;
        }
        if (work != nullptr) work->spend(kPerPlace * static_cast<std::int64_t>(suits - before));
        if (suits == reachable.size() || !problem.stage_fits(reachable[suits], p1, group, k, needs_variable, variant)) {
          continue;
        }
        next.push_back(p1);
        from[at(s)].push_back(static_cast<int>(suits));
      }
      reachable = std::move(next);
      if (reachable.empty()) return std::nullopt;
      d0 = d1;
    }
    std::vector<int> cuts(at(stages - 1));
    int index = from[at(stages - 1)][0];
    for (int s = stages - 2; s >= 0; --s) {
      cuts[at(s)] = layers[at(s + 1)][at(index)];
      index = from[at(s)][at(index)];
    }
    return cuts;
  };
  std::optional<std::vector<int>> best = repaired(n);
  if (!best) return std::nullopt;
  int works = n, fails = 0;
  while (works - fails > 1) {
    const int middle = fails + (works - fails) / 2;
    if (std::optional<std::vector<int>> cuts = repaired(middle)) {
      best = std::move(cuts);
      works = middle;
    } else {
      fails = middle;
    }
  }
  plan.cuts = *best;
  return if_feasible(problem, std::move(plan));
}

namespace {

// Nullopt: no stage can run on some group, or every cut costs more than `most`.
std::optional<Shares> shares_within(const Problem& problem, const std::vector<int>& device_cuts, Schedule schedule,
                                    BalanceBy by, Work* work, int variant, double most) {
  if (!fits_shape(problem, static_cast<int>(device_cuts.size()) + 1)) return std::nullopt;
  std::optional<Shares> shares(std::in_place, problem, device_cuts, schedule, by, variant);
  if (!shares->valid()) return std::nullopt;
  const bool hopeless = most < kInfinity && !covers(*shares, most);
  shares->pay(work);
  if (hopeless) return std::nullopt;
  return shares;
}

}  // namespace

double balanced_bound(const Problem& problem, const std::vector<int>& device_cuts, Schedule schedule, BalanceBy by,
                      Work* work, int variant, double most) {
  const std::optional<Shares> shares = shares_within(problem, device_cuts, schedule, by, work, variant, most);
  if (!shares) return kInfinity;
  const double bound = least_cost_of_covers(*shares);
  shares->pay(work);
  return bound;
}

std::optional<Plan> balanced_on(const Problem& problem, const std::vector<int>& device_cuts, Schedule schedule,
                                BalanceBy by, double slack, Work* work, int variant, double most, BalancedCuts* known) {
  const std::optional<Shares> shares = shares_within(problem, device_cuts, schedule, by, work, variant, most);
  if (!shares) return std::nullopt;
  const double least = least_largest_cost(*shares, known);
  shares->pay(work);
  if (!(least < kInfinity)) return std::nullopt;
  std::vector<int> cuts = narrowest_cuts(*shares, least * (1 + slack + 1e-12), known);
  shares->pay(work);
  return Plan{std::move(cuts), device_cuts, schedule, variants_of(shares->stages(), variant)};
}

std::vector<std::vector<int>> device_share_candidates(const Problem& problem, int stages) {
  if (!fits_shape(problem, stages)) return {};
  const int devices = problem.num_devices();
  std::vector<std::vector<int>> candidates;
  const auto add = [&](const std::vector<int>& wanted) {
    const std::optional<std::vector<int>> valid = nearest_valid_cuts(problem, wanted);
    if (!valid) return;
    const std::vector<int>& cuts = *valid;
    int previous = 0;
    for (int cut : cuts) {
      if (cut <= previous || cut >= devices) return;
      previous = cut;
    }
    if (std::find(candidates.begin(), candidates.end(), cuts) == candidates.end()) candidates.push_back(cuts);
  };
  // Cuts where the running speed passes s / S of the total, kept apart by at least one device.
  std::vector<double> speed(at(devices) + 1, 0);
  for (int d = 0; d < devices; ++d) speed[at(d + 1)] = speed[at(d)] + problem.device_speed(d);
  std::vector<int> by_speed;
  for (int s = 1, d = 0; s < stages; ++s) {
    const double target = speed[at(devices)] * s / stages;
    const int most = devices - (stages - s);
    ++d;
    while (d < most && std::abs(speed[at(d + 1)] - target) <= std::abs(speed[at(d)] - target)) ++d;
    by_speed.push_back(d);
  }
  const auto to_boundaries = [&](std::vector<int> cuts) {
    for (int& cut : cuts) {
      int down = cut, up = cut;
      while (down > 0 && problem.server_of_device(down - 1) == problem.server_of_device(down)) --down;
      while (up < devices && problem.server_of_device(up - 1) == problem.server_of_device(up)) ++up;
      cut = cut - down <= up - cut ? down : up;
    }
    return cuts;
  };
  const std::vector<int> equal = equal_cuts(stages, devices);
  add(equal);
  add(by_speed);
  add(to_boundaries(equal));
  add(to_boundaries(by_speed));
  return candidates;
}

namespace {

// Cuts balanced on these shares.
struct BalancedShares {
  std::vector<int> device_cuts;
  int variant = 0;
  BalanceBy by = BalanceBy::kCompute;
  // The best of them; null: none is feasible and below best_ms as it was.
  std::optional<Plan> best;
  double best_ms = kInfinity;
  std::int64_t units = 0;  // that it cost
};

// With slacks spent on narrower cuts.
void balance(const Problem& problem, Schedule schedule, Objective objective, BalancedCuts* known, BalancedShares* on) {
  const Shares shares(problem, on->device_cuts, schedule, on->by, on->variant);
  const double least = least_largest_cost(shares, known);
  on->units = shares.unpaid();
  if (!(least < kInfinity)) return;
  for (double slack : {0.0, 0.01, 0.03, 0.1, 0.3}) {
    Plan plan{narrowest_cuts(shares, least * (1 + slack + 1e-12), known), on->device_cuts, schedule,
              variants_of(shares.stages(), on->variant)};
    const double length = length_ms(problem, plan, objective);
    shares.spend(judging_units(problem, shares.stages(), objective));
    on->units = shares.unpaid();
    if (length < on->best_ms && feasible(problem, plan)) {
      on->best_ms = length;
      on->best = std::move(plan);
    }
    if (shares.stages() == 1) return;
  }
}

}  // namespace

std::optional<Plan> balanced_plan(const Problem& problem, int stages, Schedule schedule, Objective objective,
                                  Work* work, BalancedCuts* known) {
  std::vector<BalancedShares> all;
  for (const std::vector<int>& device_cuts : device_share_candidates(problem, stages)) {
    for (const int variant : useful_variants(problem, device_cuts)) {
      for (BalanceBy by : {BalanceBy::kCompute, BalanceBy::kParameters}) {
        BalancedShares& one = all.emplace_back();
        one.device_cuts = device_cuts;
        one.variant = variant;
        one.by = by;
        if (stages == 1) break;
      }
    }
  }
  std::optional<Plan> best;
  double best_ms = kInfinity;
  InOrder loop;
  loop.begin = [&](std::size_t i) { all[i].best_ms = best_ms; };
  loop.work = [&](std::size_t i, const Dropped&) { balance(problem, schedule, objective, known, &all[i]); };
  loop.take = [&](std::size_t i) {
    if (work != nullptr) work->spend(all[i].units);
    if (!all[i].best || !(all[i].best_ms < best_ms)) return;
    best_ms = all[i].best_ms;
    best = std::move(all[i].best);
  };
  run_in_order(all.size(), loop);
  return best;
}

}  // namespace automap::pipeline
