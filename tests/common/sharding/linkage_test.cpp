#include "common/sharding/linkage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_text.h"

namespace automap::sharding {
namespace {

using graph::FlowGraph;
using graph::Graph;
using graph::InstructionId;

graph::FlowOptions with_everything() {
  graph::FlowOptions options;
  options.loops = options.fusions = true;
  return options;
}

struct LinkageModule {
  explicit LinkageModule(const std::string& text, const LinkageOptions& options = {})
      : graph(hlo::read_hlo_text(text, "test")),
        flow(FlowGraph::build(graph, with_everything())),
        linkage(Linkage::build(flow, options)) {}

  // By name; the last of several (a loop's body, a projection's unit).
  NodeId operator[](const std::string& name) const {
    for (NodeId node = flow.size(); node-- > 0;) {
      if (graph.instruction(flow.node(node).instruction).name == name) return node;
    }
    ADD_FAILURE() << "no node " << name;
    return 0;
  }
  GroupId group(const std::string& name, std::int32_t dim) const { return linkage.group_of((*this)[name], dim); }
  std::vector<Obstacle> obstacles(const std::string& name, std::int32_t dim) const {
    const Span<const Obstacle> all = linkage.obstacles(group(name, dim));
    return {all.begin(), all.end()};
  }

  Graph graph;
  FlowGraph flow;
  Linkage linkage;
};

constexpr const char* kSum = "sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }\n";

TEST(Linkage, GroupsOfTwoLayers) {
  const LinkageModule m(R"(HloModule m
ENTRY e {
  x = f32[16,8] parameter(0)
  w = f32[8,32] parameter(1)
  v = f32[32,24] parameter(2)
  h = f32[16,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  r = f32[16,32] tanh(h)
  ROOT y = f32[16,24] dot(r, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
})");
  const Linkage& linkage = m.linkage;
  ASSERT_EQ(linkage.num_groups(), 4);
  const GroupId batch = m.group("x", 0), in = m.group("x", 1), hidden = m.group("w", 1), out = m.group("v", 1);
  EXPECT_EQ(std::vector<GroupId>({batch, in, hidden, out}), std::vector<GroupId>({0, 1, 2, 3}));
  EXPECT_EQ(m.group("y", 0), batch);
  EXPECT_EQ(m.group("w", 0), in);
  EXPECT_EQ(m.group("r", 1), hidden);
  EXPECT_EQ(m.group("v", 0), hidden);
  EXPECT_EQ(m.group("y", 1), out);

  std::vector<TensorDim> members(linkage.members(hidden).begin(), linkage.members(hidden).end());
  EXPECT_EQ(members, (std::vector<TensorDim>{{m["w"], 1}, {m["v"], 0}, {m["h"], 1}, {m["r"], 1}}));
  std::vector<TensorDim> inputs(linkage.inputs(hidden).begin(), linkage.inputs(hidden).end());
  EXPECT_EQ(inputs, (std::vector<TensorDim>{{m["w"], 1}, {m["v"], 0}}));
  const auto neighbours = [&](GroupId group) {
    const Span<const GroupId> all = linkage.neighbours(group);
    return std::vector<GroupId>(all.begin(), all.end());
  };
  EXPECT_EQ(neighbours(batch), (std::vector<GroupId>{in, hidden, out}));
  EXPECT_EQ(neighbours(in), (std::vector<GroupId>{batch, hidden}));
  EXPECT_EQ(neighbours(hidden), (std::vector<GroupId>{batch, in, out}));
  EXPECT_EQ(neighbours(out), (std::vector<GroupId>{batch, hidden}));
  for (GroupId group = 0; group < linkage.num_groups(); ++group) {
    EXPECT_TRUE(linkage.possible(group));
    EXPECT_TRUE(linkage.decidable(group));
  }

  // Factors of the second dot: rows, columns, and the sum over hidden.
  const Span<const OpFactor> factors = linkage.factors(m["y"]);
  ASSERT_EQ(factors.size(), 3u);
  const auto sum = std::find_if(factors.begin(), factors.end(), [&](const OpFactor& f) { return f.group == hidden; });
  ASSERT_NE(sum, factors.end());
  EXPECT_EQ(sum->op, m["y"]);
  EXPECT_EQ(sum->reduction, Reduction::kAdd);
  ASSERT_EQ(sum->partial.size(), 1u);
  EXPECT_EQ(sum->partial[0], m["y"]);
  ASSERT_EQ(sum->members.size(), 2u);
  EXPECT_EQ(sum->members[0], (TensorDim{m["r"], 1}));
  EXPECT_EQ(sum->members[1], (TensorDim{m["v"], 0}));
  std::vector<NodeId> ops;
  for (const std::int32_t i : linkage.factors_of_group(hidden)) ops.push_back(linkage.factor(i).op);
  EXPECT_EQ(ops, (std::vector<NodeId>{m["h"], m["r"], m["y"]}));

  // Where they meet: hidden and batch in a tensor, in and hidden in a tensor (w), out and hidden at v.
  Obstacle at = linkage.meeting(hidden, batch);
  EXPECT_EQ(at.kind, Obstacle::Kind::kTwoDims);
  EXPECT_EQ(at.a, (TensorDim{m["h"], 1}));
  EXPECT_EQ(at.b, (TensorDim{m["h"], 0}));
  at = linkage.meeting(in, hidden);
  EXPECT_EQ(at.a, (TensorDim{m["w"], 0}));
  EXPECT_EQ(at.b, (TensorDim{m["w"], 1}));
  EXPECT_EQ(linkage.meeting(in, out).a.node, kNone);
}

TEST(Linkage, MeetingInAnInstructionOnly) {
  // No tensor holds both, but the operator has a factor of each.
  const RuleFunction rules = [](const Graph& graph, InstructionId id) {
    OpRule rule;
    if (graph.instruction(id).name == "op") {
      rule.factors = {{{{0, 0}}, 16, Reduction::kAdd, {2}}, {{{1, 0}}, 8, Reduction::kAdd, {2}}};
    }
    return rule;
  };
  const Graph graph = hlo::read_hlo_text(
      "HloModule m\nENTRY e { x = f32[16] parameter(0)  y = f32[8] parameter(1)  ROOT op = f32[] mystery(x, y) }",
      "test");
  const FlowGraph flow = FlowGraph::build(graph);
  const Linkage linkage = Linkage::build(flow, {}, rules);
  ASSERT_EQ(linkage.num_groups(), 2);
  ASSERT_EQ(linkage.neighbours(0).size(), 1u);
  const Obstacle at = linkage.meeting(1, 0);
  EXPECT_EQ(at.kind, Obstacle::Kind::kTwoFactors);
  EXPECT_EQ(at.op, 2);
  EXPECT_EQ(at.a, (TensorDim{1, 0}));
  EXPECT_EQ(at.b, (TensorDim{0, 0}));
  // A scalar takes no part but holds the partial sum.
  EXPECT_TRUE(linkage.is_free(2));
  ASSERT_EQ(linkage.factors(2)[0].partial.size(), 1u);
  EXPECT_EQ(linkage.factors(2)[0].partial[0], 2);
}

TEST(Linkage, ObstaclesSayWhere) {
  const LinkageModule m("HloModule m\n" + std::string(kSum) + R"(
ENTRY e {
  seven = f32[7,8] parameter(0)
  x = f32[16,16] parameter(1)
  t = f32[16,16] transpose(x), dimensions={1,0}
  s = f32[16,16] add(x, t)
  q = f32[16,8] parameter(2)
  g = f32[16,16] dot(q, q), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  z = f32[64,8] parameter(3)
  sorted = f32[64,8] custom-call(z), custom_call_target="whatever"
  big = f32[48] parameter(4)
  parts = f32[12,4] reshape(big)
  ROOT t0 = (f32[7,8], f32[16,16], f32[16,16], f32[64,8], f32[12,4]) tuple(seven, s, g, sorted, parts)
})");
  std::vector<Obstacle> found = m.obstacles("seven", 0);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, Obstacle::Kind::kIndivisible);
  EXPECT_EQ(found[0].a, (TensorDim{m["seven"], 0}));
  EXPECT_EQ(found[0].extent, 7);
  EXPECT_EQ(found[0].op, kNone);
  EXPECT_TRUE(m.linkage.possible(m.group("seven", 1)));

  // x + transpose(x): both dimensions of x are tied.
  EXPECT_EQ(m.group("x", 0), m.group("x", 1));
  found = m.obstacles("x", 0);
  ASSERT_GE(found.size(), 2u);
  EXPECT_EQ(found[0].kind, Obstacle::Kind::kTwoDims);
  EXPECT_EQ(found[0].a, (TensorDim{m["x"], 0}));
  EXPECT_EQ(found[0].b, (TensorDim{m["x"], 1}));
  EXPECT_TRUE(std::any_of(found.begin(), found.end(),
                          [&](const Obstacle& o) { return o.kind == Obstacle::Kind::kTwoFactors && o.op == m["s"]; }));

  // The same tensor on both sides: its rows are the result's rows and columns; the sum over its columns is fine.
  found = m.obstacles("q", 0);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].kind, Obstacle::Kind::kTwoDims);
  EXPECT_EQ(found[0].a.node, m["g"]);
  EXPECT_EQ(found[1].kind, Obstacle::Kind::kTwoFactors);
  EXPECT_EQ(found[1].op, m["g"]);
  EXPECT_TRUE(m.linkage.possible(m.group("q", 1)));

