#include "infer/planner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/text_table.h"
#include "common/pipeline/exact.h"
#include "common/pipeline/schedule.h"
#include "infer/shipped_policy.h"
#include "models/plan_space.h"
#include "models/policy_search.h"

namespace automap::infer {

using pipeline::BalanceBy;
using pipeline::BoundOptions;
using pipeline::Deadline;
using pipeline::DeviceGroup;
using pipeline::ExactOptions;
using pipeline::ExactResult;
using pipeline::ExactStageResult;
using pipeline::LocalSearchOptions;
using pipeline::LowerBound;
using pipeline::PipelineTimes;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::Schedule;
using pipeline::ValueForm;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Effort of the local search per stage count and schedule, and of one polish; evaluated plans.
constexpr int kLocalSearchEvaluations = 6000;
constexpr int kPolishEvaluations = 4000;
// How many of the best candidates are polished, besides the best of every planner, stage count and schedule; how many
// of the plans that came of it are explored further, and with what effort.
constexpr int kMostPolished = 12;
constexpr std::size_t kMostExplored = 8;
constexpr int kExploreEvaluations = 20000;
// Candidates of a stage count whose V is this much above the best one's are not worth a corridor.
constexpr double kRefineWithin = 1.15;
// Who asks for a quick planner alone wants the answer at once, with the bound that a moment gives.
constexpr double kQuickBoundSeconds = 0.03;
constexpr double kPolicyBoundSeconds = 0.004;
// Widths of the beams when the request names none.
constexpr int kBeam = 16;
constexpr int kMostPolicyPivots = 1024;
// See hopeless_ms().
constexpr double kHopeless = 1.1;
// The policy's search goes from few stages to many, and every stage makes it longer: it ends when three stage counts in
// a row came out so much longer than the best. On 139 problems (fixtures, PipeDream and DAPPLE profiles on the clusters
// A, B, C and 8x8, 8 to 64 micro-batches) 1.15 lost nothing. Greedy alone is for those who want the answer at once: 1.1
// and refining no further after three corridors in a row that brought nothing cost it 0.05 and 0.08 % on average.
constexpr int kInARow = 3;
constexpr double kWorse = 1.15;
constexpr double kWorseGreedy = 1.1;
// Above so many devices the bound of a policy's plan comes from sums alone.
constexpr int kManyDevices = 64;
// Plans of one stage count that get a corridor.
constexpr int kMostRefined = 4;
// The parts of the time limit after which `auto` goes on to the next planner, so that every one gets its turn. A
// planner asked for alone has (with the polishing, if any) all of the time but what the bound needs.
constexpr double kQuickUntil = 0.25;
constexpr double kBeamUntil = 0.3;
constexpr double kProofUntil = 0.35;  // over all cuts; ends `auto` early when the objective is V
constexpr double kBoundUntil = 0.4;
constexpr double kLocalSearchUntil = 0.5;
constexpr double kExactUntil = 0.7;
constexpr double kPolishUntil = 0.8;
constexpr double kAloneUntil = 0.8;
// Time to look for what is missing when nothing fits, s.
constexpr double kExplainSeconds = 0.5;

// The order planners run in. In `auto` policy and rollouts come twice: greedy, and later with a beam.
constexpr PlannerKind kCheapFirst[] = {PlannerKind::kDataParallel, PlannerKind::kUniform,  PlannerKind::kPolicy,
                                       PlannerKind::kRollouts,     PlannerKind::kBalanced, PlannerKind::kBound,
                                       PlannerKind::kLocalSearch,  PlannerKind::kExact};

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

double ms_since(Deadline::Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Deadline::Clock::now() - start).count();
}

// About ten significant digits.
double without_last_digits(double ms) {
  constexpr int kBits = 33;
  int exponent = 0;
  const double mantissa = std::frexp(ms, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, kBits)), exponent - kBits);
}

// How a planner came to its plan.
struct Way {
  bool beam = false;  // of policy and rollouts, which are greedy otherwise
  bool refined = false, polished = false;
};

struct Candidate {
  Plan plan;
  double value_ms = 0;
  double simulated_ms = 0;
  PlannerKind planner = PlannerKind::kAuto;
  Way way;
  int order = 0;     // of the schedule in the request
  int sequence = 0;  // of the candidates
  double found_ms = 0;

  std::string name() const {
    return std::string(to_string(planner)) + (way.beam ? "+beam" : "") + (way.refined ? "+refine" : "") +
           (way.polished ? "+polish" : "");
  }
};

