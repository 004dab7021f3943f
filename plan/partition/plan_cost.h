// The step time of a partition plan by the one cost that all plans have (common/pipeline), counted as a layout of one
// stage: automap-infer --layout gives the same for the same module, layout and options. A plan also has the estimate
// that its search judged by (price.h).
#pragma once

#include <optional>
#include <string>

#include "common/base/json_object.h"

namespace automap::partition {

struct PlanCost {
  std::string layout;  // "dp=4,pp=1,tp=2,micro-batch-size=4"
  double micro_batch_samples = 0;
  int micro_batches = 1;
  double step_ms = 0;            // V
  double simulated_step_ms = 0;  // what to expect
  double memory_bytes = 0;       // of each device
  double capacity_bytes = 0;     // of the smallest device, without the reserve
};

// Either, or why there is none; neither is known of plans of other makers.
struct CountedCost {
  std::optional<PlanCost> cost;
  std::string why_none;
};

// Sets the keys of a plan's document, null where there is no cost.
void add_cost(const CountedCost& counted, Json* document);
CountedCost read_cost(const JsonObject& plan);
// The object with the estimate that a plan's search judged by: older files have these keys beside the others.
JsonObject estimate_of(const JsonObject& plan, const Json& json, const std::string& source);

}  // namespace automap::partition