  found = m.obstacles("z", 0);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, Obstacle::Kind::kBlocked);
  EXPECT_EQ(found[0].block, Block::kOpaque);
  EXPECT_EQ(found[0].op, m["sorted"]);
  EXPECT_EQ(found[0].a, (TensorDim{m["z"], 0}));
  EXPECT_EQ(m.linkage.blocked(m["sorted"]).size(), 4u);

  // 48 -> 12 x 4: the factor is the 12, which 8 does not divide; said once, at the tensor of that extent.
  found = m.obstacles("big", 0);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, Obstacle::Kind::kIndivisible);
  EXPECT_EQ(found[0].a, (TensorDim{m["parts"], 0}));
  EXPECT_EQ(found[0].extent, 12);
}

TEST(Linkage, AFactorsOwnExtentMustBeDivided) {
  // The extent that stays together may be less than any of the members' own extents.
  const LinkageModule m(R"(HloModule m
ENTRY e {
  x = f32[48] parameter(0)
  ROOT y = f32[16,3] reshape(x)
})");
  EXPECT_TRUE(m.linkage.possible(m.group("x", 0)));
  const RuleFunction rules = [](const Graph&, InstructionId) {
    OpRule rule;
    rule.factors = {{{{0, 0}, {1, 0}}, 4, Reduction::kNone, {}}};
    return rule;
  };
  const Linkage linkage = Linkage::build(m.flow, {}, rules);
  const Span<const Obstacle> found = linkage.obstacles(linkage.group_of(0, 0));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, Obstacle::Kind::kIndivisible);
  EXPECT_EQ(found[0].op, 1);
  EXPECT_EQ(found[0].extent, 4);
  LinkageOptions four;
  four.shards = 4;
  const Linkage linkage4 = Linkage::build(m.flow, four, rules);
  EXPECT_TRUE(linkage4.possible(linkage4.group_of(0, 0)));
}

