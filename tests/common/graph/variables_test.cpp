#include "common/graph/variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "common/base/error.h"
#include "common/hlo/hlo_text.h"

namespace automap::graph {
namespace {

using testing::HasSubstr;

std::string parse(const std::string& text) {
  std::string out;
  for (const VariableRequest& request : parse_variable_list(text, "vars"))
    out += "[" + request.parameter + "|" + request.name + "]";
  return out;
}

std::string failure(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return std::string(error.what()) + " / " + error.hint();
  }
  return "no error";
}

TEST(VariableList, Lines) {
  EXPECT_EQ(parse("# all of them\n%w.1  dense/kernel \n\n  7\nb.2\tdense/bias\r\n"),
            "[%w.1|dense/kernel][7|][b.2|dense/bias]");
}

TEST(VariableList, VariableMapOfOtherTools) {
  EXPECT_EQ(parse("3:dense/kernel, f32[3,4]\n4: b , f32[4]\n"), "[3|dense/kernel][4|b]");
}

TEST(VariableList, Json) {
  EXPECT_EQ(parse(R"(["w.1", 4, {"parameter": "b.2", "name": "bias"}, {"parameter": 5}])"), "[w.1|][4|][b.2|bias][5|]");
  EXPECT_EQ(parse(R"({"w.1": "kernel", "b.2": true})"), "[b.2|][w.1|kernel]");
  EXPECT_EQ(
      parse(R"({"schema": "automap.profile-report/1", "trainable_variables": [{"parameter": "w", "name": "k"}]})"),
      "[w|k]");
}

TEST(VariableList, BadLists) {
  EXPECT_THAT(failure([] { parse(""); }),
              HasSubstr("vars: expected a parameter name or number, found no variable at all"));
  EXPECT_THAT(failure([] { parse("# nothing\n\n"); }), HasSubstr("no variable at all"));
  EXPECT_THAT(failure([] { parse("[]"); }), HasSubstr("no variable at all"));
  EXPECT_THAT(failure([] { parse("[\n\"a\",\n"); }), HasSubstr("vars:3: not valid JSON"));
  EXPECT_THAT(failure([] { parse("[\"a\", -1]"); }),
              HasSubstr("vars: entry 2: expected a parameter name or number, found -1"));
  EXPECT_THAT(failure([] { parse("[{\"name\": \"a\"}]"); }), HasSubstr("entry 1"));
  EXPECT_THAT(failure([] { parse("{\"a\": 4}"); }), HasSubstr("expected a display name"));
  EXPECT_THAT(failure([] { parse(std::string("a\nb\x01\n")); }), HasSubstr("vars:2"));
  EXPECT_THAT(failure([] { parse("[1e999]"); }), HasSubstr("a number out of range"));
  const std::size_t deep = 300000;
  EXPECT_THAT(failure([&] { parse(std::string(deep, '[') + std::string(deep, ']')); }), HasSubstr("nested more than"));
  EXPECT_THAT(failure([&] {
                std::string text;
                for (std::size_t i = 0; i < deep; ++i) text += "{\"trainable_variables\":";
                parse(text + "1" + std::string(deep, '}'));
              }),
              HasSubstr("nested more than"));
}

const char* const kTwo = R"(HloModule m
ENTRY e {
  kernel.1 = f32[4,4] parameter(0), metadata={op_name="params['dense']['kernel']"}
  bias.2 = f32[4] parameter(1), metadata={op_name="params['dense']['bias']"}
  b = f32[4,4] broadcast(bias.2), dimensions={1}
  ROOT r = f32[4,4] add(kernel.1, b)
})";

TEST(VariableRequests, AreMatchedByNumberNameOrPath) {
  const Graph graph = hlo::read_hlo_text(kTwo, "test");
  const FlowGraph flow = FlowGraph::build(graph);
  const std::vector<EntryInput> inputs = list_inputs(flow);
  const auto match = [&](const std::string& text) { return match_requests(inputs, parse_variable_list(text, "vars")); };
  EXPECT_EQ(match("1\n0"), (std::vector<std::int32_t>{1, 0}));
  EXPECT_EQ(match("%bias.2\nbias.2"), (std::vector<std::int32_t>{1}));
  std::vector<std::int32_t> of_request;
  match_requests(inputs, parse_variable_list("1 b\n0 k\nbias.2", "vars"), &of_request);
  EXPECT_EQ(of_request, (std::vector<std::int32_t>{1, 0, 1}));
  EXPECT_EQ(match("params['dense']['kernel']"), (std::vector<std::int32_t>{0}));
  EXPECT_THAT(failure([&] { match("0\nkernal.1"); }),
              HasSubstr("vars:2: the module has no parameter 'kernal.1' / did you mean 'kernel.1'"));
  EXPECT_THAT(failure([&] { match("7"); }), HasSubstr("numbered 0 to 1"));
  EXPECT_THAT(failure([&] { match("embedding"); }), HasSubstr("automap-inspect --json lists"));
}

