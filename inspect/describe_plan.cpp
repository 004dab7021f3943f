#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/fitted_table.h"
#include "common/base/join.h"
#include "common/base/json_object.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "common/pipeline/plan_json.h"
#include "inspect/facts.h"
#include "inspect/kinds.h"
#include "plan/partition/mesh_plan.h"
#include "plan/partition/partition_plan.h"

namespace automap::inspect {

namespace {

using Align = FittedTable::Align;

Json corrected_json(const pipeline::MeasuredStep& step) {
  return {{"layout", step.layout},
          {"batch", step.batch},
          {"measured_ms", step.measured_ms},
          {"estimated_ms", step.estimated_ms},
          {"compute_factor", step.compute_factor},
          {"network_factor", step.network_factor}};
}

// The correction by which the plan's times differ from the estimate.
std::string corrected_text(const pipeline::MeasuredStep& step) {
  std::vector<std::string> what;
  if (step.compute_factor != 1) what.push_back("compute takes " + format_number(step.compute_factor) + " times");
  if (step.network_factor != 1) what.push_back("the network " + format_number(step.network_factor) + " times");
  return (what.empty() ? "by nothing" : join(what, ", ") + " as long") + ": " + step.layout + " at a batch of " +
         format_amount(step.batch) + " took " + format_ms(step.measured_ms) + " (--measured-step), " +
         format_ms(step.estimated_ms) + " by the estimate";
}

}  // namespace

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
  d["lower_bound_ms"] = p.lower_bound_ms > 0 ? Json(p.lower_bound_ms) : Json();
  d["gap"] = p.lower_bound_ms > 0 ? Json(p.gap) : Json();
  d["measured_step"] = p.measured_step ? corrected_json(*p.measured_step) : Json();

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
  if (p.measured_step) facts.add("corrected", corrected_text(*p.measured_step));
  FittedTable table({{"stage"},
                     {"first layer", Align::kLeft, FittedTable::kNeeded, 12},
                     {"last layer", Align::kLeft, 60, 12},
                     {"instructions", Align::kRight, 10},
                     {"devices", Align::kLeft, FittedTable::kNeeded, 10},
                     {"compute", Align::kRight, 70},
                     {"transfer", Align::kRight, 30},
                     {"all-reduce", Align::kRight, 20},
                     {"memory", Align::kRight, 80}});
  int number = 0;
  for (const pipeline::PlanStage& s : p.stages) {
    ++number;
    for (const pipeline::PlanPart* part : s.own_parts()) {
      const auto once = [&](const std::string& cell) { return part == &s ? cell : std::string(); };
      table.add_row({std::to_string(number), shorten(part->first_layer, 28), shorten(part->last_layer, 28),
                     std::to_string(part->first_instruction) + "-" + std::to_string(part->last_instruction),
                     once(spans_text(s.device_numbers)), once(format_ms(s.compute_ms)), format_ms(part->transfer_ms),
                     once(format_ms(s.allreduce_ms)), once(format_bytes(s.memory_bytes))});
    }
  }
  out.text = title(source, "pipeline plan with " + count_of(p.plan.num_stages(), "stage")) + facts.render() + "\n" +
             table.render("  ");
  return out;
}

