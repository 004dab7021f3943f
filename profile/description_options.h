// The options for properties that a config.json or a published model's name leaves open.
#pragma once

#include "common/architecture/model.h"
#include "common/base/options.h"

namespace automap::profile {

void declare_description(OptionTable& table, architecture::StepOptions* step);

}  // namespace automap::profile
