// States the limits of a plan by V's own terms, in words.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/numbers.h"
#include "common/base/text_table.h"
#include "common/pipeline/placed_plan.h"
#include "common/pipeline/placed_work.h"
#include "common/pipeline/schedule.h"
#include "plan/planners/planner.h"

namespace automap::planners {

using pipeline::PipelineTimes;
using pipeline::PlacedPlan;
using pipeline::PlacedStage;
using pipeline::Plan;
using pipeline::Problem;
using pipeline::ValueForm;

namespace {

// K_s as V has it, of stage s from 0.
int value_in_flight(const PipelineTimes& times, const Problem& problem, const Plan& plan, int s) {
  return times.value_in_flight.empty()
             ? pipeline::in_flight(plan.schedule, times.num_stages(), s + 1, problem.micro_batches())
             : times.value_in_flight[at(s)];
}

// One micro-batch, forward and backward through the whole pipeline.
double round_trip_ms(const PipelineTimes& times) {
  const int stages = times.num_stages();
  double total = 0;
  for (int s = 0; s < stages; ++s) {
    total += times.forward_ms[at(s)] + times.backward_ms[at(s)] + (s + 1 < stages ? 2 * times.transfer_ms[at(s)] : 0);
  }
  return total;
}

// A path term: what runs steadily in it, what one pass through the pipeline adds, and the stalls of a stage whose
// micro-batches in flight do not cover its round trip.
struct Term {
  double length = -1, steady_ms = 0, pass_ms = 0, stall_ms = 0;
  int stage = 0;
  bool transfer = false;
  int laps = 0;
};

// The path term that attains the maximum. The same terms as path_length_ms.
Term longest_term(const PipelineTimes& times, const Problem& problem, const Plan& plan) {
  const int stages = times.num_stages();
  const int m = problem.micro_batches();
  const double steady = m - 1;
  const double total = round_trip_ms(times);
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
      const int k = value_in_flight(times, problem, plan, s);
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
  // One stage does one micro-batch after the other, and has nothing to fill or drain.
  if (stages == 1 && m > 1) longest.steady_ms += std::exchange(longest.pass_ms, 0);
  return longest;
}

bool computes_backward(const PipelineTimes& times) {
  return *std::max_element(times.backward_ms.begin(), times.backward_ms.end()) > 0;
}

// The steady part of the longest term, in words.
std::string steady_text(const Term& longest, const PipelineTimes& times, int m) {
  const std::string stage_name = "stage " + std::to_string(longest.stage);
  const std::string steps = std::to_string(m - 1) + (m == 2 ? " steady step" : " steady steps");
  if (longest.transfer) {
    return "the transfer from " + stage_name + " to stage " + std::to_string(longest.stage + 1) + " takes " +
           format_ms(times.transfer_ms[at(longest.stage - 1)]) +
           " per micro-batch each way: " + format_ms(longest.steady_ms) + " in " + steps;
  }
  const double stage_ms = times.forward_ms[at(longest.stage - 1)] + times.backward_ms[at(longest.stage - 1)];
  if (times.num_stages() == 1) {
    return "each micro-batch takes " + format_ms(stage_ms) +
           (computes_backward(times) ? ", forward and backward: " : ": ") + format_ms(longest.steady_ms) + " in all " +
           std::to_string(m);
  }
  return stage_name + " computes " + format_ms(stage_ms) + " per micro-batch: " + format_ms(longest.steady_ms) +
         " in " + steps;
}

std::string stall_text(const Term& longest, int in_flight) {
  return "stage " + std::to_string(longest.stage) + " keeps " + std::to_string(in_flight) +
         " micro-batches in flight, too few for the round trip behind it: it waits " +
         format_ms(longest.stall_ms / std::max(1, longest.laps)) +
         (longest.laps == 1 ? " once" : " in each of " + std::to_string(longest.laps) + " rounds");
}

std::string pass_text(const Term& longest, const PipelineTimes& times) {
  return times.forward_ms.size() == 1 ? "one micro-batch takes " + format_ms(longest.pass_ms) +
                                            (computes_backward(times) ? ", forward and backward" : "")
                                      : "filling and draining the pipeline takes " + format_ms(longest.pass_ms);
}

// The all-reduce and optimizer that the backward drain hides least.
struct Exposed {
  int stage = 0;  // from 1; 0: all of them are hidden
  double ms = 0;
};

Exposed most_exposed(const PipelineTimes& times) {
  const int stages = times.num_stages();
  Exposed exposed;
  double drained = 0;
  for (int s = 0; s < stages; ++s) {
    const double behind = times.allreduce_ms[at(s)] + times.optimizer_ms[at(s)];
    if (behind - drained > exposed.ms) exposed = {s + 1, behind - drained};
    drained += times.backward_ms[at(s)] + (s + 1 < stages ? times.transfer_ms[at(s)] : 0);
  }
  return exposed;
}

double exchange_of(const PlacedStage& stage) {
  return stage.problem->exchange_ms(stage.part().p0, stage.part().p1, stage.group());
}

std::string exposed_text(const Exposed& exposed, const PipelineTimes& times, double exchange) {
  const double sync = times.allreduce_ms[at(exposed.stage - 1)], optimizer = times.optimizer_ms[at(exposed.stage - 1)];
  const std::string reduced = exchange > 0 ? "the gradient all-reduce (of which " + format_ms(exchange) +
                                                 " exchange those of variables shared with another stage)"
                                           : "the gradient all-reduce";
  const std::string what = sync > 0 && optimizer > 0 ? reduced + " and the optimizer of stage "
                           : sync > 0                ? reduced + " of stage "
                                                     : "the optimizer of stage ";
  const double all = sync + optimizer;
  return what + std::to_string(exposed.stage) + (sync > 0 && optimizer > 0 ? " take " : " takes ") + format_ms(all) +
         (exposed.ms < all * (1 - 1e-9)
              ? " behind its last backward, of which the backward passes in front hide all but " + format_ms(exposed.ms)
              : " behind the last backward, and nothing hides it");
}

}  // namespace

const char* to_string(PlanLimit::Kind kind) {
  switch (kind) {
    case PlanLimit::Kind::kStage: return "stage";
    case PlanLimit::Kind::kTransfer: return "transfer";
    case PlanLimit::Kind::kRoundTrip: return "round-trip";
    case PlanLimit::Kind::kAllReduce: return "all-reduce";
  }
  return "";
}

std::vector<PlanLimit> plan_limits(const Problem& problem, const Plan& plan) {
  return plan_limits(place(problem, plan));
}

namespace {

// The limit of an ordered schedule, which has no V: the stage that computes most, and the mean stage's share of the
// time.
std::vector<PlanLimit> busiest_stage(const PlacedPlan& placed) {
  const pipeline::WorkTimes times = work_times(placed);
  const int micro_batches = placed.problem().micro_batches();
  const double step = value_ms(placed);
  PlanLimit limit;
  limit.kind = PlanLimit::Kind::kStage;
  double all = 0;
  for (int g = 0; g < times.num_groups(); ++g) {
    const double ms = micro_batches * times.group_ms(g);
    all += ms;
    if (ms > limit.ms) limit.ms = ms, limit.stage = g + 1;
  }
  limit.share = limit.ms / step;
  limit.text = "stage " + std::to_string(limit.stage) + " computes " + format_ms(limit.ms / micro_batches) +
               " per micro-batch, " + format_percent(limit.share) + " of the step; the mean stage " +
               format_percent(all / times.num_groups() / step);
  return {limit};
}

}  // namespace

std::vector<PlanLimit> plan_limits(const PlacedPlan& placed) {
  if (!is_alternating(placed.plan.schedule)) return busiest_stage(placed);
  const Problem& problem = placed.problem();
  const Plan& plan = placed.plan;
  const PipelineTimes times = pipeline_times(placed);
  const int stages = times.num_stages();
  const double value = value_ms(placed);
  const Term longest = longest_term(times, problem, plan);
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
  add(longest.transfer ? PlanLimit::Kind::kTransfer : PlanLimit::Kind::kStage, longest.stage, longest.steady_ms,
      steady_text(longest, times, problem.micro_batches()));
  add(PlanLimit::Kind::kRoundTrip, longest.stage, longest.stall_ms,
      stall_text(longest, value_in_flight(times, problem, plan, longest.stage - 1)));
  add(PlanLimit::Kind::kRoundTrip, stages == 1 ? 1 : longest.stage, longest.pass_ms, pass_text(longest, times));
  const Exposed exposed = most_exposed(times);
  if (exposed.stage > 0) {
    add(PlanLimit::Kind::kAllReduce, exposed.stage, exposed.ms,
        exposed_text(exposed, times, exchange_of(placed.stages[at(exposed.stage - 1)])));
  }
  std::stable_sort(limits.begin(), limits.end(), [](const PlanLimit& a, const PlanLimit& b) { return a.ms > b.ms; });
  AM_CHECK(!limits.empty());
  return limits;
}

}  // namespace automap::planners
