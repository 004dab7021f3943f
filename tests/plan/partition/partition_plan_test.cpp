#include "plan/partition/partition_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/rng.h"
#include "common/hlo/hlo_reader.h"
#include "plan/partition/apply_plan.h"
#include "tests/data_folders.h"
#include "tests/plan/partition/loaded_model.h"

namespace automap::partition {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

PartitionPlan foreign(int shards, const std::vector<std::pair<std::string, int>>& partition) {
  Json json = {{"schema", "automap.plan/1"}, {"kind", "operator"}, {"shards", shards}};
  json["partition"] = Json::object();
  for (const auto& [name, dim] : partition) json["partition"][name] = dim;
  return parse_partition_plan(json.dump(), "plan.json");
}

// Every key of the file, with values that are all different.
PartitionPlan full_plan() {
  PartitionPlan plan;
  plan.kind = "operator";
  plan.model = "small";
  plan.cluster = "h100-1x8";
  plan.planner = "enumerate";
  plan.objective = "time";
  plan.shards = 8;
  plan.inputs = {{"params['a']", "params__a__.1", "variable", "f32[8,16]", 1},
                 {"params['b']", "params__b__.1", "variable", "f32[16]", -1},
                 {"x", "x.1", "input", "f32[32,8]", -1}};
  plan.results = {{"f32[8,16]", "params['a']", 1}, {"f32[16]", "params['b']", -1}, {"f32[]", "", -1}};
  plan.decided = {"params['a']", "params['b']"};
  plan.partitioned = 1;
  plan.value = 3.5;
  plan.bound = 4;
  plan.cut_by_time = true;
  plan.step_ms = 6.5;
  plan.compute_ms = 5;
  plan.collective_ms = 1.5;
  plan.overlapped_ms = 5.75;
  plan.overlapped_bound_ms = 2.25;
  plan.replicated_step_ms = 10;
  plan.memory_bytes = 1000;
  plan.capacity_bytes = 2000;
  plan.planning_ms = 12.25;
  plan.all_reduces = 2;
  plan.partial_sums = 3;
  plan.all_gathers = 1;
  plan.all_reduce_bytes = 768;
  plan.all_gather_bytes = 64;
  plan.collectives = {
      {"all-reduce", "add", "add.1", "hidden", 512, 2, 2, true, {{"dot.1", "hidden", 1024, 7}, {"dot.2", "", 1024, 9}}},
      {"all-gather", "", "x.1", "", 64, 1, 0, false, {}}};
  plan.gathers = {{"sort.1", "x.1", 17, 3, 1}, {"add.2", "x.1", 18, 3, 0, sharding::Gather::Kind::kInParts}};
  plan.groups = {{{{"params['a']", 1}, {"params['b']", 0}}, true, 4, 0.5, 100}, {{{"params['a']", 0}}, false, 1, 2, 3}};
  plan.alternatives = {{"greedy", 1, 7, 1100, 300, 0.5, HUGE_VAL, false, {{"episodes", 12}, {"seconds", 0.25}}, 6.75},
                       {"replicate", 0, 10, 1500, 0, 0, 4, true, {}}};
  plan.warnings = {"a warning"};
  plan.provenance = {{"version", "0.1.0"}, {"model_sha256", "00"}};
  return plan;
}

TEST(PartitionPlan, ReadsBackWhatItWrote) {
  const PartitionPlan plan = full_plan();
  const std::string text = to_json_text(plan);
  const PartitionPlan again = parse_partition_plan(text, "x.json");
  EXPECT_EQ(to_json_text(again), text);
  EXPECT_EQ(again.kind, "operator");
  EXPECT_EQ(again.inputs[0].dim, 1);
  EXPECT_EQ(again.inputs[2].shape, "f32[32,8]");
  EXPECT_THAT(again.decided, ElementsAre("params['a']", "params['b']"));
  EXPECT_EQ(again.partitioned, 1);
  EXPECT_EQ(again.bound, 4);
  EXPECT_TRUE(again.cut_by_time);
  EXPECT_EQ(again.overlapped_ms, 5.75);
  EXPECT_EQ(again.overlapped_bound_ms, 2.25);
  EXPECT_EQ(again.alternatives[0].overlapped_ms, 6.75);
  EXPECT_FALSE(again.alternatives[1].overlapped_ms);
  EXPECT_EQ(again.collectives[1].kind, "all-gather");
  ASSERT_EQ(again.collectives[0].sources.size(), 2u);
  EXPECT_EQ(again.collectives[0].sources[1].instruction, "dot.2");
  EXPECT_EQ(again.collectives[0].sources[0].bytes, 1024);
  EXPECT_EQ(again.collectives[0].sources[0].node, 7);
  EXPECT_EQ(again.gathers[0].node, 17);
  EXPECT_EQ(again.groups[0].members[1].second, 0);
  EXPECT_TRUE(std::isinf(again.alternatives[0].bound));
  EXPECT_EQ(again.alternatives[0].statistics, plan.alternatives[0].statistics);
  EXPECT_TRUE(again.alternatives[1].statistics.empty());
  EXPECT_EQ(again.results[0].input, "params['a']");
  const auto json = Json::parse(text);
  EXPECT_EQ(json["partition"], Json::parse(R"({"params['a']": 1, "params['b']": -1})"));
  // 3.5 of at most 4 ms saved of 10: no plan is below 6.
  EXPECT_EQ(json["estimate"]["lower_bound_ms"], 6);
  EXPECT_DOUBLE_EQ(json["estimate"]["gap"].get<double>(), 6.5 / 6 - 1);
}

TEST(PartitionPlan, WhatItTakesIsReadBack) {
  PartitionPlan plan = full_plan();
  plan.counted.cost = PlanCost{"dp=1,pp=1,tp=8,micro-batch-size=4", 4, 2, 6.25, 6.5, 3000, 4000};
  const std::string text = to_json_text(plan);
  const PartitionPlan again = parse_partition_plan(text, "x.json");
  EXPECT_EQ(to_json_text(again), text);
  ASSERT_TRUE(again.counted.cost);
  EXPECT_EQ(again.counted.cost->simulated_step_ms, 6.5);
  EXPECT_EQ(again.memory_bytes, plan.memory_bytes);  // of the estimate
  plan.counted = {std::nullopt, "no layout"};
  EXPECT_EQ(parse_partition_plan(to_json_text(plan), "x.json").counted.why_none, "no layout");
}

// Files of before have the keys of the estimate at the top.
TEST(PartitionPlan, OlderFilesHaveTheirEstimate) {
  Json json = Json::parse(to_json_text(full_plan()));
  const Json estimate = json["estimate"];
  json.erase("estimate");
  for (const auto& [key, value] : estimate.items()) json[key] = value;
  const PartitionPlan again = parse_partition_plan(json.dump(), "x.json");
  EXPECT_EQ(again.step_ms, full_plan().step_ms);
  EXPECT_EQ(again.overlapped_ms, full_plan().overlapped_ms);
  EXPECT_FALSE(again.counted.cost);
}

TEST(PartitionPlan, UnknownBoundsAreNull) {
  PartitionPlan plan = full_plan();
  plan.bound = HUGE_VAL;
  auto json = Json::parse(to_json_text(plan));
  EXPECT_TRUE(json["bound"].is_null());
  EXPECT_TRUE(json["estimate"]["lower_bound_ms"].is_null());
  EXPECT_TRUE(std::isinf(parse_partition_plan(json.dump(), "x").bound));
  // A count bounds no time.
  plan.bound = 2;
  plan.objective = "count";
  json = Json::parse(to_json_text(plan));
  EXPECT_EQ(json["bound"], 2);
  EXPECT_TRUE(json["estimate"]["lower_bound_ms"].is_null());
}

TEST(PartitionPlan, InputsThatShareANameGoByTheirParameter) {
  PartitionPlan plan = full_plan();
  plan.inputs[1].name = "params['a']";
  plan.decided = {"params__b__.1"};
  const auto json = Json::parse(to_json_text(plan));
  EXPECT_EQ(json["partition"], Json::parse(R"({"params__b__.1": -1})"));
  const PartitionPlan again = parse_partition_plan(json.dump(), "x");
  EXPECT_THAT(again.decided, ElementsAre("params__b__.1"));
  EXPECT_EQ(Json::parse(to_json_text(again)), json);
}

TEST(PartitionPlan, ForeignPlansNeedFourKeys) {
  const PartitionPlan plan = parse_partition_plan(
      R"({"schema": "automap.plan/1", "kind": "data", "shards": 4, "partition": {"x": 0, "w": -1}, "author": "me"})",
      "x.json");
  EXPECT_EQ(plan.kind, "data");
  EXPECT_EQ(plan.shards, 4);
  EXPECT_EQ(plan.partitioned, 1);
  EXPECT_THAT(plan.decided, ElementsAre("x", "w"));
  EXPECT_EQ(plan.inputs[0].dim, 0);
  EXPECT_EQ(plan.inputs[1].dim, -1);
  EXPECT_EQ(to_json_text(parse_partition_plan(to_json_text(plan), "x")), to_json_text(plan));
}

TEST(PartitionPlan, NamesMayHoldAnyBytes) {
  PartitionPlan plan = full_plan();
  plan.inputs[0].name = "\xff\xfe\"\n";
  plan.decided = {plan.inputs[0].name};
  EXPECT_NO_THROW(parse_partition_plan(to_json_text(plan), "x"));
}

std::string complaint(const std::function<void(Json&)>& edit) {
  auto json = Json::parse(to_json_text(full_plan()));
  edit(json);
  try {
    parse_partition_plan(json.dump(), "x.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData);
    EXPECT_EQ(std::string(e.what()).rfind("x.json: ", 0), 0u) << e.what();
    return std::string(e.what()) + " | " + e.hint();
  }
  ADD_FAILURE() << "accepted: " << json.dump();
  return "";
}

TEST(PartitionPlan, WrongValuesAreNamed) {
  using J = Json;
  for (const char* key : {"schema", "kind", "shards", "partition"}) {
    EXPECT_THAT(complaint([&](J& j) { j.erase(key); }), HasSubstr("missing key \"" + std::string(key) + "\""));
  }
  EXPECT_THAT(complaint([](J& j) { j["schema"] = "automap.plan/2"; }), HasSubstr("update AutoMap"));
  EXPECT_THAT(complaint([](J& j) { j["kind"] = "pipeline"; }), HasSubstr("expected \"operator\" or \"data\""));
  EXPECT_THAT(complaint([](J& j) { j["kind"] = "pipeline"; }), HasSubstr("cuts the model into stages"));
  EXPECT_THAT(complaint([](J& j) { j["shards"] = 0; }), HasSubstr("shards: found 0, expected a whole number from 1"));
  EXPECT_THAT(complaint([](J& j) { j["shards"] = 2.5; }), HasSubstr("2.5"));
  EXPECT_THAT(complaint([](J& j) { j["partition"] = {1, 2}; }), HasSubstr("expected an object"));
  EXPECT_THAT(complaint([](J& j) { j["partition"]["params['a']"] = -2; }),
              HasSubstr("params['a']: found -2, expected a whole number from -1"));
  EXPECT_THAT(complaint([](J& j) { j["partition"]["params['a']"] = "0"; }), HasSubstr("found \"0\""));
  EXPECT_THAT(complaint([](J& j) { j["partition"]["params['a']"] = 0; }),
              HasSubstr("\"params['a']\" is 0, but 1 among the inputs | of a plan edited by hand keep only"));
  EXPECT_THAT(complaint([](J& j) { j["partition"]["params['c']"] = 0; }), HasSubstr("not among the inputs"));
  EXPECT_THAT(complaint([](J& j) { j["partition"]["params__a__.1"] = 1; }), HasSubstr("under two names"));
  EXPECT_THAT(complaint([](J& j) { j["partitioned"] = 2; }), HasSubstr("found 2, but partition has 1"));
  EXPECT_THAT(complaint([](J& j) { j["objective"] = "best"; }), HasSubstr("expected \"count\" or \"time\""));
  EXPECT_THAT(complaint([](J& j) { j["inputs"][1].erase("dim"); }), HasSubstr("input 1: missing key \"dim\""));
  EXPECT_THAT(complaint([](J& j) { j["estimate"]["step_ms"] = -1; }), HasSubstr("estimate: step_ms: found -1"));
  EXPECT_THAT(complaint([](J& j) {
                j["layout"] = "dp=2";
                j["step_ms"] = -1;
              }),
              HasSubstr("step_ms: found -1"));
  EXPECT_THAT(complaint([](J& j) { j["collectives"][0]["bytes"] = "many"; }), HasSubstr("collectives: bytes"));
  EXPECT_THAT(complaint([](J& j) { j["collectives"][0]["sources"][0]["bytes"] = -1; }),
              HasSubstr("collectives: sources: bytes"));
  EXPECT_THAT(complaint([](J& j) { j["collectives"][0]["sources"] = {1}; }), HasSubstr("collectives: sources"));
  EXPECT_THAT(complaint([](J& j) { j["groups"][0]["members"][0] = {"a"}; }), HasSubstr("[tensor, dimension]"));
  EXPECT_THAT(complaint([](J& j) { j["gathers"][0]["dim"] = -1; }), HasSubstr("gathers: dim"));
  EXPECT_THAT(complaint([](J& j) { j["provenance"] = 3; }), HasSubstr("provenance"));
  EXPECT_THAT(complaint([](J& j) { j = J::array(); }), HasSubstr("expected an object"));
}

TEST(PartitionPlan, ContradictionsInOneObjectAreErrors) {
  try {
    parse_partition_plan(
        R"({"schema": "automap.plan/1", "kind": "operator", "shards": 2, "partition": {"w": 0, "w": 1}})", "x.json");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "x.json: key \"w\" is given twice in one object");
  }
}

// Damage in any place gives an error or a plan, never anything else.
TEST(PartitionPlan, DamageIsRefusedOrHarmless) {
  const std::string text = to_json_text(full_plan());
  for (std::size_t size = 0; size + 2 < text.size(); size += 7) {
    EXPECT_THROW(parse_partition_plan(text.substr(0, size), "x"), Error) << size;
  }
  EXPECT_THROW(parse_partition_plan("{\"a\":" + std::string(200000, '['), "x"), Error);
  Rng rng(1, 0, 0);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(rng.below(n)); };
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = text;
    for (std::size_t k = 0; k <= below(3); ++k) {
      const std::size_t at = below(damaged.size());
      switch (below(3)) {
        case 0: damaged[at] = static_cast<char>(below(256)); break;
        case 1: damaged.erase(at, 1 + below(20)); break;
        default: damaged.insert(at, damaged.substr(below(damaged.size()), below(30)));
      }
    }
    try {
      const PartitionPlan plan = parse_partition_plan(damaged, "x");
      to_json_text(plan);
      ++accepted;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kData) << e.what();
    }
  }
  EXPECT_GT(accepted, 0);
}

