#include "plan/systems/soap/operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "common/hlo/hlo_reader.h"
#include "plan/systems/soap/delta_simulation.h"
#include "plan/systems/soap/operators_at_batch.h"
#include "plan/systems/soap/proposals.h"
#include "plan/systems/soap/search.h"
#include "plan/systems/soap/soap_plan.h"
#include "profile/profile_hlo.h"
#include "tests/plan/systems/soap/random_space.h"
#include "tests/sanitized.h"

namespace automap::soap {
namespace {

using ::testing::HasSubstr;

// "s8 p64": kinds and extents of an operator's dimensions.
std::string dims_text(const Operator& op) {
  std::string out;
  for (const OperatorDim& dim : op.dims)
    out += (out.empty() ? "" : " ") + std::string(1, to_string(dim.kind)[0]) + std::to_string(dim.extent);
  return out;
}

ModelSpace space_of(const graph::Graph& graph) {
  return operators_of(graph, graph::analyze_training_step(graph), *machine::find_device("v100-16gb"));
}
ModelSpace space_of_text(const std::string& text) {
  const hlo::HloModule module = hlo::read_hlo(text, "test");
  return space_of(module.graph);
}
hlo::HloModule fixture(const std::string& name) {
  return hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/" + name);
}

// Two products with a bias and a loss; forward, backward and update are one operator each.
TEST(Operators, OfAnMlp) {
  const hlo::HloModule module = fixture("tiny_mlp.hlo");
  const ModelSpace model = space_of(module.graph);
  ASSERT_EQ(model.space.size(), 3);
  EXPECT_TRUE(model.training);
  EXPECT_EQ(dims_text(model.space.operators[0]), "s16 p64");
  EXPECT_EQ(dims_text(model.space.operators[1]), "s16 p10");
  EXPECT_EQ(dims_text(model.space.operators[2]), "s16");
  // Kernel and bias are split alike, by columns.
  ASSERT_EQ(model.space.operators[0].weights.size(), 1u);
  EXPECT_EQ(model.space.operators[0].weights[0].dims, std::vector<std::int32_t>{1});
  EXPECT_EQ(model.space.operators[0].weights[0].gradient_bytes, (32 * 64 + 64) * 4);
  ASSERT_EQ(model.space.edges.size(), 2u);
  for (const Operator& op : model.space.operators) EXPECT_TRUE(op.backward);
  const EdgeTensor& hidden = model.space.edges[0].tensors[0];
  EXPECT_TRUE(hidden.gradient);
  ASSERT_EQ(hidden.dims.size(), 2u);
  EXPECT_EQ(hidden.dims[0].producer, 0);
  EXPECT_EQ(hidden.dims[0].consumer, 0);
  EXPECT_EQ(hidden.dims[1].producer, 1);
  EXPECT_EQ(hidden.dims[1].consumer, kNone);  // contracted: every part reads all of it
}

// The profile's forward, backward and optimizer times, none lost.
TEST(Operators, HoldTheTimesOfTheProfile) {
  for (const char* name : {"tiny_mlp.hlo", "vgg19.hlo.gz", "resnet50.hlo.gz"}) {
    const hlo::HloModule module = fixture(name);
    const ModelSpace model = space_of(module.graph);
    profile::ProfileRequest request;
    request.device = "v100-16gb";
    const profile::ModelProfile profile = profile::profile_module(module, name, request);
    EXPECT_NEAR(model.forward_ms, profile.forward_ms, 1e-9 * profile.forward_ms) << name;
    EXPECT_NEAR(model.backward_ms, profile.backward_ms, 1e-9 * profile.backward_ms) << name;
    EXPECT_NEAR(model.update_ms, profile.optimizer_ms, 1e-6 * profile.optimizer_ms) << name;
  }
}

// At the module's own batch they are its own; at four times that sample dimensions and times are four times as large,
// weights stay, and what can be split stays what it was.
TEST(Operators, AtAnotherBatch) {
  const machine::DeviceModel device = *machine::find_device("v100-16gb");
  for (const char* name : {"tiny_mlp.hlo", "t5_6_6.hlo.gz", "moe_small.hlo.gz"}) {
    const hlo::HloModule module = fixture(name);
    const ModelSpace own = space_of(module.graph);
    const std::int64_t batch = graph::analyze_training_step(module.graph).batch;
    EXPECT_EQ(operators_at_batch(module.graph, device, batch).forward_ms, own.forward_ms) << name;
    const ModelSpace four = operators_at_batch(module.graph, device, 4 * batch);
    ASSERT_EQ(four.space.size(), own.space.size());
    EXPECT_GT(four.forward_ms, own.forward_ms);
    for (std::size_t i = 0; i < own.space.operators.size(); ++i) {
      const Operator &a = own.space.operators[i], &b = four.space.operators[i];
      ASSERT_EQ(a.dims.size(), b.dims.size());
      for (std::size_t d = 0; d < a.dims.size(); ++d) {
        EXPECT_EQ(b.dims[d].kind, a.dims[d].kind);
        // Experts' places do not grow everywhere.
        if (b.dims[d].extent == a.dims[d].extent && std::string(name) == "moe_small.hlo.gz") continue;
        EXPECT_EQ(b.dims[d].extent, a.dims[d].extent * (a.dims[d].kind == DimKind::kSample ? 4 : 1)) << name << a.name;
      }
      ASSERT_EQ(a.weights.size(), b.weights.size());
      for (std::size_t w = 0; w < a.weights.size(); ++w)
        EXPECT_EQ(a.weights[w].weight_bytes, b.weights[w].weight_bytes);
    }
  }
  const hlo::HloModule forward = fixture("vit_forward.hlo.gz");
  EXPECT_GT(operators_at_batch(forward.graph, device, 1024).forward_ms, space_of(forward.graph).forward_ms);
}

// The table of the paper: convolutions along samples, height, width and channels, products along samples and columns.
TEST(Operators, HaveTheDimensionsOfThePaper) {
  const hlo::HloModule vgg = fixture("vgg19.hlo.gz");
  const ModelSpace model = space_of(vgg.graph);
  for (const Operator& op : model.space.operators) {
    if (op.opcode == "convolution") {
      ASSERT_EQ(op.dims.size(), 4u) << op.name;
      EXPECT_EQ(op.dims[0].kind, DimKind::kSample);
      EXPECT_EQ(op.dims[1].kind, DimKind::kAttribute);
      EXPECT_EQ(op.dims[2].kind, DimKind::kAttribute);
      EXPECT_EQ(op.dims[3].kind, DimKind::kParameter);
    }
    if (op.opcode == "dot") {
      ASSERT_EQ(op.dims.size(), 2u) << op.name;
      EXPECT_EQ(op.dims[0].kind, DimKind::kSample);
      EXPECT_EQ(op.dims[1].kind, DimKind::kParameter);
    }
  }
}

// Data parallel training of models whose layers all have samples moves nothing but gradients.
TEST(Operators, DataParallelismMovesGradientsOnly) {
  const MachineLinks machine(test_cluster(2));
  for (const char* name : {"tiny_mlp.hlo", "vgg19.hlo.gz", "resnet50.hlo.gz", "t5_6_6.hlo.gz"}) {
    const hlo::HloModule module = fixture(name);
    const Space space = space_of(module.graph).space;
    double gradients = 0;
    for (const Operator& op : space.operators) {
      for (const Weights& weights : op.weights) gradients += weights.gradient_bytes;
    }
    const double moved = bytes_moved(space, data_parallel(space, 4), machine);
    EXPECT_GE(moved, 2 * 3 * gradients * (1 - 1e-12)) << name;
    EXPECT_LE(moved, 2 * 3 * gradients * 1.001) << name;
  }
}

// A 3x3 window reads a row of its neighbours on either side.
TEST(Operators, WindowsReadBorders) {
  const ModelSpace model = space_of_text(R"(HloModule m
ENTRY e {
  x = f32[8,16,16,4] parameter(0)
  k = f32[3,3,4,4] parameter(1), metadata={op_name="params['k']"}
  h = f32[8,16,16,4] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  t = f32[8,16,16,4] tanh(h)
  ROOT y = f32[8,16,16,4] convolution(t, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
}
)");
  ASSERT_EQ(model.space.size(), 2);
  EXPECT_FALSE(model.training);
  ASSERT_EQ(model.space.operators[1].dims.size(), 4u);
  ASSERT_FALSE(model.space.edges.empty());
  bool found = false;
  for (const EdgeTensor& tensor : model.space.edges[0].tensors) {
    if (tensor.dims[1].extent != 16) continue;
    found = true;
    EXPECT_EQ(tensor.dims[1].left, 1);
    EXPECT_EQ(tensor.dims[1].right, 1);
    EXPECT_EQ(tensor.dims[0].left, 0);
    EXPECT_FALSE(tensor.gradient);
  }
  EXPECT_TRUE(found);
}

TEST(Operators, RefuseAModuleWithoutAny) {
  try {
    space_of_text("HloModule m\nENTRY e {\n  ROOT c = f32[2] constant({1, 2})\n}\n");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_THAT(error.what(), HasSubstr("the module has no operator"));
  }
}

// On modules as the search walks over them (bench-soap does 100 000 proposals of each).
TEST(Operators, DeltaSimulationEqualsTheFullOneOnModels) {
  for (const char* name : {"vgg19.hlo.gz", "t5_6_6.hlo.gz"}) {
    const hlo::HloModule module = fixture(name);
    const Space space = space_of(module.graph).space;
    const MachineLinks machine(test_cluster(3));
    const Proposals proposals(space, machine.num_devices(), Placement::kRange);
    DeltaSimulation delta(space, machine, data_parallel(space, machine.num_devices()));
    Rng rng(6, 1, 0);
    for (int i = 0; i < 200 / kShare; ++i) {
      const auto op = static_cast<OperatorId>(rng.below(space.operators.size()));
      const double ms = delta.propose(op, proposals.draw(op, &rng));
      const Simulated full = simulate(space, delta.strategy(), machine);
      ASSERT_EQ(ms, full.step_ms);
      ASSERT_TRUE(delta.times() == full.tasks);
      if (rng.below(2) == 0) {
        delta.accept();
      } else {
        delta.reject();
      }
    }
  }
}

TEST(SoapPlan, ReadsBackWhatItWrites) {
  const hlo::HloModule module = fixture("tiny_mlp.hlo");
  const Space space = space_of(module.graph).space;
  SoapPlan plan;
  plan.devices = 4;
  plan.strategy = data_parallel(space, 4);
  const std::string text = to_json_text(plan, space);
  EXPECT_EQ(parse_soap_strategy(text, "plan.json", space, 4), plan.strategy);
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    try {
      parse_soap_strategy(changed, "plan.json", space, 4);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  EXPECT_THAT(refused("\"soap\"", "\"data\""), HasSubstr("kind: found \"data\", expected \"soap\""));
  EXPECT_THAT(refused("automap.plan/1", "automap.plan/9"), HasSubstr("automap.plan/9"));
  EXPECT_THAT(refused(space.operators[0].name, "other"), HasSubstr("operator 1: name: found \"other\""));
  EXPECT_THAT(refused("[\n        4,", "[\n        3,"),
              HasSubstr("degree 3 does not divide its sample dimension of 16"));
  EXPECT_THROW(parse_soap_strategy("{}", "plan.json", space, 4), Error);
  EXPECT_THROW(parse_soap_strategy("nothing", "plan.json", space, 4), Error);
}

}  // namespace
}  // namespace automap::soap
