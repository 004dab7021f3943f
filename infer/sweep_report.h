// Prints the results of --sweep for people and as JSON for scripts.
#pragma once

#include <string>

#include "common/machine/cluster.h"
#include "infer/input.h"
#include "plan/planners/sweep.h"

namespace automap::infer {

// The sweep, and the model and cluster by which each layout's utilization is computed.
struct SweepUse {
  const planners::Sweep& sweep;
  const PlanInput& input;
  const machine::Cluster& cluster;
};

// Reports on layouts of one batch; there must be at least one.
std::string sweep_text(const SweepUse& of);
std::string sweep_json(const SweepUse& of);

}  // namespace automap::infer