// All values that hold no other.
std::vector<Json*> leaves_of(Json& json) {
  if ((!json.is_array() && !json.is_object()) || json.empty()) return {&json};
  std::vector<Json*> out;
  for (Json& value : json) {
    for (Json* leaf : leaves_of(value)) out.push_back(leaf);
  }
  return out;
}

// Values of every type in every place.
TEST(PartitionPlan, OtherTypesAreRefusedOrHarmless) {
  const std::string text = to_json_text(full_plan());
  Json whole = Json::parse(text);
  const std::size_t places = leaves_of(whole).size();
  int refused = 0;
  for (std::size_t place = 0; place < places; ++place) {
    for (const char* other : {"null", "true", "-1", "1e300", "0.5", "\"x\"", "[]", "{}", "[1]", "{\"a\": 1}"}) {
      Json changed = Json::parse(text);
      *leaves_of(changed)[place] = Json::parse(other);
      try {
        to_json_text(parse_partition_plan(changed.dump(), "x"));
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::kData) << e.what();
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100);
}

// --- on a model ---

std::string apply_complaint(sharding::ShardingModel* model, const PartitionPlan& plan, ErrorKind kind,
                            const std::string& sha256 = "") {
  try {
    apply_plan(model, plan, sha256);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return std::string(e.what()) + " | " + e.hint();
  }
  ADD_FAILURE() << "applied";
  return "";
}

TEST(ApplyPlan, CompletesADecision) {
  const auto loaded = load_sharded(kHloFixtures + "tiny_mlp.hlo", 4);
  PartitionPlan plan = foreign(8, {{"params/dense_1/kernel", 1}});
  const sharding::Propagation decided = apply_plan(&loaded->model, plan);
  EXPECT_EQ(loaded->model.linkage().shards(), 8);
  describe_decision(loaded->model, decided, &plan);
  EXPECT_THAT(plan.decided, ElementsAre("params['dense_1']['kernel']"));
  EXPECT_EQ(plan.partitioned, 1);
  ASSERT_EQ(plan.inputs.size(), 6u);
  // Column split, then row split: the bias goes with the columns, the second kernel's rows with its input.
  std::vector<int> dims;
  for (const PlanTensor& input : plan.inputs) dims.push_back(input.dim);
  EXPECT_THAT(dims, ElementsAre(0, 1, -1, 0, -1, -1));
  EXPECT_EQ(plan.inputs[3].shape, "f32[64,10]");
  EXPECT_EQ(plan.inputs[3].role, "variable");
  dims.clear();
  for (const PlanResult& result : plan.results) dims.push_back(result.dim);
  EXPECT_THAT(dims, ElementsAre(0, 1, -1, 0, -1));
  EXPECT_EQ(plan.results[1].input, "params['dense_1']['kernel']");
  EXPECT_EQ(plan.results[4].input, "");
  // One all-reduce: of the second layer's output, 16 x 10 floats.
  EXPECT_EQ(plan.all_reduces, 1);
  EXPECT_EQ(plan.all_reduce_bytes, 640);
  EXPECT_EQ(plan.all_gathers, 0);
  ASSERT_EQ(plan.collectives.size(), 1u);
  EXPECT_EQ(plan.collectives[0].kind, "all-reduce");
  EXPECT_EQ(plan.collectives[0].reduction, "add");
  EXPECT_THAT(plan.collectives[0].layer, HasSubstr("dense_2"));
  ASSERT_EQ(plan.collectives[0].sources.size(), 1u);
  EXPECT_EQ(plan.collectives[0].sources[0].instruction, "dot_general.6");
  EXPECT_EQ(plan.collectives[0].sources[0].bytes, 640);
  // The written plan is applied again to the same decision.
  PartitionPlan again = parse_partition_plan(to_json_text(plan), "x");
  const sharding::Propagation same = apply_plan(&loaded->model, again);
  for (const sharding::ModelInput& input : loaded->model.inputs()) {
    EXPECT_EQ(same.state(input.node).kind, decided.state(input.node).kind);
    EXPECT_EQ(same.state(input.node).dim, decided.state(input.node).dim);
  }
}

TEST(ApplyPlan, NamesPathsAndParameters) {
  const auto loaded = load_sharded(kHloFixtures + "tiny_mlp.hlo");
  for (const char* name :
       {"params['dense_1']['kernel']", "params/dense_1/kernel", "dense_1/kernel", "params__dense_1____kernel__.1"}) {
    const sharding::Propagation decided = apply_plan(&loaded->model, foreign(8, {{name, 1}}));
    EXPECT_EQ(decided.state(loaded->model.inputs()[1].node).dim, 1) << name;
  }
  EXPECT_THAT(apply_complaint(&loaded->model, foreign(8, {{"params/dense_3/kernel", 1}}), ErrorKind::kData),
              HasSubstr("the plan is not for this model: "));
  EXPECT_THAT(apply_complaint(&loaded->model, foreign(8, {{"dense_1/kernel", 1}, {"params/dense_1/kernel", 0}}),
                              ErrorKind::kData),
              HasSubstr("names params['dense_1']['kernel'] twice"));
}

TEST(ApplyPlan, RefusesWhatCannotBe) {
  const auto loaded = load_sharded(kHloFixtures + "tiny_mlp.hlo");
  sharding::ShardingModel* model = &loaded->model;
  EXPECT_THAT(apply_complaint(model, foreign(8, {{"dense_1/kernel", 2}}), ErrorKind::kData),
              HasSubstr("along dimension 2, but it is f32[32,64] | dimensions are 0 to 1"));
  EXPECT_THAT(apply_complaint(model, foreign(3, {{"dense_1/kernel", 1}}), ErrorKind::kData),
              HasSubstr("3 shards, which do not divide 64 | shards that would: 2, 4, 8, 16, 32, 64"));
  EXPECT_THAT(apply_complaint(model, foreign(1000000, {{"dense_1/kernel", 1}}), ErrorKind::kData),
              HasSubstr("1000000 shards"));
  // The bias must go with its kernel.
  EXPECT_THAT(apply_complaint(model, foreign(8, {{"dense_1/bias", -1}, {"dense_1/kernel", 1}}), ErrorKind::kInfeasible),
              HasSubstr("dense_1"));
  // One shard: nothing is split, nothing can collide.
  const sharding::Propagation one = apply_plan(model, foreign(1, {{"dense_1/kernel", 1}, {"batch/x", 0}}));
  EXPECT_TRUE(one.split_groups().empty());
}

// A tensor that collides is stored as the plan says, and gathered where the data goes through.
TEST(ApplyPlan, CompletesWhatCollides) {
  const auto loaded = load_sharded(kHloFixtures + "tiny_mlp.hlo");
  sharding::ShardingModel* model = &loaded->model;
  PartitionPlan plan = foreign(8, {{"dense_1/kernel", 1}, {"batch/x", 0}});
  std::vector<std::string> warnings;
  const sharding::Propagation decided = apply_plan(model, plan, "", &warnings);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("where its splittings collide"));
  describe_decision(*model, decided, &plan);
  EXPECT_EQ(plan.partitioned, 2);
  EXPECT_EQ(plan.all_gathers, 1);  // the kernel, before use
  // Its gradient is made whole, as all gradients of a split batch, and kept in parts.
  EXPECT_EQ(std::count_if(plan.collectives.begin(), plan.collectives.end(),
                          [](const PlanCollective& c) { return c.kept_in_parts; }),
            1);
  // Written and read again it is the same.
  const PartitionPlan again = parse_partition_plan(to_json_text(plan), "again");
  warnings.clear();
  const sharding::Propagation same = apply_plan(model, again, "", &warnings);
  EXPECT_TRUE(warnings.empty());
  EXPECT_EQ(same.split_groups(), decided.split_groups());
}

