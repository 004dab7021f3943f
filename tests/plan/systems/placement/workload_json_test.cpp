// The two forms of workloads, and what is wrong with others.
#include "plan/systems/placement/workload_json.h"

#include <gtest/gtest.h>

#include <functional>

#include "common/base/error.h"
#include "common/base/json.h"
#include "plan/systems/placement/plan_json.h"

namespace automap::placement {
namespace {

Json node(int id, double ms) {
  return {
      {"id", id}, {"supportedOnFpga", true}, {"cpuLatency", 10 * ms}, {"fpgaLatency", ms}, {"isBackwardNode", false}};
}
Json edge(int from, int to, double cost) {
  return {{"sourceId", from}, {"destId", to}, {"cost", cost}};
}

// 7 -> 3 -> 5, two accelerators of 100 bytes, one CPU core.
Json chain() {
  return {{"maxSizePerFPGA", 100.0},
          {"maxFPGAs", 2},
          {"maxCPUs", 1},
          {"nodes", Json::array({node(7, 1), node(3, 2), node(5, 3)})},
          {"edges", Json::array({edge(7, 3, 0.5), edge(3, 5, 0.25)})}};
}

WorkloadFile read(const Json& json, double scale = 1) {
  WorkloadFile out = parse_workload(json.dump(), "w.json", scale);
  check_workload(out.workload, "w.json");
  return out;
}

void refused(ErrorKind kind, const Json& json, const std::vector<std::string>& parts) {
  try {
    read(json);
    ADD_FAILURE() << "no error: " << parts.front();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    const std::string text = std::string(e.what()) + " | " + e.hint();
    EXPECT_EQ(text.rfind("w.json", 0), 0u) << text;
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

void refused_after(const std::function<void(Json*)>& change, const std::vector<std::string>& parts,
                   ErrorKind kind = ErrorKind::kData) {
  Json json = chain();
  change(&json);
  refused(kind, json, parts);
}

TEST(WorkloadJson, IsRead) {
  Json json = chain();
  json["nodes"][1]["colorClass"] = 40;
  json["nodes"][1]["size"] = 12;
  json["nodes"][2]["colorClass"] = -2;
  json["nodes"][2]["name"] = "fc";
  json["nodes"][2]["supportedOnFpga"] = 0;
  const Workload w = read(json, 1000).workload;
  EXPECT_EQ(w.accelerators, 2);
  EXPECT_EQ(w.cpus, 1);
  EXPECT_EQ(w.memory_bytes, 100);
  ASSERT_EQ(w.size(), 3);
  EXPECT_EQ(w.nodes[0].id, 7);
  EXPECT_EQ(w.nodes[0].transfer_ms, 500);
  EXPECT_EQ(w.nodes[1].accelerator_ms, 2);
  EXPECT_EQ(w.nodes[1].cpu_ms, 20);
  EXPECT_EQ(w.nodes[1].bytes, 12);
  EXPECT_EQ(w.nodes[0].colour, kNoColour);
  EXPECT_EQ(w.nodes[1].colour, 1);
  EXPECT_EQ(w.nodes[2].colour, 0);
  EXPECT_FALSE(w.nodes[2].on_accelerators);
  EXPECT_EQ(w.describe(2), "node 5 (fc)");
  EXPECT_EQ(w.edges, (std::vector<std::pair<int, int>>{{0, 1}, {1, 2}}));
}

TEST(WorkloadJson, WhatIsNoWorkload) {
  refused_after([](Json* j) { j->erase("maxFPGAs"); }, {"maxFPGAs"});
  refused_after([](Json* j) { (*j)["maxCPU"] = 1; }, {"maxCPU", "maxCPUs"});
  refused_after([](Json* j) { (*j)["maxCPUs"] = -1; }, {"maxCPUs", "-1"});
  refused_after([](Json* j) { (*j)["maxSizePerFPGA"] = -4; }, {"maxSizePerFPGA", "-4"});
  refused_after([](Json* j) { (*j)["nodes"] = Json::array(), (*j)["edges"] = Json::array(); }, {"no nodes"});
  refused_after([](Json* j) { (*j)["nodes"][1]["id"] = 7; }, {"nodes[1].id", "nodes[0]"});
  refused_after([](Json* j) { (*j)["nodes"][1]["id"] = 1.5; }, {"nodes[1].id"});
  refused_after([](Json* j) { (*j)["nodes"][1]["fpgaLatency"] = -1; }, {"nodes[1].fpgaLatency", "-1"});
  refused_after([](Json* j) { (*j)["nodes"][1]["cpuLatency"] = "fast"; }, {"nodes[1].cpuLatency", "fast"});
  refused_after([](Json* j) { (*j)["nodes"][1]["size"] = -8; }, {"nodes[1].size"});
  refused_after([](Json* j) { (*j)["nodes"][1]["supportedOnFpga"] = 2; }, {"nodes[1].supportedOnFpga"});
  refused_after([](Json* j) { (*j)["nodes"][1]["latency"] = 2; }, {"latency"});
  refused_after([](Json* j) { (*j)["edges"][0]["cost"] = -1; }, {"edges[0].cost"});
  refused_after([](Json* j) { (*j)["edges"][0]["destId"] = 4; }, {"edges[0].destId", "4", "3 nodes"});
  refused_after([](Json* j) { (*j)["edges"][0]["destId"] = 7; }, {"edges[0]", "node 7", "itself"});
  refused_after([](Json* j) { (*j)["edges"].push_back(edge(7, 3, 0.5)); }, {"edges[2]", "twice"});
  refused_after([](Json* j) { (*j)["edges"].push_back(edge(7, 5, 0.75)); },
                {"edges[2].cost", "0.75", "0.5", "one cost"});
}

TEST(WorkloadJson, WhatIsNoGraph) {
  refused_after([](Json* j) { (*j)["edges"].push_back(edge(5, 7, 1)); },
                {"cycle", "node 3 -> node 5 -> node 7 -> node 3"});
  refused_after([](Json* j) { (*j)["nodes"][0]["isBackwardNode"] = true; }, {"backward node 7", "forward node 3"});
}

TEST(WorkloadJson, WhatHasNoPlace) {
  const auto kInfeasible = ErrorKind::kInfeasible;
  refused_after([](Json* j) { (*j)["maxCPUs"] = 0, (*j)["nodes"][1]["supportedOnFpga"] = false; },
                {"node 3", "no accelerator", "--cpus"}, kInfeasible);
  refused_after([](Json* j) { (*j)["maxCPUs"] = 0, (*j)["nodes"][1]["size"] = 101; }, {"node 3", "101", "--memory"},
                kInfeasible);
  refused_after(
      [](Json* j) {
        (*j)["maxCPUs"] = 0;
        for (const int v : {0, 2}) (*j)["nodes"][v]["size"] = 60, (*j)["nodes"][v]["colorClass"] = 9;
      },
      {"node 5", "colour", "120 B", "100 B"}, kInfeasible);
  refused_after([](Json* j) { (*j)["maxCPUs"] = 0, (*j)["maxFPGAs"] = 0; }, {"no devices"}, kInfeasible);
}

TEST(WorkloadJson, PiperIsRead) {
  const Json way = {
      {"id", "vanilla"},      {"timePerSample", 0.5},         {"parameterSize", 4.0},        {"memoryUsageA", 10.0},
      {"memoryUsageB", 20.0}, {"syncTimeFw", Json::object()}, {"syncTimeBw", Json::object()}};
  Json recompute = way;
  recompute["id"] = "activation recomp";
  recompute["timePerSample"] = 0.75;
  const Json ways = {{"1", Json::array({recompute, way})}, {"2", Json::array()}};
  Json json = {{"maxDevices", 3},
               {"maxMemoryPerDevice", 1000.0},
               {"bandwidth", 100.0},
               {"mbsInBatch", 16},
               {"nodes", Json::array({{{"id", 0}, {"name", "a"}, {"TMPCs", ways}},
                                      {{"id", 1}, {"name", "b"}, {"TMPCs", ways}}})},
               {"edges", Json::array({{{"sourceId", 0}, {"destId", 1}, {"communicationCost", 5.0}}})}};
  const Workload w = read(json).workload;
  EXPECT_EQ(w.accelerators, 3);
  EXPECT_EQ(w.cpus, 0);
  EXPECT_EQ(w.nodes[0].accelerator_ms, 500);
  EXPECT_EQ(w.nodes[0].bytes, 30);
  EXPECT_EQ(w.nodes[0].transfer_ms, 2 * 1000 * 5.0 / 100);
  json["bandwidth"] = 0;
  refused(ErrorKind::kData, json, {"bandwidth"});
  json["bandwidth"] = 1;
  json["nodes"][0]["TMPCs"].erase("1");
  refused(ErrorKind::kData, json, {"nodes[0].TMPCs", "1"});
}

TEST(PlanJson, GoesThereAndBack) {
  const Workload w = read(chain()).workload;
  Answer answer;
  answer.placement = {{2, 0, 1}, {}};
  answer.value_ms = 10;
  PlanNotes notes;
  notes.model = "w";
  notes.algorithm = "dp";
  notes.warnings = {"looks wrong"};
  notes.provenance = {{"version", "0"}};
  const std::string text = to_json_text(w, {}, answer, notes);
  EXPECT_EQ(parse_placement(text, "p.json", w).device, answer.placement.device);
  const Json json = Json::parse(text);
  EXPECT_EQ(json["kind"], "placement");
  EXPECT_EQ(json["model"], "w");
  EXPECT_EQ(json["warnings"], Json::array({"looks wrong"}));
  EXPECT_EQ(json["provenance"]["version"], "0");
  EXPECT_EQ(json["devices"][0]["nodes"], Json::array({3}));
  EXPECT_EQ(json["devices"][0]["in_ms"], 0.5);
  EXPECT_EQ(json["devices"][0]["out_ms"], 0.25);
  EXPECT_EQ(json["devices"][0]["load_ms"], 2.75);
  EXPECT_EQ(json["devices"][2]["load_ms"], 10);
  // Pieces, of latency: node 7 and node 5 on accelerator 1 one after the other, node 3 between them.
  Request latency;
  latency.objective = Objective::kLatency;
  answer.placement = in_pieces(w, {{0, 1, 0}, {}});
  EXPECT_EQ(answer.placement.piece, (std::vector<int>{0, 0, 1}));
  const Placement back = parse_placement(to_json_text(w, latency, answer, {}), "p.json", w);
  EXPECT_EQ(back.device, answer.placement.device);
  EXPECT_EQ(back.piece, answer.placement.piece);
  EXPECT_EQ(latency_ms(w, back), 1 + 0.5 + 0.5 + 2 + 0.25 + 0.25 + 3);
}

TEST(PlanJson, WhatIsNoPlacement) {
  const Workload w = read(chain()).workload;
  const auto refuse = [&](const Json& json, const std::string& part) {
    try {
      parse_placement(json.dump(), "p.json", w);
      ADD_FAILURE() << "no error: " << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kData);
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  const auto split = [](const Json& one, const Json& other, const Json& cpu) {
    return Json{{"fpgas", Json::array({{{"nodes", one}}, {{"nodes", other}}})},
                {"cpus", Json::array({{{"nodes", cpu}}})}};
  };
  EXPECT_EQ(parse_placement(split({7, 3}, Json::array(), Json::array({5})).dump(), "p.json", w).device,
            (std::vector<int>{0, 0, 2}));
  refuse(split({7, 3}, {3, 5}, Json::array()), "placed twice");
  refuse(split({7, 3}, Json::array(), Json::array()), "node 5 is on no device");
  refuse(split({7, 3, 5}, {8}, Json::array()), "8");
  Json many = split({7}, {3}, Json::array());
  many["fpgas"].push_back({{"nodes", {5}}});
  refuse(many, "more of them");
  refuse({{"schema", "automap.plan/1"}, {"kind", "mesh"}}, "placement");
  refuse({{"schema", "automap.plan/9"}, {"kind", "placement"}}, "up to automap.plan/1");
  refuse({{"schema", "automap.plan/1"}, {"kind", "placement"}, {"devices", Json::array({{{"kind", "gpu"}}})}}, "gpu");
}

}  // namespace
}  // namespace automap::placement
