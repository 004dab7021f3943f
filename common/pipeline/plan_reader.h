// Shared code of the readers of all kinds of plans: the JSON document with its schema checked.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json_object.h"

namespace automap::pipeline {
using PlanObject = JsonObject;

// Pipeline plans are written in version 3 (1 and 2 are read, too), plans of the other kinds in version 1.
constexpr const char* kPlanSchema = "automap.plan/1";
constexpr const char* kPipelinePlanSchema = "automap.plan/3";
constexpr std::uint64_t kMaxPlanBytes = 64 << 20;

// The documents that readers of plans accept, for error messages.
constexpr const char* kPlans = "an automap.plan/3, /2 (pipeline) or /1 document";
constexpr const char* kGivenPlans = "an automap.plan/3, /2 or /1 document, or an object with cuts and device_cuts";

// Throws as parse_json(), and Error(kData) naming `source`: no object, another schema, a newer version (says so
// by name).
Json parse_plan_json(std::string_view json_text, const std::string& source);

// The version (1, 2 or 3) of a schema that parse_plan_json has accepted.
int plan_version(const std::string& schema);

// "provenance": an object of texts; values of other types come as their JSON.
std::vector<std::pair<std::string, std::string>> read_provenance(const PlanObject& plan);

}  // namespace automap::pipeline
