#include "plan/systems/rivals/published.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/machine/chosen_devices.h"
#include "plan/systems/rivals/alpa.h"
#include "plan/systems/rivals/dapple.h"
#include "plan/systems/rivals/pipedream.h"

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

// True if the bounds cover everything that published planners are asked for: every split on all devices, by any number
// of stages.
bool about_all_splits(const planners::Question& question, const planners::Bounds& bounds) {
  if (question.request.stages > 0) return false;
  const std::vector<pipeline::Schedule>& schedules = question.request.schedules;
  if (std::find(schedules.begin(), schedules.end(), pipeline::Schedule::kAdaptive) == schedules.end()) return false;
  const machine::Cluster& cluster = question.cluster;
  for (const planners::StepSize& size : splits_of(question)) {
    const int replicas = machine::replicas_of(cluster, size.width).num_devices();
    const bool some_left = replicas * size.width < cluster.num_devices();
    const auto alike = [&](const planners::StepSize& one) {
      planners::StepSize everywhere = one;
      if (some_left && one.devices == replicas) everywhere.devices = 0;
      return everywhere == size;
    };
    if (std::none_of(bounds.considered.begin(), bounds.considered.end(), alike)) return false;
  }
  return true;
}

bool judged_by_simulation(const planners::Question& question) {
  return open_question(question) && objective_of(question.request) == pipeline::Objective::kSimulated;
}

// Where none is shorter than every plan so far there is nothing to say of them. Where bounds prove that no plan at all
// is, they are not asked: theirs are plans of the splits that the bounds are about, under a schedule that searched
// plans have.
std::optional<planners::Candidate> shortest_published(const planners::KindTurn& turn, const char* name) {
  double below_ms = turn.best.simulated_step_ms * (1 - planners::kProvenGap);
  for (const planners::Candidate& one : turn.earlier) {
    if (one.found() && one.ordered()) below_ms = std::min(below_ms, one.simulated_step_ms);
  }
  const bool proven = !turn.bounds.open && turn.bounds.simulated_ms >= below_ms;
  if (proven && about_all_splits(turn.question, turn.bounds)) return std::nullopt;
  PublishedPlan found = best_published(turn.question, below_ms);
  if (!found.plan.problem) return std::nullopt;
  return planners::candidate_of(std::string(name) + ": " + found.name,
                                std::shared_ptr<const pipeline::Problem>(std::move(found.plan.problem)),
                                std::move(found.plan.plan));
}

}  // namespace

std::vector<planners::KindRow> all_kinds() {
  std::vector<planners::KindRow> rows = planners::uniform_kinds();
  const std::vector<planners::KindRow>& beside = planners::beside_kinds();
  rows.insert(rows.end(), beside.begin(), beside.end());
  rows.push_back({"published planner", judged_by_simulation, shortest_published, false, {}, true});
  return rows;
}

std::vector<planners::KindRow> kinds_beside(bool explored) {
  return explored ? all_kinds() : std::vector<planners::KindRow>();
}

}  // namespace automap::rivals
