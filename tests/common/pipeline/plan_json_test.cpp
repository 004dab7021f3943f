#include "common/pipeline/plan_json.h"

#include <gtest/gtest.h>

#include <functional>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/pipeline/cost.h"
#include "common/pipeline/schedule.h"

namespace automap::pipeline {
namespace {

Profile small_profile() {
  Profile profile;
  profile.model = "small";
  profile.c_ms = {1, 2, 3, 4, 5, 6};
  profile.a_bytes = {1e6, 2e6, 3e6, 4e6, 5e6, 0};
  profile.w_bytes = {1e6, 0, 1e6, 0.5, 1e6, 1e6};
  profile.stash_bytes = {10, 20, 30, 40, 50, 60};
  profile.name = {"a", "b", "c", "d", "e", "f"};
  profile.layer = {"", "h/0", "h/0", "h/1", "", "h/1"};
  return profile;
}

PlanDocument small_document() {
  const Profile profile = small_profile();
  ProblemOptions options;
  options.micro_batches = 4;
  const Problem problem(profile, machine::load_cluster("config-a"), options);
  Plan plan;
  plan.cuts = {2, 4};
  plan.device_cuts = {4, 9};
  plan.schedule = Schedule::k1f1bOverlap;
  PlanDocument document = describe_plan(problem, profile, plan);
  EXPECT_EQ(document.step_ms, value_ms(problem, plan));
  EXPECT_EQ(document.simulated_step_ms, simulate_step_ms(problem, plan));
  document.cluster = "config-a";
  document.planner = "exact";
  document.objective = "simulated";
  document.planning_ms = 1.5;
  document.found_ms = 0.5;
  document.proven_ms = 1.25;
  document.lower_bound_ms = document.step_ms / 1.25;
  document.gap = document.step_ms / document.lower_bound_ms - 1;
  document.lower_bound_method = "exact over all cuts";
  document.alternatives = {{"bound", 2, 10, 11, 0.25}};
  document.limits = {{"stage", 2, 3.5, 0.5, "stage 2 is slow"}};
  document.layer_split.emplace();
  document.layer_split->split_before = {"h/1", "h/2"};
  document.layer_split->split_spec = {"h.1", "h.2"};
  document.layer_split->layers_per_stage = {{"h", {1, 1, 0}}};
  document.layer_split->cuts = {3, 4};
  document.layer_split->device_cuts = {5, 8};
  document.planner_table.emplace();
  document.planner_table->reference_ms = 8;
  document.planner_table->reference_method = "bucket relaxation";
  document.planner_table->rows = {{"policy", 3, 10, 11, 0.25, 0.5, false}, {"uniform", 0, 0, 0, 0, 0.125, true}};
  document.sensitivity = {{"compute 10 % slower", 12, 11.5, "1 stage on 16 devices"},
                          {"activations 10 % larger", 0, 20, "2 stages"},
                          {"activations 10 % smaller", 0, 0, ""}};
  document.estimates = {"matmul f16: ±10 %"};
  document.warnings = {"a warning"};
  document.provenance = {{"version", "0.1.0"}, {"model_sha256", "00"}};
  return document;
}

TEST(PlanJson, DescribesTheStages) {
  const PlanDocument document = small_document();
  ASSERT_EQ(document.stages.size(), 3u);
  const PlanStage& stage = document.stages[1];
  EXPECT_EQ(stage.first_instruction, 3);
  EXPECT_EQ(stage.last_instruction, 4);
  EXPECT_EQ(stage.first_name, "c");
  EXPECT_EQ(stage.last_name, "d");
  EXPECT_EQ(stage.first_layer, "h/0");
  EXPECT_EQ(stage.last_layer, "h/1");
  EXPECT_EQ(stage.first_device, 5);
  EXPECT_EQ(stage.devices, 5);
  EXPECT_DOUBLE_EQ(stage.compute_ms, 7.0 / 5);
  EXPECT_EQ(stage.in_flight, 3);  // overlap: 2 (S - s) + 1
  EXPECT_DOUBLE_EQ(stage.memory_bytes, 4 * (1e6 + 0.5) + 70 * 3 / 5.0);
  EXPECT_EQ(document.stages[0].first_layer, "h/0");  // the first instruction has none
  EXPECT_EQ(document.stages[2].transfer_ms, 0);
}

TEST(PlanJson, ReadsBackWhatItWrote) {
  const PlanDocument document = small_document();
  const std::string text = to_json_text(document);
  const PlanDocument again = parse_plan(text, "x.json");
  EXPECT_EQ(again.plan, document.plan);
  EXPECT_EQ(again.stages[1].last_layer, "h/1");
  EXPECT_EQ(again.found_ms, 0.5);
  EXPECT_EQ(again.proven_ms, 1.25);
  ASSERT_TRUE(again.planner_table);
  EXPECT_EQ(again.planner_table->rows[0].gap, 0.25);
  EXPECT_EQ(again.planner_table->rows[1].stages, 0);
  EXPECT_TRUE(again.planner_table->rows[1].cut_by_time);
  EXPECT_EQ(again.estimates, document.estimates);
  ASSERT_EQ(again.sensitivity.size(), 3u);
  EXPECT_DOUBLE_EQ(again.sensitivity[0].loss(), 12 / 11.5 - 1);
  EXPECT_EQ(again.sensitivity[1].simulated_step_ms, 0);
  EXPECT_EQ(again.sensitivity[1].best, "2 stages");
  EXPECT_EQ(to_json_text(again), text);
}

// The devices of groups may stand in any order, with others between them.
TEST(PlanJson, ReadsDevicesInAnyOrder) {
  Json json = Json::parse(to_json_text(small_document()));
  std::swap(json["groups"][0]["devices"][0], json["groups"][0]["devices"][1]);
  json["groups"][2]["devices"][6] = 31;
  const PlanDocument document = parse_plan(json.dump(), "x.json");
  EXPECT_EQ(document.stages[0].device_numbers, (std::vector<int>{2, 1, 3, 4}));
  EXPECT_EQ(document.stages[2].device_numbers.back(), 31);
  EXPECT_EQ(document.stages[2].first_device, 10);  // in the plan's own order
  EXPECT_EQ(document.plan.device_cuts, (std::vector<int>{4, 9}));
}

// The document as version 2 had it: a stage was a part and its group, and lists said where stages end.
Json as_version_2(Json json) {
  Json cuts = Json::array(), device_cuts = Json::array(), stages = Json::array();
  for (std::size_t s = 0; s < json["parts"].size(); ++s) {
    Json stage = json["groups"][s];
    for (const auto& [key, value] : json["parts"][s].items()) stage[key] = value;
    stage.erase("group");
    const Json& devices = json["groups"][s]["devices"];
    stage["first_device"] = devices[0];
    stage["devices"] = devices.size();
    stage["samples"] = json["groups"][s]["samples"][0];
    stage["in_flight"] = json["schedule"]["in_flight"][s];
    stages.push_back(stage);
    if (s + 1 == json["parts"].size()) break;
    cuts.push_back(json["parts"][s]["last_instruction"]);
    device_cuts.push_back(devices[devices.size() - 1]);
  }
  json["schema"] = "automap.plan/2";
  json["in_flight"] = json["schedule"]["in_flight"];
  json["schedule"] = std::string(json["schedule"]["name"].get<std::string>());
  json["cuts"] = cuts;
  json["device_cuts"] = device_cuts;
  json["stages"] = stages;
  json.erase("parts");
  json.erase("groups");
  return json;
}

TEST(PlanJson, Version2SaysTheSame) {
  const std::string text = to_json_text(small_document());
  const Json old = as_version_2(Json::parse(text));
  const PlanDocument document = parse_plan(old.dump(), "old.json");
  EXPECT_EQ(document.version, 2);
  EXPECT_EQ(to_json_text(document), text);
  const auto complaint_of = [&](const char* key, const Json& value) {
    Json changed = old;
    changed[key] = value;
    try {
      parse_plan(changed.dump(), "old.json");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(complaint_of("cuts", {4, 2}).find("increasing"), std::string::npos);
  EXPECT_NE(complaint_of("cuts", {2}).find("agree"), std::string::npos);
  EXPECT_NE(complaint_of("cuts", {2, 6}).find("from 1 to 5"), std::string::npos);
  EXPECT_NE(complaint_of("device_cuts", {3, 9}).find("stage 1 contradicts"), std::string::npos);
  EXPECT_NE(complaint_of("schedule", "2f2b").find("2f2b"), std::string::npos);
}

TEST(PlanJson, WithoutABoundItIsNull) {
  PlanDocument document = small_document();
  document.lower_bound_ms = document.gap = 0;
  document.layer_split.reset();
  document.planner_table.reset();
  document.found_ms = document.proven_ms = 0;
  const auto json = Json::parse(to_json_text(document));
  EXPECT_TRUE(json["lower_bound_ms"].is_null());
  EXPECT_TRUE(json["found_ms"].is_null());
  EXPECT_TRUE(json["proven_ms"].is_null());
  EXPECT_FALSE(json.contains("planner_table"));
  EXPECT_TRUE(json["gap"].is_null());
  EXPECT_TRUE(json["layer_split"].is_null());
  EXPECT_EQ(to_json_text(parse_plan(json.dump(), "x")), to_json_text(document));
}

TEST(PlanJson, NamesMayHoldAnyBytes) {
  PlanDocument document = small_document();
  document.stages[0].first_layer = "\xff\xfe\"\n";
  EXPECT_NO_THROW(parse_plan(to_json_text(document), "x"));
}

TEST(PlanJson, StagesOfDifferentWidths) {
  auto json = Json::parse(to_json_text(small_document()));
  json["groups"][0]["width"] = 2;
  json["groups"][0]["replicas"] = 2;
  const Json samples = json["groups"][0]["samples"][0];
  json["groups"][0]["samples"] = {samples, samples};
  json["bounds"]["widths"] = "any";
  json["bounds"]["other"] = {
      {"widths", "one"}, {"value", 9.5}, {"simulated", nullptr}, {"method", "exact over all cuts"}};
  PlanDocument document = parse_plan(json.dump(), "x");
  EXPECT_EQ(document.stage_widths(), (std::vector<int>{2, 1, 1}));
  EXPECT_TRUE(document.mixed_widths());
  EXPECT_EQ(document.bounded, BoundedWidths::kAny);
  EXPECT_EQ(document.other_bounds.value_ms, 9.5);
  EXPECT_EQ(document.other_bounds.simulated_ms, 0);
  document.partitions = {"{\"shards\": 2}"};
  const auto again = Json::parse(to_json_text(document));
  EXPECT_EQ(again["bounds"], json["bounds"]);
  EXPECT_EQ(again["partitions"][0]["shards"], 2);
  EXPECT_FALSE(again.contains("partition"));
}

// The document with one change made by `edit`, and the complaint about it.
std::string complaint(const std::function<void(Json&)>& edit) {
  auto json = Json::parse(to_json_text(small_document()));
  edit(json);
  try {
    parse_plan(json.dump(), "x.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData);
    EXPECT_EQ(std::string(e.what()).rfind("x.json: ", 0), 0u) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "accepted: " << json.dump();
  return "";
}

TEST(PlanJson, EveryKeyIsMissed) {
  const auto json = Json::parse(to_json_text(small_document()));
  for (const char* key :
       {"schema", "kind", "model", "cluster", "micro_batches", "instructions", "devices", "schedule", "parts", "groups",
        "step_ms", "simulated_step_ms", "planner", "planning_ms", "alternatives", "provenance"}) {
    ASSERT_TRUE(json.contains(key));
    EXPECT_NE(complaint([&](auto& j) { j.erase(key); }).find(key), std::string::npos) << key;
  }
}

TEST(PlanJson, WrongValuesAreNamed) {
  using J = Json;
  EXPECT_NE(complaint([](J& j) { j["schema"] = "automap.plan/4"; }).find("automap.plan/4"), std::string::npos);
  EXPECT_NE(complaint([](J& j) { j["schema"] = "automap.cluster/1"; }).find("expected that of an automap.plan/3"),
            std::string::npos);
  EXPECT_NE(complaint([](J& j) { j["kind"] = "operator"; }).find("reads up to automap.plan/1"), std::string::npos);
  EXPECT_NE(complaint([](J& j) {
              j["schema"] = "automap.plan/1";
              j["kind"] = "operator";
            }).find("found \"operator\""),
            std::string::npos);
  const auto of_group = [](const char* key, const Json& value) {
    return complaint([&](J& j) { j["groups"][1][key] = value; });
  };
  EXPECT_NE(complaint([](J& j) { j["parts"][1]["last_instruction"] = 5; }).find("stage 3: expected"),
            std::string::npos);
  EXPECT_NE(complaint([](J& j) { j["parts"][1]["last_instruction"] = 7; }).find("part 2: last_instruction"),
            std::string::npos);
  EXPECT_NE(complaint([](J& j) { j["parts"][1]["last_instruction"] = 3.5; }).find("3.5"), std::string::npos);
  EXPECT_NE(complaint([](J& j) { j["parts"][1]["group"] = 1; }).find("part 2: group"), std::string::npos);
  EXPECT_NE(complaint([](J& j) {
              Json one = J::array();
              one.push_back(j["parts"][0]);
              j["parts"] = std::move(one);
            }).find("a part for each group"),
            std::string::npos);
  EXPECT_NE(of_group("devices", {5, 6, 7, 8, 9, 30}).find("stage 2: replicas times width"), std::string::npos);
  EXPECT_NE(of_group("devices", {5, 7, 8, 9, 10}).find("group 3: devices: found 10 a second time"), std::string::npos);
  EXPECT_NE(of_group("devices", {5, 7, 8, 8, 9}).find("group 2: devices: found 8 a second time"), std::string::npos);
  EXPECT_NE(of_group("devices", J::array()).find("group 2: devices: found none"), std::string::npos);
  EXPECT_NE(of_group("samples", {1, 2, 1, 1, 1}).find("group 2: samples: found replicas with"), std::string::npos);
  EXPECT_NE(of_group("samples", {1, 1}).find("one for each of the 5 replicas"), std::string::npos);
  EXPECT_NE(of_group("samples", J::array({"a"})).find("group 2: samples"), std::string::npos);
  EXPECT_NE(complaint([](J& j) { j["schedule"]["in_flight"] = {3, 2}; }).find("agree"), std::string::npos);
  EXPECT_NE(of_group("width", 2).find("stage 2: replicas times width"), std::string::npos);
  EXPECT_NE(complaint([](J& j) { j["bounds"]["widths"] = "two"; }).find("\"one\" or \"any\""), std::string::npos);
  EXPECT_NE(complaint([](J& j) { j["groups"][1]["compute_ms"] = -1; }).find("group 2: compute_ms"), std::string::npos);
  EXPECT_NE(complaint([](J& j) { j["groups"][1]["allreduce_ms"] = 1e6; }).find("the sum of sync"), std::string::npos);
  EXPECT_NE(complaint([](J& j) { j["step_ms"] = "fast"; }).find("step_ms"), std::string::npos);
  EXPECT_NE(complaint([](J& j) { j["micro_batches"] = 1e20; }).find("micro_batches"), std::string::npos);
  EXPECT_NE(complaint([](J& j) { j["schedule"]["name"] = "2f2b"; }).find("2f2b"), std::string::npos);
  EXPECT_NE(complaint([](J& j) { j["parts"] = j["groups"] = J::array(); }).find("stages"), std::string::npos);
  EXPECT_NE(complaint([](J& j) { j = J::array(); }).find("expected an object"), std::string::npos);
}

// Plans of the other kinds say who reads them; a key that stands twice is a contradiction.
TEST(PlanJson, OtherKindsAndRepeatedKeys) {
  for (const std::string kind : {"operator", "data"}) {
    try {
      parse_plan("{\"schema\": \"automap.plan/1\", \"kind\": \"" + kind + "\", \"shards\": 8, \"partition\": {}}", "x");
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()), "x: kind: found \"" + kind + "\", expected \"pipeline\"");
      EXPECT_NE(e.hint().find("automap-search apply"), std::string::npos);
    }
  }
  std::string text = to_json_text(small_document());
  text.insert(text.find("\"model\""), "\"model\": \"another\", ");
  try {
    parse_plan(text, "x");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), "x: key \"model\" is given twice in one object");
  }
}

TEST(PlanJson, TruncationsAndDepthAreErrors) {
  const std::string text = to_json_text(small_document());
  for (std::size_t size = 0; size + 2 < text.size(); size += 7) {
    EXPECT_THROW(parse_plan(text.substr(0, size), "x"), Error) << size;
  }
  EXPECT_THROW(parse_plan(std::string(200000, '['), "x"), Error);
  EXPECT_THROW(parse_plan("{\"a\":" + std::string(200000, '['), "x"), Error);
}

TEST(PlanJson, IsRecognised) {
  EXPECT_TRUE(looks_like_plan(to_json_text(small_document())));
  EXPECT_FALSE(looks_like_plan("{\"schema\": \"automap.cluster/1\"}"));
  EXPECT_FALSE(looks_like_plan("HloModule x"));
  EXPECT_FALSE(looks_like_plan(""));
}

}  // namespace
}  // namespace automap::pipeline
