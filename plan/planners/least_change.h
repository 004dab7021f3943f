// Finds the smallest change with which a plan fits, when no plan fits into memory, by planning with the change; the
// same of a layout that is given.
#pragma once

#include <string>
#include <vector>

#include "plan/planners/question.h"
#include "plan/planners/score.h"

namespace automap::planners {

struct FittingChange {
  std::string what;    // "--zero 3", "4 servers of 8 x v100-16gb instead of 2", "devices of 40 GiB"
  double step_ms = 0;  // simulated, of a plan found quickly
};

// Changes with which a plan fits, each alone: stages' variants that the options leave out, the split of the batch that
// the step fixes, stage counts that the request fixes, then the fewest more servers and the smallest larger devices of
// those that are sold. Empty: none of them helps, or the time was over (a few seconds, and the request's).
// Options are named as automap-infer has them; `limited`: --limit says which kinds of plans there are.
std::vector<FittingChange> fitting_changes(const Question& question, bool limited);

// Changes of a layout that does not fit with which it does, for the same batch, by what its words would be: a smaller
// micro-batch, recomputation, a higher ZeRO level; where none is enough alone, the several of them with the shortest
// step. Empty: not even these help. Those that the question's framework cannot run are left out.
std::vector<FittingChange> fitting_changes(const Layout& layout, const Question& question);

}  // namespace automap::planners
