// --sweep as people and scripts read it.
#pragma once

#include <string>
#include <vector>

#include "plan/planners/sweep.h"

namespace automap::infer {

// Of layouts of one batch, at least one.
std::string sweep_text(const std::vector<planners::SweptLayout>& layouts);
std::string sweep_json(const planners::Sweep& sweep);

}  // namespace automap::infer
