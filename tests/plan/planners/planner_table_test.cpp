#include "plan/planners/planner_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "common/pipeline/exact.h"
#include "common/pipeline/random_problem.h"
#include "tests/plan/planners/random_policy.h"

namespace automap::planners {
namespace {

using pipeline::PlannerTable;
using pipeline::PlannerTableRow;

pipeline::RandomProblem table_problem(std::uint64_t seed) {
  pipeline::RandomProblemOptions options;
  options.min_instructions = 20;
  options.max_instructions = 60;
  options.min_servers = 1;
  options.max_servers = 2;
  options.min_devices = 2;
  options.max_devices = 4;
  return pipeline::random_problem(seed, options);
}

PlanRequest request() {
  PlanRequest request;
  request.policy = random_policy();
  request.max_stages = 4;
  return request;
}

const PlannerTableRow* find(const PlannerTable& table, const std::string& planner) {
  const auto row = std::find_if(table.rows.begin(), table.rows.end(),
                                [&](const PlannerTableRow& one) { return one.planner == planner; });
  return row == table.rows.end() ? nullptr : &*row;
}

TEST(PlannerTable, ListsEveryPlannerOnceWithGapsOverTheLeastV) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    const pipeline::RandomProblem made = table_problem(seed);
    const pipeline::Problem problem = made.problem();
    const PlannerTable table = compare_planners(problem, request());
    std::set<std::string> names;
    for (const PlannerTableRow& row : table.rows) EXPECT_TRUE(names.insert(row.planner).second) << row.planner;
    for (const char* name :
         {"policy", "policy+beam 16", "policy+beam 16+refine", "rollouts", "rollouts+beam 16",
          "rollouts+beam 16+refine", "local-search", "balanced", "uniform", "data-parallel", "exact", "exact+refine"}) {
      EXPECT_EQ(names.count(name), 1u) << name;
    }
    EXPECT_EQ(names.size(), 12u);
    // So few instructions that the grid is every one of them, and the exact solver the reference itself.
    EXPECT_EQ(table.reference_method, "exact over all cuts");
    pipeline::ExactOptions options;
    options.max_stages = 4;
    const pipeline::ExactResult exact = pipeline::solve_exact(problem, options);
    ASSERT_NE(exact.best(), nullptr);
    EXPECT_NEAR(table.reference_ms, exact.best()->value_ms.front(), 1e-9 * table.reference_ms);
    for (const PlannerTableRow& row : table.rows) {
      if (row.stages == 0) continue;
      EXPECT_GE(row.gap, -1e-9) << row.planner;
      EXPECT_DOUBLE_EQ(row.gap, row.step_ms / table.reference_ms - 1) << row.planner;
      EXPECT_GE(row.planning_ms, 0);
    }
    EXPECT_NEAR(find(table, "exact")->gap, 0, 1e-9);
    for (const char* planner : {"policy", "rollouts"}) {
      const std::string wide = std::string(planner) + "+beam 16";
      EXPECT_LE(find(table, wide + "+refine")->step_ms, find(table, wide)->step_ms * (1 + 1e-12));
    }
  }
}

TEST(PlannerTable, ObeysTheRequest) {
  const pipeline::RandomProblem made = table_problem(3);
  const pipeline::Problem problem = made.problem();
  PlanRequest asked = request();
  asked.stages = 2;
  asked.beam = 4;
  asked.planner = PlannerKind::kUniform;
  const PlannerTable table = compare_planners(problem, asked);
  EXPECT_EQ(find(table, "data-parallel"), nullptr);
  EXPECT_NE(find(table, "policy+beam 4"), nullptr);
  for (const PlannerTableRow& row : table.rows) EXPECT_EQ(row.stages, 2) << row.planner;
}

TEST(PlannerTable, WithoutAnyPlanThereIsNoReference) {
  pipeline::RandomProblem made = table_problem(2);
  made.profile.w_bytes.assign(made.profile.w_bytes.size(), 1e12);
  made.options.memory = true;
  const PlannerTable table = compare_planners(made.problem(), request());
  EXPECT_EQ(table.reference_ms, 0);
  for (const PlannerTableRow& row : table.rows) EXPECT_EQ(row.stages, 0) << row.planner;
}

}  // namespace
}  // namespace automap::planners
