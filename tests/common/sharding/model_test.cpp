#include "common/sharding/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "common/base/error.h"
#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_text.h"

namespace automap::sharding {
namespace {

using graph::Graph;
using graph::InputRole;

Graph fixture_graph(const std::string& name) {
  return hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/" + name).graph;
}

std::map<std::string, int> count_roles(const ShardingModel& model) {
  std::map<std::string, int> out;
  for (const ModelInput& input : model.inputs()) ++out[graph::to_string(input.role)];
  return out;
}

std::vector<std::string> names(const ShardingModel& model, const std::vector<std::int32_t>& indices) {
  std::vector<std::string> out;
  for (const std::int32_t k : indices) out.push_back(model.inputs()[static_cast<std::size_t>(k)].name);
  return out;
}

using Strings = std::vector<std::string>;

TEST(ShardingModel, TrainingStepsHaveVariablesSlotsAndData) {
  const Graph graph = fixture_graph("t5_6_6.hlo.gz");
  const ShardingModel model = ShardingModel::build(graph, {});
  EXPECT_EQ(model.variables().size(), 188u);
  EXPECT_EQ(names(model, model.data()), (Strings{"batch['inputs']", "batch['labels']", "batch['targets']"}));
  EXPECT_EQ(count_roles(model),
            (std::map<std::string, int>{{"input", 3}, {"slot", 376}, {"state", 1}, {"variable", 188}}));
  EXPECT_EQ(model.linkage().shards(), 8);
  // A variable, its two moments, and the new values of the three: split alike.
  for (const ModelInput& input : model.inputs()) {
    if (input.role != InputRole::kVariable && input.role != InputRole::kSlot) continue;
    ASSERT_NE(input.result, kNone) << input.name;
    const NodeId result = model.flow().results()[static_cast<std::size_t>(input.result)];
    const auto before = model.linkage().groups_of(input.node), after = model.linkage().groups_of(result);
    EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin(), after.end())) << input.name;
  }
}

TEST(ShardingModel, AFrozenTowerIsNeitherVariableNorData) {
  const Graph graph = fixture_graph("lit_small.hlo.gz");
  const ShardingModel model = ShardingModel::build(graph, {});
  EXPECT_EQ(model.variables().size(), 39u);
  EXPECT_EQ(names(model, model.data()), (Strings{"batch['image']", "batch['text']"}));
  EXPECT_EQ(count_roles(model)["frozen"], 37);
}

TEST(ShardingModel, TheWeightsOfAnInferenceModuleAreItsVariables) {
  for (const auto& [file, variables, data] : {std::make_tuple("gpt2_forward.hlo.gz", 148u, "batch['input_ids']"),
                                              std::make_tuple("vit_forward.hlo.gz", 199u, "batch['image']")}) {
    const Graph graph = fixture_graph(file);
    const ShardingModel model = ShardingModel::build(graph, {});
    EXPECT_FALSE(model.step().training);
    EXPECT_EQ(model.variables().size(), variables);
    EXPECT_EQ(names(model, model.data()), Strings{data});
    for (const std::int32_t v : model.variables())
      EXPECT_EQ(model.inputs()[static_cast<std::size_t>(v)].name.rfind("params[", 0), 0u);
  }
}

TEST(ShardingModel, RequestedVariablesComeInTheirOrder) {
  const Graph graph = fixture_graph("tiny_mlp.hlo");
  const std::vector<graph::VariableRequest> requests{{"3", "", "a:1"}, {"0", "", "a:2"}};
  ModelOptions options;
  options.variables = &requests;
  EXPECT_EQ(ShardingModel::build(graph, options).variables(), (std::vector<std::int32_t>{3, 0}));
}

TEST(ShardingModel, LoopsRunAsOftenAsTheirTripCount) {
  const Graph graph = fixture_graph("transformer_scan.hlo.gz");
  const ShardingModel model = ShardingModel::build(graph, {});
  std::set<double> times;
  for (NodeId node = 0; node < model.flow().size(); ++node) times.insert(model.times(node));
  EXPECT_EQ(times, (std::set<double>{1, 24}));
  for (const graph::FlowLoop& loop : model.flow().loops()) {
    for (const NodeId node : loop.parameter) EXPECT_EQ(model.times(node), 24);
  }
}

const char* const kNested = R"(HloModule m
inner_cond { t = (s32[], f32[8,4]) parameter(0)  i = s32[] get-tuple-element(t), index=0  n = s32[] constant(3)
  ROOT l = pred[] compare(i, n), direction=LT }
inner { t = (s32[], f32[8,4]) parameter(0)  i = s32[] get-tuple-element(t), index=0  x = f32[8,4] get-tuple-element(t), index=1
  one = s32[] constant(1)  j = s32[] add(i, one)  y = f32[8,4] negate(x)  ROOT r = (s32[], f32[8,4]) tuple(j, y) }
