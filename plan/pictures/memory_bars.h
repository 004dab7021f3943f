// What the devices of each stage keep in memory, as bars against what they have.
#pragma once

#include <string>

#include "common/pipeline/plan_json.h"

namespace automap::pictures {

// Markup: a picture, what its colours mean, and the figures as a table.
std::string memory_markup(const pipeline::PlanDocument& document);

}  // namespace automap::pictures
