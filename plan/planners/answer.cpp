#include "plan/planners/answer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <utility>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/numbers.h"
#include "plan/planners/leaner.h"
#include "plan/planners/least_work.h"
#include "plan/planners/mixed_search.h"
#include "plan/planners/step_bounds.h"
#include "plan/planners/step_choice.h"

namespace automap::planners {
namespace {

// Plans that fill a device so far may be what memory left of longer ones.
constexpr double kMemoryDecides = 0.9;

// True if no plan fits into memory, or a device of the plan is nearly full.
bool memory_decides(const StepPlan& found) {
  if (!found.result.plan) return found.result.least_memory_bytes > 0;
  return fullest_share(place(*found.problem, *found.result.plan)) > kMemoryDecides;
}

// Searches with both profiles where memory decides.
StepPlan search_within_memory(Question& question, const OtherProfile& other, bool* other_profile) {
  StepPlan found = search_step(question);
  if (!other || answers_at_once(question.request.planner) || found.result.cut_by_time || question.request.stopped() ||
      !memory_decides(found)) {
    return found;
  }
  Question second = question;
  second.set_profile(other());
  apply_framework(second);
  StepPlan instead = search_step(second);
  if (found.result.length_ms() <= instead.result.length_ms()) return found;
  question = std::move(second);
  *other_profile = true;
  return instead;
}

Answer answer_of(StepPlan found) {
  Answer out;
  out.bounds = bounds_of(found);
  out.widths = std::move(found.widths);
  out.why_fewer = std::move(found.why_fewer);
  out.free_plan_ms = found.free_plan_ms;
  out.notes = static_cast<const SearchNotes&>(found.result);
  out.one_width = candidate_of("this plan", std::move(found));
  return out;
}

// By what the question judges plans by; another objective than the simulation knows no kind that is.
bool shorter(const Candidate& one, const Candidate& than, const SearchNotes& notes) {
  return notes.objective == Objective::kSimulated && one.simulated_step_ms < than.simulated_step_ms * (1 - kProvenGap);
}

// In place of the plan: bounds are about it, too.
void put_in_place(const Question& question, Candidate own, Answer* out) {
  out->bounds.include(
      own.size, least_step_bound_ms(question.profile(), question.cluster, question.options.replicas, own.size.batch()),
      kWorkAndWay);
  out->bounds.hold(own.step_ms, own.simulated_step_ms);
  if (own.size.devices == 0) out->why_fewer.clear();
  if (out->free_plan_ms > 0) out->free_plan_ms = std::min(out->free_plan_ms, own.simulated_step_ms);
  out->notes.proven_ms = 0;
  out->one_width = std::move(own);
}

// Makes a candidate of one width the plan, if it is as asked and shorter.
bool take(const Question& question, Candidate& one, Answer* out) {
  if (!one.found() || !one.of_one_width() || one.ordered() || !shorter(one, out->one_width, out->notes)) return false;
  std::optional<Candidate> own = as_asked(question, one, &one.left_out);
  if (!own || !expresses(*question.framework, *own, question.profile())) return false;
  put_in_place(question, std::move(*own), out);
  return true;
}

// A plan that was asked for may be shorter than what the look at its width found; the plan's own row is the plan.
void note_widths(const Question& question, const Candidate& one, Answer* out) {
  const Candidate& plan = out->one_width;
  const bool judged =
      one.found() && one.of_one_width() && !one.ordered() && out->notes.objective == Objective::kSimulated;
  for (WidthAlternative& of : out->widths) {
    if (of.width == plan.size.width) {
      of = {of.width, plan.num_stages(), plan.step_ms, plan.simulated_step_ms};
    } else if (judged && of.width == one.width() && one.simulated_step_ms < of.simulated_step_ms &&
               as_asked(question, one)) {
      of = {of.width, one.num_stages(), one.step_ms, one.simulated_step_ms};
    }
  }
}

// Takes the leanest of plans of the same length. A planner that was named keeps its own plan.
void prefer_lean(const Question& question, Answer* out) {
  if (question.request.planner != PlannerKind::kAuto || out->notes.objective != Objective::kSimulated || out->mixed ||
      out->notes.cut_by_time) {
    return;
  }
  Work work(question.request.time_limits());
  std::optional<LeanerPlan> found = leaner_plan(question, out->one_width, out->kinds, work);
  if (!found) return;
  const double shortest_ms = out->one_width.simulated_step_ms;
  const double proven_ms = out->notes.proven_ms;
  const bool same_v = found->plan.step_ms <= out->one_width.step_ms;
  put_in_place(question, std::move(found->plan), out);
  if (same_v) out->notes.proven_ms = proven_ms;
  out->leaner = std::move(found->text);
  note_widths(question, out->one_width, out);
  for (Candidate& one : out->kinds) {
    if (one.found() && one.left_out.empty() && one.simulated_step_ms < out->one_width.simulated_step_ms &&
        one.simulated_step_ms >= shortest_ms * (1 - kProvenGap)) {
      one.left_out = kLeanerTaken;
    }
  }
}

// True if it is the best so far of the only schedules asked for.
bool only_ordered(const Question& question, const Candidate& one, const Answer& out) {
  return one.ordered() && question.beside.only && out.notes.objective == Objective::kSimulated &&
         (!out.ordered || one.simulated_step_ms < out.ordered->simulated_step_ms);
}

[[noreturn]] void refuse_without_ordered(const Question& question, const Answer& out) {
  std::string why;
  for (const Candidate& one : out.kinds) {
    if (!one.found() && one.of_schedule == question.beside.only) why = one.why;
  }
  throw Error(ErrorKind::kInfeasible,
              std::string("no plan of the schedule ") + to_string(*question.beside.only) + " was found" +
                  (why.empty() ? "" : ": " + why),
              "--stages, --micro-batch or another --schedule may help");
}

// True if an ordered plan should be the plan: it is shorter by more than kSameLength, or shorter and no fuller.
bool worth_its_memory(const Candidate& one, const Candidate& than) {
  const bool leaner = one.memory_bytes * than.capacity_bytes <= than.memory_bytes * one.capacity_bytes;
  return leaner || one.simulated_step_ms < than.simulated_step_ms * (1 - kSameLength);
}

// All of the effort went to the width and the split of the batch that looks put first. Where a kind of plans comes to a
// shorter one at others, its split is planned as if it had been asked for.
bool plan_at_the_split(const Question& question, Answer* out) {
  Question at_split = question;
  at_split.step.micro_batch = std::llround(out->one_width.size.samples);
  Candidate again = candidate_of("this plan", search_step(at_split));
  const bool taken = take(question, again, out);
  note_widths(question, again, out);
  if (out->mixed && !shorter(*out->mixed, out->one_width, out->notes)) out->mixed.reset();
  return taken;
}

// Closes the bounds on plans of one width, in the rest of the time. Beside an ordered plan they are not needed.
void close(const Question& rest, const std::function<double()>& spent_ms, Answer* out) {
  Bounds& bounds = out->bounds;
  if (!bounds.open) return;
  if (out->ordered_is_plan()) {
    bounds.drop();
    return;
  }
  close_bounds(rest, &bounds);
  out->notes.planning_ms = spent_ms();
  if (out->mixed) return;
  double& proven_ms = out->notes.proven_ms;
  const bool proven = out->one_width.step_ms <= bounds.value_ms * (1 + kProvenGap);
  proven_ms = !proven ? 0 : proven_ms > 0 ? proven_ms : out->notes.planning_ms;
}

// A plan that the question's framework cannot run is no plan of any kind.
std::optional<Candidate> find(const KindRow& row, const KindTurn& turn) {
  const Question& question = turn.question;
  try {
    std::optional<Candidate> one = row.find(turn, row.name);
    if (!one || !one->found()) return one;
    const std::string lacks = inexpressible(*question.framework, *one, question.profile());
    if (lacks.empty()) return one;
    return no_candidate(row.name, std::string(question.framework->name) + " cannot run its shortest: " + lacks);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUsage && e.kind() != ErrorKind::kInfeasible) throw;
    return no_candidate(row.name, e.what());
  }
}

}  // namespace

