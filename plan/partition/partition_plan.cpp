#include "plan/partition/partition_plan.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>
#include <utility>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json_object.h"
#include "common/base/json_text.h"
#include "common/pipeline/plan_reader.h"
#include "common/sharding/collectives.h"
#include "common/sharding/explain.h"
#include "plan/partition/names.h"
#include "plan/partition/plan_tensors.h"

namespace automap::partition {
namespace {
using PlanObject = JsonObject;
using graph::NodeId;
using sharding::ModelInput;

constexpr int kMostShards = 1 << 30;
constexpr int kMostDims = 1 << 20;
constexpr int kMany = 1 << 30;
constexpr const char* kApartSums = "apart";
constexpr const char* kCombinedSums = "combined";

// The length of a step that no plan goes below, in the planner's estimate; 0 when unknown.
double lower_bound_ms(const PartitionPlan& plan) {
  if (plan.objective != "time" || !std::isfinite(plan.bound)) return 0;
  // With combined sums the bound holds for every group by itself only; sums of several groups may meet as well.
  if (plan.sums_combined) return 0;
  // With kept shardings, the bound is about the rest.
  if (!plan.kept.empty()) return std::max(0.0, plan.step_ms + plan.value - plan.bound);
  return std::max(0.0, plan.replicated_step_ms - plan.bound);
}

// The key of each input in `partition`: its name when no other has it.
std::vector<std::string> partition_keys(const PartitionPlan& plan) {
  std::unordered_map<std::string, int> names;
  for (const PlanTensor& input : plan.inputs) {
    ++names[input.name];
    if (input.parameter != input.name && !input.parameter.empty()) ++names[input.parameter];
  }
  std::vector<std::string> keys;
  for (const PlanTensor& input : plan.inputs) {
    keys.push_back(names[input.name] == 1 || input.parameter.empty() ? input.name : input.parameter);
  }
  return keys;
}

using GatherKind = sharding::Gather::Kind;
const char* name_of(GatherKind kind) {
  switch (kind) {
    case GatherKind::kInParts: return "in parts";
    case GatherKind::kHandedOn: return "handed on";
    case GatherKind::kExchanged: return "exchanged";
    case GatherKind::kBegun: return "begun";
    case GatherKind::kRead: break;
  }
  return "whole";
}

// "how" of a gather; files of version 1 that do not say mean "whole".
GatherKind read_kind(const PlanObject& gather) {
  const std::string how = gather.text_or_empty("how");
  for (const GatherKind kind :
       {GatherKind::kRead, GatherKind::kInParts, GatherKind::kHandedOn, GatherKind::kExchanged, GatherKind::kBegun}) {
    if (how == name_of(kind) || (how.empty() && kind == GatherKind::kRead)) return kind;
  }
  gather.fail("how: found \"" + how +
              "\", expected \"whole\", \"in parts\", \"exchanged\", \"handed on\" or \"begun\"");
}

std::vector<std::pair<std::string, int>> read_members(const PlanObject& group) {
  std::vector<std::pair<std::string, int>> out;
  for (const Json& item : group.array("members")) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_string()) {
      group.wrong("members", item, "[tensor, dimension]");
    }
    out.emplace_back(item[0].get<std::string>(), group.integer_of(item[1], "members", 0, kMostDims));
  }
  return out;
}

