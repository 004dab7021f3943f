#include "plan/planners/planning.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/base/text_table.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/warmup.h"
#include "models/policy_search.h"
#include "models/usable_device_cuts.h"
#include "plan/planners/shipped_policy.h"

namespace automap::planners {

using pipeline::LowerBound;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::Schedule;

namespace {

// The number of the best candidates that are polished, besides the best of every planner, stage count and schedule; and
// the number of the resulting plans that are explored further.
constexpr int kMostPolished = 12;
constexpr std::size_t kMostExplored = 8;
// Candidates so near to the best get the warm-up that counts, so many at most.
constexpr double kWarmupWithin = 1.05;
constexpr std::size_t kMostJudged = 8;
constexpr int kMostJudgedAlike = 2;  // of one stage count
// Candidates of a stage count whose V is this much above the best one's are not worth a corridor.
constexpr double kRefineWithin = 1.15;
// The units of work for the bound where a quick planner alone is asked for, so that the answer comes at once.
constexpr std::int64_t kQuickBoundUnits = 30'000'000;
constexpr std::int64_t kPolicyBoundUnits = 4'000'000;
// Above so many devices the bound of a policy's plan comes from sums alone.
constexpr int kManyDevices = 64;
// Plans of one stage count that get a corridor.
constexpr int kMostRefined = 4;
// The parts of the work after which `auto` goes on, beside those of the planners (planner_rows.cpp). A planner asked
// for alone has (with the polishing, if any) all of the work but what the bound needs.
constexpr double kBeamUntil = 0.3;
constexpr double kProofUntil = 0.35;  // over all cuts; ends `auto` early when the objective is V
constexpr double kPolishUntil = 0.8;
constexpr double kAloneUntil = 0.8;
// To look for the plan that needs least memory, when nothing fits; units of work.
constexpr std::int64_t kLightestUnits = 500'000'000;

// About ten significant digits.
double without_last_digits(double ms) {
  constexpr int kBits = 33;
  int exponent = 0;
  const double mantissa = std::frexp(ms, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, kBits)), exponent - kBits);
}

}  // namespace

std::string Planning::Candidate::name() const {
  return std::string(to_string(planner)) + (way.beam ? "+beam" : "") + (way.refined ? "+refine" : "") +
         (way.polished ? "+polish" : "");
}

double Planning::ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

Objective objective_of(const PlanRequest& request) {
  const bool simulated = request.planner == PlannerKind::kAuto || request.planner == PlannerKind::kOnline;
  return request.objective.value_or(simulated ? Objective::kSimulated : Objective::kValue);
}

Planning::Planning(const Problem& problem, const PlanRequest& request)
    : problem_(problem),
      request_(request),
      start_(Clock::now()),
      work_(limits(request.effort.units, request.time_limit_s)),
      patient_(limits(WorkLimits::kNoEnd, kInfinity)) {
  check();
  objective_ = objective_of(request);
  first_stages_ = request.stages > 0 ? request.stages : 1;
  last_stages_ = request.stages > 0 ? request.stages
                                    : std::min({request.max_stages, problem.num_devices(), problem.num_instructions()});
  pivots_ = request.grid == 0 ? std::vector<int>() : pipeline::grid_pivots(problem.num_instructions(), request.grid);
  policy_ = request.policy;
  const bool wanted = request.planner == PlannerKind::kAuto || request.planner == PlannerKind::kPolicy ||
                      (request.planner == PlannerKind::kOnline && !request.online.from_scratch);
  if (!policy_ && request.use_policy && (wanted || request.all_planners)) policy_ = shipped_policy(objective_);
  if (policy_) check_plans(*policy_, "the policy");
  if (!policy_ && request.planner == PlannerKind::kPolicy) {
    throw Error(ErrorKind::kConfig, "no policy: this build of AutoMap has none compiled in",
                "name a trained one with --policy FILE (automap-train makes them), or use --planner rollouts");
  }
  for (Schedule schedule : request.schedules) {
    simple_bounds_ms_[schedule] = pipeline::simple_lower_bounds_ms(problem, schedule, last_stages_);
  }
}

