#include "profile/loop_weight_gradients.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "common/hlo/hlo_text.h"

namespace automap::profile {
namespace {

// A turn hands x on and writes a gradient into its place of a stack; `next` and `stacked` make these, `more` stands
// before them.
std::string loop(const std::string& next, const std::string& stacked, const std::string& more = "") {
  return R"(HloModule m

inner {
  a = f32[4,4] parameter(0)
  b = f32[4,4] parameter(1)
  chain = f32[4,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  weights = f32[4,4] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT both = (f32[4,4], f32[4,4]) tuple(chain, weights)
}

condition {
  p = (s32[], f32[4,4], f32[3,4,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  three = s32[] constant(3)
  ROOT less = pred[] compare(i, three), direction=LT
}

body {
  p = (s32[], f32[4,4], f32[3,4,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4,4] get-tuple-element(p), index=1
  g = f32[3,4,4] get-tuple-element(p), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  n = s32[] add(i, one)
)" + more +
         "  next = f32[4,4] " + next + "\n  stacked = f32[3,4,4] " + stacked + R"(
  ROOT t = (s32[], f32[4,4], f32[3,4,4]) tuple(n, next, stacked)
}

ENTRY main {
  s = (s32[], f32[4,4], f32[3,4,4]) parameter(0)
  ROOT w = (s32[], f32[4,4], f32[3,4,4]) while(s), condition=condition, body=body
}
)";
}

double share(const std::string& text, const std::map<std::string, double>& ms) {
  const graph::Graph graph = hlo::read_hlo_text(text, "test");
  std::vector<double> all(static_cast<std::size_t>(graph.num_instructions()), 0);
  graph::InstructionId found = graph::kNone;
  for (graph::InstructionId id = 0; id < graph.num_instructions(); ++id) {
    const std::string name(graph.instruction(id).name);
    if (const auto known = ms.find(name); known != ms.end()) all[static_cast<std::size_t>(id)] = known->second;
    if (name == "w") found = id;
  }
  return loop_weight_share(graph, found, all);
}

constexpr const char* kDot = "dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}";
constexpr const char* kDw =
    "  dw = f32[4,4] dot(next0, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "  row = f32[1,4,4] reshape(dw)\n";

TEST(LoopWeightGradients, WhatOnlyLeadsToTheStack) {
  const std::string more = "  next0 = f32[4,4] " + std::string(kDot) + "\n" + kDw;
  const std::string text = loop("negate(next0)", "dynamic-update-slice(g, row, i, zero, zero)", more);
  const std::map<std::string, double> ms = {{"next0", 2}, {"next", 1}, {"dw", 3}, {"stacked", 4}};
  EXPECT_DOUBLE_EQ(share(text, ms), 7.0 / 10);
  // Added up over the turns: the same.
  const std::string sum =
      loop("negate(next0)", "add(g, spread)", more + "  spread = f32[3,4,4] broadcast(dw), dimensions={1,2}\n");
  EXPECT_DOUBLE_EQ(share(sum, ms), 7.0 / 10);
}

TEST(LoopWeightGradients, WhatTheNextTurnReadsIsWaitedFor) {
  // The stack is read by what is handed on.
  const std::string more = "  next0 = f32[4,4] " + std::string(kDot) + "\n" + kDw +
                           "  flat = f32[12,4] reshape(g)\n  part = f32[4,4] slice(flat), slice={[0:4], [0:4]}\n";
  const std::string text = loop("add(next0, part)", "dynamic-update-slice(g, row, i, zero, zero)", more);
  EXPECT_DOUBLE_EQ(share(text, {{"next0", 2}, {"next", 1}, {"dw", 3}, {"stacked", 4}}), 0);
}

TEST(LoopWeightGradients, InsideACall) {
  const std::string more =
      "  c = (f32[4,4], f32[4,4]) call(x, x), to_apply=inner\n"
      "  first = f32[4,4] get-tuple-element(c), index=0\n"
      "  second = f32[4,4] get-tuple-element(c), index=1\n"
      "  row = f32[1,4,4] reshape(second)\n";
  const std::string text = loop("negate(first)", "dynamic-update-slice(g, row, i, zero, zero)", more);
  // The call takes what is in it: a third of it for the chain.
  EXPECT_DOUBLE_EQ(share(text, {{"c", 9}, {"chain", 3}, {"weights", 6}, {"next", 1}}), 6.0 / 10);
}

TEST(LoopWeightGradients, NotALoop) {
  const std::string text = loop(kDot, "negate(g)");
  const graph::Graph graph = hlo::read_hlo_text(text, "test");
  EXPECT_DOUBLE_EQ(loop_weight_share(graph, graph.entry().first,
                                     std::vector<double>(static_cast<std::size_t>(graph.num_instructions()), 1)),
                   0);
}

}  // namespace
}  // namespace automap::profile
