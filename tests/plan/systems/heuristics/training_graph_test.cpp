#include "plan/systems/heuristics/training_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/base/error.h"
#include "common/hlo/hlo_reader.h"
#include "common/machine/device.h"
#include "plan/systems/heuristics/planning.h"
#include "profile/profile_hlo.h"
#include "tests/plan/systems/heuristics/random_work.h"
#include "tests/sanitized.h"

namespace automap::heuristics {
namespace {

using ::testing::HasSubstr;

TrainingGraph graph_of(const graph::Graph& graph, Colocate colocate = Colocate::kUpdate) {
  return training_graph_of(graph, graph::analyze_training_step(graph), *machine::find_device("v100-16gb"), colocate);
}
hlo::HloModule fixture(const std::string& name) {
  return hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/" + name);
}
TrainingGraph of_fixture(const std::string& name, Colocate colocate = Colocate::kUpdate) {
  const hlo::HloModule module = fixture(name);
  return graph_of(module.graph, colocate);
}

// The profile's times, none lost.
TEST(TrainingGraph, HoldsTheTimesOfTheProfile) {
  for (const char* name : {"tiny_mlp.hlo", "vgg19.hlo.gz", "unet.hlo.gz", "transformer_scan.hlo.gz"}) {
    const hlo::HloModule module = fixture(name);
    const TrainingGraph model = graph_of(module.graph);
    profile::ProfileRequest request;
    request.device = "v100-16gb";
    const pipeline::Profile profile = profile::profile_module(module, name, request).profile;
    double compute = 0;
    for (const double ms : profile.c_ms) compute += ms;
    EXPECT_NEAR((model.forward_ms + model.backward_ms) / compute, 1, 0.02) << name;
    EXPECT_TRUE(model.training);
    EXPECT_GT(model.update_ms, 0);
    EXPECT_NEAR(model.forward_ms + model.backward_ms + model.update_ms + model.other_ms, model.graph.total_ms(), 1e-9);
  }
}

// A variable is with its update, and with nothing of the other passes.
TEST(TrainingGraph, UnitsHoldAVariableAndItsUpdate) {
  const TrainingGraph model = of_fixture("tiny_mlp.hlo");
  int states = 0;
  for (const auto& tasks : model.graph.tasks_of_unit) {
    std::set<Pass> passes;
    for (const TaskId t : tasks) passes.insert(model.graph.tasks[at(t)].pass);
    if (passes.count(Pass::kState) == 0) continue;
    ++states;
    EXPECT_EQ(passes.count(Pass::kForward), 0u);
    EXPECT_EQ(passes.count(Pass::kBackward), 0u);
    for (const TaskId t : tasks) EXPECT_TRUE(model.graph.tasks[at(t)].pinned);
  }
  EXPECT_GT(states, 0);
  const TrainingGraph together = of_fixture("tiny_mlp.hlo", Colocate::kPasses);
  EXPECT_LT(together.graph.units(), model.graph.units());
  EXPECT_EQ(together.graph.size(), model.graph.size());
}

// Every state counts once, whatever reads it.
TEST(TrainingGraph, MemoryHoldsStateAndWhatBackwardReads) {
  const hlo::HloModule module = fixture("vgg19.hlo.gz");
  const graph::TrainingStep step = graph::analyze_training_step(module.graph);
  double state = 0;
  for (const graph::EntryInput& input : step.inputs) {
    if (input.role != graph::InputRole::kStepInput && input.role != graph::InputRole::kUnused)
      state += static_cast<double>(step.flow.shape(input.node).bytes);
  }
  const TrainingGraph model = graph_of(module.graph);
  double of_states = 0;
  for (const Task& task : model.graph.tasks) of_states += task.pass == Pass::kState ? task.memory_bytes : 0;
  EXPECT_EQ(of_states, state);
  EXPECT_GT(model.graph.memory_bytes(), state);
}

TEST(TrainingGraph, InferenceIsForwardAlone) {
  const TrainingGraph model = of_fixture("vit_forward.hlo.gz");
  EXPECT_FALSE(model.training);
  EXPECT_EQ(model.backward_ms + model.update_ms, 0);
  EXPECT_GT(model.forward_ms, 0);
}

TEST(TrainingGraph, LoopsAreOneTask) {
  const TrainingGraph model = of_fixture("transformer_scan.hlo.gz");
  int loops = 0;
  for (const Task& task : model.graph.tasks) loops += task.opcode == "while";
  EXPECT_GT(loops, 0);
  ASSERT_FALSE(model.warnings.empty());
  EXPECT_THAT(model.warnings.back(), HasSubstr("is one task"));
}

// All fixtures make graphs; link() refuses what is none.
TEST(TrainingGraph, OfEveryFixture) {
  for (const char* name :
       {"gpt2.hlo.gz", "gpt2_forward.hlo.gz", "grouped_query.hlo.gz", "lit_small.hlo.gz", "mamba.hlo.gz",
        "moe_dense.hlo.gz", "moe_small.hlo.gz", "moe_sort.hlo.gz", "resnet50.hlo.gz", "scan_remat.hlo.gz",
        "set_prediction.hlo.gz", "tiny_mlp.stripped.hlo", "transformer_bf16.hlo.gz", "transformer_remat.hlo.gz"}) {
    for (const Colocate colocate : {Colocate::kUpdate, Colocate::kPasses}) {
      const TrainingGraph model = of_fixture(name, colocate);
      EXPECT_GT(model.graph.size(), 10) << name;
      EXPECT_GT(model.graph.total_ms(), 0) << name;
    }
  }
}

TEST(TrainingGraph, RefusesWhatIsNoStep) {
  const auto refused = [](const std::string& text) {
    const hlo::HloModule module = hlo::read_hlo(text, "test");
    try {
      graph_of(module.graph);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
    }
  };
  refused("HloModule m\nENTRY e {\n  ROOT c = f32[2] constant({1, 2})\n}\n");
  refused("HloModule m\nENTRY e {\n  ROOT p = f32[2] parameter(0)\n}\n");
}

// A chain, an encoder with a decoder, branches: the busiest device is twice as slow, and assistants make that shorter.
TEST(Assistants, HelpRealStepsWithAStraggler) {
  const machine::Cluster cluster = machine::load_cluster("config-a");
  for (const char* name : {"vgg19.hlo.gz", "t5_6_6.hlo.gz", "unet.hlo.gz"}) {
    if (kSanitized && std::string(name) != "vgg19.hlo.gz") continue;
    const TrainingGraph model = of_fixture(name);
    const Machine machine(cluster, 4);
    const Answer answer = find_division(model.graph, machine, {});
    AssistantRequest request;
    request.sigmas = {0};
    request.slows = {1, 2};
    const std::vector<ScenarioResult> results =
        compare_assistants(model.graph, machine, answer.candidates[answer.best], false, request);
    ASSERT_EQ(results.size(), 2u);
    EXPECT_EQ(results[0].assisted_ms, results[0].static_ms) << name;
    EXPECT_EQ(results[0].moved, 0) << name;
    EXPECT_LT(results[1].assisted_ms, results[1].static_ms) << name;
    EXPECT_LE(results[1].oracle_ms, results[1].static_ms) << name;
    EXPECT_NEAR(results[1].ratios[at(straggler_of(model.graph, machine, answer.candidates[answer.best].devices))], 2,
                1e-2)
        << name;
  }
}

// And win where the loss is large.
TEST(Assistants, DoNotLoseOverTwoServers) {
  const TrainingGraph model = of_fixture("vgg19.hlo.gz");
  const Machine machine(machine::load_cluster("config-a"), 16);
  const Answer answer = find_division(model.graph, machine, {});
  AssistantRequest request;
  request.sigmas = {0, 0.3, 0.5};
  for (const ScenarioResult& r :
       compare_assistants(model.graph, machine, answer.candidates[answer.best], false, request))
    EXPECT_LE(r.assisted_ms, (r.scenario.slow < 4 ? 1.01 : 0.85) * r.static_ms)
        << "noise " << r.scenario.sigma << ", slow " << r.scenario.slow;
}

// Hundreds of units and more, all heuristics: what matters is that it ends in seconds (BERT-48 has 14 075 units).
TEST(Planning, RealStepsAreBetterThanOneDevice) {
  const machine::Cluster cluster = machine::load_cluster("config-a");
  for (const char* name : {"vgg19.hlo.gz", "resnet50.hlo.gz"}) {
    const TrainingGraph model = of_fixture(name);
    const Machine machine(cluster, 8);
    for (const bool acyclic : {false, true}) {
      Request request;
      request.acyclic = acyclic;
      const Answer answer = find_division(model.graph, machine, request);
      for (const Candidate& candidate : answer.candidates) {
        EXPECT_TRUE(!acyclic || acyclic_between_devices(hypergraph_of(model.graph), candidate.devices, 8));
      }
      const Candidate& best = answer.candidates[answer.best];
      EXPECT_LT(best.cost.load_ms, answer.candidates.back().cost.load_ms / 3) << name;
      EXPECT_GE(best.cost.load_ms, answer.bound_ms);
    }
  }
}

}  // namespace
}  // namespace automap::heuristics