PlanResult Planning::run() {
  PlanResult result;
  result.objective = objective_;
  const bool everything = request_.planner == PlannerKind::kAuto;
  if (everything) {
    run_all();
  } else {
    propose(row_of(request_.planner), request_.beam);
    if (best_of_.empty() && request_.planner == PlannerKind::kBalanced) balance_memory();
  }
  std::optional<Candidate> winner = best_candidate();
  if (winner && everything) winner = best_with_warmup(*winner);
  if (request_.all_planners && !everything) {
    for (const PlannerRow& row : planner_rows()) {
      if (row.kind != request_.planner && !row.only_asked) propose(row, request_.beam);
    }
  }
  if (winner) {
    result.plan = plain(winner->plan);
    pipeline::choose_warmup(problem_, *result.plan, &work_);
    result.planner = winner->name();
    result.step_ms = pipeline::value_ms(problem_, *result.plan);
    result.simulated_step_ms = pipeline::simulate_step_ms(problem_, *result.plan);
    result.found_ms = winner->found_ms;
    result.limits = plan_limits(problem_, *result.plan);
    if (request_.lower_bound) bound(result);
  } else {
    NothingFits why = explain_nothing_fits(problem_, stage_choice(), lightest());
    result.infeasible = std::move(why.text);
    result.least_memory_bytes = why.least_memory_bytes;
    result.available_memory_bytes = why.available_memory_bytes;
    result.devices_divide = why.devices_divide;
  }
  for (const auto& [planner, candidate] : best_of_) {
    result.alternatives.push_back({to_string(planner), candidate.plan.num_stages(), candidate.value_ms,
                                   candidate.simulated_ms, spent_ms_[planner], candidate.plan});
  }
  result.online = std::move(online_);
  result.cut_by_time = work_.stopped() || patient_.stopped();
  result.cut_by_effort = cut_ && !result.cut_by_time;
  result.work_units = work_.spent();
  result.planning_ms = ms_since(start_);
  return result;
}

// The same plan with stages as plain as they may be (the first variants are) with a step longer by kWarmupSlack at
// most.
Plan Planning::plain(Plan plan) const {
  if (plan.variants.empty()) return plan;
  const double most_ms = pipeline::length_ms(problem_, plan, objective_) * (1 + pipeline::kWarmupSlack);
  for (std::uint8_t& variant : plan.variants) {
    const std::uint8_t chosen = variant;
    for (variant = 0; variant < chosen; ++variant) {
      if (pipeline::feasible(problem_, plan) && pipeline::length_ms(problem_, plan, objective_) <= most_ms) break;
    }
  }
  return plan;
}

// `auto`: the cheapest planners first, until nothing can change the answer.
void Planning::run_all() {
  const PlannerRow& walker = row_of(policy_ ? PlannerKind::kPolicy : PlannerKind::kRollouts);
  bool walked_widely = false;
  for (const PlannerRow& row : planner_rows()) {
    if (row.only_asked) continue;
    // The last that costs milliseconds.
    if (row.until > walker.until && row.propose != nullptr && !std::exchange(walked_widely, true)) {
      propose(walker, request_.beam > 0 ? request_.beam : kBeam);
      if (settled() || prove()) return;
    }
    propose(row, row.walks ? 1 : request_.beam);
    if (settled()) return;
  }
  if (best_of_.empty()) balance_memory();
  if (request_.refine && !best_of_.empty()) polish_candidates();
}