// The tensors of `partition`, matched with those of `inputs` when the file has them.
void read_partition(const PlanObject& reader, PartitionPlan* plan) {
  const Json& partition = reader.at("partition");
  const std::string where = reader.where("partition");
  PlanObject(partition, where);
  const bool listed = reader.has("inputs");
  std::unordered_map<std::string, std::size_t> place;
  if (listed) {
    const std::vector<std::string> keys = partition_keys(*plan);
    for (std::size_t i = 0; i < keys.size(); ++i) place.emplace(keys[i], i);
    // Editors may use the other name; an ambiguous name keeps its first meaning.
    for (std::size_t i = 0; i < keys.size(); ++i) place.emplace(plan->inputs[i].parameter, i);
  }
  std::set<std::size_t> seen;
  for (const auto& [name, value] : partition.items()) {
    const int dim = PlanObject(partition, where).integer_of(value, name.c_str(), -1, kMostDims);
    plan->partitioned += dim >= 0 ? 1 : 0;
    if (!listed) {
      plan->inputs.push_back({name, "", "", "", dim});
      plan->decided.push_back(name);
      continue;
    }
    const auto found = place.find(name);
    if (found == place.end()) reader.fail("partition: \"" + name + "\" is not among the inputs");
    const PlanTensor& input = plan->inputs[found->second];
    if (!seen.insert(found->second).second) reader.fail("partition: \"" + name + "\" stands there under two names");
    if (input.dim != dim) {
      reader.fail("partition: \"" + name + "\" is " + std::to_string(dim) + ", but " + std::to_string(input.dim) +
                      " among the inputs",
                  "of a plan edited by hand keep only schema, kind, shards and partition: the rest followed from it");
    }
    plan->decided.push_back(name);
  }
}

Json collectives_json(const PartitionPlan& plan) {
  Json collectives = Json::array();
  for (const PlanCollective& c : plan.collectives) {
    Json sources = Json::array();
    for (const PlanSource& source : c.sources) {
      sources.push_back({{"instruction", source.instruction},
                         {"layer", or_null(source.layer)},
                         {"bytes", whole_bytes(source.bytes)},
                         {"node", source.node}});
    }
    collectives.push_back({{"kind", c.kind},
                           {"reduction", or_null(c.reduction)},
                           {"instruction", c.instruction},
                           {"layer", or_null(c.layer)},
                           {"bytes", whole_bytes(c.bytes)},
                           {"times", c.times},
                           {"partial_sums", c.partial_sums},
                           {"kept_in_parts", c.kept_in_parts},
                           {"sources", sources}});
    if (c.border != 0) collectives.back()["border"] = c.border;
  }
  return collectives;
}

Json alternatives_json(const PartitionPlan& plan) {
  Json alternatives = Json::array();
  for (const PartitionAlternative& other : plan.alternatives) {
    alternatives.push_back({{"planner", other.planner},
                            {"partitioned", other.partitioned},
                            {"step_ms", other.step_ms},
                            {"overlapped_ms", or_null(other.overlapped_ms)},
                            {"memory_bytes", whole_bytes(other.memory_bytes)},
                            {"collective_bytes", whole_bytes(other.collective_bytes)},
                            {"planning_ms", other.planning_ms},
                            {"bound", std::isfinite(other.bound) ? Json(other.bound) : Json()},
                            {"proven", other.proven}});
    if (!other.statistics.empty()) alternatives.back()["statistics"] = Json::object();
    for (const auto& [name, value] : other.statistics) {
      const bool whole = value == std::floor(value) && std::fabs(value) < 9e15;
      alternatives.back()["statistics"][name] = whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
    }
  }
  return alternatives;
}

void add_kept(const PartitionPlan& plan, Json* out) {
  if (plan.kept.empty()) return;
  Json kept = Json::array(), reshards = Json::array();
  for (const PlanKept& one : plan.kept) {
    kept.push_back({{"tensor", one.tensor}, {"dim", one.dim}, {"written", one.written}, {"left", or_null(one.left)}});
  }
  for (const PlanReshard& one : plan.reshards) {
    reshards.push_back({{"kind", one.kind},
                        {"instruction", one.instruction},
                        {"bytes", whole_bytes(one.bytes)},
                        {"times", one.times},
                        {"ms", one.ms}});
  }
  (*out)["kept"] = kept;
  (*out)["reshards"] = reshards;
}

