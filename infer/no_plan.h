// Why a question has no plan, and what would give it one.
#pragma once

#include "plan/planners/planner.h"
#include "plan/planners/question.h"

namespace automap::infer {

// Throws Error(kInfeasible) with the reason that the search gives and a hint, or Error(kStopped). `limited`: --limit
// says which kinds of plans there are.
[[noreturn]] void fail_without_plan(const planners::Question& question, const planners::SearchNotes& notes,
                                    bool limited);

}  // namespace automap::infer
