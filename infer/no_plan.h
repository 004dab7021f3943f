// Explains why a question has no plan, with a hint to what would give it one.
#pragma once

#include <string>

#include "plan/planners/planner.h"
#include "plan/planners/question.h"
#include "plan/planners/score.h"

namespace automap::infer {

// Throws Error(kInfeasible) with the search's reason and a hint, or Error(kStopped). `limited`: --limit restricts the
// kinds of plans.
[[noreturn]] void fail_without_plan(const planners::Question& question, const planners::SearchNotes& notes,
                                    bool limited);

// What would make a layout fit into memory that does not, in a sentence.
std::string what_makes_fit(const planners::Layout& layout, const planners::Question& question);

// The first sentence of a reason, for a cell of a table in a terminal.
std::string no_plan_text(const std::string& why);

}  // namespace automap::infer
