#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "common/base/error.h"
#include "common/graph/partitioned.h"
#include "common/hlo/hlo_text.h"
#include "profile/profile_hlo.h"

namespace automap::profile {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A step of least squares that stands inside shard_map, whose weight has `part` on a device; `outside` reads x [8,16].
graph::Graph divided_step(const std::string& part, const std::string& whole, const std::string& outside = "") {
  const bool gathered = part != whole;
  return hlo::read_hlo_text(
      "HloModule m, num_partitions=4\n"
      "add { a = f32[] parameter(0)  b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
      "body {\n"
      "  v = " +
          part +
          " parameter(0)\n"
          "  x = f32[2,16] parameter(1)\n"
          "  y = f32[2,4] parameter(2)\n" +
          (gathered ? "  w = " + whole + " all-gather(v), dimensions={0}, replica_groups={{0,1,2,3}}\n"
                    : "  w = " + whole + " copy(v)\n") +
          "  p = f32[2,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
          "  e = f32[2,4] subtract(p, y)\n"
          "  g = f32[16,4] dot(x, e), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n" +
          (gathered ? "  r = " + part + " reduce-scatter(g), dimensions={0}, replica_groups={{0,1,2,3}}, to_apply=add\n"
                    : "  r = " + part + " all-reduce(g), replica_groups={{0,1,2,3}}, to_apply=add\n") +
          "  u = " + part +
          " subtract(v, r)\n"
          "  q = f32[2,4] multiply(e, e)\n"
          "  z = f32[] constant(0)\n"
          "  l = f32[] reduce(q, z), dimensions={0,1}, to_apply=add\n"
          "  ROOT t = (" +
          part +
          ", f32[]) tuple(u, l)\n}\n"
          "ENTRY main {\n"
          "  w = " +
          whole +
          " parameter(0), metadata={op_name=\"params['w']\"}\n"
          "  x = f32[8,16] parameter(1)\n"
          "  y = f32[8,4] parameter(2)\n"
          "  in = (" +
          part +
          ", f32[2,16], f32[2,4]) custom-call(w, x, y), "
          "custom_call_target=\"xla.sdy.GlobalToLocalShape\"\n"
          "  w1 = " +
          part +
          " get-tuple-element(in), index=0\n"
          "  x1 = f32[2,16] get-tuple-element(in), index=1\n"
          "  y1 = f32[2,4] get-tuple-element(in), index=2\n"
          "  c = (" +
          part +
          ", f32[]) call(w1, x1, y1), to_apply=body\n"
          "  c0 = " +
          part +
          " get-tuple-element(c), index=0\n"
          "  c1 = f32[] get-tuple-element(c), index=1\n"
          "  out = (" +
          whole +
          ", f32[]) custom-call(c0, c1), custom_call_target=\"xla.sdy.LocalToGlobalShape\"\n"
          "  o0 = " +
          whole +
          " get-tuple-element(out), index=0\n"
          "  o1 = f32[] get-tuple-element(out), index=1\n" +
          (outside.empty() ? "  ROOT t = (" + whole + ", f32[]) tuple(o0, o1)\n" : outside) + "}\n",
      "test");
}

std::string refusal(graph::Graph graph, std::optional<bool> as_is = false) {
  try {
    require_whole_model(&graph, "step.hlo", as_is);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData);
    return std::string(e.what()) + "\n" + e.hint();
  }
  return "";
}

TEST(WholeModel, AStepWhoseSamplesAloneAreDividedIsOneDevicesPart) {
  graph::Graph graph = divided_step("f32[16,4]", "f32[16,4]");
  EXPECT_THAT(
      require_whole_model(&graph, "step.hlo", false),
      AllOf(HasSubstr("step.hlo: the whole step is divided by hand over 4 devices (shard_map), its samples alone"),
            HasSubstr("a device has of 'x', f32[2,16] of f32[8,16]")));
  EXPECT_FALSE(graph::works_on_shards(graph));
  EXPECT_EQ(graph.shape_of(graph.entry().parameters[1]).text, "f32[2,16]");
}

TEST(WholeModel, AStepWhoseWeightsAreDividedIsRefused) {
  EXPECT_THAT(refusal(divided_step("f32[4,4]", "f32[16,4]")),
              AllOf(HasSubstr("step.hlo: this step is divided by hand over 4 devices (shard_map)"),
                    HasSubstr("a device has of 'params['w']', f32[4,4] of f32[16,4]"),
                    HasSubstr("export the step without shard_map"), HasSubstr("--as-is")));
  graph::Graph graph = divided_step("f32[4,4]", "f32[16,4]");
  EXPECT_THAT(require_whole_model(&graph, "step.hlo", true), HasSubstr("nothing here holds for the whole model"));
  EXPECT_EQ(graph.shape_of(graph.entry().parameters[0]).text, "f32[4,4]");
}

