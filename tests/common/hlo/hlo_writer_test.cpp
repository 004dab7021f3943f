#include "common/hlo/hlo_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "common/hlo/hlo_text.h"
#include "tests/common/graph/graph_digest.h"

namespace automap::hlo {

using namespace graph;

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kModule =
    R"(HloModule jit_f, num_partitions=2, entry_computation_layout={(f32[4]{0})->(f32[4]{0}, s32[])}

FileNames
1 "a.py"

ENTRY %main (x: f32[4]) -> (f32[4], s32[]) {
  %x = f32[4]{0} parameter(0), sharding={replicated}, metadata={op_name="x" stack_frame_id=1}
  %w = s32[] while(%one), condition=%c, body=%b
  %y = f32[4]{0} custom-call(%x), custom_call_target="f", backend_config={"a": "}"}
  ROOT %t = (f32[4]{0}, s32[]) tuple(%y, %w)
}
)";

std::string module_text() {
  std::string text = kModule;
  text.insert(text.find("  %w ="), "  %one = s32[] constant(1)\n");
  return text +
         "%c (i: s32[]) -> pred[] {\n  %i = s32[] parameter(0)\n  %n = s32[] constant(5)\n"
         "  ROOT %lt = pred[] compare(%i, %n), direction=LT\n}\n"
         "%b (i: s32[]) -> s32[] {\n  %i = s32[] parameter(0)\n  ROOT %d = s32[] add(%i, %i)\n}, "
         "execution_thread=\"t\"\n";
}

TEST(HloWriter, TextGraphTextGraphIsIdentity) {
  const Graph g = read_hlo_text(module_text(), "t");
  const std::string once = write_hlo_text(g);
  const Graph h = read_hlo_text(once, "t");
  EXPECT_EQ(write_hlo_text(h), once);
  EXPECT_EQ(h.num_instructions(), g.num_instructions());
  EXPECT_EQ(h.stack_tables(), g.stack_tables());
  EXPECT_EQ(h.computation(1).execution_thread, "t");
  // The entry called computations defined after it; XLA wants them first.
  EXPECT_LT(once.find("%c ("), once.find("ENTRY"));
  EXPECT_LT(once.find("%b ("), once.find("ENTRY"));
  EXPECT_EQ(digest(read_hlo_text(write_hlo_text(h), "t")), digest(h));
}

// Shapes that are neither arrays nor tuples may come with a layout, too (a token of a module in binary form).
TEST(HloWriter, KeepsEveryKindOfShapeWithItsLayout) {
  for (const std::string shape :
       {"f32[4]{0}", "token[]{0}", "opaque[]{0}", "b(f32[2]{0})", "(token[]{0}, f32[4]{0})"}) {
    const Graph g =
        read_hlo_text("HloModule m\n\nENTRY %e (x: f32[4]) -> f32[4] {\n  %p = " + shape +
                          " parameter(0)\n  ROOT %r = f32[4]{0} custom-call(%p), custom_call_target=\"f\"\n}\n",
                      "t");
    const std::string written = write_hlo_text(g);
    EXPECT_THAT(written, HasSubstr("%p = " + shape + " parameter(0)"));
    EXPECT_EQ(write_hlo_text(read_hlo_text(written, "t")), written);
  }
}

TEST(HloWriter, OptionsForMetadataShapesAndPartitions) {
  const Graph g = read_hlo_text(module_text(), "t");
  WriteOptions options;
  options.metadata = false;
  std::string text = write_hlo_text(g, options);
  EXPECT_THAT(text, Not(HasSubstr("metadata")));
  EXPECT_THAT(text, Not(HasSubstr("FileNames")));
  EXPECT_THAT(text, HasSubstr("backend_config={\"a\": \"}\"}"));
  options = {};
  options.operand_shapes = true;
  text = write_hlo_text(g, options);
  EXPECT_THAT(text, HasSubstr("tuple(f32[4] %y, s32[] %w)"));
  EXPECT_EQ(digest(read_hlo_text(text, "t")), digest(read_hlo_text(write_hlo_text(g), "t")));
  options = {};
  options.num_partitions = 8;
  EXPECT_THAT(write_hlo_text(g, options), HasSubstr("HloModule jit_f, num_partitions=8, entry"));
  const Graph plain = read_hlo_text("HloModule q\nENTRY e { ROOT a = f32[] constant(1) }", "t");
  EXPECT_THAT(write_hlo_text(plain, options), HasSubstr("HloModule q, num_partitions=8\n"));
}

