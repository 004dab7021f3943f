// Finds the best plans of even groups under a schedule that is lists of work (common/pipeline/work_order.h): it cuts
// the model into parts of about equal compute, then moves cuts as the simulation tells. Only bounds that hold for any
// order cover these plans.
#pragma once

#include <memory>
#include <vector>

#include "common/base/work.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"
#include "common/pipeline/work_order.h"
#include "plan/planners/question.h"

namespace automap::planners {

// The plans that are searched.
struct EvenShape {
  pipeline::Schedule schedule = pipeline::Schedule::kInterleaved;  // one that needs no lists of its own
  std::vector<int> chunks = {1};                                   // v
  int least_groups = 2;
};

struct EvenChoice {
  StepSize size;
  std::shared_ptr<const pipeline::Problem> problem;
  pipeline::Plan plan;
  double simulated_step_ms = 0;
};

// The splits of the question's batch for replicas of every width that its profile knows.
std::vector<StepSize> even_sizes(const Question& question);

// The best of each of the splits, over the numbers of groups up to max_stages and the variants of stages: the shortest
// first, and those that are longer by kNearEven at most. Empty: none can run.
constexpr double kNearEven = 0.15;
std::vector<EvenChoice> best_even(const Question& question, const std::vector<StepSize>& sizes, const EvenShape& shape);

// Cuts of parts of about equal compute for a plan of so many stages on equally many devices, whose placement, chunks
// and variants stand in `plan`; false: there are fewer instructions than parts, or devices that no stage can have.
bool balance_parts(const pipeline::Problem& problem, int stages, pipeline::Plan* plan);

// Moves cuts of a plan that does its work in this order, up to `most_moves` times and until the work is over, as long
// as its step, of *ms, gets shorter: to any position, or among `ends`, ascending, where its cuts stand.
void move_cuts(const pipeline::Problem& problem, const pipeline::WorkOrder& order, const std::vector<int>& ends,
               int most_moves, Work& work, pipeline::Plan* plan, double* ms);

}  // namespace automap::planners
