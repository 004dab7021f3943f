#include "plan/partition/mesh_plan.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json_object.h"
#include "common/base/json_text.h"
#include "common/pipeline/plan_reader.h"
#include "common/sharding/explain.h"
#include "plan/partition/apply_plan.h"

namespace automap::partition {
namespace {
using sharding::TensorState;
using sharding::TensorStateKind;

constexpr int kMostDevices = 1 << 15;
constexpr const char* kKind = "mesh";

// One axis: a plan of its own, of which "partition" is enough.
PartitionPlan read_axis(const JsonObject& axes, const char* name, const char* kind, int devices,
                        const std::string& source) {
  const std::string where = source + ": axes: " + name;
  Json axis = Json::object();
  if (axes.has(name)) axis = axes.at(name);
  const JsonObject given(axis, where);
  if (given.has("shards") && given.integer("shards", 1, kMostDevices) != devices) {
    given.fail("shards: found " + std::to_string(given.integer("shards", 1, kMostDevices)) + ", but mesh says " +
               std::to_string(devices));
  }
  if (given.has("kind") && given.text("kind") != kind) {
    given.fail("kind: found \"" + given.text("kind") + "\", expected \"" + kind + "\"");
  }
  if (given.has("sums") && given.text("sums") == "combined") {
    given.fail("sums: in a mesh each partial sum is reduced by itself", "leave sums out, or plan one axis");
  }
  axis["schema"] = pipeline::kPlanSchema;
  axis["kind"] = kind;
  axis["shards"] = devices;
  if (!given.has("partition")) axis["partition"] = Json::object();
  return read_partition_plan(axis, where);
}

Json mesh_alternatives_json(const MeshPlan& plan) {
  Json out = Json::array();
  for (const MeshAlternative& other : plan.alternatives) {
    out.push_back({{"mesh", {{"data", other.data}, {"model", other.model}}},
                   {"zero", other.zero},
                   {"fits", other.fits},
                   {"step_ms", other.step_ms},
                   {"simulated_step_ms", or_null(other.simulated_step_ms)},
                   {"overlapped_ms", or_null(other.overlapped_ms)},
                   {"memory_bytes", whole_bytes(other.memory_bytes)}});
  }
  return out;
}

void read_mesh_alternatives(const JsonObject& reader, const std::string& source, MeshPlan* plan) {
  for (const Json& item : reader.array("alternatives")) {
    const JsonObject other(item, source + ": alternatives");
    const JsonObject mesh(other.at("mesh"), other.where("mesh"));
    MeshAlternative read;
    read.data = mesh.integer("data", 1, kMostDevices);
    read.model = mesh.integer("model", 1, kMostDevices);
    read.zero = other.integer_or("zero", 0, 3, 0);
    read.fits = other.flag("fits");
    read.step_ms = other.number_or_zero("step_ms");
    read.simulated_step_ms = other.number_if_any("simulated_step_ms");
    read.overlapped_ms = other.number_if_any("overlapped_ms");
    read.memory_bytes = other.number_or_zero("memory_bytes");
    plan->alternatives.push_back(read);
  }
}

}  // namespace

std::string mesh_text(int data, int model, int zero) {
  return "--mesh data=" + std::to_string(data) + ",model=" + std::to_string(model) +
         (data > 1 ? " --zero " + std::to_string(zero) : "");
}

FittedTable meshes_table(const MeshPlan& plan, std::size_t most) {
  FittedTable table({{"data x model"},
                     {"zero", FittedTable::Align::kRight, 40},
                     {"step"},
                     {"memory", FittedTable::Align::kRight, 60},
                     {"", FittedTable::Align::kLeft}});
  for (std::size_t i = 0; i < std::min(most, plan.alternatives.size()); ++i) {
    const MeshAlternative& other = plan.alternatives[i];
    const bool chosen =
        other.data == plan.data_axis.shards && other.model == plan.model_axis.shards && other.zero == plan.zero;
    table.add_row({std::to_string(other.data) + " x " + std::to_string(other.model),
                   other.data == 1 ? "-" : std::to_string(other.zero), format_ms(other.expected_ms()),
                   format_bytes(other.memory_bytes),
                   chosen       ? "this plan"
                   : other.fits ? ""
                                : "does not fit"});
  }
  return table;
}

std::string to_json_text(const MeshPlan& plan) {
  Json answer = {{"cluster", plan.cluster},
                 {"shards", plan.devices()},
                 {"mesh", {{"data", plan.data_axis.shards}, {"model", plan.model_axis.shards}}},
                 {"zero", plan.zero},
                 {"estimate",
                  {{"step_ms", plan.step_ms},
                   {"compute_ms", plan.compute_ms},
                   {"data_collective_ms", plan.data_collective_ms},
                   {"model_collective_ms", plan.model_collective_ms},
                   {"overlapped_ms", or_null(plan.overlapped_ms)},
                   {"overlapped_bound_ms", or_null(plan.overlapped_bound_ms)},
                   {"replicated_step_ms", plan.replicated_step_ms},
                   {"memory_bytes", whole_bytes(plan.memory_bytes)},
                   {"capacity_bytes", plan.capacity_bytes > 0 ? Json(whole_bytes(plan.capacity_bytes)) : Json()}}},
                 {"planning_ms", plan.planning_ms},
                 {"axes", {{"data", to_json(plan.data_axis)}, {"model", to_json(plan.model_axis)}}},
                 {"alternatives", mesh_alternatives_json(plan)}};
  Json json = pipeline::in_envelope(pipeline::kPlanSchema, kKind, plan, std::move(answer));
  add_cost(plan.counted, &json);
  return json_text(json);
}

namespace {

MeshPlan read_mesh_plan(const Json& json, const std::string& source) {
  const JsonObject reader(json, source);
  if (reader.text("kind") != kKind) reader.fail("kind: found \"" + reader.text("kind") + "\", expected \"mesh\"");
  const JsonObject mesh(reader.at("mesh"), reader.where("mesh"));
  const int data = mesh.integer("data", 1, kMostDevices), model = mesh.integer("model", 1, kMostDevices);
  if (reader.has("shards") && reader.integer("shards", 1, kMostDevices * kMostDevices) != data * model) {
    reader.fail("shards: found " + std::to_string(reader.integer("shards", 1, kMostDevices * kMostDevices)) +
                ", but the mesh has " + std::to_string(data) + " x " + std::to_string(model) + " devices");
  }
  const JsonObject axes(reader.at("axes"), reader.where("axes"));
  for (const char* object : {"mesh", "axes"}) {
    for (const auto& [axis, value] : json.at(object).items()) {
      if (axis != "data" && axis != "model")
        reader.fail(std::string(object) + ": there is no axis \"" + axis + "\", only data and model");
    }
  }
  MeshPlan plan;
  plan.data_axis = read_axis(axes, "data", "data", data, source);
  plan.model_axis = read_axis(axes, "model", "operator", model, source);
  plan.model = reader.text_or_empty("model");
  plan.cluster = reader.text_or_empty("cluster");
  plan.zero = reader.integer_or("zero", 0, 3, 0);
  plan.counted = read_cost(reader);
  const JsonObject estimate = estimate_of(reader, json, source);
  plan.step_ms = estimate.number_or_zero("step_ms");
  plan.compute_ms = estimate.number_or_zero("compute_ms");
  plan.data_collective_ms = estimate.number_or_zero("data_collective_ms");
  plan.model_collective_ms = estimate.number_or_zero("model_collective_ms");
  plan.overlapped_ms = estimate.number_if_any("overlapped_ms");
  plan.overlapped_bound_ms = estimate.number_if_any("overlapped_bound_ms");
  plan.replicated_step_ms = estimate.number_or_zero("replicated_step_ms");
  plan.memory_bytes = estimate.number_or_zero("memory_bytes");
  plan.capacity_bytes = estimate.number_or_zero("capacity_bytes");
  plan.planning_ms = reader.number_or_zero("planning_ms");
  if (reader.has("alternatives")) read_mesh_alternatives(reader, source, &plan);
  if (reader.has("warnings")) plan.warnings = reader.texts("warnings");
  if (reader.has("provenance")) {
    for (auto& [key, value] : pipeline::read_provenance(reader)) plan.provenance[key] = value;
  }
  plan.data_axis.provenance = plan.model_axis.provenance = plan.provenance;
  return plan;
}

}  // namespace

MeshPlan parse_mesh_plan(std::string_view json_text, const std::string& source) {
  return read_mesh_plan(pipeline::parse_plan_json(json_text, source), source);
}

PlanFile load_plan_file(const std::string& path) {
  const std::string source = input_name(path);
  const std::string text = gunzip_if_gzip(read_file(path, pipeline::kMaxPlanBytes), source, pipeline::kMaxPlanBytes);
  const Json json = pipeline::parse_plan_json(text, source);
  PlanFile out;
  if (json.value("kind", Json()) == kKind) {
    out.mesh = read_mesh_plan(json, source);
  } else {
    out.one = read_partition_plan(json, source);
  }
  return out;
}

std::string indivisible_by_both(const sharding::ShardingModel& model, const sharding::Propagation& data,
                                const sharding::Propagation& operators) {
  const graph::FlowGraph& flow = model.flow();
  const int rows = data.linkage().shards(), columns = operators.linkage().shards();
  for (sharding::NodeId node = 0; node < flow.size(); ++node) {
    const TensorState one = data.state(node), other = operators.state(node);
    if (one.kind != TensorStateKind::kSplit || other.kind != TensorStateKind::kSplit || one.dim != other.dim) continue;
    const std::int64_t extent = flow.shape(node).dims[static_cast<std::size_t>(one.dim)];
    if (extent % (std::int64_t{rows} * columns) == 0) continue;
    return sharding::describe(model, {node, one.dim}) + " is split by both axes, into " + std::to_string(rows) + " x " +
           std::to_string(columns) + " parts, which do not divide " + std::to_string(extent);
  }
  return "";
}

AppliedMesh apply_mesh_plan(const sharding::ShardingModel& model, const MeshPlan& plan, const std::string& model_sha256,
                            std::vector<std::string>* warnings) {
  sharding::ShardingModel data = model.another_axis(plan.data_axis.shards);
  sharding::ShardingModel operators = model.another_axis(plan.model_axis.shards);
  sharding::Propagation data_decided = apply_plan(&data, plan.data_axis, model_sha256, warnings);
  std::vector<std::string> of_model_axis;
  sharding::Propagation model_decided = apply_plan(&operators, plan.model_axis, model_sha256, &of_model_axis);
  for (std::string& warning : of_model_axis) {
    if (warnings != nullptr && std::find(warnings->begin(), warnings->end(), warning) == warnings->end()) {
      warnings->push_back(std::move(warning));
    }
  }
  const std::string why = indivisible_by_both(model, data_decided, model_decided);
  if (!why.empty()) {
    throw Error(ErrorKind::kInfeasible, "the plan cannot be completed: " + why,
                "split it by one axis only, or along another dimension on one of them");
  }
  return {std::move(data), std::move(operators), std::move(data_decided), std::move(model_decided)};
}

}  // namespace automap::partition
