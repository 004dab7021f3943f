#include "common/hlo/hlo_json.h"

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

std::string json_error(const std::string& text) {
  try {
    read_hlo(text, "m.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData) << e.what();
    return e.what();
  }
  return "";
}

// One computation with these instructions.
std::string json_module(const std::string& instructions, const std::string& more = "\"rootId\": \"1\"") {
  return "{\"hloModule\": {\"name\": \"m\", \"computations\": [{\"name\": \"c\", \"id\": 4, " + more +
         ", \"instructions\": [" + instructions + "]}]}}";
}
const char kShape[] = R"("shape": {"elementType": "F32", "dimensions": ["2", 3]})";
std::string parameter(const std::string& more = "\"id\": \"1\"") {
  return std::string(R"({"name": "p", "opcode": "parameter", )") + kShape + ", " + more + "}";
}

TEST(HloJsonTest, EverySpellingEqualsTheTextOfEveryField) {
  const Graph text = load_hlo(kHloData + "every_field.hlo").graph;
  // Minimal, with every default written out (gzipped), with the names of the .proto file and without the wrapper.
  for (const char* name : {"every_field.json", "every_field.full.json.gz", "every_field.snake.json"}) {
    const HloModule json = load_hlo(kHloData + name);
    EXPECT_EQ(json.form, HloForm::kProtoJson) << name;
    EXPECT_EQ(difference(text, json.graph), "") << name;
  }
}

TEST(HloJsonTest, LiteralsOfEveryTypeEqualTheBinaryForm) {
  const Graph binary = load_hlo(kHloData + "literals.pb").graph;
  const Graph json = load_hlo(kHloData + "literals.json").graph;
  // JSON has one NaN: its payload and sign are lost.
  EXPECT_EQ(difference(binary, json, {"nans"}), "");
  EXPECT_THAT(difference(binary, json), HasSubstr("'{-nan, nan(0x123)}' and '{nan, nan}'"));
}

TEST(HloJsonTest, IntegersAsNumbersOrStringsAnyFieldOrderAndNull) {
  const Graph graph =
      read_hlo(R"({"future": {"x": [1, {"y": "z"}]}, "hlo_module": {"computations": [{"root_id": 2.0, "id": 1e1,
        "instructions": [
          {"opcode": "parameter", "id": 1, "shape": {"dimensions": [2, "3"], "element_type": 11, "layout": null},
           "metadata": {"op_name": "x\"y"}, "name": "p", "parameter_number": null},
          {"operandIds": ["1"], "name": "n", "id": "2", "opcode": "negate", "unheardOf": [[[]]],
           "shape": {"element_type": "F32", "dimensions": ["2", "3"]}}],
        "name": "c"}], "name": "m", "entry_computation_id": "10"}})",
               "m.json")
          .graph;
  EXPECT_EQ(graph.num_instructions(), 2);
  EXPECT_EQ(graph.shape_of(1).text, "f32[2,3]");
  EXPECT_EQ(graph.op_name(0), "x\"y");
  EXPECT_EQ(graph.instruction(graph.entry().root).opcode, Opcode::kNegate);
}

TEST(HloJsonTest, PackedIdsOf64BitsAreExact) {
  // 2^62 + 1 and 2^62 + 2 are the same double.
  const Graph graph =
      read_hlo(
          json_module(
              parameter("\"id\": \"4611686018427387905\"") + ", " +
                  R"({"name": "n", "opcode": "negate", "id": "4611686018427387906", "operandIds": [4611686018427387905], )" +
                  kShape + "}",
              "\"rootId\": 4611686018427387906"),
          "m.json")
          .graph;
  EXPECT_EQ(graph.instruction(graph.entry().root).name, "n");
}

TEST(HloJsonTest, AScheduleSaysThatTheModuleIsScheduled) {
  const std::string text =
      "{\"schedule\": {\"sequences\": {\"4\": {\"instructionIds\": [\"1\"]}}}, \"name\": \"m\", "
      "\"computations\": [{\"name\": \"c\", \"id\": 4, \"rootId\": 1, \"instructions\": [" +
      parameter() + "]}]}";
  EXPECT_EQ(read_hlo(text, "m.json").graph.header_attribute("is_scheduled"), "true");
  EXPECT_FALSE(read_hlo(json_module(parameter()), "m.json").graph.header_attribute("is_scheduled").has_value());
}

TEST(HloJsonTest, UnknownElementTypesKeepTheirName) {
  const Graph graph =
      read_hlo(
          json_module(
              R"({"name": "p", "opcode": "parameter", "id": 1, "shape": {"elementType": "F12E5M6", "dimensions": [8]}})"),
          "m.json")
          .graph;
  EXPECT_EQ(graph.shape_of(0).text, "f12e5m6[8]");
  EXPECT_EQ(graph.shape_of(0).type, ElementType::kUnknown);
  EXPECT_EQ(graph.shape_of(0).bytes, 12);
  EXPECT_THAT(
      json_error(json_module(R"({"name": "p", "opcode": "parameter", "id": 1, "shape": {"elementType": "F 32"}})")),
      HasSubstr("expected the name of an element type"));
}

