// The planner behind automap-infer: asks the planners of common/pipeline for plans, polishes them, and says how good
// the best one is and what limits it. A library: it prints nothing and knows no files.
//
// How the plan is chosen
//   Every planner proposes plans ("candidates"). `policy`, `rollouts` and `exact` search the grid, then
//   (refine) move to instruction granularity in a corridor; `balanced`, `uniform` and `local-search` work on
//   instructions at once. `policy` ranks partial plans by a trained network, `rollouts` is the same search without it.
//   `auto` runs all of them for every stage count and schedule allowed, data parallelism (S = 1) included, the cheapest
//   first, adds the exact solver's k best, and polishes the best with moves judged by the objective. The shortest
//   candidate under the objective wins; ties go to the smaller V, then to fewer stages, then to the schedule named
//   first, then to what was found first.
//   So with the same request, and enough work allowed, `auto` is never longer than any single planner.
//   `auto` stops before that when nothing can change the answer any more: the objective is V and a lower bound over all
//   cuts equals V of the best plan; or no other stage count and schedule can come near the best plan (hopeless_ms in
//   planning.h) and the stage count it has allows one plan only, S = 1.
//
// Two lengths, one certificate
//   step_ms is V of the plan in the request's value form; simulated_step_ms is what the event simulation says.
//   lower_bound_ms bounds V of *all* instruction-level plans of the stage counts and schedules asked for, memory and
//   variables respected; gap = step_ms / lower_bound_ms - 1 therefore says how far V of this plan can at most be above
//   the smallest V. It is no bound on the simulation: V counts the exposed all-reduce as a separate maximum, so a
//   simulated step may be shorter than V (and, in principle, than lower_bound_ms), and mostly it is longer.
//   With the objective `simulated` a plan of larger V but shorter simulation is preferred: its gap is honest, not 0.
//
// Effort
//   Anytime: cheap planners first, every later part stops with what it has when its share of the work is done. At least
//   one plan is always tried, however little that is. Work is counted, not timed, so the same request gets the same
//   result (but for how long things took) on every machine and under any load; unless a time limit or `cancelled`
//   stopped it before the work was done, which is said (`cut_by_time`).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/pipeline/baselines.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/placed_plan.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"
#include "models/policy.h"
#include "plan/planners/effort.h"
#include "plan/planners/online.h"

namespace automap::planners {

// Width of the beam where the request names none (PlanRequest::beam).
constexpr int kBeam = 16;

enum class PlannerKind { kAuto, kPolicy, kRollouts, kExact, kBalanced, kUniform, kLocalSearch, kDataParallel, kOnline };

// "auto", "policy", "rollouts", "exact", "balanced", "uniform", "local-search", "data-parallel", "online".
const char* to_string(PlannerKind planner);
// The inverse; nullopt for any other text.
std::optional<PlannerKind> parse_planner(std::string_view name);
// The planners that plan by themselves: all but `online`, which learns as long as it may and has no turn with others.
std::vector<PlannerKind> all_planners();
// True for planners that go from stage to stage, in milliseconds, with a quick bound: `policy` and `rollouts`.
bool answers_at_once(PlannerKind planner);

using pipeline::Objective;  // kValue, kSimulated
using pipeline::to_string;

struct PlanRequest {
  int stages = 0;       // 0: the planner chooses, 1..max_stages; else exactly this many
  int max_stages = 16;  // when stages == 0; clipped to the devices and instructions there are
  // Schedules to try, the earlier preferred on ties. --schedule auto = {k1f1b, k1f1bOverlap}.
  std::vector<pipeline::Schedule> schedules = {pipeline::Schedule::k1f1b};
  PlannerKind planner = PlannerKind::kAuto;
  // Default: simulated for `auto` and `online`, value for every other planner.
  std::optional<Objective> objective;
  // The network of `policy` (and of `auto`). Null: the one compiled in for the objective (shipped_policy.h); when there
  // is none, `auto` plans without and `policy` is an error.
  std::shared_ptr<const models::Policy> policy;
  bool use_policy = true;  // false: `auto` plans without the one compiled in, to compare
  OnlineOptions online;    // of `online`; its time is time_limit_s
  // Width of `policy` and `rollouts`; 1 = greedy. 0: 1, and in `auto` first 1 and then 16.
  int beam = 0;
  // Pivots that `policy`, `rollouts` and `exact` see; 0 = every instruction (the first two: at most 1024).
  int grid = 128;
  int k_best = 16;     // plans per stage count and schedule taken from the exact solver
  bool refine = true;  // corridor refinement from the grid to instructions (and, in `auto`, polishing)
  PlanEffort effort = plan_effort(Effort::kNormal);
  // Stops earlier, and differently from run to run; infinity = none.
  double time_limit_s = std::numeric_limits<double>::infinity();
  bool lower_bound = true;    // also compute lower_bound_ms
  bool all_planners = false;  // with a single planner: run the others too and list them as alternatives
  // Polled, by several threads at once; true acts as if the time were over.
  std::function<bool()> cancelled;
  // Told how much of the work is done, now and then and by several threads at once; units. May be empty.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
  // Told of whole plans that the search of a step comes to, an answer at once for people who wait: one after the other,
  // in the same order on every run. One may be longer than those before it; the answer is no longer than any, but where
  // a leaner plan as long takes its place. May be empty. make_plan, which has one problem, tells nothing.
  std::function<void(const pipeline::PlacedPlan& plan, double length_ms)> better;