TEST(Linkage, AnAllReduceOfSeveralTensorsSplitsEachAsItLikes) {
  const LinkageModule m("HloModule m\n" + std::string(kSum) + R"(
ENTRY e {
  x = f32[16,8] parameter(0)
  y = f32[8,16] parameter(1)
  r = (f32[16,8], f32[8,16], f32[16,8]) all-reduce(x, y, x), replica_groups={}, to_apply=sum
  a = f32[16,8] get-tuple-element(r), index=0
  b = f32[8,16] get-tuple-element(r), index=1
  c = f32[16,8] get-tuple-element(r), index=2
  t = f32[16,8] transpose(b), dimensions={1,0}
  ROOT s = f32[16,8] add(a, t)
})");
  EXPECT_EQ(m.group("x", 0), m.group("y", 1));
  EXPECT_EQ(m.group("x", 0), m.group("c", 0));
  EXPECT_EQ(m.linkage.num_groups(), 2);
  EXPECT_TRUE(m.linkage.possible(0));
  EXPECT_TRUE(m.linkage.possible(1));
  // The reduction of thousands of tensors is not thousands times thousands of pairs.
  constexpr int kMany = 20000;
  std::string parameters, operands, shapes;
  for (int i = 0; i < kMany; ++i) {
    parameters += "  p" + std::to_string(i) + " = f32[16,8] parameter(" + std::to_string(i) + ")\n";
    operands += (i == 0 ? "p" : ", p") + std::to_string(i);
    shapes += i == 0 ? "f32[16,8]" : ", f32[16,8]";
  }
  const LinkageModule many("HloModule m\n" + std::string(kSum) + "ENTRY e {\n" + parameters + "  ROOT r = (" + shapes +
                           ") all-reduce(" + operands + "), replica_groups={}, to_apply=sum\n}");
  EXPECT_EQ(many.linkage.num_groups(), 2 * kMany);
  EXPECT_EQ(many.linkage.neighbours(0).size(), 1u);
}

