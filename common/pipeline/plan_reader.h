// What the readers of all kinds of plans share: the JSON document with its schema checked.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json_object.h"

namespace automap::pipeline {
using PlanObject = JsonObject;

// Pipeline plans are of version 2 (version 1 is read, too), plans of the kinds operator and data of version 1.
constexpr const char* kPlanSchema = "automap.plan/1";
constexpr const char* kPipelinePlanSchema = "automap.plan/2";
constexpr std::uint64_t kMaxPlanBytes = 64 << 20;

// What readers of plans accept, for their complaints.
constexpr const char* kPlans = "an automap.plan/2 (pipeline) or automap.plan/1 document";
constexpr const char* kGivenPlans =
    "an automap.plan/2 or automap.plan/1 document, or an object with cuts and device_cuts";

// Throws as parse_json(), and Error(kData) naming `source`: no object, another schema, a newer version (says so
// by name).
Json parse_plan_json(std::string_view json_text, const std::string& source);

// "provenance": an object of texts; values of other types come as their JSON.
std::vector<std::pair<std::string, std::string>> read_provenance(const PlanObject& plan);

}  // namespace automap::pipeline
