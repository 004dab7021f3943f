// Draws the memory that the devices of each stage use, as bars against their capacity.
#pragma once

#include <string>

#include "common/pipeline/plan_json.h"

namespace automap::pictures {

// Markup: a picture, the meaning of its colours, and the figures as a table.
std::string memory_markup(const pipeline::PlanDocument& document);

}  // namespace automap::pictures
