#include "common/pipeline/warmup.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "common/base/numbers.h"
#include "common/pipeline/baselines.h"
#include "common/pipeline/placed_plan.h"
#include "common/pipeline/placed_work.h"
#include "common/pipeline/schedule.h"

namespace automap::pipeline {
namespace {

constexpr int kMostGroups = 1 << 16;
constexpr int kMostRounds = 8;  // of moves; three do nearly always

// The most of every stage: limited by memory and by the stages in front.
std::vector<int> limits_of(const PipelineTimes& times) {
  std::vector<int> most = times.value_in_flight;
  for (std::size_t s = 1; s < most.size(); ++s) most[s] = std::min(most[s], most[s - 1]);
  return most;
}

// Groups of 1F1B*: elements (stages and transfers) packed from the end into groups of load up to the period; K_s is the
// number of groups from s on.
// `stretch`: of the time that transfers take.
std::vector<int> groups_of(const PipelineTimes& times, double period, double stretch) {
  const int stages = times.num_stages();
  std::vector<int> k(at(stages));
  int groups = 1;
  double load = 0;
  const auto pack = [&](double ms) {
    if (load > 0 && load + ms > period * (1 + 1e-9)) {
      ++groups;
      load = 0;
    }
    load += ms;
  };
  for (int s = stages - 1; s >= 0; --s) {
    if (s + 1 < stages) {
      // A transfer that takes longer than a period has several micro-batches under way at once.
      double under_way = 2 * stretch * times.transfer_ms[at(s)];
      for (; under_way > period && groups < kMostGroups; under_way -= period) ++groups;
      pack(std::min(under_way, period));
    }
    pack(times.forward_ms[at(s)] + times.backward_ms[at(s)]);
    k[at(s)] = groups;
  }
  return k;
}

double longest_ms(const PipelineTimes& times) {
  double longest = 0;
  for (int s = 0; s < times.num_stages(); ++s) {
    longest = std::max(longest, times.forward_ms[at(s)] + times.backward_ms[at(s)]);
    if (s + 1 < times.num_stages()) longest = std::max(longest, times.transfer_ms[at(s)]);
  }
  return longest;
}

// Cut to the limits, and never rising.
void clip(std::vector<int>& k, const std::vector<int>& most) {
  for (std::size_t s = 0; s < k.size(); ++s) {
    k[s] = std::clamp(k[s], 1, most[s]);
    if (s > 0) k[s] = std::min(k[s], k[s - 1]);
  }
}

class Warmup {
 public:
  Warmup(const Problem& problem, const Plan& plan, PipelineTimes& times)
      : problem_(problem), plan_(plan), times_(times), most_(limits_of(times)) {}

  double start() {
    best_ms_ = simulate(most_);
    best_ = most_;
    for (const std::vector<int>& k : starts()) take(k, 0);
    times_.in_flight = best_;
    return best_ms_;
  }

  // Moves of one K, which takes those behind it down with it and those in front up with it.
  void move(Work* work) {
    for (int round = 0; round < kMostRounds; ++round) {
      bool moved = false;
      for (std::size_t s = 0; s < best_.size(); ++s) {
        for (const int step : {1, -1, 2, -2, 4, -4}) {
          if (work != nullptr && work->over()) return;
          if (work != nullptr) work->spend(judging_units(problem_, plan_.num_stages(), Objective::kSimulated));
          moved = take(moved_by(s, step), 1e-9) || moved;
        }
      }
      if (!moved) return;
    }
  }

