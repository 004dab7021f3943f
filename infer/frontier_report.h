// What a plan costs, and how many devices to rent, in words and tables for people.
#pragma once

#include <string>

#include "common/pipeline/plan_price.h"
#include "plan/pictures/page.h"

namespace automap::infer {

// "0.0123 a step, 45.6 for a billion tokens (20 an hour for all devices)".
std::string cost_text(const pipeline::PlanCost& cost);
// Which part of the cluster was chosen, and of how many.
std::string chosen_text(const pipeline::PlanFrontier& frontier);
// Ends with a newline. `width` in columns; 0: any.
std::string frontier_text(const pipeline::PlanFrontier& frontier, int width);
pictures::PageTable frontier_table(const pipeline::PlanFrontier& frontier);

}  // namespace automap::infer