namespace {

using partition::PartitionPlan;
using partition::PlanTensor;

Json partition_json(const PartitionPlan& p) {
  Json out = Json::object();
  for (const PlanTensor& tensor : partition::decided_tensors(p)) out[tensor.name] = tensor.dim;
  return out;
}

// For a plan made with --overlap: the overlapped time beside the added-up step.
std::string overlapped_text(const std::optional<double>& overlapped_ms) {
  return overlapped_ms ? " added up, " + format_ms(*overlapped_ms) + " with collectives beside compute" : "";
}

std::string split_text(const PartitionPlan& p) {
  return format_count(p.partitioned) + " of " +
         count_of(static_cast<std::int64_t>(p.decided.size()), p.kind == "data" ? "data input" : "variable");
}

std::string reduces_text(const PartitionPlan& p) {
  return format_count(p.all_reduces) + " of " + count_of(p.partial_sums, "partial sum") + ", " +
         format_bytes(p.all_reduce_bytes) + " per step";
}

// Adds the collectives, a row each; `indent` before the names.
void add_collectives(const PartitionPlan& p, const std::string& indent, Facts* facts) {
  const auto moved = [](int count, double bytes) {
    return format_count(count) + ", " + format_bytes(bytes) + " per step";
  };
  if (p.all_reduces > 0) facts->add(indent + "all-reduces", reduces_text(p));
  if (p.all_gathers > 0) facts->add(indent + "all-gathers", moved(p.all_gathers, p.all_gather_bytes));
  if (p.all_to_alls > 0) facts->add(indent + "all-to-alls", moved(p.all_to_alls, p.all_to_all_bytes));
  if (p.permutes > 0) facts->add(indent + "permutes", moved(p.permutes, p.permute_bytes));
}

// The part of a list of split tensors that people are shown.
std::string tensors_text(const FittedTable& table, std::size_t shown, std::size_t all) {
  if (all == 0) return "";
  std::string out = "\n" + table.render("  ");
  if (all > shown) out += "  ... and " + std::to_string(all - shown) + " more (--json lists them all)\n";
  return out;
}

// Adds the plan's step time and memory, where they are known.
void add_counted(const partition::CountedCost& counted, Facts* facts) {
  if (!counted.cost) return;
  const partition::PlanCost& cost = *counted.cost;
  facts->add("step", format_ms(cost.simulated_step_ms) + " simulated, of " +
                         count_of(cost.micro_batches, "micro-batch") + ", as the layout " + cost.layout);
  facts->add("memory", format_bytes(cost.memory_bytes) + " per device of " + format_bytes(cost.capacity_bytes));
}

}  // namespace

// Plans of the kinds operator and data.
Description describe_partition_plan(Description out, const std::string& text, const std::string& source) {
  const partition::PartitionPlan p = partition::parse_partition_plan(text, source);
  Json& d = out.document;
  d["plan_kind"] = p.kind;
  d["model"] = p.model;
  d["cluster"] = p.cluster;
  d["planner"] = p.planner;
  d["objective"] = p.objective;
  d["shards"] = p.shards;
  d["partition"] = partition_json(p);
  d["decided"] = p.decided.size();
  d["partitioned"] = p.partitioned;
  d["all_reduces"] = p.all_reduces;
  d["partial_sums"] = p.partial_sums;
  d["all_gathers"] = p.all_gathers;
  d["all_to_alls"] = p.all_to_alls;
  d["all_reduce_bytes"] = count_number(p.all_reduce_bytes);
  d["all_gather_bytes"] = count_number(p.all_gather_bytes);
  d["all_to_all_bytes"] = count_number(p.all_to_all_bytes);
  d["permutes"] = p.permutes;
  d["permute_bytes"] = count_number(p.permute_bytes);
  partition::add_cost(p.counted, &d);
  d["estimate"] = {{"step_ms", p.step_ms},
                   {"overlapped_ms", or_null(p.overlapped_ms)},
                   {"replicated_step_ms", p.replicated_step_ms},
                   {"memory_bytes", count_number(p.memory_bytes)}};
  d["value"] = p.value;
  d["bound"] = std::isfinite(p.bound) ? Json(p.bound) : Json();
  d["proven"] = p.proven;

  Facts facts;
  facts.add("model", p.model.empty() ? "(unnamed)" : p.model);
  if (!p.cluster.empty()) facts.add("cluster", p.cluster);
  facts.add("shards", format_count(p.shards));
  if (!p.planner.empty()) facts.add("planner", p.planner + (p.objective.empty() ? "" : ", objective " + p.objective));
  facts.add("split", split_text(p));
  add_counted(p.counted, &facts);
  if (p.step_ms > 0 && (!p.counted.cost || p.overlapped_ms)) {
    facts.add("judged by",
              format_ms(p.step_ms) + overlapped_text(p.overlapped_ms) +
                  (p.replicated_step_ms > 0 ? ", " + format_ms(p.replicated_step_ms) + " with nothing split" : ""));
  }
  if (p.memory_bytes > 0 && !p.counted.cost) facts.add("memory", format_bytes(p.memory_bytes) + " per device");
  add_collectives(p, "", &facts);
  FittedTable table(
      {{"tensor", Align::kLeft, FittedTable::kNeeded, 20}, {"shape", Align::kLeft, 50, 16}, {"split along"}});
  std::size_t shown = 0, all = 0;
  for (const PlanTensor& tensor : partition::decided_tensors(p)) {
    if (tensor.dim < 0 || ++all > kShownRows) continue;
    ++shown;
    table.add_row({shorten(tensor.name, 80), tensor.shape, std::to_string(tensor.dim)});
  }
  out.text = title(source, p.kind + " plan for " + count_of(p.shards, "shard")) + facts.render() +
             tensors_text(table, shown, all);
  return out;
}

