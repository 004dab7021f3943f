#include "common/hlo/hlo_ast_json.h"

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

std::string ast_json_error(const std::string& text) {
  try {
    read_ast_json(text, "m.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData) << e.what();
    return e.what();
  }
  return "";
}

const char kScalar[] = R"({"DataType": "f32", "Dimensions": null})";

std::string function(const std::string& name, const std::string& body, const std::string& more = "") {
  return "{\"Name\": \"" + name + "\", \"Params\": null, \"ReturnType\": " + kScalar + more + ", \"Body\": [" + body +
         "]}";
}
std::string ast_instruction(const std::string& name, const std::string& opcode, const std::string& arguments = "",
                            const std::string& meta = "") {
  return "{\"VarName\": \"" + name + "\", \"Fn\": {\"ReturnType\": " + kScalar + ", \"Name\": \"" + opcode +
         "\", \"Argument\": [" + arguments + "]}, \"Meta\": [" + meta + "]}";
}
std::string operand(const std::string& name) {
  return "{\"Value\": {\"String\": \"" + name + "\"}}";
}
std::string integer(int value) {
  return "{\"Value\": {\"Integer\": " + std::to_string(value) + "}}";
}
std::string document(const std::string& functions) {
  return "{\"Functions\": [" + functions + "]}";
}

const std::string kAstParameter = ast_instruction("%p", "parameter", integer(0));

TEST(HloAstJsonTest, EqualsTheTextItWasMadeFrom) {
  const HloModule ast = load_hlo(kHloData + "ast.json");
  EXPECT_EQ(ast.form, HloForm::kAstJson);
  EXPECT_EQ(difference(load_hlo(kHloData + "ast.hlo").graph, ast.graph), "");
}

TEST(HloAstJsonTest, OlderNamesOfTheSameThings) {
  const Graph graph = read_ast_json(
      document(function("%f", ast_instruction("%p", "parameter", R"({"Value": {"Number": 0}})") + "," +
                                  ast_instruction("%b", "broadcast", R"({"Type": null, "Name": "%p"})",
                                                  R"({"Key": "dimensions", "Value": {"Numbers": null}})"))),
      "m.json");
  EXPECT_EQ(graph.attribute(1, "dimensions"), "{}");
  EXPECT_EQ(graph.operands(1)[0], 0);
}

TEST(HloAstJsonTest, TheEntryIsTheLastFunctionThatNobodyCalls) {
  const std::string callee = function("%callee", kAstParameter + "," + ast_instruction("%n", "negate", operand("%p")));
  const std::string entry = function(
      "%main",
      kAstParameter + "," +
          ast_instruction("%k", "call", operand("%p"), R"({"Key": "to_apply", "Value": {"String": "%callee"}})"));
  EXPECT_EQ(read_ast_json(document(callee + "," + entry), "m").entry().name, "main");
  EXPECT_EQ(read_ast_json(document(entry + "," + callee), "m").entry().name, "main");
}

TEST(HloAstJsonTest, TheRootIsTheLastInstructionOrAnUnusedOneOfTheReturnType) {
  const std::string flag = R"({"VarName": "%c", "Fn": {"ReturnType": {"DataType": "pred"}, "Name": "compare",)"
                           R"("Argument": [)" +
                           operand("%p") + "," + operand("%p") +
                           R"(]}, "Meta": [{"Key": "direction", "Value": {"String": "EQ"}}]})";
  const Graph graph = read_ast_json(
      document(function("%f", kAstParameter + "," + ast_instruction("%n", "negate", operand("%p")) + "," + flag)), "m");
  EXPECT_EQ(graph.instruction(graph.entry().root).name, "n");
}

TEST(HloAstJsonTest, ParametersWithoutInstructionsAreMade) {
  const std::string params =
      std::string(R"(, "Params": [{"Name": "a", "Type": )") + kScalar + R"(}, {"Name": "b", "Type": )" + kScalar + "}]";
  const Graph graph =
      read_ast_json(document("{\"Name\": \"%f\", \"ReturnType\": " + std::string(kScalar) + params + ", \"Body\": [" +
                             ast_instruction("%s", "add", operand("%a") + "," + operand("%b")) + "]}"),
                    "m");
  EXPECT_EQ(graph.entry().parameters.size(), 2u);
  EXPECT_EQ(graph.num_instructions(), 3);
}

TEST(HloAstJsonTest, ErrorsNameThePlace) {
  EXPECT_THAT(ast_json_error("{\"Functions\": [\n{\"Name\": 5}]}"),
              HasSubstr("m.json:2:10: found '5', expected a string"));
  EXPECT_THAT(ast_json_error(document("")), HasSubstr("no computations"));
  EXPECT_THAT(ast_json_error("{\"Functions\": []} x"), HasSubstr("expected nothing more"));
  EXPECT_THAT(
      ast_json_error(document(function("%f", kAstParameter + "," + ast_instruction("%n", "negate", operand("%q"))))),
      HasSubstr("'%n' reads '%q', which is not defined before it"));
  EXPECT_THAT(ast_json_error(document(function("%f", ast_instruction("%p", "parameter")))),
              HasSubstr("no valid number"));
  EXPECT_THAT(ast_json_error(document(function("%f", R"({"VarName": "%x"})"))), HasSubstr("without an opcode"));
  EXPECT_THAT(ast_json_error(document(function("%f", ""))), HasSubstr("is empty"));
  EXPECT_THAT(ast_json_error(document(function("%f", kAstParameter + "," + kAstParameter))), HasSubstr("'p'"));
  EXPECT_THAT(ast_json_error(document(function("", kAstParameter))), HasSubstr("without a \"Name\""));
}

TEST(HloAstJsonTest, LimitsNesting) {
  std::string type = kScalar, value = R"({"Integer": 1})";
  for (int i = 0; i < 100; ++i) {
    type = "{\"TupleType\": [" + type + "]}";
    value = "{\"Collection\": [" + value + "]}";
  }
  EXPECT_THAT(ast_json_error("{\"Functions\": [{\"ReturnType\": " + type + "}]}"), HasSubstr("64 levels deep"));
  EXPECT_THAT(ast_json_error(document(
                  function("%f", ast_instruction("%x", "iota", "", "{\"Key\": \"k\", \"Value\": " + value + "}")))),
              HasSubstr("64 levels deep"));
}

TEST(HloAstJsonTest, EveryTruncationIsAnError) {
  const std::string whole = read_file(kHloData + "ast.json");
  for (std::size_t size = 14; size < whole.size(); size += 13) {
    EXPECT_THAT(ast_json_error(whole.substr(0, size)), HasSubstr("m.json:1:")) << size;
  }
}

}  // namespace
}  // namespace automap::hlo