TEST(HloWriter, ShardingHook) {
  const Graph g = read_hlo_text(module_text(), "t");
  WriteOptions options;
  options.sharding = [&](InstructionId id) -> std::optional<std::string> {
    if (g.instruction(id).name == "x") return "{devices=[2]<=[2]}";
    if (g.instruction(id).name == "y") return "{manual}";
    return std::nullopt;
  };
  const std::string text = write_hlo_text(g, options);
  EXPECT_THAT(text, HasSubstr("parameter(0), sharding={devices=[2]<=[2]}, metadata"));
  EXPECT_THAT(text, HasSubstr("backend_config={\"a\": \"}\"}, sharding={manual}\n"));
  EXPECT_THAT(text, Not(HasSubstr("replicated")));
  options.sharding = [](InstructionId) { return std::optional<std::string>(""); };
  EXPECT_THAT(write_hlo_text(g, options), Not(HasSubstr("sharding")));
}

// Edits in the text that was read: everything else stays, byte by byte.
TEST(HloWriter, EditsTheSourceText) {
  const std::string text =
      "HloModule jit_f, is_scheduled=false, num_partitions=2  // header\n\n"
      "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}\n\n"
      "ENTRY main {\n"
      "  x =   f32[4]{0} parameter(0),sharding={replicated} , metadata={op_name=\"x\"}\n"
      "  /* a comment, (unbalanced */ n = f32[4]{0} custom-call( x ), custom_call_target=\"f(\\\")\", k=1\n"
      "  zero = f32[] constant(0)\n"
      "  ROOT r = f32[] reduce(n, zero), dimensions={0}, to_apply=sum, metadata={op_name=\"r\"}\n}\n";
  const Graph g = read_hlo_text(text, "t");
  EXPECT_EQ(edit_hlo_text(g, {}), text);
  const auto replaced = [&](std::string_view before, std::string_view after) {
    std::string out = text;
    out.replace(out.find(before), before.size(), after);
    return out;
  };
  WriteOptions options;
  options.num_partitions = 8;
  EXPECT_EQ(edit_hlo_text(g, options), replaced("num_partitions=2", "num_partitions=8"));
  options = {};
  options.attribute = [](InstructionId id, const Attribute& a) -> std::optional<std::string> {
    if (id == kNone && a.key == "is_scheduled") return "";
    if (a.key == "k") return "2";
    return std::nullopt;
  };
  EXPECT_EQ(edit_hlo_text(g, options), [&] {
    std::string out = replaced(", is_scheduled=false", "");
    out.replace(out.find("k=1"), 3, "k=2");
    return out;
  }());
  options = {};
  options.sharding = [&](InstructionId id) -> std::optional<std::string> {
    const std::string_view name = g.instruction(id).name;
    if (name == "x") return "{devices=[8]<=[8]}";
    if (name == "zero" || name == "r") return "{manual}";
    return std::nullopt;
  };
  EXPECT_EQ(edit_hlo_text(g, options), [&] {
    std::string out = replaced("{replicated}", "{devices=[8]<=[8]}");
    out.insert(out.find("constant(0)") + 11, ", sharding={manual}");
    out.insert(out.find(", metadata={op_name=\"r\"}"), ", sharding={manual}");
    return out;
  }());
  options.sharding = [](InstructionId) { return std::optional<std::string>(""); };
  EXPECT_EQ(edit_hlo_text(g, options), replaced(",sharding={replicated}", ""));
  options = {};
  options.opcode = [&](InstructionId id) -> std::optional<OpcodeEdit> {
    if (g.instruction(id).name == "n") return OpcodeEdit{"copy", true};
    return std::nullopt;
  };
  EXPECT_EQ(edit_hlo_text(g, options), replaced("custom-call( x ), custom_call_target=\"f(\\\")\", k=1", "copy( x )"));
  // The same changes where the text cannot be kept.
  EXPECT_THAT(write_hlo_text(g, options), HasSubstr("%n = f32[4]{0} copy(%x)\n"));
}