outer_cond { t = (s32[], f32[8,4]) parameter(0)  i = s32[] get-tuple-element(t), index=0  n = s32[] constant(5)
  ROOT l = pred[] compare(i, n), direction=LT }
outer { t = (s32[], f32[8,4]) parameter(0)  i = s32[] get-tuple-element(t), index=0  x = f32[8,4] get-tuple-element(t), index=1
  one = s32[] constant(1)  j = s32[] add(i, one)  z = s32[] constant(0)  s = (s32[], f32[8,4]) tuple(z, x)
  w = (s32[], f32[8,4]) while(s), condition=inner_cond, body=inner  y = f32[8,4] get-tuple-element(w), index=1
  e = f32[8,4] exponential(y)  ROOT r = (s32[], f32[8,4]) tuple(j, e) }
ENTRY e {
  x = f32[8,4] parameter(0)
  z = s32[] constant(0)
  s = (s32[], f32[8,4]) tuple(z, x)
  w = (s32[], f32[8,4]) while(s), condition=outer_cond, body=outer
  ROOT y = f32[8,4] get-tuple-element(w), index=1
})";

TEST(ShardingModel, NestedLoopsMultiply) {
  const Graph graph = hlo::read_hlo_text(kNested, "test");
  const ShardingModel model = ShardingModel::build(graph, {});
  std::map<std::string, double> times;
  for (NodeId node = 0; node < model.flow().size(); ++node)
    times[std::string(graph.instruction(model.flow().node(node).instruction).opcode_name)] = model.times(node);
  EXPECT_EQ(times["negate"], 15);
  EXPECT_EQ(times["exponential"], 5);
  // All of it hangs together, through both loops.
  const GroupId group = model.linkage().group_of(model.inputs()[0].node, 0);
  EXPECT_EQ(group, model.linkage().group_of(model.flow().results()[0], 0));
  EXPECT_TRUE(model.linkage().possible(group));
}

TEST(ShardingModel, RelinkChangesShardsAndGathersOnly) {
  const Graph graph = fixture_graph("tiny_mlp.hlo");
  ShardingModel model = ShardingModel::build(graph, {});
  const NodeId x = model.inputs()[static_cast<std::size_t>(model.find_input("batch['x']"))].node;
  EXPECT_TRUE(model.linkage().possible(model.linkage().group_of(x, 0)));
  model.relink(3, {});
  EXPECT_EQ(model.linkage().shards(), 3);
  EXPECT_FALSE(model.linkage().possible(model.linkage().group_of(x, 0)));
  EXPECT_THROW(model.relink(0, {}), Error);
  EXPECT_EQ(model.linkage().shards(), 3);  // as it was
}

TEST(ShardingModel, ModulesOfNothingAreFine) {
  for (const char* text :
       {"HloModule m\nENTRY e { ROOT t = () tuple() }", "HloModule m\nENTRY e { ROOT c = f32[] constant(1) }",
        "HloModule m\nENTRY e { p = f32[] parameter(0)  ROOT n = f32[] negate(p) }",
        "HloModule m\nENTRY e { p = f32[0,1] parameter(0)  ROOT n = f32[0,1] negate(p) }",
        "HloModule m\nENTRY e { ROOT p = (f32[8], (s32[], token[])) parameter(0) }"}) {
    const Graph graph = hlo::read_hlo_text(text, "test");
    const ShardingModel model = ShardingModel::build(graph, {});
    EXPECT_TRUE(model.data().size() <= 1) << text;
    EXPECT_THROW(model.find_input("7"), Error);
    EXPECT_THROW(model.find_input("wte"), Error);
    EXPECT_THROW(model.find_input(""), Error);
  }
}

// --- Names ---

TEST(PathOf, PytreePathsBecomePathsAndOthersStay) {
  EXPECT_EQ(path_of("params['wte']['embedding']"), "params/wte/embedding");
  EXPECT_EQ(path_of("opt_state[0].mu['w']"), "opt_state/0/mu/w");
  EXPECT_EQ(path_of("data[\"x\"]"), "data/x");
  EXPECT_EQ(path_of("params['mlp/~/linear_0']['w']"), "params/mlp/~/linear_0/w");
  for (const char* name : {"Arg_0.1", "p", "", "params['w'", "params['w", "a[", "a[]", "a[1", "a[x]", "a['w']b", ".a",
                           "['w']", "a.", "a['", "a['w\\", "%p.1"})
    EXPECT_EQ(path_of(name), name);
}

std::string fails(const ShardingModel& model, const std::string& text) {
  try {
    const std::int32_t found = model.find_input(text);
    return "found " + std::to_string(found);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return std::string(error.what()) + " | " + error.hint();
  }
}

