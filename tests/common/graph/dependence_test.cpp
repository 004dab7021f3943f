#include "common/graph/dependence.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "common/hlo/hlo_text.h"

namespace automap::graph {
namespace {

// A value of the flow as an expression over parameters: what the plumbing should disappear from.
std::string expression(const FlowGraph& flow, NodeId id) {
  const FlowNode& node = flow.node(id);
  const Graph& graph = flow.graph();
  if (node.opcode == Opcode::kParameter) {
    if (node.site != kNone) {
      return std::string(graph.instruction(flow.sites()[static_cast<std::size_t>(node.site)].caller).name) + "." +
             std::to_string(node.leaf);
    }
    return "p" + std::to_string(graph.instruction(node.instruction).number) +
           (node.leaf == kNone ? "" : "." + std::to_string(node.leaf));
  }
  std::string out = std::string(opcode_name(node.opcode));
  if (node.leaf != kNone) out += "#" + std::to_string(node.leaf);
  out += "(";
  for (const NodeId operand : flow.operands(id)) out += (out.back() == '(' ? "" : ",") + expression(flow, operand);
  return out + ")";
}

std::vector<std::string> results_of(const std::string& text, const std::vector<std::string>& expand = {}) {
  const Graph graph = hlo::read_hlo_text(text, "test");
  FlowOptions options;
  for (InstructionId id = 0; id < graph.num_instructions(); ++id) {
    for (const std::string& name : expand) {
      if (graph.instruction(id).name == name) options.expanded_whiles.push_back(id);
    }
  }
  const FlowGraph flow = FlowGraph::build(graph, options);
  std::vector<std::string> out;
  for (const NodeId leaf : flow.results()) out.push_back(expression(flow, leaf));
  return out;
}

using Strings = std::vector<std::string>;

TEST(FlowGraph, ExpandsCallsInsideCallsAndForgetsTuples) {
  EXPECT_EQ(results_of(R"(HloModule m
inner { a = f32[4] parameter(0)  b = f32[4] parameter(1)  s = f32[4] add(a, b)  ROOT t = (f32[4], f32[4]) tuple(s, a) }
outer {
  x = f32[4] parameter(0)
  c = (f32[4], f32[4]) call(x, x), to_apply=inner
  s = f32[4] get-tuple-element(c), index=0
  ROOT n = f32[4] negate(s)
}
ENTRY e {
  p = f32[4] parameter(0)
  q = f32[4] parameter(1)
  c = f32[4] call(p), to_apply=outer
  d = (f32[4], f32[4]) call(c, q), to_apply=inner
  d0 = f32[4] get-tuple-element(d), index=0
  d1 = f32[4] get-tuple-element(d), index=1
  ROOT r = (f32[4], (f32[4], f32[4])) tuple(d1, d)
})"),
            (Strings{"negate(add(p0,p0))", "add(negate(add(p0,p0)),p1)", "negate(add(p0,p0))"}));
}

TEST(FlowGraph, JoinsTheBranchesOfAConditionalLeafByLeaf) {
  EXPECT_EQ(results_of(R"(HloModule m
yes { t = (f32[4], f32[4]) parameter(0)  a = f32[4] get-tuple-element(t), index=0  b = f32[4] get-tuple-element(t), index=1
  n = f32[4] negate(a)  ROOT r = (f32[4], f32[4]) tuple(n, b) }
no { t = (f32[4], f32[4]) parameter(0)  a = f32[4] get-tuple-element(t), index=0  b = f32[4] get-tuple-element(t), index=1
  e = f32[4] exponential(a)  ROOT r = (f32[4], f32[4]) tuple(e, b) }
ENTRY e {
  c = pred[] parameter(0)
  p = f32[4] parameter(1)
  q = f32[4] parameter(2)
  t = (f32[4], f32[4]) tuple(p, q)
  ROOT r = (f32[4], f32[4]) conditional(c, t, t), true_computation=yes, false_computation=no
})"),
            (Strings{"conditional#0(p0,negate(p1),exponential(p1))", "p2"}));
}

const char* const kLoop = R"(HloModule m
cond { t = (s32[], f32[4], f32[4]) parameter(0)  i = s32[] get-tuple-element(t), index=0  n = s32[] constant(3)
  ROOT l = pred[] compare(i, n), direction=LT }
body { t = (s32[], f32[4], f32[4]) parameter(0)  i = s32[] get-tuple-element(t), index=0  x = f32[4] get-tuple-element(t), index=1
  w = f32[4] get-tuple-element(t), index=2  one = s32[] constant(1)  j = s32[] add(i, one)  y = f32[4] multiply(x, w)
  ROOT r = (s32[], f32[4], f32[4]) tuple(j, y, w) }
ENTRY e {
  x = f32[4] parameter(0)
  w = f32[4] parameter(1)
  z = s32[] constant(0)
  t = (s32[], f32[4], f32[4]) tuple(z, x, w)
  loop = (s32[], f32[4], f32[4]) while(t), condition=cond, body=body
  y = f32[4] get-tuple-element(loop), index=1
  v = f32[4] get-tuple-element(loop), index=2
  ROOT r = (f32[4], f32[4]) tuple(y, v)
})";

TEST(FlowGraph, WhileIsAUnitWhoseInvariantsPassThrough) {
  EXPECT_EQ(results_of(kLoop), (Strings{"get-tuple-element#1(while(constant(),p0,p1))", "p1"}));
}

TEST(FlowGraph, AnExpandedWhileRunsItsBodyOnce) {
  EXPECT_EQ(results_of(kLoop, {"loop"}), (Strings{"multiply(p0,p1)", "p1"}));
}

// The results, then the loops: "loop.1: initial -> next".
std::vector<std::string> everything_of(const std::string& text) {
  const Graph graph = hlo::read_hlo_text(text, "test");
  FlowOptions options;
  options.loops = options.fusions = true;
  const FlowGraph flow = FlowGraph::build(graph, options);
  for (NodeId id = 0; id < flow.size(); ++id) {
    for (const NodeId operand : flow.operands(id)) EXPECT_LT(operand, id);
  }
  std::vector<std::string> out;
  for (const NodeId leaf : flow.results()) out.push_back(expression(flow, leaf));
  for (const FlowInput& input : flow.inputs()) {
    EXPECT_EQ(flow.node(input.node).opcode, Opcode::kParameter);
    EXPECT_EQ(flow.node(input.node).site, kNone);
  }
  for (const FlowLoop& loop : flow.loops()) {
    EXPECT_EQ(loop.initial.size(), loop.parameter.size());
    EXPECT_EQ(loop.initial.size(), loop.next.size());
    EXPECT_EQ(flow.sites()[static_cast<std::size_t>(loop.site)].caller, loop.instruction);
    for (std::size_t i = 0; i < loop.initial.size(); ++i) {
      EXPECT_LT(loop.initial[i], loop.parameter[i]);
      EXPECT_EQ(flow.node(loop.parameter[i]).opcode, Opcode::kParameter);
      EXPECT_EQ(flow.node(loop.parameter[i]).site, loop.site);
      EXPECT_EQ(flow.node(loop.parameter[i]).shape, flow.node(loop.initial[i]).shape);
      out.push_back(expression(flow, loop.parameter[i]) + ": " + expression(flow, loop.initial[i]) + " -> " +
                    expression(flow, loop.next[i]));
    }
  }
  return out;
}

TEST(FlowGraph, ALoopRunsOneTurnOnItsParameters) {
  EXPECT_EQ(everything_of(kLoop), (Strings{"multiply(loop.1,p1)", "p1", "loop.0: constant() -> add(loop.0,constant())",
                                           "loop.1: p0 -> multiply(loop.1,p1)"}));
}

TEST(FlowGraph, ALoopOfOneArrayHasOneLeaf) {
  EXPECT_EQ(everything_of(R"(HloModule m
cond { t = f32[4] parameter(0)  ROOT l = pred[] constant(true) }
body { t = f32[4] parameter(0)  ROOT n = f32[4] negate(t) }
ENTRY e { x = f32[4] parameter(0)  ROOT w = f32[4] while(x), condition=cond, body=body })"),
            (Strings{"negate(w.0)", "w.0: p0 -> negate(w.0)"}));
}

TEST(FlowGraph, ABodyThatDoesNothingLeavesNothingOfALoop) {
  EXPECT_EQ(everything_of(R"(HloModule m
cond { t = (f32[4]) parameter(0)  ROOT l = pred[] constant(true) }
body { ROOT t = (f32[4]) parameter(0) }
ENTRY e { x = f32[4] parameter(0)  t = (f32[4]) tuple(x)  w = (f32[4]) while(t), condition=cond, body=body
  ROOT r = f32[4] get-tuple-element(w), index=0 })"),
            (Strings{"p0"}));
}

TEST(FlowGraph, AnElementSetToAnUnchangedOneFromTheStartIsUnchangedToo) {
  // (x, x, y) -> (second, second, third's place taken by the first): only the third changes.
  EXPECT_EQ(everything_of(R"(HloModule m
cond { t = (f32[4], f32[4], f32[4]) parameter(0)  ROOT l = pred[] constant(true) }
body { t = (f32[4], f32[4], f32[4]) parameter(0)  b = f32[4] get-tuple-element(t), index=1
  ROOT r = (f32[4], f32[4], f32[4]) tuple(b, b, b) }
ENTRY e { x = f32[4] parameter(0)  y = f32[4] parameter(1)  t = (f32[4], f32[4], f32[4]) tuple(x, x, y)
  ROOT w = (f32[4], f32[4], f32[4]) while(t), condition=cond, body=body })"),
            (Strings{"p0", "p0", "p0", "w.2: p1 -> p0"}));
}

// A loop in a loop in a call in a branch, and the weight that all of them hand on.
TEST(FlowGraph, LoopsNestAndStandInCallsAndBranches) {
  EXPECT_EQ(everything_of(R"(HloModule m
cond { t = (f32[4], f32[4]) parameter(0)  ROOT l = pred[] constant(true) }
turn { t = (f32[4], f32[4]) parameter(0)  x = f32[4] get-tuple-element(t), index=0  w = f32[4] get-tuple-element(t), index=1
  y = f32[4] multiply(x, w)  ROOT r = (f32[4], f32[4]) tuple(y, w) }
body { t = (f32[4], f32[4]) parameter(0)  x = f32[4] get-tuple-element(t), index=0  n = f32[4] negate(x)
  w = f32[4] get-tuple-element(t), index=1  s = (f32[4], f32[4]) tuple(n, w)
  inner = (f32[4], f32[4]) while(s), condition=cond, body=turn
  y = f32[4] get-tuple-element(inner), index=0  v = f32[4] get-tuple-element(inner), index=1
  e = f32[4] exponential(y)  ROOT r = (f32[4], f32[4]) tuple(e, v) }
work { t = (f32[4], f32[4]) parameter(0)  outer = (f32[4], f32[4]) while(t), condition=cond, body=body
  y = f32[4] get-tuple-element(outer), index=0  v = f32[4] get-tuple-element(outer), index=1  ROOT a = f32[4] add(y, v) }
yes { t = (f32[4], f32[4]) parameter(0)  ROOT c = f32[4] call(t), to_apply=work }
no { t = (f32[4], f32[4]) parameter(0)  ROOT x = f32[4] get-tuple-element(t), index=0 }
ENTRY e {
  c = pred[] parameter(0)
  p = f32[4] parameter(1)
  q = f32[4] parameter(2)
  t = (f32[4], f32[4]) tuple(p, q)
  ROOT r = f32[4] conditional(c, t, t), true_computation=yes, false_computation=no
})"),
            (Strings{"conditional#0(p0,add(exponential(multiply(inner.0,p2)),p2),p1)",
                     "inner.0: negate(outer.0) -> multiply(inner.0,p2)",
                     "outer.0: p1 -> exponential(multiply(inner.0,p2))"}));
}

TEST(FlowGraph, ALoopCalledTwiceIsTwoLoops) {
  const Strings got = everything_of(R"(HloModule m
cond { t = f32[4] parameter(0)  ROOT l = pred[] constant(true) }
body { t = f32[4] parameter(0)  ROOT n = f32[4] negate(t) }
work { t = f32[4] parameter(0)  ROOT w = f32[4] while(t), condition=cond, body=body }
ENTRY e { x = f32[4] parameter(0)  a = f32[4] call(x), to_apply=work  ROOT b = f32[4] call(a), to_apply=work })");
  EXPECT_EQ(got, (Strings{"negate(w.0)", "w.0: p0 -> negate(w.0)", "w.0: negate(w.0) -> negate(w.0)"}));
}

TEST(FlowGraph, FusionsAreExpandedWhenAsked) {
  const char* const text = R"(HloModule m
both { a = f32[4] parameter(0)  b = f32[4] parameter(1)  s = f32[4] add(a, b)  n = f32[4] negate(s)
  ROOT t = (f32[4], f32[4]) tuple(n, a) }
one { a = f32[4] parameter(0)  f = (f32[4], f32[4]) fusion(a, a), kind=kLoop, calls=both
  ROOT x = f32[4] get-tuple-element(f), index=0 }
ENTRY e { p = f32[4] parameter(0)  q = f32[4] parameter(1)  f = (f32[4], f32[4]) fusion(p, q), kind=kInput, calls=both
  x = f32[4] get-tuple-element(f), index=0  y = f32[4] get-tuple-element(f), index=1  z = f32[4] multiply(x, y)
  g = f32[4] fusion(z), kind=kCustom, calls=one
  ROOT r = (f32[4], f32[4]) tuple(g, y) })";
  EXPECT_EQ(everything_of(text),
            (Strings{"negate(add(multiply(negate(add(p0,p1)),p0),multiply(negate(add(p0,p1)),p0)))", "p0"}));
  EXPECT_EQ(results_of(text),
            (Strings{"fusion(multiply(get-tuple-element#0(fusion(p0,p1)),get-tuple-element#1(fusion(p0,p1))))",
                     "get-tuple-element#1(fusion(p0,p1))"}));
}

