// Plans of the kind `soap` (automap.plan/1, docs/formats/plan.md): a configuration for every operator of a module.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_object.h"
#include "common/pipeline/plan_envelope.h"
#include "plan/systems/soap/memory.h"
#include "plan/systems/soap/search.h"
#include "plan/systems/soap/space.h"

namespace automap::soap {

struct SoapPlan : pipeline::PlanEnvelope {
  std::string cluster, planner;  // "mcmc from data parallel + polish"
  int devices = 0;
  Strategy strategy;
  double step_ms = 0, data_parallel_ms = 0, expert_ms = 0;  // simulated
  double moved_bytes = 0, data_parallel_moved_bytes = 0;    // over links, per step
  bool same_devices = false;                                // same_devices_everywhere
  std::vector<DeviceMemory> memory;                         // of each device
  Fullest fullest;
  bool fits() const { return fullest.fits(); }
  std::vector<ChainResult> chains;
  std::int64_t proposals = 0;
  bool local_optimum = false, cut_by_time = false;
  double planning_ms = 0;
};

// `space`: the space that the strategy belongs to.
Json to_json(const SoapPlan& plan, const Space& space);
std::string to_json_text(const SoapPlan& plan, const Space& space);

// The strategy of a plan for a space over so many devices. Plans of other makers need only schema, kind and operators,
// of each name, degrees and devices. Throws Error(kData), naming `source`, as pipeline::parse_plan_json and
// check_strategy, and where an operator is another one than the space's.
Strategy parse_soap_strategy(std::string_view json_text, const std::string& source, const Space& space, int devices);

}  // namespace automap::soap