// Four samples of a sequence of 64, divided as `in_specs` of x says: `part` of f32[4,64,16] on a device. `y` are
// labels.
graph::Graph divided_data(const std::string& part, const std::string& part_of_y) {
  const std::string dims = part.substr(4, part.size() - 8);  // f32[DIMS,16]
  const std::string head =
      "HloModule m, num_partitions=4\n"
      "add { a = f32[] parameter(0)  b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
      "body {\n"
      "  w = f32[16,8] parameter(0)\n"
      "  x = " +
      part +
      " parameter(1)\n"
      "  y = " +
      part_of_y +
      " parameter(2)\n"
      "  p = f32[" +
      dims +
      ",8] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}\n"
      "  e = f32[" +
      dims +
      ",8] subtract(p, y)\n"
      "  g = f32[16,8] dot(x, e), lhs_contracting_dims={0,1}, rhs_contracting_dims={0,1}\n"
      "  r = f32[16,8] all-reduce(g), replica_groups={{0,1,2,3}}, to_apply=add\n"
      "  u = f32[16,8] subtract(w, r)\n"
      "  q = f32[" +
      dims +
      ",8] multiply(e, e)\n"
      "  z = f32[] constant(0)\n"
      "  l = f32[] reduce(q, z), dimensions={0,1,2}, to_apply=add\n"
      "  ROOT t = (f32[16,8], f32[]) tuple(u, l)\n}\n";
  return hlo::read_hlo_text(
      head +
          "ENTRY main {\n"
          "  w = f32[16,8] parameter(0), metadata={op_name=\"params['w']\"}\n"
          "  x = f32[4,64,16] parameter(1)\n"
          "  y = f32[4,64,8] parameter(2)\n"
          "  in = (f32[16,8], " +
          part + ", " + part_of_y +
          ") custom-call(w, x, y), "
          "custom_call_target=\"xla.sdy.GlobalToLocalShape\"\n"
          "  w1 = f32[16,8] get-tuple-element(in), index=0\n"
          "  x1 = " +
          part +
          " get-tuple-element(in), index=1\n"
          "  y1 = " +
          part_of_y +
          " get-tuple-element(in), index=2\n"
          "  c = (f32[16,8], f32[]) call(w1, x1, y1), to_apply=body\n"
          "  c0 = f32[16,8] get-tuple-element(c), index=0\n"
          "  c1 = f32[] get-tuple-element(c), index=1\n"
          "  out = (f32[16,8], f32[]) custom-call(c0, c1), custom_call_target=\"xla.sdy.LocalToGlobalShape\"\n"
          "  o0 = f32[16,8] get-tuple-element(out), index=0\n"
          "  o1 = f32[] get-tuple-element(out), index=1\n"
          "  ROOT t = (f32[16,8], f32[]) tuple(o0, o1)\n}\n",
      "test");
}

TEST(WholeModel, AStepThatIsDividedAlongMoreThanItsSamplesIsRefused) {
  for (const auto& [part, of_y] :
       {std::pair("f32[4,16,16]", "f32[4,16,8]"), std::pair("f32[2,32,16]", "f32[2,32,8]")}) {
    EXPECT_THAT(
        refusal(divided_data(part, of_y)),
        AllOf(HasSubstr("step.hlo: this step is divided by hand over 4 devices (shard_map), along more than its "
                        "samples: a device has of 'x', " +
                        std::string(part) + " of f32[4,64,16]"),
              HasSubstr("export the step without shard_map"), HasSubstr("--as-is")));
    graph::Graph graph = divided_data(part, of_y);
    EXPECT_THAT(require_whole_model(&graph, "step.hlo", true), HasSubstr("nothing here holds for the whole model"));
    EXPECT_EQ(graph.shape_of(graph.entry().parameters[1]).text, part);
  }
  graph::Graph graph = divided_data("f32[1,64,16]", "f32[1,64,8]");
  EXPECT_THAT(require_whole_model(&graph, "step.hlo", false), HasSubstr("its samples alone"));
}

TEST(WholeModel, NobodyIsToldOfAnOptionThatIsNotThere) {
  EXPECT_THAT(refusal(divided_step("f32[4,4]", "f32[16,4]"), std::nullopt),
              AllOf(HasSubstr("export the step without shard_map"), ::testing::Not(HasSubstr("--as-is"))));
}

// What is divided is read outside too: the share of the FLOPs decides.
TEST(WholeModel, APartOfAStepIsNoWholeStep) {
  const std::string root = "  ROOT t = (f32[16,4], f32[], f32[8,16]) tuple(o0, o1, n)\n";
  // Eight negations beside products of 512 FLOPs; then products of 4096.
  EXPECT_THAT(refusal(divided_step("f32[16,4]", "f32[16,4]",
                                   "  h = f32[8,1] slice(x), slice={[0:8], [0:1]}\n  k = f32[8,1] negate(h)\n"
                                   "  n = f32[8,16] pad(k, o1), padding=0_0x0_15\n" +
                                       root)),
              AllOf(HasSubstr("98"), HasSubstr("of this step's FLOPs are divided by hand (shard_map)"),
                    HasSubstr("export the step without shard_map")));
  graph::Graph graph = divided_step("f32[16,4]", "f32[16,4]",
                                    "  d = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
                                    "  n = f32[8,16] dot(d, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n" +
                                        root);
  EXPECT_EQ(require_whole_model(&graph, "step.hlo", false), "");
  EXPECT_TRUE(graph::works_on_shards(graph));
  EXPECT_EQ(graph.shape_of(graph.entry().parameters[1]).text, "f32[8,16]");
}

}  // namespace
}  // namespace automap::profile