TEST(ApplyPlan, PlansOfOtherModels) {
  const auto loaded = load_sharded(kHloFixtures + "tiny_mlp.hlo");
  PartitionPlan plan = foreign(8, {{"params/dense_1/kernel", 1}});
  describe_decision(loaded->model, apply_plan(&loaded->model, plan), &plan);
  const std::string own(64, 'a'), other(64, 'b');
  plan.provenance["model_sha256"] = own;
  std::vector<std::string> warnings;
  apply_plan(&loaded->model, plan, own, &warnings);
  EXPECT_TRUE(warnings.empty());
  apply_plan(&loaded->model, plan, "", &warnings);
  EXPECT_TRUE(warnings.empty());
  // Another file with the same inputs: said, and done.
  apply_plan(&loaded->model, plan, other, &warnings);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr(own));
  EXPECT_THAT(warnings[0], HasSubstr(other));
  // Other inputs, or other shapes.
  PartitionPlan changed = plan;
  changed.inputs.pop_back();
  EXPECT_THAT(apply_complaint(&loaded->model, changed, ErrorKind::kData, other), HasSubstr(own));
  changed = plan;
  changed.inputs[1].shape = "f32[32,128]";
  const std::string message = apply_complaint(&loaded->model, changed, ErrorKind::kData, other);
  EXPECT_THAT(message, HasSubstr("is f32[32,128] in the plan, but f32[32,64] here"));
  EXPECT_THAT(message, HasSubstr(other));
  EXPECT_THAT(apply_complaint(&loaded->model, changed, ErrorKind::kData), HasSubstr("f32[32,128]"));
}

