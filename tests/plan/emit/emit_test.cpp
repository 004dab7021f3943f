#include "plan/emit/emit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <sstream>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_text.h"
#include "plan/emit/jax_constraints.h"

namespace automap::emit {

using namespace partition;

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kFolder = std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/";

struct Loaded {
  graph::Graph graph;
  sharding::ShardingModel model;
};
std::unique_ptr<Loaded> from_text(const std::string& text, int shards = 8) {
  auto loaded = std::make_unique<Loaded>(Loaded{hlo::read_hlo(text, "t.hlo").graph, {}});
  sharding::ModelOptions options;
  options.shards = shards;
  loaded->model = sharding::ShardingModel::build(loaded->graph, options);
  return loaded;
}

// The module with these inputs (by HLO name) split.
std::string emitted(Loaded* loaded, const std::map<std::string, int>& splits) {
  sharding::Propagation decided(loaded->model.linkage());
  for (const auto& [name, dim] : splits) {
    const auto& input = loaded->model.inputs()[static_cast<std::size_t>(loaded->model.find_input(name))];
    EXPECT_FALSE(decided.split({input.node, dim})) << name;
  }
  return emit_hlo(loaded->model, decided);
}
std::string emitted(const std::string& text, const std::map<std::string, int>& splits, int shards = 8) {
  return emitted(from_text(text, shards).get(), splits);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

TEST(EmitHlo, ShardingTexts) {
  using Kind = sharding::TensorStateKind;
  const sharding::TensorState whole, undecided{Kind::kUndecided, -1, {}};
  const auto along = [](std::int32_t dim) { return sharding::TensorState{Kind::kSplit, dim, {}}; };
  EXPECT_EQ(sharding_text({along(1)}, {8}, 2), "{devices=[1,8]<=[8]}");
  EXPECT_EQ(sharding_text({along(0)}, {4}, 1), "{devices=[4]<=[4]}");
  EXPECT_EQ(sharding_text({along(2)}, {2}, 4), "{devices=[1,1,2,1]<=[2]}");
  EXPECT_EQ(sharding_text({whole}, {8}, 2), "{replicated}");
  EXPECT_EQ(sharding_text({undecided}, {8}, 2), "{replicated}");
  EXPECT_EQ(sharding_text({along(0)}, {1}, 1), "{replicated}");
  // Two axes; the device at (d, t) of 4 x 2 is d * 2 + t.
  EXPECT_EQ(sharding_text({along(0), along(1)}, {4, 2}, 2), "{devices=[4,2]<=[8]}");
  EXPECT_EQ(sharding_text({along(1), along(0)}, {4, 2}, 2), "{devices=[2,4]<=[4,2]T(1,0)}");
  EXPECT_EQ(sharding_text({along(0), whole}, {4, 2}, 2), "{devices=[4,1,2]<=[8] last_tile_dim_replicate}");
  EXPECT_EQ(sharding_text({whole, along(1)}, {4, 2}, 2), "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}");
  // The inner axis cuts a dimension first.
  EXPECT_EQ(sharding_text({along(0), along(0)}, {4, 2}, 1), "{devices=[8]<=[4,2]T(1,0)}");
  EXPECT_EQ(sharding_text({along(1), along(0)}, {1, 2}, 2), "{devices=[2,1]<=[2]}");
  EXPECT_EQ(sharding_text({along(1), along(0)}, {4, 1}, 2), "{devices=[1,4]<=[4]}");
}

// Parameters, the root and the header change; every other line stays as it was.
TEST(EmitHlo, ChangesOnlyWhatItMust) {
  for (const char* name : {"tiny_mlp.hlo", "tiny_mlp.stripped.hlo", "transformer_scan.hlo.gz", "moe_small.hlo.gz",
                           "t5_6_6.hlo.gz", "lit_small.hlo.gz", "transformer_bf16.hlo.gz"}) {
    const std::string text = gunzip_if_gzip(read_file(kFolder + name), name);
    const auto loaded = from_text(text);
    const std::vector<std::string> before = lines_of(text), after = lines_of(emitted(loaded.get(), {}));
    ASSERT_EQ(before.size(), after.size()) << name;
    std::size_t changed = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (before[i] == after[i]) continue;
      ++changed;
      EXPECT_TRUE(before[i].find(" parameter(") != std::string::npos || before[i].find("ROOT") != std::string::npos ||
                  i == 0)
          << name << ": " << after[i].substr(0, 200);
    }
    EXPECT_EQ(changed, loaded->graph.entry().parameters.size() + 2) << name;
    // Nothing but shardings and the number of partitions was added.
    const graph::Graph again = hlo::read_hlo_text(emitted(loaded.get(), {}), name);
    EXPECT_EQ(again.num_instructions(), loaded->graph.num_instructions());
    EXPECT_EQ(again.header_attribute("num_partitions"), std::string_view("8"));
  }
}

TEST(EmitHlo, ParametersAndRootAgree) {
  const auto loaded = from_text(read_file(kFolder + "tiny_mlp.hlo"));
  const std::string text = emitted(loaded.get(), {{"params__dense_1____kernel__.1", 1}});
  EXPECT_THAT(text, HasSubstr("f32[64]{0} parameter(0), sharding={devices=[8]<=[8]}, metadata="));
  EXPECT_THAT(text, HasSubstr("f32[32,64]{1,0} parameter(1), sharding={devices=[1,8]<=[8]}, metadata="));
  EXPECT_THAT(text, HasSubstr("f32[10]{0} parameter(2), sharding={replicated}, metadata="));
  EXPECT_THAT(text, HasSubstr("f32[64,10]{1,0} parameter(3), sharding={devices=[8,1]<=[8]}, metadata="));
  EXPECT_THAT(text, HasSubstr(", sharding={{devices=[8]<=[8]}, {devices=[1,8]<=[8]}, {replicated}, "
                              "{devices=[8,1]<=[8]}, {replicated}}\n"));
}

// Behind a barrier in a loop: %back comes back to %e, so its annotation would be one of the barrier; %there does not.
TEST(EmitHlo, ChainsBackToOneOfSeveralResults) {
  const std::string text =
      "HloModule m\n"
      "b {\n  t = (s32[], f32[16,32], f32[32]) parameter(0)\n  i = s32[] get-tuple-element(t), index=0\n"
      "  x = f32[16,32] get-tuple-element(t), index=1\n  w = f32[32] get-tuple-element(t), index=2\n"
      "  o = (f32[16,32], f32[32]) opt-barrier(u)\n  e = f32[32] get-tuple-element(o), index=1\n"
      "  there = f32[1,32] reshape(e)\n  back = f32[32] reshape(there)\n"
      "  f = f32[16,32] broadcast(back), dimensions={1}\n  y = f32[16,32] get-tuple-element(o), index=0\n"
      "  z = f32[16,32] multiply(y, f)\n  one = s32[] constant(1)\n  j = s32[] add(i, one)\n"
      "  ROOT r = (s32[], f32[16,32], f32[32]) tuple(j, z, w)\n}\n"
      "c {\n  t.1 = (s32[], f32[16,32], f32[32]) parameter(0)\n  i.1 = s32[] get-tuple-element(t.1), index=0\n"
      "  n = s32[] constant(3)\n  ROOT l = pred[] compare(i.1, n), direction=LT\n}\n"
      "ENTRY e0 {\n  a = f32[16,32] parameter(0)\n  g = f32[32] parameter(1)\n  zero = s32[] constant(0)\n"
      "  s = (s32[], f32[16,32], f32[32]) tuple(zero, a, g)\n"
      "  h = (s32[], f32[16,32], f32[32]) while(s), condition=c, body=b\n"
      "  ROOT k = f32[16,32] get-tuple-element(h), index=1\n}\n";
  std::string ordered = text;
  ordered.replace(ordered.find("  o = ("), 0, "  u = (f32[16,32], f32[32]) tuple(x, w)\n");
  const std::string out = emitted(ordered, {{"g", 0}});
  EXPECT_THAT(out, HasSubstr("there = f32[1,32] reshape(e), sharding={devices=[1,8]<=[8]}"));
  EXPECT_THAT(out, HasSubstr("back = f32[32] reshape(there)\n"));
}

// XLA's scatters go by what they write into: the zeros that %r reads in parts are read whole by the scatter.
TEST(EmitHlo, AScatterIntoZerosThatOthersReadInParts) {
  const std::string out = emitted(
      "HloModule m\nsum {\n  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n  ROOT s = f32[] add(p, q)\n}\n"
      "ENTRY e {\n  a = f32[16,32] parameter(0)\n  u = f32[4,32] parameter(1)\n  i = s32[4,1] parameter(2)\n"
      "  z = f32[] constant(0)\n  zeros = f32[16,32] broadcast(z), dimensions={}\n"
      "  r = f32[16,32] maximum(a, zeros)\n"
      "  w = f32[16,32] scatter(zeros, i, u), update_window_dims={1}, inserted_window_dims={0}, "
      "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum\n"
      "  ROOT t = (f32[16,32], f32[16,32]) tuple(r, w)\n}\n",
      {{"a", 1}});
  EXPECT_THAT(out, HasSubstr("custom-call(%zeros), custom_call_target=\"Sharding\", sharding={replicated}"));
  EXPECT_THAT(out, Not(HasSubstr("scatter(zeros,")));
}

// An annotation of one of several results is lost on the way through StableHLO: they stand at the instruction.
TEST(EmitHlo, SeveralResultsAreAnnotatedTogether) {
  const std::string out = emitted(
      "HloModule m\n"
      "b {\n  t = (s32[], f32[16,32], f32[32,64]) parameter(0)\n  i = s32[] get-tuple-element(t), index=0\n"
      "  x = f32[16,32] get-tuple-element(t), index=1\n  w = f32[32,64] get-tuple-element(t), index=2\n"
      "  k = (f32[16,2], s32[16,2]) topk(x), k=2, largest=true\n  v = f32[16,2] get-tuple-element(k), index=0\n"
      "  z = f32[] constant(0)\n  p = f32[16,32] pad(v, z), padding=0_0x0_30\n  y = f32[16,32] add(x, p)\n"
      "  one = s32[] constant(1)\n  j = s32[] add(i, one)\n"
      "  ROOT r = (s32[], f32[16,32], f32[32,64]) tuple(j, y, w)\n}\n"
      "c {\n  t.1 = (s32[], f32[16,32], f32[32,64]) parameter(0)\n  i.1 = s32[] get-tuple-element(t.1), index=0\n"
      "  n = s32[] constant(3)\n  ROOT l = pred[] compare(i.1, n), direction=LT\n}\n"
      "ENTRY e0 {\n  a = f32[16,32] parameter(0)\n  g = f32[32,64] parameter(1)\n  zero = s32[] constant(0)\n"
      "  s = (s32[], f32[16,32], f32[32,64]) tuple(zero, a, g)\n"
      "  h = (s32[], f32[16,32], f32[32,64]) while(s), condition=c, body=b\n"
      "  ROOT o = f32[16,32] get-tuple-element(h), index=1\n}\n",
      {{"g", 1}});
  EXPECT_THAT(out, HasSubstr("largest=true, sharding={{replicated}, {replicated}}"));
}

// x goes from its parts along the features to parts along the experts, through what it is.
TEST(EmitHlo, WhatIsExchanged) {
  const auto loaded = from_text(
      "HloModule m\nENTRY e {\n  x = f32[8,4,16] parameter(0)\n  w = f32[8,16,8] parameter(1)\n"
      "  p = f32[8,4,8] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
      "rhs_contracting_dims={1}\n"
      "  ROOT y = f32[8,4,16] negate(x)\n}\n");
  using Kind = sharding::Gather::Kind;
  const std::string lies = "{devices=[1,1,8]<=[8]}", goes = "{devices=[8,1,1]<=[8]}";
  const auto call = [](const std::string& of, const std::string& sharding) {
    return " = f32[8,4,16] custom-call(%" + of + "), custom_call_target=\"Sharding\", sharding=" + sharding + "\n";
  };
  loaded->model.relink(8, {{2, 0, 2, Kind::kExchanged}, {2, 0, 0, Kind::kInParts}});
  const std::string exchanged = emitted(loaded.get(), {{"x", 2}, {"w", 0}});
  EXPECT_THAT(exchanged, HasSubstr("%x.sharded.1" + call("x", lies)));
  EXPECT_THAT(exchanged, HasSubstr("%x.sharded.2" + call("x.sharded.1", goes)));
  EXPECT_THAT(exchanged, HasSubstr("dot(x.sharded.2, w)"));
  loaded->model.relink(8, {{2, 0, 2}, {2, 0, 0, Kind::kInParts}});
  const std::string gathered = emitted(loaded.get(), {{"x", 2}, {"w", 0}});
  EXPECT_THAT(gathered, HasSubstr("%x.sharded.1" + call("x", "{replicated}")));
  EXPECT_THAT(gathered, HasSubstr("%x.sharded.2" + call("x.sharded.1", goes)));
  const std::string whole = emitted(loaded.get(), {{"w", 0}});
  EXPECT_THAT(whole, HasSubstr("%x.sharded.1" + call("x", goes)));
  EXPECT_THAT(whole, HasSubstr("dot(x.sharded.1, w)"));
}

// Two states of a loop begin with one constant; w splits the one, the other stays whole.
TEST(EmitHlo, StatesOfALoopThatBeginAlike) {
  const std::string text =
      "HloModule m\n"
      "b {\n  t = (s32[], f32[16,16], f32[16,16], f32[16,16], f32[16,16]) parameter(0)\n"
      "  i = s32[] get-tuple-element(t), index=0\n  p = f32[16,16] get-tuple-element(t), index=1\n"
      "  q = f32[16,16] get-tuple-element(t), index=2\n  w = f32[16,16] get-tuple-element(t), index=3\n"
      "  x = f32[16,16] get-tuple-element(t), index=4\n  one = s32[] constant(1)\n  j = s32[] add(i, one)\n"
      "  u = f32[16,16] add(p, w)\n  d = f32[16,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
      "  v = f32[16,16] add(q, d)\n"
      "  ROOT r = (s32[], f32[16,16], f32[16,16], f32[16,16], f32[16,16]) tuple(j, u, v, w, x)\n}\n"
      "c {\n  t = (s32[], f32[16,16], f32[16,16], f32[16,16], f32[16,16]) parameter(0)\n"
      "  i = s32[] get-tuple-element(t), index=0\n  n = s32[] constant(3)\n"
      "  ROOT l = pred[] compare(i, n), direction=LT\n}\n"
      "ENTRY e {\n  w = f32[16,16] parameter(0)\n  x = f32[16,16] parameter(1)\n  zero = f32[] constant(0)\n"
      "  z = f32[16,16] broadcast(zero), dimensions={}\n  k = s32[] constant(0)\n"
      "  s = (s32[], f32[16,16], f32[16,16], f32[16,16], f32[16,16]) tuple(k, z, z, w, x)\n"
      "  l = (s32[], f32[16,16], f32[16,16], f32[16,16], f32[16,16]) while(s), condition=c, body=b\n"
      "  m = f32[16,16] get-tuple-element(l), index=1\n  o = f32[16,16] get-tuple-element(l), index=2\n"
      "  ROOT a = (f32[16,16], f32[16,16]) tuple(m, o)\n}\n";
  const std::string emitted_text = emitted(text, {{"w", 0}});
  const std::string line = " = f32[16,16] custom-call(%z), custom_call_target=\"Sharding\", sharding=";
  EXPECT_THAT(emitted_text, HasSubstr("%z.sharded.1" + line + "{devices=[8,1]<=[8]}\n"));
  EXPECT_THAT(emitted_text, HasSubstr("%z.sharded.2" + line + "{replicated}\n"));
  EXPECT_THAT(emitted_text, HasSubstr("tuple(k, z.sharded.1, z.sharded.2, w, x)"));
  // Both alike: nothing to tell.
  EXPECT_THAT(emitted(text, {{"w", 1}}), Not(HasSubstr(".sharded.")));
}

// tanh runs on the split x and on the whole y; what reads the two is told apart.
TEST(EmitHlo, SharedCallsInDifferentStates) {
  const std::string text =
      "HloModule m\nf {\n  p = f32[16,4] parameter(0)\n  ROOT t = f32[16,4] tanh(p)\n}\n"
      "ENTRY e {\n  x = f32[16,4] parameter(0)\n  y = f32[16,4] parameter(1)\n"
      "  a = f32[16,4] call(x), to_apply=f\n  b = f32[16,4] call(y), to_apply=f\n"
      "  m = f32[16,4] negate(a)\n  n = f32[16,4] negate(b)\n  ROOT r = (f32[16,4], f32[16,4]) tuple(m, n)\n}\n";
  const std::string split = emitted(text, {{"x", 0}});
  EXPECT_THAT(split, HasSubstr("negate(a), sharding={devices=[8,1]<=[8]}\n"));
  EXPECT_THAT(split, HasSubstr("negate(b), sharding={replicated}\n"));
  EXPECT_THAT(split, HasSubstr("tanh(p)\n"));
  EXPECT_THAT(emitted(text, {{"x", 0}, {"y", 0}}), HasSubstr("negate(b)\n"));
}

TEST(EmitHlo, OtherFormsAreWrittenAsText) {
  const auto binary = std::make_unique<Loaded>(Loaded{hlo::load_hlo(kFolder + "tiny_mlp.pb.gz").graph, {}});
  binary->model = sharding::ShardingModel::build(binary->graph, {});
  const std::string text = emitted(binary.get(), {{"params__dense_1____kernel__.1", 1}});
  EXPECT_THAT(text, HasSubstr("num_partitions=8"));
  EXPECT_THAT(text, HasSubstr("parameter(1), "));
  EXPECT_THAT(text, HasSubstr("sharding={devices=[1,8]<=[8]}"));
  EXPECT_EQ(hlo::read_hlo_text(text, "t").num_instructions(), binary->graph.num_instructions());
}

TEST(EmitHlo, SingleResultsAndTupleParameters) {
  EXPECT_THAT(emitted("HloModule m\n\nENTRY e {\n  p = f32[16,4]{1,0} parameter(0)\n"
                      "  ROOT t = f32[16,4]{1,0} tanh(p)\n}\n",
                      {{"p", 0}}),
              HasSubstr("ROOT t = f32[16,4]{1,0} tanh(p), sharding={devices=[8,1]<=[8]}\n"));
  const std::string tuple = emitted(
      "HloModule m\n\nENTRY e {\n  p = (f32[16,4]{1,0}, (f32[3], s32[])) parameter(0)\n"
      "  g = f32[16,4]{1,0} get-tuple-element(p), index=0\n  ROOT t = f32[16,4]{1,0} tanh(g)\n}\n",
      {{"p{0}", 0}});
  EXPECT_THAT(tuple, HasSubstr("parameter(0), sharding={{devices=[8,1]<=[8]}, {replicated}, {replicated}}\n"));
  EXPECT_THAT(tuple, HasSubstr("index=0\n"));
  // The root may be the parameter, and tuples may be empty.
  EXPECT_THAT(emitted("HloModule m\n\nENTRY e {\n  ROOT p = f32[16,4]{1,0} parameter(0)\n}\n", {{"p", 1}}, 4),
              HasSubstr("parameter(0), sharding={devices=[1,4]<=[4]}\n"));
  EXPECT_THAT(emitted("HloModule m\n\nENTRY e {\n  p = f32[8] parameter(0)\n  ROOT t = () tuple()\n}\n", {}),
              HasSubstr("ROOT t = () tuple()\n"));
  EXPECT_THAT(emitted("HloModule m\n\nENTRY e {\n  p = f32[8] parameter(0)\n  u = () tuple()\n"
                      "  ROOT t = (f32[8], ()) tuple(p, u)\n}\n",
                      {{"p", 0}}),
              HasSubstr("tuple(p, u), sharding={{devices=[8]<=[8]}}\n"));
}

TEST(EmitHlo, OldShardingsAndShardyGo) {
  const std::string text = emitted(
      "HloModule m, allow_spmd_sharding_propagation_to_output={true}, num_partitions=4, "
      "frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<[\"x\"=4, \"y\"=1]>},mine=\"1, 2\"}, "
      "entry_computation_layout={(f32[16,4]{1,0}, f32[16,4]{1,0})->f32[16,4]{1,0}}\n\n"
      "ENTRY e {\n"
      "  p = f32[16,4]{1,0} parameter(0), sharding={devices=[4,1]<=[4]}, "
      "frontend_attributes={xla.sdy.sharding=\"#sdy.sharding<@mesh, [{\\\"x\\\"}, {}]>\"}, metadata={op_name=\"p\"}\n"
      "  z = f32[16,4]{1,0} parameter(1)\n"
      "  c = f32[16,4]{1,0} custom-call(p), custom_call_target=\"Sharding\", sharding={devices=[1,4]<=[4]}, "
      "metadata={op_name=\"constraint\"}\n"
      "  q = f32[16,4]{1,0} tanh(c), sharding={replicated}\n"
      "  f = f32[16,4]{1,0} custom-call(q), custom_call_target=\"xla.sdy.FuncResultSharding\", "
      "custom_call_has_side_effect=true, frontend_attributes={xla.sdy.sharding=\"#sdy\"}\n"
      "  g = () custom-call(q), custom_call_target=\"xla.sdy.ShardingGroup\", custom_call_has_side_effect=true\n"
      "  h = f32[16,4]{1,0} custom-call(z), custom_call_target=\"mine\", frontend_attributes={a=\"b\"}\n"
      "  ROOT r = f32[16,4]{1,0} add(q, f), sharding={devices=[4,1]<=[4]}\n}\n",
      {{"p", 0}});
  EXPECT_THAT(text, HasSubstr("HloModule m, num_partitions=8, frontend_attributes={mine=\"1, 2\"}, entry_"));
  EXPECT_THAT(text, HasSubstr("parameter(0), sharding={devices=[8,1]<=[8]}, metadata={op_name=\"p\"}\n"));
  EXPECT_THAT(text, HasSubstr("  c = f32[16,4]{1,0} copy(p), metadata={op_name=\"constraint\"}\n"));
  EXPECT_THAT(text, HasSubstr("  q = f32[16,4]{1,0} tanh(c)\n"));
  EXPECT_THAT(text, HasSubstr("  f = f32[16,4]{1,0} copy(q)\n"));
  EXPECT_THAT(text, HasSubstr("  g = () tuple()\n"));
  EXPECT_THAT(text, HasSubstr("custom_call_target=\"mine\", frontend_attributes={a=\"b\"}\n"));
  EXPECT_THAT(text, HasSubstr("add(q, f), sharding={devices=[8,1]<=[8]}\n"));
  EXPECT_THAT(text, Not(HasSubstr("sdy")));
}

// Texts in spellings that XLA does not read are written anew, with the same changes.
TEST(EmitHlo, OtherSpellings) {
  const std::string text = emitted(
      "HloModule m\n\nENTRY e {\n  p = f32[16,4] parameter(0)\n"
      "  ROOT r = f32[4] reduce(p, f32[] constant(0)), dimensions={0}, to_apply=sum\n}\n\n"
      "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}\n",
      {{"p", 1}}, 4);
  EXPECT_THAT(text, HasSubstr("%p = f32[16,4] parameter(0), sharding={devices=[1,4]<=[4]}\n"));
  EXPECT_THAT(text, HasSubstr("to_apply=sum, sharding={devices=[4]<=[4]}\n"));
  EXPECT_LT(text.find("%sum ("), text.find("ENTRY"));
}

TEST(EmitHlo, LargeConstantsAreKept) {
  std::string numbers;
  for (int i = 0; i < 10000; ++i) numbers += (i == 0 ? "" : ", ") + std::to_string(i);
  const std::string text = "HloModule m\n\nENTRY e {\n  p = s32[10000] parameter(0)\n  c = s32[10000] constant({" +
                           numbers + "})\n  ROOT r = s32[10000] add(p, c)\n}\n";
  EXPECT_THAT(emitted(text, {}), HasSubstr("constant({" + numbers + "})\n"));
}

TEST(EmitHlo, AliasesOfEqualShardingsAreKept) {
  const std::string body =
      "\n\nENTRY e {\n  p = f32[16,4]{1,0} parameter(0)\n  q = f32[16,4]{1,0} parameter(1)\n"
      "  a = f32[16,4]{1,0} tanh(p)\n  b = f32[16,4]{1,0} tanh(q)\n"
      "  ROOT r = (f32[16,4]{1,0}, f32[16,4]{1,0}) tuple(a, b)\n}\n";
  const std::string straight = "HloModule m, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }";
  const std::string crossed = "HloModule m, input_output_alias={ {0}: (1, {}, may-alias), {1}: (0, {}, may-alias) }";
  EXPECT_THAT(emitted(straight + body, {{"p", 0}}), HasSubstr(straight + ", num_partitions=8\n"));
  // A result that must share its input's buffer is split like it, or the buffer is not shared.
  const auto loaded = from_text(crossed + body);
  sharding::Propagation decided(loaded->model.linkage());
  EXPECT_FALSE(decided.split({loaded->model.inputs()[0].node, 0}));
  const auto& results = loaded->model.flow().results();
  const bool same = decided.state(results[0]).kind == decided.state(loaded->model.inputs()[1].node).kind;
  const std::string text = emit_hlo(loaded->model, decided);
  EXPECT_EQ(text.find("input_output_alias") != std::string::npos, same);
}

// Buffers that a step sets to zero: made of constants, but the next step wants them as this one did.
TEST(EmitHlo, FreeResultsAreSplitLikeTheInputTheyReplace) {
  const std::string inputs =
      "\n\nENTRY e {\n  p = f32[16,4]{1,0} parameter(0)\n  q = f32[16,4]{1,0} parameter(1)\n  c = f32[] constant(0)\n"
      "  a = f32[16,4]{1,0} add(p, q)\n";
  const std::string zeros = "f32[16,4]{1,0} broadcast(c), dimensions={}";
  const std::string two = "HloModule m, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, must-alias) }";
  const std::string text = emitted(
      two + inputs + "  z = " + zeros + "\n  ROOT r = (f32[16,4]{1,0}, f32[16,4]{1,0}) tuple(a, z)\n}\n", {{"p", 0}});
  EXPECT_THAT(text, HasSubstr(two));
  EXPECT_THAT(text, HasSubstr("tuple(a, z), sharding={{devices=[8,1]<=[8]}, {devices=[8,1]<=[8]}}"));
  const std::string one = "HloModule m, input_output_alias={ {}: (0, {}, may-alias) }";
  EXPECT_THAT(emitted(one + inputs + "  ROOT z = " + zeros + "\n}\n", {{"p", 0}}),
              HasSubstr(one + ", num_partitions=8\n"));
}

TEST(EmitHlo, AliasesOfOneResultAndOfTuplesInTuples) {
  const std::string one =
      "HloModule m, input_output_alias={ {}: (0, {}, may-alias) }\n\nENTRY e {\n"
      "  p = f32[16,16]{1,0} parameter(0)\n  q = f32[16,16]{1,0} parameter(1)\n"
      "  a = f32[16,16]{1,0} tanh(q)\n  b = f32[16,16]{1,0} tanh(p)\n"
      "  ROOT r = f32[16,16]{1,0} transpose(p), dimensions={1,0}\n}\n";
  const auto loaded = from_text(one);
  sharding::Propagation decided(loaded->model.linkage());
  decided.split({loaded->model.inputs()[0].node, 0});
  const bool same =
      decided.state(loaded->model.flow().results()[0]).dim == decided.state(loaded->model.inputs()[0].node).dim;
  EXPECT_EQ(emit_hlo(loaded->model, decided).find("input_output_alias") != std::string::npos, same);
  const std::string nested =
      "HloModule m, input_output_alias={ {0,1}: (0, {}, may-alias) }\n\nENTRY e {\n"
      "  p = f32[16,4]{1,0} parameter(0)\n  q = f32[16,4]{1,0} parameter(1)\n"
      "  a = f32[16,4]{1,0} tanh(p)\n  b = f32[16,4]{1,0} tanh(q)\n"
      "  t = (f32[16,4]{1,0}, f32[16,4]{1,0}) tuple(b, a)\n"
      "  ROOT r = ((f32[16,4]{1,0}, f32[16,4]{1,0})) tuple(t)\n}\n";
  EXPECT_THAT(emitted(nested, {}), HasSubstr("{0,1}: (0, {}"));
  EXPECT_THAT(emitted(nested, {{"p", 0}}), Not(HasSubstr("input_output_alias")));
}

std::string complaint(const std::string& text) {
  try {
    emitted(text, {});
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData);
    return std::string(e.what()) + " | " + e.hint();
  }
  ADD_FAILURE() << "emitted";
  return "";
}

