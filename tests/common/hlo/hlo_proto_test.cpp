#include "common/hlo/hlo_proto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/hlo/hlo_json.h"
#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_text.h"
#include "common/hlo/hlo_writer.h"
#include "common/hlo/proto_attributes.h"
#include "common/hlo/proto_graph.h"
#include "tests/common/graph/graphs_equal.h"
#include "tests/data_folders.h"

namespace automap::hlo {

using namespace graph;

namespace {

using testing::HasSubstr;

// Writes protobuf fields by hand, so that the tests do not depend on what they test.
class Message {
 public:
  Message& number(int field, std::uint64_t value) {
    varint(static_cast<std::uint64_t>(field) << 3);
    varint(value);
    return *this;
  }
  Message& text(int field, const std::string& value) {
    varint((static_cast<std::uint64_t>(field) << 3) | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return text(field, value.bytes_); }
  Message& fixed32(int field, std::uint32_t value) {
    varint((static_cast<std::uint64_t>(field) << 3) | 5);
    for (int i = 0; i < 4; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>((value & 0x7f) | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  std::string bytes_;
};

constexpr int kF32 = 11;

Message f32_shape(const std::vector<std::uint64_t>& dims) {
  Message m;
  m.number(2, kF32);
  for (const std::uint64_t d : dims) m.number(3, d);
  return m;
}

Message proto_instruction(const std::string& name, const std::string& opcode, std::uint64_t id,
                          const std::vector<std::uint64_t>& operands = {}) {
  Message m;
  m.text(1, name).text(2, opcode).message(3, f32_shape({2, 3})).number(35, id);
  for (const std::uint64_t o : operands) m.number(36, o);
  return m;
}

Message computation(const std::string& name, std::uint64_t id, std::uint64_t root,
                    const std::vector<Message>& instructions) {
  Message m;
  m.text(1, name);
  for (const Message& i : instructions) m.message(2, i);
  return m.number(5, id).number(6, root);
}

Message proto_module(const std::vector<Message>& computations) {
  Message m;
  m.text(1, "m");
  for (const Message& c : computations) m.message(3, c);
  return m;
}

// p(1) -> negate(2), root.
Message small_module() {
  return proto_module(
      {computation("c", 7, 2, {proto_instruction("p", "parameter", 1), proto_instruction("n", "negate", 2, {1})})});
}

Graph read_message(const Message& m) {
  return read_hlo(m.bytes(), "m.pb").graph;
}

std::string proto_error(const std::string& bytes) {
  try {
    read_hlo(bytes, "m.pb");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData) << e.what();
    return e.what();
  }
  return "";
}
std::string proto_error(const Message& m) {
  return proto_error(m.bytes());
}

TEST(HloProtoTest, AllWrappersEqualTheTextOfEveryField) {
  const HloModule text = load_hlo(kHloData + "every_field.hlo");
  EXPECT_EQ(text.form, HloForm::kText);
  EXPECT_EQ(text.graph.num_instructions(), 75);
  for (const char* name : {"every_field.module.pb", "every_field.pb", "every_field.snapshot.pb"}) {
    const HloModule binary = load_hlo(kHloData + name);
    EXPECT_EQ(binary.form, HloForm::kProtoBinary);
    EXPECT_EQ(difference(text.graph, binary.graph), "") << name;
  }
}

TEST(HloProtoTest, LiteralsOfEveryTypeEqualTheText) {
  const HloModule text = load_hlo(kHloData + "literals.hlo");
  EXPECT_EQ(difference(text.graph, load_hlo(kHloData + "literals.pb").graph), "");
}

TEST(HloProtoTest, WrittenAsTextAndReadBackIsTheSame) {
  for (const char* name : {"every_field.pb", "literals.pb"}) {
    const Graph graph = load_hlo(kHloData + name).graph;
    EXPECT_EQ(difference(graph, read_hlo(write_hlo_text(graph), name).graph), "") << name;
  }
}

TEST(HloProtoTest, ModuleInsideAnyWrapper) {
  const Message inner = small_module();
  EXPECT_EQ(read_message(inner).num_instructions(), 2);
  Message proto, snapshot, tuning;
  proto.message(1, inner);
  snapshot.message(1, proto).text(4, "cpu");
  EXPECT_EQ(read_message(snapshot).num_instructions(), 2);
  tuning.number(9, 3).text(2, "fingerprint").message(1, snapshot);
  EXPECT_EQ(read_message(tuning).num_instructions(), 2);
  Message group;
  group.text(1, "group").message(2, inner).message(2, inner);
  EXPECT_THAT(proto_error(group), HasSubstr("holds 2 HLO modules"));
  EXPECT_THAT(proto_error(Message().text(1, "hello").number(2, 5)), HasSubstr("no HloModuleProto"));
}

TEST(HloProtoTest, ResolvesPackedIdsByTheirLow32Bits) {
  const std::uint64_t high = std::uint64_t{7} << 32;
  const Graph graph = read_message(proto_module({computation(
      "c", 7, high | 2, {proto_instruction("p", "parameter", high | 1), proto_instruction("n", "negate", 2, {1})})}));
  EXPECT_EQ(graph.instruction(graph.entry().root).name, "n");
  EXPECT_EQ(graph.operands(graph.entry().root)[0], graph.entry().parameters[0]);
}

TEST(HloProtoTest, AnExactIdWinsOverItsLowBits) {
  // Ids 1 and 2^32 + 1: the reference 1 is exact.
  const std::uint64_t far = (std::uint64_t{1} << 32) | 1;
  Message second = proto_instruction("q", "parameter", far);
  second.number(9, 1);
  const Graph graph = read_message(proto_module({computation(
      "c", 7, 5, {proto_instruction("p", "parameter", 1), second, proto_instruction("n", "subtract", 5, {far, 1})})}));
  const auto operands = graph.operands(graph.entry().root);
  EXPECT_EQ(graph.instruction(operands[0]).name, "q");
  EXPECT_EQ(graph.instruction(operands[1]).name, "p");
}

TEST(HloProtoTest, AMissingIdIsZero) {
  Message p;
  p.text(1, "p").text(2, "parameter").message(3, f32_shape({2, 3}));
  Message n;
  n.text(1, "n").text(2, "negate").message(3, f32_shape({2, 3})).number(35, 1).number(36, 0);
  Message c;
  c.text(1, "c").message(2, p).message(2, n).number(6, 1);
  EXPECT_EQ(read_message(proto_module({c})).num_instructions(), 2);
}

TEST(HloProtoTest, PutsOperandsBeforeTheirUsers) {
  const Graph graph = read_message(
      proto_module({computation("c", 7, 3,
                                {proto_instruction("s", "add", 3, {2, 1}), proto_instruction("n", "negate", 2, {1}),
                                 proto_instruction("p", "parameter", 1)})}));
  ASSERT_EQ(graph.num_instructions(), 3);
  EXPECT_EQ(graph.instruction(0).name, "p");
  EXPECT_EQ(graph.instruction(1).name, "n");
  EXPECT_EQ(graph.instruction(graph.entry().root).name, "s");
}

TEST(HloProtoTest, RefusesCycles) {
  EXPECT_THAT(proto_error(proto_module(
                  {computation("c", 7, 3,
                               {proto_instruction("p", "parameter", 1), proto_instruction("a", "add", 2, {1, 3}),
                                proto_instruction("b", "negate", 3, {2})})})),
              HasSubstr("depends on itself"));
  EXPECT_THAT(proto_error(proto_module({computation("c", 7, 2, {proto_instruction("a", "negate", 2, {2})})})),
              HasSubstr("depends on itself"));
}

TEST(HloProtoTest, RefusesIdsThatNameNothingOrTwoThings) {
  EXPECT_THAT(proto_error(proto_module({computation("c", 7, 2, {proto_instruction("n", "negate", 2, {9})})})),
              HasSubstr("operand id 9 of 'n' names no instruction"));
  EXPECT_THAT(proto_error(proto_module({computation("c", 7, 9, {proto_instruction("p", "parameter", 1)})})),
              HasSubstr("root_id 9 names no instruction"));
  EXPECT_THAT(proto_error(proto_module({computation("c", 7, 0, {proto_instruction("p", "parameter", 1)})})),
              HasSubstr("no root_id"));
  EXPECT_THAT(proto_error(proto_module({computation(
                  "c", 7, 1, {proto_instruction("p", "parameter", 1), proto_instruction("q", "parameter", 1)})})),
              HasSubstr("the same id 1"));
  EXPECT_THAT(proto_error(proto_module({computation("c", 7, 1, {proto_instruction("p", "parameter", 1)}),
                                        computation("d", 7, 1, {proto_instruction("p", "parameter", 1)})})),
              HasSubstr("the same id 7"));
  EXPECT_THAT(proto_error(proto_module({computation(
                  "c", 7, 2,
                  {proto_instruction("p", "parameter", 1), proto_instruction("k", "call", 2, {1}).number(38, 99)})})),
              HasSubstr("called computation id 99 of 'k'"));
}

TEST(HloProtoTest, TheEntryIsTheNamedComputationElseTheLast) {
  const std::vector<Message> two = {computation("a", 1, 1, {proto_instruction("p", "parameter", 1)}),
                                    computation("b", 2, 1, {proto_instruction("p", "parameter", 1)})};
  EXPECT_EQ(read_message(proto_module(two)).entry().name, "b");
  EXPECT_EQ(read_message(proto_module(two).text(2, "a")).entry().name, "a");
  EXPECT_EQ(read_message(proto_module(two).number(6, 1)).entry().name, "a");
  EXPECT_EQ(read_message(proto_module(two).number(6, 2).text(2, "a")).entry().name, "a");
  EXPECT_THAT(proto_error(proto_module(two).text(2, "z")), HasSubstr("entry computation 'z' is not in the module"));
  EXPECT_THAT(proto_error(proto_module(two).number(6, 9)), HasSubstr("id 9 names no computation"));
}

TEST(HloProtoTest, ComputationsOfTheSameNameAreToldApartById) {
  const Graph graph = read_message(proto_module(
      {computation("f", 1, 2, {proto_instruction("p", "parameter", 1), proto_instruction("n", "negate", 2, {1})}),
       computation("f", 2, 2, {proto_instruction("p", "parameter", 1), proto_instruction("n", "abs", 2, {1})}),
       computation("e", 3, 2,
                   {proto_instruction("p", "parameter", 1), proto_instruction("k", "call", 2, {1}).number(38, 2)})}));
  const ComputationId callee = graph.called(graph.entry().root)[0];
  EXPECT_EQ(graph.instruction(graph.computation(callee).root).opcode, Opcode::kAbs);
}

TEST(HloProtoTest, WhileHasItsBodyFirst) {
  Message loop = proto_instruction("w", "while", 2, {1});
  loop.number(38, 1).number(38, 2);
  const Graph graph = read_message(proto_module(
      {computation("body", 1, 2, {proto_instruction("p", "parameter", 1), proto_instruction("n", "negate", 2, {1})}),
       computation("condition", 2, 2,
                   {proto_instruction("p", "parameter", 1),
                    Message().text(1, "r").text(2, "custom-call").message(3, Message().number(2, 1)).number(35, 2)}),
       computation("e", 3, 2, {proto_instruction("p", "parameter", 1), loop})}));
  const auto called = graph.called(graph.entry().root);
  ASSERT_EQ(called.size(), 2u);
  EXPECT_EQ(graph.computation(called[0]).name, "condition");
  EXPECT_EQ(graph.computation(called[1]).name, "body");
}

TEST(HloProtoTest, UnknownOpcodesTypesAndFieldsAreKeptOrSkipped) {
  Message odd = proto_instruction("o", "flux-capacitor", 2, {1});
  odd.text(1000, "a field of the future");
  Message typed;
  typed.text(1, "t").text(2, "custom-call").message(3, Message().number(2, 77).number(3, 4)).number(35, 3);
  const Graph graph =
      read_message(proto_module({computation("c", 7, 2, {proto_instruction("p", "parameter", 1), odd, typed})}));
  EXPECT_EQ(graph.instruction(1).opcode, Opcode::kUnknown);
  EXPECT_EQ(graph.instruction(1).opcode_name, "flux-capacitor");
  EXPECT_EQ(graph.shape_of(2).type, ElementType::kUnknown);
  EXPECT_EQ(graph.shape_of(2).bits, 32);
}

TEST(HloProtoTest, NamesThatTextCannotHoldAreMadeSo) {
  const Graph graph = read_message(proto_module({computation(
      "c {1}", 7, 2, {proto_instruction("p q", "parameter", 1), proto_instruction("n=m", "negate", 2, {1})})}));
  EXPECT_EQ(graph.entry().name, "c__1_");
  EXPECT_EQ(graph.instruction(1).name, "n_m");
}

TEST(HloProtoTest, RefusesWrongWireTypes) {
  Message bad = proto_instruction("n", "negate", 2);
  bad.fixed32(36, 1);
  EXPECT_THAT(proto_error(proto_module({computation("c", 7, 2, {proto_instruction("p", "parameter", 1), bad})})),
              HasSubstr("HloInstructionProto.operand_ids is written as a 32-bit field, expected varint"));
  Message shape_as_number;
  shape_as_number.text(1, "n").text(2, "negate").number(3, 5);
  EXPECT_THAT(
      proto_error(proto_module({computation("c", 7, 2, {proto_instruction("p", "parameter", 1), shape_as_number})})),
      HasSubstr("HloInstructionProto.shape is written as a varint field, expected length-delimited"));
}

TEST(HloProtoTest, RefusesShapesAndLiteralsThatDoNotFit) {
  Message negative;
  negative.text(1, "p").text(2, "parameter").message(3, f32_shape({~std::uint64_t{0}})).number(35, 1);
  EXPECT_NE(proto_error(proto_module({computation("c", 7, 1, {negative})})), "");
  Message huge;
  huge.text(1, "p").text(2, "parameter").message(3, f32_shape({1u << 31, 1u << 31, 1u << 31})).number(35, 1);
  EXPECT_THAT(proto_error(proto_module({computation("c", 7, 1, {huge})})), HasSubstr("2^63"));
  Message none;
  none.text(1, "p").text(2, "parameter").message(3, Message().number(3, 4)).number(35, 1);
  EXPECT_THAT(proto_error(proto_module({computation("c", 7, 1, {none})})), HasSubstr("no element type"));
  Message constant = proto_instruction("k", "constant", 1);
  constant.message(8, Message().message(1, f32_shape({2, 3})).fixed32(8, 0).fixed32(8, 0));
  EXPECT_THAT(proto_error(proto_module({computation("c", 7, 1, {constant})})),
              HasSubstr("literal has 2 elements, its shape 6"));
  EXPECT_THAT(proto_error(proto_module({computation(
                  "c", 7, 2, {proto_instruction("p", "parameter", 1), proto_instruction("n", "add", 2, {1})})})),
              HasSubstr("1 operand"));
}

TEST(HloProtoTest, LargeAndAbsentLiteralsAreElided) {
  Message large;
  large.text(1, "k").text(2, "constant").message(3, f32_shape({100000})).number(35, 1);
  large.message(8, Message().text(8, std::string(400000, '\0')));
  const Graph graph =
      read_message(proto_module({computation("c", 7, 1, {large, proto_instruction("a", "constant", 2)})}));
  EXPECT_EQ(graph.instruction(0).payload, "{...}");
  EXPECT_EQ(graph.instruction(1).payload, "{...}");
}

TEST(HloProtoTest, ATokenHasALiteralThatCanBeReadAgain) {
  Message token;
  token.text(1, "k").text(2, "constant").message(3, Message().number(2, 17)).number(35, 1).message(8, Message());
  const Graph graph = read_message(proto_module({computation("c", 7, 1, {token})}));
  EXPECT_EQ(graph.instruction(0).payload, "token");
  EXPECT_EQ(graph.shape_of(0).text, "token[]");
}

TEST(HloProtoTest, AnAttributeWithoutAValueIsLeftOut) {
  Message pad = proto_instruction("n", "pad", 2, {1, 1});
  pad.message(21, Message());
  const Graph graph =
      read_message(proto_module({computation("c", 7, 2, {proto_instruction("p", "parameter", 1), pad})}));
  EXPECT_FALSE(graph.attribute(1, "padding"));
  EXPECT_EQ(read_hlo_text(write_hlo_text(graph), "written").num_instructions(), 2);
}

TEST(HloProtoTest, LimitsNestingAndAllocation) {
  // A tuple of a tuple of a tuple ...
  Message shape = f32_shape({2});
  for (int i = 0; i < 300; ++i) shape = Message().number(2, 13).message(4, shape);
  Message deep;
  deep.text(1, "p").text(2, "parameter").message(3, shape).number(35, 1);
  EXPECT_THAT(proto_error(proto_module({computation("c", 7, 1, {deep})})), HasSubstr("levels deep"));
  // Millions of empty instructions: two bytes each in the file, a kilobyte each in memory.
  Message flood = proto_instruction("p", "parameter", 1);
  std::string empty;
  for (int i = 0; i < 1000000; ++i) empty += std::string("\x12\x00", 2);
  Message c;
  c.text(1, "c").message(2, flood);
  const std::string body = c.bytes() + empty;
  EXPECT_THAT(proto_error(Message().text(1, "m").text(3, body)), HasSubstr("far more messages"));
}

TEST(HloProtoTest, EveryTruncationIsAnErrorWithAPlace) {
  const std::string whole = read_file(kHloData + "every_field.pb");
  for (std::size_t size = 1; size < whole.size(); size += size < 200 ? 1 : 37) {
    EXPECT_THAT(proto_error(whole.substr(0, size)), HasSubstr("m.pb")) << size;
  }
  const std::string module = read_file(kHloData + "literals.pb");
  for (std::size_t size = 1; size < module.size(); size += 11)
    EXPECT_NE(proto_error(module.substr(0, size)), "") << size;
}

TEST(HloProtoTest, DamagedBytesGiveAGraphOrAnError) {
  const std::string whole = read_file(kHloData + "every_field.module.pb");
  std::uint32_t state = 12345;
  for (int round = 0; round < 1500; ++round) {
    std::string damaged = whole;
    for (int k = 0; k < 1 + round % 3; ++k) {
      state = state * 1664525 + 1013904223;
      const std::size_t at = (state >> 8) % damaged.size();
      state = state * 1664525 + 1013904223;
      damaged[at] = static_cast<char>(state >> 24);
    }
    try {
      const Graph graph = read_hlo(damaged, "m.pb").graph;
      EXPECT_GT(graph.num_instructions(), 0);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kData) << e.what();
    }
  }
}

TEST(ProtoAttributesTest, Shardings) {
  using proto::OpSharding;
  OpSharding s;
  EXPECT_EQ(proto::sharding_text(s), "{replicated}");
  s.type = proto::kMaximal;
  s.tile_assignment_devices = {3};
  EXPECT_EQ(proto::sharding_text(s), "{maximal device=3}");
  s = OpSharding();
  s.type = proto::kOther;
  s.tile_assignment_dimensions = {2, 1, 4};
  s.iota_reshape_dims = {4, 2};
  s.iota_transpose_perm = {1, 0};
  s.replicate_on_last_tile_dim = true;
  EXPECT_EQ(proto::sharding_text(s), "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}");
  OpSharding pair;
  pair.type = proto::kTupleSharding;
  pair.tuple_shardings.emplace_back();
  pair.tuple_shardings.emplace_back().type = proto::kManual;
  EXPECT_EQ(proto::sharding_text(pair), "{{replicated}, {manual}}");
  OpSharding named;
  named.named_sharding = std::make_unique<proto::NamedShardingProto>();
  proto::NamedShardingProto& n = *named.named_sharding;
  n.mesh = std::make_unique<proto::MeshProto>();
  n.mesh->axes = {{"x", 2}, {"y", 4}};
  n.dim_shardings.resize(2);
  n.dim_shardings[0].axes.resize(1);
  n.dim_shardings[0].is_closed = true;
  n.dim_shardings[1].axes.resize(1);
  n.dim_shardings[1].axes[0].mesh_axis_index = 1;
  n.dim_shardings[1].axes[0].sub_axis_info = std::make_unique<proto::SubAxis>();
  n.dim_shardings[1].axes[0].sub_axis_info->pre_size = 1;
  n.dim_shardings[1].axes[0].sub_axis_info->size = 2;
  EXPECT_EQ(proto::sharding_text(named), "{mesh['x'=2,'y'=4], [{'x'}, {'y':(1)2, ?}]}");
}

TEST(ProtoAttributesTest, Layouts) {
  proto::TypeNames types;
  proto::ShapeProto s;
  s.element_type = 11;
  s.dimensions = {8, 128};
  EXPECT_EQ(proto::shape_text(s, types, true), "f32[8,128]");
  s.layout = std::make_unique<proto::LayoutProto>();
  s.layout->minor_to_major = {1, 0};
  s.layout->tiles.resize(2);
  s.layout->tiles[0].dimensions = {8, 128};
  s.layout->tiles[1].dimensions = {2, 1};
  s.layout->memory_space = 5;
  EXPECT_EQ(proto::shape_text(s, types, true), "f32[8,128]{1,0:T(8,128)(2,1)S(5)}");
  s.is_dynamic_dimension = {1, 0};
  EXPECT_EQ(proto::shape_text(s, types, false), "f32[<=8,128]");
}

TEST(ProtoAttributesTest, EscapesAsXlaDoes) {
  EXPECT_EQ(proto::c_escape("params['a']\n\"\\\x01\xc3"), "params[\\'a\\']\\n\\\"\\\\\\001\\303");
}

}  // namespace
}  // namespace automap::hlo
