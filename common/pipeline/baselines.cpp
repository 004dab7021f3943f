#include "common/pipeline/baselines.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "common/pipeline/random_problem.h"
#include "common/pipeline/schedule.h"

namespace automap::pipeline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Prices, units of work.
constexpr std::int64_t kPerStage = 25;       // of a plan that is judged by V
constexpr std::int64_t kPerTask = 8;         // a stage and micro-batch simulated
constexpr std::int64_t kPerPlaces = 400;     // places looked for around a boundary
constexpr std::int64_t kPerChild = 45;       // a stage put behind a prefix
constexpr std::int64_t kPerSkipped = 4;      // one that does not fit
constexpr std::int64_t kPerCompleted = 200;  // a stage of a prefix that is completed by rules, all of them
constexpr std::int64_t kPerSearch = 100;     // the end or the begin of a stage, by halves
constexpr std::int64_t kPerPlace = 12;       // a place swept over for one stage

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

bool fits_shape(const Problem& problem, int stages) {
  return stages >= 1 && stages <= problem.num_instructions() && stages <= problem.num_devices();
}

std::vector<int> equal_cuts(int stages, int end) {
  std::vector<int> cuts;
  for (int s = 1; s < stages; ++s) cuts.push_back(static_cast<int>(static_cast<std::int64_t>(s) * end / stages));
  return cuts;
}

// The stages of given device cuts, and what a stage (p0, p1] of them costs and must obey. All of compute, weight and
// memory grow with the interval, which is what the sweeps below rely on.
class Shares {
 public:
  Shares(const Problem& problem, const std::vector<int>& device_cuts, Schedule schedule, BalanceBy by)
      : problem_(problem), by_(by), stages_(static_cast<int>(device_cuts.size()) + 1) {
    needs_variable_ = problem.stages_need_variables(stages_);
    limited_ = problem.options().memory && by != BalanceBy::kMemory;
    int d0 = 0;
    for (int s = 0; s < stages_; ++s) {
      const int d1 = s + 1 == stages_ ? problem.num_devices() : device_cuts[at(s)];
      first_.push_back(d0);
      groups_.push_back(&problem.group(d0, d1));
      in_flight_.push_back(in_flight(schedule, stages_, s + 1, problem.micro_batches()));
      d0 = d1;
    }
    first_.push_back(d0);
  }

  int stages() const { return stages_; }
  const Problem& problem() const { return problem_; }
  // What was asked of these shares, units of work.
  void spend(std::int64_t units) const { units_ += units; }
  void pay(Work* work) const {
    if (work != nullptr) work->spend(std::exchange(units_, 0));
  }
  bool needs_variable() const { return needs_variable_; }

  double cost(int s, int p0, int p1) const {
    switch (by_) {
      case BalanceBy::kCompute: return problem_.compute_ms(p0, p1, *groups_[at(s)]);
      case BalanceBy::kParameters: return problem_.weight_bytes(p0, p1);
      case BalanceBy::kMemory: break;
    }
    return problem_.memory_bytes(p0, p1, *groups_[at(s)], in_flight_[at(s)]) / groups_[at(s)]->capacity_bytes;
  }
  // Not too long: cost within `limit` and the memory respected.
  bool short_enough(int s, int p0, int p1, double limit) const {
    return cost(s, p0, p1) <= limit &&
           (!limited_ ||
            problem_.memory_bytes(p0, p1, *groups_[at(s)], in_flight_[at(s)]) <= groups_[at(s)]->capacity_bytes);
  }
  bool long_enough(int p0, int p1) const { return p1 > p0 && (!needs_variable_ || problem_.variables(p0, p1) > 0); }
  double transfer_ms(int s, int p) const {
    return problem_.transfer_ms(p, first_[at(s)], first_[at(s + 1)], first_[at(s + 2)]);
  }

