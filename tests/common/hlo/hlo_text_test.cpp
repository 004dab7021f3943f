#include "common/hlo/hlo_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/hlo/hlo_writer.h"
#include "tests/common/graph/graph_digest.h"

namespace automap::hlo {

using namespace graph;

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Graph read_text(std::string text) {
  return read_hlo_text(std::move(text), "t.hlo");
}

InstructionId find(const Graph& g, std::string_view name) {
  for (InstructionId id = 0; id < g.num_instructions(); ++id) {
    if (g.instruction(id).name == name) return id;
  }
  ADD_FAILURE() << "no instruction " << name;
  return 0;
}

std::vector<std::string> operand_names(const Graph& g, std::string_view name) {
  std::vector<std::string> names;
  for (const InstructionId o : g.operands(find(g, name))) names.emplace_back(g.instruction(o).name);
  return names;
}

// The error a text gives; fails the test when it gives none or one of the wrong kind.
std::string text_error(std::string text) {
  try {
    read_hlo_text(std::move(text), "t.hlo");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData);
    return e.what();
  }
  ADD_FAILURE() << "the text was accepted";
  return "";
}

std::string in_entry(const std::string& body) {
  return "HloModule m\n\nENTRY e {\n" + body + "\n}\n";
}

constexpr const char* kSmall =
    R"(HloModule jit_step, is_scheduled=true, entry_computation_layout={(f32[2,3]{1,0}, /*index=1*/f32[3]{0})->f32[2]{0}}

%add.1 (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

ENTRY %main (a: f32[2,3], b: f32[3]) -> f32[2] {
  %a = f32[2,3]{1,0} parameter(0), sharding={devices=[2,1]<=[2]}, metadata={op_name="params[\'w\'][\"k\"]"}
  %b = f32[3]{0} parameter(1)
  %zero = f32[] constant(0)
  %bb = f32[2,3]{1,0} broadcast(%b), dimensions={1}
  %m = f32[2,3]{1,0} multiply(%a, %bb), metadata={op_type="mul" op_name="jvp(f)/mul" source_line=3}
  ROOT %r = f32[2]{0} reduce(%m, %zero), dimensions={1}, to_apply=%add.1
}
)";

TEST(HloText, SmallModule) {
  const Graph g = read_text(kSmall);
  EXPECT_EQ(g.name(), "jit_step");
  EXPECT_EQ(g.num_computations(), 2);
  EXPECT_EQ(g.num_instructions(), 9);
  EXPECT_EQ(g.header_attribute("is_scheduled").value_or(""), "true");
  EXPECT_EQ(g.header_attribute("entry_computation_layout").value_or(""),
            "{(f32[2,3]{1,0}, /*index=1*/f32[3]{0})->f32[2]{0}}");
  EXPECT_FALSE(g.header_attribute("num_partitions").has_value());
  EXPECT_EQ(g.entry().name, "main");
  EXPECT_EQ(g.entry().count, 6);
  ASSERT_EQ(g.entry().parameters.size(), 2u);
  EXPECT_EQ(g.instruction(g.entry().parameters[1]).name, "b");
  EXPECT_EQ(g.instruction(g.entry().root).name, "r");
  const InstructionId r = find(g, "r");
  EXPECT_EQ(g.instruction(r).opcode, Opcode::kReduce);
  EXPECT_EQ(g.instruction(r).layout, "{0}");
  EXPECT_EQ(g.shape_of(r).text, "f32[2]");
  EXPECT_THAT(operand_names(g, "r"), ElementsAre("m", "zero"));
  ASSERT_EQ(g.called(r).size(), 1u);
  EXPECT_EQ(g.computation(g.called(r)[0]).name, "add.1");
  EXPECT_EQ(g.attribute(r, "dimensions").value_or(""), "{1}");
  EXPECT_EQ(g.instruction(find(g, "zero")).payload, "0");
  EXPECT_EQ(g.op_name(find(g, "a")), "params['w'][\"k\"]");
  EXPECT_EQ(g.op_name(find(g, "m")), "jvp(f)/mul");
  EXPECT_EQ(g.metadata(find(g, "m"), "op_type"), "mul");
  EXPECT_EQ(g.metadata(find(g, "m"), "source_line"), "3");
  EXPECT_EQ(g.metadata(find(g, "m"), "source_file"), "");
  EXPECT_EQ(g.op_name(find(g, "b")), "");
  EXPECT_EQ(g.attribute(find(g, "a"), "sharding").value_or(""), "{devices=[2,1]<=[2]}");
}

TEST(HloText, GraphSurvivesMoves) {
  std::vector<Graph> graphs;
  graphs.push_back(read_text("ENTRY e { ROOT a = f32[] constant(1) }"));  // short texts tempt the small-string buffer
  graphs.push_back(read_text(kSmall));
  Graph g = std::move(graphs[0]);
  EXPECT_EQ(g.instruction(0).name, "a");
  EXPECT_EQ(g.instruction(0).payload, "1");
}

TEST(HloText, Users) {
  const Graph g =
      read_text(in_entry("a = f32[2] parameter(0)\n b = f32[2] add(a, a)\n c = f32[2] add(a, b)\n d = f32[2] tanh(c)"));
  const auto users = [&](const char* name) {
    std::vector<std::string> names;
    for (const InstructionId u : g.users(find(g, name))) names.emplace_back(g.instruction(u).name);
    return names;
  };
  EXPECT_THAT(users("a"), ElementsAre("b", "c"));
  EXPECT_THAT(users("b"), ElementsAre("c"));
  EXPECT_THAT(users("d"), ElementsAre());
}