TEST(Linkage, FreeTensorsTieNothing) {
  const LinkageModule m("HloModule m\n" + std::string(kSum) + R"(
ENTRY e {
  x = f32[16,8] parameter(0)
  y = f32[16,8] parameter(1)
  zero = f32[] constant(0)
  zeros = f32[16,8] broadcast(zero), dimensions={}
  i = f32[16,8] iota(), iota_dimension=0
  masked = f32[16,8] multiply(zeros, i)
  a = f32[16,8] add(x, masked)
  b = f32[16,8] add(y, masked)
  loss = f32[] reduce(a, zero), dimensions={0,1}, to_apply=sum
  spread = f32[16,8] broadcast(loss), dimensions={}
  c = f32[16,8] multiply(b, spread)
  state = u64[2] parameter(2)
  rng = (u64[2], u32[16,8]) rng-bit-generator(state), algorithm=rng_default
  seed = u32[16,8] get-tuple-element(rng), index=1
  noise = f32[16,8] rng(zero, zero), distribution=rng_uniform
  call = f32[16,8] custom-call(zero), custom_call_target="whatever"
  pin = f32[16,8] custom-call(i), custom_call_target="Sharding", sharding={replicated}
  ROOT t = (f32[16,8], f32[16,8], u32[16,8], f32[16,8], f32[16,8], f32[16,8]) tuple(a, c, seed, noise, call, pin)
})");
  const std::map<std::string, bool> expected = {{"x", false},     {"zero", true},   {"zeros", true}, {"i", true},
                                                {"masked", true}, {"a", false},     {"loss", true},  {"spread", true},
                                                {"seed", false},  {"noise", false}, {"call", false}, {"pin", true},
                                                {"c", false}};
  for (const auto& [name, is_free] : expected) {
    EXPECT_EQ(m.linkage.is_free(m[name]), is_free) << name;
    EXPECT_EQ(m.linkage.is_tensor(m[name]), !is_free) << name;
  }
  // The shared mask and the broadcast loss do not link x and y.
  EXPECT_NE(m.group("x", 0), m.group("y", 0));
  EXPECT_EQ(m.group("y", 0), m.group("c", 0));
  EXPECT_EQ(m.group("i", 0), kNone);
  EXPECT_EQ(m.linkage.factors(m["a"])[0].members.size(), 2u);
}

TEST(Linkage, DimensionsOfExtentOneOrZeroAreInNoGroup) {
  const LinkageModule m("HloModule m\nENTRY e { x = f32[1,8,0] parameter(0)  ROOT n = f32[1,8,0] negate(x) }");
  EXPECT_EQ(m.group("x", 0), kNone);
  EXPECT_NE(m.group("x", 1), kNone);
  EXPECT_EQ(m.group("x", 2), kNone);
  EXPECT_EQ(m.linkage.group_of(0, 3), kNone);
  EXPECT_EQ(m.linkage.group_of(-1, 0), kNone);
  EXPECT_EQ(m.linkage.group_of(99, 0), kNone);
  EXPECT_EQ(m.linkage.group_of(0, -1), kNone);
}