TEST(ApplyPlan, Gathers) {
  const auto loaded = load_sharded(kHloFixtures + "tiny_mlp.hlo");
  // The first node with an operand: reading it whole is allowed anywhere.
  const graph::FlowGraph& flow = loaded->model.flow();
  PartitionPlan plan = foreign(8, {});
  for (sharding::NodeId id = 0; id < flow.size() && plan.gathers.empty(); ++id) {
    if (flow.node(id).opcode != graph::Opcode::kDot) continue;
    const auto name = [&](sharding::NodeId node) {
      return std::string(loaded->module.graph.instruction(flow.node(node).instruction).name);
    };
    const sharding::NodeId tensor = flow.operands(id)[0];
    plan.gathers.push_back({name(id), name(tensor), id, tensor, 0});
  }
  ASSERT_EQ(plan.gathers.size(), 1u);
  const PartitionPlan read = parse_partition_plan(to_json_text(plan), "x");
  apply_plan(&loaded->model, read);
  ASSERT_EQ(loaded->model.gathers().size(), 1u);
  EXPECT_EQ(loaded->model.gathers()[0].op, plan.gathers[0].node);
  // Without numbers the names are enough when they are unique.
  plan.gathers[0].node = plan.gathers[0].tensor_node = -1;
  apply_plan(&loaded->model, plan);
  EXPECT_EQ(loaded->model.gathers()[0].op, read.gathers[0].node);
  for (const sharding::Gather::Kind kind : {sharding::Gather::Kind::kInParts, sharding::Gather::Kind::kExchanged}) {
    plan.gathers[0].kind = kind;
    apply_plan(&loaded->model, parse_partition_plan(to_json_text(plan), "x"));
    EXPECT_EQ(loaded->model.gathers()[0].kind, kind);
  }
  // The tensor must be an operand or a result of the instruction.
  const graph::NodeId op = loaded->model.gathers()[0].op;
  int wrongs = 0;
  for (graph::NodeId far = 0; far < flow.size(); ++far) {
    const auto operands = flow.operands(op);
    if (flow.producer(far) == op || std::find(operands.begin(), operands.end(), far) != operands.end() ||
        flow.shape(far).dims.size() < 2 || wrongs > 0)
      continue;
    PartitionPlan wrong = plan;
    wrong.gathers[0].node = op;
    wrong.gathers[0].tensor_node = far;
    wrong.gathers[0].tensor = loaded->module.graph.instruction(flow.node(far).instruction).name;
    for (const sharding::Gather::Kind kind : {sharding::Gather::Kind::kRead, sharding::Gather::Kind::kInParts}) {
      wrong.gathers[0].kind = kind;
      EXPECT_THAT(apply_complaint(&loaded->model, wrong, ErrorKind::kData),
                  HasSubstr(", which neither reads nor makes it"));
      ++wrongs;
    }
  }
  EXPECT_EQ(wrongs, 2);
  plan.gathers[0].tensor = plan.gathers[0].instruction;
  EXPECT_THAT(apply_complaint(&loaded->model, plan, ErrorKind::kData), HasSubstr(", which does not read it"));
  plan.gathers[0].tensor = read.gathers[0].tensor;
  plan.gathers[0].kind = sharding::Gather::Kind::kRead;
  plan.gathers[0].dim = 9;
  EXPECT_THAT(apply_complaint(&loaded->model, plan, ErrorKind::kData), HasSubstr("along dimension 9, but it is f32["));
  plan.gathers[0].instruction = "nothing";
  EXPECT_THAT(apply_complaint(&loaded->model, plan, ErrorKind::kData), HasSubstr("gathers at nothing"));
  plan.gathers.clear();
  apply_plan(&loaded->model, plan);
  EXPECT_TRUE(loaded->model.gathers().empty());
}

