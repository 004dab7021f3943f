// --sweep as people and scripts read it.
#pragma once

#include <string>

#include "common/machine/cluster.h"
#include "infer/input.h"
#include "plan/planners/sweep.h"

namespace automap::infer {

// What was swept, and the model and cluster whose use is said of each layout.
struct SweepUse {
  const planners::Sweep& sweep;
  const PlanInput& input;
  const machine::Cluster& cluster;
};

// Of layouts of one batch, at least one.
std::string sweep_text(const SweepUse& of);
std::string sweep_json(const SweepUse& of);

}  // namespace automap::infer
