// SOAP strategies as shardings: which device holds which tile, what is no single program, what is written where.
#include "plan/emit/emit_soap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "common/hlo/hlo_reader.h"
#include "plan/systems/soap/proposals.h"

namespace automap::emit {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

soap::LaidTensor laid(std::vector<std::int32_t> dims) {
  soap::LaidTensor out;
  out.op = 0;
  out.dims = std::move(dims);
  return out;
}

TEST(SoapSharding, NamesTheDevicesOfEveryTile) {
  // Two by two parts on devices in another order.
  const soap::Config config{{2, 2}, {3, 1, 0, 2}};
  EXPECT_EQ(soap_sharding(laid({0, 1}), config, 4), "{devices=[2,2]3,1,0,2}");
  EXPECT_EQ(soap_sharding(laid({1, 0}), config, 4), "{devices=[2,2]3,0,1,2}");
  // A weight is split by columns: rows of parts hold the same.
  EXPECT_EQ(soap_sharding(laid({soap::kNone, 1}), config, 4), "{devices=[1,2,2]0,3,1,2 last_tile_dim_replicate}");
  EXPECT_EQ(soap_sharding(laid({soap::kNone}), config, 4), "{replicated}");
  EXPECT_EQ(soap_sharding(laid({}), config, 4), "{replicated}");
  // With fewer parts than devices each part is on several: its own and those behind it that nobody has.
  EXPECT_EQ(soap_sharding(laid({0}), {{2}, {0, 2}}, 4), "{devices=[2,2]0,1,2,3 last_tile_dim_replicate}");
}

soap::Space two_operators() {
  soap::Space space;
  space.operators.resize(2);
  space.operators[0].name = "wide";
  space.operators[0].dims = {{soap::DimKind::kSample, 8}};
  space.operators[1].name = "narrow";
  space.operators[1].dims = {{soap::DimKind::kSample, 2}};
  space.link();
  return space;
}

TEST(SoapMesh, IsWhereEveryOperatorUsesAllItCan) {
  const soap::Space space = two_operators();
  const soap::Config all{{4}, {0, 1, 2, 3}}, two{{2}, {0, 2}}, one{{1}, {0}};
  EXPECT_EQ(why_no_mesh(space, {all, two}, 4), "");
  EXPECT_THAT(why_no_mesh(space, {two, two}, 4),
              HasSubstr("operator 1 (wide) runs in 2 parts on as many of the 4 devices, and could run in 4"));
  EXPECT_THAT(why_no_mesh(space, {all, one}, 4), HasSubstr("operator 2 (narrow)"));
  EXPECT_THAT(why_no_mesh(space, {{{4}, {0, 1, 2, 2}}, two}, 4), HasSubstr("two parts on one device"));
  EXPECT_THAT(why_no_mesh(space, {{{4}, {0, 1, 2, 3}}, two}, 6), HasSubstr("do not divide the 6 devices"));
  EXPECT_EQ(why_no_mesh(space, soap::Proposals(space, 6, soap::Placement::kMesh).nearest({all, two}), 6), "");
}

struct Model {
  hlo::HloModule module;
  graph::TrainingStep step;
  soap::ModelSpace space;
  explicit Model(hlo::HloModule read)
      : module(std::move(read)),
        step(graph::analyze_training_step(module.graph)),
        space(soap::operators_of(module.graph, step, *machine::find_device("v100-16gb"))) {}
};

// The tiny MLP by samples, its first layer by columns: kernels and their new values lie alike.
TEST(SoapHlo, AnnotatesOperatorsVariablesAndResults) {
  const Model model(hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/tiny_mlp.hlo"));
  soap::Strategy strategy = soap::data_parallel(model.space.space, 2);
  strategy[0] = {{1, 2}, {0, 1}};
  const std::string text = emit_soap_hlo(model.step, model.space, strategy, 2);
  EXPECT_THAT(text, HasSubstr("num_partitions=2"));
  const hlo::HloModule back = hlo::read_hlo(text, "emitted");
  int columns = 0, samples = 0;
  for (graph::InstructionId id = 0; id < back.graph.num_instructions(); ++id) {
    const auto sharding = back.graph.attribute(id, "sharding");
    if (!sharding) continue;
    columns += std::string(*sharding).find("[1,2]0,1") != std::string::npos;
    samples += std::string(*sharding).find("[2,1]0,1") != std::string::npos;
  }
  EXPECT_GE(columns, 3);  // the kernel, the product, the root's tuple
  EXPECT_GE(samples, 1);
  // Nothing but annotations: without them it is the module that it was.
  EXPECT_EQ(back.graph.num_instructions(), model.module.graph.num_instructions());
}

TEST(SoapHlo, RefusesWhatIsNoProgram) {
  const Model model(hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/tiny_mlp.hlo"));
  soap::Strategy strategy = soap::data_parallel(model.space.space, 2);
  strategy[1] = {{1, 1}, {1}};
  try {
    emit_soap_hlo(model.step, model.space, strategy, 2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("operator 2"));
    EXPECT_THAT(error.hint(), HasSubstr("--placement mesh"));
  }
}

}  // namespace
}  // namespace automap::emit
