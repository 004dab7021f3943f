#include "common/graph/flow_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "common/hlo/hlo_text.h"

namespace automap::graph {
namespace {

std::string order_of(const std::string& text) {
  const Graph graph = hlo::read_hlo_text(text, "test");
  const TrainingStep step = analyze_training_step(graph);
  std::string out;
  for (const NodeId id : order_forward(step).order)
    out += (out.empty() ? "" : " ") + std::string(graph.instruction(step.flow.node(id).instruction).name);
  return out;
}

TEST(FlowOrder, LayerAfterLayerWhateverTheText) {
  // The second layer's weight is transposed first in the text, the mask of the step's input is made long before its
  // use.
  EXPECT_EQ(order_of(R"(HloModule m
ENTRY e {
  w2 = f32[2,8] parameter(2)
  w2t = f32[8,2] transpose(w2), dimensions={1,0}
  ids = s32[16] parameter(0)
  mask = f32[16] convert(ids)
  masks = f32[16,2] broadcast(mask), dimensions={0}
  w1 = f32[4,8] parameter(1)
  x = f32[16,4] parameter(3)
  h = f32[16,8] dot(x, w1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[16,8] tanh(h)
  o = f32[16,2] dot(t, w2t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[16,2] multiply(masks, o)
})"),
            "h t w2t o mask masks r");
}

// Both towers are 3 deep or more; the deeper one comes first and is finished before the other begins.
TEST(FlowOrder, BranchesStayTogether) {
  EXPECT_EQ(order_of(R"(HloModule m
ENTRY e {
  w = f32[4,4] parameter(0)
  x = f32[16,4] parameter(1)
  y = f32[16,4] parameter(2)
  a1 = f32[16,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b1 = f32[16,4] dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  a2 = f32[16,4] tanh(a1)
  b2 = f32[16,4] tanh(b1)
  a3 = f32[16,4] negate(a2)
  b3 = f32[16,4] negate(b2)
  b4 = f32[16,4] sine(b3)
  ROOT r = f32[16,4] add(a3, b4)
})"),
            "b1 b2 b3 b4 a1 a2 a3 r");
}

// `count` more layers behind `from`, the last one named `to`; their names are added to `names`.
std::string chain(const std::string& from, const std::string& to, int count, std::string* names) {
  std::string text, last = from;
  for (int k = 1; k <= count; ++k) {
    const std::string name = k == count ? to : to + "_" + std::to_string(k);
    text += "  " + name + " = f32[16,4] tanh(" + last + ")\n";
    *names += " " + name;
    last = name;
  }
  return text;
}

// A norm of an early activation that only the loss reads is taken early: a number travels instead of the activation.
TEST(FlowOrder, SideBranchesMoveUp) {
  std::string layers;
  const std::string deep = chain("h2", "h", 30, &layers);
  EXPECT_EQ(order_of(R"(HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY e {
  w = f32[4,4] parameter(0)
  x = f32[16,4] parameter(1)
  z = f32[] constant(0)
  h1 = f32[16,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  h2 = f32[16,4] dot(h1, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
)" + deep + R"(
  n = f32[] reduce(h, z), dimensions={0,1}, to_apply=sum
  wide = f64[16,4] convert(h1)
  square = f64[16,4] multiply(wide, wide)
  narrow = f32[16,4] convert(square)
  aux = f32[] reduce(narrow, z), dimensions={0,1}, to_apply=sum
  loss = f32[] add(n, aux)
  ROOT r = (f32[16,4], f32[]) tuple(h, loss)
})"),
            "h1 wide square narrow aux h2" + layers + " n loss");
}

// Keys for a late reader, made from what stays alive anyway, are made late.
TEST(FlowOrder, EarlyWorkForLateReadersMovesDown) {
  std::string encoder, decoder;
  const std::string first = chain("e1", "e", 40, &encoder);
  const std::string second = chain("d1", "d", 20, &decoder);
  EXPECT_EQ(order_of(R"(HloModule m
ENTRY e {
  w = f32[4,4] parameter(0)
  x = f32[16,4] parameter(1)
  y = f32[16,4] parameter(2)
  e1 = f32[16,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
)" + first + R"(
  k = f32[16,4] dot(e, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  kt = f32[4,16] transpose(k), dimensions={1,0}
  d1 = f32[16,4] dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
)" + second + R"(
  s = f32[16,16] dot(d, kt), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT v = f32[16,4] dot(s, e), lhs_contracting_dims={1}, rhs_contracting_dims={0}
})"),
            "e1" + encoder + " d1" + decoder + " k kt s v");
}

TEST(FlowOrder, ResultsOfAUnitStandBehindIt) {
  EXPECT_EQ(order_of(R"(HloModule m
ENTRY e {
  x = f32[16,4] parameter(0)
  w = f32[4,4] parameter(1)
  h = f32[16,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  u = (f32[16,4], f32[16,4], f32[]) custom-call(h), custom_call_target="split"
  u1 = f32[16,4] get-tuple-element(u), index=1
  t = f32[16,4] tanh(u1)
  u0 = f32[16,4] get-tuple-element(u), index=0
  ROOT r = f32[16,4] add(u0, t)
})"),
            "h u u0 u1 t r");
}

// A penalty on a weight is computed with the layer that uses the weight.
TEST(FlowOrder, PenaltiesStandWithTheirWeight) {
  EXPECT_EQ(order_of(R"(HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY e {
  w1 = f32[4,4] parameter(0)
  w2 = f32[4,4] parameter(1)
  x = f32[16,4] parameter(2)
  z = f32[] constant(0)
  q = f32[4,4] multiply(w1, w1)
  p = f32[] reduce(q, z), dimensions={0,1}, to_apply=sum
  h1 = f32[16,4] dot(x, w1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  h2 = f32[16,4] dot(h1, w2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  l = f32[] reduce(h2, z), dimensions={0,1}, to_apply=sum
  r = f32[] add(l, p)
  ROOT t = (f32[], f32[16,4]) tuple(r, h1)
})"),
            "h1 q p h2 l r");
}

// Bytes alive behind every position, summed: by the plain definition.
double alive_bytes(const FlowGraph& flow, const std::vector<NodeId>& order) {
  std::vector<std::size_t> place(static_cast<std::size_t>(flow.size()), 0);
  for (std::size_t p = 0; p < order.size(); ++p) place[static_cast<std::size_t>(order[p])] = p;
  double total = 0;
  for (std::size_t p = 0; p < order.size(); ++p) {
    std::size_t last = p;
    for (const NodeId user : flow.users(order[p])) last = std::max(last, place[static_cast<std::size_t>(user)]);
    total += static_cast<double>(flow.shape(order[p]).bytes) * static_cast<double>(last - p);
  }
  return total;
}

// Random graphs: always a complete topological order, and better than the orders chance makes.
TEST(FlowOrder, RandomGraphs) {
  std::mt19937 random(11);
  double ours = 0, chance = 0;
  for (int round = 0; round < 60; ++round) {
    const int n = 5 + static_cast<int>(random() % 60);
    std::string text =
        "HloModule m\nENTRY e {\n  w = f32[8,8] parameter(0)\n  x = f32[8,8] parameter(1)\n  i = s32[8] parameter(2)\n"
        "  n0 = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n";
    for (int k = 1; k < n; ++k) {
      const auto pick = [&] { return "n" + std::to_string(std::max(0, k - 1 - static_cast<int>(random() % 9))); };
      text += "  n" + std::to_string(k) + " = f32[8,8] add(" + pick() + ", " + pick() + ")\n";
    }
    text +=
        "  ROOT r = (f32[8,8], f32[8,8]) tuple(n" + std::to_string(n - 1) + ", n" + std::to_string(n / 2) + ")\n}\n";
    const Graph graph = hlo::read_hlo_text(text, "test");
    const TrainingStep step = analyze_training_step(graph);
    const FlowOrder flow_order = order_forward(step);
    std::vector<bool> seen(static_cast<std::size_t>(step.flow.size()), false);
    std::size_t forward = 0;
    for (const Part part : step.part) forward += part == Part::kForward ? 1 : 0;
    ASSERT_EQ(flow_order.order.size(), forward);
    for (const NodeId id : flow_order.order) {
      for (const NodeId operand : step.flow.operands(id)) {
        if (step.part[static_cast<std::size_t>(operand)] == Part::kForward) {
          ASSERT_TRUE(seen[static_cast<std::size_t>(operand)]) << text;
        }
      }
      ASSERT_FALSE(seen[static_cast<std::size_t>(id)]);
      seen[static_cast<std::size_t>(id)] = true;
    }
    ours += alive_bytes(step.flow, flow_order.order);
    for (int k = 0; k < 5; ++k) {
      std::vector<NodeId> order, ready;
      std::vector<bool> placed(seen.size(), false);
      std::vector<NodeId> left = flow_order.order;
      std::shuffle(left.begin(), left.end(), random);
      while (!left.empty()) {
        for (std::size_t at = 0; at < left.size(); ++at) {
          bool fits = true;
          for (const NodeId operand : step.flow.operands(left[at])) {
            const auto o = static_cast<std::size_t>(operand);
            fits = fits && (placed[o] || step.part[o] != Part::kForward);
          }
          if (!fits) continue;
          placed[static_cast<std::size_t>(left[at])] = true;
          order.push_back(left[at]);
          left.erase(left.begin() + static_cast<std::ptrdiff_t>(at));
          break;
        }
      }
      chance += alive_bytes(step.flow, order) / 5;
    }
  }
  EXPECT_LT(ours, chance);
}

}  // namespace
}  // namespace automap::graph
