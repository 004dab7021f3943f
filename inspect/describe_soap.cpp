// automap-inspect of a plan that splits every operator by itself (automap-search soap).
#include <algorithm>
#include <string>

#include "common/base/json_object.h"
#include "common/base/text_table.h"
#include "common/pipeline/plan_reader.h"
#include "inspect/facts.h"
#include "inspect/kinds.h"

namespace automap::inspect {

Description describe_soap_plan(Description out, const std::string& text, const std::string& source) {
  const Json document = pipeline::parse_plan_json(text, source);
  const JsonObject plan(document, source);
  int operators = 0, split = 0, devices = 0;
  for (const Json& item : plan.array("operators")) {
    const JsonObject op(item, source + ": operator " + std::to_string(++operators));
    op.text("name");
    op.integers("degrees", 1, kMostDevices);
    const std::vector<int> used = op.integers("devices", 1, kMostDevices);
    if (used.size() > 1) ++split;
    for (const int device : used) devices = std::max(devices, device);
  }
  devices = plan.integer_or("devices", devices, kMostDevices, devices);
  const bool same = plan.has("same_devices") && plan.flag("same_devices");
  auto& d = out.document;
  d["plan_kind"] = "soap";
  d["model"] = plan.text_or_empty("model");
  d["cluster"] = plan.text_or_empty("cluster");
  d["planner"] = plan.text_or_empty("planner");
  d["devices"] = devices;
  d["operators"] = operators;
  d["split_operators"] = split;
  d["same_devices"] = same;
  for (const char* key : {"step_ms", "data_parallel_ms", "expert_ms"}) d[key] = plan.number_or_zero(key);

  const double step_ms = plan.number_or_zero("step_ms"), data_ms = plan.number_or_zero("data_parallel_ms"),
               expert_ms = plan.number_or_zero("expert_ms");
  Facts facts;
  facts.add("model", plan.text_or_empty("model").empty() ? "(unnamed)" : plan.text("model"));
  if (!plan.text_or_empty("cluster").empty()) facts.add("cluster", plan.text("cluster"));
  if (!plan.text_or_empty("planner").empty()) facts.add("planner", plan.text("planner"));
  facts.add("operators", std::to_string(split) + " of " + count_of(operators, "operator") + " in several parts" +
                             (same ? ", all on the same devices" : ""));
  if (step_ms > 0) {
    facts.add("step", format_ms(step_ms) + " simulated; data parallel " + format_ms(data_ms) + ", expert " +
                          format_ms(expert_ms));
  }
  out.text = title(source, "SOAP plan for " + count_of(devices, "device")) + facts.render();
  return out;
}

}  // namespace automap::inspect