void read_kept(const PlanObject& reader, const std::string& source, PartitionPlan* plan) {
  for (const Json& item : reader.array("kept")) {
    const PlanObject one(item, source + ": kept");
    plan->kept.push_back(
        {one.text("tensor"), one.integer("dim", -1, kMostDims), one.text("written"), one.text_or_empty("left")});
  }
  if (!reader.has("reshards")) return;
  for (const Json& item : reader.array("reshards")) {
    const PlanObject one(item, source + ": reshards");
    plan->reshards.push_back(
        {one.text("kind"), one.text("instruction"), one.number("bytes"), one.number("times"), one.number("ms")});
  }
}

void read_collectives(const PlanObject& reader, const std::string& source, PartitionPlan* plan) {
  for (const Json& item : reader.array("collectives")) {
    const PlanObject c(item, source + ": collectives");
    std::vector<PlanSource> sources;
    if (c.has("sources")) {
      for (const Json& one : c.array("sources")) {
        const PlanObject s(one, c.where("sources"));
        sources.push_back(
            {s.text("instruction"), s.text_or_empty("layer"), s.number("bytes"), s.integer_or("node", -1, kMany, -1)});
      }
    }
    plan->collectives.push_back({c.text("kind"), c.text_or_empty("reduction"), c.text_or_empty("instruction"),
                                 c.text_or_empty("layer"), c.number("bytes"), c.has("times") ? c.number("times") : 1,
                                 c.integer_or("partial_sums", 0, kMany, 1),
                                 c.has("kept_in_parts") && c.flag("kept_in_parts"), std::move(sources),
                                 c.integer_or("border", -kMany, kMany, 0)});
  }
}

void read_alternatives(const PlanObject& reader, const std::string& source, PartitionPlan* plan) {
  for (const Json& item : reader.array("alternatives")) {
    const PlanObject other(item, source + ": alternatives");
    plan->alternatives.push_back({other.text("planner"),
                                  other.integer_or("partitioned", 0, kMany, 0),
                                  other.number_or_zero("step_ms"),
                                  other.number_or_zero("memory_bytes"),
                                  other.number_or_zero("collective_bytes"),
                                  other.number_or_zero("planning_ms"),
                                  other.has("bound") ? other.number("bound") : HUGE_VAL,
                                  other.flag("proven"),
                                  {},
                                  other.number_if_any("overlapped_ms")});
    if (!other.has("statistics")) continue;
    const Json& statistics = item.at("statistics");
    const PlanObject values(statistics, source + ": alternatives: statistics");
    for (const auto& [name, value] : statistics.items()) {
      plan->alternatives.back().statistics[name] = values.number(name.c_str());
    }
  }
}

}  // namespace

std::vector<sharding::TensorState> result_states(const sharding::ShardingModel& model,
                                                 const sharding::Propagation& decided) {
  const std::vector<NodeId>& results = model.flow().results();
  std::vector<std::int32_t> input_of = graph::read_aliases(model.flow());
  for (std::size_t i = 0; i < model.inputs().size(); ++i) {
    const std::int32_t result = model.inputs()[i].result;
    if (result != graph::kNone) input_of[static_cast<std::size_t>(result)] = static_cast<std::int32_t>(i);
  }
  std::vector<sharding::TensorState> out;
  for (std::size_t r = 0; r < results.size(); ++r) {
    out.push_back(decided.state(results[r]));
    const graph::Shape& shape = model.flow().shape(results[r]);
    if (input_of[r] == graph::kNone || !model.linkage().is_free(results[r]) || !shape.is_array()) continue;
    const NodeId input = model.inputs()[static_cast<std::size_t>(input_of[r])].node;
    const graph::Shape& own = model.flow().shape(input);
    if (own.is_array() && own.dims == shape.dims) out.back() = decided.state(input);
  }
  for (const sharding::Gather& gather : model.gathers()) {
    if (gather.kind != GatherKind::kHandedOn) continue;
    for (std::size_t r = 0; r < results.size(); ++r) {
      if (results[r] == gather.tensor) out[r] = decided.state(gather.op);
    }
  }
  return out;
}

