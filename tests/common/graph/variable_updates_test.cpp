#include "common/graph/variable_updates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/hlo/hlo_text.h"
#include "tests/common/graph/training_modules.h"

namespace automap::graph {
namespace {

using testing::ElementsAre;

struct Found {
  Graph graph;
  TrainingStep step;
  VariableUpdates updates;

  explicit Found(const std::string& text) : graph(hlo::read_hlo_text(text, "test")) {
    step = analyze_training_step(graph);
    updates = find_variable_updates(step);
  }
  // "m1" -> the variable's HLO name, "" for none.
  std::string of_slot(const std::string& slot) const {
    for (std::size_t k = 0; k < step.inputs.size(); ++k) {
      if (step.inputs[k].parameter_name == slot) return name(updates.slot_of[k]);
    }
    return "no such input";
  }
  std::string name(std::int32_t v) const {
    return v == kNone
               ? ""
               : step.inputs[static_cast<std::size_t>(step.variables[static_cast<std::size_t>(v)])].parameter_name;
  }
  std::string worker(const std::string& instruction) const {
    for (NodeId id = 0; id < step.flow.size(); ++id) {
      if (graph.instruction(step.flow.node(id).instruction).name == instruction)
        return name(updates.worker_of[static_cast<std::size_t>(id)]);
    }
    return "no such instruction";
  }
};

// Momentum, scaled by the norm of all gradients.
const char* const kMomentum = R"(
  n1 = f32[4,8] multiply(gw1, gw1)
  s1 = f32[] reduce(n1, zero), dimensions={0,1}, to_apply=sum
  n2 = f32[8,2] multiply(gw2, gw2)
  s2 = f32[] reduce(n2, zero), dimensions={0,1}, to_apply=sum
  norm = f32[] add(s1, s2)
  c1 = f32[4,8] broadcast(norm), dimensions={}
  d1 = f32[4,8] divide(gw1, c1)
  c2 = f32[8,2] broadcast(norm), dimensions={}
  d2 = f32[8,2] divide(gw2, c2)
  nm1 = f32[4,8] add(m1, d1)
  nm2 = f32[8,2] add(m2, d2)
  nw1 = f32[4,8] subtract(w1, nm1)
  nw2 = f32[8,2] subtract(w2, nm2)
  nb1 = f32[8] subtract(b1, gb1)
  nb2 = f32[2] subtract(b2, gb2)
  ROOT r = (f32[4,8], f32[8], f32[8,2], f32[2], f32[], f32[8,2], f32[4,8]) tuple(nw1, nb1, nw2, nb2, loss, nm2, nm1))";

TEST(VariableUpdates, SlotsAndWorkByDataFlow) {
  const Found f(two_layers("  m2 = f32[8,2] parameter(6)\n  m1 = f32[4,8] parameter(7)", kMomentum));
  EXPECT_EQ(f.of_slot("m1"), "w1");
  EXPECT_EQ(f.of_slot("m2"), "w2");
  EXPECT_EQ(f.of_slot("w1"), "");
  EXPECT_EQ(f.worker("nm1"), "w1");
  EXPECT_EQ(f.worker("d2"), "w2");
  EXPECT_EQ(f.worker("nb2"), "b2");
  // Both need the norm; its parts work on one gradient each.
  EXPECT_EQ(f.worker("n1"), "w1");
  EXPECT_EQ(f.worker("s2"), "w2");
  EXPECT_EQ(f.worker("norm"), "");
  // Forward and backward pass work for no one's update.
  EXPECT_EQ(f.worker("h0"), "");
  EXPECT_EQ(f.worker("gw1"), "");
}

// One layer in bf16 whose weight is f32: the gradient is made in `made` and widened.
std::string mixed(const std::string& made) {
  std::string text = R"(HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY e {
  w = f32[64,32] parameter(0)
  x = f32[16,64] parameter(1)
  zero = f32[] constant(0)
  wh = bf16[64,32] convert(w)
  xh = bf16[16,64] convert(x)
  o = bf16[16,32] dot(xh, wh), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  of = f32[16,32] convert(o)
  e = f32[16,32] sine(of)
  loss = f32[] reduce(e, zero), dimensions={0,1}, to_apply=sum
  df = f32[16,32] cosine(of)
  d = bf16[16,32] convert(df)
  gt = TYPE[32,64] dot(d, xh), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  gh = TYPE[64,32] transpose(gt), dimensions={1,0}
  MORE
  nw = f32[64,32] subtract(w, g)
  ROOT r = (f32[64,32], f32[]) tuple(nw, loss)
})";
  const auto put = [&](const std::string& what, const std::string& with) {
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
      text.replace(at, what.size(), with);
  };
  put("MORE", made == "bf16"  ? "g = f32[64,32] convert(gh)"
              : made == "f32" ? "g = f32[64,32] copy(gh)"
                              : "gl = bf16[64,32] convert(gh)  g = f32[64,32] convert(gl)");
  put("TYPE", made == "bf16" ? "bf16" : "f32");
  return text;
}

TEST(VariableUpdates, GradientsAreReducedInTheirNarrowestType) {
  EXPECT_THAT(Found(mixed("bf16")).updates.gradient_bytes, ElementsAre(64 * 32 * 2));
  EXPECT_THAT(Found(mixed("f32")).updates.gradient_bytes, ElementsAre(64 * 32 * 4));
  // Made in f32, rounded, and widened again: nothing is lost by reducing what was rounded.
  EXPECT_THAT(Found(mixed("f32 to bf16")).updates.gradient_bytes, ElementsAre(64 * 32 * 2));
}

TEST(VariableUpdates, ASlotThatSeveralVariablesUpdateIsNobodys) {
  // One long moment of both weights.
  const Found f(two_layers("  m = f32[48] parameter(6)", R"(
  f1 = f32[32] reshape(gw1)
  f2 = f32[16] reshape(gw2)
  g = f32[48] concatenate(f1, f2), dimensions={0}
  nm = f32[48] add(m, g)
  l1 = f32[32] slice(nm), slice={[0:32]}
  l2 = f32[16] slice(nm), slice={[32:48]}
  k1 = f32[4,8] reshape(l1)
  k2 = f32[8,2] reshape(l2)
  nw1 = f32[4,8] subtract(w1, k1)
  nw2 = f32[8,2] subtract(w2, k2)
  nb1 = f32[8] subtract(b1, gb1)
  nb2 = f32[2] subtract(b2, gb2)
  ROOT r = (f32[4,8], f32[8], f32[8,2], f32[2], f32[], f32[48]) tuple(nw1, nb1, nw2, nb2, loss, nm))"));
  EXPECT_EQ(f.of_slot("m"), "");
  EXPECT_EQ(f.worker("nm"), "");
}

}  // namespace
}  // namespace automap::graph
