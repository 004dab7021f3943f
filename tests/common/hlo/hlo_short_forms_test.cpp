// Short and loose forms of HLO text that XLA's parser reads, with the counts it gives; and modules that it reads and
// its verifier refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/graph/hlo_cost.h"
#include "common/hlo/hlo_text.h"
#include "common/hlo/hlo_writer.h"

namespace automap::hlo {
namespace {

using namespace graph;
using ::testing::HasSubstr;

Graph read_short(const std::string& text, Faults faults = Faults::kRefuse) {
  return read_hlo_text(text, "s.hlo", faults);
}

std::string short_error(const std::string& text, Faults faults = Faults::kRefuse) {
  try {
    read_short(text, faults);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kData);
    return e.what();
  }
  ADD_FAILURE() << "accepted: " << text;
  return "";
}

// (instructions, computations) of the module, and of what is written of it and read again.
std::pair<int, int> counts(const std::string& text) {
  const Graph g = read_short(text);
  const Graph again = read_hlo_text(write_hlo_text(g), "again");
  EXPECT_EQ(again.num_instructions(), g.num_instructions());
  EXPECT_EQ(again.num_computations(), g.num_computations());
  EXPECT_EQ(again.entry().name, g.entry().name);
  return {g.num_instructions(), g.num_computations()};
}
using Counts = std::pair<int, int>;

TEST(HloShortForms, ComputationsInsideAttributes) {
  EXPECT_EQ(counts(R"(HloModule sums
ENTRY main {
  t = f32[6,5] parameter(0)
  zero = f32[] constant(0)
  ROOT sum = f32[6] reduce(t, zero), dimensions={1}, to_apply={
    // a brace in a comment } and in a string
    l = f32[] parameter(0), metadata={op_name="}{"}
    r = f32[] parameter(1)
    ROOT s = add(l, r)
  }, metadata={op_name="after"}
})"),
            Counts(6, 2));
  // Within each other, with names of their own; the last instruction is the result where none is marked.
  EXPECT_EQ(counts(R"(HloModule nest
ENTRY main {
  x = f32[4] parameter(0)
  ROOT y = call(x), to_apply={ a = f32[4] parameter(0)
    b = call(a), to_apply={ a = f32[4] parameter(0)  ROOT c = call(a), to_apply={ a = f32[4] parameter(0)  n = negate(a) } }
    ROOT k = add(a, b) }
})"),
            Counts(9, 4));
  // In lists, beside names; two in one instruction; of an asynchronous call.
  EXPECT_EQ(counts(R"(HloModule lists
same { ROOT a = f32[4] parameter(0) }
ENTRY main {
  i = s32[] parameter(0)
  x = f32[4] parameter(1)
  ROOT y = f32[4] conditional(i, x, x), branch_computations={%same, { a = f32[4] parameter(0)  ROOT n = negate(a) }}
})"),
            Counts(6, 3));
  const Graph loop = read_short(R"(HloModule loop
ENTRY main {
  x = s32[] constant(0)
  ROOT w = s32[] while(x), body={ i = s32[] parameter(0)  one = s32[] constant(1)  ROOT j = add(i, one) },
    condition={ i = s32[] parameter(0)  n = s32[] constant(3)  ROOT c = compare(i, n), direction=LT }
})");
  EXPECT_EQ(loop.num_instructions(), 8);
  const InstructionId w = loop.entry().root;
  EXPECT_EQ(loop.shape_of(loop.computation(loop.called(w)[0]).root).text, "pred[]");
  EXPECT_EQ(counts(R"(HloModule started
ENTRY main {
  p = s32[] parameter(0)
  s = ((s32[]), s32[], s32[]) call-start(p), to_apply={ a = s32[] parameter(0)  ROOT b = abs(a) }, async_execution_thread="t"
  ROOT d = s32[] call-done(s)
})"),
            Counts(7, 3));

  EXPECT_THAT(short_error("ENTRY e {\n x = f32[4] parameter(0)\n ROOT y = f32[4] call(x), to_apply={ a = f32[4] param"),
              HasSubstr("not closed"));
  EXPECT_THAT(
      short_error(
          "ENTRY e {\n x = f32[4] parameter(0)\n ROOT y = f32[4] call(x), to_apply={ a = f32[4] negate(x) }\n}"),
      HasSubstr("s.hlo:3:"));
  std::string deep = "ENTRY e {\n x = f32[4] parameter(0)\n ROOT y = call(x), to_apply=";
  for (int k = 0; k < 70; ++k) deep += "{ x = f32[4] parameter(0) ROOT y = call(x), to_apply=";
  EXPECT_THAT(short_error(deep + "f" + std::string(70, '}') + "}"), HasSubstr("64 deep"));
}

// Many computations within one are read in linear time: 20 000 of them take no longer than their text.
TEST(HloShortForms, ManyInlineComputationsAreLinear) {
  std::string text = "HloModule m\nENTRY e {\n v0 = f32[4] parameter(0)\n";
  constexpr int kMany = 20000;
  for (int k = 0; k < kMany; ++k) {
    const std::string n = std::to_string(k);
    text +=
        " v" + std::to_string(k + 1) + " = call(v" + n + "), to_apply={ a = f32[4] parameter(0) ROOT n = negate(a) }\n";
  }
  EXPECT_EQ(read_short(text + "}").num_instructions(), 1 + 3 * kMany);
}

TEST(HloShortForms, ColonsAndSpaces) {
  const Graph g = read_short(R"(HloModule step: , is_scheduled=true

twice: { a: = f32[4,3] {1,0} parameter(0)
  ROOT d = f32[4,3] { 0, 1 : T(8,128) } add(a:, f32[4,3] {1,0} %a) }
ENTRY %main (%x f32[4,3] {1,0}, y s32[]) -> f32[4,3]{1,0} {
  %x = f32 [4,3]
    {1,0} parameter(0)
  %y = s32[] parameter(1)
  ROOT %n = f32[4,3] call(%x), to_apply=twice:
})");
  EXPECT_EQ(g.name(), "step");
  EXPECT_EQ(g.num_instructions(), 5);
  EXPECT_EQ(g.computation(0).name, "twice");
  EXPECT_EQ(g.instruction(g.computation(0).root).layout, "{ 0, 1 : T(8,128) }");
  EXPECT_EQ(g.instruction(g.entry().parameters[0]).layout, "{1,0}");
  // Not after a name with its sigil; and a body is no layout.
  EXPECT_THAT(short_error("HloModule %m:\nENTRY e { ROOT x = f32[] parameter(0) }"), HasSubstr("1:13"));
  EXPECT_EQ(counts("ENTRY e (x: f32[]) -> f32[] { ROOT x = f32[] parameter(0) }"), Counts(1, 1));
}

// An operand of which only the shape is written counts as none.
TEST(HloShortForms, NamelessOperands) {
  const std::string module = R"(HloModule m
f { ROOT a = f32[4] parameter(0) }
ENTRY e { z = f32[4] parameter(0)
  ROOT y = f32[4] fusion(f32[4]{0}), kind=kLoop, calls=f }
)";
  EXPECT_THAT(short_error(module), HasSubstr("needs a computation of 0 parameters"));
  EXPECT_EQ(read_short(module, Faults::kRecord).num_instructions(), 3);
  EXPECT_THAT(short_error("ENTRY e { ROOT y = f32[4] negate(f32[4]) }"), HasSubstr("expected an operand"));
}