 private:
  const Problem& problem_;
  BalanceBy by_;
  int stages_;
  bool needs_variable_ = false, limited_ = false;
  std::vector<int> first_;  // [S+1]: devices before stage s; D at the end
  std::vector<const DeviceGroup*> groups_;
  std::vector<int> in_flight_;
  mutable std::int64_t units_ = 0;
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

// The furthest end of stage s when it begins at p0, and the earliest begin when it ends at p1; p0 and p1 when nothing
// fits.
int furthest_end(const Shares& shares, int s, int p0, double limit) {
  shares.spend(kPerSearch);
  int reached = p0, beyond = shares.problem().num_instructions() + 1;
  while (beyond - reached > 1) {
    const int middle = reached + (beyond - reached) / 2;
    (shares.short_enough(s, p0, middle, limit) ? reached : beyond) = middle;
  }
  return reached;
}
int earliest_begin(const Shares& shares, int s, int p1, double limit) {
  shares.spend(kPerSearch);
  int reached = p1, beyond = -1;
  while (reached - beyond > 1) {
    const int middle = beyond + (reached - beyond) / 2;
    (shares.short_enough(s, middle, p1, limit) ? reached : beyond) = middle;
  }
  return reached;
}

// Whether stages within `limit` can cover the model when they need not be long enough: if not, nothing does. Cheap: S
// binary searches.
bool covers(const Shares& shares, double limit) {
  int p = 0;
  for (int s = 0; s < shares.stages(); ++s) p = furthest_end(shares, s, p, limit);
  return p == shares.problem().num_instructions();
}

// Cuts with every stage long enough and within `limit` whose transfers sum to the least; nullopt: none.
// here[p] = the least transfer time behind stage s when it begins at p. Stage s can only begin between what the stages
// behind it must cover and what those before it can reach, and the ends [low, high] it may have move right with its
// begin, so each stage is one sweep over a window with a monotone queue.
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
      for (int p = begin; p <= end; ++p) {
        double& entry = behind[at(p - begin)];
        if (entry < kInfinity) entry += shares.transfer_ms(s, p);
      }
    }
    here.assign(at(last[at(s)] - first[at(s)] + 1), kInfinity);
    choice[at(s)].assign(here.size(), -1);
    queue.assign(behind.size(), 0);
    std::size_t head = 0, tail = 0;
    int low = begin, high = begin;  // the next ends to be dropped and to be put into the queue
    for (int p = first[at(s)]; p <= last[at(s)]; ++p) {
      while (low <= end && !shares.long_enough(p, low)) ++low;
      if (low > end) break;
      high = std::max(high, p + 1);
      while (high <= end && shares.short_enough(s, p, high, limit)) {
        const double entry = behind[at(high - begin)];
        if (entry < kInfinity) {
          while (tail > head && behind[at(queue[tail - 1] - begin)] >= entry) --tail;
          queue[tail++] = high;
        }
        ++high;
      }
      while (head < tail && queue[head] < low) ++head;
      if (head < tail) {
        here[at(p - first[at(s)])] = behind[at(queue[head] - begin)];
        choice[at(s)][at(p - first[at(s)])] = queue[head];
      }
    }
    behind.swap(here);
  }
  if (!(behind.front() < kInfinity)) return std::nullopt;
  std::vector<int> cuts;
  int p = 0;
  for (int s = 0; s + 1 < stages; ++s) cuts.push_back(p = choice[at(s)][at(p - first[at(s)])]);
  return cuts;
}

// The least T such that cuts with every stage cost <= T exist (to 1e-9), or infinity.
double least_largest_cost(const Shares& shares) {
  if (!covers(shares, kInfinity)) return kInfinity;  // memory
  // The relaxation without lower limits on the stages, by greedy covers: a lower bound that is mostly tight.
  double too_low = 0, relaxed = 0;
  for (int s = 0; s < shares.stages(); ++s) {
    relaxed = std::max(relaxed, shares.cost(s, 0, shares.problem().num_instructions()));
  }
  while (relaxed - too_low > 1e-10 * relaxed) {
    const double middle = too_low + (relaxed - too_low) / 2;
    (covers(shares, middle) ? relaxed : too_low) = middle;
  }
  std::optional<std::vector<int>> cuts = narrowest_cuts(shares, relaxed * (1 + 1e-12));
  if (cuts) return largest_cost(shares, *cuts);
  cuts = narrowest_cuts(shares, kInfinity);
  if (!cuts) return kInfinity;
  double reached = largest_cost(shares, *cuts);  // always attained by some cuts
  too_low = relaxed;
  while (reached - too_low > 1e-9 * reached) {
    const double middle = too_low + (reached - too_low) / 2;
    cuts = narrowest_cuts(shares, middle);
    if (cuts) {
      reached = largest_cost(shares, *cuts);
    } else {
      too_low = middle;
    }
  }
  return reached;
}

// The plan, when it can run.
std::optional<Plan> if_feasible(const Problem& problem, Plan plan) {
  if (!feasible(problem, plan)) return std::nullopt;
  return plan;
}

}  // namespace

const char* to_string(Objective objective) {
  return objective == Objective::kValue ? "value" : "simulated";
}

double length_ms(const Problem& problem, const Plan& plan, Objective objective) {
  return objective == Objective::kValue ? value_ms(problem, plan) : simulate_step_ms(problem, plan);
}

std::int64_t judging_units(const Problem& problem, int stages, Objective objective) {
  const std::int64_t simulated = objective == Objective::kSimulated ? problem.micro_batches() : 0;
  return stages * (kPerStage + kPerTask * simulated);
}

std::optional<Plan> data_parallel_plan(const Problem& problem, Schedule schedule) {
  return if_feasible(problem, Plan{{}, {}, schedule});
}