  // Down to the least memory that a step within the slack needs. share(s, k): of the memory of a stage's devices, with
  // k in flight.
  template <typename Share>
  void trim(const Share& share) {
    const double most_ms = best_ms_ * (1 + kWarmupSlack);
    // The fullest device, then all of them together.
    const auto need = [&](const std::vector<int>& k) {
      std::pair<double, double> of(0, 0);
      for (std::size_t s = 0; s < k.size(); ++s) {
        const double one = share(s, k[s]);
        of = {std::max(of.first, one), of.second + one};
      }
      return of;
    };
    // Between what is in flight and a lean start the step may be longer than at both: the leanest start that is short
    // enough, and all stages with no more than so many.
    std::vector<std::vector<int>> lean = starts();
    for (int most = best_.front() / 2; most >= 1; most /= 2) {
      lean.push_back(best_);
      for (int& k : lean.back()) k = std::min(k, most);
    }
    for (const std::vector<int>& k : lean) {
      if (need(k) < need(best_) && simulate(k) <= most_ms) best_ = k;
    }
    std::vector<std::size_t> order(best_.size());
    for (std::size_t s = 0; s < order.size(); ++s) order[s] = s;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return share(a, best_[a]) - share(a, 0) > share(b, best_[b]) - share(b, 0);
    });
    for (const std::size_t s : order) {
      // The least K that is still as short, by halving and then one by one: the length is nearly monotone in K.
      for (int step = best_[s] / 2; step >= 1;) {
        std::vector<int> k = moved_by(s, -step);
        if (k != best_ && simulate(k) <= most_ms) {
          best_ = std::move(k);
        } else {
          step /= 2;
        }
      }
    }
    best_ms_ = simulate(best_);
    times_.in_flight = best_;
  }

 private:
  // Those of 1F1B* and of the schedules that fix K, within the limits.
  std::vector<std::vector<int>> starts() const {
    const int stages = times_.num_stages();
    std::vector<std::vector<int>> out;
    // Messages that come in bursts wait for each other.
    for (const double stretch : {1.0, 2.0, 4.0}) out.push_back(groups_of(times_, longest_ms(times_), stretch));
    for (const Schedule schedule : {Schedule::k1f1bOverlap, Schedule::k1f1b}) {
      out.emplace_back();
      for (int s = 1; s <= stages; ++s) {
        out.back().push_back(in_flight(schedule, stages, s, problem_.micro_batches()));
      }
    }
    for (std::vector<int>& k : out) clip(k, most_);
    return out;
  }

  double simulate(const std::vector<int>& k) {
    times_.in_flight = k;
    return simulate_step_ms(times_, problem_.micro_batches(), plan_.schedule);
  }
  bool take(const std::vector<int>& k, double margin) {
    if (k == best_) return false;
    const double ms = simulate(k);
    const bool shorter = ms < best_ms_ * (1 - margin);
    if (shorter) {
      best_ms_ = ms;
      best_ = k;
    }
    times_.in_flight = best_;
    return shorter;
  }
  std::vector<int> moved_by(std::size_t s, int step) const {
    std::vector<int> k = best_;
    k[s] = std::clamp(k[s] + step, 1, most_[s]);
    for (std::size_t before = s; before-- > 0;) k[before] = std::max(k[before], k[s]);
    clip(k, most_);
    return k;
  }

  const Problem& problem_;
  const Plan& plan_;
  PipelineTimes& times_;
  std::vector<int> most_, best_;
  double best_ms_ = 0;
};

}  // namespace

double quick_warmup(const Problem& problem, const Plan& plan, PipelineTimes& times) {
  return Warmup(problem, plan, times).start();
}

std::vector<int> chosen_warmup(const PlacedPlan& placed, Work* work) {
  if (placed.plan.schedule == Schedule::kEager) return most_in_flight(placed);
  if (placed.plan.schedule != Schedule::kAdaptive) return {};
  PlacedPlan without = placed;
  without.plan.warmup.clear();
  PipelineTimes times = pipeline_times(without);
  Warmup warmup(placed.problem(), without.plan, times);
  warmup.start();
  warmup.move(work);
  warmup.trim([&](std::size_t s, int k) {
    const PlacedStage& stage = placed.stages[s];
    const double capacity = stage.group().capacity_bytes;
    return stage.problem->memory_bytes(stage.part().p0, stage.part().p1, stage.group(), k, stage.variant) /
           (std::isfinite(capacity) ? capacity : 1);
  });
  return times.in_flight;
}

void choose_warmup(const Problem& problem, Plan& plan, Work* work) {
  if (plan.schedule == Schedule::kAdaptive || plan.schedule == Schedule::kEager)
    plan.warmup = chosen_warmup(place(problem, plan), work);
}

}  // namespace automap::pipeline