class Planning {
 public:
  Planning(const Problem& problem, const PlanRequest& request)
      : problem_(problem), request_(request), start_(Deadline::Clock::now()) {
    check();
    objective_ =
        request.objective.value_or(request.planner == PlannerKind::kAuto ? Objective::kSimulated : Objective::kValue);
    first_stages_ = request.stages > 0 ? request.stages : 1;
    last_stages_ = request.stages > 0
                       ? request.stages
                       : std::min({request.max_stages, problem.num_devices(), problem.num_instructions()});
    pivots_ = request.grid == 0 ? std::vector<int>() : pipeline::grid_pivots(problem.num_instructions(), request.grid);
    policy_ = request.policy;
    const bool wanted = request.planner == PlannerKind::kAuto || request.planner == PlannerKind::kPolicy;
    if (!policy_ && (wanted || request.all_planners)) policy_ = shipped_policy(objective_);
    if (policy_) check_plans(*policy_, "the policy");
    if (!policy_ && request.planner == PlannerKind::kPolicy) {
      throw Error(ErrorKind::kConfig, "no policy: this build of AutoMap has none compiled in",
                  "name a trained one with --policy FILE (automap-train makes them), or use --planner rollouts");
    }
    deadline_ = Deadline::after(request.time_limit_s, request.cancelled);
    for (Schedule schedule : request.schedules) {
      simple_bounds_ms_[schedule] = pipeline::simple_lower_bounds_ms(problem, schedule, last_stages_);
    }
  }

  PlanResult run() {
    PlanResult result;
    result.objective = objective_;
    const bool everything = request_.planner == PlannerKind::kAuto;
    if (everything) {
      run_all();
    } else {
      propose(request_.planner, request_.beam);
      if (best_of_.empty() && request_.planner == PlannerKind::kBalanced) balance_memory();
    }
    const std::optional<Candidate> winner = best_candidate();
    if (request_.all_planners && !everything) {
      for (PlannerKind planner : kCheapFirst) {
        if (planner != request_.planner) propose(planner, request_.beam);
      }
    }
    if (winner) {
      result.plan = winner->plan;
      result.planner = winner->name();
      result.step_ms = winner->value_ms;
      result.simulated_step_ms = winner->simulated_ms;
      result.found_ms = winner->found_ms;
      result.limits = plan_limits(problem_, winner->plan);
      if (request_.lower_bound) bound(result);
    } else {
      explain(result);
    }
    for (const auto& [planner, candidate] : best_of_) {
      result.alternatives.push_back({to_string(planner), candidate.plan.num_stages(), candidate.value_ms,
                                     candidate.simulated_ms, spent_ms_[planner], candidate.plan});
    }
    result.cut_by_time = cut_;
    result.planning_ms = ms_since(start_);
    return result;
  }

 private:
  // `auto`: the cheapest planners first, until nothing can change the answer.
  void run_all() {
    for (PlannerKind planner : kCheapFirst) {
      if (planner == PlannerKind::kBound) {
        // The last of the planners that cost milliseconds.
        propose(policy_ ? PlannerKind::kPolicy : PlannerKind::kRollouts, beam_of(PlannerKind::kBound));
        if (settled() || prove()) return;
      }
      const bool greedy = planner == PlannerKind::kPolicy || planner == PlannerKind::kRollouts;
      propose(planner, greedy ? 1 : request_.beam);
      if (settled()) return;
    }
    if (best_of_.empty()) balance_memory();
    if (request_.refine && !best_of_.empty()) polish_candidates();
  }

  // Whether every stage count and schedule but the best plan's own is out of the question, and its own allows no other.
  bool settled() const {
    if (request_.all_planners) return false;
    const std::optional<Candidate> best = best_candidate();
    if (!best || best->plan.num_stages() > 1) return false;
    const double most = objective_ == Objective::kValue ? best->value_ms : hopeless_ms();
    for (Schedule schedule : request_.schedules) {
      for (int stages = std::max(2, first_stages_); stages <= last_stages_; ++stages) {
        if (simple_bounds_ms_.at(schedule)[at(stages - 1)] < most) return false;
      }
    }
    return true;
  }

  // When plans are judged by V: the least V over all cuts, found and proven at once, which settles everything. False
  // when it takes too long.
  bool prove() {
    if (objective_ != Objective::kValue || !request_.lower_bound || request_.all_planners || best_of_.empty()) {
      return false;
    }
    const Deadline::Clock::time_point begin = Deadline::Clock::now();
    proof_ = pipeline::lower_bound_all_cuts(problem_, request_.schedules, first_stages_, last_stages_,
                                            smallest_value_ms_, seconds_until(kProofUntil), request_.cancelled);
    proof_ms_ = ms_since(start_);
    if (proof_->better) {
      add(proof_->better, PlannerKind::kExact);
      spent_ms_[PlannerKind::kExact] += ms_since(begin);
    }
    if (is_proof(*proof_)) return true;
    if (seconds_until(kProofUntil) <= 0) cut_ = true;
    return false;
  }

  bool is_proof(const LowerBound& bound) const { return bound.ms >= smallest_value_ms_ * (1 - kProvenGap); }

  int beam_of(PlannerKind planner) const {
    if (request_.beam > 0) return request_.beam;
    return planner == PlannerKind::kBound ? kBeam : 1;
  }