void describe_decision(const sharding::ShardingModel& model, const sharding::Propagation& decided, PartitionPlan* plan,
                       const sharding::TensorShares* shares) {
  plan->shards = model.linkage().shards();
  plan->inputs.clear();
  for (const ModelInput& input : model.inputs()) {
    const sharding::TensorState state = decided.state(input.node);
    plan->inputs.push_back({input.name, input.parameter_name, graph::to_string(input.role),
                            std::string(model.flow().shape(input.node).text),
                            state.kind == sharding::TensorStateKind::kSplit ? state.dim : -1});
  }
  plan->results.clear();
  const std::vector<sharding::TensorState> states = result_states(model, decided);
  for (std::size_t r = 0; r < states.size(); ++r) {
    const sharding::TensorState& state = states[r];
    plan->results.push_back({std::string(model.flow().shape(model.flow().results()[r]).text), "",
                             state.kind == sharding::TensorStateKind::kSplit ? state.dim : -1});
  }
  for (const ModelInput& input : model.inputs()) {
    if (input.result != graph::kNone) plan->results[static_cast<std::size_t>(input.result)].input = input.name;
  }
  // A plan made elsewhere may use paths and numbers.
  const PlanTensors tensors(model);
  const std::vector<std::string> keys = partition_keys(*plan);
  std::set<std::string> known;
  for (const PlanTensor& input : plan->inputs) known.insert({input.name, input.parameter});
  for (std::string& name : plan->decided) {
    if (known.count(name) != 0) continue;
    name = keys[static_cast<std::size_t>(tensors.find({name, "", "", "", -1}))];
  }
  const std::vector<bool> asked = decided_inputs(*plan);
  plan->partitioned = 0;
  for (std::size_t i = 0; i < plan->inputs.size(); ++i) plan->partitioned += asked[i] && plan->inputs[i].dim >= 0;
  plan->sums_combined = model.sums_combined();
  plan->halos = model.halos();
  plan->collectives.clear();
  const std::vector<sharding::Collective> listed =
      sharding::find_collectives(model, decided, sharding::listed_placement(model), shares);
  const std::vector<sharding::Collective> at_once =
      sharding::find_collectives(model, decided, sharding::Placement::kAtOnce, shares);
  std::unordered_map<NodeId, double> partial_bytes;  // of instructions, whose results may be several
  for (const sharding::Collective& c : at_once) {
    if (c.reduces()) partial_bytes[c.sources.at(0)] += c.bytes;
  }
  for (const sharding::Collective& c : listed) {
    std::vector<PlanSource> sources;
    if (c.reduces()) {
      for (const NodeId op : c.sources) {
        sources.push_back({instruction_name(model, op), scope_of(model, op), partial_bytes[op], op});
      }
    }
    const auto partial_sums = static_cast<int>(sources.size());
    plan->collectives.push_back(
        {to_string(c.written_kind()), c.reduction == sharding::Reduction::kNone ? "" : sharding::to_string(c.reduction),
         instruction_name(model, c.node), scope_of(model, c.node), c.bytes, c.times, partial_sums,
         c.kind == CollectiveKind::kReduceScatter, std::move(sources), static_cast<int>(c.border)});
  }
  const sharding::CollectiveTotals reduced = sharding::total(listed, CollectiveKind::kAllReduce);
  const sharding::CollectiveTotals gathered = sharding::total(listed, CollectiveKind::kAllGather);
  plan->all_reduces = static_cast<int>(reduced.count);
  plan->all_reduce_bytes = reduced.bytes;
  plan->all_gathers = static_cast<int>(gathered.count);
  plan->all_gather_bytes = gathered.bytes;
  const sharding::CollectiveTotals exchanged = sharding::total(listed, CollectiveKind::kAllToAll);
  plan->all_to_alls = static_cast<int>(exchanged.count);
  plan->all_to_all_bytes = exchanged.bytes;
  const sharding::CollectiveTotals borders = sharding::total(listed, CollectiveKind::kPermute);
  plan->permutes = static_cast<int>(borders.count);
  plan->permute_bytes = borders.bytes;
  plan->partial_sums = static_cast<int>(sharding::total(at_once, CollectiveKind::kAllReduce).count);
  plan->gathers.clear();
  for (const sharding::Gather& g : model.gathers()) {
    plan->gathers.push_back(
        {instruction_name(model, g.op), instruction_name(model, g.tensor), g.op, g.tensor, g.dim, g.kind});
  }
}