// A Megatron decision for the 188-variable T5, from one splitting per attention and feed-forward block.
TEST(ApplyPlan, MegatronOnT5) {
  const auto loaded = load_sharded(kHloFixtures + "t5_6_6.hlo.gz");
  std::vector<std::pair<std::string, int>> partition;
  for (int layer = 0; layer < 6; ++layer) {
    const std::string at = "/layer/" + std::to_string(layer) + "/";
    for (const std::string half : {"params/encoder", "params/decoder"}) {
      partition.emplace_back(half + at + "feed_forward/conv1/kernel", 1);
      partition.emplace_back(half + at + "self_attention/q/kernel", 1);
    }
    partition.emplace_back("params/decoder" + at + "cross_attention/q/kernel", 1);
  }
  PartitionPlan plan = foreign(8, partition);
  const sharding::Propagation decided = apply_plan(&loaded->model, plan);
  plan.decided.clear();
  for (const std::int32_t v : loaded->model.variables()) {
    plan.decided.push_back(loaded->model.inputs()[static_cast<std::size_t>(v)].name);
  }
  describe_decision(loaded->model, decided, &plan);
  // 18 attentions of q, k, v, o; 12 feed-forward blocks of two kernels and a bias.
  EXPECT_EQ(plan.partitioned, 18 * 4 + 12 * 3);
  EXPECT_EQ(plan.all_gathers, 0);
  for (const PlanTensor& input : plan.inputs) {
    if (input.role != "variable") continue;
    const auto ends = [&](const std::string& tail) {
      return input.name.size() >= tail.size() && input.name.substr(input.name.size() - tail.size()) == tail;
    };
    int expected = -1;
    if (ends("['q']['kernel']") || ends("['k']['kernel']") || ends("['v']['kernel']")) expected = 1;
    if (ends("['o']['kernel']") || ends("['conv1']['bias']") || ends("['conv2']['kernel']")) expected = 0;
    if (ends("['conv1']['kernel']")) expected = 1;
    EXPECT_EQ(input.dim, expected) << input.name;
  }
}

}  // namespace
}  // namespace automap::partition
