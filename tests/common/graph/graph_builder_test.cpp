#include "common/graph/graph_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "common/base/error.h"

namespace automap::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

InstructionDraft draft(GraphBuilder& b, std::string_view name, std::string_view opcode, std::string_view shape) {
  InstructionDraft d;
  d.name = b.keep(name);
  d.opcode_name = b.keep(opcode);
  d.shape = b.shape(shape);
  return d;
}

TEST(GraphBuilder, TheExampleOfTheHeader) {
  GraphBuilder builder("model.hlo");
  builder.begin_computation("add", /*is_entry=*/false);
  InstructionDraft p;
  p.name = "p";
  p.opcode_name = "parameter";
  p.shape = builder.shape("f32[]");
  p.number = 0;
  const InstructionId id = builder.add(p, {}, {});
  builder.end_computation(id, "");
  const Graph graph = builder.finish();
  EXPECT_EQ(graph.entry().name, "add");
  EXPECT_EQ(graph.instruction(0).opcode, Opcode::kParameter);
}

TEST(GraphBuilder, ErrorsWithoutATextNameTheComputation) {
  GraphBuilder b("m.json");
  b.begin_computation("main", true);
  InstructionDraft d = draft(b, "x", "parameter", "f32[2]");
  d.number = 0;
  const InstructionId x = b.add(d, {}, {});
  const std::vector<InstructionId> operands = {x};
  try {
    b.add(draft(b, "y", "add", "f32[2]"), operands, {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData);
    EXPECT_STREQ(e.what(), "m.json: in computation 'main': add 'y' has 1 operand, expected 2");
  }
}

TEST(GraphBuilder, OperandsMustBeDefinedInTheSameComputation) {
  for (const InstructionId bad : {0, 1, 7, -1}) {
    GraphBuilder b("m.json");
    b.begin_computation("a", false);
    InstructionDraft x = draft(b, "x", "parameter", "f32[]");
    x.number = 0;
    ASSERT_EQ(b.add(x, {}, {}), 0);
    b.end_computation(kNone, "");
    b.begin_computation("b", true);
    const std::vector<InstructionId> operands = {bad};
    EXPECT_THROW(b.add(draft(b, "y", "tanh", "f32[]"), operands, {}), Error) << bad;
  }
}

TEST(GraphBuilder, KeepIsStableForManyAndLargeStrings) {
  GraphBuilder b("x");
  std::mt19937 rng(3);
  std::vector<std::string> originals;
  std::vector<std::string_view> kept;
  for (int i = 0; i < 3000; ++i) {
    const std::size_t size = i % 100 == 0 ? 40000 : rng() % 200;
    originals.push_back(std::string(size, static_cast<char>('a' + i % 26)) + std::to_string(i));
    kept.push_back(b.keep(originals.back()));
  }
  for (std::size_t i = 0; i < kept.size(); ++i) ASSERT_EQ(kept[i], originals[i]);
  EXPECT_EQ(b.keep(""), "");
}

// The name table against std::map, over many computations that reuse names.
TEST(GraphBuilder, NamesAgreeWithAMap) {
  GraphBuilder b("x");
  std::mt19937 rng(5);
  std::size_t found = 0;
  for (int c = 0; c < 60; ++c) {
    b.begin_computation(b.keep("c" + std::to_string(c)), false);
    std::map<std::string, InstructionId> names;
    const int size = 1 + static_cast<int>(rng() % (c % 10 == 9 ? 3000 : 40));
    for (int i = 0; i < size; ++i) {
      const std::string name = "n" + std::to_string(rng() % 5000);
      const auto known = names.find(name);
      ASSERT_EQ(b.find(name), known == names.end() ? kNone : known->second);
      found += known == names.end() ? 0 : 1;
      if (known != names.end()) continue;
      InstructionDraft d = draft(b, name, "constant", "f32[]");
      d.payload = "1";
      names[name] = b.add(d, {}, {});
    }
    b.end_computation(kNone, "");
  }
  EXPECT_GT(found, 100u);
  EXPECT_EQ(b.finish().num_computations(), 60);
}

TEST(GraphBuilder, ShapesAgreeWithAMap) {
  GraphBuilder b("x");
  std::mt19937 rng(9);
  std::map<std::string, ShapeId> known;
  for (int i = 0; i < 20000; ++i) {
    std::string text = rng() % 2 == 0 ? "f32[" : "bf16[";
    const int rank = static_cast<int>(rng() % 4);
    for (int d = 0; d < rank; ++d) text += (d == 0 ? "" : ",") + std::to_string(rng() % 12);
    text += "]";
    const ShapeId id = b.shape(text + (rng() % 2 == 0 ? "{}" : ""));
    const auto [at, is_new] = known.emplace(text, id);
    ASSERT_EQ(at->second, id);
    ASSERT_EQ(b.shape_at(id).text, text);
  }
  EXPECT_EQ(known.size(), static_cast<std::size_t>(b.shape("pred[99]")));  // ids are dense
}

TEST(GraphBuilder, InventedNamesAreUnique) {
  GraphBuilder b("x");
  b.begin_computation("e", true);
  InstructionDraft d;
  d.opcode_name = "constant";
  d.payload = "1";
  d.shape = b.shape("f32[]");
  for (int i = 0; i < 5; ++i) b.add(d, {}, {});
  d.name = "constant.unnamed.2";
  b.add(d, {}, {});
  b.end_computation(kNone, "");
  const Graph g = b.finish();
  std::map<std::string_view, int> count;
  for (InstructionId id = 0; id < g.num_instructions(); ++id) ++count[g.instruction(id).name];
  EXPECT_EQ(count.size(), 6u);
  EXPECT_EQ(count.count(""), 0u);
}

}  // namespace
}  // namespace automap::graph