std::vector<bool> decided_inputs(const PartitionPlan& plan) {
  const std::set<std::string> names(plan.decided.begin(), plan.decided.end());
  std::vector<bool> out;
  for (const PlanTensor& input : plan.inputs) {
    out.push_back(names.count(input.name) != 0 || (!input.parameter.empty() && names.count(input.parameter) != 0));
  }
  return out;
}

std::vector<PlanTensor> decided_tensors(const PartitionPlan& plan) {
  const std::vector<bool> decided = decided_inputs(plan);
  std::vector<PlanTensor> out;
  for (std::size_t i = 0; i < decided.size(); ++i) {
    if (decided[i]) out.push_back(plan.inputs[i]);
  }
  return out;
}

std::string decision_json_text(const PartitionPlan& plan) {
  const Json all = to_json(plan);
  Json out = Json::object();
  for (const char* key : {"schema", "kind", "shards", "sums", "halos", "partition", "gathers"}) {
    if (all.contains(key)) out[key] = all.at(key);
  }
  return json_text(out);
}

Json to_json(const PartitionPlan& plan) {
  const std::vector<std::string> keys = partition_keys(plan);
  const std::vector<bool> decided = decided_inputs(plan);
  Json partition = Json::object(), inputs = Json::array(), results = Json::array(), gathers = Json::array(),
       groups = Json::array();
  int partitioned = 0;
  for (std::size_t i = 0; i < plan.inputs.size(); ++i) {
    const PlanTensor& input = plan.inputs[i];
    if (decided[i]) {
      partition[keys[i]] = input.dim;
      partitioned += input.dim >= 0 ? 1 : 0;
    }
    inputs.push_back({{"name", input.name},
                      {"parameter", or_null(input.parameter)},
                      {"role", or_null(input.role)},
                      {"shape", or_null(input.shape)},
                      {"dim", input.dim}});
  }
  for (const PlanResult& result : plan.results) {
    results.push_back({{"shape", result.shape}, {"input", or_null(result.input)}, {"dim", result.dim}});
  }
  for (const PlanGather& g : plan.gathers) {
    gathers.push_back({{"instruction", g.instruction},
                       {"tensor", g.tensor},
                       {"dim", g.dim},
                       {"how", name_of(g.kind)},
                       {"node", g.node},
                       {"tensor_node", g.tensor_node}});
  }
  for (const PlanLinkageGroup& group : plan.groups) {
    Json members = Json::array();
    for (const auto& [name, dim] : group.members) members.push_back({name, dim});
    groups.push_back({{"split", group.split},
                      {"members", members},
                      {"saved_ms", group.saved_ms},
                      {"collective_ms", group.collective_ms},
                      {"saved_bytes", whole_bytes(group.saved_bytes)}});
  }
  Json answer = {{"cluster", plan.cluster},
                 {"shards", plan.shards},
                 {"sums", plan.sums_combined ? kCombinedSums : kApartSums},
                 {"partition", partition},
                 {"partitioned", partitioned},
                 {"planner", plan.planner},
                 {"objective", plan.objective},
                 {"value", plan.value},
                 {"bound", std::isfinite(plan.bound) ? Json(plan.bound) : Json()},
                 {"proven", plan.proven},
                 {"planning_ms", plan.planning_ms},
                 {"cut_by_time", plan.cut_by_time},
                 {"all_reduces", plan.all_reduces},
                 {"partial_sums", plan.partial_sums},
                 {"all_gathers", plan.all_gathers},
                 {"all_to_alls", plan.all_to_alls},
                 {"all_reduce_bytes", whole_bytes(plan.all_reduce_bytes)},
                 {"all_gather_bytes", whole_bytes(plan.all_gather_bytes)},
                 {"all_to_all_bytes", whole_bytes(plan.all_to_all_bytes)},
                 {"collectives", collectives_json(plan)},
                 {"gathers", gathers},
                 {"inputs", inputs},
                 {"results", results},
                 {"groups", groups},
                 {"alternatives", alternatives_json(plan)}};
  Json out = pipeline::in_envelope(pipeline::kPlanSchema, plan.kind, plan, std::move(answer));
  if (plan.halos) {
    out["halos"] = true;
    out["permutes"] = plan.permutes;
    out["permute_bytes"] = whole_bytes(plan.permute_bytes);
  }
  add_kept(plan, &out);
  return out;
}

