// Workloads made of models and profiles: what becomes of times, bytes and edges, and the way back to a pipeline.
#include "plan/systems/placement/model_workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "common/graph/training_step.h"
#include "common/hlo/hlo_reader.h"
#include "plan/systems/placement/planning.h"
#include "plan/systems/placement/workload_json.h"

namespace automap::placement {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Three layers of five positions; a third of the compute is forward.
pipeline::Profile small_profile() {
  pipeline::Profile p;
  p.model = "small";
  p.micro_batch_size = 4;
  p.c_ms = {3, 6, 9, 3, 6};
  p.a_bytes = {1e6, 2e6, 3e6, 4e6, 0};
  p.w_bytes = {10, 20, 0, 40, 50};
  p.stash_bytes = {1, 2, 3, 4, 5};
  p.layer = {"a", "a", "b", "c", "c"};
  p.name = {"p1", "p2", "p3", "p4", "p5"};
  return p;
}

// Three devices at 1 MB per ms and half the speed.
ModelMachine small_machine() {
  ModelMachine machine;
  machine.accelerators = 3;
  machine.memory_bytes = 1e9;
  machine.speed = 0.5;
  machine.transfer_latency_ms = 0.25;
  machine.bytes_per_ms = 1e6;
  return machine;
}

TEST(LayerWorkload, IsAChainOfRunsOfOneLayer) {
  const ModelWorkload made = layer_workload(small_profile(), small_machine());
  const Workload& w = made.workload;
  check_workload(w, "w");
  ASSERT_EQ(w.size(), 6);
  EXPECT_THAT(made.ends, ElementsAre(2, 3, 5));
  EXPECT_THAT(made.instructions[2], ElementsAre("p4", "p5"));
  EXPECT_EQ(w.nodes[0].name, "a");
  EXPECT_DOUBLE_EQ(w.nodes[0].accelerator_ms, 9 / 3.0 / 0.5);
  EXPECT_DOUBLE_EQ(w.nodes[3].accelerator_ms, 2 * 9 / 3.0 / 0.5);
  EXPECT_DOUBLE_EQ(w.nodes[0].cpu_ms, kCpuFactor * w.nodes[0].accelerator_ms);
  // Four times the weights, and what is kept.
  EXPECT_DOUBLE_EQ(w.nodes[0].bytes, 4 * 30 + 3);
  EXPECT_DOUBLE_EQ(w.nodes[3].bytes, 0);
  // The transfers behind position 2, forward and back; nothing behind the last.
  EXPECT_DOUBLE_EQ(w.nodes[0].transfer_ms, 0.25 + 2);
  EXPECT_DOUBLE_EQ(w.nodes[4].transfer_ms, 0.25 + 2);
  EXPECT_DOUBLE_EQ(w.nodes[2].transfer_ms, 0);
  EXPECT_DOUBLE_EQ(w.nodes[3].transfer_ms, 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(w.nodes[static_cast<std::size_t>(i)].colour, i);
    EXPECT_EQ(w.nodes[static_cast<std::size_t>(3 + i)].colour, i);
    EXPECT_TRUE(w.nodes[static_cast<std::size_t>(3 + i)].backward);
  }
}

// Weights stay, all else grows with the samples; times of a table go before proportion.
TEST(LayerWorkload, OfOtherMicroBatches) {
  pipeline::Profile p = small_profile();
  EXPECT_DOUBLE_EQ(layer_workload(p, small_machine(), 8).workload.nodes[0].accelerator_ms, 12);
  EXPECT_DOUBLE_EQ(layer_workload(p, small_machine(), 8).workload.nodes[0].bytes, 4 * 30 + 6);
  EXPECT_DOUBLE_EQ(layer_workload(p, small_machine(), 8).workload.nodes[0].transfer_ms, 0.25 + 4);
  p.times = {{"d", {4, 8}, {{1, 1, 1, 1, 1}, {2, 2, 2, 2, 2}}, {{3, 3, 3, 3, 3}, {5, 5, 5, 5, 5}}, {}}};
  EXPECT_DOUBLE_EQ(layer_workload(p, small_machine(), 8).workload.nodes[0].accelerator_ms, 8);
  EXPECT_DOUBLE_EQ(layer_workload(p, small_machine(), 8).workload.nodes[3].accelerator_ms, 20);
}

TEST(LayerWorkload, OfInferenceHasNoBackwardNodes) {
  pipeline::Profile p = small_profile();
  p.forward_fraction = 1;
  p.layer.clear();
  const Workload w = layer_workload(p, small_machine()).workload;
  check_workload(w, "w");
  EXPECT_EQ(w.size(), 5);
  EXPECT_FALSE(w.training());
  EXPECT_EQ(w.colours(), 0);
  EXPECT_DOUBLE_EQ(w.nodes[0].bytes, 10);
}

TEST(PipelinePlan, IsOfContiguousLayersOnly) {
  const ModelWorkload made = layer_workload(small_profile(), small_machine());
  const auto plan_of = [&](std::vector<int> layers, std::string* why) {
    std::vector<int> device = layers;
    device.insert(device.end(), layers.begin(), layers.end());
    return pipeline_plan(made, {device, {}}, why);
  };
  std::string why;
  const auto two = plan_of({2, 2, 0}, &why);
  ASSERT_TRUE(two);
  EXPECT_THAT(two->cuts, ElementsAre(3));
  EXPECT_THAT(two->device_cuts, ElementsAre(1));
  ASSERT_TRUE(plan_of({1, 1, 1}, &why));
  EXPECT_EQ(plan_of({1, 1, 1}, &why)->num_stages(), 1);
  EXPECT_FALSE(plan_of({0, 1, 0}, &why));
  EXPECT_THAT(why, HasSubstr("not contiguous"));
  EXPECT_FALSE(plan_of({0, 1, 3}, &why));
  EXPECT_THAT(why, HasSubstr("CPU core"));
  ModelWorkload operators = made;
  operators.granularity = Granularity::kOperators;
  EXPECT_FALSE(pipeline_plan(operators, {{0, 0, 0, 0, 0, 0}, {}}, &why));
}

// The exact programme on a chain without transfers: the least of the largest sum of a run, by trying all cuts.
TEST(LayerWorkload, BestCutsAreThoseOfAllCuts) {
  ModelMachine machine = small_machine();
  machine.transfer_latency_ms = 0;
  machine.bytes_per_ms = 1e300;
  const ModelWorkload made = layer_workload(small_profile(), machine);
  Work work;
  const Answer found = find_placement(made.workload, {}, &work);
  double least = 1e300;
  for (int a = 0; a <= 3; ++a) {
    for (int b = a; b <= 3; ++b) {
      double sum[3] = {0, 0, 0};
      for (int i = 0; i < 3; ++i) {
        const auto v = static_cast<std::size_t>(i);
        sum[i < a   ? 0
            : i < b ? 1
                    : 2] += made.workload.nodes[v].accelerator_ms + made.workload.nodes[v + 3].accelerator_ms;
      }
      least = std::min(least, std::max({sum[0], sum[1], sum[2]}));
    }
  }
  EXPECT_NEAR(found.value_ms, least, 1e-9);
  std::string why;
  EXPECT_TRUE(pipeline_plan(made, found.placement, &why)) << why;
}

soap::ModelSpace space_of(const std::string& fixture) {
  const hlo::HloModule module = hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/" + fixture);
  return soap::operators_of(module.graph, graph::analyze_training_step(module.graph),
                            *machine::find_device("v100-16gb"));
}

TEST(OperatorWorkload, LosesNothing) {
  for (const char* name : {"tiny_mlp.hlo", "vgg19.hlo.gz", "t5_6_6.hlo.gz"}) {
    const soap::ModelSpace space = space_of(name);
    ModelMachine machine = small_machine();
    machine.memory_bytes = 1e12;
    const ModelWorkload made = operator_workload(space, machine);
    check_workload(made.workload, name);
    double forward = 0, backward = 0, bytes = 0, weights = 0;
    std::size_t instructions = 0;
    for (const Node& node : made.workload.nodes) {
      (node.backward ? backward : forward) += node.accelerator_ms * machine.speed;
      bytes += node.bytes;
    }
    for (const auto& names : made.instructions) instructions += names.size();
    for (const soap::Operator& op : space.space.operators) {
      for (const soap::Weights& w : op.weights) weights += w.weight_bytes + w.gradient_bytes + w.slot_bytes;
      weights += op.kept_bytes;
    }
    EXPECT_NEAR(forward, space.forward_ms, 1e-9 * forward) << name;
    EXPECT_NEAR(backward, space.backward_ms, 1e-9 * backward) << name;
    EXPECT_NEAR(bytes, weights, 1e-9 * weights) << name;
    EXPECT_GE(instructions, made.workload.nodes.size() / 2) << name;
    EXPECT_EQ(made.instructions.size(), made.workload.nodes.size());
  }
}

// Two products and a loss: what each sends forward and back, by hand.
TEST(OperatorWorkload, OfAnMlp) {
  ModelMachine machine = small_machine();
  machine.transfer_latency_ms = 0;
  machine.bytes_per_ms = 1;  // transfers are bytes
  const Workload w = operator_workload(space_of("tiny_mlp.hlo"), machine).workload;
  ASSERT_EQ(w.size(), 6);
  const double hidden = 16 * 64 * 4, logits = 16 * 10 * 4;
  EXPECT_DOUBLE_EQ(w.nodes[0].transfer_ms, hidden);
  EXPECT_DOUBLE_EQ(w.nodes[1].transfer_ms, logits);
  EXPECT_DOUBLE_EQ(w.nodes[2].transfer_ms, 0);
  EXPECT_DOUBLE_EQ(w.nodes[3].transfer_ms, 0);  // the step's data has no gradient
  EXPECT_DOUBLE_EQ(w.nodes[4].transfer_ms, hidden);
  EXPECT_DOUBLE_EQ(w.nodes[5].transfer_ms, logits);
  const std::pair<int, int> edges[] = {{0, 3}, {1, 4}, {2, 5}, {0, 1}, {4, 3}, {1, 2}, {5, 4}};
  for (const auto& edge : edges) EXPECT_THAT(w.edges, ::testing::Contains(edge));
  EXPECT_EQ(w.edges.size(), 7u);
}

TEST(ModelMachine, IsTheSlowestOfTheCluster) {
  machine::Cluster cluster = machine::load_cluster("config-a");
  const ModelMachine two_servers = machine_of(cluster);
  EXPECT_EQ(two_servers.accelerators, 16);
  EXPECT_DOUBLE_EQ(two_servers.memory_bytes, 16.0 * (1 << 30));
  EXPECT_NEAR(two_servers.bytes_per_ms, 25e9 / 8 / 1e3, 0.1 * 25e9 / 8 / 1e3);
  EXPECT_TRUE(two_servers.warnings.empty());
  EXPECT_DOUBLE_EQ(machine_of(cluster, 2.0).bytes_per_ms, 2e6);
  cluster.servers.front().count = 1;
  EXPECT_GT(machine_of(cluster).bytes_per_ms, 5 * two_servers.bytes_per_ms);
  cluster.servers.push_back(cluster.servers.front());
  cluster.servers.back().device = "slow";
  cluster.devices["slow"].memory_gib = 8;
  cluster.devices["slow"].relative_speed = 0.5;
  const ModelMachine mixed = machine_of(cluster);
  EXPECT_DOUBLE_EQ(mixed.speed, 0.5);
  EXPECT_DOUBLE_EQ(mixed.memory_bytes, 8.0 * (1 << 30));
  ASSERT_EQ(mixed.warnings.size(), 1u);
  // Whichever comes first.
  std::swap(cluster.servers.front(), cluster.servers.back());
  EXPECT_DOUBLE_EQ(machine_of(cluster).speed, 0.5);
  EXPECT_DOUBLE_EQ(machine_of(cluster).memory_bytes, 8.0 * (1 << 30));
}

TEST(WorkloadJson, IsReadBack) {
  ModelMachine machine = small_machine();
  for (Workload w : {layer_workload(small_profile(), machine).workload,
                     operator_workload(space_of("tiny_mlp.hlo"), machine).workload}) {
    w.cpus = 2;
    w.nodes[1].on_accelerators = false;
    w.nodes[1].accelerator_ms = 0;
    const std::string text = workload_json_text(w);
    EXPECT_TRUE(looks_like_workload(text));
    const WorkloadFile file = parse_workload(text, "w.json");
    const Workload& back = file.workload;
    EXPECT_TRUE(file.warnings.empty());
    ASSERT_EQ(back.size(), w.size());
    EXPECT_EQ(back.accelerators, w.accelerators);
    EXPECT_EQ(back.cpus, w.cpus);
    EXPECT_EQ(back.memory_bytes, w.memory_bytes);
    EXPECT_EQ(back.edges, w.edges);
    for (std::size_t v = 0; v < w.nodes.size(); ++v) {
      const Node &a = back.nodes[v], &b = w.nodes[v];
      EXPECT_EQ(std::tie(a.name, a.id, a.accelerator_ms, a.cpu_ms, a.bytes, a.colour, a.backward, a.on_accelerators),
                std::tie(b.name, b.id, b.accelerator_ms, b.cpu_ms, b.bytes, b.colour, b.backward, b.on_accelerators));
      const bool read = std::any_of(w.edges.begin(), w.edges.end(),
                                    [&](const auto& edge) { return edge.first == static_cast<int>(v); });
      EXPECT_EQ(a.transfer_ms, read ? b.transfer_ms : 0);
    }
  }
  EXPECT_FALSE(looks_like_workload("{\"schema\": \"automap.plan/1\"}"));
  EXPECT_FALSE(looks_like_workload("{\"computations\": []}"));
  EXPECT_FALSE(looks_like_workload("{\"model_type\": \"gpt2\", \"n_layer\": 12}"));
  EXPECT_FALSE(looks_like_workload("HloModule m"));
  EXPECT_FALSE(looks_like_workload(""));
}

}  // namespace
}  // namespace automap::placement
