#include "common/graph/shard_map_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/graph/partitioned.h"
#include "common/graph/training_step.h"
#include "common/hlo/hlo_text.h"
#include "common/hlo/hlo_writer.h"

namespace automap::graph {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A step of least squares on one device of four: x [2,16] of [8,16].
const std::string kBody =
    "add { a = f32[] parameter(0)  b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
    "body {\n"
    "  w = f32[16,4] parameter(0)\n"
    "  x = f32[2,16] parameter(1)\n"
    "  y = f32[2,4] parameter(2)\n"
    "  p = f32[2,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "  e = f32[2,4] subtract(p, y)\n"
    "  g = f32[16,4] dot(x, e), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
    "  r = f32[16,4] all-reduce(g), replica_groups={{0,1,2,3}}, to_apply=add\n"
    "  u = f32[16,4] subtract(w, r)\n"
    "  q = f32[2,4] multiply(e, e)\n"
    "  z = f32[] constant(0)\n"
    "  l = f32[] reduce(q, z), dimensions={0,1}, to_apply=add\n"
    "  s = f32[] all-reduce(l), replica_groups={{0,1,2,3}}, to_apply=add\n"
    "  ROOT t = (f32[16,4], f32[], f32[2,4]) tuple(u, s, p)\n"
    "}\n";

// As jax.shard_map is lowered with Shardy: one mark of several results. `outside`: what reads x and its result there.
std::string shardy_step(const std::string& outside = "") {
  return "HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<[\"data\"=2, \"model\"=2]>}}, "
         "entry_computation_layout={(f32[16,4]{1,0}, f32[8,16]{1,0}, f32[8,4]{1,0})->(f32[16,4]{1,0}, f32[], "
         "f32[8,4]{1,0})}\n" +
         kBody +
         "ENTRY main {\n"
         "  w = f32[16,4]{1,0} parameter(0)\n"
         "  x = f32[8,16]{1,0} parameter(1), sharding={devices=[4,1]<=[4]}\n"
         "  y = f32[8,4]{1,0} parameter(2)\n"
         "  in = (f32[16,4]{1,0}, f32[2,16]{1,0}, f32[2,4]{1,0}) custom-call(w, x, y), "
         "custom_call_target=\"xla.sdy.GlobalToLocalShape\"\n"
         "  w1 = f32[16,4] get-tuple-element(in), index=0\n"
         "  x1 = f32[2,16] get-tuple-element(in), index=1\n"
         "  y1 = f32[2,4] get-tuple-element(in), index=2\n"
         "  c = (f32[16,4], f32[], f32[2,4]) call(w1, x1, y1), to_apply=body\n"
         "  c0 = f32[16,4] get-tuple-element(c), index=0\n"
         "  c1 = f32[] get-tuple-element(c), index=1\n"
         "  c2 = f32[2,4] get-tuple-element(c), index=2\n"
         "  out = (f32[16,4]{1,0}, f32[], f32[8,4]{1,0}) custom-call(c0, c1, c2), "
         "custom_call_target=\"xla.sdy.LocalToGlobalShape\"\n"
         "  o0 = f32[16,4] get-tuple-element(out), index=0\n"
         "  o1 = f32[] get-tuple-element(out), index=1\n"
         "  o2 = f32[8,4] get-tuple-element(out), index=2\n" +
         (outside.empty() ? "  ROOT t = (f32[16,4], f32[], f32[8,4]) tuple(o0, o1, o2)\n}\n" : outside + "}\n");
}

// The same with the marks of the older lowering, an array each.
std::string gspmd_step() {
  const auto enter = [](const std::string& name, const std::string& whole, const std::string& part,
                        const std::string& sharding) {
    return "  " + name + "0 = " + whole + " custom-call(" + name +
           "), custom_call_target=\"Sharding\", sharding=" + sharding + "\n  " + name + "1 = " + part +
           " custom-call(" + name + "0), custom_call_target=\"SPMDFullToShardShape\", sharding={manual}\n";
  };
  return "HloModule m\n" + kBody +
         "ENTRY main {\n"
         "  w = f32[16,4] parameter(0)\n"
         "  x = f32[8,16] parameter(1)\n"
         "  y = f32[8,4] parameter(2)\n" +
         enter("w", "f32[16,4]", "f32[16,4]", "{replicated}") +
         enter("x", "f32[8,16]", "f32[2,16]", "{devices=[4,1]<=[4]}") +
         enter("y", "f32[8,4]", "f32[2,4]", "{devices=[4,1]<=[4]}") +
         "  c = (f32[16,4], f32[], f32[2,4]) call(w1, x1, y1), to_apply=body\n"
         "  c0 = f32[16,4] get-tuple-element(c), index=0\n"
         "  c1 = f32[] get-tuple-element(c), index=1\n"
         "  c2 = f32[2,4] get-tuple-element(c), index=2\n"
         "  m2 = f32[2,4] custom-call(c2), custom_call_target=\"Sharding\", sharding={manual}\n"
         "  o2 = f32[8,4] custom-call(m2), custom_call_target=\"SPMDShardToFullShape\", "
         "sharding={devices=[4,1]<=[4]}\n"
         "  ROOT t = (f32[16,4], f32[], f32[8,4]) tuple(c0, c1, o2)\n}\n";
}

TEST(ShardMapStep, AWholeStepBecomesThatOfOneDevice) {
  for (const std::string& text : {shardy_step(), gspmd_step()}) {
    Graph graph = hlo::read_hlo_text(text, "test");
    ASSERT_TRUE(works_on_shards(graph));
    const auto step = take_one_device(&graph);
    ASSERT_TRUE(step) << text;
    EXPECT_EQ(step->devices, 4);
    ASSERT_EQ(step->cut.size(), 2u);
    EXPECT_EQ(graph.shape_of(step->cut[0].parameter).text, "f32[2,16]");
    EXPECT_EQ(graph.shape(step->cut[0].whole).text, "f32[8,16]");
    EXPECT_EQ(graph.shape_of(graph.entry().root).text, "(f32[16,4], f32[], f32[2,4])");
    EXPECT_EQ(graph.shape_of(graph.entry().root).bytes, (16 * 4 + 1 + 2 * 4) * 4);
    EXPECT_FALSE(works_on_shards(graph));
    const TrainingStep found = analyze_training_step(graph);
    EXPECT_TRUE(found.training);
    EXPECT_EQ(found.variables, std::vector<std::int32_t>{0});
    EXPECT_EQ(found.batch, 2);
    // The result is a module like any other, without annotations of the whole.
    const std::string written = hlo::write_hlo_text(graph);
    EXPECT_THAT(written, Not(HasSubstr("custom-call")));
    EXPECT_THAT(written, Not(HasSubstr("sharding=")));
    EXPECT_THAT(written, Not(HasSubstr("entry_computation_layout")));
    const Graph again = hlo::read_hlo_text(written, "written");
    EXPECT_EQ(again.shape_of(again.entry().root).text, "(f32[16,4], f32[], f32[2,4])");
  }
}

TEST(ShardMapStep, AValueThatIsReadOutsideTooIsLeftAsItIs) {
  const std::string text = shardy_step(
      "  n = f32[8,16] negate(x)\n"
      "  ROOT t = (f32[16,4], f32[], f32[8,4], f32[8,16]) tuple(o0, o1, o2, n)\n");
  Graph graph = hlo::read_hlo_text(text, "test");
  const std::string before = hlo::write_hlo_text(graph);
  EXPECT_FALSE(take_one_device(&graph));
  EXPECT_EQ(hlo::write_hlo_text(graph), before);
  // So is a result that is cut, and computed with outside.
  graph = hlo::read_hlo_text(
      shardy_step("  n = f32[8,4] negate(o2)\n  ROOT t = (f32[16,4], f32[], f32[8,4]) tuple(o0, o1, n)\n"), "test");
  EXPECT_FALSE(take_one_device(&graph));
  // Whole values may be computed with.
  graph = hlo::read_hlo_text(
      shardy_step("  n = f32[16,4] negate(o0)\n  ROOT t = (f32[16,4], f32[], f32[8,4]) tuple(n, o1, o2)\n"), "test");
  EXPECT_TRUE(take_one_device(&graph));
  graph = hlo::read_hlo_text("HloModule m\nENTRY e { ROOT p = f32[4] parameter(0) }", "test");
  EXPECT_FALSE(take_one_device(&graph));
}

TEST(ShardMapStep, TheShareOfTheFlopsThatStandInside) {
  EXPECT_DOUBLE_EQ(share_on_shards(hlo::read_hlo_text(shardy_step(), "test")), 1);
  // Inside: two products of 256 each, 8 + 64 + 8 of single elements, 8 - 1 of a sum, 64 + 1 of sums over devices.
  const double inside = 2 * 256 + 8 + 64 + 8 + 7 + 65;
  const std::string text = shardy_step(
      "  n = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
      "  ROOT t = (f32[16,4], f32[], f32[8,4], f32[8,8]) tuple(o0, o1, o2, n)\n");
  const double outside = 2 * 8 * 8 * 16;
  EXPECT_NEAR(share_on_shards(hlo::read_hlo_text(text, "test")), inside / (inside + outside), 1e-9);
  EXPECT_EQ(share_on_shards(hlo::read_hlo_text("HloModule m\nENTRY e { ROOT p = f32[4] parameter(0) }", "test")), 0);
}

// A call tree that doubles at every level is followed once.
TEST(ShardMapStep, CallsInsideCallsEnd) {
  std::string text =
      "HloModule m\nc0 {\n  p = f32[8] parameter(0)\n  q = f32[2] custom-call(p), "
      "custom_call_target=\"SPMDFullToShardShape\", sharding={manual}\n  ROOT r = f32[8] custom-call(q), "
      "custom_call_target=\"SPMDShardToFullShape\", sharding={devices=[4]<=[4]}\n}\n";
  for (int i = 1; i <= 40; ++i) {
    const std::string callee = "c" + std::to_string(i - 1);
    text += "c" + std::to_string(i) + " {\n  p = f32[8] parameter(0)\n  a = f32[8] call(p), to_apply=" + callee +
            "\n  ROOT b = f32[8] call(p), to_apply=" + callee + "\n}\n";
  }
  text += "ENTRY e {\n  p = f32[8] parameter(0)\n  ROOT b = f32[8] call(p), to_apply=c40\n}\n";
  Graph graph = hlo::read_hlo_text(text, "test");
  ASSERT_TRUE(take_one_device(&graph));
  EXPECT_EQ(graph.shape_of(graph.entry().root).text, "f32[2]");
}

}  // namespace
}  // namespace automap::graph