TEST(EmitHlo, RefusesWhatXlaCouldNotRun) {
  EXPECT_THAT(complaint("HloModule m\n\nENTRY e {\n  p = s32[100] parameter(0)\n  c = s32[100] constant({...})\n"
                        "  ROOT r = s32[100] add(p, c)\n}\n"),
              HasSubstr("leaves out the values of constants (%c = s32[100] constant({...}))"));
  EXPECT_THAT(complaint("HloModule m, num_partitions=8\n\nsum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
                        "  ROOT s = f32[] add(a, b)\n}\n\nENTRY e {\n  p = f32[100] parameter(0)\n"
                        "  ROOT r = f32[100] all-reduce(p), channel_id=1, replica_groups={}, to_apply=sum\n}\n"),
              HasSubstr("partitioned already: %r is a collective"));
  EXPECT_THAT(complaint("HloModule m\n\nENTRY e {\n  p = f32[64] parameter(0)\n"
                        "  ROOT c = f32[8] custom-call(p), custom_call_target=\"SPMDFullToShardShape\", "
                        "sharding={manual}\n}\n"),
              HasSubstr("shard_map"));
}

// Tuples in tuples in tuples, and modules of which nothing can be split.
TEST(EmitHlo, UnusualModules) {
  std::string type = "f32[8]", text = "HloModule m\n\nENTRY e {\n  t0 = f32[8] parameter(0)\n";
  for (int depth = 1; depth <= 32; ++depth) {
    type = "(" + type + ")";
    text += std::string(depth == 32 ? "  ROOT" : " ") + " t" + std::to_string(depth) + " = " + type + " tuple(t" +
            std::to_string(depth - 1) + ")\n";
  }
  EXPECT_THAT(emitted(text + "}\n", {{"t0", 0}}), HasSubstr("tuple(t31), sharding={{devices=[8]<=[8]}}\n"));
  EXPECT_THAT(emitted("HloModule m\n\nENTRY e {\n  ROOT c = f32[] constant(1)\n}\n", {}),
              HasSubstr("constant(1), sharding={replicated}\n"));
  EXPECT_THAT(emitted("HloModule m\n\nENTRY e {\n  p = f32[0,8] parameter(0)\n  ROOT n = f32[0,8] negate(p)\n}\n", {}),
              HasSubstr("parameter(0), sharding={replicated}\n"));
  EXPECT_THAT(emitted("HloModule m\n\nENTRY e {\n  p = f32[8] parameter(0)\n  k = token[] after-all()\n"
                      "  ROOT t = (f32[8], token[]) tuple(p, k)\n}\n",
                      {{"p", 0}}),
              HasSubstr("sharding={{devices=[8]<=[8]}, {replicated}}\n"));
}

