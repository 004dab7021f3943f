#include "plan/rivals/published.h"

#include <utility>
#include <vector>

#include "plan/rivals/alpa.h"
#include "plan/rivals/dapple.h"
#include "plan/rivals/pipedream.h"

namespace automap::rivals {

PublishedPlan best_published(const planners::Question& question, double below_ms) {
  const std::vector<const char*> names = {"PipeDream", "DAPPLE", "Alpa"};
  const pipeline::Profile& profile = question.profile();
  const int max_stages = question.request.max_stages;
  RivalPlan plan = best_over_splits(
      question, {pipedream(profile, max_stages), dapple(profile, max_stages), alpa(profile, max_stages)}, below_ms);
  if (!(plan.simulated_step_ms < below_ms)) return {};
  return {names[plan.planner], std::move(plan)};
}

namespace {

bool judged_by_simulation(const planners::Question& question) {
  return open_question(question) && objective_of(question.request) == pipeline::Objective::kSimulated;
}

// Where none is shorter there is nothing to say of them.
std::optional<planners::Candidate> shortest_published(const planners::KindTurn& turn, const char* name) {
  PublishedPlan found = best_published(turn.question, turn.best.simulated_step_ms * (1 - planners::kProvenGap));
  if (!found.plan.problem) return std::nullopt;
  return planners::candidate_of(std::string(name) + ": " + found.name,
                                std::shared_ptr<const pipeline::Problem>(std::move(found.plan.problem)),
                                std::move(found.plan.plan));
}

}  // namespace

std::vector<planners::KindRow> all_kinds() {
  std::vector<planners::KindRow> rows = planners::uniform_kinds();
  rows.push_back({"published planner", judged_by_simulation, shortest_published, false});
  const std::vector<planners::KindRow>& beside = planners::beside_kinds();
  rows.insert(rows.end(), beside.begin(), beside.end());
  return rows;
}

}  // namespace automap::rivals