  void check() const {
    const auto refuse = [](const std::string& message, const std::string& hint = "") {
      throw Error(ErrorKind::kUsage, message, hint);
    };
    const auto whole = [&](int value, int low, int high, const char* name) {
      if (value < low || value > high) {
        refuse(std::string(name) + " is " + std::to_string(value) + ", expected " + std::to_string(low) + " to " +
               std::to_string(high));
      }
    };
    whole(request_.stages, 0, pipeline::kMaxDevices, "stages");
    whole(request_.max_stages, 1, pipeline::kMaxDevices, "max-stages");
    whole(request_.beam, 0, 1 << 20, "beam");
    whole(request_.grid, 0, 1 << 30, "grid");
    whole(request_.k_best, 1, 1000, "k-best");
    if (!(request_.time_limit_s > 0)) {
      refuse("time-limit is " + format_number(request_.time_limit_s) + " s, expected a number above 0");
    }
    if (request_.schedules.empty()) refuse("no schedule to plan for");
    if (request_.stages > problem_.num_devices()) {
      refuse(std::to_string(request_.stages) + " stages on " + std::to_string(problem_.num_devices()) + " devices",
             "every stage needs a device of its own; ask for fewer stages or let the planner choose (--stages auto)");
    }
    if (request_.stages > problem_.num_instructions()) {
      refuse(std::to_string(request_.stages) + " stages of " + std::to_string(problem_.num_instructions()) +
                 " forward instructions",
             "every stage needs an instruction; ask for fewer stages or let the planner choose (--stages auto)");
    }
  }

  // The end of a planner's turn.
  Deadline turn_of(PlannerKind planner, int beam) const {
    double part = kAloneUntil;
    if (request_.planner == PlannerKind::kAuto || planner != request_.planner) {
      switch (planner) {
        case PlannerKind::kBound: part = kBoundUntil; break;
        case PlannerKind::kLocalSearch: part = kLocalSearchUntil; break;
        case PlannerKind::kExact: part = kExactUntil; break;
        default: part = beam > 1 ? kBeamUntil : kQuickUntil;
      }
      // The others of --all-planners come after the one asked for.
      if (request_.planner != PlannerKind::kAuto) part = kAloneUntil;
    }
    return Deadline::after(seconds_until(part), request_.cancelled);
  }

  // Seconds until `part` of the time limit is over.
  double seconds_until(double part) const {
    const double left = deadline_.seconds_left();
    return left == kInfinity ? left : std::max(0.0, left - (1 - part) * request_.time_limit_s);
  }

  // Shorter under the objective; then V, stages, schedule, who was first decide. Rounding makes equal lengths differ in
  // their last digits: that must not decide.
  bool better(const Candidate& a, const Candidate& b) const {
    const auto key = [&](const Candidate& c) {
      const double value = without_last_digits(c.value_ms), simulated = without_last_digits(c.simulated_ms);
      return std::make_tuple(objective_ == Objective::kValue ? value : simulated,
                             objective_ == Objective::kValue ? simulated : value, c.plan.num_stages(), c.order,
                             c.sequence);
    };
    return key(a) < key(b);
  }

  // Takes a feasible plan into the comparison.
  void add(const std::optional<Plan>& plan, PlannerKind planner, Way way = {}) {
    if (!plan) return;
    AM_CHECK(pipeline::feasible(problem_, *plan));
    Candidate candidate;
    candidate.plan = *plan;
    candidate.value_ms = pipeline::value_ms(problem_, *plan);
    candidate.simulated_ms = pipeline::simulate_step_ms(problem_, *plan);
    candidate.planner = planner;
    candidate.way = way;
    candidate.sequence = static_cast<int>(candidates_.size());
    candidate.found_ms = ms_since(start_);
    const auto order = std::find(request_.schedules.begin(), request_.schedules.end(), plan->schedule);
    candidate.order = static_cast<int>(order - request_.schedules.begin());
    smallest_value_ms_ = std::min(smallest_value_ms_, candidate.value_ms);
    const auto best = best_of_.find(planner);
    if (best == best_of_.end()) {
      best_of_.emplace(planner, candidate);
    } else if (better(candidate, best->second)) {
      best->second = candidate;
    }
    candidates_.push_back(std::move(candidate));
  }

  std::optional<Candidate> best_candidate() const {
    const Candidate* best = nullptr;
    for (const Candidate& candidate : candidates_) {
      if (best == nullptr || better(candidate, *best)) best = &candidate;
    }
    if (polished_ && (best == nullptr || better(*polished_, *best))) best = &*polished_;
    return best == nullptr ? std::nullopt : std::optional<Candidate>(*best);
  }