// A weight that two loops hand on as it came, and read gathered: it is gathered in front of them, not in each.
TEST(EmitHlo, WhatALoopReadsUnchangedIsGatheredBeforeIt) {
  const auto loaded = from_text(R"(HloModule m

body {
  s = (s32[], f32[16,64], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[16,64] get-tuple-element(s), index=1
  w = f32[64,64] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  d = f32[16,64] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (s32[], f32[16,64], f32[64,64]) tuple(next, d, w)
}

cond {
  s.1 = (s32[], f32[16,64], f32[64,64]) parameter(0)
  i.1 = s32[] get-tuple-element(s.1), index=0
  n = s32[] constant(4)
  ROOT c = pred[] compare(i.1, n), direction=LT
}

ENTRY e {
  x = f32[16,64] parameter(0)
  p = f32[64,64] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[16,64], f32[64,64]) tuple(zero, x, p)
  l = (s32[], f32[16,64], f32[64,64]) while(t), condition=cond, body=body
  ROOT o = f32[16,64] get-tuple-element(l), index=1
}
)");
  sharding::ShardingModel& model = loaded->model;
  const auto input = [&](const char* name) {
    return model.inputs()[static_cast<std::size_t>(model.find_input(name))].node;
  };
  const sharding::NodeId p = input("p");
  std::vector<sharding::Gather> gathers;
  for (const sharding::NodeId user : model.flow().users(p)) gathers.push_back({user, p, 0});
  ASSERT_EQ(gathers.size(), 1U);
  model.relink(8, gathers);
  sharding::Propagation decided(model.linkage());
  ASSERT_FALSE(decided.split({p, 0}));
  ASSERT_FALSE(decided.split({input("x"), 0}));
  const std::string text = emit_hlo(model, decided);
  const auto sharded = text.find("custom-call(%p), custom_call_target=\"Sharding\", sharding={replicated}");
  ASSERT_NE(sharded, std::string::npos) << text;
  EXPECT_GT(sharded, text.find("ENTRY"));
}