// One module in several dialects gives one graph.
TEST(HloText, DialectsAgree) {
  const Graph plain = read_text(R"(HloModule m
add { x = f32[] parameter(0)
 y = f32[] parameter(1)
 ROOT s = f32[] add(x, y) }
ENTRY e {
  p = (f32[4]{0}, s32[]) parameter(0)
  v = f32[4]{0} get-tuple-element(p), index=0
  z = f32[] constant(-1.5e-3)
  ROOT r = f32[] reduce(v, z), dimensions={0}, to_apply=add
})");
  const std::vector<std::string> others = {
      // sigils, operand shapes, signatures, comments everywhere
      R"(// a comment line
HloModule m
%add (x: f32[], y: f32[]) -> f32[] { /* why not */
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(f32[] %x, /*index=1*/f32[] %y) // sum
}
ENTRY %e (p: (f32[4], s32[])) -> f32[] {
  %p = (f32[4]{0}, s32[]) parameter(0)
  // CHECK: don't { count "this
  %v = f32[4]{0} get-tuple-element((f32[4]{0}, /*index=1*/s32[]) %p), index=0
  %z = f32[] constant(-1.5e-3)
  ROOT %r = f32[] reduce(f32[4]{0} %v, f32[] %z), dimensions={0}, to_apply=%add
})",
      // everything on one line, callee last
      "HloModule m ENTRY e { p = (f32[4]{0}, s32[]) parameter(0) v = f32[4]{0} get-tuple-element(p), index=0 "
      "z = f32[] constant(-1.5e-3) ROOT r = f32[] reduce(v, z), dimensions={0}, to_apply=add } "
      "add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }",
      // no ROOT, no ENTRY, odd spacing, CRLF
      "HloModule   m\r\n\r\nadd{\r\n x=f32[] parameter( 0 )\r\n\ty =f32[] parameter(1)\r\n s= f32 [ ] add( x , y "
      ")\r\n}\r\n"
      "e {\r\n p = (f32[4]{0}, s32[]) parameter(0)\r\n v = f32[4]{0} get-tuple-element(p) , index= 0\r\n"
      " z = f32[] constant(-1.5e-3)\r\n r = f32[]  reduce(v,z),\r\n   dimensions={0},\r\n   to_apply=add\r\n}\r\n",
  };
  // Sigils in raw attributes and the order of computations are spelling.
  const auto canonical = [](const Graph& g) {
    std::string s = digest(g);
    for (std::size_t at; (at = s.find('%')) != std::string::npos;) s.erase(at, 1);
    std::vector<std::string> parts;
    std::size_t begin = s.find("\nadd thread");
    const std::size_t entry = s.find("\nENTRY");
    const std::size_t second = std::max(begin, entry), first = std::min(begin, entry);
    parts = {s.substr(0, first), s.substr(first, second - first), s.substr(second)};
    std::sort(parts.begin() + 1, parts.end());
    // The slices differ in whether they end in a newline.
    std::string out;
    for (std::string& part : parts) {
      while (!part.empty() && part.back() == '\n') part.pop_back();
      out += part + "\n";
    }
    return out;
  };
  for (const std::string& text : others) EXPECT_EQ(canonical(read_text(text)), canonical(plain)) << text;
}

TEST(HloText, DimensionsOverLinesAndWithComments) {
  const Graph g = read_text(
      "HloModule m\nENTRY e {\n  x = f32[4,\n   8] parameter(0)\n  y = f32[4, /* of the batch */ 8]{1,0} parameter(1)\n"
      "  ROOT r = f32[4,\n\n 8\n ] add(x, y)\n}");
  for (const char* name : {"x", "y", "r"}) {
    const Shape& shape = g.shape_of(find(g, name));
    EXPECT_EQ(shape.num_elements, 32) << name;
    EXPECT_EQ(shape.dims.size(), 2U) << name;
  }
  // A bracket that is missing is said on its own line.
  EXPECT_THAT(text_error("HloModule m\nENTRY e {\n  x = f32[4, 8 parameter(0)\n  ROOT r = f32[4] negate(x)\n}"),
              HasSubstr("t.hlo:3:"));
}

// Wherever XLA's lexer takes a comment: the shapes are those that jaxlib 0.10.2 prints.
TEST(HloText, CommentsBetweenTheWordsOfAShape) {
  const Graph g = read_text(
      "HloModule m\nENTRY e {\n  a = f32/*c*/[8] parameter(0)\n  b = f32[/*]*/8/*d*/]/*e*/{/*f*/0} parameter(1)\n"
      "  c = (f32/*a*/[4,2]/*b*/{0,/*c*/1}/*d*/,/*e*/s32[]) /*f*/ parameter(2)\n  d = f32[] // of one line\n"
      "    parameter(3)\n  e = f32[8,/*index=1*/2]{1,/*c*/0:/*t*/T(8,128)} parameter(4)\n"
      "  k = f32[3,3,1,1] parameter(5)\n  i = f32[1,4,4,1] parameter(6)\n"
      "  v = f32[1,2,2,1] convolution(i, k), window=/*w*/{size=3x3}, dim_labels=/*l*/b01f_01io->b01f\n"
      "  ROOT r = f32/*c*/ [8] add(f32/*c*/[8] a, b)\n}");
  EXPECT_EQ(g.shape_of(find(g, "a")).text, "f32[8]");
  EXPECT_EQ(g.shape_of(find(g, "b")).text, "f32[8]");
  EXPECT_EQ(g.instruction(find(g, "b")).layout, "{0}");
  EXPECT_EQ(g.shape_of(find(g, "c")).text, "(f32[4,2], s32[])");
  EXPECT_EQ(g.shape_of(find(g, "d")).text, "f32[]");
  EXPECT_EQ(g.instruction(find(g, "e")).layout, "{1,0:T(8,128)}");
  EXPECT_EQ(g.attribute(find(g, "v"), "dim_labels"), "b01f_01io->b01f");
  EXPECT_EQ(g.shape_of(g.entry().root).text, "f32[8]");
  EXPECT_THAT(text_error("HloModule m\nENTRY e { ROOT x = f32/*c[8] parameter(0) }"), HasSubstr("t.hlo:2:"));
  EXPECT_THAT(text_error("HloModule m\nENTRY e { ROOT x = f32[8/*c] parameter(0) }"), HasSubstr("t.hlo:2:"));
}

TEST(HloText, MissingHeaderAndEntry) {
  const Graph g = read_text("a { ROOT x = f32[] parameter(0) }\nb { x = f32[] parameter(0)\n y = f32[] tanh(x) }");
  EXPECT_EQ(g.name(), "");
  EXPECT_EQ(g.entry().name, "b");
  EXPECT_EQ(g.instruction(g.entry().root).name, "y");
}

TEST(HloText, EntryNeedNotBeLastAndRootNeedNotBeLast) {
  const Graph g =
      read_text("ENTRY a { ROOT x = f32[] parameter(0)\n t = f32[] tanh(x) }\nb { x = f32[] parameter(0) }");
  EXPECT_EQ(g.entry().name, "a");
  EXPECT_EQ(g.instruction(g.entry().root).name, "x");
}

TEST(HloText, KeywordsAsNames) {
  const Graph g = read_text("ENTRY { ROOT = f32[] parameter(0)\n ROOT HloModule = f32[] tanh(ROOT) }");
  EXPECT_EQ(g.entry().name, "ENTRY");
  EXPECT_EQ(g.instruction(g.entry().root).name, "HloModule");
}

TEST(HloText, GlogPrefixes) {
  const std::string p = "I0521 12:04:45.883483    1509 service.cc:186] ";
  const std::string text = p + "Compiling module jit_f {\n" + p + "HloModule m\n" + p + "\n" + p + "ENTRY e {\n" + p +
                           "  x = f32[] parameter(0)\n" + p + "  ROOT y = f32[] tanh(x)\n" + p + "}\n";
  const Graph g = read_text(text);
  EXPECT_EQ(g.num_instructions(), 2);
  // Columns are those of the file as given.
  std::string bad = text;
  bad.replace(bad.find("tanh(x)"), 7, "tanh(q)");
  EXPECT_THAT(
      text_error(bad),
      StartsWith("t.hlo:6:" + std::to_string(p.size() + std::string("  ROOT y = f32[] tanh(").size() + 1) + ":"));
}