TEST(Linkage, LoopsTieWhatATurnBeginsAndEndsWith) {
  const LinkageModule m(R"(HloModule m
cond { s = (s32[], f32[16,8], f32[16,8], f32[8,8]) parameter(0)  i = s32[] get-tuple-element(s), index=0  n = s32[] constant(4)  ROOT c = pred[] compare(i, n), direction=LT }
body {
  s = (s32[], f32[16,8], f32[16,8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  h = f32[16,8] get-tuple-element(s), index=1
  total = f32[16,8] get-tuple-element(s), index=2
  w = f32[8,8] get-tuple-element(s), index=3
  turned = f32[16,8] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  more = f32[16,8] add(total, turned)
  ROOT t = (s32[], f32[16,8], f32[16,8], f32[8,8]) tuple(next, turned, more, w)
}
ENTRY e {
  x = f32[16,8] parameter(0)
  w0 = f32[8,8] parameter(1)
  start = s32[] constant(0)
  zero = f32[] constant(0)
  zeros = f32[16,8] broadcast(zero), dimensions={}
  state = (s32[], f32[16,8], f32[16,8], f32[8,8]) tuple(start, x, zeros, w0)
  loop = (s32[], f32[16,8], f32[16,8], f32[8,8]) while(state), condition=cond, body=body
  out = f32[16,8] get-tuple-element(loop), index=2
  ROOT r = f32[16,8] negate(out)
})");
  // Rows stay rows from turn to turn; the columns of one turn are the sum of the next, w is tied to itself.
  EXPECT_TRUE(m.linkage.is_free(m["zeros"]));
  EXPECT_EQ(m.group("x", 0), m.group("r", 0));
  EXPECT_TRUE(m.linkage.possible(m.group("x", 0)));
  EXPECT_EQ(m.group("w0", 0), m.group("w0", 1));
  EXPECT_FALSE(m.linkage.possible(m.group("w0", 0)));
  // The sum's parameter is a tensor although it begins as zeros.
  ASSERT_EQ(m.flow.loops().size(), 1u);
  std::size_t tensors = 0;
  for (const NodeId node : m.flow.loops()[0].parameter) tensors += m.linkage.is_tensor(node) ? 1 : 0;
  EXPECT_EQ(tensors, 2u);
  EXPECT_EQ(m.linkage.ties().size(), 3u);
  // Loop parameters decide nothing.
  EXPECT_EQ(m.linkage.inputs(m.group("x", 0)).size(), 1u);
}

TEST(Linkage, BranchesBarriersAndCalls) {
  const LinkageModule m(R"(HloModule m
called { a = f32[16,8] parameter(0)  b = f32[8,8] parameter(1)  ROOT d = f32[16,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
yes { y = f32[16,8] parameter(0)  ROOT n = f32[16,8] negate(y) }
no { z = f32[16,8] parameter(0)  ROOT m = f32[16,8] tanh(z) }
ENTRY e {
  x = f32[16,8] parameter(0)
  v = f32[16,8] parameter(1)
  w = f32[8,8] parameter(2)
  u = f32[8,8] parameter(3)
  flag = pred[] parameter(4)
  joined = f32[16,8] conditional(flag, x, v), true_computation=yes, false_computation=no
  held = f32[16,8] opt-barrier(joined)
  first = f32[16,8] call(held, w), to_apply=called
  second = f32[16,8] call(first, u), to_apply=called
  fused = f32[16,8] fusion(second), kind=kLoop, calls=yes
  ROOT r = f32[16,8] negate(fused)
})");
  EXPECT_EQ(m.group("x", 0), m.group("v", 0));
  EXPECT_EQ(m.group("x", 0), m.group("r", 0));
  EXPECT_TRUE(m.linkage.possible(m.group("r", 0)));
  EXPECT_EQ(m.group("w", 1), m.group("u", 0));
  EXPECT_NE(m.group("w", 0), m.group("w", 1));
  EXPECT_EQ(m.group("u", 1), m.group("r", 1));
}

TEST(Linkage, WhatWasNotExpandedIsOpaque) {
  const Graph graph = hlo::read_hlo_text(R"(HloModule m
cond { s = (f32[16,8], f32[8]) parameter(0)  ROOT c = pred[] constant(true) }
body { s = (f32[16,8], f32[8]) parameter(0)  a = f32[16,8] get-tuple-element(s), index=0  n = f32[16,8] negate(a)  b = f32[8] get-tuple-element(s), index=1  k = f32[8] negate(b)  ROOT t = (f32[16,8], f32[8]) tuple(n, k) }
ENTRY e {
  x = f32[16,8] parameter(0)
  y = f32[8] parameter(1)
  state = (f32[16,8], f32[8]) tuple(x, y)
  loop = (f32[16,8], f32[8]) while(state), condition=cond, body=body
  out = f32[16,8] get-tuple-element(loop), index=0
  ROOT r = f32[16,8] negate(out)
})",
                                         "test");
  const FlowGraph flow = FlowGraph::build(graph);
  const Linkage linkage = Linkage::build(flow, {});
  for (GroupId group = 0; group < linkage.num_groups(); ++group) {
    ASSERT_FALSE(linkage.obstacles(group).empty());
    EXPECT_EQ(linkage.obstacles(group)[0].kind, Obstacle::Kind::kBlocked);
    EXPECT_EQ(flow.node(linkage.obstacles(group)[0].op).opcode, graph::Opcode::kWhile);
  }
  EXPECT_EQ(linkage.num_groups(), 6);
}

TEST(Linkage, TiesOfTheCaller) {
  const char* text = R"(HloModule m
ENTRY e {
  x = f32[16,8] parameter(0)
  y = f32[16,8] parameter(1)
  z = f32[16,4] parameter(2)
  zero = f32[] constant(0)
  zeros = f32[16,8] broadcast(zero), dimensions={}
  ROOT t = (f32[16,8], f32[16,8]) tuple(x, y)
})";
  LinkageOptions options;
  options.ties = {{0, 1}, {0, 2}, {1, 4}, {0, 0}};
  const LinkageModule m(text, options);
  EXPECT_EQ(m.group("x", 0), m.group("y", 0));
  EXPECT_EQ(m.group("x", 1), m.group("y", 1));
  EXPECT_NE(m.group("x", 0), m.group("z", 0));  // other dimensions: no tie
  EXPECT_EQ(m.linkage.ties(), (std::vector<Tie>{{0, 1}}));
}

TEST(Linkage, BadOptionsAreRefused) {
  const Graph graph = hlo::read_hlo_text("HloModule m\nENTRY e { ROOT x = f32[16,8] parameter(0) }", "test");
  const FlowGraph flow = FlowGraph::build(graph);
  LinkageOptions options;
  options.shards = 0;
  EXPECT_THROW(Linkage::build(flow, options), Error);
  options.shards = 8;
  options.ties = {{0, 1}};
  EXPECT_THROW(Linkage::build(flow, options), Error);
  options.ties.clear();
  options.gathers = {{0, -1, 0}};
  EXPECT_THROW(Linkage::build(flow, options), Error);
  options.gathers = {{0, 0, 7}};  // no such dimension: nothing happens
  EXPECT_EQ(Linkage::build(flow, options).num_groups(), 2);
  options.shards = 1'000'000;
  const Linkage many = Linkage::build(flow, options);
  EXPECT_FALSE(many.possible(0));
  options.shards = 1;
  const Linkage one = Linkage::build(flow, options);
  EXPECT_TRUE(one.possible(0));
  EXPECT_TRUE(one.possible(1));
}

// ---- gathers ----

constexpr const char* kSimilarity = R"(HloModule m
ENTRY e {
  x = f32[16,64] parameter(0)
  t = f32[64,16] transpose(x), dimensions={1,0}
  ROOT d = f32[16,16] dot(x, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
})";

TEST(Linkage, AGatherLeavesTheOtherSideOfADotIntact) {
  EXPECT_FALSE(LinkageModule(kSimilarity).linkage.possible(0));  // the batch would be rows and columns at once
  LinkageOptions options;
  options.gathers = {{2, 1, 1}};
  const LinkageModule m(kSimilarity, options);
  EXPECT_EQ(m.group("x", 0), m.group("d", 0));
  EXPECT_EQ(m.group("x", 0), m.group("t", 1));
  EXPECT_TRUE(m.linkage.possible(m.group("x", 0)));
  const std::vector<Obstacle> found = m.obstacles("d", 1);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, Obstacle::Kind::kGathered);
  EXPECT_EQ(found[0].op, m["d"]);
  EXPECT_EQ(found[0].a, (TensorDim{m["d"], 1}));
  EXPECT_TRUE(m.linkage.possible(m.group("x", 1)));
  EXPECT_EQ(m.linkage.factors(m["d"]).size(), 2u);
}

TEST(Linkage, AGatherBeforeAnAdditionFreesWhatIsNamed) {
  const char* text = R"(HloModule m
ENTRY e {
  a = f32[16] parameter(0)
  b = f32[16] parameter(1)
  c = f32[16] add(a, b)
  ROOT n = f32[16] negate(c)
})";
  LinkageOptions options;
  options.gathers = {{2, 0, 0}};
  const LinkageModule one(text, options);
  EXPECT_NE(one.group("a", 0), one.group("c", 0));
  EXPECT_TRUE(one.linkage.possible(one.group("a", 0)));
  EXPECT_EQ(one.obstacles("b", 0).at(0).kind, Obstacle::Kind::kGathered);
  EXPECT_EQ(one.obstacles("c", 0).at(0).kind, Obstacle::Kind::kGathered);
  EXPECT_EQ(one.group("c", 0), one.group("n", 0));
  // All of them: three groups that have nothing to do with each other there.
  options.gathers = {{2, 0, 0}, {2, 1, 0}, {2, 2, 0}};
  const LinkageModule all(text, options);
  EXPECT_EQ(all.linkage.num_groups(), 3);
  for (GroupId group = 0; group < 3; ++group) {
    EXPECT_TRUE(all.linkage.possible(group));
    EXPECT_TRUE(all.linkage.neighbours(group).empty());
  }
}

