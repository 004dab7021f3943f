// What a plan file of every kind says around its answer (docs/formats/plan.md).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/json.h"

namespace automap::pipeline {

struct PlanEnvelope {
  std::string model;
  std::vector<std::string> warnings;
  // The inputs that the plan was made from: version, git, model_sha256, options, ... as text.
  std::map<std::string, std::string> provenance;
};

// The document of a plan: schema, kind and model, the members of `answer`, warnings and provenance.
Json in_envelope(const char* schema, const std::string& kind, const PlanEnvelope& plan, Json answer);

}  // namespace automap::pipeline
