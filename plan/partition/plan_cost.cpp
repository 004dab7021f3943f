#include "plan/partition/plan_cost.h"

#include "common/base/json_text.h"

namespace automap::partition {

namespace {

constexpr int kMostMicroBatches = 1 << 30;

}  // namespace

void add_cost(const CountedCost& counted, Json* document) {
  Json& out = *document;
  if (!counted.cost) {
    for (const char* key : {"layout", "micro_batches", "micro_batch_samples", "step_ms", "simulated_step_ms",
                            "memory_bytes", "capacity_bytes"}) {
      out[key] = nullptr;
    }
    out["not_counted"] = counted.why_none.empty() ? Json() : Json(counted.why_none);
    return;
  }
  const PlanCost& cost = *counted.cost;
  out["layout"] = cost.layout;
  out["micro_batches"] = cost.micro_batches;
  out["micro_batch_samples"] = cost.micro_batch_samples;
  out["step_ms"] = cost.step_ms;
  out["simulated_step_ms"] = cost.simulated_step_ms;
  out["memory_bytes"] = whole_bytes(cost.memory_bytes);
  out["capacity_bytes"] = whole_bytes(cost.capacity_bytes);
  out["not_counted"] = nullptr;
}

CountedCost read_cost(const JsonObject& plan) {
  CountedCost out;
  out.why_none = plan.text_or_empty("not_counted");
  if (!plan.has("layout")) return out;
  PlanCost cost;
  cost.layout = plan.text("layout");
  cost.micro_batches = plan.integer_or("micro_batches", 1, kMostMicroBatches, 1);
  cost.micro_batch_samples = plan.number_or_zero("micro_batch_samples");
  cost.step_ms = plan.number_or_zero("step_ms");
  cost.simulated_step_ms = plan.number_or_zero("simulated_step_ms");
  cost.memory_bytes = plan.number_or_zero("memory_bytes");
  cost.capacity_bytes = plan.number_or_zero("capacity_bytes");
  out.cost = cost;
  return out;
}

JsonObject estimate_of(const JsonObject& plan, const Json& json, const std::string& source) {
  const bool apart = plan.has("estimate");
  return {apart ? plan.at("estimate") : json, apart ? plan.where("estimate") : source};
}

}  // namespace automap::partition