TEST(HloJsonTest, BytesAreBase64) {
  const std::string shape = R"("shape": {"elementType": "BF16", "dimensions": [2]})";
  const auto constant = [&](const std::string& base64) {
    return json_module(R"({"name": "k", "opcode": "constant", "id": 1, )" + shape + R"(, "literal": {"bf16s": ")" +
                       base64 + "\"}}");
  };
  EXPECT_EQ(read_hlo(constant("gD8AQA=="), "m.json").graph.instruction(0).payload, "{1, 2}");
  EXPECT_EQ(read_hlo(constant("gD8AQA"), "m.json").graph.instruction(0).payload, "{1, 2}");
  EXPECT_THAT(json_error(constant("gD8*QA==")), HasSubstr("LiteralProto.bf16s is not base64"));
  EXPECT_THAT(json_error(constant("gD8=")), HasSubstr("literal has 1 elements, its shape 2"));
}

TEST(HloJsonTest, WrongKindsNameTheFieldAndThePlace) {
  EXPECT_THAT(json_error("{\"hloModule\":\n {\"computations\": 5}}"),
              HasSubstr("m.json:2:19: HloModuleProto.computations: found a number, expected an array"));
  EXPECT_THAT(json_error(json_module(R"({"name": 7})")),
              HasSubstr("HloInstructionProto.name: found a number, expected a string"));
  EXPECT_THAT(json_error(json_module(parameter("\"id\": \"one\""))),
              HasSubstr("HloInstructionProto.id: found 'one', expected an integer"));
  EXPECT_THAT(json_error(json_module(parameter("\"id\": 1.5"))), HasSubstr("expected an integer of 64 bits"));
  EXPECT_THAT(json_error(json_module(parameter("\"id\": \"99999999999999999999\""))), HasSubstr("expected an integer"));
  EXPECT_THAT(json_error(json_module(parameter("\"isStable\": \"perhaps\""))), HasSubstr("expected true or false"));
  EXPECT_THAT(json_error(json_module(parameter("\"id\": 1, \"epsilon\": \"small\""))), HasSubstr("expected a number"));
  EXPECT_THAT(json_error(json_module("5")), HasSubstr("HloInstructionProto: found a number, expected an object"));
}

TEST(HloJsonTest, GarbageHasLineAndColumn) {
  EXPECT_THAT(json_error("{\"hloModule\": {\n  \"name\": \"m\",,\n}}"), HasSubstr("m.json:2:15: found ','"));
  EXPECT_THAT(json_error("{\"a\": 1}"), HasSubstr("no HLO module in this JSON"));
  EXPECT_THAT(json_error("{\"a\": 1, \"b\": {}}"), HasSubstr("its keys are a, b"));
  EXPECT_THAT(json_error("{}"), HasSubstr("no HLO module in this JSON"));
  EXPECT_THAT(json_error("{\"hloModule\": {\"computations\": []}} x"), HasSubstr("found 'x', expected nothing more"));
  EXPECT_THAT(json_error("{\"hloModule\": {\"computations\": []}}"), HasSubstr("no computations"));
  EXPECT_THAT(json_error(json_module("")), HasSubstr("no instructions"));
  const std::string module = "{\"computations\": []}";
  EXPECT_THAT(json_error("{\"hloModules\": [" + module + ", " + module + "]}"), HasSubstr("a second HLO module"));
}

TEST(HloJsonTest, LimitsNesting) {
  std::string shape = "{\"elementType\": \"F32\"}";
  for (int i = 0; i < 300; ++i) shape = "{\"elementType\": \"TUPLE\", \"tupleShapes\": [" + shape + "]}";
  EXPECT_THAT(
      json_error(json_module("{\"name\": \"p\", \"opcode\": \"parameter\", \"id\": 1, \"shape\": " + shape + "}")),
      HasSubstr("levels deep"));
}

TEST(HloJsonTest, EveryTruncationIsAnErrorWithAPlace) {
  const std::string whole = read_file(kHloData + "every_field.json");
  for (std::size_t size = 1; size < whole.size(); size += size < 300 ? 1 : 211) {
    EXPECT_THAT(json_error(whole.substr(0, size)), HasSubstr("m.json:1:")) << size;
  }
}

TEST(HloJsonTest, DamagedBytesGiveAGraphOrAnError) {
  const std::string whole = read_file(kHloData + "every_field.snake.json");
  std::uint32_t state = 99;
  const std::string characters = "{}[]\",:0-9aeE.\\ ";
  for (int round = 0; round < 400; ++round) {
    std::string damaged = whole;
    for (int k = 0; k < 1 + round % 3; ++k) {
      state = state * 1664525 + 1013904223;
      const std::size_t at = (state >> 8) % damaged.size();
      state = state * 1664525 + 1013904223;
      damaged[at] = characters[(state >> 16) % characters.size()];
    }
    try {
      read_hlo(damaged, "m.json");
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kData) << e.what();
    }
  }
}

}  // namespace
}  // namespace automap::hlo
