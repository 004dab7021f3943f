#include "common/hlo/hlo_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "common/base/error.h"
#include "common/base/files.h"
#include "tests/common/graph/graphs_equal.h"

namespace automap::hlo {

using namespace graph;

namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kRoot = AUTOMAP_SOURCE_DIR;

struct Failure {
  std::string message, hint;
  ErrorKind kind = ErrorKind::kInternal;
};
Failure failure_of(const std::string& bytes) {
  try {
    read_hlo(bytes, "x");
  } catch (const Error& e) {
    return {e.what(), e.hint(), e.kind()};
  }
  return {};
}

TEST(HloReaderTest, RecognisesEveryFormFromItsBytes) {
  EXPECT_EQ(load_hlo(kRoot + "/tests/data/hlo/every_field.hlo").form, HloForm::kText);
  EXPECT_EQ(load_hlo(kRoot + "/tests/data/hlo/every_field.pb").form, HloForm::kProtoBinary);
  EXPECT_EQ(load_hlo(kRoot + "/tests/data/hlo/every_field.json").form, HloForm::kProtoJson);
  EXPECT_EQ(load_hlo(kRoot + "/tests/data/hlo/ast.json").form, HloForm::kAstJson);
  for (const std::string text :
       {"hlo_module {\n  name: \"m\"\n}", "name: \"m\"\ncomputations {\n}", "# comment\nhlo { hlo_module { } }",
        "hlo_module: <\n>", "computations { name: \"c\" }"}) {
    EXPECT_EQ(detect_hlo_form(text, "x"), HloForm::kProtoText) << text;
  }
}

TEST(HloReaderTest, TextsThatStartOddly) {
  const std::string body = "f { ROOT p = f32[2] parameter(0) }";
  for (const std::string before : {"", "\xef\xbb\xbf", "\n\n  ", "// a comment\n", "/* { */ ", "HloModule m\n"}) {
    EXPECT_EQ(detect_hlo_form(before + body, "x"), HloForm::kText) << before;
    EXPECT_EQ(read_hlo(before + body, "x").graph.num_instructions(), 1) << before;
  }
  // Computations may be called like the fields of a message.
  for (const std::string name : {"name", "computations", "hlo", "id"}) {
    EXPECT_EQ(detect_hlo_form(name + " { ROOT p = f32[2] parameter(0) }", "x"), HloForm::kText) << name;
    EXPECT_EQ(detect_hlo_form(name + " (p: f32[2]) -> f32[2] { ROOT p = f32[2] parameter(0) }", "x"), HloForm::kText);
  }
}

TEST(HloReaderTest, GzippedFormsAreTheSameAndTheHashIsOfTheFile) {
  const std::string folder = kRoot + "/fixtures/hlo/";
  const HloModule text = load_hlo(folder + "tiny_mlp.hlo");
  const HloModule binary = load_hlo(folder + "tiny_mlp.pb.gz");
  const HloModule json = load_hlo(folder + "tiny_mlp.json.gz");
  EXPECT_EQ(text.graph.num_instructions(), binary.graph.num_instructions());
  EXPECT_EQ(difference(binary.graph, json.graph), "");
  EXPECT_EQ(binary.sha256, sha256_hex(read_file(folder + "tiny_mlp.pb.gz")));
  EXPECT_NE(binary.sha256, read_hlo(gunzip(read_file(folder + "tiny_mlp.pb.gz"), "x"), "x").sha256);
}

TEST(HloReaderTest, WhatIsNoHloIsNamed) {
  EXPECT_THAT(failure_of("").message, HasSubstr("x: the file is empty"));
  EXPECT_THAT(failure_of("  \n// nothing\n").message, HasSubstr("nothing but blanks and comments"));
  EXPECT_THAT(failure_of(std::string("\xde\xad\xbe\xef\x00\x01", 6)).message, HasSubstr("binary data"));
  EXPECT_THAT(failure_of(std::string("\x89HDF\r\n\x1a\n\0", 9)).message, HasSubstr("HDF5"));
  EXPECT_THAT(failure_of("[1, 2]").message, HasSubstr("x:1:1: this is a JSON array"));
  EXPECT_THAT(failure_of("\x1f\x8b\x08 not really").message, HasSubstr("x"));
  EXPECT_THAT(failure_of("hello world").message, HasSubstr("x:1:"));
  for (const std::string& bytes :
       {std::string(), std::string("\xde\xad\x00", 3), std::string("[1]"), std::string("hi")}) {
    EXPECT_EQ(failure_of(bytes).kind, ErrorKind::kData);
    EXPECT_THAT(failure_of(bytes).hint, HasSubstr("as_text")) << bytes;
  }
}

TEST(HloReaderTest, StableHloIsToldFromTheBytes) {
  for (const std::string text :
       {"module @jit_step attributes {mhlo.num_partitions = 1 : i32} {\n}\n", "module {\n}",
        "#loc0 = loc(unknown)\nmodule {}\n", "// a comment\nmodule @m {}", "func.func @main() { return }",
        "\"builtin.module\"() ({}) : () -> ()", "ML\xefR\x01"}) {
    EXPECT_EQ(detect_hlo_form(text, "x"), HloForm::kStableHlo) << text;
  }
  EXPECT_EQ(detect_hlo_form("module { ROOT p = f32[2] parameter(0) }", "x"), HloForm::kStableHlo);
  EXPECT_EQ(detect_hlo_form("modules { ROOT p = f32[2] parameter(0) }", "x"), HloForm::kText);
}

// A table of jax.export: the place of the table, the list of its fields' places, the table, the array of bytes.
std::string jax_export(const std::string& inside) {
  std::string list("\x22\x00\x08\x00", 4);  // its size, that of the table
  list.resize(0x22, '\0');
  list[30] = 4;  // the module is four bytes behind the table's begin
  std::string table("\x22\x00\x00\x00\x04\x00\x00\x00", 8);
  return std::string("\x26\x00\x00\x00", 4) + list + table + std::string("\x10\x00\x00\x00", 4) + inside;
}

TEST(HloReaderTest, FilesOfJaxExportAreToldByTheModuleInThem) {
  EXPECT_EQ(detect_hlo_form(jax_export("ML\xefR\x01"), "x"), HloForm::kStableHlo);
  EXPECT_NE(failure_of(jax_export("MLIR\x01")).message, "");
  // Cut short, and with places that lie outside, it is no such file, and nothing outside is read.
  const std::string whole = jax_export("ML\xefR");
  for (std::size_t size = 1; size < whole.size(); ++size)
    EXPECT_NE(failure_of(whole.substr(0, size)).message, "") << size;
  for (const std::size_t place : {0u, 30u, 34u, 38u, 42u}) {
    std::string bad = whole;
    for (std::size_t i = 0; i < 4; ++i) bad[place + i] = '\x7f';
    EXPECT_NE(failure_of(bad).message, "") << place;
  }
}

TEST(HloReaderTest, StableHloNeedsJaxlib) {
  const char* const before = std::getenv("AUTOMAP_JAX_PYTHON");
  const std::string kept = before == nullptr ? "" : before;
  ASSERT_EQ(setenv("AUTOMAP_JAX_PYTHON", "/no/such/python", 1), 0);
  const Failure failure = failure_of("module {\n}");
  before == nullptr ? unsetenv("AUTOMAP_JAX_PYTHON") : setenv("AUTOMAP_JAX_PYTHON", kept.c_str(), 1);
  EXPECT_EQ(failure.kind, ErrorKind::kData);
  EXPECT_THAT(failure.message,
              HasSubstr("x: this is StableHLO, of which jaxlib would make HLO; cannot run /no/such/python"));
  EXPECT_THAT(failure.hint, HasSubstr("automap-from-stablehlo) step.mlir -o step.pb"));
}

TEST(HloReaderTest, FilesThatCannotBeRead) {
  for (const std::string& path : {kRoot + "/tests", kRoot + "/no/such/file.hlo"}) {
    try {
      load_hlo(path);
      ADD_FAILURE() << path;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kIo);
      EXPECT_THAT(e.what(), HasSubstr(path));
    }
  }
}