namespace {

Json axis_json(const PartitionPlan& p) {
  return {{"shards", p.shards},
          {"partition", partition_json(p)},
          {"decided", p.decided.size()},
          {"partitioned", p.partitioned},
          {"all_reduces", p.all_reduces},
          {"partial_sums", p.partial_sums},
          {"all_gathers", p.all_gathers},
          {"all_to_alls", p.all_to_alls},
          {"all_reduce_bytes", count_number(p.all_reduce_bytes)},
          {"all_gather_bytes", count_number(p.all_gather_bytes)},
          {"all_to_all_bytes", count_number(p.all_to_all_bytes)}};
}

// The data axis of a mesh splits the batch; with ZeRO it stores variables and their state in parts.
std::string data_axis_text(const PartitionPlan& p) {
  std::int64_t batch = 0, stored = 0;
  for (const PlanTensor& tensor : partition::decided_tensors(p)) {
    if (tensor.dim >= 0) ++(tensor.role.empty() || tensor.role == "input" ? batch : stored);
  }
  return count_of(batch, "data input") + " split" +
         (stored > 0 ? ", " + count_of(stored, "other tensor") + " stored in parts" : "");
}

void add_axis(const std::string& name, const PartitionPlan& p, Facts* facts) {
  const std::string what = p.kind == "data" ? data_axis_text(p) : split_text(p) + " split";
  facts->add(name + " axis", p.shards == 1 ? "one device" : count_of(p.shards, "device") + ", " + what);
  add_collectives(p, "  ", facts);
}

// The tensors that some axis splits, with the dimensions.
std::string mesh_tensors_text(const partition::MeshPlan& p) {
  struct Row {
    std::string name, shape, data, model;
  };
  std::vector<Row> rows;
  std::map<std::string, std::size_t> place;
  const auto add = [&](const PartitionPlan& axis, std::string Row::*column) {
    for (const PlanTensor& tensor : partition::decided_tensors(axis)) {
      if (tensor.dim < 0) continue;
      const auto [it, added] = place.emplace(tensor.name, rows.size());
      if (added) rows.push_back({tensor.name, tensor.shape, "", ""});
      rows[it->second].*column = std::to_string(tensor.dim);
    }
  };
  add(p.data_axis, &Row::data);
  add(p.model_axis, &Row::model);
  FittedTable table({{"tensor", Align::kLeft, FittedTable::kNeeded, 20},
                     {"shape", Align::kLeft, 50, 16},
                     {"data axis along", Align::kRight, 80},
                     {"model axis along"}});
  const std::size_t shown = std::min(rows.size(), kShownRows);
  for (std::size_t i = 0; i < shown; ++i) {
    table.add_row({shorten(rows[i].name, 80), rows[i].shape, rows[i].data, rows[i].model});
  }
  return tensors_text(table, shown, rows.size());
}

std::string meshes_text(const partition::MeshPlan& p) {
  if (p.alternatives.empty()) return "";
  const std::size_t shown = std::min(p.alternatives.size(), kShownRows);
  return "\n  meshes that were compared\n\n" + partition::meshes_table(p, shown).render("  ") +
         (p.alternatives.size() > shown
              ? "  ... and " + std::to_string(p.alternatives.size() - shown) + " more (--json lists them all)\n"
              : "");
}

}  // namespace