// --- JAX ---

struct PlannedByHand {
  PartitionPlan plan;
  sharding::Propagation decided;
};

std::string jax_of(const Loaded& loaded, const PlannedByHand& written) {
  return emit_jax(loaded.model, written.plan, Layout({{&loaded.model, &written.decided}}));
}

PlannedByHand plan_of(Loaded* loaded, const std::map<std::string, int>& splits) {
  PartitionPlan plan;
  plan.kind = "operator";
  plan.model = "tiny \"\"\" \\ model";
  plan.planner = "hand";
  sharding::Propagation decided(loaded->model.linkage());
  for (const auto& [name, dim] : splits) {
    const auto& input = loaded->model.inputs()[static_cast<std::size_t>(loaded->model.find_input(name))];
    EXPECT_FALSE(decided.split({input.node, dim})) << name;
  }
  describe_decision(loaded->model, decided, &plan);
  return {plan, decided};
}

TEST(EmitJax, Tables) {
  const auto loaded = from_text(read_file(kFolder + "tiny_mlp.hlo"));
  const std::string text = jax_of(*loaded, plan_of(loaded.get(), {{"params__dense_1____kernel__.1", 1}}));
  EXPECT_THAT(text, HasSubstr("MESH = {\"devices\": 8}\nSHARDS = 8\n"));
  EXPECT_THAT(text, HasSubstr("ARGUMENTS = (\"params\", \"batch\")\n"));
  EXPECT_THAT(text, HasSubstr("\n    # params\n    \"params/dense_1/bias\": P(\"devices\"),\n"
                              "    \"params/dense_1/kernel\": P(None, \"devices\"),\n"
                              "    \"params/dense_2/bias\": P(),\n"
                              "    \"params/dense_2/kernel\": P(\"devices\"),\n    # batch\n"));
  EXPECT_THAT(text, HasSubstr("    \"params/dense_1/bias\": (64,),\n    \"params/dense_1/kernel\": (32, 64),\n"));
  EXPECT_THAT(text, HasSubstr("    (P(None, \"devices\"), (32, 64)),  # params/dense_1/kernel\n"));
  EXPECT_THAT(text, HasSubstr("    (P(), ()),\n]\n"));
  EXPECT_THAT(text, Not(HasSubstr("gathers")));
  // Columns, then rows: the second product leaves partial sums, which are reduced there.
  EXPECT_THAT(text, HasSubstr("    \"dot_general (16, 32) (32, 64) -> (16, 64)\": "
                              "[((P(), P(None, \"devices\")), P(None, \"devices\"))],\n"));
  EXPECT_THAT(text, HasSubstr("    \"dot_general (16, 64) (64, 10) -> (16, 10)\": "
                              "[((P(None, \"devices\"), P(\"devices\")), P())],\n"));
  PlannedByHand gathering = plan_of(loaded.get(), {{"params__dense_1____kernel__.1", 1}});
  gathering.plan.all_gathers = 3;
  EXPECT_THAT(jax_of(*loaded, gathering), HasSubstr("The plan gathers or exchanges 3 tensors inside the step."));
  // Names cannot break out of their strings.
  EXPECT_THAT(text, HasSubstr("\"\"\"How to shard tiny   model over 8 devices"));
  EXPECT_THAT(text, HasSubstr("MODEL = \"tiny \\\"\\\"\\\" \\\\ model\"\n"));
}

