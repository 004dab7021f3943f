#include "common/pipeline/plan_reader.h"

#include <utility>

#include "common/base/error.h"
#include "common/base/json_reader.h"

namespace automap::pipeline {
namespace {

constexpr const char* kSchemaPrefix = "automap.plan/";

}  // namespace

Json parse_plan_json(std::string_view json_text, const std::string& source) {
  Json json = parse_json(json_text, {source, ErrorKind::kData, std::string("expected ") + kPlans});
  const std::string schema = PlanObject(json, source).text("schema");
  const std::string prefix = kSchemaPrefix;
  if (schema.compare(0, prefix.size(), prefix) != 0) {
    throw Error(ErrorKind::kData, source + ": schema: found \"" + schema + "\", expected that of " + kPlans);
  }
  const std::string version = schema.substr(prefix.size());
  const bool pipeline = !json.contains("kind") || json.at("kind") == "pipeline";
  const std::string newest = pipeline ? kPipelinePlanSchema : kPlanSchema;
  const int known = plan_version(schema);
  if (known == 0 || (known > 1 && !pipeline)) {
    const bool number =
        !version.empty() && version.find_first_not_of("0123456789") == std::string::npos && version != "0";
    throw Error(ErrorKind::kData, source + ": schema: found \"" + schema + "\", this version reads up to " + newest,
                number ? "update AutoMap to read this plan" : "");
  }
  return json;
}

int plan_version(const std::string& schema) {
  int version = 0;
  for (const char* known : {kPlanSchema, "automap.plan/2", kPipelinePlanSchema}) {
    ++version;
    if (schema == known) return version;
  }
  return 0;
}

std::vector<std::pair<std::string, std::string>> read_provenance(const PlanObject& plan) {
  const Json& provenance = plan.at("provenance");
  PlanObject(provenance, plan.where("provenance"));
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [key, value] : provenance.items()) {
    out.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump(-1, Json::BadUtf8::kReplace));
  }
  return out;
}

}  // namespace automap::pipeline
