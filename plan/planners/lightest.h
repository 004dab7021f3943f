// Finds the plan with the least need of memory, and explains by how much memory falls short if not even that plan fits.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "common/base/work.h"
#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"

namespace automap::planners {

// The stage counts and schedules asked for.
struct StageChoice {
  int first_stages = 1, last_stages = 1;
  const std::vector<pipeline::Schedule>& schedules;
};

struct LightestPlan {
  std::optional<pipeline::Plan> plan;  // none: variables cannot be spread so that every stage holds one
  double share = 0;                    // the largest share of a device's memory that it needs; infinity without a plan
  std::map<int, double> by_stages;     // by stage count: what it is not below, of the device shares that were tried
};
// A plan whose largest share of a device's memory is small: balanced on several device shares for every stage count,
// then device cuts of the best moved while that helps and work is left.
LightestPlan lightest_plan(const pipeline::Problem& problem, const StageChoice& choice, Work& work);

// The reason why no plan fits, for people, and the bytes behind it (0 when memory is not the reason).
struct NothingFits {
  std::string text;
  double least_memory_bytes = 0, available_memory_bytes = 0;
  bool devices_divide = true;  // false: no devices of so many stages divide the micro-batch
};
NothingFits explain_nothing_fits(const pipeline::Problem& problem, const StageChoice& choice,
                                 const LightestPlan& lightest);

}  // namespace automap::planners