TEST(FlowGraph, LeavesOfATupleParameterAreInputs) {
  EXPECT_EQ(results_of(R"(HloModule m
ENTRY e {
  t = (f32[4], (f32[4], s32[])) parameter(0)
  u = (f32[4], s32[]) get-tuple-element(t), index=1
  a = f32[4] get-tuple-element(t), index=0
  b = f32[4] get-tuple-element(u), index=0
  ROOT s = f32[4] subtract(a, b)
})"),
            (Strings{"subtract(p0.0,p0.1)"}));
}

TEST(FlowGraph, BarriersAndAsyncPairsKeepLeavesApart) {
  EXPECT_EQ(results_of(R"(HloModule m
work { a = f32[4] parameter(0)  ROOT n = f32[4] negate(a) }
ENTRY e {
  p = f32[4] parameter(0)
  q = f32[4] parameter(1)
  t = (f32[4], f32[4]) tuple(p, q)
  b = (f32[4], f32[4]) opt-barrier(t)
  x = f32[4] get-tuple-element(b), index=1
  s = ((f32[4]), f32[4], s32[]) async-start(x), calls=work
  d = f32[4] async-done(s)
  ROOT r = f32[4] add(d, p)
})"),
            (Strings{"add(negate(opt-barrier#1(p1)),p0)"}));
}

