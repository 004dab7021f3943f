#include "plan/planners/leaner.h"

#include <algorithm>
#include <utility>

#include "common/base/numbers.h"
#include "common/base/text_table.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/warmup.h"

namespace automap::planners {
namespace {

using pipeline::PlacedPlan;
using pipeline::Plan;

std::vector<double> shares_of(const PlacedPlan& placed) {
  std::vector<double> shares = memory_of(placed);
  for (std::size_t s = 0; s < shares.size(); ++s) shares[s] /= placed.stages[s].group().capacity_bytes;
  return shares;
}

double share_of(const Candidate& one) {
  return one.memory_bytes / one.capacity_bytes;
}

// The stage that fills the most gets the variant with which it fills the least, as long as the step stays within
// `longest_ms`: until it fills no more than `enough`, or none of its variants is leaner.
Plan with_leaner_stages(const pipeline::Problem& problem, Plan plan, double longest_ms, double enough, Work& work) {
  if (plan.variants.empty()) plan.variants.assign(at(plan.num_stages()), 0);
  while (!work.over()) {
    const std::vector<double> shares = shares_of(place(problem, plan));
    const auto fullest = std::max_element(shares.begin(), shares.end()) - shares.begin();
    double least = shares[static_cast<std::size_t>(fullest)];
    if (least <= enough) break;
    Plan best;
    for (int variant = 0; variant < problem.num_variants() && !work.over(); ++variant) {
      Plan next = plan;
      next.variants[static_cast<std::size_t>(fullest)] = static_cast<std::uint8_t>(variant);
      next.warmup.clear();
      if (!feasible(problem, next)) continue;
      choose_warmup(problem, next, &work);
      const PlacedPlan placed = place(problem, next);
      const double share = shares_of(placed)[static_cast<std::size_t>(fullest)];
      if (!(share < least) || simulate_step_ms(placed) > longest_ms) continue;
      least = share;
      best = std::move(next);
    }
    if (best.variants.empty()) break;
    plan = std::move(best);
  }
  return plan;
}

// The leanest plan that is no longer than `longest_ms`; `plan` itself, where none is leaner.
Candidate leanest(const Question& question, const Candidate& plan, const std::vector<Candidate>& others,
                  double longest_ms, double enough, Work& work) {
  Candidate best = plan;
  const auto consider = [&](Candidate one) {
    if (one.simulated_step_ms <= longest_ms && share_of(one) < share_of(best) &&
        expresses(*question.framework, one, question.profile())) {
      best = std::move(one);
    }
  };
  for (const Candidate& one : others) {
    if (!one.found() || one.simulated_step_ms > longest_ms || share_of(one) >= share_of(best)) continue;
    if (std::optional<Candidate> own = as_asked(question, one)) consider(std::move(*own));
  }
  const Plan lean = with_leaner_stages(*best.problem, best.plan, longest_ms, enough, work);
  if (lean == best.plan) return best;
  Candidate one = candidate_of(best.kind, best.problem, lean);
  one.found_by = best.found_by;
  one.size = best.size;
  consider(std::move(one));
  return best;
}

}  // namespace

std::optional<LeanerPlan> leaner_plan(const Question& question, const Candidate& plan,
                                      const std::vector<Candidate>& others, Work& work) {
  if (!question.options.memory || !plan.found() || !plan.of_one_width() || plan.ordered()) return std::nullopt;
  LeanerPlan out;
  out.plan = leanest(question, plan, others, plan.simulated_step_ms * (1 + kSameLength), 0, work);
  if (share_of(out.plan) > kFull) {
    Candidate roomy = leanest(question, out.plan, others, plan.simulated_step_ms * (1 + kLittleLonger), kRoomy, work);
    if (share_of(roomy) < kRoomy) {
      out.text = "this plan is " + format_percent(roomy.simulated_step_ms / plan.simulated_step_ms - 1) +
                 " longer than the shortest found (" + format_ms(plan.simulated_step_ms) + "), which fills " +
                 format_percent(share_of(plan)) + " of a device's usable memory; this one fills " +
                 format_percent(share_of(roomy));
      out.plan = std::move(roomy);
    }
  }
  if (share_of(out.plan) >= share_of(plan)) return std::nullopt;
  return out;
}

}  // namespace automap::planners