std::optional<Plan> uniform_plan(const Problem& problem, int stages, Schedule schedule, Work* work) {
  if (!fits_shape(problem, stages)) return std::nullopt;
  const int n = problem.num_instructions();
  Plan plan{equal_cuts(stages, n), equal_cuts(stages, problem.num_devices()), schedule};
  if (feasible(problem, plan)) return plan;
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
      const int k = in_flight(schedule, stages, s + 1, problem.micro_batches());
      const int low = last ? n : std::max(1, uniform[at(s)] - radius);
      const int high = last ? n : std::min(n - 1, uniform[at(s)] + radius);
      if (work != nullptr) work->spend(kPerPlace * (high - low + 1));
      layers.push_back(reachable);
      std::vector<int> next;
      // A stage (p0, p1] that ends too late for p0 ends too late for every earlier begin, and one that is too short is
      // so for every later begin: the begins that suit p1 are a run that moves right with p1.
      std::size_t begin = 0;
      for (int p1 = low; p1 <= high; ++p1) {
        while (begin < reachable.size() && reachable[begin] < p1 && problem.options().memory &&
               problem.memory_bytes(reachable[begin], p1, group, k) > group.capacity_bytes) {
          ++begin;
        }
        if (begin == reachable.size() || !problem.stage_fits(reachable[begin], p1, group, k, needs_variable)) continue;
        next.push_back(p1);
        from[at(s)].push_back(static_cast<int>(begin));
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

std::optional<Plan> balanced_on(const Problem& problem, const std::vector<int>& device_cuts, Schedule schedule,
                                BalanceBy by, double slack, Work* work) {
  if (!fits_shape(problem, static_cast<int>(device_cuts.size()) + 1)) return std::nullopt;
  const Shares shares(problem, device_cuts, schedule, by);
  const double least = least_largest_cost(shares);
  shares.pay(work);
  if (!(least < kInfinity)) return std::nullopt;
  std::optional<std::vector<int>> cuts = narrowest_cuts(shares, least * (1 + slack + 1e-12));
  shares.pay(work);
  AM_CHECK(cuts.has_value());
  return Plan{std::move(*cuts), device_cuts, schedule};
}

std::vector<std::vector<int>> device_share_candidates(const Problem& problem, int stages) {
  if (!fits_shape(problem, stages)) return {};
  const int devices = problem.num_devices();
  std::vector<std::vector<int>> candidates;
  const auto add = [&](const std::vector<int>& cuts) {
    int previous = 0;
    for (int cut : cuts) {
      if (cut <= previous || cut >= devices) return;
      previous = cut;
    }
    if (std::find(candidates.begin(), candidates.end(), cuts) == candidates.end()) candidates.push_back(cuts);
  };
  // Cuts where the running speed passes s / S of the total, kept apart by at least one device.
  std::vector<double> speed(at(devices) + 1, 0);
  for (int d = 0; d < devices; ++d) speed[at(d + 1)] = speed[at(d)] + problem.group(d, d + 1).speed;
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

std::optional<Plan> balanced_plan(const Problem& problem, int stages, Schedule schedule, Objective objective,
                                  Work* work) {
  std::optional<Plan> best;
  double best_ms = kInfinity;
  for (const std::vector<int>& device_cuts : device_share_candidates(problem, stages)) {
    for (BalanceBy by : {BalanceBy::kCompute, BalanceBy::kParameters}) {
      const Shares shares(problem, device_cuts, schedule, by);
      const double least = least_largest_cost(shares);
      shares.pay(work);
      if (!(least < kInfinity)) break;  // infeasible on these shares, whatever is balanced
      for (double slack : {0.0, 0.01, 0.03, 0.1, 0.3}) {
        std::optional<std::vector<int>> cuts = narrowest_cuts(shares, least * (1 + slack + 1e-12));
        AM_CHECK(cuts.has_value());
        Plan plan{std::move(*cuts), device_cuts, schedule};
        const double length = length_ms(problem, plan, objective);
        shares.spend(judging_units(problem, stages, objective));
        shares.pay(work);
        if (length < best_ms) {
          best_ms = length;
          best = std::move(plan);
        }
        if (stages == 1) break;
      }
      if (stages == 1) break;
    }
  }
  return best;
}

namespace {

// ---- Beam search on a lower bound -----------------------------------------------------------------------------------

constexpr int kMaxBoundDeviceCuts = 64;

// A placed prefix of stages: instructions 1..p on devices 1..d1, the last stage on (d0, d1].
struct Prefix {
  int p = 0, d0 = 0, d1 = 0;
  int parent = -1;        // in the layer before
  double filled = 0;      // round trips of everything placed, without the transfer out of it
  double drained = 0;     // the same, backward only
  double path_ms = 0;     // longest path term that ends inside
  double steady_ms = 0;   // max over stages of what P is extended by: (M-1) T - (K-1) min(F, B)
  double residue_ms = 0;  // exposed all-reduce
  // The stall line of its last stage: P + (M-1) T + max(delta, laps delta), delta = P - stall_from.
  double stall_from = 0, stall_steady_ms = 0, laps = 0;
  double bound = 0;
};

class BoundSearch {
 public:
  BoundSearch(const Problem& problem, const BoundOptions& options, Work& work)
      : problem_(problem), options_(options), work_(work), stages_(options.stages) {
    const int devices = problem.num_devices();
    needs_variable_ = problem.stages_need_variables(stages_);
    pivots_ = options.pivots;
    if (pivots_.empty()) {
      for (int p = 1; p < problem.num_instructions(); ++p) pivots_.push_back(p);
    }
    for (int d = 1; d < devices; ++d) {
      const bool boundary = problem.server_of_device(d - 1) != problem.server_of_device(d);
      const bool on_grid = static_cast<std::int64_t>(d) * kMaxBoundDeviceCuts / devices !=
                           static_cast<std::int64_t>(d - 1) * kMaxBoundDeviceCuts / devices;
      if (devices <= kMaxBoundDeviceCuts || boundary || on_grid) device_cuts_.push_back(d);
    }
    // Stages that the pivots behind each pivot still allow: gaps, holding a variable where one is needed.
    stages_behind_.assign(pivots_.size(), 0);
    for (std::size_t i = pivots_.size(); i-- > 0;) {
      const bool last = i + 1 == pivots_.size();
      const int end = last ? problem.num_instructions() : pivots_[i + 1];
      const bool counts = !needs_variable_ || problem.variables(pivots_[i], end) > 0;
      stages_behind_[i] = (last ? 0 : stages_behind_[i + 1]) + (counts ? 1 : 0);
    }
    rate_behind_.assign(at(devices) + 1, 0);
    for (int d = devices; d-- > 0;) rate_behind_[at(d)] = rate_behind_[at(d + 1)] + problem.group(d, d + 1).speed;
    for (int d = 0; d < devices; ++d)
      largest_capacity_ = std::max(largest_capacity_, problem.group(d, d + 1).capacity_bytes);
  }

  std::optional<Plan> run() {
    if (!fits_shape(problem_, stages_)) return std::nullopt;
    layers_.assign(1, {Prefix()});
    for (int s = 1; s < stages_; ++s) {
      if (!extend(s)) return best_;
    }
    for (std::size_t i = 0; i < layers_.back().size(); ++i) {
      consider(plan_of(stages_ - 1, static_cast<int>(i)));
    }
    return best_;
  }

 private:
  struct Child {
    double bound;
    int parent, p, d;
    bool operator<(const Child& other) const {
      if (bound != other.bound) return bound < other.bound;
      if (parent != other.parent) return parent < other.parent;
      return p != other.p ? p < other.p : d < other.d;
    }
  };

  // `from` with stage s on (from.p, p] and (from.d1, d]; `stalls` are the stall lines of the stages before.
  Prefix append(const Prefix& from, int s, int p, int d, const std::vector<const Prefix*>& stalls) const {
    const int m = problem_.micro_batches();
    const double steady = m - 1;
    const DeviceGroup& group = problem_.group(from.d1, d);
    const double stage_ms = problem_.compute_ms(from.p, p, group);
    const double f = problem_.forward_fraction() * stage_ms, b = stage_ms - f;
    const double transfer = s > 1 ? problem_.transfer_ms(from.p, from.d0, from.d1, d) : 0;
    const int k = in_flight(options_.schedule, stages_, s, m);
    const double rest = problem_.work_ms(p, problem_.num_instructions()) / rate_behind_[at(d)];

    Prefix next;
    next.p = p;
    next.d0 = from.d1;
    next.d1 = d;
    const double arrived = from.filled + 2 * transfer;
    next.filled = arrived + stage_ms;
    next.path_ms = std::max({from.path_ms, s > 1 ? arrived + steady * transfer : 0, next.filled + steady * stage_ms});
    next.residue_ms = std::max(from.residue_ms, problem_.allreduce_ms(from.p, p, group) - from.drained - transfer);
    next.drained = from.drained + transfer + b;
    // Some stage of the rest takes at least its fair share, and the rest takes at least that in all.
    const double total = next.filled + rest;
    double length = std::max(next.path_ms, total + steady * rest);
    if (problem_.options().value == ValueForm::kFull) {
      next.steady_ms = std::max(from.steady_ms, steady * stage_ms - (k - 1) * std::min(f, b));
      next.stall_from = arrived + k * stage_ms;
      next.stall_steady_ms = steady * stage_ms;
      next.laps = m > k ? (m - 1) / k : 0;
      length = std::max(length, total + next.steady_ms);
      const auto stall = [&](const Prefix& stage) {
        if (stage.laps == 0) return;
        const double delta = total - stage.stall_from;
        length = std::max(length, total + stage.stall_steady_ms + std::max(delta, stage.laps * delta));
      };
      stall(next);
      for (const Prefix* stage : stalls) stall(*stage);
    }
    next.bound = length + next.residue_ms;
    return next;
  }

  bool extend(int s) {
    const int n = problem_.num_instructions();
    const int left = stages_ - s;  // stages behind this one
    const std::vector<Prefix>& parents = layers_.back();
    std::vector<Child> children;
    std::vector<std::vector<const Prefix*>> stalls(parents.size());
    for (std::size_t i = 0; i < parents.size(); ++i) {
      if (work_.over()) return false;
      const Prefix& from = parents[i];
      const Prefix* stage = &from;
      for (int layer = s - 1; layer > 0; --layer) {
        stalls[i].push_back(stage);
        stage = &layers_[at(layer - 1)][at(stage->parent)];
      }
      for (std::size_t j = 0; j + at(left) <= device_cuts_.size(); ++j) {
        const int d = device_cuts_[j];
        if (d <= from.d1) continue;
        const DeviceGroup& group = problem_.group(from.d1, d);
        const int k = in_flight(options_.schedule, stages_, s, problem_.micro_batches());
        const std::size_t before = children.size();
        auto pivot = std::upper_bound(pivots_.begin(), pivots_.end(), from.p);
        const auto first = pivot;
        for (; pivot != pivots_.end(); ++pivot) {
          const int p = *pivot;
          if (stages_behind_[static_cast<std::size_t>(pivot - pivots_.begin())] < left) break;
          if (!problem_.stage_fits(from.p, p, group, k, needs_variable_)) {
            if (problem_.variables(from.p, p) > 0 || !needs_variable_) break;  // too much memory: longer is worse
            continue;
          }
          if (problem_.options().memory && problem_.options().state_factor_or_default() * problem_.weight_bytes(p, n) >
                                               left * largest_capacity_ * (1 + 1e-12)) {
            continue;
          }
          children.push_back({append(from, s, p, d, stalls[i]).bound, static_cast<int>(i), p, d});
        }
        work_.spend(kPerSkipped * (pivot - first) + kPerChild * static_cast<std::int64_t>(children.size() - before));
      }
    }
    select(s, children);
    std::vector<Prefix> layer;
    for (const Child& child : children) {
      layer.push_back(append(parents[at(child.parent)], s, child.p, child.d, stalls[at(child.parent)]));
      layer.back().parent = child.parent;
    }
    layers_.push_back(std::move(layer));
    return !layers_.back().empty();
  }

  // Keeps beam_width children. Twice as many (8 at least) are taken by their bound, half of them the best of a device
  // cut each, so that one attractive share of the devices does not crowd out all others. The bound knows too little of
  // what is to come to rank them well, so each is then completed by simple rules and ranked by the best completion's V.
  void select(int s, std::vector<Child>& children) {
    const std::size_t width = at(std::max(1, options_.beam_width));
    if (children.size() <= width) return;
    const std::size_t judged = std::min(children.size(), std::max<std::size_t>(8, 2 * width));
    std::vector<Child> kept(at(problem_.num_devices()) + 1, Child{kInfinity, 0, 0, 0});
    for (const Child& child : children) kept[at(child.d)] = std::min(kept[at(child.d)], child);
    kept.erase(std::remove_if(kept.begin(), kept.end(), [](const Child& child) { return child.bound == kInfinity; }),
               kept.end());
    std::sort(kept.begin(), kept.end());
    kept.resize(std::min(kept.size(), judged / 2));
    std::nth_element(children.begin(), children.begin() + static_cast<std::ptrdiff_t>(judged - 1), children.end());
    children.resize(judged);
    std::sort(children.begin(), children.end());
    const std::size_t of_cuts = kept.size();
    for (const Child& child : children) {
      if (kept.size() == judged) break;
      const auto end = kept.begin() + static_cast<std::ptrdiff_t>(of_cuts);
      const bool there =
          std::any_of(kept.begin(), end, [&](const Child& other) { return !(other < child) && !(child < other); });
      if (!there) kept.push_back(child);
    }
    std::vector<std::pair<double, Child>> ranked;
    work_.spend(kPerCompleted * stages_ * static_cast<std::int64_t>(kept.size()));
    for (const Child& child : kept) ranked.emplace_back(complete(s, child), child);
    std::sort(ranked.begin(), ranked.end());
    children.clear();
    for (std::size_t i = 0; i < width; ++i) children.push_back(ranked[i].second);
  }

  // The least V of completions of `child` by rule, infinity when none is feasible. Devices: equal shares of the rest,
  // or those moved to server boundaries. Instructions: loads in proportion to the devices' speed, evenly or each stage
  // a little (1 - 1/M) less than the one before it, since later stages start later; cuts as they fall or at the
  // narrowest of the three pivots on either side; never more than memory allows.
  double complete(int s, const Child& child) {
    Plan head = plan_of(s - 1, child.parent);
    head.cuts.push_back(child.p);
    head.device_cuts.push_back(child.d);
    const int left = stages_ - s, devices = problem_.num_devices();
    if (left == 1) return consider(head);
    double least = kInfinity;
    std::vector<int> shares, seen;
    for (const bool aligned : {false, true}) {
      shares.clear();
      for (int j = 1; j < left; ++j) {
        int d = child.d + static_cast<int>(static_cast<std::int64_t>(j) * (devices - child.d) / left);
        if (aligned) {
          int down = d, up = d;
          while (down > 0 && problem_.server_of_device(down - 1) == problem_.server_of_device(down)) --down;
          while (up < devices && problem_.server_of_device(up - 1) == problem_.server_of_device(up)) ++up;
          d = d - down <= up - d ? down : up;
        }
        shares.push_back(d);
      }
      if (shares == seen) continue;
      seen = shares;
      bool valid = true;
      for (std::size_t j = 0; j < shares.size(); ++j) {
        valid = valid && shares[j] > (j == 0 ? child.d : shares[j - 1]) && shares[j] < devices;
      }
      if (!valid) continue;
      for (const double taper : {1.0, 1 - 1.0 / (problem_.micro_batches() + 1)}) {
        for (const int reach : {0, 3}) {
          Plan plan = head;
          if (fill(plan, s, shares, taper, reach)) least = std::min(least, consider(plan));
        }
      }
    }
    return least;
  }

  // Appends stages s+1.. to `plan` on the device cuts `shares`; false when pivots or memory run out.
  bool fill(Plan& plan, int s, const std::vector<int>& shares, double taper, int reach) const {
    const int n = problem_.num_instructions();
    double weight = 1, rest_weight = 0;
    std::vector<double> weights;
    for (std::size_t j = 0; j <= shares.size(); ++j) {
      const int d0 = j == 0 ? plan.device_cuts.back() : shares[j - 1];
      const DeviceGroup& group = problem_.group(d0, j < shares.size() ? shares[j] : problem_.num_devices());
      weights.push_back(weight * group.size * group.speed);
      rest_weight += weights.back();
      weight *= taper;
    }
    int p0 = plan.cuts.back(), d0 = plan.device_cuts.back();
    for (std::size_t j = 0; j < shares.size(); ++j) {
      const DeviceGroup& group = problem_.group(d0, shares[j]);
      const int k = in_flight(options_.schedule, stages_, s + 1 + static_cast<int>(j), problem_.micro_batches());
      const double target = problem_.work_ms(p0, n) * weights[j] / rest_weight;
      rest_weight -= weights[j];
      const auto begin = std::upper_bound(pivots_.begin(), pivots_.end(), p0);
      const auto end = pivots_.end() - static_cast<std::ptrdiff_t>(shares.size() - 1 - j);  // leave one for each after
      if (end - begin < 1) return false;
      auto place = std::partition_point(begin, end, [&](int p) { return problem_.work_ms(p0, p) < target; });
      if (place == end) --place;
      if (place != begin && target - problem_.work_ms(p0, place[-1]) < problem_.work_ms(p0, *place) - target) --place;
      auto chosen = place;
      for (std::ptrdiff_t step = -reach; step <= reach; ++step) {
        if (step < begin - place || step >= end - place) continue;
        if (problem_.activation_bytes(place[step]) < problem_.activation_bytes(*chosen)) chosen = place + step;
      }
      if (problem_.options().memory && problem_.memory_bytes(p0, *chosen, group, k) > group.capacity_bytes) {
        const auto fits = [&](int p) { return problem_.memory_bytes(p0, p, group, k) <= group.capacity_bytes; };
        chosen = std::partition_point(begin, chosen, fits);
        if (chosen == begin) return false;
        --chosen;
      }
      plan.cuts.push_back(*chosen);
      plan.device_cuts.push_back(shares[j]);
      p0 = *chosen;
      d0 = shares[j];
    }
    return true;
  }

  // V of a complete plan, infinity when it is infeasible; the best is kept.
  double consider(const Plan& plan) {
    if (!feasible(problem_, plan)) return kInfinity;
    const double value = value_ms(problem_, plan);
    if (value < best_ms_) {
      best_ms_ = value;
      best_ = plan;
    }
    return value;
  }

  // The first `count` boundaries of the prefix `index` of layer `count`.
  Plan plan_of(int count, int index) const {
    Plan plan;
    plan.schedule = options_.schedule;
    for (int layer = count; layer > 0; --layer) {
      const Prefix& prefix = layers_[at(layer)][at(index)];
      plan.cuts.push_back(prefix.p);
      plan.device_cuts.push_back(prefix.d1);
      index = prefix.parent;
    }
    std::reverse(plan.cuts.begin(), plan.cuts.end());
    std::reverse(plan.device_cuts.begin(), plan.device_cuts.end());
    return plan;
  }

  const Problem& problem_;
  const BoundOptions& options_;
  Work& work_;
  int stages_;
  bool needs_variable_ = false;
  std::vector<int> pivots_, device_cuts_;
  std::vector<int> stages_behind_;   // by pivot
  std::vector<double> rate_behind_;  // sum of the speeds of devices d+1..D
  double largest_capacity_ = 0;
  std::vector<std::vector<Prefix>> layers_;
  std::optional<Plan> best_;
  double best_ms_ = kInfinity;
};

// ---- Local search ---------------------------------------------------------------------------------------------------

class LocalSearch {
 public:
  LocalSearch(const Problem& problem, Objective objective, int max_evaluations, Work& work)
      : problem_(problem), objective_(objective), left_(max_evaluations), work_(work) {}

  bool exhausted() const { return left_ <= 0 || stopped_; }
  double best_ms() const { return best_ms_; }
  const Plan& best() const { return best_; }

  // Judges a feasible plan; one evaluation.
  void start(const Plan& plan) {
    --left_;
    work_.spend(judging_units(problem_, plan.num_stages(), objective_));
    best_ = plan;
    best_ms_ = length_ms(problem_, plan, objective_);
  }

  // Moves until none improves or the effort is spent.
  void improve() {
    const int boundaries = best_.num_stages() - 1;
    for (bool improved = true; improved && !exhausted();) {
      improved = false;
      for (int b = 0; b < boundaries && !exhausted(); ++b) {
        while (move_cut(b) && !exhausted()) improved = true;
        while (move_devices(b) && !exhausted()) improved = true;
      }
      if (improved) continue;
      for (int b = 0; b < boundaries && !exhausted(); ++b) {
        if (move_cut_and_devices(b)) improved = true;
        if (b + 1 < boundaries && move_neighbours(b)) improved = true;
      }
    }
  }

 private:
  // Takes `trial_` when it is feasible and shorter.
  bool accept() {
    if (exhausted()) return false;
    work_.spend(judging_units(problem_, trial_.num_stages(), Objective::kValue));
    if ((++tried_ & 63) == 0 && work_.over()) stopped_ = true;
    if (!feasible(problem_, trial_)) return false;
    --left_;
    pipeline_times(problem_, trial_, times_);
    const double limit = best_ms_ * (1 - 1e-12);
    double length;
    if (objective_ == Objective::kValue) {
      length = step_length_ms(times_, problem_.micro_batches(), trial_.schedule, problem_.options().value);
    } else {
      // The path terms never exceed the simulation and cost a tenth of it.
      if (path_length_ms(times_, problem_.micro_batches(), trial_.schedule, ValueForm::kFull) >= limit) return false;
      // With many micro-batches each takes milliseconds.
      work_.spend(judging_units(problem_, trial_.num_stages(), Objective::kSimulated));
      stopped_ = stopped_ || work_.over();
      length = simulate_step_ms(times_, problem_.micro_batches(), trial_.schedule);
    }
    if (!(length < limit)) return false;
    best_ms_ = length;
    std::swap(best_, trial_);
    return true;
  }

  int cut_before(int b) const { return b == 0 ? 0 : best_.cuts[at(b - 1)]; }
  int cut_after(int b) const {
    return b + 1 == best_.num_stages() - 1 ? problem_.num_instructions() : best_.cuts[at(b + 1)];
  }
  int devices_before(int b) const { return b == 0 ? 0 : best_.device_cuts[at(b - 1)]; }
  int devices_after(int b) const {
    return b + 1 == best_.num_stages() - 1 ? problem_.num_devices() : best_.device_cuts[at(b + 1)];
  }

  // The narrowest cut of low..high, the one nearest to `center` of equals.
  int narrowest(int low, int high, int center) const {
    int narrow = center;
    for (int p = low; p <= high; ++p) {
      const double here = problem_.activation_bytes(p), best = problem_.activation_bytes(narrow);
      if (here < best || (here == best && std::abs(p - center) < std::abs(narrow - center))) narrow = p;
    }
    return narrow;
  }

  // Places worth trying for boundary b around `center`, between its neighbours: a few near, doubling steps, and the
  // narrowest cuts within 8, 32 and 128 instructions.
  void places(int b, int center, std::vector<int>& out) const {
    out.clear();
    const int low = cut_before(b) + 1, high = cut_after(b) - 1;
    if (low > high) return;
    work_.spend(kPerPlaces);
    center = std::clamp(center, low, high);
    for (int window : {8, 32, 128}) {
      out.push_back(narrowest(std::max(low, center - window), std::min(high, center + window), center));
    }
    for (int step = 1; step <= high - low; step = step < 4 ? step + 1 : 2 * step) {
      if (center + step <= high) out.push_back(center + step);
      if (center - step >= low) out.push_back(center - step);
    }
    out.push_back(center);
  }

  // The cut at which both stages beside boundary b take equally long when it is moved to device cut d.
  int balance_point(int b, int d) const {
    const int low = cut_before(b), high = cut_after(b);
    const DeviceGroup& left = problem_.group(devices_before(b), d);
    const DeviceGroup& right = problem_.group(d, devices_after(b));
    int from = low, to = high;
    while (to - from > 1) {
      const int middle = from + (to - from) / 2;
      (problem_.compute_ms(low, middle, left) <= problem_.compute_ms(middle, high, right) ? from : to) = middle;
    }
    return from;
  }

  void device_places(int b, std::vector<int>& out) const {
    out.clear();
    const int low = devices_before(b) + 1, high = devices_after(b) - 1;
    const int center = best_.device_cuts[at(b)];
    for (int step = 1; step <= high - low; step = step < 4 ? step + 1 : 2 * step) {
      if (center + step <= high) out.push_back(center + step);
      if (center - step >= low) out.push_back(center - step);
    }
    // The nearest server boundaries on either side.
    for (int d = center - 1; d >= low; --d) {
      if (problem_.server_of_device(d - 1) != problem_.server_of_device(d)) {
        out.push_back(d);
        break;
      }
    }
    for (int d = center + 1; d <= high; ++d) {
      if (problem_.server_of_device(d - 1) != problem_.server_of_device(d)) {
        out.push_back(d);
        break;
      }
    }
  }

  bool move_cut(int b) {
    places(b, best_.cuts[at(b)], places_);
    for (int p : places_) {
      if (p == best_.cuts[at(b)]) continue;
      trial_ = best_;
      trial_.cuts[at(b)] = p;
      if (accept()) return true;
    }
    return false;
  }

  bool move_devices(int b) {
    device_places(b, device_places_);
    for (int d : device_places_) {
      trial_ = best_;
      trial_.device_cuts[at(b)] = d;
      if (accept()) return true;
    }
    return false;
  }

  bool move_cut_and_devices(int b) {
    device_places(b, device_places_);
    for (int d : device_places_) {
      places(b, balance_point(b, d), places_);
      for (int p : places_) {
        trial_ = best_;
        trial_.device_cuts[at(b)] = d;
        trial_.cuts[at(b)] = p;
        if (accept()) return true;
      }
    }
    return false;
  }

  // Boundaries b and b + 1 by the same steps: cuts alone, device cuts alone, both.
  bool move_neighbours(int b) {
    const std::size_t i = at(b);
    const int n = problem_.num_instructions(), devices = problem_.num_devices();
    for (int sign : {1, -1}) {
      for (int step = 1; step < n; step *= 2) {
        trial_ = best_;
        trial_.cuts[i] += sign * step;
        trial_.cuts[i + 1] += sign * step;
        if (!valid_structure(problem_, trial_)) break;
        if (accept()) return true;
      }
      for (int step = 1; step < devices; step *= 2) {
        trial_ = best_;
        trial_.device_cuts[i] += sign * step;
        trial_.device_cuts[i + 1] += sign * step;
        if (!valid_structure(problem_, trial_)) break;
        if (accept()) return true;
        for (int cut_sign : {1, -1}) {
          for (int cut_step = 1; cut_step < n; cut_step *= 4) {
            trial_ = best_;
            trial_.device_cuts[i] += sign * step;
            trial_.device_cuts[i + 1] += sign * step;
            trial_.cuts[i] += cut_sign * cut_step;
            trial_.cuts[i + 1] += cut_sign * cut_step;
            if (!valid_structure(problem_, trial_)) break;
            if (accept()) return true;
          }
        }
      }
    }
    return false;
  }

  const Problem& problem_;
  Objective objective_;
  int left_;
  int tried_ = 0;
  bool stopped_ = false;
  Work& work_;
  Plan best_, trial_;
  double best_ms_ = kInfinity;
  PipelineTimes times_;
  std::vector<int> places_, device_places_;
};

// A few boundaries of `plan` thrown elsewhere between their neighbours.
Plan kicked(const Problem& problem, const Plan& plan, CounterRandom& random) {
  Plan moved = plan;
  const int boundaries = plan.num_stages() - 1;
  const int kicks = random.integer(1, std::min(3, boundaries));
  for (int i = 0; i < kicks; ++i) {
    const int b = random.integer(0, boundaries - 1);
    const int low = b == 0 ? 0 : moved.cuts[at(b - 1)];
    const int high = b + 1 == boundaries ? problem.num_instructions() : moved.cuts[at(b + 1)];
    moved.cuts[at(b)] = random.integer(low + 1, high - 1);
    if (random.uniform() < 0.5) {
      const int before = b == 0 ? 0 : moved.device_cuts[at(b - 1)];
      const int after = b + 1 == boundaries ? problem.num_devices() : moved.device_cuts[at(b + 1)];
      moved.device_cuts[at(b)] = random.integer(before + 1, after - 1);
    }
  }
  return moved;
}

// Kicks `best` and improves what comes of it until the search is exhausted.
void kick_and_improve(const Problem& problem, LocalSearch& search, Plan& best, double& best_ms, Work& work) {
  if (best.num_stages() == 1) return;
  CounterRandom random(1, static_cast<std::uint32_t>(best.num_stages()));
  // Kicks onto infeasible ground cost no evaluation; their number is limited apart.
  int infeasible = 0;
  while (!search.exhausted() && infeasible < 1000) {
    const Plan plan = kicked(problem, best, random);
    work.spend(judging_units(problem, plan.num_stages(), Objective::kValue));
    if (!feasible(problem, plan)) {
      if ((++infeasible & 63) == 0 && work.over()) return;
      continue;
    }
    search.start(plan);
    search.improve();
    if (search.best_ms() < best_ms) {
      best_ms = search.best_ms();
      best = search.best();
    }
  }
}

}  // namespace

std::optional<Plan> bound_plan(const Problem& problem, const BoundOptions& options) {
  Work without_end;
  return BoundSearch(problem, options, options.work == nullptr ? without_end : *options.work).run();
}

std::optional<Plan> local_search_plan(const Problem& problem, const LocalSearchOptions& options) {
  if (!fits_shape(problem, options.stages)) return std::nullopt;
  if (options.stages == 1) return data_parallel_plan(problem, options.schedule);
  Work without_end;
  Work& work = options.work == nullptr ? without_end : *options.work;
  std::vector<Plan> starts;
  const auto add = [&](std::optional<Plan> plan) {
    if (plan && std::find(starts.begin(), starts.end(), *plan) == starts.end()) starts.push_back(std::move(*plan));
  };
  for (const std::vector<int>& device_cuts : device_share_candidates(problem, options.stages)) {
    for (double slack : {0.0, 0.1}) {
      if (work.over() && !starts.empty()) break;
      add(balanced_on(problem, device_cuts, options.schedule, BalanceBy::kCompute, slack, &work));
    }
    if (work.over() && !starts.empty()) break;
    add(balanced_on(problem, device_cuts, options.schedule, BalanceBy::kParameters, 0, &work));
  }
  add(uniform_plan(problem, options.stages, options.schedule, &work));
  if (starts.empty()) return std::nullopt;

  LocalSearch search(problem, Objective::kValue, options.max_evaluations, work);
  Plan best = starts.front();
  double best_ms = kInfinity;
  for (const Plan& start : starts) {
    search.start(start);
    search.improve();
    if (search.best_ms() < best_ms) {
      best_ms = search.best_ms();
      best = search.best();
    }
  }
  kick_and_improve(problem, search, best, best_ms, work);
  if (options.objective == Objective::kValue) return best;
  // Among the starts and the V-optimum the simulation decides, then moves go on under it.
  double simulated_ms = simulate_step_ms(problem, best);
  for (const Plan& start : starts) {
    work.spend(judging_units(problem, options.stages, Objective::kSimulated));
    if (work.over()) break;
    const double start_ms = simulate_step_ms(problem, start);
    if (!(start_ms < simulated_ms)) continue;
    simulated_ms = start_ms;
    best = start;
  }
  return polish_simulated(problem, best, work);
}

Plan polish(const Problem& problem, const Plan& plan, Objective objective, Work& work, int max_evaluations) {
  if (!feasible(problem, plan)) return plan;
  LocalSearch search(problem, objective, max_evaluations, work);
  search.start(plan);
  search.improve();
  return search.best();
}

Plan explore(const Problem& problem, const Plan& plan, Objective objective, Work& work, int max_evaluations) {
  if (!feasible(problem, plan)) return plan;
  LocalSearch search(problem, objective, max_evaluations, work);
  search.start(plan);
  search.improve();
  Plan best = search.best();
  double best_ms = search.best_ms();
  kick_and_improve(problem, search, best, best_ms, work);
  return best;
}

Plan polish_simulated(const Problem& problem, const Plan& plan, Work& work) {
  return polish(problem, plan, Objective::kSimulated, work);
}

}  // namespace automap::pipeline