// "-start" is short for a computation of that one operation; its reducer is no work that takes its operands.
TEST(FlowGraph, WhatIsCalledWithoutAllItsArgumentsStaysAUnit) {
  EXPECT_EQ(results_of(R"(HloModule m
add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT s = f32[] add(x, y) }
ENTRY e {
  p = f32[4] parameter(0)
  s = ((f32[4]), f32[2]) reduce-scatter-start(p), to_apply=add, dimensions={0}
  ROOT d = f32[2] reduce-scatter-done(s)
})"),
            (Strings{"reduce-scatter(p0)"}));
  EXPECT_EQ(results_of(R"(HloModule m
work { a = f32[2,3] parameter(0)  ROOT n = f32[2,3] abs(a) }
ENTRY e {
  s = ((f32[2,3]), f32[2,3], s32[]) call-start(), to_apply=work
  ROOT d = f32[2,3] call-done(s)
})"),
            (Strings{"call()"}));
}

TEST(FlowGraph, UsersAreTheInverseOfOperands) {
  const Graph graph = hlo::read_hlo_text(kLoop, "test");
  const FlowGraph flow = FlowGraph::build(graph);
  std::map<NodeId, std::set<NodeId>> users;
  for (NodeId id = 0; id < flow.size(); ++id) {
    for (const NodeId operand : flow.operands(id)) {
      EXPECT_LT(operand, id);
      users[operand].insert(id);
    }
  }
  for (NodeId id = 0; id < flow.size(); ++id) {
    const std::vector<NodeId> got(flow.users(id).begin(), flow.users(id).end());
    EXPECT_EQ(got, std::vector<NodeId>(users[id].begin(), users[id].end())) << id;
  }
}