TEST(Linkage, AGatherLiftsABlock) {
  const char* text = R"(HloModule m
ENTRY e {
  x = f32[16,8] parameter(0)
  ROOT c = f32[16,8] custom-call(x), custom_call_target="whatever"
})";
  EXPECT_FALSE(LinkageModule(text).linkage.possible(0));
  LinkageOptions options;
  options.gathers = {{1, 0, 0}};
  const LinkageModule m(text, options);
  EXPECT_TRUE(m.linkage.possible(m.group("x", 0)));
  EXPECT_FALSE(m.linkage.possible(m.group("x", 1)));
  EXPECT_FALSE(m.linkage.possible(m.group("c", 0)));
  EXPECT_EQ(m.linkage.blocked(m["c"]).size(), 3u);
}

TEST(Linkage, AGatherOfASumIsWholeThere) {
  // x is gathered before the sum over its rows: no partial sum, and the rows are free of it.
  const char* text = R"(HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[16,8] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[8] reduce(x, zero), dimensions={0}, to_apply=sum
})";
  LinkageOptions options;
  options.gathers = {{2, 0, 0}};
  const LinkageModule m(text, options);
  EXPECT_TRUE(m.linkage.possible(m.group("x", 0)));
  ASSERT_EQ(m.linkage.factors(m["r"]).size(), 1u);
  EXPECT_TRUE(m.linkage.factors(m["r"])[0].partial.empty());
}

