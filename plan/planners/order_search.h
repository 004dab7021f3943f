// Finds plans whose groups do their work in an order that is searched (common/pipeline/list_scheduler.h). It starts
// from plans of the other schedules, keeps their groups, parts and variants, and moves cuts.
#pragma once

#include "plan/planners/kinds.h"

namespace automap::planners {

// Searches orders from the best plan of one width, the best of every ordered row before, and the most promising of
// turn.starts. Returns nothing where none of them has several stages.
std::optional<Candidate> searched_order(const KindTurn& turn, const char* name);

}  // namespace automap::planners
