#include "plan/planners/order_search.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/base/numbers.h"
#include "common/base/work.h"
#include "common/pipeline/coarse_profile.h"
#include "common/pipeline/list_scheduler.h"
#include "common/pipeline/placed_work.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/warmup.h"
#include "plan/planners/even_search.h"

namespace automap::planners {
namespace {

using pipeline::Plan;
using pipeline::Problem;
using pipeline::Schedule;

// Plans that are so much longer than the best may become shorter when their cuts are moved.
constexpr double kCutsGain = 0.05;
// The most times that cuts and order are searched in turn.
constexpr int kMostTurns = 3;

// Lists of work for a plan whose groups stand.
class OrderSearch {
 public:
  OrderSearch(const KindTurn& turn, const char* name)
      : turn_(turn),
        work_(limits_of(turn.question.request)),
        ends_(part_ends(turn.question)),
        best_(no_candidate(name, "")),
        name_(name) {}

  // Tries a plan's placements (linear, as a V and round robin), with the backward in one pass and in two.
  void look(const Candidate& one) {
    const std::shared_ptr<const Problem>& problem = one.problem;
    const Plan& plan = one.plan;
    const bool splits = turn_.question.beside.split_backward && can_split(*problem, plan);
    for (const bool split : {false, true}) {
      if (split && !splits) continue;
      Plan linear = plan;
      linear.split_backward = split;
      if (plan.chunks != 2) take(problem, linear);
      if (!alike(*problem, plan)) continue;
      for (const pipeline::Placement placement : {pipeline::Placement::kV, pipeline::Placement::kRoundRobin}) {
        Plan parts = plan;
        parts.split_backward = split;
        parts.chunks = 2;
        parts.placement = placement;
        const bool as_given = plan.chunks == 2 && placement == plan.placement;
        if (as_given || balance(one, &parts)) take(problem, parts);
      }
    }
  }
  Candidate best() {
    if (!best_.found() && best_.why.empty()) best_.why = "no order of several stages is shorter than the best plan's";
    return std::move(best_);
  }

 private:
  static WorkLimits limits_of(const PlanRequest& request) {
    WorkLimits limits = request.time_limits();
    if (request.effort.units < WorkLimits::kNoEnd) limits.units = request.effort.units / 2;
    return limits;
  }

  // Parts of about equal compute that end where the framework cuts.
  bool balance(const Candidate& one, Plan* parts) const {
    const Question& question = turn_.question;
    const int stages = one.num_stages();
    if (ends_.empty()) return balance_parts(*one.problem, stages, parts);
    std::vector<int> ends = ends_;
    ends.push_back(question.profile().size());
    Question coarse = question;
    coarse.set_profile(pipeline::coarse_profile(question.profile(), ends));
    if (!balance_parts(*problem_of(coarse, one.size, one.problem->options()), stages, parts)) return false;
    for (int& cut : parts->cuts) cut = ends[at(cut - 1)];
    return true;
  }

  static bool can_split(const Problem& problem, const Plan& plan) {
    for (int s = 1; s <= plan.num_stages(); ++s) {
      if (!splits_backward(problem.variant(plan.variant(s)))) return false;
    }
    return problem.has_weights_pass();
  }

  static bool alike(const Problem& problem, const Plan& plan) {
    const int stages = plan.num_stages(), size = problem.num_devices() / stages;
    for (int s = 1; s < stages; ++s) {
      if (plan.device_cuts[at(s - 1)] != s * size || plan.variant(s) != plan.variant(s + 1)) return false;
    }
    return size * stages == problem.num_devices();
  }

  void take(const std::shared_ptr<const Problem>& problem, Plan plan) {
    if (work_.over()) return;
    const int micro_batches = problem->micro_batches();
    plan.schedule = Schedule::kSearched;
    plan.warmup.clear();
    plan.order = std::make_shared<const pipeline::WorkOrder>();
    const pipeline::PlacedPlan placed = place(*problem, plan);
    pipeline::WorkTimes times = work_times(placed);
    const double others = turn_.question.beside.only ? kInfinity : shortest_so_far();
    const double shortest = std::min(best_.found() ? best_.simulated_step_ms : kInfinity, others);
    const double hopeless = shortest * (1 + kCutsGain);
    if (!(any_order_bound_ms(times, micro_batches) < hopeless * (1 - kProvenGap))) return;
    const PlanEffort& effort = turn_.question.request.effort;
    pipeline::SearchedOrder found =
        search_order(times, micro_batches, named_orders(placed, times, own_warmup(plan)), effort.order_tries, &work_);
    if (!(found.step_ms < hopeless)) return;
    // Cuts stay where the framework cuts at layers and no ends are known, or where the cuts are not among the ends.
    const bool anywhere = turn_.question.framework->cuts == FrameworkCuts::kInstructions;
    const bool may_move = ends_.empty() ? anywhere : std::all_of(plan.cuts.begin(), plan.cuts.end(), [&](int cut) {
      return std::binary_search(ends_.begin(), ends_.end(), cut);
    });
    for (int turns = 0; may_move && turns < kMostTurns && !work_.over(); ++turns) {
      double moved_ms = found.step_ms;
      move_cuts(*problem, found.order, ends_, effort.even_moves, work_, &plan, &moved_ms);
      if (!(moved_ms < found.step_ms)) break;
      times = work_times(place(*problem, plan));
      found = search_order(times, micro_batches, {std::move(found.order)}, effort.order_tries / 2, &work_);
    }
    if (!(found.step_ms < shortest)) return;
    keep_less(times, micro_batches, found);
    plan.order = std::make_shared<const pipeline::WorkOrder>(std::move(found.order));
    if (!feasible(*problem, plan)) return;
    Candidate one = candidate_of(name_, problem, std::move(plan));
    const Question& question = turn_.question;
    if (expresses(*question.framework, one, question.profile())) best_ = std::move(one);
  }