Description describe_mesh_plan(Description out, const std::string& text, const std::string& source) {
  const partition::MeshPlan p = partition::parse_mesh_plan(text, source);
  Json& d = out.document;
  d["plan_kind"] = "mesh";
  d["model"] = p.model;
  d["cluster"] = p.cluster;
  d["shards"] = p.devices();
  d["mesh"] = {{"data", p.data_axis.shards}, {"model", p.model_axis.shards}};
  d["zero"] = p.zero;
  partition::add_cost(p.counted, &d);
  d["estimate"] = {{"step_ms", p.step_ms},
                   {"compute_ms", p.compute_ms},
                   {"data_collective_ms", p.data_collective_ms},
                   {"model_collective_ms", p.model_collective_ms},
                   {"overlapped_ms", or_null(p.overlapped_ms)},
                   {"replicated_step_ms", p.replicated_step_ms},
                   {"memory_bytes", count_number(p.memory_bytes)},
                   {"capacity_bytes", p.capacity_bytes > 0 ? count_number(p.capacity_bytes) : Json()}};
  d["axes"] = {{"data", axis_json(p.data_axis)}, {"model", axis_json(p.model_axis)}};
  d["alternatives"] = Json::array();
  for (const partition::MeshAlternative& other : p.alternatives) {
    d["alternatives"].push_back({{"mesh", {{"data", other.data}, {"model", other.model}}},
                                 {"zero", other.zero},
                                 {"fits", other.fits},
                                 {"step_ms", other.step_ms},
                                 {"simulated_step_ms", or_null(other.simulated_step_ms)},
                                 {"overlapped_ms", or_null(other.overlapped_ms)},
                                 {"memory_bytes", count_number(other.memory_bytes)}});
  }

  Facts facts;
  facts.add("model", p.model.empty() ? "(unnamed)" : p.model);
  if (!p.cluster.empty()) facts.add("cluster", p.cluster);
  facts.add("mesh", "data " + format_count(p.data_axis.shards) + ", model " + format_count(p.model_axis.shards));
  if (p.data_axis.shards > 1) facts.add("ZeRO", std::to_string(p.zero));
  add_counted(p.counted, &facts);
  if (p.step_ms > 0) {
    const std::string step =
        p.counted.cost && !p.overlapped_ms ? "" : format_ms(p.step_ms) + overlapped_text(p.overlapped_ms) + ": ";
    facts.add("judged by", step + format_ms(p.compute_ms) + " compute, " + format_ms(p.data_collective_ms) +
                               " collectives over the data axis, " + format_ms(p.model_collective_ms) +
                               " over the model axis");
    if (p.replicated_step_ms > 0) facts.add("one device", format_ms(p.replicated_step_ms) + " with nothing split");
  }
  if (p.memory_bytes > 0 && !p.counted.cost) {
    facts.add("memory", format_bytes(p.memory_bytes) + " per device" +
                            (p.capacity_bytes > 0 ? " of " + format_bytes(p.capacity_bytes) : ""));
  }
  add_axis("data", p.data_axis, &facts);
  add_axis("model", p.model_axis, &facts);
  out.text = title(source, "mesh plan for " + count_of(p.devices(), "device")) + facts.render() + mesh_tensors_text(p) +
             meshes_text(p);
  return out;
}

}  // namespace automap::inspect