// Real modules: figures of the sources that the JSON files and the text form of the same modules state.
TEST(HloReaderCorpusTest, JsonAndBinaryModules) {
  const char* const root = std::getenv("AUTOMAP_CORPUS");
  if (root == nullptr) GTEST_SKIP() << "AUTOMAP_CORPUS is not set: real modules are not read";
  const std::string hlo = std::string(root) + "/hlo/";
  struct Expected {
    const char* file;
    HloForm form;
    int instructions, computations;
  };
  for (const Expected& e :
       {Expected{"json/aot_reduce_scatter_2gpu.hloproto.min.json", HloForm::kProtoJson, 18, 4},
        Expected{"json/jax_sharded_lambda.hloproto.min.json", HloForm::kProtoJson, 4, 1},
        Expected{"json/jax_sharded_lambda.hloproto.defaults.json", HloForm::kProtoJson, 4, 1},
        Expected{"json/jax_sharded_lambda.hloproto.snake.json", HloForm::kProtoJson, 4, 1},
        Expected{"json/tpugraphs_main_10904.hloproto.min.json", HloForm::kProtoJson, 3163, 143},
        Expected{"json/tpugraphs_op_0_fusion.232.hloproto.defaults.json", HloForm::kProtoJson, 20, 3},
        Expected{"json/tpugraphs_op_2_fusion.261.hloproto.defaults.json", HloForm::kProtoJson, 52, 4},
        Expected{"json/tpugraphs_op_5_fusion.245.hloproto.defaults.json", HloForm::kProtoJson, 21, 3},
        Expected{"proto/tpugraphs_module_tuning_data_layout.pb", HloForm::kProtoBinary, 3163, 143}}) {
    const HloModule module = load_hlo(hlo + e.file);
    EXPECT_EQ(module.form, e.form) << e.file;
    EXPECT_EQ(module.graph.num_instructions(), e.instructions) << e.file;
    EXPECT_EQ(module.graph.num_computations(), e.computations) << e.file;
  }
  EXPECT_EQ(difference(load_hlo(hlo + "proto/tpugraphs_module_tuning_data_layout.pb").graph,
                       load_hlo(hlo + "json/tpugraphs_main_10904.hloproto.min.json").graph),
            "");
  const HloModule text = load_hlo(hlo + "proto/sharded_unoptimized_hlo_snapshot.pbtxt");
  EXPECT_EQ(text.form, HloForm::kProtoText);
  EXPECT_EQ(difference(text.graph, load_hlo(hlo + "json/jax_sharded_lambda.hloproto.min.json").graph), "");
  const Graph sharded = load_hlo(hlo + "json/jax_sharded_lambda.hloproto.min.json").graph;
  for (const char* other : {"defaults", "snake"}) {
    EXPECT_EQ(difference(sharded, load_hlo(hlo + "json/jax_sharded_lambda.hloproto." + other + ".json").graph), "");
  }
}

}  // namespace
}  // namespace automap::hlo