  // Asks a planner for every stage count and schedule. `beam` 0: its usual width.
  void propose(PlannerKind planner, int beam) {
    if (planner == PlannerKind::kPolicy && !policy_) return;
    if (beam == 0) beam = beam_of(planner);
    const Deadline::Clock::time_point begin = Deadline::Clock::now();
    const Deadline turn = turn_of(planner, beam);
    // While there is no plan at all, one is looked for however short the time.
    const auto over = [&] {
      if (best_of_.empty() || !turn.reached()) return false;
      cut_ = true;
      return true;
    };
    const bool searches = planner == PlannerKind::kPolicy || planner == PlannerKind::kRollouts;
    const bool at_once = searches && beam == 1 && request_.planner == planner;
    Way way;
    way.beam = searches && beam > 1;
    for (Schedule schedule : request_.schedules) {
      if (over()) break;
      if (planner == PlannerKind::kExact) {
        propose_exact(schedule, turn);
        continue;
      }
      if (planner == PlannerKind::kDataParallel || (searches && schedule == request_.schedules.front())) {
        // One stage is the same under every schedule.
        if (first_stages_ == 1) add(pipeline::data_parallel_plan(problem_, schedule), planner);
        if (planner == PlannerKind::kDataParallel) break;
      }
      std::vector<Plan> found;
      int worse = 0;
      for (int stages = first_stages_; stages <= last_stages_ && worse < kInARow && !over(); ++stages) {
        if (out_of_question(planner, stages, schedule)) continue;
        std::vector<Plan> runners_up;
        const std::optional<Plan> plan = searches ? search(planner, stages, schedule, beam, turn, runners_up)
                                                  : propose_one(planner, stages, schedule, turn);
        add(plan, planner, way);
        if (!plan) continue;
        found.push_back(*plan);
        if (way.beam) found.insert(found.end(), runners_up.begin(), runners_up.end());
        const double most = (at_once ? kWorseGreedy : kWorse) * length(best_of_.at(planner));
        if (searches) worse = length(candidates_.back()) > most ? worse + 1 : 0;
      }
      if (request_.refine && (searches || planner == PlannerKind::kBound))
        refine(found, planner, way, turn, at_once ? kInARow : std::numeric_limits<int>::max());
    }
    spent_ms_[planner] += ms_since(begin);
  }

  std::optional<Plan> search(PlannerKind planner, int stages, Schedule schedule, int beam, const Deadline& turn,
                             std::vector<Plan>& runners_up) {
    if (stages < 2 || stages > models::kMaxStages) return std::nullopt;
    std::unique_ptr<models::PlanSpace>& space = spaces_[{stages, schedule}];
    if (!space) {
      models::PlanSpaceOptions options;
      options.stages = stages;
      options.schedule = schedule;
      options.pivots = pivots_;
      const int n = problem_.num_instructions();
      if (pivots_.empty() || pivots_.size() > static_cast<std::size_t>(kMostPolicyPivots)) {
        options.pivots = pipeline::grid_pivots(n, kMostPolicyPivots);
      }
      space = std::make_unique<models::PlanSpace>(problem_, options);
    }
    models::PolicySearchOptions options;
    options.beam = beam;
    options.objective = objective_;
    // The first plan of all is worth waiting for, unless nobody does any more.
    options.deadline = best_of_.empty() ? Deadline::after(kInfinity, request_.cancelled) : turn;
    const models::Policy* policy = planner == PlannerKind::kPolicy ? policy_.get() : nullptr;
    std::optional<models::FoundPlan> found = models::search_plan(*space, policy, options);
    if (!found) return std::nullopt;
    runners_up = std::move(found->runners_up);
    return std::move(found->plan);
  }

  std::optional<Plan> propose_one(PlannerKind planner, int stages, Schedule schedule, const Deadline& turn) {
    switch (planner) {
      case PlannerKind::kUniform: return pipeline::uniform_plan(problem_, stages, schedule);
      case PlannerKind::kBalanced: return pipeline::balanced_plan(problem_, stages, schedule, objective_);
      case PlannerKind::kBound: {
        BoundOptions options;
        options.stages = stages;
        options.schedule = schedule;
        options.beam_width = beam_of(planner);
        options.pivots = pivots_;
        options.deadline = turn;
        return pipeline::bound_plan(problem_, options);
      }
      case PlannerKind::kLocalSearch: {
        LocalSearchOptions options;
        options.stages = stages;
        options.schedule = schedule;
        options.objective = objective_;
        options.max_evaluations = kLocalSearchEvaluations;
        options.deadline = turn;
        return pipeline::local_search_plan(problem_, options);
      }
      default: break;
    }
    AM_CHECK(false);
    return std::nullopt;
  }

  void propose_exact(Schedule schedule, const Deadline& turn) {
    ExactOptions options;
    options.min_stages = first_stages_;
    options.max_stages = last_stages_;
    options.schedule = schedule;
    options.pivots = pivots_;
    options.k_best = request_.k_best;
    options.cancelled = request_.cancelled;
    options.upper_bound_ms = hopeless_ms();
    // Each schedule its share of what is left.
    const auto position = std::find(request_.schedules.begin(), request_.schedules.end(), schedule);
    options.time_limit_s = turn.seconds_left() / static_cast<double>(request_.schedules.end() - position);
    const ExactResult solved = pipeline::solve_exact(problem_, options);
    if (!solved.proven()) cut_ = true;
    std::vector<Plan> found;
    for (const ExactStageResult& stage : solved.by_stages) {
      for (const Plan& plan : stage.plans) add(plan, PlannerKind::kExact);
      found.insert(found.end(), stage.plans.begin(), stage.plans.end());
    }
    // A grid of every instruction leaves nothing to refine.
    const bool coarse = !pivots_.empty() && pivots_.size() + 1 < at(problem_.num_instructions());
    if (request_.refine && coarse) refine(found, PlannerKind::kExact, Way(), turn);
  }

