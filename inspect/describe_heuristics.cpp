// automap-inspect of a plan that has a device for every task of a step (automap-search heuristics).
#include <algorithm>
#include <set>
#include <string>

#include "common/base/fitted_table.h"
#include "common/base/json_object.h"
#include "common/base/text_table.h"
#include "common/pipeline/plan_reader.h"
#include "inspect/facts.h"
#include "inspect/kinds.h"

namespace automap::inspect {

Description describe_heuristics_plan(Description out, const std::string& text, const std::string& source) {
  const Json document = pipeline::parse_plan_json(text, source);
  const JsonObject plan(document, source);
  const int devices = plan.integer("devices", 1, kMostDevices);
  int tasks = 0;
  std::set<int> used;
  for (const Json& item : plan.array("tasks")) {
    const JsonObject task(item, source + ": task " + std::to_string(++tasks));
    task.text("name");
    used.insert(task.integer("device", 1, devices));
  }
  Json candidates = Json::array();
  FittedTable table({{"heuristic", FittedTable::Align::kLeft},
                     {"largest load", FittedTable::Align::kRight, 40},
                     {"cut", FittedTable::Align::kRight, 20},
                     {"step"}});
  if (plan.has("candidates")) {
    int number = 0;
    for (const Json& item : plan.array("candidates")) {
      const JsonObject candidate(item, source + ": candidate " + std::to_string(++number));
      const std::string name = candidate.text("heuristic");
      const double load = candidate.number_or_zero("load_ms"), cut = candidate.number_or_zero("cut_bytes"),
                   step = candidate.number_or_zero("step_ms");
      candidates.push_back({{"heuristic", name}, {"load_ms", load}, {"step_ms", step}});
      table.add_row({name, format_ms(load), format_bytes(cut), format_ms(step)});
    }
  }
  auto& d = out.document;
  d["plan_kind"] = "heuristics";
  d["model"] = plan.text_or_empty("model");
  d["cluster"] = plan.text_or_empty("cluster");
  d["planner"] = plan.text_or_empty("planner");
  d["devices"] = devices;
  d["devices_used"] = used.size();
  d["tasks"] = tasks;
  for (const char* key : {"step_ms", "load_ms", "lower_bound_ms", "cut_bytes"}) d[key] = plan.number_or_zero(key);
  d["candidates"] = std::move(candidates);

  Facts facts;
  facts.add("model", plan.text_or_empty("model").empty() ? "(unnamed)" : plan.text("model"));
  if (!plan.text_or_empty("cluster").empty()) facts.add("cluster", plan.text("cluster"));
  if (!plan.text_or_empty("planner").empty()) facts.add("heuristic", plan.text("planner"));
  facts.add("tasks",
            count_of(tasks, "task") + " on " + std::to_string(used.size()) + " of " + count_of(devices, "device"));
  if (plan.number_or_zero("step_ms") > 0) {
    facts.add("step", format_ms(plan.number_or_zero("step_ms")) + " simulated; largest load " +
                          format_ms(plan.number_or_zero("load_ms")) + ", " +
                          format_bytes(plan.number_or_zero("cut_bytes")) + " between devices");
  }
  out.text = title(source, "heuristics plan for " + count_of(devices, "device")) + facts.render();
  if (!table.empty()) out.text += "\n" + table.render("  ");
  return out;
}

}  // namespace automap::inspect
