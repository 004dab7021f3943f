#include <cmath>
#include <utility>

#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "common/pipeline/plan_json.h"
#include "inspect/facts.h"
#include "inspect/kinds.h"
#include "plan/partition/partition_plan.h"

namespace automap::inspect {

using Json = nlohmann::ordered_json;
using Align = TextTable::Align;

Description describe_plan(Description out, const std::string& text, const std::string& source) {
  const pipeline::PlanDocument p = pipeline::parse_plan(text, source);
  Json& d = out.document;
  d["plan_kind"] = "pipeline";
  d["model"] = p.model;
  d["cluster"] = p.cluster;
  d["planner"] = p.planner;
  d["schedule"] = pipeline::to_string(p.plan.schedule);
  d["micro_batches"] = p.micro_batches;
  d["instructions"] = p.num_instructions;
  d["devices"] = p.num_devices;
  d["stages"] = p.plan.num_stages();
  d["cuts"] = p.plan.cuts;
  d["device_cuts"] = p.plan.device_cuts;
  d["step_ms"] = p.step_ms;
  d["simulated_step_ms"] = p.simulated_step_ms;
  d["lower_bound_ms"] = p.lower_bound_ms > 0 ? Json(p.lower_bound_ms) : Json(nullptr);
  d["gap"] = p.lower_bound_ms > 0 ? Json(p.gap) : Json(nullptr);

  Facts facts;
  facts.add("model", p.model.empty() ? "(unnamed)" : p.model + ", " + count_of(p.num_instructions, "instruction"));
  facts.add("cluster", p.cluster + ", " + count_of(p.num_devices, "device"));
  facts.add("schedule",
            std::string(pipeline::to_string(p.plan.schedule)) + ", " + count_of(p.micro_batches, "micro-batch"));
  facts.add("planner", p.planner);
  facts.add("step", format_ms(p.step_ms) + ", simulated " + format_ms(p.simulated_step_ms));
  if (p.lower_bound_ms > 0) {
    facts.add("lower bound", format_ms(p.lower_bound_ms) + ", gap " + format_percent(p.gap));
  }
  TextTable table({{"stage"},
                   {"first layer", Align::kLeft},
                   {"last layer", Align::kLeft},
                   {"instructions"},
                   {"devices"},
                   {"compute"},
                   {"transfer"},
                   {"all-reduce"},
                   {"memory"}});
  int number = 0;
  for (const pipeline::PlanStage& s : p.stages) {
    table.add_row({std::to_string(++number), shorten(s.first_layer, 28), shorten(s.last_layer, 28),
                   std::to_string(s.first_instruction) + "-" + std::to_string(s.last_instruction),
                   std::to_string(s.first_device) + "-" + std::to_string(s.first_device + s.devices - 1),
                   format_ms(s.compute_ms), format_ms(s.transfer_ms), format_ms(s.allreduce_ms),
                   format_bytes(s.memory_bytes)});
  }
  out.text = title(source, "pipeline plan with " + count_of(p.plan.num_stages(), "stage")) + facts.render() + "\n" +
             table.render("  ");
  return out;
}

// Plans of the kinds operator and data.
Description describe_partition_plan(Description out, const std::string& text, const std::string& source) {
  const partition::PartitionPlan p = partition::parse_partition_plan(text, source);
  Json partition = Json::object();
  for (const partition::PlanTensor& tensor : partition::decided_tensors(p)) partition[tensor.name] = tensor.dim;
  Json& d = out.document;
  d["plan_kind"] = p.kind;
  d["model"] = p.model;
  d["cluster"] = p.cluster;
  d["planner"] = p.planner;
  d["objective"] = p.objective;
  d["shards"] = p.shards;
  d["partition"] = partition;
  d["decided"] = p.decided.size();
  d["partitioned"] = p.partitioned;
  d["all_reduces"] = p.all_reduces;
  d["partial_sums"] = p.partial_sums;
  d["all_gathers"] = p.all_gathers;
  d["all_reduce_bytes"] = count_number(p.all_reduce_bytes);
  d["all_gather_bytes"] = count_number(p.all_gather_bytes);
  d["step_ms"] = p.step_ms;
  d["replicated_step_ms"] = p.replicated_step_ms;
  d["memory_bytes"] = count_number(p.memory_bytes);
  d["value"] = p.value;
  d["bound"] = std::isfinite(p.bound) ? Json(p.bound) : Json(nullptr);
  d["proven"] = p.proven;

  Facts facts;
  facts.add("model", p.model.empty() ? "(unnamed)" : p.model);
  if (!p.cluster.empty()) facts.add("cluster", p.cluster);
  facts.add("shards", format_count(p.shards));
  if (!p.planner.empty()) facts.add("planner", p.planner + (p.objective.empty() ? "" : ", objective " + p.objective));
  facts.add("split",
            format_count(p.partitioned) + " of " +
                count_of(static_cast<std::int64_t>(p.decided.size()), p.kind == "data" ? "data input" : "variable"));
  if (p.step_ms > 0) {
    facts.add("step",
              format_ms(p.step_ms) +
                  (p.replicated_step_ms > 0 ? ", " + format_ms(p.replicated_step_ms) + " with nothing split" : ""));
  }
  if (p.memory_bytes > 0) facts.add("memory", format_bytes(p.memory_bytes) + " per device");
  if (p.all_reduces > 0) {
    facts.add("all-reduces", format_count(p.all_reduces) + " of " + count_of(p.partial_sums, "partial sum") + ", " +
                                 format_bytes(p.all_reduce_bytes) + " per step");
  }
  if (p.all_gathers > 0) {
    facts.add("all-gathers", format_count(p.all_gathers) + ", " + format_bytes(p.all_gather_bytes) + " per step");
  }
  TextTable table({{"tensor", Align::kLeft}, {"shape", Align::kLeft}, {"split along"}});
  std::size_t shown = 0, more = 0;
  for (const partition::PlanTensor& tensor : partition::decided_tensors(p)) {
    if (tensor.dim < 0) continue;
    if (++shown > kShownRows) {
      ++more;
      continue;
    }
    table.add_row({shorten(tensor.name, 80), tensor.shape, std::to_string(tensor.dim)});
  }
  out.text = title(source, p.kind + " plan for " + count_of(p.shards, "shard")) + facts.render();
  if (shown > 0) out.text += "\n" + table.render("  ");
  if (more > 0) out.text += "  ... and " + std::to_string(more) + " more (--json lists them all)\n";
  return out;
}

}  // namespace automap::inspect