  // Whether no plan of so many stages can be the planner's best, by the simplest bound on V.
  bool out_of_question(PlannerKind planner, int stages, Schedule schedule) const {
    const auto best = best_of_.find(planner);
    if (best == best_of_.end()) return false;
    const double most = objective_ == Objective::kValue ? best->second.value_ms : kHopeless * best->second.simulated_ms;
    return simple_bounds_ms_.at(schedule)[at(stages - 1)] > most;
  }

  // V of a plan that no longer can be the best: under the objective `simulated` V is below the simulation, but for the
  // all-reduce (docs/cost-model.md), so what is above the best simulation by more than that is out. Infinity when
  // plans are judged by V or nothing is known.
  double hopeless_ms() const {
    if (request_.planner != PlannerKind::kAuto || objective_ == Objective::kValue) return kInfinity;
    double best = kInfinity;
    for (const auto& [planner, candidate] : best_of_) best = std::min(best, candidate.simulated_ms);
    return kHopeless * best;
  }

  // From the grid to instructions: the exact program in a corridor around every plan worth it, the best first; until
  // `most_in_vain` in a row brought nothing better.
  void refine(const std::vector<Plan>& plans, PlannerKind planner, Way way, const Deadline& turn,
              int most_in_vain = std::numeric_limits<int>::max()) {
    way.refined = true;
    double best_ms = kInfinity;
    std::vector<std::pair<double, const Plan*>> order;
    for (const Plan& plan : plans) {
      order.emplace_back(pipeline::value_ms(problem_, plan), &plan);
      best_ms = std::min(best_ms, order.back().first);
    }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::map<int, int> of_stages;
    int in_vain = 0;
    double refined_ms = kInfinity;
    for (const auto& [value, plan] : order) {
      if (value > kRefineWithin * best_ms || value > hopeless_ms()) break;
      if (++of_stages[plan->num_stages()] > kMostRefined) continue;
      if (turn.reached()) {
        cut_ = true;
        return;
      }
      add(pipeline::refine_in_corridor(problem_, *plan, 8, 2, turn.seconds_left(), request_.cancelled), planner, way);
      in_vain = candidates_.back().value_ms < refined_ms * (1 - kProvenGap) ? 0 : in_vain + 1;
      if (in_vain == most_in_vain) return;
      refined_ms = std::min(refined_ms, candidates_.back().value_ms);
    }
  }

  // Moves judged by the objective from the best candidates and from the best of every planner, stage count and
  // schedule; then kicks of the best few plans that came of it.
  void polish_candidates() {
    const Deadline deadline = Deadline::after(seconds_until(kPolishUntil), request_.cancelled);
    std::vector<const Candidate*> order;
    for (const Candidate& candidate : candidates_) order.push_back(&candidate);
    std::stable_sort(order.begin(), order.end(),
                     [&](const Candidate* a, const Candidate* b) { return better(*a, *b); });
    std::vector<Plan> started;
    std::vector<Candidate> found;
    std::map<std::tuple<int, int, int>, bool> seen;
    const auto take = [&](const Candidate& from, Plan plan) {
      Candidate polished = from;
      if (!(plan == from.plan)) {
        polished.plan = std::move(plan);
        polished.value_ms = pipeline::value_ms(problem_, polished.plan);
        polished.simulated_ms = pipeline::simulate_step_ms(problem_, polished.plan);
        polished.way.polished = true;
        polished.found_ms = ms_since(start_);
        smallest_value_ms_ = std::min(smallest_value_ms_, polished.value_ms);
        if (!polished_ || better(polished, *polished_)) polished_ = polished;
      }
      found.push_back(std::move(polished));
    };
    int taken = 0;
    for (const Candidate* candidate : order) {
      const bool first_of_kind = !std::exchange(
          seen[{static_cast<int>(candidate->planner), candidate->plan.num_stages(), candidate->order}], true);
      const bool near = length(*candidate) <= kRefineWithin * length(*order.front());
      if (!(taken < kMostPolished || (first_of_kind && near))) continue;
      if (std::find(started.begin(), started.end(), candidate->plan) != started.end()) continue;
      if (deadline.reached()) {
        cut_ = true;
        return;
      }
      ++taken;
      started.push_back(candidate->plan);
      take(*candidate, pipeline::polish(problem_, candidate->plan, objective_, deadline, kPolishEvaluations));
    }
    std::stable_sort(found.begin(), found.end(), [&](const Candidate& a, const Candidate& b) { return better(a, b); });
    started.clear();
    const std::vector<Candidate> starts = found;
    for (const Candidate& candidate : starts) {
      if (started.size() == kMostExplored) break;
      if (std::find(started.begin(), started.end(), candidate.plan) != started.end()) continue;
      if (deadline.reached()) {
        cut_ = true;
        return;
      }
      started.push_back(candidate.plan);
      take(candidate, pipeline::explore(problem_, candidate.plan, objective_, deadline, kExploreEvaluations));
    }
  }

  double length(const Candidate& candidate) const {
    return objective_ == Objective::kValue ? candidate.value_ms : candidate.simulated_ms;
  }