// An operand is read through an annotation of its own; the text keeps its spelling beside it.
TEST(HloWriter, AnnotatesOperands) {
  const std::string text =
      "HloModule m\n\nENTRY e {\n  x = f32[4]{0} parameter(0)\n  x.sharded.1 = f32[4]{0} negate(x)\n"
      "  ROOT t = (f32[4]{0}, f32[4]{0}, /*index=2*/f32[4]{0}) tuple(f32[4]{0} x, %x.sharded.1, /*index=2*/x)\n}\n";
  const Graph g = read_hlo_text(text, "t");
  WriteOptions options;
  options.operand_shardings = [&](InstructionId id, std::size_t operand) -> std::vector<std::string> {
    if (g.instruction(id).name != "t" || operand == 1) return {};
    return {operand == 0 ? "{replicated}" : "{devices=[8]<=[8]}"};
  };
  const std::string lines =
      "  %x.sharded.2 = f32[4]{0} custom-call(%x), custom_call_target=\"Sharding\", sharding={replicated}\n"
      "  %x.sharded.3 = f32[4]{0} custom-call(%x), custom_call_target=\"Sharding\", sharding={devices=[8]<=[8]}\n";
  std::string edited = text;
  const std::string before = "tuple(f32[4]{0} x, %x.sharded.1, /*index=2*/x)";
  edited.replace(edited.find(before), before.size(),
                 "tuple(f32[4]{0} x.sharded.2, %x.sharded.1, /*index=2*/x.sharded.3)");
  edited.insert(edited.find("  ROOT t"), lines);
  EXPECT_EQ(edit_hlo_text(g, options), edited);
  // The same where the text cannot be kept; both are read back.
  const std::string written = write_hlo_text(g, options);
  EXPECT_THAT(written, HasSubstr(lines + "  ROOT %t"));
  EXPECT_THAT(written, HasSubstr("tuple(%x.sharded.2, %x.sharded.1, %x.sharded.3)"));
  for (const std::string& again : {edited, written}) {
    EXPECT_EQ(read_hlo_text(again, "again").num_instructions(), g.num_instructions() + 2);
  }
  // Everything in one line.
  const Graph line = read_hlo_text("HloModule m ENTRY e { x = f32[] parameter(0) ROOT n = f32[] negate(x) }", "l");
  options.operand_shardings = [&](InstructionId id, std::size_t) -> std::vector<std::string> {
    if (line.instruction(id).name != "n") return {};
    return {"{replicated}"};
  };
  EXPECT_EQ(edit_hlo_text(line, options),
            "HloModule m ENTRY e { x = f32[] parameter(0) %x.sharded.1 = f32[] custom-call(%x), "
            "custom_call_target=\"Sharding\", sharding={replicated}\n  ROOT n = f32[] negate(x.sharded.1) }");
}

// One annotation after the other; what stands between is shared by all readers.
TEST(HloWriter, AnnotatesOperandsStepByStep) {
  const Graph g = read_hlo_text(
      "HloModule m\n\nENTRY e {\n  x = f32[4]{0} parameter(0)\n  y = f32[4]{0} negate(x)\n  z = f32[4]{0} abs(x)\n"
      "  ROOT t = f32[4]{0} add(y, z)\n}\n",
      "t");
  WriteOptions options;
  options.operand_shardings = [&](InstructionId id, std::size_t) -> std::vector<std::string> {
    if (g.instruction(id).name != "y" && g.instruction(id).name != "z") return {};
    return {"{devices=[8]<=[8]}", "{replicated}"};
  };
  const std::string call = " = f32[4]{0} custom-call(%", of = "), custom_call_target=\"Sharding\", sharding=";
  EXPECT_EQ(edit_hlo_text(g, options),
            "HloModule m\n\nENTRY e {\n  x = f32[4]{0} parameter(0)\n  %x.sharded.1" + call + "x" + of +
                "{devices=[8]<=[8]}\n  %x.sharded.2" + call + "x.sharded.1" + of +
                "{replicated}\n  y = f32[4]{0} negate(x.sharded.2)\n  %x.sharded.3" + call + "x.sharded.1" + of +
                "{replicated}\n  z = f32[4]{0} abs(x.sharded.3)\n  ROOT t = f32[4]{0} add(y, z)\n}\n");
}

