#include "common/pipeline/plan_envelope.h"

#include <utility>

namespace automap::pipeline {

Json in_envelope(const char* schema, const std::string& kind, const PlanEnvelope& plan, Json answer) {
  Json out = {{"schema", schema}, {"kind", kind}, {"model", plan.model}};
  for (const auto& [key, value] : answer.items()) out[key] = std::move(value);
  out["warnings"] = plan.warnings;
  out["provenance"] = plan.provenance;
  return out;
}

}  // namespace automap::pipeline
