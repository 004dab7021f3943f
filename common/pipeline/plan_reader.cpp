#include "common/pipeline/plan_reader.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "common/base/error.h"
#include "common/base/printable.h"
#include "common/base/reason.h"

namespace automap::pipeline {
namespace {

constexpr int kMaxJsonDepth = 16;
constexpr const char* kSchemaPrefix = "automap.plan/";

}  // namespace

PlanJson parse_strict_json(std::string_view json_text, const std::string& source) {
  PlanJson json;
  std::vector<std::set<std::string>> keys;  // of the objects around
  try {
    json = PlanJson::parse(json_text, [&](int level, PlanJson::parse_event_t event, PlanJson& value) {
      if (level > kMaxJsonDepth) throw Error(ErrorKind::kData, source + ": nested too deeply for a plan");
      if (event == PlanJson::parse_event_t::object_start) keys.emplace_back();
      if (event == PlanJson::parse_event_t::object_end) keys.pop_back();
      if (event == PlanJson::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
        throw Error(ErrorKind::kData,
                    source + ": the key \"" + excerpt(value.get<std::string>(), 60) + "\" stands twice in one object");
      }
      return true;
    });
  } catch (const PlanJson::exception& e) {
    throw Error(ErrorKind::kData, source + ": not valid JSON: " + reason_of(e),
                std::string("expected an ") + kPlanSchema + " document");
  }
  return json;
}

PlanJson parse_plan_json(std::string_view json_text, const std::string& source) {
  PlanJson json = parse_strict_json(json_text, source);
  const std::string schema = PlanObject(json, source).text("schema");
  const std::string prefix = kSchemaPrefix;
  if (schema.compare(0, prefix.size(), prefix) != 0) {
    throw Error(ErrorKind::kData, source + ": schema: found \"" + schema + "\", expected \"" + kPlanSchema + "\"");
  }
  const std::string version = schema.substr(prefix.size());
  const bool pipeline = !json.contains("kind") || json.at("kind") == "pipeline";
  const std::string newest = pipeline ? kPipelinePlanSchema : kPlanSchema;
  if (schema != newest && schema != kPlanSchema) {
    const bool number =
        !version.empty() && version.find_first_not_of("0123456789") == std::string::npos && version != "0";
    throw Error(ErrorKind::kData, source + ": schema: found \"" + schema + "\", this version reads up to " + newest,
                number ? "update AutoMap to read this plan" : "");
  }
  return json;
}

PlanObject::PlanObject(const PlanJson& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object_.is_object()) fail("found " + std::string(object_.type_name()) + ", expected an object");
}

const PlanJson& PlanObject::at(const char* key) const {
  if (!object_.contains(key)) fail("missing key \"" + std::string(key) + "\"");
  return object_.at(key);
}

std::string PlanObject::text(const char* key) const {
  const PlanJson& value = at(key);
  if (!value.is_string()) wrong(key, value, "a string");
  return value.get<std::string>();
}

bool PlanObject::flag(const char* key) const {
  return has(key) && at(key) == PlanJson(true);
}

std::vector<int> PlanObject::integers(const char* key, int smallest, int largest) const {
  std::vector<int> out;
  for (const PlanJson& item : array(key)) out.push_back(integer_of(item, key, smallest, largest));
  return out;
}

std::vector<std::string> PlanObject::texts(const char* key) const {
  std::vector<std::string> out;
  for (const PlanJson& item : array(key)) {
    if (!item.is_string()) wrong(key, item, "strings");
    out.push_back(item.get<std::string>());
  }
  return out;
}

double PlanObject::number(const char* key) const {
  const PlanJson& value = at(key);
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0) {
    wrong(key, value, "a number of at least 0");
  }
  return value.get<double>();
}

const PlanJson& PlanObject::array(const char* key) const {
  const PlanJson& value = at(key);
  if (!value.is_array()) wrong(key, value, "an array");
  return value;
}

void PlanObject::wrong(const std::string& key, const PlanJson& found, const std::string& expected) const {
  const std::string shown = excerpt(found.dump(-1, ' ', false, PlanJson::error_handler_t::replace), 60);
  throw Error(ErrorKind::kData, where_ + ": " + key + ": found " + shown + ", expected " + expected);
}

void PlanObject::fail(const std::string& what, const std::string& hint) const {
  throw Error(ErrorKind::kData, where_ + ": " + what, hint);
}

int PlanObject::integer_of(const PlanJson& value, const char* key, int smallest, int largest) const {
  if (!value.is_number_integer() || value.get<double>() < smallest || value.get<double>() > largest) {
    wrong(key, value, "a whole number from " + std::to_string(smallest) + " to " + std::to_string(largest));
  }
  return value.get<int>();
}

std::vector<std::pair<std::string, std::string>> read_provenance(const PlanObject& plan) {
  const PlanJson& provenance = plan.at("provenance");
  PlanObject(provenance, plan.where("provenance"));
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [key, value] : provenance.items()) {
    out.emplace_back(key, value.is_string() ? value.get<std::string>()
                                            : value.dump(-1, ' ', false, PlanJson::error_handler_t::replace));
  }
  return out;
}

}  // namespace automap::pipeline