// A product by hand: parts go in, the sum over all devices comes out, and other lines stay.
TEST(HloWriter, WritesSumsByHand) {
  const std::string head = "HloModule m\n\n", entry = "ENTRY e {\n  x = f32[4,8]{1,0} parameter(0)\n",
                    product =
                        "  p = f32[4,4]{1,0} dot(f32[4,8]{1,0} x, f32[4,8]{1,0} %x), lhs_contracting_dims={1}, "
                        "rhs_contracting_dims={1}\n",
                    rest = "  n = f32[4,4]{1,0} negate(p)\n  ROOT t = (f32[4,4]{1,0}) tuple(n)\n}\n";
  const Graph g = read_hlo_text(head + entry + product + rest, "t");
  const auto is = [&](InstructionId id, const char* name) { return g.instruction(id).name == name; };
  WriteOptions options;
  options.num_partitions = 2;
  options.sharding = [&](InstructionId id) {
    return is(id, "p") ? std::optional<std::string>("{manual}") : std::nullopt;
  };
  options.local_operand = [&](InstructionId id, std::size_t) {
    return is(id, "p") ? std::optional<LocalOperand>({"{devices=[1,2]<=[2]}", "f32[4,4]"}) : std::nullopt;
  };
  options.summed = [&](InstructionId id) {
    return is(id, "p") ? std::optional<std::string>("{replicated}") : std::nullopt;
  };
  options.read_partial = [](InstructionId, std::size_t) { return false; };
  const std::string adder =
      "%add.f32.1 (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
      "  ROOT %sum = f32[] add(%a, %b)\n}\n\n";
  const auto part = [](const std::string& n) {
    return "  %x.sharded." + n + " = f32[4,8]{1,0} custom-call(%x), custom_call_target=\"Sharding\", " +
           "sharding={devices=[1,2]<=[2]}\n  %x.part." + n + " = f32[4,4]{1,0} custom-call(%x.sharded." + n +
           "), custom_call_target=\"SPMDFullToShardShape\", sharding={manual}\n";
  };
  const std::string behind =
      "  %p.reduced.1 = f32[4,4]{1,0} all-reduce(%p), channel_id=1, replica_groups={{0,1}}, "
      "use_global_device_ids=true, to_apply=%add.f32.1, sharding={manual}\n"
      "  %p.sum.1 = f32[4,4]{1,0} custom-call(%p.reduced.1), custom_call_target=\"SPMDShardToFullShape\", "
      "sharding={replicated}\n";
  EXPECT_EQ(edit_hlo_text(g, options),
            "HloModule m, num_partitions=2\n\n" + adder + entry + part("1") + part("2") +
                "  p = f32[4,4]{1,0} dot(%x.part.1, %x.part.2), lhs_contracting_dims={1}, rhs_contracting_dims={1}, "
                "sharding={manual}\n" +
                behind + "  n = f32[4,4]{1,0} negate(p.sum.1)\n  ROOT t = (f32[4,4]{1,0}) tuple(n)\n}\n");
  const std::string written = write_hlo_text(g, options);
  EXPECT_THAT(written, HasSubstr(adder + "ENTRY %e"));
  EXPECT_THAT(written, HasSubstr(part("1") + part("2") + "  %p = f32[4,4]{1,0} dot(%x.part.1, %x.part.2)"));
  EXPECT_THAT(written, HasSubstr("sharding={manual}\n" + behind + "  %n = f32[4,4]{1,0} negate(%p.sum.1)\n"));
  // Whoever becomes another instruction reads the sum as well.
  options.opcode = [&](InstructionId id) -> std::optional<OpcodeEdit> {
    return is(id, "n") ? std::optional<OpcodeEdit>({"copy", true}) : std::nullopt;
  };
  EXPECT_THAT(edit_hlo_text(g, options), HasSubstr("  n = f32[4,4]{1,0} copy(p.sum.1)\n"));
  EXPECT_THAT(write_hlo_text(g, options), HasSubstr("  %n = f32[4,4]{1,0} copy(%p.sum.1)\n"));
  options.opcode = nullptr;
  // Who reads the summand itself.
  options.read_partial = [&](InstructionId id, std::size_t) { return is(id, "n"); };
  EXPECT_THAT(edit_hlo_text(g, options), HasSubstr("negate(p)\n"));
}