// True if every stage count and schedule but the best plan's own is out of the question, and its own allows no other.
bool Planning::settled() const {
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

// When plans are judged by V: finds and proves the least V over all cuts at once, which settles everything. Returns
// false when it takes too long.
bool Planning::prove() {
  if (objective_ != Objective::kValue || !request_.lower_bound || request_.all_planners || best_of_.empty()) {
    return false;
  }
  const Clock::time_point begin = Clock::now();
  Work part(work_, units_until(kProofUntil));
  proof_ = pipeline::lower_bound_all_cuts(problem_, request_.schedules, first_stages_, last_stages_, smallest_value_ms_,
                                          part);
  proof_ms_ = ms_since(start_);
  if (proof_->better) {
    add(proof_->better, PlannerKind::kExact, Way());
    spent_ms_[PlannerKind::kExact] += ms_since(begin);
  }
  if (is_proof(*proof_)) return true;
  cut(part);
  return false;
}

bool Planning::is_proof(const LowerBound& bound) const {
  return bound.ms >= smallest_value_ms_ * (1 - kProvenGap);
}

void Planning::check() const {
  const auto refuse = [](const std::string& message, const std::string& hint = "") {
    throw Error(ErrorKind::kUsage, message, hint);
  };
  const auto whole = [&](int value, int low, int high, const char* name) {
    if (value < low || value > high) {
      refuse(std::string(name) + " is " + std::to_string(value) + ", expected " + std::to_string(low) + " to " +
             std::to_string(high));
    }
  };
  whole(request_.stages, 0, pipeline::kMaxPlanStages, "stages");
  whole(request_.max_stages, 1, pipeline::kMaxPlanStages, "max-stages");
  whole(request_.beam, 0, 1 << 20, "beam");
  whole(request_.grid, 0, 1 << 30, "grid");
  whole(request_.k_best, 1, 1000, "k-best");
  if (!(request_.time_limit_s > 0)) {
    refuse("time-limit is " + format_number(request_.time_limit_s) + " s, expected a number above 0");
  }
  if (row_of(request_.planner).walks && request_.stages > models::kMaxStages) {
    refuse(std::string("the planner ") + to_string(request_.planner) + " plans at most " +
               std::to_string(models::kMaxStages) + " stages, asked for " + std::to_string(request_.stages),
           "ask for fewer --stages, or another --planner");
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

WorkLimits Planning::limits(std::int64_t units, double seconds) {
  WorkLimits limits;
  limits.units = units;
  limits.seconds = seconds;
  limits.cancelled = [this] {
    if (request_.progress) request_.progress(work_.spent(), request_.effort.units);
    return request_.cancelled && request_.cancelled();
  };
  return limits;
}

bool Planning::cut(Work& part) {
  if (!part.over()) return false;
  cut_ = true;
  return true;
}

// The work of a planner's turn.
std::int64_t Planning::turn_of(const PlannerRow& planner, int beam) const {
  // The others of --all-planners come after the one asked for.
  if (request_.planner != PlannerKind::kAuto) return units_until(kAloneUntil);
  return units_until(beam > 1 ? std::max(planner.until, kBeamUntil) : planner.until);
}

// Units until `part` of the work is done.
std::int64_t Planning::units_until(double part) const {
  const std::int64_t units = request_.effort.units;
  if (units == WorkLimits::kNoEnd) return units;
  return std::max<std::int64_t>(0, std::llround(part * static_cast<double>(units)) - work_.spent());
}

// Shorter under the objective; then V, stages, schedule, who was first decide. Rounding makes equal lengths differ in
// their last digits: that must not decide.
bool Planning::better(const Candidate& a, const Candidate& b) const {
  const auto key = [&](const Candidate& c) {
    const double value = without_last_digits(c.value_ms), simulated = without_last_digits(c.simulated_ms);
    return std::make_tuple(objective_ == Objective::kValue ? value : simulated,
                           objective_ == Objective::kValue ? simulated : value, c.plan.num_stages(), c.order,
                           c.sequence);
  };
  return key(a) < key(b);
}

int Planning::server_radius() const {
  return request_.online.server_radius < 0 ? -1 : request_.online.server_radius / problem_.options().width;
}

bool Planning::near_servers(const Plan& plan) const {
  const std::vector<char> allowed = models::cuts_near_servers(problem_, server_radius());
  return std::all_of(plan.device_cuts.begin(), plan.device_cuts.end(), [&](int cut) { return allowed[at(cut)] != 0; });
}

bool Planning::add(const std::optional<Plan>& plan, PlannerKind planner, Way way) {
  if (!plan) return false;
  // A plan that is short by its bounds may still hold a stage that hardly works.
  if (!pipeline::feasible(problem_, *plan)) {
    AM_CHECK(!problem_.options().allow_idle_stages);
    return false;
  }
  if (planner == PlannerKind::kOnline && !near_servers(*plan)) return false;
  work_.spend(pipeline::judging_units(problem_, plan->num_stages(), Objective::kSimulated));
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
  return true;
}

std::optional<double> Planning::add(const std::optional<Plan>& plan, const Turn& turn, Way way) {
  if (!add(plan, turn.row.kind, way)) return std::nullopt;
  return length(candidates_.back());
}

std::optional<Planning::Candidate> Planning::best_candidate() const {
  const Candidate* best = nullptr;
  for (const Candidate& candidate : candidates_) {
    if (best == nullptr || better(candidate, *best)) best = &candidate;
  }
  if (polished_ && (best == nullptr || better(*polished_, *best))) best = &*polished_;
  return best == nullptr ? std::nullopt : std::optional<Candidate>(*best);
}

// Asks a planner for every stage count and schedule. `beam` 0: its usual width.
void Planning::propose(const PlannerRow& planner, int beam) {
  if (planner.propose == nullptr || (planner.needs_policy && !policy_)) return;
  const Clock::time_point begin = Clock::now();
  beam = std::max(beam, 1);
  Turn turn{planner, beam, planner.kind == request_.planner, Work(work_, turn_of(planner, beam))};
  planner.propose(*this, turn);
  spent_ms_[planner.kind] += ms_since(begin);
}

std::optional<Plan> Planning::walk(const models::Policy* policy, int stages, Schedule schedule, Turn& turn,
                                   std::vector<Plan>& runners_up) {
  std::unique_ptr<models::PlanSpace>& space = spaces_[{stages, schedule}];
  if (!space) {
    models::PlanSpaceOptions options;
    options.stages = stages;
    options.schedule = schedule;
    options.pivots = walk_pivots();
    options.server_radius = server_radius();
    space = std::make_unique<models::PlanSpace>(problem_, options);
    turn.work.spend(space->units());
  }
  models::PolicySearchOptions options;
  options.beam = turn.beam;
  options.objective = objective_;
  options.second_looks = policy_ == nullptr || turn.alone;
  // The first plan of all is worth waiting for, unless nobody does any more.
  const bool first = best_of_.empty();
  options.work = first ? &patient_ : &turn.work;
  const std::int64_t before = patient_.spent();
  std::optional<models::FoundPlan> found = models::search_plan(*space, policy, options);
  turn.work.spend(patient_.spent() - before);
  if (!found) return std::nullopt;
  runners_up = std::move(found->runners_up);
  return std::move(found->plan);
}

std::vector<int> Planning::walk_pivots() const {
  if (!pivots_.empty() && pivots_.size() <= static_cast<std::size_t>(models::kMostPivots)) return pivots_;
  return pipeline::grid_pivots(problem_.num_instructions(), models::kMostPivots);
}

double Planning::seconds_left() const {
  return std::max(0.0, request_.time_limit_s - ms_since(start_) / 1e3);
}

bool Planning::coarse() const {
  return !pivots_.empty() && pivots_.size() + 1 < at(problem_.num_instructions());
}

bool Planning::out_of_question(const PlannerRow& planner, int stages, Schedule schedule) const {
  const auto best = best_of_.find(planner.kind);
  if (best == best_of_.end()) return false;
  const double most =
      objective_ == Objective::kValue ? best->second.value_ms : kAboveSimulation * best->second.simulated_ms;
  return simple_bounds_ms_.at(schedule)[at(stages - 1)] > most;
}

double Planning::hopeless_ms() const {
  if (request_.planner != PlannerKind::kAuto || objective_ == Objective::kValue) return kInfinity;
  double best = kInfinity;
  for (const auto& [planner, candidate] : best_of_) best = std::min(best, candidate.simulated_ms);
  return kAboveSimulation * best;
}

std::optional<double> Planning::best_length(const PlannerRow& planner) const {
  const auto best = best_of_.find(planner.kind);
  return best == best_of_.end() ? std::nullopt : std::optional<double>(length(best->second));
}

void Planning::refine(const std::vector<Plan>& plans, Turn& turn, Way way, int most_in_vain) {
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
    if (cut(turn.work)) return;
    // Device cuts may move by two, but not out of a radius.
    const int by = server_radius() < 0 ? 2 : 0;
    add(pipeline::refine_in_corridor(problem_, *plan, 8, by, &turn.work), turn, way);
    if (candidates_.empty()) continue;
    in_vain = candidates_.back().value_ms < refined_ms * (1 - kProvenGap) ? 0 : in_vain + 1;
    if (in_vain == most_in_vain) return;
    refined_ms = std::min(refined_ms, candidates_.back().value_ms);
  }
}

// Moves judged by the objective from the best candidates and from the best of every planner, stage count and
// schedule; then kicks of the best few plans that came of it.
void Planning::polish_candidates() {
  Work turn(work_, units_until(kPolishUntil));
  std::vector<const Candidate*> order;
  for (const Candidate& candidate : candidates_) order.push_back(&candidate);
  std::stable_sort(order.begin(), order.end(), [&](const Candidate* a, const Candidate* b) { return better(*a, *b); });
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
    if (cut(turn)) return;
    ++taken;
    started.push_back(candidate->plan);
    take(*candidate, pipeline::polish(problem_, candidate->plan, objective_, turn, request_.effort.polish_evaluations));
  }
  std::stable_sort(found.begin(), found.end(), [&](const Candidate& a, const Candidate& b) { return better(a, b); });
  started.clear();
  const std::vector<Candidate> starts = found;
  for (const Candidate& candidate : starts) {
    if (started.size() == kMostExplored) break;
    if (std::find(started.begin(), started.end(), candidate.plan) != started.end()) continue;
    if (cut(turn)) return;
    started.push_back(candidate.plan);
    take(candidate, pipeline::explore(problem_, candidate.plan, objective_, turn, request_.effort.explore_evaluations));
  }
  if (!found.empty()) polished_all_ = std::move(found);
}

// Candidates are judged with a warm-up that is chosen quickly; the one that counts may turn them round: those nearly as
// short, and those that V puts first, which knows nothing of messages that come in bursts.
Planning::Candidate Planning::best_with_warmup(const Candidate& winner) {
  if (objective_ != Objective::kSimulated) return winner;
  const auto with_warmup = [&](Plan plan) {
    pipeline::choose_warmup(problem_, plan, &work_);
    return pipeline::simulate_step_ms(problem_, plan);
  };
  Candidate best = winner;
  double best_ms = with_warmup(winner.plan);
  std::vector<const Candidate*> order;
  for (const std::vector<Candidate>* all : {&candidates_, &polished_all_}) {
    for (const Candidate& candidate : *all) order.push_back(&candidate);
  }
  std::vector<Plan> judged = {winner.plan};
  const auto judge = [&](const auto& worth, const auto& before) {
    std::stable_sort(order.begin(), order.end(), before);
    std::map<int, int> of_stages;
    std::size_t taken = 0;
    for (const Candidate* candidate : order) {
      if (taken == kMostJudged || work_.over()) break;
      if (!worth(*candidate)) break;
      if (std::find(judged.begin(), judged.end(), candidate->plan) != judged.end()) continue;
      if (++of_stages[candidate->plan.num_stages()] > kMostJudgedAlike) continue;
      ++taken;
      judged.push_back(candidate->plan);
      const double ms = with_warmup(candidate->plan);
      if (!(ms < best_ms * (1 - pipeline::kWarmupSlack))) continue;
      best_ms = ms;
      best = *candidate;
    }
  };
  judge([&](const Candidate& c) { return length(c) <= kWarmupWithin * length(winner); },
        [&](const Candidate* a, const Candidate* b) { return better(*a, *b); });
  judge([&](const Candidate& c) { return c.value_ms < best_ms; },
        [](const Candidate* a, const Candidate* b) { return a->value_ms < b->value_ms; });
  return best;
}

double Planning::length(const Candidate& candidate) const {
  return objective_ == Objective::kValue ? candidate.value_ms : candidate.simulated_ms;
}

void Planning::bound(PlanResult& result) {
  LowerBound bound;
  if (proof_ && is_proof(*proof_)) {
    bound = *proof_;
  } else {
    std::int64_t units = units_until(1);
    if (row_of(request_.planner).walks) {
      // With many stage counts or devices it would not get further than sums.
      const bool small = first_stages_ == last_stages_ && problem_.num_devices() <= kManyDevices;
      units = small ? std::min(kPolicyBoundUnits, units) : 0;
    } else if (request_.planner != PlannerKind::kAuto && request_.planner != PlannerKind::kExact) {
      units = std::min(kQuickBoundUnits, units);
    }
    if (units > 0) {
      Work part(work_, units);
      bound = pipeline::lower_bound_all_cuts(problem_, request_.schedules, first_stages_, last_stages_,
                                             smallest_value_ms_, part);
    } else {
      bound = simple_bound();
    }
    proof_ms_ = ms_since(start_);
    if (proof_ && proof_->ms > bound.ms) bound = *proof_;
  }
  result.lower_bound_ms = std::min(bound.ms, smallest_value_ms_);
  result.lower_bound_method = bound.method;
  result.set_gap();
  if (result.lower_bound_ms > 0 && result.gap <= kProvenGap) result.proven_ms = proof_ms_;
}

LowerBound Planning::simple_bound() const {
  LowerBound bound;
  bound.ms = kInfinity;
  bound.method = pipeline::kBalanceOfWork;
  for (const auto& [schedule, by_stages] : simple_bounds_ms_) {
    for (int stages = first_stages_; stages <= last_stages_; ++stages) {
      bound.ms = std::min(bound.ms, by_stages[at(stages - 1)]);
    }
  }
  return bound;
}

// The last resort before giving up: the plan that uses as little memory as possible.
const LightestPlan& Planning::lightest() {
  if (!lightest_) {
    Work part(limits(kLightestUnits, kInfinity));
    lightest_ = lightest_plan(problem_, stage_choice(), part);
  }
  return *lightest_;
}

void Planning::balance_memory() {
  const std::optional<Plan>& plan = lightest().plan;
  if (plan && pipeline::feasible(problem_, *plan)) add(plan, PlannerKind::kBalanced, Way());
}

PlanResult make_plan(const Problem& problem, const PlanRequest& request) {
  return Planning(problem, request).run();
}

}  // namespace automap::planners