TEST(HloText, StackTables) {
  const Graph g = read_text(R"(HloModule m, x=1

FileNames
1 "a {.py"
2 "b.py"

FunctionNames
1 "f.<locals>.g"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=4 end_column=5}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY e { ROOT x = f32[] parameter(0), metadata={op_name="a" stack_frame_id=1} }
)");
  EXPECT_THAT(std::string(g.stack_tables()), StartsWith("FileNames\n1 \"a {.py\""));
  EXPECT_THAT(std::string(g.stack_tables()), ::testing::EndsWith("parent_frame_id=1}"));
  EXPECT_EQ(g.metadata(0, "stack_frame_id"), "1");
  // The words are names elsewhere.
  EXPECT_EQ(read_text("HloModule m\nFileNames { ROOT x = f32[] parameter(0) }").entry().name, "FileNames");
}

TEST(HloText, Constants) {
  const Graph g = read_text(in_entry(R"(a = f32[2,2] constant({ { 1, 2 }, { inf, nan } })
  b = f32[1024] constant({...})
  c = c64[2] constant({(1, 2), (-0, 1e3)})
  d = (f32[], (s32[2])) constant(( 1, ( { 1, 2 } ) ))
  e2 = pred[] constant(true)
  ROOT t = (f32[2,2], f32[1024]) tuple(a, b))"));
  EXPECT_EQ(g.instruction(find(g, "a")).payload, "{ { 1, 2 }, { inf, nan } }");
  EXPECT_EQ(g.instruction(find(g, "b")).payload, "{...}");
  EXPECT_EQ(g.instruction(find(g, "c")).payload, "{(1, 2), (-0, 1e3)}");
  EXPECT_EQ(g.instruction(find(g, "d")).payload, "( 1, ( { 1, 2 } ) )");
  EXPECT_EQ(g.instruction(find(g, "e2")).payload, "true");
}

TEST(HloText, RawAttributes) {
  const Graph g = read_text(
      R"(HloModule m, frontend_attributes={fingerprint="abc",xla.sdy.meshes={mesh = #sdy.mesh<["data"=8, "x}"=2]>}}, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, must-alias) }
ENTRY e {
  x = f32[8] parameter(0), parameter_replication={false}, frontend_attributes={xla.sdy.sharding={#sdy.sharding<@mesh, [{"data", ?}]>}}
  a = f32[8] custom-call(x), custom_call_target="Odd\"Target, }", backend_config={"a":{"b":[1,{"c":"}"}]},"url":"http://x//y"}, custom_call_has_side_effect=true
  b = f32[8] custom-call(a), custom_call_target="t", backend_config="{\"q\": 1}", api_version=API_VERSION_TYPED_FFI
  c = f32[8] all-reduce(b), replica_groups=[2,4]<=[4,2]T(1,0), channel_id=1, use_global_device_ids=true, to_apply=sum
  d = f32[8] all-reduce(c), replica_groups=mesh['a'=2,'b'=4] {'b'}, to_apply=sum
  g = f32[8] all-reduce(d), replica_groups=mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}, channel_id=1, to_apply=sum
  h = f32[8] all-reduce(g), replica_groups=mesh['a'=2,'b'=4], device_ids=(0,2,4,6,1,3,5,7) {'a','b'}, to_apply=sum
  f = f32[8] tanh(d), sharding={mesh['x'=2,'y'=4], [{'x'}], replicated={'y'}}, control-predecessors={a, %b}, newthing=(f32[2], "x, y"), other=a->b/c
  s = f32[8] custom-call(f), custom_call_target="SetBound", literal=s32[] 1
  ROOT o = f32[8] frobnicate(s), magic={1,{2}}, calls=nothing
}
sum { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y) }
)");
  const auto value = [&](const char* name, const char* key) {
    return std::string(g.attribute(find(g, name), key).value_or("(absent)"));
  };
  EXPECT_EQ(g.header_attribute("frontend_attributes").value_or(""),
            R"({fingerprint="abc",xla.sdy.meshes={mesh = #sdy.mesh<["data"=8, "x}"=2]>}})");
  EXPECT_EQ(g.header_attribute("input_output_alias").value_or(""),
            "{ {0}: (0, {}, may-alias), {1}: (1, {}, must-alias) }");
  EXPECT_EQ(value("a", "custom_call_target"), R"("Odd\"Target, }")");
  EXPECT_EQ(value("a", "backend_config"), R"({"a":{"b":[1,{"c":"}"}]},"url":"http://x//y"})");
  EXPECT_EQ(value("a", "custom_call_has_side_effect"), "true");
  EXPECT_EQ(value("b", "backend_config"), R"("{\"q\": 1}")");
  EXPECT_EQ(value("b", "api_version"), "API_VERSION_TYPED_FFI");
  EXPECT_EQ(value("c", "replica_groups"), "[2,4]<=[4,2]T(1,0)");
  EXPECT_EQ(value("d", "replica_groups"), "mesh['a'=2,'b'=4] {'b'}");
  EXPECT_EQ(value("g", "replica_groups"), "mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}");
  EXPECT_EQ(value("g", "channel_id"), "1");
  EXPECT_EQ(value("h", "replica_groups"), "mesh['a'=2,'b'=4], device_ids=(0,2,4,6,1,3,5,7) {'a','b'}");
  EXPECT_EQ(value("f", "sharding"), "{mesh['x'=2,'y'=4], [{'x'}], replicated={'y'}}");
  EXPECT_EQ(value("f", "control-predecessors"), "{a, %b}");
  EXPECT_EQ(value("f", "newthing"), "(f32[2], \"x, y\")");
  EXPECT_EQ(value("f", "other"), "a->b/c");
  EXPECT_EQ(value("s", "literal"), "s32[] 1");
  EXPECT_EQ(g.called(find(g, "c")).size(), 1u);
  EXPECT_EQ(g.called(find(g, "o")).size(), 0u);  // on an unknown opcode 'calls' may mean anything
  EXPECT_EQ(g.instruction(find(g, "o")).opcode, Opcode::kUnknown);
  EXPECT_EQ(g.instruction(find(g, "o")).opcode_name, "frobnicate");
  EXPECT_EQ(value("o", "magic"), "{1,{2}}");
  EXPECT_THAT(operand_names(g, "o"), ElementsAre("s"));
}

