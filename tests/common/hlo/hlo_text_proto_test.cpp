#include "common/hlo/hlo_text_proto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/hlo/hlo_reader.h"
#include "tests/common/graph/graphs_equal.h"
#include "tests/data_folders.h"

namespace automap::hlo {

using namespace graph;

namespace {

using testing::HasSubstr;

std::string text_proto_error(const std::string& text) {
  try {
    read_hlo_as(HloForm::kProtoText, text, "m.pbtxt");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData) << e.what();
    return e.what();
  }
  return "";
}

std::string text_proto_module(const std::string& instructions) {
  return "name: \"m\"\ncomputations {\n name: \"c\" id: 4 root_id: 1\n" + instructions + "\n}\n";
}
const std::string kTextProtoParameter =
    "instructions { name: \"p\" opcode: \"parameter\" id: 1 shape { element_type: F32 dimensions: 2 dimensions: 3 } }";

TEST(HloTextProtoTest, EqualsTheBinaryFormOfEveryField) {
  for (const std::string name : {"every_field", "literals"}) {
    const HloModule text = load_hlo(kHloData + name + ".pbtxt.gz");
    EXPECT_EQ(text.form, HloForm::kProtoText);
    EXPECT_EQ(difference(load_hlo(kHloData + name + ".pb").graph, text.graph, {"nans"}), "") << name;
  }
}

TEST(HloTextProtoTest, AllWaysToWriteTheSame) {
  const Graph graph =
      read_hlo(
          "# a comment\nhlo_module: < name: 'm', computations { root_id: 0x2; id: 010 name: \"\\143\" 'd'\n"
          "  future_field { a: [1, { b: <c: 'x}'>}] } [some.extension] { z: -1.5e+3 } other: -inf\n"
          "  instructions { name: \"p\" opcode: \"parameter\" id: 1 shape { element_type: 11 dimensions: [2, 3] } }\n"
          "  instructions { name: \"n\" opcode: \"negate\" id: 2 operand_ids: [1] is_stable: True\n"
          "    shape < element_type: F32 dimensions: 2, dimensions: 3 > metadata { op_name: \"a\\\"b\" \"c\" } }\n"
          "} >",
          "m.pbtxt")
          .graph;
  EXPECT_EQ(graph.num_instructions(), 2);
  EXPECT_EQ(graph.entry().name, "cd");
  EXPECT_EQ(graph.op_name(1), "a\"bc");
  EXPECT_EQ(graph.attribute(1, "is_stable"), "true");
  EXPECT_EQ(graph.instruction(graph.entry().root).name, "n");
}

// The first instruction of a computation may be one, too.
TEST(HloTextProtoTest, PredecessorsAreNamed) {
  const Graph graph = read_hlo_as(
      HloForm::kProtoText,
      text_proto_module(kTextProtoParameter +
                        "instructions { name: \"n\" opcode: \"negate\" id: 2 operand_ids: 1 "
                        "control_predecessor_ids: 1 shape { element_type: F32 dimensions: 2 dimensions: 3 } }"),
      "m.pbtxt");
  EXPECT_EQ(graph.attribute(1, "control-predecessors"), "{%p}");
}

TEST(HloTextProtoTest, ErrorsHaveLineAndColumn) {
  EXPECT_THAT(text_proto_error(text_proto_module("instructions { name 5 }")),
              HasSubstr("m.pbtxt:4:21: found '5', expected ':'"));
  EXPECT_THAT(text_proto_error(text_proto_module("instructions { name: 5 }")),
              HasSubstr("expected a string for HloInstructionProto.name"));
  EXPECT_THAT(text_proto_error(text_proto_module("instructions { id: \"x\" }")),
              HasSubstr("expected a value of HloInstructionProto.id"));
  EXPECT_THAT(text_proto_error(text_proto_module("instructions { id: one }")),
              HasSubstr("found 'one', expected an integer"));
  EXPECT_THAT(text_proto_error(text_proto_module("instructions { id: 99999999999999999999 }")),
              HasSubstr("expected an integer"));
  EXPECT_THAT(text_proto_error(text_proto_module("instructions { id: [1] }")), HasSubstr("is one value, found a list"));
  EXPECT_THAT(text_proto_error(text_proto_module("instructions { epsilon: small }")), HasSubstr("expected a number"));
  EXPECT_THAT(text_proto_error(text_proto_module("instructions: 5")),
              HasSubstr("expected '{' of HloComputationProto.instructions"));
  EXPECT_THAT(text_proto_error(text_proto_module("instructions { name: \"p }")), HasSubstr("does not end on its line"));
  EXPECT_THAT(text_proto_error(text_proto_module("instructions {")), HasSubstr("the end of the file"));
  EXPECT_THAT(text_proto_error(text_proto_module(kTextProtoParameter) + "}"),
              HasSubstr("found '}', expected the name of a field"));
  EXPECT_THAT(text_proto_error("name: \"m\""), HasSubstr("no HloModuleProto"));
  EXPECT_THAT(text_proto_error("a { " + text_proto_module(kTextProtoParameter) + " } b { " +
                               text_proto_module(kTextProtoParameter) + " }"),
              HasSubstr("a second HLO module"));
  EXPECT_EQ(text_proto_error(text_proto_module(kTextProtoParameter)), "");
}

TEST(HloTextProtoTest, LimitsNesting) {
  std::string shape = "shape { element_type: F32 ", unknown = "unheard_of { ";
  for (int i = 0; i < 300; ++i) shape += "tuple_shapes { element_type: TUPLE ";
  const std::string deep =
      "instructions { name: \"p\" opcode: \"parameter\" id: 1 " + shape + std::string(301, '}') + "}";
  EXPECT_THAT(text_proto_error(text_proto_module(deep)), HasSubstr("levels deep"));
  // Fields that nobody reads may be nested to any depth.
  std::string nested;
  for (int i = 0; i < 100000; ++i) nested += unknown;
  EXPECT_EQ(text_proto_error(text_proto_module(kTextProtoParameter) + nested + std::string(100000, '}')), "");
}

TEST(HloTextProtoTest, EveryTruncationIsAGraphOrAnErrorWithAPlace) {
  const std::string whole = gunzip(read_file(kHloData + "every_field.pbtxt.gz"), "x");
  for (std::size_t size = 1; size < whole.size(); size += size < 200 ? 1 : 307) {
    EXPECT_THAT(text_proto_error(whole.substr(0, size)), HasSubstr("m.pbtxt")) << size;
  }
}

}  // namespace
}  // namespace automap::hlo