TEST(HloWriter, WritesAnewWhatXlaWouldNotRead) {
  for (const char* text : {
           "HloModule m\ne {\n  ROOT a = f32[] constant(1)\n}\n",                                     // no ENTRY
           "ENTRY e {\n  ROOT a = f32[] constant(1)\n}\n",                                            // no header
           "HloModule m\nENTRY e {\n  ROOT a = f32[] negate(f32[] constant(1))\n}\n",                 // nested
           "HloModule m\nENTRY e {\n  t = (f32[]) parameter(0)\n  ROOT a = f32[] negate(%t#0)\n}\n",  // compact
           "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n  ROOT c = f32[] call(p), to_apply=f\n}\n"
           "f {\n  ROOT q = f32[] parameter(0)\n}\n",  // callee last
       }) {
    const Graph g = read_hlo_text(text, "t");
    EXPECT_EQ(edit_hlo_text(g, {}), write_hlo_text(g)) << text;
  }
}

// Random modules, written in a random dialect, read back to what was meant.
TEST(HloWriter, RandomModules) {
  std::mt19937 rng(21);
  const char* const unary[] = {"tanh", "negate", "frobnicate", "copy"};
  const char* const binary[] = {"add", "multiply", "maximum"};
  const char* const shapes[] = {"f32[2,3]", "bf16[7]", "s32[]"};
  for (int round = 0; round < 300; ++round) {
    const bool sigils = rng() % 2 == 0, operand_shapes = rng() % 2 == 0, lines = rng() % 2 == 0;
    const std::string sigil = sigils ? "%" : "", space = lines ? "\n  " : " ";
    std::string text = "HloModule r" + std::to_string(round) + (lines ? "\n\n" : " ") + "ENTRY " + sigil + "e {";
    std::string meant;
    std::vector<std::pair<std::string, std::string>> defined;  // name, shape
    const int size = 3 + static_cast<int>(rng() % 40);
    for (int i = 0; i < size; ++i) {
      const std::string name = "v" + std::to_string(rng() % 1000000) + "." + std::to_string(i);
      std::string shape, opcode, operands;
      std::vector<std::size_t> chosen;
      if (i < 3) {
        shape = shapes[i];
        opcode = "parameter";
      } else {
        chosen.push_back(rng() % defined.size());
        shape = defined[chosen[0]].second;
        if (rng() % 2 == 0) {
          opcode = unary[rng() % 4];
        } else {
          std::vector<std::size_t> same;
          for (std::size_t k = 0; k < defined.size(); ++k) {
            if (defined[k].second == shape) same.push_back(k);
          }
          chosen.push_back(same[rng() % same.size()]);
          opcode = binary[rng() % 3];
        }
      }
      for (const std::size_t k : chosen) {
        if (!operands.empty()) operands += rng() % 2 == 0 ? ", " : ",/*index=1*/ ";
        if (operand_shapes) operands += defined[k].second + " ";
        operands += sigil + defined[k].first;
      }
      text += space + (i + 1 == size ? "ROOT " : "") + sigil + name + " = " + shape + " " + opcode + "(" +
              (i < 3 ? std::to_string(i) : operands) + ")";
      meant += name + " " + shape + " " + opcode;
      for (const std::size_t k : chosen) meant += " " + defined[k].first;
      if (rng() % 2 == 0) {
        text += ", metadata={op_name=\"a}\\\"" + std::to_string(i) + "\"}";
        meant += " a}\"" + std::to_string(i);
      }
      meant += "\n";
      defined.emplace_back(name, shape);
    }
    text += lines ? "\n}\n" : " }";
    const Graph g = read_hlo_text(text, "t");
    std::string got;
    for (InstructionId id = 0; id < g.num_instructions(); ++id) {
      got += std::string(g.instruction(id).name) + " " + std::string(g.shape_of(id).text) + " " +
             std::string(g.instruction(id).opcode_name);
      for (const InstructionId o : g.operands(id)) got += " " + std::string(g.instruction(o).name);
      if (!g.op_name(id).empty()) got += " " + g.op_name(id);
      got += "\n";
    }
    ASSERT_EQ(got, meant) << text;
    ASSERT_EQ(digest(read_hlo_text(write_hlo_text(g), "t")), digest(g));
  }
}

}  // namespace
}  // namespace automap::hlo