TEST(HloText, UnknownOpcodeSlots) {
  const Graph g = read_text(in_entry(R"(x = q7[8] parameter(0)
  a = q7[8] newop(q7[8] %x, x)
  b = f32[2] newop2(17, fast, {1,2})
  c = f32[2] newop3()
  ROOT d = f32[2] newop4((f32[2]{0}, s32[]) undefined))"));
  EXPECT_THAT(operand_names(g, "a"), ElementsAre("x", "x"));
  EXPECT_EQ(g.instruction(find(g, "b")).payload, "17, fast, {1,2}");
  EXPECT_EQ(g.instruction(find(g, "b")).num_operands, 0);
  EXPECT_EQ(g.instruction(find(g, "c")).payload, "");
  EXPECT_EQ(g.instruction(find(g, "d")).payload, "(f32[2]{0}, s32[]) undefined");
  EXPECT_EQ(g.shape_of(find(g, "x")).type, ElementType::kUnknown);
  EXPECT_THAT(text_error(in_entry("ROOT d = f32[2] newop4(%undefined)")), HasSubstr("'undefined' is not defined"));
}

TEST(HloText, Layouts) {
  const Graph g =
      read_text(in_entry(R"(x = f32[8,16]{1,0:T(8,128)(2,1)L(4)#(u32)*(s8)E(32)S(5)P((f32[2]{0}, s32[]))} parameter(0)
  y = (f32[8,16]{0,1}, s32[]) custom-call(x), custom_call_target="a"
  z = (s32[], pred[2]) custom-call(x), custom_call_target="a"
  w = f32[]{:T(256)} custom-call(x), custom_call_target="b"
  ROOT v = f32[] tanh(w))"));
  EXPECT_EQ(g.instruction(find(g, "x")).layout, "{1,0:T(8,128)(2,1)L(4)#(u32)*(s8)E(32)S(5)P((f32[2]{0}, s32[]))}");
  EXPECT_EQ(g.shape_of(find(g, "x")).text, "f32[8,16]");
  EXPECT_EQ(g.instruction(find(g, "y")).layout, "(f32[8,16]{0,1}, s32[])");
  EXPECT_EQ(g.instruction(find(g, "z")).layout, "");
  EXPECT_EQ(g.instruction(find(g, "w")).layout, "{:T(256)}");
  EXPECT_EQ(g.instruction(find(g, "v")).layout, "");
}

TEST(HloText, NestedExpressions) {
  const Graph g = read_text(in_entry(R"(x = f32[4] parameter(0)
  ROOT r = f32[4] add(f32[4] multiply(x, f32[4] tanh (f32[4]{0} constant({1, 2, 3, 4}))), x), metadata={op_name="n"})"));
  EXPECT_EQ(g.num_instructions(), 5);
  const InstructionId r = find(g, "r");
  const InstructionId multiply = g.operands(r)[0];
  EXPECT_EQ(g.instruction(multiply).opcode, Opcode::kMultiply);
  const InstructionId tanh = g.operands(multiply)[1];
  const InstructionId constant = g.operands(tanh)[0];
  EXPECT_EQ(g.instruction(constant).payload, "{1, 2, 3, 4}");
  EXPECT_EQ(g.instruction(g.operands(r)[1]).name, "x");
  EXPECT_EQ(g.op_name(r), "n");
  // The names are made up, but real: the writer prints them and the reader takes them.
  EXPECT_EQ(digest(read_text(write_hlo_text(g))), digest(g));
  EXPECT_NE(g.instruction(multiply).name, g.instruction(constant).name);
  // A made-up name steps aside for a written one.
  const std::string taken(g.instruction(constant).name);
  const Graph h =
      read_text(in_entry(taken + " = f32[] parameter(0)\n ROOT r = f32[] add(f32[] constant(1), " + taken + ")"));
  EXPECT_EQ(h.num_instructions(), 3);
  EXPECT_EQ(digest(read_text(write_hlo_text(h))), digest(h));
  // Without attributes a transpose has no dimensions.
  EXPECT_THAT(text_error(in_entry("x = f32[4] parameter(0)\n ROOT r = f32[4] tanh(f32[4] transpose(x))")),
              HasSubstr("list of 1 numbers"));
}

TEST(HloText, CompactTupleAccess) {
  const Graph g = read_text(in_entry(R"(p = (f32[2], (s32[], f32[2])) parameter(0)
  a = f32[2] add(p#0, %p#1.1)
  ROOT b = f32[2] add(f32[2] %p#0, a))"));
  // p#0, p#1, p#1.1, made once each.
  EXPECT_EQ(g.num_instructions(), 6);
  const Span<const InstructionId> a = g.operands(find(g, "a"));
  EXPECT_EQ(g.instruction(a[0]).opcode, Opcode::kGetTupleElement);
  EXPECT_EQ(g.instruction(a[0]).number, 0);
  EXPECT_EQ(g.shape_of(a[1]).text, "f32[2]");
  const InstructionId middle = g.operands(a[1])[0];
  EXPECT_EQ(g.instruction(middle).number, 1);
  EXPECT_EQ(g.instruction(g.operands(middle)[0]).name, "p");
  EXPECT_EQ(g.operands(find(g, "b"))[0], a[0]);
  EXPECT_EQ(g.instruction(a[0]).name.find('#'), std::string_view::npos);
  EXPECT_THAT(text_error(in_entry("p = (f32[2]) parameter(0)\n ROOT a = f32[2] tanh(p#1)")), HasSubstr("no element 1"));
  EXPECT_THAT(text_error(in_entry("p = f32[2] parameter(0)\n ROOT a = f32[2] tanh(p#0)")), HasSubstr("no element 0"));
  EXPECT_THAT(text_error(in_entry("p = (f32[2]) parameter(0)\n ROOT a = f32[2] tanh(p#)")), HasSubstr("index"));
}

TEST(HloText, InferredResultShapes) {
  const Graph g = read_text(R"(sum { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = add(x, y) }
ENTRY e {
  a = f32[2,3] parameter(0)
  b = f32[3,4] parameter(1)
  zero = f32[] constant(0)
  t = tanh(a)
  c = compare(a, t), direction=LT
  s = select(c, a, t)
  tr = transpose(s), dimensions={1,0}
  d = dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  r = reduce(d, zero), dimensions={0}, to_apply=sum
  cat = concatenate(a, s), dimensions={0}
  tup = tuple(r, c)
  g = get-tuple-element(tup), index=1
  k = call(zero, zero), to_apply=sum
  ROOT o = tuple(tr, cat, g, k)
})");
  EXPECT_EQ(g.shape_of(find(g, "t")).text, "f32[2,3]");
  EXPECT_EQ(g.shape_of(find(g, "c")).text, "pred[2,3]");
  EXPECT_EQ(g.shape_of(find(g, "d")).text, "f32[2,4]");
  EXPECT_EQ(g.shape_of(find(g, "r")).text, "f32[4]");
  EXPECT_EQ(g.shape_of(g.entry().root).text, "(f32[3,2], f32[4,3], pred[2,3], f32[])");
  EXPECT_THAT(text_error(in_entry("a = f32[] parameter(0)\n ROOT b = custom-call(a), custom_call_target=\"x\"")),
              HasSubstr("cannot be inferred"));
  EXPECT_THAT(text_error(in_entry("a = f32[] parameter(0)\n ROOT b = convert(a)")), HasSubstr("cannot be inferred"));
}

TEST(HloText, InferredResultShapesOfSparseConvolutionsAndUnknownSizes) {
  const Graph g = read_text(in_entry(
      "x = f32[2,8] parameter(0)\n v = f32[2,3] parameter(1)\n p = s32[2,3] parameter(2)\n"
      " k = (f32[2,3], s32[2,3]) tuple(v, p)\n u = f32[?,784] parameter(3)\n"
      " c = convolution(x, k), dim_labels=bf_io->bf, sparsity_config={rhs={sparsity=1x4 dimension=0 stride=1}}\n"
      " a = abs(u)\n l = compare(u, u), direction=LT\n ROOT t = tuple(c, a, l)"));
  EXPECT_EQ(g.shape_of(g.entry().root).text, "(f32[2,3], f32[?,784], pred[?,784])");
}

// As jaxlib 0.10.2 prints them: of outputs one for each turn, along the scanned dimension; carries as they are.
TEST(HloText, InferredResultShapesOfScans) {
  const auto shape = [](const std::string& step, const std::string& operands, const std::string& scan) {
    const Graph g = read_text("HloModule m\nstep { " + step + " }\nENTRY e {\n" + operands + "\n  ROOT s = scan(" +
                              scan + ", to_apply=step\n}");
    return std::string(g.shape_of(g.entry().root).text);
  };
  const std::string step =
      "x = f32[4,5] parameter(0)\n c = f32[3] parameter(1)\n ROOT t = (f32[4,5], f32[3]) tuple(x, c)";
  const std::string carry = "  c = f32[3] parameter(1)\n";
  EXPECT_EQ(shape(step, "  x = f32[7,4,5] parameter(0)\n" + carry, "x, c), dimensions={0}, num_carries=1"),
            "(f32[7,4,5], f32[3])");
  EXPECT_EQ(shape(step, "  x = f32[4,7,5] parameter(0)\n" + carry, "x, c), dimensions={1}, num_carries=1"),
            "(f32[4,7,5], f32[3])");
  EXPECT_EQ(shape(step, "  x = f32[4,5,7] parameter(0)\n" + carry, "x, c), dimensions={2}, num_carries=1"),
            "(f32[4,5,7], f32[3])");
  EXPECT_EQ(shape("x = f32[4] parameter(0)\n y = s32[2] parameter(1)\n c = f32[3] parameter(2)\n d = f32[] "
                  "parameter(3)\n ROOT t = (f32[4], f32[3], f32[]) tuple(x, c, d)",
                  "  x = f32[7,4] parameter(0)\n  y = s32[7,2] parameter(1)\n  c = f32[3] parameter(2)\n"
                  "  d = f32[] parameter(3)\n",
                  "x, y, c, d), dimensions={0}, num_carries=2"),
            "(f32[7,4], f32[3], f32[])");
  const std::string input = "  x = f32[7,4] parameter(0)\n";
  EXPECT_EQ(shape("x = f32[4] parameter(0)\n ROOT t = (f32[4]) tuple(x)", input, "x), dimensions={0}, num_carries=0"),
            "(f32[7,4])");
  EXPECT_EQ(shape("x = f32[4] parameter(0)\n ROOT t = f32[4] negate(x)", input, "x), dimensions={0}, num_carries=0"),
            "f32[7,4]");
  EXPECT_EQ(shape("x = f32[4] parameter(0)\n c = f32[4] parameter(1)\n ROOT t = f32[4] add(x, c)",
                  input + "  c = f32[4] parameter(1)\n", "x, c), dimensions={0}, num_carries=1"),
            "f32[4]");
  // XLA cannot tell how many turns there are, either; or ends there.
  for (const char* attributes : {"dimensions={0}, num_carries=2", "dimensions={5}, num_carries=1"}) {
    EXPECT_THAT(
        text_error("HloModule m\nstep { x = f32[4] parameter(0)\n c = f32[4] parameter(1)\n ROOT t = (f32[4], "
                   "f32[4]) tuple(x, c) }\nENTRY e {\n" +
                   input + "  c = f32[4] parameter(1)\n  ROOT s = scan(x, c), " + attributes + ", to_apply=step\n}"),
        HasSubstr("cannot be inferred"))
        << attributes;
  }
}

TEST(HloText, CalledComputationsComeInAFixedOrder) {
  const Graph g = read_text(R"(c { x = s32[] parameter(0)
  n = s32[] constant(4)
  ROOT r = pred[] compare(x, n), direction=LT }
b { x = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT r = s32[] add(x, one) }
ENTRY e {
  x = s32[] parameter(0)
  p = pred[] parameter(1)
  w = s32[] while(x), body=%b, condition=%c
  q = s32[] conditional(p, w, x), false_computation=b, true_computation=%b
  ROOT k = s32[] conditional(x, x, w, q), branch_computations={%b, /*index=1*/b, %b}
})");
  const auto names = [&](const char* name) {
    std::vector<std::string> out;
    for (const ComputationId c : g.called(find(g, name))) out.emplace_back(g.computation(c).name);
    return out;
  };
  EXPECT_THAT(names("w"), ElementsAre("c", "b"));
  EXPECT_THAT(names("q"), ElementsAre("b", "b"));
  EXPECT_THAT(names("k"), ElementsAre("b", "b", "b"));
}

TEST(HloText, AsyncForms) {
  const Graph g = read_text(R"(inner { p = f32[4] parameter(0)
  ROOT c = f32[4] custom-call(p), custom_call_target="f" }, execution_thread="side"
ENTRY e {
  x = f32[4] parameter(0)
  s = ((f32[4]), f32[4], s32[]) async-start(x), async_execution_thread="side", calls=inner
  u = ((f32[4]), f32[4], s32[]) async-update(s)
  d = f32[4] async-done(u)
  t = ((f32[4]), f32[2], u32[]) slice-start(d), slice={[0:2]}
  v = f32[2] slice-done(t)
  ROOT r = f32[2] tanh(v)
})");
  EXPECT_EQ(g.computation(0).execution_thread, "side");
  EXPECT_EQ(g.instruction(find(g, "t")).opcode, Opcode::kAsyncStart);
  EXPECT_EQ(g.instruction(find(g, "v")).opcode, Opcode::kAsyncDone);
  // The short form is unfolded as XLA's parser does: a computation with the slice alone.
  EXPECT_EQ(g.instruction(find(g, "t")).opcode_name, "async-start");
  EXPECT_EQ(g.num_computations(), 3);
  EXPECT_EQ(g.num_instructions(), 11);
  const Computation& wrapped = g.computation(g.called(find(g, "t"))[0]);
  EXPECT_EQ(wrapped.count, 2);
  EXPECT_EQ(g.instruction(wrapped.root).opcode, Opcode::kSlice);
  EXPECT_EQ(g.shape_of(wrapped.root).text, "f32[2]");
  EXPECT_EQ(g.attribute(wrapped.root, "slice"), "{[0:2]}");
  EXPECT_FALSE(g.attribute(find(g, "t"), "slice"));
  EXPECT_EQ(g.entry().name, "e");
}

TEST(HloText, DynamicDimensionsAreExemptFromShapeChecks) {
  const Graph g = read_text(in_entry(R"(a = f32[1,<=1801] parameter(0)
  b = f32[1,1801] parameter(1)
  c = f32[1,<=1801] add(f32[1,<=1801] %a, b)
  ROOT d = f32[1,?] tanh(c))"));
  EXPECT_EQ(g.num_instructions(), 4);
}

TEST(HloText, MultiMegabyteHeaderLine) {
  std::string header = "HloModule m, entry_computation_layout={(";
  for (int i = 0; i < 200000; ++i) header += "/*index=5*/f32[768,3072]{1,0}, ";
  header += "f32[])->f32[]}";
  const Graph g = read_text(header + "\nENTRY e { ROOT x = f32[] parameter(0) }");
  EXPECT_GT(g.header_attribute("entry_computation_layout")->size(), 6000000u);
}

// ----------------------------------------------------------------------------------------------------------- errors

TEST(HloTextErrors, PlaceLineAndCaret) {
  EXPECT_EQ(text_error("HloModule m\nENTRY e {\n  a = f32[2] parameter(0)\n  ROOT b = f32[2] add(a; a)\n}"),
            "t.hlo:4:24: found ';', expected ',' or ')' in the list of operands\n"
            "    ROOT b = f32[2] add(a; a)\n"
            "                         ^");
}

TEST(HloTextErrors, LongLinesAreCutAroundThePlace) {
  std::string text = "ENTRY e { a = f32[] constant(" + std::string(5000, '1') + ") ROOT b = f32[] tanh(nope) " +
                     std::string(5000, ' ') + "}";
  const std::string message = text_error(text);
  EXPECT_THAT(message, HasSubstr("'nope' is not defined"));
  EXPECT_LT(message.size(), 400u);
  const std::size_t excerpt = message.find("\n  ") + 3, caret = message.rfind("\n  ") + 3;
  EXPECT_EQ(message.substr(excerpt + (message.find('^') - caret), 4), "nope");
}

TEST(HloTextErrors, Operands) {
  EXPECT_THAT(text_error(in_entry("ROOT a = f32[] tanh(b)")), HasSubstr("t.hlo:4:21: the operand 'b' is not defined"));
  EXPECT_THAT(text_error(in_entry("a = f32[] tanh(b)\n ROOT b = f32[] tanh(a)")), HasSubstr("only after this use"));
  EXPECT_THAT(text_error(in_entry("ROOT a = f32[] tanh(a)")), HasSubstr("'a' is not defined"));
  EXPECT_THAT(text_error("c { x = f32[] parameter(0) }\nENTRY e { ROOT a = f32[] tanh(x) }"),
              HasSubstr("not defined in computation 'e', only in 'c'"));
  EXPECT_THAT(text_error(in_entry("a = f32[2] parameter(0)\n ROOT b = f32[2] tanh(f32[3] %a)")),
              HasSubstr("printed as f32[3], but it is defined as f32[2]"));
  EXPECT_THAT(text_error(in_entry("a = f32[2] parameter(0)\n ROOT b = f32[2] tanh(a")), HasSubstr("list of operands"));
  EXPECT_THAT(text_error(in_entry("a = f32[2] parameter(0)\n ROOT b = f32[2] tanh(a,)")),
              HasSubstr("expected an operand"));
}

TEST(HloTextErrors, Names) {
  EXPECT_THAT(text_error(in_entry("a = f32[] constant(1)\n a = f32[] constant(2)")),
              HasSubstr("t.hlo:5:2: the name 'a' is used twice"));
  EXPECT_THAT(text_error("c { a = f32[] constant(1) }\nc { a = f32[] constant(1) }"),
              HasSubstr("t.hlo:2:1: the computation name 'c' is used twice"));
  EXPECT_THAT(text_error("ENTRY a { x = f32[] constant(1) }\nENTRY b { x = f32[] constant(1) }"),
              HasSubstr("second ENTRY"));
  EXPECT_THAT(text_error(in_entry("ROOT a = f32[] constant(1)\n ROOT b = f32[] constant(2)")),
              HasSubstr("second ROOT"));
}

TEST(HloTextErrors, ArityAndParameters) {
  EXPECT_THAT(text_error(in_entry("a = f32[] constant(1)\n ROOT b = f32[] add(a)")),
              HasSubstr("add 'b' has 1 operand, expected 2"));
  EXPECT_THAT(text_error(in_entry("a = f32[] constant(1)\n ROOT b = f32[] tanh(a, a)")),
              HasSubstr("tanh 'b' has 2 operands, expected 1"));
  EXPECT_THAT(text_error(in_entry("ROOT b = f32[] concatenate(), dimensions={0}")), HasSubstr("at least 1"));
  EXPECT_THAT(text_error(in_entry("a = f32[] parameter(1)")), HasSubstr("one of them is number 1"));
  EXPECT_THAT(text_error(in_entry("a = f32[] parameter(0)\n b = f32[] parameter(0)")), HasSubstr("occurs twice"));
  EXPECT_THAT(text_error(in_entry("a = f32[] parameter(-1)")), HasSubstr("expected the number of a parameter"));
  EXPECT_THAT(text_error(in_entry("a = f32[] parameter(99999999999)")), HasSubstr("too large"));
  EXPECT_THAT(text_error(in_entry("a = f32[] constant()")), HasSubstr("expected the value of a constant"));
}

TEST(HloTextErrors, Shapes) {
  const std::string ab = "a = f32[2,3] parameter(0)\n b = f32[3,2] parameter(1)\n";
  EXPECT_THAT(text_error(in_entry(ab + "ROOT c = f32[2,3] add(a, b)")),
              HasSubstr("add 'c': the operands differ: f32[2,3] and f32[3,2]"));
  EXPECT_THAT(text_error(in_entry(ab + "ROOT c = f32[2] add(a, a)")),
              HasSubstr("result is f32[2], but the operands are f32[2,3]"));
  EXPECT_THAT(text_error(in_entry(ab + "ROOT c = f32[2] tanh(a)")),
              HasSubstr("result is f32[2], but the operand is f32[2,3]"));
  EXPECT_THAT(text_error(in_entry(ab + "ROOT c = f32[5] reshape(a)")), HasSubstr("f32[2,3] has 6 elements"));
  EXPECT_THAT(text_error(in_entry(ab + "ROOT c = f32[2,3] transpose(a), dimensions={1,0}")), HasSubstr("does not fit"));
  EXPECT_THAT(text_error(in_entry(ab + "ROOT c = f32[2,3] transpose(a), dimensions={0}")),
              HasSubstr("list of 2 numbers"));
  EXPECT_THAT(text_error(in_entry(ab + "ROOT c = f32[9,2,3] broadcast(a), dimensions={1,3}")),
              HasSubstr("dimension 3"));
  EXPECT_THAT(text_error(in_entry(ab + "ROOT c = f32[9,2,4] broadcast(a), dimensions={1,2}")),
              HasSubstr("does not fit"));
  EXPECT_THAT(
      text_error(in_entry(ab + "ROOT c = f32[2,3] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}")),
      HasSubstr("give 4 elements"));
  EXPECT_THAT(
      text_error(in_entry(ab + "ROOT c = f32[2,2] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}")),
      HasSubstr("do not fit the operands"));
  EXPECT_THAT(text_error(in_entry(ab + "ROOT c = f32[2] reduce(a, b), dimensions={7}, to_apply=x")),
              HasSubstr("do not fit"));
  EXPECT_THAT(text_error(in_entry(ab + "ROOT c = f32[] get-tuple-element(a), index=0")), HasSubstr("expected a tuple"));
  EXPECT_THAT(text_error(in_entry(ab + "t = (f32[2,3]) tuple(a)\nROOT c = f32[2,3] get-tuple-element(t), index=1")),
              HasSubstr("index 1 of a tuple of 1"));
  EXPECT_THAT(text_error(in_entry(ab + "t = (f32[2,3]) tuple(a)\nROOT c = f32[] get-tuple-element(t), index=0")),
              HasSubstr("element 0 is f32[2,3]"));
  EXPECT_THAT(text_error(in_entry(ab + "t = (f32[2,3]) tuple(a)\nROOT c = f32[2,3] get-tuple-element(t)")),
              HasSubstr("no index"));
  EXPECT_THAT(text_error(in_entry(ab + "t = (f32[2,3]) tuple(a)\nROOT c = f32[2,3] get-tuple-element(t), index=x")),
              HasSubstr("index=x"));
  EXPECT_THAT(text_error(in_entry(ab + "ROOT t = (f32[2,3]) tuple(a, b)")), HasSubstr("a tuple of 2 elements"));
  EXPECT_THAT(text_error(in_entry(ab + "ROOT t = (f32[2,3], f32[1]) tuple(a, b)")), HasSubstr("element 1"));
  EXPECT_THAT(text_error(in_entry("a = f32[4294967296,4294967296] parameter(0)")), HasSubstr("more than 2^63"));
  EXPECT_THAT(text_error(in_entry("a = f32[2 parameter(0)")), HasSubstr("expected"));
  EXPECT_THAT(text_error("ENTRY e (a: f32[2]) -> f32[3] { ROOT a = f32[2] parameter(0) }"),
              HasSubstr("f32[3] in the signature, but its root is f32[2]"));
  // The list of parameters is only a remark: the body counts.
  const Graph stale = read_text("ENTRY e (a: f32[3]) -> f32[2] { ROOT a = f32[2] parameter(0) }");
  ASSERT_EQ(stale.warnings().size(), 1u);
  EXPECT_THAT(stale.warnings()[0], HasSubstr(":1:10: "));
  EXPECT_THAT(stale.warnings()[0], HasSubstr("is f32[3] in the signature, but f32[2] in the body"));
}

TEST(HloTextErrors, CalledComputations) {
  const std::string x = "x = f32[2] parameter(0)\n z = f32[] constant(0)\n";
  EXPECT_THAT(text_error(in_entry(x + "ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=nope")),
              HasSubstr("'nope', which this module does not define"));
  EXPECT_THAT(text_error(in_entry(x + "ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=")),
              HasSubstr("expected the value of attribute 'to_apply'"));
  EXPECT_THAT(text_error(in_entry(x + "ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply={}")),
              HasSubstr("calls 0"));
  EXPECT_THAT(text_error(in_entry(x + "ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=\"a\"")),
              HasSubstr("expected the name of a computation"));
  EXPECT_THAT(text_error(in_entry(x + "ROOT r = f32[] reduce(x, z), dimensions={0}")), HasSubstr("expected to_apply"));
  EXPECT_THAT(text_error("a { p = f32[] parameter(0)\n ROOT c = f32[] call(p), to_apply=b }\n"
                         "b { p = f32[] parameter(0)\n ROOT c = f32[] call(p), to_apply=a }"),
              HasSubstr("in turn"));
  EXPECT_THAT(text_error("a { p = f32[] parameter(0)\n ROOT c = f32[] call(p), to_apply=a }"), HasSubstr("in turn"));
  EXPECT_THAT(
      text_error(
          "a { p = f32[] parameter(0) }\nENTRY e { x = f32[] constant(1)\n ROOT c = f32[] call(x, x), to_apply=a }"),
      HasSubstr("computation of 2 parameters, but 'a' has 1"));
  EXPECT_THAT(
      text_error(
          "a { p = f32[2] parameter(0) }\nENTRY e { x = f32[] constant(1)\n ROOT c = f32[] call(x), to_apply=a }"),
      HasSubstr("f32[] where 'a' has f32[2] as parameter"));
  EXPECT_THAT(text_error("b { p = f32[] parameter(0) }\nENTRY e { x = f32[] constant(1)\n ROOT c = f32[] while(x), "
                         "condition=b, body=b }"),
              HasSubstr("expected pred[]"));
  EXPECT_THAT(
      text_error("b { p = f32[] parameter(0) }\nENTRY e { x = f32[] constant(1)\n ROOT c = f32[] while(x), body=b }"),
      HasSubstr("condition and body"));
}

TEST(HloTextErrors, NotHloText) {
  EXPECT_THAT(text_error(""), HasSubstr("t.hlo:1:1: the input is empty"));
  EXPECT_THAT(text_error(" \n// only a comment\n"), HasSubstr("the input is empty"));
  EXPECT_THAT(text_error("module @jit_f attributes {mhlo.num_partitions = 1 : i32} {"), HasSubstr("StableHLO"));
  EXPECT_THAT(text_error("hlo_module {\n  name: \"m\"\n}"), HasSubstr("protobuf"));
  EXPECT_THAT(text_error("# RUN: x\nname: \"m\""), HasSubstr("protobuf"));
  EXPECT_THAT(text_error("{\"hloModule\": {}}"), HasSubstr("JSON"));
  EXPECT_THAT(text_error(std::string("\x7f"
                                     "ELF\x02\x00\x00",
                                     7)),
              HasSubstr("found '\\x7f'"));
  EXPECT_THAT(text_error("hello world"), HasSubstr("expected a computation"));
  EXPECT_THAT(text_error("HloModule m\n"), HasSubstr("without a computation"));
  EXPECT_THAT(text_error("HloModule m\nENTRY e {}"), HasSubstr("is empty"));
  EXPECT_THAT(text_error(in_entry(std::string("a = f32[] \0constant(1)", 22))), HasSubstr("found '\\x00'"));
  EXPECT_THAT(
      text_error("HloModule a\nENTRY e { x = f32[] constant(1) }\nHloModule b\nENTRY e { x = f32[] constant(1) }"),
      HasSubstr("t.hlo:3:1: a second HloModule"));
}

// Every prefix of a module is refused or is a module itself; none crashes or hangs.
TEST(HloTextErrors, Truncation) {
  const std::string text = kSmall;
  int accepted = 0;
  for (std::size_t n = 0; n < text.size(); ++n) {
    try {
      read_hlo_text(text.substr(0, n), "t.hlo");
      ++accepted;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kData);
    }
  }
  // Only after the end of the first computation, up to the ENTRY keyword, and after the last '}'.
  EXPECT_LE(accepted, 4);
  EXPECT_THAT(text_error(text.substr(0, text.find("dimensions={1}, to") + 12)), HasSubstr("is not closed"));
  EXPECT_THAT(text_error(text.substr(0, text.rfind('}'))), HasSubstr("file ends inside computation 'main'"));
  EXPECT_THAT(text_error("ENTRY e { a = f32[] constant(1), metadata={op_name=\"x"), HasSubstr("not closed"));
  EXPECT_THAT(text_error("ENTRY e { /* x"), HasSubstr("comment"));
}

// Random damage to a valid module: always a graph or a clean error.
TEST(HloTextErrors, RandomDamage) {
  std::mt19937 rng(11);
  const std::string text = kSmall;
  const std::string bytes = "{}()[]\"'%,=/*#<>?:\n\\ abf0129-\x00\xff";
  int refused = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string damaged = text;
    const int changes = 1 + static_cast<int>(rng() % 3);
    for (int i = 0; i < changes; ++i) {
      const std::size_t at = rng() % damaged.size();
      switch (rng() % 3) {
        case 0: damaged[at] = bytes[rng() % bytes.size()]; break;
        case 1: damaged.erase(at, 1 + rng() % 10); break;
        default: damaged.insert(at, 1, bytes[rng() % bytes.size()]);
      }
    }
    try {
      read_hlo_text(damaged, "t.hlo");
    } catch (const Error& e) {
      ASSERT_EQ(e.kind(), ErrorKind::kData) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
}

TEST(HloTextErrors, DeepNestingIsRefusedNotCrashed) {
  std::string text = "ENTRY e { ROOT a = f32[] ";
  for (int i = 0; i < 100000; ++i) text += "tanh(f32[] ";
  EXPECT_THAT(text_error(text), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(text_error(in_entry("a = " + std::string(100000, '(') + " parameter(0)")), HasSubstr("not closed"));
  EXPECT_THAT(text_error(in_entry("a = " + std::string(1000, '(') + std::string(1000, ')') + " parameter(0)")),
              HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(text_error(in_entry("a = f32[] constant(1), x=" + std::string(100000, '{'))), HasSubstr("not closed"));
}

// Inputs that make a careless reader quadratic: a megabyte or two of each takes milliseconds when it is linear, minutes
// when it is not. Processor time, so that a busy machine does not matter.
TEST(HloTextErrors, LongInputsStayLinear) {
  const auto seconds = [](std::string text) {
    const std::clock_t begin = std::clock();
    try {
      read_hlo_text(std::move(text), "t.hlo");
    } catch (const Error&) {
    }
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  const auto repeat = [](const std::string& s, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += s;
    return out;
  };
  const std::vector<std::function<std::string(int)>> makers = {
      [&](int n) { return "ENTRY e { a = f32[] constant(" + repeat("\\\\\"\\", n); },
      [&](int n) { return "ENTRY e { a = f32[] " + repeat("\\\\ ", n); },
      [&](int n) { return "ENTRY e { a = f32[] foo(" + repeat("/* */", n) + ")"; },
      [&](int n) { return "/" + repeat("*", n); },
      [&](int n) { return "ENTRY e { a = (" + repeat("f32[2],", n) + "f32[2]) parameter(0) }"; },
      [&](int n) { return "ENTRY e { a = f32[" + repeat("1,", n) + "1] parameter(0) }"; },
      [&](int n) { return "ENTRY e { a = f32[] parameter(0)" + repeat(",x=1", n) + "}"; },
      [&](int n) { return "ENTRY e { a = f32[] parameter(0) b = () tuple(" + repeat("a,", n) + "a) }"; },
      [&](int n) { return std::string(static_cast<std::size_t>(n) * 5, '\n') + "ENTRY e { a = f32[] tanh(b) }"; },
      [&](int n) {
        std::string s = "ENTRY e {";
        for (int i = 0; i < n / 8; ++i) s += "a" + std::to_string(i) + " = f32[] constant(1) ";
        return s + "}";
      },
      [&](int n) {
        std::string s;
        for (int i = 0; i < n / 8; ++i) s += "c" + std::to_string(i) + " { a = f32[] constant(1) }\n";
        return s;
      },
  };
  for (std::size_t i = 0; i < makers.size(); ++i) EXPECT_LT(seconds(makers[i](400000)), 4.0) << "maker " << i;
}

// ---------------------------------------------------------------------------------------------------- split_modules

TEST(SplitModules, Separators) {
  const std::string text = R"(// RUN: something
HloModule a
// ----------------------
ENTRY e { ROOT x = f32[] constant(1) }

// -----

// expected-error
HloModule b
ENTRY e { ROOT x = f32[] constant(1) }
HloModule c
ENTRY e { ROOT x = f32[] constant(1) }
// -----
// nothing but a comment
/* and
HloModule d
*/
)";
  const std::vector<std::string_view> pieces = split_modules(text);
  ASSERT_EQ(pieces.size(), 3u);
  std::vector<std::string> names;
  for (const std::string_view piece : pieces) names.emplace_back(read_text(std::string(piece)).name());
  EXPECT_THAT(names, ElementsAre("a", "b", "c"));
  EXPECT_EQ(split_modules("").size(), 0u);
  EXPECT_EQ(split_modules(kSmall).size(), 1u);
  EXPECT_EQ(split_modules(kSmall)[0], kSmall);
}

}  // namespace
}  // namespace automap::hlo