TEST(Linkage, ObstaclesAreInNodeOrderAndNotTooMany) {
  std::string body = "  x0 = f32[7] parameter(0)\n";
  for (int i = 1; i <= 1500; ++i)
    body += "  x" + std::to_string(i) + " = f32[7] negate(x" + std::to_string(i - 1) + ")\n";
  const LinkageModule m("HloModule m\nENTRY e {\n" + body + "}\n");
  const Span<const Obstacle> found = m.linkage.obstacles(0);
  ASSERT_EQ(found.size(), Linkage::kMaxObstacles);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].a.node, static_cast<NodeId>(i));
  EXPECT_EQ(m.linkage.members(0).size(), 1501u);
}

// ---- real modules ----

// The promises of the header, checked in the obvious way.
void check_promises(const Linkage& linkage) {
  const FlowGraph& flow = linkage.flow();
  std::map<GroupId, std::vector<TensorDim>> members;
  std::map<std::pair<GroupId, GroupId>, Obstacle> meet;  // where first
  const auto remember = [&](const Obstacle& at) {
    meet.try_emplace({linkage.group_of(at.a), linkage.group_of(at.b)}, at);
  };
  std::int32_t factors = 0;
  for (NodeId node = 0; node < flow.size(); ++node) {
    std::vector<TensorDim> here;
    for (std::int32_t dim = 0; dim < static_cast<std::int32_t>(linkage.groups_of(node).size()); ++dim) {
      if (linkage.group_of(node, dim) == kNone) continue;
      members[linkage.group_of(node, dim)].push_back({node, dim});
      here.push_back({node, dim});
    }
    for (const TensorDim a : here) {
      for (const TensorDim b : here) {
        if (!(a == b)) remember({Obstacle::Kind::kTwoDims, kNone, a, b, Block::kOpaque, 0});
      }
    }
    // At once they would split one tensor two ways, or one that holds partial sums.
    const auto clash = [](const OpFactor& a, const OpFactor& b) {
      const std::set<NodeId> partial(a.partial.begin(), a.partial.end());
      bool out = std::any_of(b.partial.begin(), b.partial.end(), [&](NodeId n) { return partial.count(n) != 0; });
      for (const TensorDim at : b.members) {
        out = out || partial.count(at.node) != 0;
        for (const TensorDim other : a.members) out = out || (at.node == other.node && at.dim != other.dim);
      }
      return out;
    };
    for (const OpFactor& a : linkage.factors(node)) {
      ++factors;
      ASSERT_EQ(a.op, node);
      ASSERT_FALSE(a.members.empty());
      for (const TensorDim at : a.members) ASSERT_EQ(linkage.group_of(at), a.group);
      for (const OpFactor& b : linkage.factors(node)) {
        if (&a == &b) continue;
        if (clash(a, b) || clash(b, a))
          remember({Obstacle::Kind::kTwoFactors, node, a.members[0], b.members[0], Block::kOpaque, 0});
      }
    }
  }
  ASSERT_EQ(factors, linkage.num_factors());
  ASSERT_EQ(members.size(), static_cast<std::size_t>(linkage.num_groups()));
  for (GroupId a = 0; a < linkage.num_groups(); ++a) {
    ASSERT_EQ(std::vector<TensorDim>(linkage.members(a).begin(), linkage.members(a).end()), members[a]);
    std::vector<TensorDim> inputs;
    for (const TensorDim at : members[a]) {
      if (std::any_of(flow.inputs().begin(), flow.inputs().end(),
                      [&](const graph::FlowInput& input) { return input.node == at.node; }))
        inputs.push_back(at);
    }
    ASSERT_EQ(std::vector<TensorDim>(linkage.inputs(a).begin(), linkage.inputs(a).end()), inputs);
    ASSERT_TRUE(meet.count({a, a}) == 0 || !linkage.possible(a));
    std::vector<GroupId> expected;
    for (auto it = meet.lower_bound({a, 0}); it != meet.end() && it->first.first == a; ++it) {
      const GroupId b = it->first.second;
      if (a == b || !linkage.decidable(a) || !linkage.decidable(b)) continue;
      expected.push_back(b);
      const Obstacle at = linkage.meeting(a, b);
      ASSERT_EQ(at.kind, it->second.kind);
      ASSERT_EQ(at.op, it->second.op);
      ASSERT_EQ(at.a, it->second.a);
      ASSERT_EQ(at.b, it->second.b);
    }
    ASSERT_EQ(std::vector<GroupId>(linkage.neighbours(a).begin(), linkage.neighbours(a).end()), expected);
  }
}