Answer answer(Question& question, const std::vector<KindRow>& kinds, const OtherProfile& other) {
  apply_framework(question);
  bool other_profile = false;
  // If plans of one ordered schedule alone are asked for, the plans that the search starts from are no answer.
  const auto better = question.request.better;
  if (question.beside.only) question.request.better = {};
  Answer out = answer_of(search_within_memory(question, other, &other_profile));
  out.other_profile = other_profile;
  out.only_ordered = question.beside.only.has_value();
  const bool stopped = question.request.stopped();
  out.notes.cut_by_time = out.notes.cut_by_time || stopped;
  const auto start = std::chrono::steady_clock::now();
  const double searched_ms = out.notes.planning_ms;
  const auto spent_ms = [&] { return searched_ms + 1e3 * seconds_since(start); };
  Question rest = question;
  rest.request.better = {};
  rest.step.batch = std::llround(out.one_width.size.batch());
  const auto out_of_time = [&] {
    rest.request.time_limit_s = question.request.time_limit_s - spent_ms() * 1e-3;
    return !(rest.request.time_limit_s > 0) || question.request.stopped();
  };
  if (!out.one_width.found() || kinds.empty() || stopped) {
    out_of_time();
    close(rest, spent_ms, &out);
    out.notes.cut_by_time = out.notes.cut_by_time || (out.one_width.found() && out_of_time());
    return out;
  }
  const auto tell = [&] {
    if (!better || out.notes.objective != Objective::kSimulated || (question.beside.only && !out.ordered)) return;
    better(out.plan().placed, out.plan().simulated_step_ms);
  };
  tell();
  bool any_widths = false;
  std::optional<Sweep> grids;
  std::vector<Candidate> starts;
  const StepSize searched = out.one_width.size;
  const auto ask = [&](const KindRow& row) {
    if (!row.asked(question) || out_of_time()) return;
    std::optional<Candidate> one = find(row, {rest, out.one_width, out.bounds, out.kinds, grids, starts});
    if (!one) return;
    one->of_schedule = row.schedule;
    const bool becomes = one->ordered() && shorter(*one, out.plan(), out.notes) && worth_its_memory(*one, out.plan());
    if (becomes || only_ordered(question, *one, out)) {
      out.ordered = *one;
      out.notes.found_ms = spent_ms();
      out.notes.proven_ms = 0;
    }
    if (take(question, *one, &out)) out.notes.found_ms = spent_ms();
    note_widths(question, *one, &out);
    if (one->mixed && shorter(*one, out.one_width, out.notes) && !question.beside.only) {
      out.mixed = *one;
      out.notes.found_ms = spent_ms();
      out.notes.proven_ms = 0;
    }
    tell();
    out.kinds.push_back(std::move(*one));
    any_widths = any_widths || row.any_widths;
  };
  for (const KindRow& row : kinds) {
    if (!row.after_bounds) ask(row);
  }
  if (!out.ordered_is_plan()) {
    out_of_time();
    close(rest, spent_ms, &out);
  }
  for (const KindRow& row : kinds) {
    if (row.after_bounds) ask(row);
  }
  if (out.mixed && !shorter(*out.mixed, out.one_width, out.notes)) out.mixed.reset();
  const StepSize& of_plan = out.one_width.size;
  if ((of_plan.samples != searched.samples || of_plan.width != searched.width) && !out_of_time()) {
    if (plan_at_the_split(rest, &out)) out.notes.found_ms = spent_ms();
    tell();
  }
  if (!out_of_time() && !question.beside.only) prefer_lean(rest, &out);
  if (question.beside.only && !out.ordered) refuse_without_ordered(question, out);
  for (Candidate& one : out.kinds) {
    if (one.simulated_step_ms >= out.plan().simulated_step_ms) {
      one.left_out.clear();  // what became longer than the plan meanwhile needs no reason
    } else if (one.found() && one.left_out.empty()) {
      if (question.beside.only) {
        one.left_out = std::string("--schedule ") + to_string(*question.beside.only) + " is asked for";
      } else if (one.ordered() && out.notes.objective == Objective::kSimulated) {
        one.left_out = kLeanerTaken;
      }
    }
  }
  if (out.ordered_is_plan()) {
    out.leaner.clear();  // it is about the alternating plan
    for (WidthAlternative& of : out.widths) {
      if (of.width != out.ordered->size.width) continue;
      of = {of.width, out.ordered->num_stages(), out.ordered->step_ms, out.ordered->simulated_step_ms};
    }
  }
  out_of_time();
  close(rest, spent_ms, &out);
  if (out.ordered) {
    out.any_order.value_ms = out.any_order.simulated_ms =
        least_step_bound_ms(question.profile(), question.cluster, question.options.replicas, out.ordered->size.batch());
    out.any_order.method = kWorkAndWay;
    out.any_order.hold(out.ordered->step_ms, out.ordered->simulated_step_ms);
  }
  if (any_widths && out.bounds.value_ms > 0 && !out_of_time()) {
    out.any_widths = out.bounds;
    if (out.mixed) out.any_widths.considered.push_back(out.mixed->size);  // it may be of another split than all others
    const pipeline::LowerBound any = any_width_bound(rest, out.one_width, out.any_widths);
    out.any_widths.value_ms = out.any_widths.simulated_ms = any.ms;
    out.any_widths.method = any.method;
  }
  const bool searched_all = question.request.planner == PlannerKind::kAuto && question.request.lower_bound;
  if (searched_all && !out.notes.cut_by_time && !out_of_time()) {
    out.relaxed = relaxed_rules(rest, out.one_width, out.plan().simulated_step_ms);
  }
  out.notes.cut_by_time = out.notes.cut_by_time || out_of_time();
  out.notes.planning_ms = spent_ms();
  std::stable_sort(out.kinds.begin(), out.kinds.end(), [](const Candidate& a, const Candidate& b) {
    return std::make_pair(!a.found(), a.simulated_step_ms) < std::make_pair(!b.found(), b.simulated_step_ms);
  });
  return out;
}