// "x-start" is a computation with x alone, so that its work counts.
TEST(HloShortForms, AsynchronousOperationsAreUnfolded) {
  const std::string module = R"(HloModule m
plus { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[8,16] parameter(0)
  w = f32[16,4] parameter(1)
  s = ((f32[8,16], f32[16,4]), f32[8,4], u32[]) dot-start(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  u = ((f32[8,16], f32[16,4]), f32[8,4], u32[]) dot-update(s)
  d = f32[8,4] dot-done(u)
  r = ((f32[8,4]), f32[4,4], u32[]) reduce-scatter-start(d), dimensions={0}, replica_groups={{0,1}}, to_apply=plus
  ROOT q = f32[4,4] reduce-scatter-done(r)
})";
  EXPECT_EQ(counts(module), Counts(3 + 7 + 3 + 2, 4));
  const Graph g = read_short(module);
  EXPECT_EQ(g.instruction(g.entry().root).opcode_name, "async-done");
  EXPECT_GE(analyze_cost(g).total.flops, 2.0 * 8 * 16 * 4);
  EXPECT_LT(analyze_cost(g).total.flops, 2.0 * 8 * 16 * 4 + 100);
}

// Shapes that XLA's parser infers for instructions whose shape is not written (asked of jaxlib 0.10).
TEST(HloShortForms, ShapesThatFollow) {
  const std::string before = R"(HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
at_least { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=GE }
sum_both { a = f32[] parameter(0)  i = s32[] parameter(1)  b = f32[] parameter(2)  j = s32[] parameter(3)
  c = f32[] add(a, b)  k = s32[] add(i, j)  ROOT t = (f32[], s32[]) tuple(c, k) }
less_both { a = f32[] parameter(0)  b = f32[] parameter(1)  i = s32[] parameter(2)  j = s32[] parameter(3)
  ROOT c = pred[] compare(a, b), direction=LT }
minus { a = f32[4,8] parameter(0)  ROOT n = negate(a) }
ENTRY main {
  x = f32[4,8] parameter(0)
  half = bf16[4,8] parameter(1)
  zero = f32[] parameter(2)
  none = s32[] parameter(3)
  whole = s32[4,8] parameter(4)
  turn = c64[4,8] parameter(5)
  turns = f64[3] parameter(6)
  upto = f32[<=8] parameter(7)
  rows = f32[4,<=8] parameter(8)
  image = f32[2,9,9,4] parameter(9)
  taps = f32[3,3,4,6] parameter(10)
  small = s8[2,9,9,4] parameter(11)
  taps8 = s8[3,3,4,6] parameter(12)
  tall = f32[8,4] parameter(13)
  at = s32[3,1] parameter(14)
  parts = f32[2,4] parameter(15)
  square = f32[4,4] parameter(16)
  scale = f32[4] parameter(17)
  yes = pred[] parameter(18)
  groups = f32[3,8,5] parameter(19)
  sizes = s32[3] parameter(20)
  put = f32[3,8] parameter(21)
  ROOT r = )";
  const std::pair<const char*, const char*> kCases[] = {
      {"pad(x, zero), padding=0_0x1_1", "f32[4,10]"},
      {"pad(x, zero), padding=1_2_3x-1_1", "f32[16,8]"},
      {"pad(rows, zero), padding=0_0x1_1", "f32[4,<=10]"},
      {"convolution(image, taps), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f", "f32[2,9,9,6]"},
      {"convolution(image, taps), window={size=3x3 stride=2x1 lhs_dilate=2x1 rhs_dilate=1x2}, "
       "dim_labels=b01f_01io->bf01",
       "f32[2,6,8,5]"},
      {"convolution(image, taps), window={size=3x3}, dim_labels=b01f_01io->b01f, batch_group_count=2", "f32[1,7,7,6]"},
      {"convolution(small, taps8), window={size=3x3}, dim_labels=b01f_01io->b01f", "s8[2,7,7,6]"},
      {"convolution(small, taps), window={size=3x3}, dim_labels=b01f_01io->b01f", "f32[2,7,7,6]"},
      {"convolution(x, tall), dim_labels=bf_io->bf", "f32[4,4]"},
      {"reduce-window(x, zero), window={size=2x3 stride=2x1 pad=0_1x1_0}, to_apply=sum", "f32[2,7]"},
      {"reduce-window(x, zero), window={size=1x1 pad=1_2x3_4 lhs_dilate=2x1}, to_apply=sum", "f32[10,15]"},
      {"reduce-window(x, zero), window={size=9x9}, to_apply=sum", "f32[0,0]"},
      {"reduce(half, zero), dimensions={1}, to_apply=sum", "f32[4]"},
      {"reduce(x, whole, zero, none), dimensions={1}, to_apply=sum_both", "(f32[4], s32[4])"},
      {"reduce(rows, zero), dimensions={0}, to_apply=sum", "f32[<=8]"},
      {"call(x), to_apply=minus", "f32[4,8]"},
      {"conditional(yes, x, x), true_computation=minus, false_computation=minus", "f32[4,8]"},
      {"conditional(none, x, x), branch_computations={minus, minus}", "f32[4,8]"},
      {"map(x, x), dimensions={0,1}, to_apply=at_least", "pred[4,8]"},
      {"sort(x), dimensions={0}, to_apply=at_least", "f32[4,8]"},
      {"sort(x, whole), dimensions={0}, to_apply=less_both", "(f32[4,8], s32[4,8])"},
      {"real(turn)", "f32[4,8]"},
      {"imag(x)", "f32[4,8]"},
      {"imag(upto)", "f32[<=8]"},
      {"abs(turn)", "f32[4,8]"},
      {"complex(turns, turns)", "c128[3]"},
      {"add(half, x)", "f32[4,8]"},
      {"add(x, rows)", "f32[4,<=8]"},
      {"compare(upto, upto), direction=LT", "pred[<=8]"},
      {"dot(half, tall), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "f32[4,4]"},
      {"dot(upto, upto), lhs_contracting_dims={0}, rhs_contracting_dims={0}", "f32[]"},
      {"ragged-dot(x, groups, sizes), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, "
       "rhs_group_dims={0}",
       "f32[4,5]"},
      {"transpose(rows), dimensions={1,0}", "f32[<=8,4]"},
      {"concatenate(upto, upto), dimensions={0}", "f32[<=16]"},
      {"gather(x, at), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
       "slice_sizes={1,8}",
       "f32[3,8]"},
      {"scatter(x, at, put), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
       "index_vector_dim=1, to_apply=sum",
       "f32[4,8]"},
      {"select-and-scatter(x, parts, zero), window={size=2x2 stride=2x2}, select=at_least, scatter=sum", "f32[4,8]"},
      {"fft(turn), fft_type=FFT, fft_length={8}", "c64[4,8]"},
      {"fft(x), fft_type=RFFT, fft_length={8}", "c64[4,5]"},
      {"fft(turn), fft_type=IRFFT, fft_length={14}", "f32[4,14]"},
      {"cholesky(square), lower=true", "f32[4,4]"},
      {"triangular-solve(square, x), left_side=true", "f32[4,8]"},
      {"batch-norm-training(image, scale, scale), epsilon=0.1, feature_index=3", "(f32[2,9,9,4], f32[4], f32[4])"},
      {"batch-norm-grad(image, scale, scale, scale, image), epsilon=0.1, feature_index=3",
       "(f32[2,9,9,4], f32[4], f32[4])"},
      {"get-dimension-size(x), dimensions={0}", "s32[]"},
      {"set-dimension-size(x, none), dimensions={0}", "f32[<=4,8]"},
      {"topk(x), k=2, largest=true", "(f32[4,2], s32[4,2])"},
      {"broadcast(zero), dimensions={}", "f32[]"},
  };
  for (const auto& [instruction, shape] : kCases) {
    const Graph g = read_short(before + instruction + "\n}");
    EXPECT_EQ(g.shape_of(g.entry().root).text, shape) << instruction;
  }
  for (const char* unsaid :
       {"convert(x)", "reshape(x)", "bitcast(x)", "slice(x), slice={[0:2], [0:2]}", "rng(zero, zero)"}) {
    EXPECT_THAT(short_error(before + unsaid + "\n}"), HasSubstr("result shape")) << unsaid;
  }
}

TEST(HloShortForms, CalleesMayStandBehindTheirCallers) {
  const Graph g = read_short(R"(HloModule m
ENTRY main { x = f32[4] parameter(0)  ROOT y = f32[4] call(x), to_apply=later }
later { a = f32[4] parameter(0)  ROOT b = f32[4] call(a), to_apply=last }
last { a = f32[4] parameter(0)  ROOT n = f32[4] negate(a) }
)");
  EXPECT_EQ(g.entry().name, "main");
  EXPECT_EQ(g.entry_id(), 2);
  for (InstructionId id = 0; id < g.num_instructions(); ++id) {
    for (const ComputationId callee : g.called(id)) EXPECT_LT(callee, g.instruction(id).computation);
    for (const InstructionId operand : g.operands(id)) {
      EXPECT_EQ(g.instruction(operand).computation, g.instruction(id).computation);
      EXPECT_LT(operand, id);
    }
  }
  EXPECT_EQ(analyze_cost(g).total.flops, 4);
}

// Each is read by XLA's parser and refused by its verifier: refused here with the place, or written down where asked.
TEST(HloFaults, WhatDoesNotFitIsRefusedOrWrittenDown) {
  const std::string sum = "sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }\n";
  const std::pair<const char*, const char*> kCases[] = {
      {"negate(x) , metadata={}", "the operand is f32[4,6]"},
      {"slice(x), slice={[0:5], [0:6]}", "goes up to 5"},
      {"slice(x), slice={[0:4]}", "1 ranges"},
      {"concatenate(x, x), dimensions={2}", "dimension 2"},
      {"concatenate(x, x), dimensions={1}", "gives [4,12]"},
      {"iota(), iota_dimension=2", "dimension 2"},
      {"pad(x, z), padding=0_0", "1 dimensions"},
      {"pad(x, z), padding=0_0x0_1", "gives [4,7]"},
      {"all-gather(x), dimensions={3}, replica_groups={}", "dimension 3"},
      {"all-gather(x), dimensions={0}, replica_groups={{0,1,2}}", "groups of 3"},
      {"all-to-all(x), dimensions={2}", "dimension 2"},
      {"all-reduce(x), to_apply=sum, replica_groups={{0,1},{1,2}}", "device 1 twice"},
      {"all-reduce(x), to_apply=sum, replica_groups=[2,2]<=[8]", "as many devices"},
      {"collective-permute(x), source_target_pairs={{0,1},{0,2}}", "sends from 0 twice"},
      {"dynamic-slice(x, i, i), dynamic_slice_sizes={5,6}", "no part of f32[4,6]"},
      {"f32[4,6] dynamic-update-slice(x, large, i, i)", "does not fit into"},
      {"dynamic-slice(x, i), dynamic_slice_sizes={4,6}", "1 place of where it begins in f32[4,6]"},
      {"dynamic-slice(x, i, x), dynamic_slice_sizes={4,6}", "expected a number for each dimension"},
      {"f32[4,6] dynamic-update-slice(x, x, i)", "1 place of where it begins"},
      {"convolution(x, x), dim_labels=b0f_0io->b0f, window={size=1}", "dimension 2"},
      {"convolution(x, x), dim_labels=012_012->012", "expected labels b and f"},
      {"convolution(x, x), dim_labels=bf_io->bf, feature_group_count=0", "expected at least 1"},
      {"sort(x), dimensions={7}, to_apply=sum", "dimension 7"},
      {"f32[4,6] reverse(x), dimensions={0,0}", "dimension 0 twice"},
      {"reduce-window(x, z), to_apply=sum, window={size=2}", "1 dimensions"},
      {"call(x, x), to_apply=sum", "where 'sum' has f32[] as parameter"},
      {"fusion(x), kind=kLoop, calls=sum", "needs a computation of 1 parameters"},
  };
  for (const auto& [instruction, what] : kCases) {
    const std::string text =
        "HloModule m\n" + sum +
        "ENTRY e {\n  x = f32[4,6] parameter(0)\n  z = f32[] constant(0)\n  i = s32[] constant(0)\n"
        "  large = f32[9,6] parameter(1)\n  ROOT r = " +
        (instruction[0] == 'f' && instruction[1] == '3' ? "" : "f32[5,6] ") + instruction + "\n}\n";
    const std::string error = short_error(text);
    EXPECT_THAT(error, HasSubstr(what)) << instruction;
    EXPECT_THAT(error, HasSubstr("s.hlo:8:")) << instruction;
    const Graph g = read_short(text, Faults::kRecord);
    EXPECT_EQ(g.num_instructions(), 8) << instruction;
    ASSERT_EQ(g.faults().size(), 1u) << instruction;
    EXPECT_THAT(g.faults()[0].what(), HasSubstr(what)) << instruction;
    EXPECT_TRUE(g.is_faulty(g.entry().root));
    EXPECT_FALSE(g.is_faulty(g.entry().first));
    EXPECT_GT(analyze_cost(g).total.bytes, 0) << instruction;
  }
}

// Without these XLA's parser reads no such instruction, and neither is it counted here.
TEST(HloFaults, AttributesThatMustBeThere) {
  for (const auto& [instruction, what] : std::vector<std::pair<std::string, std::string>>{
           {"all-gather(x), dimensions={}", "expected 1 number"},
           {"reduce-scatter(x), dimensions={}, to_apply=s", "expected 1 number"},
           {"all-gather(x)", "has no dimensions"},
           {"all-to-all(x), dimensions={0,1}", "expected 1 number, or no dimensions at all"},
           {"all-to-all(x), dimensions={}", "is {}, expected 1 number, or no dimensions at all"},
           {"concatenate(x, x), dimensions={0,1}", "expected 1 number"},
           {"concatenate(x, x), dimensions={}", "expected 1 number"},
           {"sort(x), dimensions={}", "expected 1 number"},
           {"iota()", "has no iota_dimension"},
           {"compare(x, x)", "has no direction"},
           {"compare(x, x), direction=XX", "found 'XX'"},
           {"collective-permute(x)", "has no source_target_pairs"},
           {"collective-permute(x), source_target_pairs={{0,1,2}}", "expected pairs"},
           {"collective-permute(x), source_target_pairs={0,1}", "expected pairs"},
           {"convolution(x, x)", "has no dim_labels"},
       }) {
    const std::string text = "ENTRY e {\n  x = f32[4,6] parameter(0)\n  ROOT r = f32[4,6] " + instruction + "\n}\n";
    for (const Faults faults : {Faults::kRefuse, Faults::kRecord}) {
      EXPECT_THAT(short_error(text, faults), AllOf(HasSubstr(what), HasSubstr("s.hlo:3:"))) << instruction;
    }
  }
}

// If there are several dimensions, XLA takes the first.
TEST(HloFaults, TheFirstOfSeveralDimensionsIsTaken) {
  const auto result = [](const std::string& instruction) {
    const Graph g = read_short(
        "s {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
        "ENTRY e {\n  x = f32[4,6] parameter(0)\n  ROOT r = " +
        instruction + "\n}\n");
    EXPECT_TRUE(g.warnings().empty()) << g.warnings()[0];
    return std::string(g.shape_of(g.entry().root).text);
  };
  EXPECT_EQ(result("f32[8,6] all-gather(x), replica_groups={{0,1}}, dimensions={0,1}"), "f32[8,6]");
  EXPECT_EQ(result("f32[4,12] all-gather(x), replica_groups={{0,1}}, dimensions={1,7}"), "f32[4,12]");
  EXPECT_EQ(result("f32[2,6] reduce-scatter(x), replica_groups={{0,1}}, dimensions={0,1}, to_apply=s"), "f32[2,6]");
  EXPECT_EQ(result("s32[] get-dimension-size(x), dimensions={1,1}"), "s32[]");
  EXPECT_THAT(short_error("ENTRY e {\n  x = f32[4,6] parameter(0)\n"
                          "  ROOT r = f32[8,6] all-gather(x), replica_groups={{0,1}}, dimensions={1,0}\n}\n"),
              HasSubstr("does not fit the operand f32[4,6] and the result f32[8,6]"));
}

// A sharding that says nothing possible changes nothing that is read: it is only said.
TEST(HloFaults, MalformedShardingsAreSaid) {
  for (const auto& [sharding, what] : std::vector<std::pair<std::string, std::string>>{
           {"{devices=[2,2]<=[16]}", "puts 4 tiles on 16 devices"},
           {"{devices=[2,2]0,1,2}", "puts 4 tiles on 3 devices"},
           {"{devices=[2,2]0,1,2,2}", "names device 2 twice"},
           {"{devices=[2]0,1}", "has 1 tile dimensions for f32[4,6]"},
           {"{devices=[2,2]<=[2,2]T(0,0)}", "order behind T"},
           {"{{replicated}, {replicated}}", "has 2 elements for 1 arrays"},
           {"{banana}", "says neither"},
           {"{devices=}", "lacks a list of tiles"},
           {"{devices=[2,1,2]<=[4] last_tile_dims={foo}}", "has 'foo' among its last_tile_dims, expected replicated"},
           {"{devices=[2,1,2]<=[4] last_tile_dims={unknown}}", "has 'unknown' among its last_tile_dims"},
           {"{devices=[2,1,2]<=[4] last_tile_dims={manual,}}", "lacks the kind of a subgroup"},
           {"{devices=[2,1,2]<=[4] last_tile_dims={manual manual}}", "lacks a '}' behind last_tile_dims"},
           {"{devices=[2,1,2]<=[4] last_tile_dims={manual} last_tile_dim_replicate}", "says twice"},
           {"{devices=[2]<=[2] last_tile_dims={manual,replicated}}", "has 2 subgroups for 1 tile dimensions"},
       }) {
    const Graph g = read_short("ENTRY e {\n  ROOT x = f32[4,6] parameter(0), sharding=" + sharding + "\n}\n");
    ASSERT_EQ(g.warnings().size(), 1u) << sharding;
    EXPECT_THAT(g.warnings()[0], AllOf(HasSubstr("s.hlo:2:"), HasSubstr(what))) << sharding;
  }
  for (const char* sharding :
       {"{replicated}", "{manual}", "{maximal device=3}", "{devices=[2,2]<=[4]}",
        "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}", "{devices=[2,1,2]0,1,2,3 last_tile_dims={manual}}",
        "{devices=[2,1,2,2]<=[8] last_tile_dims={ manual , unreduced }}", "{devices=[2,2]<=[4] last_tile_dims={}}",
        "{devices=[2,1,2]<=[4] last_tile_dims={maximal} metadata={op_name=\"a\"}}", "{unknown shard_as 1}",
        "{devices=[2,1]0,1 metadata={op_name=\"a\"}}"}) {
    const Graph g =
        read_short(std::string("ENTRY e {\n  ROOT x = f32[4,6] parameter(0), sharding=") + sharding + "\n}\n");
    EXPECT_TRUE(g.warnings().empty()) << sharding << ": " << g.warnings()[0];
  }
}

// Layouts change nothing that is counted: one that cannot be is said, and no more.
TEST(HloShortForms, LayoutsOfOtherDimensionsAreSaid) {
  for (const char* layout : {"{0}", "{2,1,0}", "{1 0}", "{0:T(8,128)}"}) {
    const Graph g = read_short(std::string("ENTRY e {\n  ROOT x = f32[4,6]") + layout + " parameter(0)\n}\n");
    ASSERT_EQ(g.warnings().size(), 1u) << layout;
    EXPECT_THAT(g.warnings()[0], AllOf(HasSubstr("s.hlo:2:"), HasSubstr("orders other dimensions"))) << layout;
  }
  for (const char* layout : {"", "{}", "{1,0}", "{ 1 , 0 }", "{0,1:T(8,128)(2,1)S(1)}", "{:S(5)}", "{1,0:D(D,C)}"}) {
    const Graph g = read_short(std::string("ENTRY e {\n  ROOT x = f32[4,6]") + layout + " parameter(0)\n}\n");
    EXPECT_TRUE(g.warnings().empty()) << layout;
  }
}

// A kernel with the positions of its values: the values are what is multiplied.
TEST(HloShortForms, SparseKernelsOfConvolutions) {
  const Graph g = read_short(R"(HloModule m
ENTRY e (a: f32[1,8], v: f32[2,3], p: s32[2,3]) -> f32[1,3] {
  a = f32[1,8] parameter(0)
  v = f32[2,3] parameter(1)
  p = s32[2,3] parameter(2)
  k = (f32[2,3], s32[2,3]) tuple(v, p)
  ROOT c = f32[1,3] convolution(a, k), dim_labels=bf_io->bf, sparsity_config={ rhs={sparsity=1x4 dimension=0 stride=1} }
})");
  EXPECT_GT(analyze_cost(g).total.flops, 0);
}

}  // namespace
}  // namespace automap::hlo
