// Describes plans of the kind placement. Only the workload knows the nodes, so that counts are shown.
#include <string>
#include <vector>

#include "common/base/fitted_table.h"
#include "common/base/text_table.h"
#include "common/pipeline/plan_reader.h"
#include "inspect/facts.h"
#include "inspect/kinds.h"

namespace automap::inspect {

namespace {

using Align = FittedTable::Align;

}  // namespace

Description describe_placement_plan(Description out, const std::string& text, const std::string& source) {
  constexpr int kMost = 1 << 30;
  const Json json = pipeline::parse_plan_json(text, source);
  const pipeline::PlanObject plan(json, source);
  Json& d = out.document;
  d["plan_kind"] = "placement";
  for (const char* key : {"model", "objective", "planner"}) d[key] = plan.text_or_empty(key);
  for (const char* key : {"value_ms", "lower_bound_ms"}) d[key] = plan.number_or_zero(key);
  for (const char* key : {"proven", "contiguous"}) d[key] = plan.flag(key);
  d["devices"] = Json::array();

  FittedTable table({{"device", Align::kLeft},
                     {"nodes", Align::kRight, 30},
                     {"compute", Align::kRight, 50},
                     {"in", Align::kRight, 40},
                     {"out", Align::kRight, 40},
                     {"load"},
                     {"memory", Align::kRight, 60}});
  std::size_t shown = 0;
  for (const Json& entry : plan.array("devices")) {
    const pipeline::PlanObject device(entry, plan.where("devices"));
    const std::string kind = device.text("kind");
    if (kind != "accelerator" && kind != "cpu") device.wrong("kind", entry.at("kind"), "\"accelerator\" or \"cpu\"");
    const std::int64_t nodes = static_cast<std::int64_t>(device.array("nodes").size());
    const int number = device.integer("number", 1, kMost);
    d["devices"].push_back({{"kind", kind},
                            {"number", number},
                            {"nodes", nodes},
                            {"load_ms", device.number_or_zero("load_ms")},
                            {"memory_bytes", count_number(device.number_or_zero("memory_bytes"))}});
    if (++shown > kShownRows) continue;
    table.add_row({kind + " " + std::to_string(number), format_count(nodes),
                   format_ms(device.number_or_zero("compute_ms")), format_ms(device.number_or_zero("in_ms")),
                   format_ms(device.number_or_zero("out_ms")), format_ms(device.number_or_zero("load_ms")),
                   format_bytes(device.number_or_zero("memory_bytes"))});
  }

  Facts facts;
  facts.add("model", plan.has("model") ? plan.text("model") : "(unnamed)");
  if (plan.has("objective")) facts.add("objective", plan.text("objective"));
  if (plan.has("value_ms")) {
    facts.add("value", format_ms(plan.number("value_ms")) + (plan.flag("contiguous") ? ", contiguous" : ""));
  }
  if (plan.has("lower_bound_ms")) {
    facts.add("lower bound",
              format_ms(plan.number("lower_bound_ms")) + (plan.has("bound_of") ? " of " + plan.text("bound_of") : ""));
  }
  if (plan.has("planner")) facts.add("planner", plan.text("planner"));
  out.text = title(source, "placement on " + count_of(static_cast<std::int64_t>(d["devices"].size()), "device")) +
             facts.render() + "\n" + table.render("  ");
  if (shown > kShownRows) {
    out.text += "  ... and " + std::to_string(shown - kShownRows) + " more (--json lists them all)\n";
  }
  return out;
}

}  // namespace automap::inspect
