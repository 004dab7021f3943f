// Exact pipeline planning: the plan that minimizes V over given pivots and device cuts and the variants of its stages,
// with a proof. Suffix labels (X, P, Y) from the last stage backward; docs/exact-solver.md explains dominance and
// bounds. V of an adaptive plan is value_ms: as many micro-batches in flight as memory allows; plans come without a
// warm-up.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "common/base/work.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"

namespace automap::pipeline {

struct ExactOptions {
  int min_stages = 1;
  int max_stages = 16;
  Schedule schedule = Schedule::k1f1b;
  // Instruction cuts that may be used, ascending, within 1..n-1. Empty: every one.
  std::vector<int> pivots;
  // When given (corridor refinement): allowed instruction cuts and device cuts of boundary s = 1..S-1, ascending;
  // needs min_stages == max_stages and replaces `pivots`.
  std::vector<std::vector<int>> boundary_pivots;
  std::vector<std::vector<int>> boundary_device_cuts;
  int k_best = 1;  // plans to return per stage count, different from one another
  // Only plans with V < upper_bound_ms are of interest (an incumbent from elsewhere).
  double upper_bound_ms = std::numeric_limits<double>::infinity();
  Work* work = nullptr;  // null: without end
};

struct ExactStageResult {
  int stages = 0;
  std::vector<Plan> plans;  // best first, at most k_best; empty: none feasible (or none below upper_bound_ms)
  std::vector<double> value_ms;
  bool proven = false;        // plans.front() is optimal over the pivots (or, when empty, there is none)
  double lower_bound_ms = 0;  // valid for this stage count over the pivots; = value of the best plan when proven
};

struct ExactResult {
  std::vector<ExactStageResult> by_stages;  // min_stages .. max_stages (clipped to D and pivots + 1)
  const ExactStageResult* best() const;     // smallest value over all stage counts, or nullptr
  bool proven() const;                      // every stage count is
};

// Minimizes V for every stage count of the range, within the limits of ExactOptions. The values are value_ms of the
// plans.
ExactResult solve_exact(const Problem& problem, const ExactOptions& options);

// Pivots i_k = floor(k*n/grid), k = 1..grid, without 0, n and duplicates (design row; paper 4.5.1).
std::vector<int> grid_pivots(int num_instructions, int grid);

// The exact program restricted to +-pivot_radius pivots and +-device_radius device cuts around `plan`, repeated
// until it moves no more or the work is over. Never returns a longer or infeasible plan when `plan` is feasible.
Plan refine_in_corridor(const Problem& problem, Plan plan, int pivot_radius = 8, int device_radius = 2,
                        Work* work = nullptr);

// Lower bounds on V of plans of 1..max_stages stages (entry stages - 1), from sums and the largest instruction alone;
// infinite where there are fewer devices.
std::vector<double> simple_lower_bounds_ms(const Problem& problem, Schedule schedule, int max_stages);

// A lower bound on V over every feasible instruction-level plan of min_stages..max_stages stages under any of the given
// schedules, and how it was obtained. Never above `incumbent_ms`, the value of the best plan known (infinity: none);
// equal to it, or to the value of `better`, when the method is "exact over all cuts".
constexpr std::string_view kExactBound = "exact over all cuts";
constexpr char kBalanceOfWork[] = "balance of work";
struct LowerBound {
  double ms = 0;
  const char* method = "";  // kExactBound, "bucket relaxation", kBalanceOfWork
  bool exact() const { return std::string_view(method) == kExactBound; }
  // The shortest plan shorter than the incumbent that was met on the way.
  std::optional<Plan> better;
};
LowerBound lower_bound_all_cuts(const Problem& problem, const std::vector<Schedule>& schedules, int min_stages,
                                int max_stages, double incumbent_ms, Work& work);

}  // namespace automap::pipeline
