// The workloads of msr-fiddle/dnn-partitioning: what the authors' programs found (throughput), or others before us.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "plan/systems/placement/baselines.h"
#include "plan/systems/placement/linearized.h"
#include "plan/systems/placement/plan_json.h"
#include "plan/systems/placement/planning.h"
#include "plan/systems/placement/units.h"
#include "plan/systems/placement/workload_json.h"

namespace automap::placement {
namespace {

#define AUTOMAP_NEEDS_WORKLOADS()                                                       \
  if (std::getenv("AUTOMAP_CORPUS") == nullptr) {                                       \
    GTEST_SKIP() << "AUTOMAP_CORPUS is not set: the paper's workloads were not placed"; \
  }

std::string path_of(const std::string& name) {
  return std::string(std::getenv("AUTOMAP_CORPUS")) + "/dnn-partitioning/" + name + ".json";
}

Workload workload_of(const std::string& name) {
  Workload out = load_workload(path_of(name)).workload;
  check_workload(out, name);
  return out;
}

Answer answer_of(const Workload& workload, const std::string& algorithm, Objective objective, double gap = 0) {
  Request request;
  request.algorithm = algorithm;
  request.objective = objective;
  request.milp.gap = gap;
  Work work;
  return find_placement(workload, request, &work);
}

struct Golden {
  const char* name;
  int ideals;
  long pairs;         // without bounds, as the authors' code stores them; 0: not counted
  double optimum;     // ms per sample, contiguous
  double linearized;  // of the best along orders, at most
};
constexpr Golden kGolden[] = {
    {"layer_bert24_inference", 30, 464, 17.7899, 17.7899},
    {"layer_bert24_training", 30, 464, 41.7458, 41.7458},
    {"layer_resnet50_inference", 242, 28971, 33.7747, 33.7747},
    {"layer_resnet50_training", 242, 28971, 78.6318, 78.650},
    {"op_bert_l-3_inference", 1428, 675546, 27.9186, 27.9186},
    {"op_bert_l-3_training", 2774, 1966176, 65.3031, 65.3031},
    {"op_bert_l-6_inference", 1923, 1487616, 29.5795, 29.5795},
    {"op_bert_l-6_training", 3776, 4402995, 72.8650, 72.8650},
    {"op_resnet50_inference", 241, 28729, 124.3489, 124.3489},
    {"op_resnet50_training", 258, 32979, 255.1944, 255.1944},
};
// The table has four decimals.
constexpr double kDecimals = 5.1e-5;

TEST(Golden, OptimaOfThroughput) {
  AUTOMAP_NEEDS_WORKLOADS();
  for (const Golden& golden : kGolden) {
    SCOPED_TRACE(golden.name);
    const Workload workload = workload_of(std::string("throughput/") + golden.name);
    const Answer answer = answer_of(workload, "dp", Objective::kThroughput);
    EXPECT_EQ(answer.ideals, golden.ideals);
    EXPECT_NEAR(answer.value_ms, golden.optimum, kDecimals);
    EXPECT_TRUE(answer.proven);
    EXPECT_TRUE(answer.contiguous);
    EXPECT_EQ(why_not(workload, answer.placement), "");
    EXPECT_NEAR(max_load_ms(workload, answer.placement), answer.value_ms, 1e-9);
    const Answer along = answer_of(workload, "dpl", Objective::kThroughput);
    EXPECT_GE(along.value_ms, answer.value_ms - 1e-9);
    EXPECT_LE(along.value_ms, golden.linearized + 1e-3);
  }
}

TEST(Golden, PairsOfIdeals) {
  AUTOMAP_NEEDS_WORKLOADS();
  for (const Golden& golden : kGolden) {
    SCOPED_TRACE(golden.name);
    const Workload workload = workload_of(std::string("throughput/") + golden.name);
    const Units units = contiguous_units(workload);
    Work work;
    DpCounts counts;
    const std::optional<Split> split =
        best_split(workload, units, *Ideals::all(units, 10000), Milp::kInfinite, &work, &counts);
    ASSERT_TRUE(split);
    EXPECT_NEAR(split->max_load_ms, golden.optimum, kDecimals);
    EXPECT_EQ(counts.pairs, golden.pairs);
  }
}

// Placements that need not be contiguous: an optimum that HiGHS proved before us. The other programmes take minutes.
TEST(Golden, OptimaWithoutContiguity) {
  AUTOMAP_NEEDS_WORKLOADS();
  if (!milp_solver_missing().empty()) GTEST_SKIP() << milp_solver_missing() << ": its programmes were not solved";
  const Answer bert =
      answer_of(workload_of("throughput/op_bert_l-3_inference"), "milp-noncontiguous", Objective::kThroughput);
  EXPECT_NEAR(bert.value_ms, 21.9084, kDecimals);
  EXPECT_TRUE(bert.proven);
}

// Experts' splits, judged.
TEST(Golden, Experts) {
  AUTOMAP_NEEDS_WORKLOADS();
  for (const auto& [name, expected] : {std::pair<std::string, double>{"bert24_inference", 20.084},
                                       {"bert24_training", 49.405},
                                       {"resnet50_inference", 43.918}}) {
    SCOPED_TRACE(name);
    const Workload workload = workload_of("throughput/layer_" + name);
    const Placement expert = load_placement(path_of("human-experts/" + name + "_expert"), workload);
    EXPECT_NEAR(max_load_ms(workload, expert), expected, 5.1e-4);
  }
}

TEST(Golden, OneAccelerator) {
  AUTOMAP_NEEDS_WORKLOADS();
  for (const auto& [name, expected] : {std::pair<std::string, double>{"layer_bert24_inference", 92.41},
                                       {"layer_resnet50_training", 462.38},
                                       {"op_bert_l-6_training", 192.92},
                                       {"op_resnet50_training", 684.89}}) {
    const Answer one = answer_of(workload_of("throughput/" + name), "one-accelerator", Objective::kThroughput);
    EXPECT_NEAR(one.value_ms, expected, 5.1e-3) << name;
  }
}

// Between cuts that are alike to Scotch the numbers of vertices, its version and rounding decide, so that figures are
// no more than near. With Scotch 7.0.3 six are theirs to the digit. op_resnet50_inference would be the seventh with
// their weights, whose sum leaves Scotch's 32 bits.
TEST(Golden, Scotch) {
  AUTOMAP_NEEDS_WORKLOADS();
  if (!scotch_missing().empty()) GTEST_SKIP() << scotch_missing() << ": it cut nothing";
  struct Cut {
    const char* name;
    double theirs, ours;  // the last with Scotch 7.0.3
  };
  int same = 0, as_measured = 0;
  const std::vector<Cut> cuts = {
      {"layer_bert24_inference", 18.026, 18.026},   {"layer_bert24_training", 42.008, 42.008},
      {"layer_resnet50_inference", 34.309, 34.309}, {"layer_resnet50_training", 79.918, 79.917},
      {"op_bert_l-3_inference", 35.935, 35.935},    {"op_bert_l-3_training", 403.773, 403.749},
      {"op_bert_l-6_inference", 58.082, 58.703},    {"op_bert_l-6_training", 98.958, 130.327},
      {"op_resnet50_inference", 197.848, 243.297},  {"op_resnet50_training", 416.252, 416.252}};
  for (const Cut& cut : cuts) {
    SCOPED_TRACE(cut.name);
    const Workload workload = workload_of(std::string("throughput/") + cut.name);
    const Answer answer = answer_of(workload, "scotch", Objective::kThroughput);
    EXPECT_EQ(why_not(workload, answer.placement), "");
    EXPECT_GE(answer.value_ms, answer.bound_ms);
    // Other numbers for the vertices alone have moved one of the figures by a factor of 2.7.
    EXPECT_LT(answer.value_ms, 3 * cut.theirs);
    EXPECT_EQ(answer_of(workload, "scotch", Objective::kThroughput).placement.device, answer.placement.device);
    same += std::abs(answer.value_ms - cut.theirs) < 2e-3;
    as_measured += std::abs(answer.value_ms - cut.ours) < 2e-3;
  }
  std::cout << same << " of " << cuts.size() << " figures are the authors', " << as_measured
            << " those of Scotch 7.0.3\n";
  EXPECT_GE(same, 4);  // those with little to choose between
}

// The layers of BERT-24 in the memory of 600 MiB accelerators: greedy, and what is best for throughput. The order that
// greedy fills in is ours, so other graphs may do better than the authors' figure.
TEST(Golden, Latency) {
  AUTOMAP_NEEDS_WORKLOADS();
  const auto latency = [](const std::string& name, const std::string& algorithm) {
    const Workload workload = workload_of("latency/" + name);
    const Answer answer = answer_of(workload, algorithm, Objective::kLatency);
    EXPECT_EQ(why_not(workload, answer.placement), "") << name;
    return answer.value_ms;
  };
  EXPECT_NEAR(latency("layer_bert24_inference", "greedy"), 100.219, 5.1e-4);
  EXPECT_NEAR(latency("layer_bert24_inference", "dp"), 108.031, 5.1e-4);
  EXPECT_NEAR(latency("op_resnet50_inference", "greedy"), 839.536, 0.05);
  EXPECT_NEAR(latency("op_resnet50_inference", "dpl"), 1123.7, 0.1);
  EXPECT_LE(latency("op_bert_l-3_inference", "greedy"), 416.3);
  EXPECT_LE(latency("layer_resnet50_inference", "greedy"), 4197.2);
}

// Costs of edges that are seconds are told from those that are ms.
TEST(Golden, UnitsOfTransfers) {
  AUTOMAP_NEEDS_WORKLOADS();
  const auto read = [](const std::string& name, double scale) { return load_workload(path_of(name), scale); };
  const WorkloadFile seconds = read("throughput/layer_bert24_inference", 1),
                     ms = read("latency/layer_bert24_inference", 1);
  EXPECT_EQ(seconds.warnings.size(), 1u);
  EXPECT_TRUE(ms.warnings.empty());
  EXPECT_TRUE(read("throughput/op_bert_l-3_inference", 1).warnings.empty());
  const WorkloadFile scaled = read("throughput/layer_bert24_inference", 1000);
  EXPECT_TRUE(scaled.warnings.empty());
  double as_given = 0, scaled_ms = 0, in_ms = 0;
  for (const Node& node : seconds.workload.nodes) as_given += node.transfer_ms;
  for (const Node& node : scaled.workload.nodes) scaled_ms += node.transfer_ms;
  for (const Node& node : ms.workload.nodes) in_ms += node.transfer_ms;
  EXPECT_NEAR(as_given, 0.107, 5e-4);
  EXPECT_NEAR(in_ms, 107.0, 0.5);
  EXPECT_NEAR(scaled_ms, in_ms, 0.1);
}

TEST(Golden, Piper) {
  if (std::getenv("AUTOMAP_CORPUS") == nullptr) GTEST_SKIP() << "AUTOMAP_CORPUS is not set: Piper's BERT was not read";
  const WorkloadFile file = load_workload(std::string(std::getenv("AUTOMAP_CORPUS")) + "/piper/bert32a100.json");
  EXPECT_EQ(file.workload.size(), 37);
  EXPECT_EQ(file.workload.edges.size(), 67u);
  EXPECT_EQ(file.workload.accelerators, 10);
  EXPECT_NEAR(file.workload.nodes[3].accelerator_ms, 30.492, 1e-9);
  EXPECT_EQ(file.warnings.size(), 1u);
  const Answer answer = answer_of(file.workload, "dp", Objective::kThroughput);
  EXPECT_EQ(why_not(file.workload, answer.placement), "");
  EXPECT_GE(answer.value_ms, simple_bound_ms(file.workload, Objective::kThroughput));
}

}  // namespace
}  // namespace automap::placement