LayerResult split_at_layers(const Question& question, const Answer& found) {
  const PlanRequest& request = question.request;
  const Candidate& one = found.one_width;
  // Others are none of the framework's; and of ordered schedules only the plan's own cuts are told.
  if (question.framework->cuts != FrameworkCuts::kInstructions || found.plan().ordered()) {
    LayerResult same;
    same.split = as_layer_split(found.plan().placed, question.profile());
    return same;
  }
  LayerOptions layers;
  layers.min_stages = std::max(1, request.stages);
  layers.max_stages = request.stages > 0 ? request.stages : request.max_stages;
  layers.quick = answers_at_once(request.planner);
  if (request.planner == PlannerKind::kPolicy) layers.policy = request.policy.get();
  layers.units = request.effort.layer_units;
  layers.time_limit_s = std::max(0.0, request.time_limit_s - found.notes.planning_ms / 1e3);
  LayerResult at_layers = split_at_layers(*one.problem, question.profile(), one.plan, layers);
  if (at_layers.split) {
    for (int& cut : at_layers.split->device_cuts) cut *= one.size.width;
    at_layers.split->widths.assign(at_layers.split->cuts.size() + 1, one.size.width);
  }
  if (!found.mixed) return at_layers;
  LayerResult of_several = split_mixed_at_layers(*found.mixed->mixed, question.profile(), found.mixed->mixed_plan());
  of_several.cut_by_time = at_layers.cut_by_time;
  const bool longer = !of_several.split ||
                      (at_layers.split && at_layers.split->simulated_step_ms < of_several.split->simulated_step_ms);
  return longer && at_layers.split ? at_layers : of_several;
}

}  // namespace automap::planners
