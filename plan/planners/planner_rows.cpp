#include "plan/planners/planner_rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"
#include "common/pipeline/exact.h"
#include "models/plan_space.h"
#include "plan/planners/planning.h"

namespace automap::planners {
namespace {

using pipeline::Plan;
using pipeline::Schedule;

// The share of the work of `auto` after which the planners end that take milliseconds.
constexpr double kAtOnceUntil = 0.25;
constexpr double kLocalSearchUntil = 0.5;
constexpr double kExactUntil = 0.7;
// The search from stage to stage goes from few stages to many, and every stage makes it longer: it ends when three
// stage counts in a row came out so much longer than the best. On 139 problems (fixtures, PipeDream and DAPPLE profiles
// on the clusters A, B, C and 8x8, 8 to 64 micro-batches) 1.15 lost nothing. Greedy alone is for those who want the
// answer at once: 1.1, and no further after two in a row, be it stage counts or corridors that brought nothing. That
// costs it 0.03 % on average (fixtures on A, B, C and 2x8 H100: one plan of 36 is another, 1.1 % longer).
constexpr int kInARow = 3;
constexpr int kInARowGreedy = 2;
constexpr double kOnlinePart = 0.9;  // of the time and work of `online`
constexpr double kWorse = 1.15;
constexpr double kWorseGreedy = 1.1;

// One stage is the same under every schedule.
void one_stage(Planning& planning, Turn& turn) {
  const Schedule schedule = planning.request().schedules.front();
  if (planning.first_stages() == 1 && !planning.over(turn)) {
    planning.add(pipeline::data_parallel_plan(planning.problem(), schedule), turn);
  }
}

// A plan for every stage count and schedule.
template <typename PlanOf>
void every_stage_count(Planning& planning, Turn& turn, const PlanOf& plan_of) {
  for (Schedule schedule : planning.request().schedules) {
    for (int stages = planning.first_stages(); stages <= planning.last_stages() && !planning.over(turn); ++stages) {
      if (!planning.out_of_question(turn.row, stages, schedule)) planning.add(plan_of(stages, schedule), turn);
    }
  }
}

void uniform(Planning& planning, Turn& turn) {
  every_stage_count(planning, turn, [&](int stages, Schedule schedule) {
    return pipeline::uniform_plan(planning.problem(), stages, schedule, &turn.work);
  });
}

void balanced(Planning& planning, Turn& turn) {
  every_stage_count(planning, turn, [&](int stages, Schedule schedule) {
    return pipeline::balanced_plan(planning.problem(), stages, schedule, planning.objective(), &turn.work,
                                   planning.balanced_cuts());
  });
}

void local_search(Planning& planning, Turn& turn) {
  every_stage_count(planning, turn, [&](int stages, Schedule schedule) {
    pipeline::LocalSearchOptions options;
    options.stages = stages;
    options.schedule = schedule;
    options.objective = planning.objective();
    options.max_evaluations = planning.request().effort.local_search_evaluations;
    options.work = &turn.work;
    options.known = planning.balanced_cuts();
    return pipeline::local_search_plan(planning.problem(), options);
  });
}

// `policy` with a network, `rollouts` without.
void walk(Planning& planning, Turn& turn, const models::Policy* policy) {
  const bool at_once = turn.beam == 1 && turn.alone;
  const int in_a_row = at_once ? kInARowGreedy : kInARow;
  Way way;
  way.beam = turn.beam > 1;
  one_stage(planning, turn);
  for (Schedule schedule : planning.request().schedules) {
    if (planning.over(turn)) break;
    std::vector<Plan> found;
    int worse = 0;
    const int first = std::max(2, planning.first_stages());
    const int last = std::min(planning.last_stages(), models::kMaxStages);
    for (int stages = first; stages <= last && worse < in_a_row && !planning.over(turn); ++stages) {
      if (planning.out_of_question(turn.row, stages, schedule)) continue;
      std::vector<Plan> runners_up;
      const std::optional<Plan> plan = planning.walk(policy, stages, schedule, turn, runners_up);
      if (!plan) continue;
      const std::optional<double> length = planning.add(plan, turn, way);
      found.push_back(*plan);
      if (way.beam) found.insert(found.end(), runners_up.begin(), runners_up.end());
      const std::optional<double> best = planning.best_length(turn.row);
      if (length && best) worse = *length > (at_once ? kWorseGreedy : kWorse) * *best ? worse + 1 : 0;
    }
    if (planning.request().refine) {
      planning.refine(found, turn, way, at_once ? kInARowGreedy : std::numeric_limits<int>::max());
    }
  }
}

void policy(Planning& planning, Turn& turn) {
  walk(planning, turn, planning.policy());
}

void rollouts(Planning& planning, Turn& turn) {
  walk(planning, turn, nullptr);
}

void exact(Planning& planning, Turn& turn) {
  const std::vector<Schedule>& schedules = planning.request().schedules;
  for (std::size_t i = 0; i < schedules.size() && !planning.over(turn); ++i) {
    pipeline::ExactOptions options;
    options.min_stages = planning.first_stages();
    options.max_stages = planning.last_stages();
    options.schedule = schedules[i];
    options.pivots = planning.pivots();
    options.k_best = planning.request().k_best;
    options.upper_bound_ms = planning.hopeless_ms();
    // Each schedule its share of what is left.
    Work share(turn.work, turn.work.left() / static_cast<std::int64_t>(schedules.size() - i));
    options.work = &share;
    const pipeline::ExactResult solved = pipeline::solve_exact(planning.problem(), options);
    if (!solved.proven()) planning.note_cut();
    std::vector<Plan> found;
    for (const pipeline::ExactStageResult& stage : solved.by_stages) {
      for (const Plan& plan : stage.plans) planning.add(plan, turn);
      found.insert(found.end(), stage.plans.begin(), stage.plans.end());
    }
    if (planning.request().refine && planning.coarse()) planning.refine(found, turn);
  }
}

// Takes the policy's plan at once, if it starts from one; then runs Rainbow on this problem while there is time, and
// keeps a part of the time for corridors around the plans found.
void online(Planning& planning, Turn& turn) {
  const PlanRequest& request = planning.request();
  const models::Policy* start = request.online.from_scratch ? nullptr : planning.policy();
  if (start) {
    walk(planning, turn, start);
  } else {
    one_stage(planning, turn);
  }
  OnlineRequest asked;
  asked.options = request.online;
  asked.options.server_radius = planning.server_radius();
  asked.objective = planning.objective();
  asked.first_stages = std::max(2, planning.first_stages());
  asked.last_stages = std::min(planning.last_stages(), models::kMaxStages);
  asked.schedules = request.schedules;
  asked.pivots = planning.walk_pivots();
  if (start) asked.policy = planning.shared_policy();
  if (asked.last_stages < asked.first_stages) return;
  WorkLimits limits;
  if (turn.work.left() != WorkLimits::kNoEnd) {
    limits.units = std::llround(kOnlinePart * static_cast<double>(turn.work.left()));
  }
  limits.seconds = kOnlinePart * planning.seconds_left();
  limits.cancelled = [&] { return turn.work.over(); };
  Work work(limits);
  OnlineAnswer answer = find_online_search()(planning.problem(), asked, work);
  turn.work.spend(work.spent());
  for (const Plan& plan : answer.plans) planning.add(plan, turn);
  if (request.refine) planning.refine(answer.plans, turn);
  planning.keep(std::move(answer.learning));
}

}  // namespace

const std::vector<PlannerRow>& planner_rows() {
  static const std::vector<PlannerRow> rows = {
      {PlannerKind::kAuto, "auto", false, false, false, 1, nullptr},
      {PlannerKind::kDataParallel, "data-parallel", false, false, false, kAtOnceUntil, one_stage},
      {PlannerKind::kUniform, "uniform", false, false, false, kAtOnceUntil, uniform},
      {PlannerKind::kPolicy, "policy", true, true, false, kAtOnceUntil, policy},
      {PlannerKind::kRollouts, "rollouts", false, true, false, kAtOnceUntil, rollouts},
      {PlannerKind::kBalanced, "balanced", false, false, false, kAtOnceUntil, balanced},
      {PlannerKind::kLocalSearch, "local-search", false, false, false, kLocalSearchUntil, local_search},
      {PlannerKind::kExact, "exact", false, false, false, kExactUntil, exact},
      {PlannerKind::kOnline, "online", false, false, true, 1, online},
  };
  return rows;
}

const PlannerRow& row_of(PlannerKind planner) {
  for (const PlannerRow& row : planner_rows()) {
    if (row.kind == planner) return row;
  }
  AM_CHECK(false);
  return planner_rows().front();
}

const char* to_string(PlannerKind planner) {
  return row_of(planner).name;
}

std::optional<PlannerKind> parse_planner(std::string_view name) {
  for (const PlannerRow& row : planner_rows()) {
    if (name == row.name) return row.kind;
  }
  return std::nullopt;
}

std::vector<PlannerKind> all_planners() {
  std::vector<PlannerKind> all;
  for (const PlannerRow& row : planner_rows()) {
    if (!row.only_asked) all.push_back(row.kind);
  }
  std::sort(all.begin(), all.end());
  return all;
}

bool answers_at_once(PlannerKind planner) {
  return row_of(planner).walks;
}

}  // namespace automap::planners
