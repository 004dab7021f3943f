// Planners without proof and without learning: the baselines that every other planner is compared with, made as strong
// as their time allows. docs/cost-model.md, "Baselines".
//
// All of them respect memory and the variables constraint: the plan they return is feasible, or there is none
// (nullopt: none found, which proves nothing unless said otherwise). All are deterministic: their work is counted.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/numbers.h"
#include "common/base/work.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"

namespace automap::pipeline {

// The objective that ranks plans: V (cost.h) or the event simulation (schedule.h).
enum class Objective { kValue, kSimulated };
const char* to_string(Objective objective);  // "value", "simulated"
double length_ms(const Problem& problem, const Plan& plan, Objective objective);

// True if the problem has enough instructions and devices for so many stages.
bool fits_shape(const Problem& problem, int stages);

// The cost of judging a plan of so many stages, in units of work.
std::int64_t judging_units(const Problem& problem, int stages, Objective objective);

// Problem::useful_variants of any of the stages, ascending.
std::vector<int> useful_variants(const Problem& problem, const std::vector<int>& device_cuts);

// S = 1: data parallelism with gradient accumulation, of the variant with the least V. nullopt when the whole model
// does not fit on one device.
std::optional<Plan> data_parallel_plan(const Problem& problem, Schedule schedule);

// Equal instruction counts, cuts floor(s n / S), on equal device shares, device cuts floor(s D / S). When that is
// infeasible the cuts move as little as possible (the largest move is least) to make it feasible on those shares.
// nullopt when no cuts are feasible on equal device shares (exact), or S exceeds n or D. `work`, here and below, gets
// the cost of the call when given; a quick call does not stop when the work is over.
std::optional<Plan> uniform_plan(const Problem& problem, int stages, Schedule schedule, Work* work = nullptr);

enum class BalanceBy {
  kCompute,     // the longest stage compute is least
  kParameters,  // the largest stage weight is least
  kMemory,      // the largest share of a device's memory used is least; ignores whether that is below 1
};

// Caches the results of balancing one problem, so that planners that ask again get them at once. They pay the same
// units as without the cache, so that their searches end at the same place. Thread-safe.
class BalancedCuts {
 public:
  // Device cuts, schedule, balance and variant.
  using Key = std::tuple<std::vector<int>, Schedule, BalanceBy, int>;
  struct Least {
    double cost = 0;
    std::int64_t units = 0;
  };
  struct Cuts {
    std::vector<int> cuts;
    std::int64_t units = 0;
  };
  // Empty: not known.
  std::optional<Least> least(const Key& key) const;
  std::optional<Cuts> within(const Key& key, double limit) const;
  void keep(const Key& key, Least least);
  void keep(const Key& key, double limit, Cuts cuts);

 private:
  mutable std::mutex mutex_;
  std::map<Key, Least> least_;
  std::map<std::pair<Key, double>, Cuts> within_;
};

// Cuts for given device cuts such that the largest stage cost is least among feasible cuts (exact up to 1e-9), and, of
// those within (1 + slack) of it, the ones with the least total transfer time. nullopt: none feasible (exact; with
// kMemory only the variables constraint counts; with an adaptive schedule one micro-batch in flight). All stages are
// the same variant. `most`: nullopt, too, where balanced_bound is beyond it.
std::optional<Plan> balanced_on(const Problem& problem, const std::vector<int>& device_cuts, Schedule schedule,
                                BalanceBy by, double slack = 0, Work* work = nullptr, int variant = 0,
                                double most = kInfinity, BalancedCuts* known = nullptr);

// The largest stage cost of balanced_on is not below this (but for 1e-10), nor mostly far above it: of stages that may
// be empty and hold no variable. Infinity: no plan, or none that costs at most `most`.
double balanced_bound(const Problem& problem, const std::vector<int>& device_cuts, Schedule schedule, BalanceBy by,
                      Work* work = nullptr, int variant = 0, double most = kInfinity);

// Device shares worth trying for S stages, different from one another: equal counts, equal total speed, and both moved
// to the nearest server boundaries where that keeps S stages; each as near as groups that can run allow.
std::vector<std::vector<int>> device_share_candidates(const Problem& problem, int stages);

// The best by `objective` of balanced_on over all device_share_candidates and variants, by compute and by parameters,
// with slacks of 0, 1, 3, 10 and 30 % spent on narrower cuts.
std::optional<Plan> balanced_plan(const Problem& problem, int stages, Schedule schedule,
                                  Objective objective = Objective::kValue, Work* work = nullptr,
                                  BalancedCuts* known = nullptr);

struct LocalSearchOptions {
  int stages = 2;
  Schedule schedule = Schedule::k1f1b;
  Objective objective = Objective::kValue;
  int max_evaluations = 20000;  // plans judged in all; the work can only end it earlier
  Work* work = nullptr;         // null: without end
  BalancedCuts* known = nullptr;
};
// Starts from the balanced and uniform plans, moves one cut, one device cut, a cut with its device cut, and
// neighbouring cuts together, at instruction granularity, first improvement until none is left; then restarts from
// random kicks of the best until the evaluations are spent. Judged by V; a last pass is judged by the simulation when
// asked for. Never longer than any of its starts under the objective.
std::optional<Plan> local_search_plan(const Problem& problem, const LocalSearchOptions& options);

// The same moves from `plan` on until none improves, judged by `objective`. Never longer, never infeasible when
// `plan` is feasible; an infeasible plan comes back unchanged.
Plan polish(const Problem& problem, const Plan& plan, Objective objective, Work& work, int max_evaluations = 4000);
// polish, then random kicks of the best and polishing again until the evaluations are spent. Never longer either.
Plan explore(const Problem& problem, const Plan& plan, Objective objective, Work& work, int max_evaluations = 4000);
Plan polish_simulated(const Problem& problem, const Plan& plan, Work& work);

}  // namespace automap::pipeline