TEST(Linkage, KeepsItsPromisesOnModels) {
  for (const char* name : {"moe_small", "transformer_scan", "vgg19", "lit_small"}) {
    const hlo::HloModule module = hlo::load_hlo(std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/" + name + ".hlo.gz");
    const FlowGraph flow = FlowGraph::build(module.graph, with_everything());
    check_promises(Linkage::build(flow, {}));
    if (HasFatalFailure()) FAIL() << name;
  }
}

TEST(LinkageCorpus, KeepsItsPromises) {
  const char* root = std::getenv("AUTOMAP_CORPUS");
  if (root == nullptr) GTEST_SKIP() << "AUTOMAP_CORPUS is not set: no corpus to read";
  int modules = 0, splittable = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(std::string(root) + "/hlo")) {
    const std::string path = entry.path().string();
    if (entry.path().extension() != ".hlo" && path.find(".hlo.gz") == std::string::npos) continue;
    const std::string bytes = gunzip_if_gzip(read_file(path), path);
    if (hlo::detect_hlo_form(bytes, path) != hlo::HloForm::kText) continue;
    for (const std::string_view piece : hlo::split_modules(bytes)) {
      Graph graph;
      try {
        graph = hlo::read_hlo_text(std::string(piece), path);
      } catch (const Error&) {
        if (path.find("/refused/") != std::string::npos) continue;  // what readers do not read yet
        throw;
      }
      const FlowGraph flow = FlowGraph::build(graph, with_everything());
      for (const int shards : {2, 8}) {
        LinkageOptions options;
        options.shards = shards;
        const Linkage linkage = Linkage::build(flow, options);
        check_promises(linkage);
        if (HasFatalFailure()) FAIL() << path;
        ++modules;
        for (GroupId group = 0; group < linkage.num_groups(); ++group) {
          if (!linkage.decidable(group)) continue;
          ++splittable;
          break;
        }
      }
    }
  }
  EXPECT_GT(modules, 0);
  EXPECT_GT(splittable, 0);
}

}  // namespace
}  // namespace automap::sharding