  void bound(PlanResult& result) {
    LowerBound bound;
    if (proof_ && is_proof(*proof_)) {
      bound = *proof_;
    } else {
      double seconds = seconds_until(1);
      if (request_.planner == PlannerKind::kPolicy || request_.planner == PlannerKind::kRollouts) {
        // With many stage counts or devices it would not get further than sums.
        const bool small = first_stages_ == last_stages_ && problem_.num_devices() <= kManyDevices;
        seconds = small ? std::min(kPolicyBoundSeconds, seconds) : 0;
      } else if (request_.planner != PlannerKind::kAuto && request_.planner != PlannerKind::kExact) {
        seconds = std::min(kQuickBoundSeconds, seconds);
      }
      if (seconds > 0) {
        bound = pipeline::lower_bound_all_cuts(problem_, request_.schedules, first_stages_, last_stages_,
                                               smallest_value_ms_, seconds, request_.cancelled);
      } else {
        bound = simple_bound();
      }
      proof_ms_ = ms_since(start_);
      if (proof_ && proof_->ms > bound.ms) bound = *proof_;
    }
    result.lower_bound_ms = std::min(bound.ms, smallest_value_ms_);
    result.lower_bound_method = bound.method;
    result.gap = result.lower_bound_ms > 0 ? result.step_ms / result.lower_bound_ms - 1 : 0;
    if (result.lower_bound_ms > 0 && result.gap <= kProvenGap) result.proven_ms = proof_ms_;
  }

  LowerBound simple_bound() const {
    LowerBound bound;
    bound.ms = kInfinity;
    bound.method = "balance of work";
    for (const auto& [schedule, by_stages] : simple_bounds_ms_) {
      for (int stages = first_stages_; stages <= last_stages_; ++stages) {
        bound.ms = std::min(bound.ms, by_stages[at(stages - 1)]);
      }
    }
    return bound;
  }

  // A plan whose largest share of a device's memory is small, and that share; by stage count in `by_stages` when given.
  // Balanced on several device shares for every stage count; device cuts of the best moved while that helps.
  std::optional<Plan> lightest(double& least, std::map<int, double>* by_stages = nullptr) const {
    const Deadline deadline = Deadline::after(kExplainSeconds, request_.cancelled);
    std::optional<Plan> best;
    least = kInfinity;
    const auto consider = [&](const std::vector<int>& device_cuts, Schedule schedule) {
      std::optional<Plan> plan = pipeline::balanced_on(problem_, device_cuts, schedule, BalanceBy::kMemory);
      const double share = plan ? worst_stage(*plan).second : kInfinity;
      if (plan && by_stages != nullptr) {
        double& here = by_stages->emplace(plan->num_stages(), kInfinity).first->second;
        here = std::min(here, share);
      }
      if (!(share < least)) return false;
      least = share;
      best = std::move(plan);
      return true;
    };
    for (Schedule schedule : request_.schedules) {
      for (int stages = first_stages_; stages <= last_stages_; ++stages) {
        for (const std::vector<int>& cuts : pipeline::device_share_candidates(problem_, stages))
          consider(cuts, schedule);
      }
    }
    for (bool moved = best.has_value(); moved;) {
      moved = false;
      for (std::size_t b = 0; b < best->device_cuts.size(); ++b) {
        for (int step : {1, -1, 2, -2, 4, -4, 8, -8}) {
          if (deadline.reached()) return best;
          Plan next = *best;
          next.device_cuts[b] += step;
          if (pipeline::valid_structure(problem_, next) && consider(next.device_cuts, next.schedule)) moved = true;
        }
      }
    }
    return best;
  }

  // The stage (from 1) that uses the largest share of its devices' memory, and that share.
  std::pair<int, double> worst_stage(const Plan& plan) const {
    std::pair<int, double> worst = {0, -1};
    int p0 = 0, d0 = 0;
    for (int s = 1; s <= plan.num_stages(); ++s) {
      const bool last = s == plan.num_stages();
      const int p1 = last ? problem_.num_instructions() : plan.cuts[at(s - 1)];
      const int d1 = last ? problem_.num_devices() : plan.device_cuts[at(s - 1)];
      const DeviceGroup& group = problem_.group(d0, d1);
      const int k = pipeline::in_flight(plan.schedule, plan.num_stages(), s, problem_.micro_batches());
      const double share = problem_.memory_bytes(p0, p1, group, k) / group.capacity_bytes;
      if (share > worst.second) worst = {s, share};
      p0 = p1;
      d0 = d1;
    }
    return worst;
  }

  // The last resort before giving up: the plan that uses as little memory as possible.
  void balance_memory() {
    double least = kInfinity;
    const std::optional<Plan> plan = lightest(least);
    if (plan && pipeline::feasible(problem_, *plan)) add(plan, PlannerKind::kBalanced);
  }