TEST(FindInput, NamesNumbersAndPaths) {
  const Graph graph = fixture_graph("gpt2.hlo.gz");
  const ShardingModel model = ShardingModel::build(graph, {});
  const std::int32_t wte = model.find_input("params['wte']['embedding']");
  EXPECT_EQ(model.inputs()[static_cast<std::size_t>(wte)].name, "params['wte']['embedding']");
  EXPECT_EQ(model.find_input(std::to_string(wte)), wte);
  EXPECT_EQ(model.find_input("params/wte/embedding"), wte);
  EXPECT_EQ(model.find_input("params/wte"), wte);
  EXPECT_EQ(model.find_input("params.wte"), wte);
  const std::string hlo = model.inputs()[static_cast<std::size_t>(wte)].parameter_name;
  EXPECT_EQ(model.find_input(hlo), wte);
  EXPECT_EQ(model.find_input("%" + hlo), wte);
  // Every input is found by its own name and by its path.
  for (std::size_t k = 0; k < model.inputs().size(); ++k) {
    EXPECT_EQ(model.find_input(model.inputs()[k].name), static_cast<std::int32_t>(k));
    EXPECT_EQ(model.find_input(path_of(model.inputs()[k].name)), static_cast<std::int32_t>(k));
    EXPECT_EQ(model.find_input(std::to_string(k)), static_cast<std::int32_t>(k));
  }
  EXPECT_EQ(model.find_input("input_ids"), model.data()[0]);
}

TEST(FindInput, SaysWhatIsNearOrAmbiguous) {
  const Graph graph = fixture_graph("gpt2.hlo.gz");
  const ShardingModel model = ShardingModel::build(graph, {});
  EXPECT_NE(fails(model, "params/wte/embeding").find("did you mean params['wte']['embedding']?"), std::string::npos)
      << fails(model, "params/wte/embeding");
  EXPECT_NE(fails(model, "wpe/embeding").find("['wpe']['embedding']?"), std::string::npos);
  // The variable, not its two moments.
  EXPECT_EQ(model.find_input("wte/embedding"), model.find_input("params['wte']['embedding']"));
  const std::string two = fails(model, "embedding");
  EXPECT_NE(two.find("means 2 inputs"), std::string::npos) << two;
  EXPECT_NE(two.find("params['wte']['embedding']"), std::string::npos) << two;
  const std::string moments = fails(model, "opt_state");
  EXPECT_NE(moments.find("means 297 inputs"), std::string::npos) << moments;
  EXPECT_NE(fails(model, "params").find("means 148 inputs"), std::string::npos);
  EXPECT_NE(fails(model, "99999").find("there is no input 99999"), std::string::npos);
  EXPECT_NE(fails(model, "99999999999999999999").find("there is no input"), std::string::npos);
  EXPECT_NE(fails(model, "").find("has no input ''"), std::string::npos);
  EXPECT_NE(fails(model, "zzzzzzzzzzz").find("has no input 'zzzzzzzzzzz'"), std::string::npos);
  EXPECT_NE(fails(model, "/").find("has no input"), std::string::npos);
  // A part of a component is no path.
  EXPECT_EQ(fails(model, "arams/wte").find("found"), std::string::npos);
}

// --- Real models (extended) ---

TEST(ShardingModelCorpus, WeightsAndDataAreToldApart) {
  const char* root = std::getenv("AUTOMAP_CORPUS");
  if (root == nullptr) GTEST_SKIP() << "AUTOMAP_CORPUS is not set: no real models to look at";
  for (const char* folder : {"train_1dev", "train_spmd", "infer_pairs"}) {
    for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(root) / "hlo" / folder)) {
      const Graph graph = hlo::load_hlo(file.path().string()).graph;
      const ShardingModel model = ShardingModel::build(graph, {});
      EXPECT_EQ(model.step().training, std::string(folder) != "infer_pairs") << file.path();
      EXPECT_GT(model.variables().size(), 3u) << file.path();
      EXPECT_GT(model.data().size(), 0u) << file.path();
      const std::set<std::int32_t> variables(model.variables().begin(), model.variables().end());
      for (const std::int32_t k : model.data()) EXPECT_EQ(variables.count(k), 0u) << file.path();
      for (std::size_t k = 0; k < model.inputs().size(); ++k) {
        const std::string& name = model.inputs()[k].name;
        // Inputs that the framework calls parameters.
        const bool weight = name.rfind("params[", 0) == 0 || name.rfind("variables[", 0) == 0;
        EXPECT_TRUE(!weight || variables.count(static_cast<std::int32_t>(k)) == 1) << file.path() << " " << name;
      }
    }
  }
}

}  // namespace
}  // namespace automap::sharding