  bool stopped() const { return cancelled && cancelled(); }
  // The time limit and `cancelled`, for work without another end.
  WorkLimits time_limits() const {
    WorkLimits limits;
    limits.seconds = time_limit_s;
    limits.cancelled = cancelled;
    return limits;
  }
};

// The objective that plans are judged by.
Objective objective_of(const PlanRequest& request);

constexpr double kProvenGap = 1e-9;  // a gap below is rounding
// V may be above the simulation by the all-reduce that hides: a bound on V rules plans out only when it is above the
// simulated step to beat by this factor.
constexpr double kAboveSimulation = 1.1;

// The result of one planner: its best plan under the objective over all stage counts and schedules.
struct Alternative {
  std::string planner;
  int stages = 0;
  double step_ms = 0;  // V
  double simulated_step_ms = 0;
  double planning_ms = 0;  // spent by this planner, all stage counts
  pipeline::Plan plan;
};

// A cause of the step's length; lists begin with the largest.
struct PlanLimit {
  enum class Kind { kStage, kTransfer, kRoundTrip, kAllReduce };
  Kind kind = Kind::kStage;
  int stage = 0;     // 1-based; a transfer leaves this stage
  double ms = 0;     // part of V it stands for
  double share = 0;  // ms / V
  std::string text;  // "stage 3 computes 12.3 ms per micro-batch; its 15 steady steps are 71 % of the step"
};
const char* to_string(PlanLimit::Kind kind);  // "stage", "transfer", "round-trip", "all-reduce"

// The course of a search for a plan, and the reason if it found none.
struct SearchNotes {
  Objective objective = Objective::kSimulated;
  std::int64_t work_units = 0;  // done in all
  double planning_ms = 0;
  double found_ms = 0;  // when, since planning began, the plan was met
  // The time when V of the plan was known to be the least; 0: it is not (gap above kProvenGap), or unknown.
  double proven_ms = 0;
  // The time limit (or `cancelled`) stopped a planner, the polishing or the bound: another run may come further. False:
  // all of the above but the *_ms that were measured is the same on every run.
  bool cut_by_time = false;
  // A planner or the polishing came to the end of its share of the work first: more effort may find a shorter plan.
  bool cut_by_effort = false;
  std::optional<pipeline::PlanLearning> online;  // how `online` searched
  // Best plan of every planner that ran and found one, in the order of all_planners(); data-parallel, when S = 1 was
  // allowed and fits, is among them. The winner's own planner is listed, too.
  std::vector<Alternative> alternatives;
  // Sentences for people: what is missing at best, in GiB, stage by stage count. Empty when there is a plan.
  std::string infeasible;
  // The least memory a device must have so that some plan fits, bytes, and what the cluster's devices have there; 0
  // when memory is not the reason.
  double least_memory_bytes = 0;
  double available_memory_bytes = 0;
  bool devices_divide = true;  // false: nothing fits because no devices of so many stages divide the micro-batch
};

struct PlanResult : SearchNotes {
  // Empty: nothing fits; then `infeasible` says why and only planning_ms and cut_by_time are filled.
  std::optional<pipeline::Plan> plan;
  std::string planner;  // who proposed it: "policy+refine", "policy+beam+refine", "balanced+polish", ...
  double step_ms = 0;
  double simulated_step_ms = 0;
  // The length by which plans are judged; infinite without a plan.
  double length_ms() const {
    if (!plan) return std::numeric_limits<double>::infinity();
    return objective == Objective::kValue ? step_ms : simulated_step_ms;
  }
  // Without the wish to compute one: 0 and "".
  double lower_bound_ms = 0;
  std::string lower_bound_method;
  double gap = 0;  // step_ms / lower_bound_ms - 1; 0 when there is no bound
  void set_gap() { gap = lower_bound_ms > 0 ? step_ms / lower_bound_ms - 1 : 0; }
  std::vector<PlanLimit> limits;
};

// Throws Error(kUsage) on a request that asks for the impossible whatever the numbers are: more stages than devices or
// than instructions, no schedule, a beam, grid, k_best or max_stages out of range, a time limit that is not positive;
// Error(kConfig) when the planner is `policy` and there is none.
// A plan that does not fit in memory is an answer (result.plan empty), not an error.
PlanResult make_plan(const pipeline::Problem& problem, const PlanRequest& request);

// The limits of a plan by V's own terms (docs/cost-model.md): the path term that attains the maximum and the exposed
// all-reduce, with numbers. At least one entry; shares need not sum to 1.
std::vector<PlanLimit> plan_limits(const pipeline::Problem& problem, const pipeline::Plan& plan);
std::vector<PlanLimit> plan_limits(const pipeline::PlacedPlan& placed);

}  // namespace automap::planners