TEST(EmitJax, WantsACompletePlan) {
  const auto loaded = from_text(read_file(kFolder + "tiny_mlp.hlo"));
  PlannedByHand written = plan_of(loaded.get(), {});
  written.plan.results.clear();
  EXPECT_THROW(jax_of(*loaded, written), Error);
}

// Two products of one shape of which one is read by columns and one by rows; the text lists the later one first, as HLO
// does that nothing else waits for it, and their names say which was made first.
TEST(EmitJax, AlikeEquationsStandInTheOrderOfTheProgram) {
  const auto loaded = from_text(
      "HloModule m\n\nENTRY e {\n  x = f32[8,8] parameter(0)\n  a = f32[8,8] parameter(1)\n  b = f32[8,8] "
      "parameter(2)\n"
      "  dot_general.7 = f32[8,8] dot(x, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
      "  dot_general.6 = f32[8,8] dot(x, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
      "  ROOT t = (f32[8,8], f32[8,8]) tuple(dot_general.6, dot_general.7)\n}\n");
  sharding::Propagation decided(loaded->model.linkage());
  const auto& input = loaded->model.inputs()[static_cast<std::size_t>(loaded->model.find_input("b"))];
  ASSERT_FALSE(decided.split({input.node, 1}));
  const std::vector<JaxConstraint> found = jax_constraints(Layout({{&loaded->model, &decided}}));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0],
            (JaxConstraint{"dot_general (8, 8) (8, 8) -> (8, 8)", {AxisDims{-1}, AxisDims{-1}}, AxisDims{-1}}));
  EXPECT_EQ(found[1], (JaxConstraint{"dot_general (8, 8) (8, 8) -> (8, 8)", {AxisDims{-1}, AxisDims{1}}, AxisDims{1}}));
  // Where nothing is split nothing is said.
  const sharding::Propagation nothing(loaded->model.linkage());
  EXPECT_TRUE(jax_constraints(Layout({{&loaded->model, &nothing}})).empty());
}

}  // namespace
}  // namespace automap::emit
