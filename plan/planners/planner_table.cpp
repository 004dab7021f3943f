#include "plan/planners/planner_table.h"

#include <algorithm>
#include <limits>
#include <string>

#include "common/pipeline/exact.h"
#include "plan/planners/shipped_policy.h"

namespace automap::planners {
namespace {

// Runs of one planner, while they take less than this in all.
constexpr int kMostRuns = 5;
constexpr double kRunsMs = 50;

struct Contender {
  std::string name;
  PlannerKind planner;
  int beam;
  bool refine;
};

std::vector<Contender> contenders(const PlanRequest& request, bool with_policy) {
  const int beam = request.beam > 0 ? request.beam : kBeam;
  const std::string wide = "+beam " + std::to_string(beam);
  std::vector<Contender> all;
  for (PlannerKind planner : {PlannerKind::kPolicy, PlannerKind::kRollouts}) {
    if (planner == PlannerKind::kPolicy && !with_policy) continue;
    const std::string name = to_string(planner);
    all.push_back({name, planner, 1, false});
    all.push_back({name + wide, planner, beam, false});
    all.push_back({name + wide + "+refine", planner, beam, true});
  }
  for (PlannerKind planner : {PlannerKind::kLocalSearch, PlannerKind::kBalanced, PlannerKind::kUniform}) {
    all.push_back({to_string(planner), planner, 0, false});
  }
  if (request.stages < 2) all.push_back({"data-parallel", PlannerKind::kDataParallel, 0, false});
  all.push_back({"exact", PlannerKind::kExact, 0, false});
  all.push_back({"exact+refine", PlannerKind::kExact, 0, true});
  return all;
}

}  // namespace

pipeline::PlannerTable compare_planners(const pipeline::Problem& problem, const PlanRequest& request) {
  pipeline::PlannerTable table;
  PlanRequest single = request;
  single.objective = request.objective.value_or(Objective::kValue);
  single.lower_bound = false;
  single.all_planners = false;
  if (!single.policy) single.policy = shipped_policy(*single.objective);
  double smallest_ms = std::numeric_limits<double>::infinity();
  for (const Contender& contender : contenders(request, single.policy != nullptr)) {
    single.planner = contender.planner;
    single.beam = contender.beam;
    single.refine = contender.refine;
    pipeline::PlannerTableRow row;
    row.planner = contender.name;
    double spent_ms = 0;
    for (int run = 0; run < kMostRuns && spent_ms < kRunsMs; ++run) {
      const PlanResult result = make_plan(problem, single);
      spent_ms += result.planning_ms;
      row.planning_ms = run == 0 ? result.planning_ms : std::min(row.planning_ms, result.planning_ms);
      row.cut_by_time = result.cut_by_time;
      if (!result.plan) continue;
      row.stages = result.plan->num_stages();
      row.step_ms = result.step_ms;
      row.simulated_step_ms = result.simulated_step_ms;
    }
    if (row.stages > 0) smallest_ms = std::min(smallest_ms, row.step_ms);
    table.rows.push_back(std::move(row));
  }
  if (smallest_ms == std::numeric_limits<double>::infinity()) return table;

  const int last_stages = request.stages > 0
                              ? request.stages
                              : std::min({request.max_stages, problem.num_devices(), problem.num_instructions()});
  WorkLimits limits;
  limits.units = request.effort.units;
  limits.seconds = request.time_limit_s;
  limits.cancelled = request.cancelled;
  Work work(limits);
  const pipeline::LowerBound bound = pipeline::lower_bound_all_cuts(
      problem, request.schedules, std::max(1, request.stages), last_stages, smallest_ms, work);
  table.reference_ms = std::min(bound.ms, bound.better ? value_ms(problem, *bound.better) : smallest_ms);
  table.reference_method = bound.method;
  for (pipeline::PlannerTableRow& row : table.rows) {
    if (row.stages > 0 && table.reference_ms > 0) row.gap = row.step_ms / table.reference_ms - 1;
  }
  return table;
}

}  // namespace automap::planners