// An update as a string: pair, sources, gradient.
std::string updates(const std::string& text) {
  const Graph graph = hlo::read_hlo_text(text, "test");
  const FlowGraph flow = FlowGraph::build(graph);
  const std::vector<EntryInput> inputs = list_inputs(flow);
  std::string out;
  for (const ResultUpdate& update : find_updates(flow, inputs, find_free(flow))) {
    out += update.input == kNone ? "-" : inputs[static_cast<std::size_t>(update.input)].parameter_name;
    for (const NodeId source : update.sources)
      out += " " + std::string(graph.instruction(flow.node(source).instruction).name);
    if (update.gradient != kNone)
      out += " ->" + std::string(graph.instruction(flow.node(update.gradient).instruction).name);
    out += ";";
  }
  return out;
}

// Adam with weight decay that is part of the gradient: each moment's new value contains the weight too.
TEST(Updates, MomentsAreNearerToTheirOldValueThanTheWeight) {
  EXPECT_EQ(updates(R"(HloModule m
ENTRY e {
  w = f32[8,8] parameter(0)
  m = f32[8,8] parameter(1)
  v = f32[8,8] parameter(2)
  h = f32[4,8] parameter(3)
  d = f32[4,8] parameter(4)
  g0 = f32[8,8] dot(h, d), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  wd = f32[8,8] multiply(w, w)
  g = f32[8,8] add(g0, wd)
  m1 = f32[8,8] add(m, g)
  g2 = f32[8,8] multiply(g, g)
  v1 = f32[8,8] add(v, g2)
  q = f32[8,8] divide(m1, v1)
  w1 = f32[8,8] subtract(w, q)
  ROOT r = (f32[8,8], f32[8,8], f32[8,8]) tuple(v1, w1, m1)
})"),
            "v g0 ->g0;w g0 ->g0;m g0 ->g0;");
}

// Factored moments: row and column means of the squared gradient; clipping by a norm couples only by a number.
TEST(Updates, FactoredMomentsAndClipping) {
  EXPECT_EQ(updates(R"(HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY e {
  w = f32[8,6] parameter(0)
  row = f32[8] parameter(1)
  h = f32[4,8] parameter(2)
  d = f32[4,6] parameter(3)
  z = f32[] constant(0)
  g = f32[8,6] dot(h, d), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  g2 = f32[8,6] multiply(g, g)
  norm = f32[] reduce(g2, z), dimensions={0,1}, to_apply=add
  nb = f32[8,6] broadcast(norm), dimensions={}
  c = f32[8,6] divide(g, nb)
  c2 = f32[8,6] multiply(c, c)
  mean = f32[8] reduce(c2, z), dimensions={1}, to_apply=add
  row1 = f32[8] add(row, mean)
  rs = f32[8] rsqrt(row1)
  rb = f32[8,6] broadcast(rs), dimensions={0}
  u = f32[8,6] multiply(c, rb)
  w1 = f32[8,6] subtract(w, u)
  ROOT r = (f32[8,6], f32[8]) tuple(w1, row1)
})"),
            "w g ->g;row mean ->mean;");
}

TEST(Updates, HandedOnCountedAndTransposed) {
  EXPECT_EQ(updates(R"(HloModule m
ENTRY e {
  frozen = f32[8,6] parameter(0)
  step = s32[] parameter(1)
  w = f32[8,6] parameter(2)
  h = f32[4,8] parameter(3)
  d = f32[4,6] parameter(4)
  one = s32[] constant(1)
  step1 = s32[] add(step, one)
  gt = f32[6,8] dot(d, h), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  g = f32[8,6] transpose(gt), dimensions={1,0}
  w1 = f32[8,6] subtract(w, g)
  ROOT r = (s32[], f32[8,6], f32[8,6], f32[4,8]) tuple(step1, w1, frozen, h)
})"),
            "step;w g ->g;frozen;h;");
}

TEST(Aliases, ResultToInput) {
  const Graph graph = hlo::read_hlo_text(
      R"(HloModule m, input_output_alias={ {0}: (1, {}, may-alias), {2}: (0, {}, must-alias), {9}: (0, {}) }
ENTRY e {
  a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  c = f32[4] add(a, b)
  ROOT r = (f32[4], f32[4], f32[4]) tuple(c, a, b)
})",
      "test");
  EXPECT_EQ(read_aliases(FlowGraph::build(graph)), (std::vector<std::int32_t>{1, kNone, 0}));
}

TEST(Aliases, LeavesOfInnerTuplesAreNoResultsOfTheOuterOne) {
  const Graph graph = hlo::read_hlo_text(
      R"(HloModule m, input_output_alias={ {0,1}: (0, {}, may-alias), {1}: (1, {}) }
ENTRY e {
  a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  inner = (f32[4], f32[4]) tuple(a, b)
  ROOT r = ((f32[4], f32[4]), f32[4]) tuple(inner, b)
})",
      "test");
  EXPECT_EQ(read_aliases(FlowGraph::build(graph)), (std::vector<std::int32_t>{kNone, 1, kNone}));
}

}  // namespace
}  // namespace automap::graph