// f0 calls nothing, f_{k} calls f_{k-1} twice: 2^60 nodes when all is expanded.
TEST(FlowGraph, DoublingCallsStayUnitsBeyondTheBudget) {
  std::string text = "HloModule m\nf0 { a = f32[4] parameter(0)  ROOT n = f32[4] negate(a) }\n";
  for (int k = 1; k <= 60; ++k) {
    const std::string callee = "f" + std::to_string(k - 1);
    text += "f" + std::to_string(k) + " { a = f32[4] parameter(0)  b = f32[4] call(a), to_apply=" + callee +
            "  ROOT c = f32[4] call(b), to_apply=" + callee + " }\n";
  }
  text +=
      "ENTRY e { p = f32[4] parameter(0)  q = f32[4] call(p), to_apply=f4  ROOT r = f32[4] call(q), to_apply=f60 }\n";
  const Graph graph = hlo::read_hlo_text(text, "test");
  const FlowGraph flow = FlowGraph::build(graph);
  EXPECT_EQ(flow.size(), 1 + 16 + 1);
  EXPECT_EQ(flow.node(flow.size() - 1).opcode, Opcode::kCall);
}

TEST(FlowGraph, LoopsBeyondTheBudgetStayUnits) {
  std::string text = R"(HloModule m
cond { t = f32[4] parameter(0)  ROOT l = pred[] constant(true) }
f0 { a = f32[4] parameter(0)  ROOT n = f32[4] negate(a) }
)";
  for (int k = 1; k <= 60; ++k) {
    const std::string before = "f" + std::to_string(k - 1);
    text += "f" + std::to_string(k) +
            " { a = f32[4] parameter(0)  b = f32[4] while(a), condition=cond, body=" + before +
            "  ROOT c = f32[4] while(b), condition=cond, body=" + before + " }\n";
  }
  text +=
      "ENTRY e { p = f32[4] parameter(0)  q = f32[4] while(p), condition=cond, body=f4\n"
      "  ROOT r = f32[4] while(q), condition=cond, body=f60 }\n";
  const Graph graph = hlo::read_hlo_text(text, "test");
  FlowOptions options;
  options.loops = true;
  const FlowGraph flow = FlowGraph::build(graph, options);
  EXPECT_EQ(flow.loops().size(), 31u);
  EXPECT_EQ(flow.size(), 1 + 31 + 16 + 1);
  EXPECT_EQ(flow.node(flow.size() - 1).opcode, Opcode::kWhile);
}

TEST(FlowGraph, FreeIsWhatFollowsFromConstantsAndIota) {
  const Graph graph = hlo::read_hlo_text(R"(HloModule m
ENTRY e {
  p = f32[4] parameter(0)
  c = f32[] constant(2)
  b = f32[4] broadcast(c), dimensions={}
  i = s32[4] iota(), iota_dimension=0
  f = f32[4] convert(i)
  s = f32[4] add(b, f)
  ROOT r = f32[4] multiply(s, p)
})",
                                         "test");
  const FlowGraph flow = FlowGraph::build(graph);
  const std::vector<bool> free = find_free(flow);
  std::string names;
  for (NodeId id = 0; id < flow.size(); ++id) {
    if (free[static_cast<std::size_t>(id)]) names += std::string(graph.instruction(flow.node(id).instruction).name);
  }
  EXPECT_EQ(names, "cbifs");
}

}  // namespace
}  // namespace automap::graph