  // In as little memory as a step hardly longer needs, by halves of what there is.
  void keep_less(const pipeline::WorkTimes& times, int micro_batches, pipeline::SearchedOrder& found) {
    if (!(*std::max_element(times.room_bytes.begin(), times.room_bytes.end()) < kInfinity)) return;
    const double longest = found.step_ms * (1 + pipeline::kWarmupSlack);
    const int tries = turn_.question.request.effort.order_tries / 4;
    // Room for what the order found keeps, and less.
    pipeline::WorkTimes narrow = times;
    for (std::size_t g = 0; g < narrow.room_bytes.size(); ++g) {
      narrow.room_bytes[g] = kept_at_most(found.order[g], times.stash_bytes, times.split_backward()).bytes;
    }
    const auto fits_in = [&](double share) {
      pipeline::WorkTimes less = narrow;
      for (double& room : less.room_bytes) room *= share;
      pipeline::SearchedOrder leaner = search_order(less, micro_batches, {}, tries, &work_);
      if (!(leaner.step_ms <= longest)) return false;
      found = std::move(leaner);
      return true;
    };
    double share = 1;
    while (!work_.over() && share > 1e-3 && fits_in(share / 2)) share /= 2;
    if (!work_.over()) fits_in(0.75 * share);
  }

  // The warm-up of the best alternating plan, if it has the same stages.
  std::vector<int> own_warmup(const Plan& plan) const {
    const Candidate& best = turn_.best;
    return best.of_one_width() && best.plan.cuts == plan.cuts ? in_flight_of(best.placed) : std::vector<int>();
  }

  double shortest_so_far() const {
    double ms = turn_.best.simulated_step_ms;
    for (const Candidate& one : turn_.earlier) {
      if (one.ordered()) ms = std::min(ms, one.simulated_step_ms);
    }
    return ms;
  }

  // Those of the other rows of schedules that fit into memory.
  static std::vector<pipeline::WorkOrder> named_orders(const pipeline::PlacedPlan& placed,
                                                       const pipeline::WorkTimes& times,
                                                       const std::vector<int>& adaptive) {
    const int stages = placed.num_stages(), micro_batches = placed.problem().micro_batches();
    const Plan& plan = placed.plan;
    std::vector<pipeline::WorkOrder> orders;
    if (plan.chunks == 1 && !plan.split_backward) {
      orders.push_back(pipeline::alternating_order(most_in_flight(placed), micro_batches));
      if (adaptive.size() == at(stages)) orders.push_back(pipeline::alternating_order(adaptive, micro_batches));
    }
    for (const Schedule named : {Schedule::kInterleaved, Schedule::kZbH1, Schedule::kZbV}) {
      Plan as_named = plan;
      as_named.schedule = named;
      if (plan.chunks == 1 && named == Schedule::kInterleaved) continue;  // it is 1F1B
      if (!shape_expected(as_named).empty() || !micro_batches_fault(named, stages, micro_batches).empty()) continue;
      pipeline::PlacedPlan other = placed;
      other.plan = std::move(as_named);
      orders.push_back(order_of(other, times));
    }
    const auto too_large = [&](const pipeline::WorkOrder& order) {
      for (std::size_t g = 0; g < order.size(); ++g) {
        if (kept_at_most(order[g], times.stash_bytes, times.split_backward()).bytes > times.room_bytes[g]) return true;
      }
      return false;
    };
    orders.erase(std::remove_if(orders.begin(), orders.end(), too_large), orders.end());
    return orders;
  }

  const KindTurn& turn_;
  Work work_;
  const std::vector<int> ends_;  // of parts; empty: anywhere
  Candidate best_;
  const char* name_;
};

}  // namespace

std::optional<Candidate> searched_order(const KindTurn& turn, const char* name) {
  std::vector<const Candidate*> starts;
  if (turn.best.num_stages() > 1) starts.push_back(&turn.best);
  const auto add = [&](const Candidate& one) {
    if (one.ordered() && one.of_one_width() && one.num_stages() > 1) starts.push_back(&one);
  };
  for (const Candidate& one : turn.earlier) add(one);
  std::vector<const Candidate*> near;
  for (const Candidate& one : turn.starts) near.push_back(&one);
  std::stable_sort(near.begin(), near.end(),
                   [](const Candidate* a, const Candidate* b) { return a->simulated_step_ms < b->simulated_step_ms; });
  near.resize(std::min(near.size(), static_cast<std::size_t>(turn.question.request.effort.order_starts)));
  for (const Candidate* one : near) add(*one);
  if (starts.empty()) {
    if (turn.question.beside.only == Schedule::kSearched) return no_candidate(name, "the best plans have one stage");
    return std::nullopt;
  }
  OrderSearch search(turn, name);
  for (const Candidate* one : starts) search.look(*one);
  return search.best();
}

}  // namespace automap::planners