  void explain(PlanResult& result) const {
    double least = kInfinity;
    std::map<int, double> shares;
    const std::optional<Plan> best = lightest(least, &shares);
    std::string by_stages;
    for (const auto& [stages, share] : shares) {
      char text[64];
      std::snprintf(text, sizeof text, "%s%d: %.0f %%", by_stages.empty() ? "" : ", ", stages, 100 * share);
      by_stages += text;
    }
    const std::string range = first_stages_ == last_stages_
                                  ? std::to_string(first_stages_) + (first_stages_ == 1 ? " stage" : " stages")
                                  : std::to_string(first_stages_) + " to " + std::to_string(last_stages_) + " stages";
    if (!best) {
      result.infeasible = "No plan of " + range +
                          ": the trainable variables cannot be spread so that every stage holds one. "
                          "--allow-empty-stages lifts that rule.";
      return;
    }
    if (!problem_.options().memory || least <= 1) {
      result.infeasible = "No feasible plan of " + range + " was found by the planners asked for. Try --planner auto.";
      return;
    }
    const auto [stage, share] = worst_stage(*best);
    const int d0 = stage == 1 ? 0 : best->device_cuts[at(stage - 2)];
    const int d1 = stage == best->num_stages() ? problem_.num_devices() : best->device_cuts[at(stage - 1)];
    const double available = problem_.group(d0, d1).capacity_bytes;
    result.available_memory_bytes = available;
    result.least_memory_bytes = share * available;
    result.infeasible = "No plan of " + range + " fits in memory. The lightest found has " +
                        std::to_string(best->num_stages()) + (best->num_stages() == 1 ? " stage" : " stages") + " (" +
                        to_string(best->schedule) + "): stage " + std::to_string(stage) + " needs " +
                        format_bytes(result.least_memory_bytes) + " of the " + format_bytes(available) +
                        " on each of its devices.";
    if (first_stages_ != last_stages_) {
      result.infeasible +=
          " Memory needed by stage count on even device shares, of what a device has: " + by_stages + ".";
    }
    result.infeasible +=
        " Smaller micro-batches, more or larger devices, or a smaller --state-factor (sharded or lighter optimizer "
        "state) would help; --memory off ignores the limit.";
  }

  const Problem& problem_;
  const PlanRequest& request_;
  Deadline::Clock::time_point start_;
  Objective objective_ = Objective::kSimulated;
  int first_stages_ = 1, last_stages_ = 1;
  std::map<Schedule, std::vector<double>> simple_bounds_ms_;  // [stages - 1], every planner asks again
  std::vector<int> pivots_;
  Deadline deadline_;
  bool cut_ = false;  // some part of the work ran out of time
  std::vector<Candidate> candidates_;
  std::map<PlannerKind, Candidate> best_of_;
  std::map<PlannerKind, double> spent_ms_;
  std::optional<Candidate> polished_;
  std::shared_ptr<const models::Policy> policy_;  // null: none
  std::map<std::pair<int, Schedule>, std::unique_ptr<models::PlanSpace>> spaces_;
  std::optional<LowerBound> proof_;
  double proof_ms_ = 0;  // when the lower bound was known
  double smallest_value_ms_ = kInfinity;
};

}  // namespace

const char* to_string(PlannerKind planner) {
  switch (planner) {
    case PlannerKind::kAuto: return "auto";
    case PlannerKind::kPolicy: return "policy";
    case PlannerKind::kRollouts: return "rollouts";
    case PlannerKind::kExact: return "exact";
    case PlannerKind::kBound: return "bound";
    case PlannerKind::kBalanced: return "balanced";
    case PlannerKind::kUniform: return "uniform";
    case PlannerKind::kLocalSearch: return "local-search";
    case PlannerKind::kDataParallel: return "data-parallel";
  }
  return "";
}

std::optional<PlannerKind> parse_planner(std::string_view name) {
  for (PlannerKind planner : all_planners()) {
    if (name == to_string(planner)) return planner;
  }
  return std::nullopt;
}

std::vector<PlannerKind> all_planners() {
  return {PlannerKind::kAuto,    PlannerKind::kPolicy,      PlannerKind::kRollouts,
          PlannerKind::kExact,   PlannerKind::kBound,       PlannerKind::kBalanced,
          PlannerKind::kUniform, PlannerKind::kLocalSearch, PlannerKind::kDataParallel};
}

const char* to_string(PlanLimit::Kind kind) {
  switch (kind) {
    case PlanLimit::Kind::kStage: return "stage";
    case PlanLimit::Kind::kTransfer: return "transfer";
    case PlanLimit::Kind::kRoundTrip: return "round-trip";
    case PlanLimit::Kind::kAllReduce: return "all-reduce";
  }
  return "";
}

PlanResult make_plan(const Problem& problem, const PlanRequest& request) {
  return Planning(problem, request).run();
}