std::string to_json_text(const PartitionPlan& plan) {
  Json out = to_json(plan);
  add_cost(plan.counted, &out);
  const double bound_ms = lower_bound_ms(plan);
  out["estimate"] = {{"step_ms", plan.step_ms},
                     {"compute_ms", plan.compute_ms},
                     {"collective_ms", plan.collective_ms},
                     {"overlapped_ms", or_null(plan.overlapped_ms)},
                     {"overlapped_bound_ms", or_null(plan.overlapped_bound_ms)},
                     {"replicated_step_ms", plan.replicated_step_ms},
                     {"lower_bound_ms", bound_ms > 0 ? Json(bound_ms) : Json()},
                     {"gap", bound_ms > 0 ? Json(std::max(0.0, plan.step_ms / bound_ms - 1)) : Json()},
                     {"memory_bytes", whole_bytes(plan.memory_bytes)},
                     {"capacity_bytes", plan.capacity_bytes > 0 ? Json(whole_bytes(plan.capacity_bytes)) : Json()}};
  return json_text(out);
}

PartitionPlan parse_partition_plan(std::string_view json_text, const std::string& source) {
  return read_partition_plan(pipeline::parse_plan_json(json_text, source), source);
}

PartitionPlan read_partition_plan(const Json& json, const std::string& source) {
  const PlanObject reader(json, source);
  PartitionPlan plan;
  plan.kind = reader.text("kind");
  if (plan.kind != "operator" && plan.kind != "data") {
    reader.fail(
        "kind: found \"" + plan.kind + "\", expected \"operator\" or \"data\"",
        plan.kind == "pipeline" ? "a pipeline plan cuts the model into stages; automap-inspect describes it" : "");
  }
  plan.shards = reader.integer("shards", 1, kMostShards);
  const std::string sums = reader.text_or_empty("sums");
  if (!sums.empty() && sums != kApartSums && sums != kCombinedSums) {
    reader.fail("sums: found \"" + sums + "\", expected \"apart\" or \"combined\"");
  }
  plan.sums_combined = sums == kCombinedSums;
  plan.halos = reader.has("halos") && reader.flag("halos");
  plan.model = reader.text_or_empty("model");
  plan.cluster = reader.text_or_empty("cluster");
  plan.planner = reader.text_or_empty("planner");
  plan.objective = reader.text_or_empty("objective");
  if (!plan.objective.empty() && plan.objective != "count" && plan.objective != "time") {
    reader.fail("objective: found \"" + plan.objective + "\", expected \"count\" or \"time\"");
  }
  if (reader.has("inputs")) {
    int number = 0;
    for (const Json& item : reader.array("inputs")) {
      const PlanObject input(item, source + ": input " + std::to_string(number++));
      plan.inputs.push_back({input.text("name"), input.text_or_empty("parameter"), input.text_or_empty("role"),
                             input.text_or_empty("shape"), input.integer("dim", -1, kMostDims)});
    }
  }
  if (reader.has("results")) {
    for (const Json& item : reader.array("results")) {
      const PlanObject result(item, source + ": results");
      plan.results.push_back(
          {result.text("shape"), result.text_or_empty("input"), result.integer("dim", -1, kMostDims)});
    }
  }
  read_partition(reader, &plan);
  if (reader.has("partitioned") && reader.integer("partitioned", 0, kMany) != plan.partitioned) {
    reader.fail("partitioned: found " + std::to_string(reader.integer("partitioned", 0, kMany)) +
                ", but partition has " + std::to_string(plan.partitioned));
  }
  plan.value = reader.number_or_zero("value");
  plan.bound = reader.has("bound") ? reader.number("bound") : HUGE_VAL;
  plan.proven = reader.flag("proven");
  plan.cut_by_time = reader.flag("cut_by_time");
  plan.counted = read_cost(reader);
  const PlanObject estimate = estimate_of(reader, json, source);
  plan.step_ms = estimate.number_or_zero("step_ms");
  plan.compute_ms = estimate.number_or_zero("compute_ms");
  plan.collective_ms = estimate.number_or_zero("collective_ms");
  plan.overlapped_ms = estimate.number_if_any("overlapped_ms");
  plan.overlapped_bound_ms = estimate.number_if_any("overlapped_bound_ms");
  plan.replicated_step_ms = estimate.number_or_zero("replicated_step_ms");
  plan.memory_bytes = estimate.number_or_zero("memory_bytes");
  plan.capacity_bytes = estimate.number_or_zero("capacity_bytes");
  plan.planning_ms = reader.number_or_zero("planning_ms");
  plan.all_reduces = reader.integer_or("all_reduces", 0, kMany, 0);
  plan.partial_sums = reader.integer_or("partial_sums", 0, kMany, 0);
  plan.all_gathers = reader.integer_or("all_gathers", 0, kMany, 0);
  plan.all_to_alls = reader.integer_or("all_to_alls", 0, kMany, 0);
  plan.all_reduce_bytes = reader.number_or_zero("all_reduce_bytes");
  plan.all_gather_bytes = reader.number_or_zero("all_gather_bytes");
  plan.all_to_all_bytes = reader.number_or_zero("all_to_all_bytes");
  plan.permutes = reader.integer_or("permutes", 0, kMany, 0);
  plan.permute_bytes = reader.number_or_zero("permute_bytes");
  if (reader.has("collectives")) read_collectives(reader, source, &plan);
  if (reader.has("gathers")) {
    for (const Json& item : reader.array("gathers")) {
      const PlanObject g(item, source + ": gathers");
      plan.gathers.push_back({g.text("instruction"), g.text("tensor"), g.integer_or("node", -1, kMany, -1),
                              g.integer_or("tensor_node", -1, kMany, -1), g.integer("dim", 0, kMostDims),
                              read_kind(g)});
    }
  }
  if (reader.has("kept")) read_kept(reader, source, &plan);
  if (reader.has("groups")) {
    for (const Json& item : reader.array("groups")) {
      const PlanObject group(item, source + ": groups");
      PlanLinkageGroup out;
      out.members = read_members(group);
      out.split = group.flag("split");
      out.saved_ms = group.number_or_zero("saved_ms");
      out.collective_ms = group.number_or_zero("collective_ms");
      out.saved_bytes = group.number_or_zero("saved_bytes");
      plan.groups.push_back(std::move(out));
    }
  }
  if (reader.has("alternatives")) read_alternatives(reader, source, &plan);
  if (reader.has("warnings")) plan.warnings = reader.texts("warnings");
  if (reader.has("provenance")) {
    for (auto& [key, value] : pipeline::read_provenance(reader)) plan.provenance[key] = value;
  }
  return plan;
}

}  // namespace automap::partition