std::vector<PlanLimit> plan_limits(const Problem& problem, const Plan& plan) {
  const PipelineTimes times = pipeline::pipeline_times(problem, plan);
  const int stages = times.num_stages();
  const int m = problem.micro_batches();
  const double steady = m - 1;
  const double value = pipeline::value_ms(problem, plan);
  double total = 0;
  for (int s = 0; s < stages; ++s) {
    total += times.forward_ms[at(s)] + times.backward_ms[at(s)] + (s + 1 < stages ? 2 * times.transfer_ms[at(s)] : 0);
  }

  // The path term that attains the maximum: what runs steadily in it, what one pass through the pipeline adds, and the
  // stalls of a stage whose micro-batches in flight do not cover its round trip. The same terms as path_length_ms.
  struct Term {
    double length = -1, steady_ms = 0, pass_ms = 0, stall_ms = 0;
    int stage = 0;
    bool transfer = false;
    int laps = 0;
  };
  Term longest;
  const auto consider = [&](const Term& term) {
    if (term.length > longest.length) longest = term;
  };
  double filled = 0;
  for (int s = 0; s < stages; ++s) {
    const double f = times.forward_ms[at(s)], b = times.backward_ms[at(s)], stage = f + b;
    const double before = filled;
    filled += stage;
    Term term;
    term.stage = s + 1;
    term.steady_ms = steady * stage;
    term.pass_ms = filled;
    term.length = term.steady_ms + term.pass_ms;
    consider(term);
    if (problem.options().value == ValueForm::kFull) {
      const int k = pipeline::in_flight(plan.schedule, stages, s + 1, m);
      term.pass_ms = total - (k - 1) * std::min(f, b);
      term.length = term.steady_ms + term.pass_ms;
      consider(term);
      if (m > k) {
        const double stall = total - before - k * stage;
        const int laps = (m - 1) / k;
        term.pass_ms = total;
        term.stall_ms = std::max(stall, laps * stall);
        term.laps = laps;
        term.length = term.steady_ms + term.pass_ms + term.stall_ms;
        if (term.stall_ms < 0) {
          // A stage that hides part of the pass: one number for both.
          term.pass_ms += term.stall_ms;
          term.stall_ms = 0;
        }
        consider(term);
      }
    }
    if (s + 1 < stages) {
      const double t = times.transfer_ms[at(s)];
      filled += 2 * t;
      Term link;
      link.stage = s + 1;
      link.transfer = true;
      link.steady_ms = steady * t;
      link.pass_ms = filled;
      link.length = link.steady_ms + link.pass_ms;
      consider(link);
    }
  }

  std::vector<PlanLimit> limits;
  const auto add = [&](PlanLimit::Kind kind, int stage, double ms, std::string text) {
    if (!(ms > 0)) return;
    PlanLimit limit;
    limit.kind = kind;
    limit.stage = stage;
    limit.ms = ms;
    limit.share = ms / value;
    limit.text = std::move(text) + " (" + format_percent(limit.share) + " of the step)";
    limits.push_back(std::move(limit));
  };
  const std::string stage_name = "stage " + std::to_string(longest.stage);
  const std::string steps = std::to_string(m - 1) + (m == 2 ? " steady step" : " steady steps");
  if (longest.transfer) {
    add(PlanLimit::Kind::kTransfer, longest.stage, longest.steady_ms,
        "the transfer from " + stage_name + " to stage " + std::to_string(longest.stage + 1) + " takes " +
            format_ms(times.transfer_ms[at(longest.stage - 1)]) +
            " per micro-batch each way: " + format_ms(longest.steady_ms) + " in " + steps);
  } else {
    const double stage_ms = times.forward_ms[at(longest.stage - 1)] + times.backward_ms[at(longest.stage - 1)];
    add(PlanLimit::Kind::kStage, longest.stage, longest.steady_ms,
        stage_name + " computes " + format_ms(stage_ms) + " per micro-batch: " + format_ms(longest.steady_ms) + " in " +
            steps);
  }
  add(PlanLimit::Kind::kRoundTrip, longest.stage, longest.stall_ms,
      stage_name + " keeps " + std::to_string(pipeline::in_flight(plan.schedule, stages, longest.stage, m)) +
          " micro-batches in flight, too few for the round trip behind it: it waits " +
          format_ms(longest.stall_ms / std::max(1, longest.laps)) +
          (longest.laps == 1 ? " once" : " in each of " + std::to_string(longest.laps) + " rounds"));
  add(PlanLimit::Kind::kRoundTrip, stages == 1 ? 1 : longest.stage, longest.pass_ms,
      stages == 1 ? "one micro-batch takes " + format_ms(longest.pass_ms) + ", forward and backward"
                  : "filling and draining the pipeline takes " + format_ms(longest.pass_ms));
  int exposed_stage = 0;
  double exposed = 0, drained = 0;
  for (int s = 0; s < stages; ++s) {
    if (times.allreduce_ms[at(s)] - drained > exposed) {
      exposed = times.allreduce_ms[at(s)] - drained;
      exposed_stage = s + 1;
    }
    drained += times.backward_ms[at(s)] + (s + 1 < stages ? times.transfer_ms[at(s)] : 0);
  }
  if (exposed_stage > 0) {
    const double all = times.allreduce_ms[at(exposed_stage - 1)];
    add(PlanLimit::Kind::kAllReduce, exposed_stage, exposed,
        "the gradient all-reduce of stage " + std::to_string(exposed_stage) + " takes " + format_ms(all) +
            (exposed < all * (1 - 1e-9) ? ", of which the backward passes hide all but " + format_ms(exposed)
                                        : ", and nothing hides it"));
  }
  std::stable_sort(limits.begin(), limits.end(), [](const PlanLimit& a, const PlanLimit& b) { return a.ms > b.ms; });
  AM_CHECK(!limits.empty());
  return limits;
}

}  // namespace automap::infer
