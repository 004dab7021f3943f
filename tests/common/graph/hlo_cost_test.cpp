#include "common/graph/hlo_cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>
#include <string>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_text.h"

namespace automap::graph {
namespace {

struct Case {
  const char* name;
  const char* instructions;  // of the entry, after p = f32[10,10], z = f32[] 0, i = s32[] 0
  double flops, transcendentals, bytes;
};

// The figures are what XLA's HloCostAnalysis says of the same module (CPU client, jaxlib 0.10).
constexpr Case kCases[] = {
    {"abs", "ROOT r = f32[10,10] abs(p)", 100, 0, 800},
    {"is-finite", "ROOT r = pred[10,10] is-finite(p)", 100, 0, 500},
    {"erf", "ROOT r = f32[10,10] erf(p)", 0, 100, 800},
    {"asinh", "ROOT r = f32[10,10] asinh(p)", 0, 100, 800},
    {"copy", "ROOT r = f32[10,10] copy(p)", 0, 0, 800},
    {"reverse", "ROOT r = f32[10,10] reverse(p), dimensions={0}", 0, 0, 800},
    {"add", "ROOT r = f32[10,10] add(p, p)", 100, 0, 1200},
    {"power", "ROOT r = f32[10,10] power(p, p)", 0, 100, 1200},
    {"convert", "ROOT r = f16[10,10] convert(p)", 100, 0, 600},
    {"bitcast", "ROOT r = f32[100] bitcast(p)", 0, 0, 0},
    {"bitcast-convert", "ROOT r = s32[10,10] bitcast-convert(p)", 100, 0, 800},
    {"clamp", "ROOT r = f32[10,10] clamp(z, p, z)", 100, 0, 808},
    {"complex", "ROOT r = c64[10,10] complex(p, p)", 100, 0, 1600},
    {"compare", "ROOT r = pred[10,10] compare(p, p), direction=GE", 100, 0, 900},
    {"iota", "ROOT r = f32[10,10] iota(), iota_dimension=0", 0, 0, 400},
    {"broadcast", "ROOT r = f32[10,10] broadcast(z), dimensions={}", 0, 0, 404},
    {"pad", "ROOT r = f32[12,10] pad(p, z), padding=1_1x0_0", 0, 0, 884},
    {"map", "ROOT r = f32[10,10] map(p, p), dimensions={0,1}, to_apply=add", 100, 0, 1200},
    {"reduce", "ROOT r = f32[10] reduce(p, z), dimensions={0}, to_apply=add", 90, 0, 444},
    {"transpose", "ROOT r = f32[10,10]{1,0} transpose(p), dimensions={1,0}", 0, 0, 800},
    {"transpose as layout", "ROOT r = f32[10,10]{0,1} transpose(p), dimensions={1,0}", 0, 0, 0},
    {"sort", "ROOT r = f32[10,10] sort(p), dimensions={0}, to_apply=ge", 700, 0, 800},
    {"fft", "ROOT r = c64[10,6] fft(p), fft_type=RFFT, fft_length={10}", 2400, 0, 880},
    {"cholesky", "ROOT r = f32[10,10] cholesky(p), lower=true", 333, 0, 400},
    {"triangular-solve",
     "ROOT r = f32[10,10] triangular-solve(p, p), left_side=true, lower=true, transpose_a=NO_TRANSPOSE", 2000, 0, 1000},
    {"rng", "ROOT r = f32[10,10] rng(z, z), distribution=rng_uniform", 0, 100, 408},
    {"rng-bit-generator",
     "s = u64[2] constant({1,2})\n ROOT r = (u64[2], u32[10,10]) rng-bit-generator(s), algorithm=rng_three_fry", 0, 102,
     432},
    {"tuple", "ROOT r = (f32[10,10], f32[10,10]) tuple(p, p)", 0, 0, 16},
    {"opt-barrier", "t = (f32[10,10], f32[10,10]) tuple(p, p)\n ROOT r = (f32[10,10], f32[10,10]) opt-barrier(t)", 0, 0,
     832},
    {"topk", "ROOT r = (f32[10,3], s32[10,3]) topk(p), k=3, largest=true", 0, 0, 640},
    {"dynamic-slice", "ROOT r = f32[2,10] dynamic-slice(p, i, i), dynamic_slice_sizes={2,10}", 0, 0, 164},
    {"dynamic-update-slice", "u = f32[2,10] constant({...})\n ROOT r = f32[10,10] dynamic-update-slice(p, u, i, i)", 0,
     0, 164},
    {"all-reduce", "ROOT r = f32[10,10] all-reduce(p), replica_groups={}, to_apply=add", 100, 0, 800},
    {"all-gather", "ROOT r = f32[20,10] all-gather(p), replica_groups={{0,1}}, dimensions={0}", 0, 0, 1200},
    {"reduce-scatter", "ROOT r = f32[5,10] reduce-scatter(p), replica_groups={{0,1}}, dimensions={0}, to_apply=add", 0,
     0, 600},
    {"scatter",
     "x = s32[2,1] constant({{0},{1}})\n u = f32[2,10] constant({...})\n ROOT r = f32[10,10] scatter(p, x, u), "
     "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
     "to_apply=add",
     20, 0, 248},
    {"gather",
     "x = s32[2,1] constant({{0},{1}})\n ROOT r = f32[2,10] gather(p, x), offset_dims={1}, collapsed_slice_dims={0}, "
     "start_index_map={0}, index_vector_dim=1, slice_sizes={1,10}",
     0, 0, 168},
    {"sub-byte", "q = s4[10,10] convert(p)\n ROOT r = s4[10,10] copy(q)", 100, 0, 700},
    {"packed sub-byte", "q = s4[10,10]{1,0:E(4)} convert(p)\n ROOT r = s4[10,10]{1,0:E(4)} copy(q)", 100, 0, 550},
    {"dynamic", "ROOT r = f32[<=10,10] set-dimension-size(p, i), dimensions={0}", 0, 0, 812},
    {"copy-start", "s = (f32[10,10], f32[10,10], u32[]) copy-start(p)\n ROOT r = f32[10,10] copy-done(s)", 0, 0, 1628},
    {"select-and-scatter",
     "s = f32[5,5] constant({...})\n ROOT r = f32[10,10] select-and-scatter(p, s, z), window={size=2x2 stride=2x2}, "
     "select=ge, scatter=add",
     100, 0, 904},
    {"reduce-window", "ROOT r = f32[9,9] reduce-window(p, z), window={size=2x2}, to_apply=add", 243, 0, 728},
    {"running sum", "ROOT r = f32[10,10] reduce-window(p, z), window={size=1x10 pad=0_0x9_0}, to_apply=add", 900, 0,
     804},
    {"broadcast reduction", "ROOT r = f32[10,10] reduce-window(p, z), window={size=1x19 pad=0_0x9_9}, to_apply=add", 19,
     0, 804},
    {"partition-id", "ROOT r = u32[] partition-id()", 0, 0, 4},
    {"batch-norm-training",
     "q = f32[10] constant({...})\n ROOT r = (f32[10,10], f32[10], f32[10]) batch-norm-training(p, q, q), epsilon=0.1, "
     "feature_index=1",
     0, 0, 960},
    {"stochastic-convert", "q = u32[10,10] constant({...})\n ROOT r = f16[10,10] stochastic-convert(p, q)", 100, 0,
     1000},
    // Unlike XLA, which leaves out the result's rows.
    {"ragged-dot",
     "g = s32[3] constant({3,3,4})\n w = f32[3,10,7] constant({...})\n ROOT r = f32[10,7] ragged-dot(p, w, g), "
     "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
     1400, 0, 1532},
    {"ragged-dot",
     "g = s32[3] constant({3,3,4})\n w = f32[10,7] constant({...})\n ROOT r = f32[3,10,7] ragged-dot(p, w, g), "
     "lhs_contracting_dims={0}, rhs_contracting_dims={0}, lhs_ragged_dims={0}",
     1400, 0, 1532},
    // Unlike XLA, which says -1 for both: nobody knows.
    {"custom-call", "ROOT r = f32[10,10] custom-call(p), custom_call_target=\"foo\"", 0, 0, 0},
};

Graph module_of(const std::string& instructions) {
  return hlo::read_hlo_text(R"(HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
ge { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = pred[] compare(a, b), direction=GE }
ENTRY e { p = f32[10,10] parameter(0)
 z = f32[] constant(0)
 i = s32[] constant(0)
 )" + instructions + "\n}",
                            "test");
}

TEST(HloCost, EachOpcodeAsXlaCountsIt) {
  for (const Case& c : kCases) {
    const ModuleCost cost = analyze_cost(module_of(c.instructions));
    EXPECT_EQ(cost.total.flops, c.flops) << c.name;
    EXPECT_EQ(cost.total.transcendentals, c.transcendentals) << c.name;
    EXPECT_EQ(cost.total.bytes, c.bytes) << c.name;
    EXPECT_EQ(cost.custom_calls, std::string(c.name) == "custom-call" ? 1 : 0) << c.name;
  }
}

TEST(HloCost, DotCountsMultiplyAddsAsTwo) {
  const Graph graph = hlo::read_hlo_text(R"(HloModule m
ENTRY e {
  a = f32[4,8,16] parameter(0)
  b = f32[4,16,32] parameter(1)
  ROOT d = f32[4,8,32] dot(a, b), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}
})",
                                         "test");
  EXPECT_EQ(analyze_cost(graph).total.flops, 2.0 * 4 * 8 * 32 * 16);
}

TEST(HloCost, ValidPositionsWorkedCase) {
  WindowDimension window;
  window.size = 3;
  window.pad_low = window.pad_high = 1;
  EXPECT_EQ(valid_positions(4, 3, 4, window), 10);
}

TEST(HloCost, ValidPositionsAgreeWithTheDoubleLoop) {
  std::mt19937 random(3);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int round = 0; round < 5000; ++round) {
    const int input = draw(0, 12), kernel = draw(0, 9), output = draw(0, 12);
    WindowDimension window;
    window.stride = draw(1, 4);
    window.pad_low = draw(-5, 8);
    window.base_dilation = draw(1, 6);
    window.window_dilation = draw(1, 5);
    double expected = 0;
    for (int k = 0; k < kernel; ++k) {
      for (int o = 0; o < output; ++o) {
        const std::int64_t at = o * window.stride - window.pad_low + k * window.window_dilation;
        if (at < 0 || at % window.base_dilation != 0 || at / window.base_dilation >= input) continue;
        ++expected;
      }
    }
    ASSERT_EQ(valid_positions(input, kernel, output, window), expected)
        << "input " << input << " kernel " << kernel << " output " << output << " stride " << window.stride << " pad "
        << window.pad_low << " dilation " << window.base_dilation << ", " << window.window_dilation;
  }
}

// Absurd but well-formed sizes must neither hang nor overflow.
TEST(HloCost, ValidPositionsOfHugeDimensions) {
  WindowDimension window;
  window.stride = 2;
  const std::int64_t huge = std::int64_t{1} << 40;
  const double all = valid_positions(huge, huge, huge, window);
  EXPECT_GT(all, 0);
  EXPECT_TRUE(std::isfinite(all));
  window.base_dilation = huge;
  EXPECT_TRUE(std::isfinite(valid_positions(huge, huge, huge, window)));
}

TEST(HloCost, ConvolutionsAsXlaCountsThem) {
  // Forward 3x3 with padding; XLA: 2 * 3 in * 8 out * 2 batch * (10 * 10 valid of 12 * 12).
  const Graph graph = hlo::read_hlo_text(R"(HloModule m
ENTRY e {
  x = f32[2,4,4,3] parameter(0)
  k = f32[3,3,3,8] parameter(1)
  ROOT c = f32[2,4,4,8] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
})",
                                         "test");
  EXPECT_EQ(analyze_cost(graph).total.flops, 2.0 * 3 * 8 * 2 * 100);
  const Graph grouped = hlo::read_hlo_text(R"(HloModule m
ENTRY e {
  x = f32[2,4,4,6] parameter(0)
  k = f32[1,1,3,8] parameter(1)
  ROOT c = f32[2,4,4,8] convolution(x, k), window={size=1x1}, dim_labels=b01f_01io->b01f, feature_group_count=2
})",
                                           "test");
  EXPECT_EQ(analyze_cost(grouped).total.flops, 2.0 * 3 * 8 * 2 * 16);
}

constexpr const char* kNested = R"(HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
f { x = f32[10] parameter(0)
 ROOT r = f32[10] exponential(x) }
g { x = f32[10] parameter(0)
 y = f32[10] multiply(x, x)
 ROOT r = f32[10] add(y, x) }
body { s = (s32[], f32[10]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f32[10] get-tuple-element(s), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 y = f32[10] call(x), to_apply=g
 ROOT r = (s32[], f32[10]) tuple(j, y) }
condition { s = (s32[], f32[10]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(6)
 ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[10] parameter(0)
 p = pred[] parameter(1)
 zero = s32[] constant(0)
 t = (s32[], f32[10]) tuple(zero, x)
 w = (s32[], f32[10]) while(t), condition=condition, body=body
 y = f32[10] get-tuple-element(w), index=1
 k = f32[10] conditional(p, y, y), true_computation=f, false_computation=g
 ROOT r = f32[10] fusion(k), kind=kLoop, calls=g })";

TEST(HloCost, CallsLoopsBranchesAndFusions) {
  const Graph graph = hlo::read_hlo_text(kNested, "test");
  const ModuleCost once = analyze_cost(graph);
  // while: 20 + 1 (counter) + 1 (compare); conditional: max(0, 20); fusion: 20.
  EXPECT_EQ(once.total.flops, 22 + 20 + 20);
  EXPECT_EQ(once.total.transcendentals, 10);
  // A fusion reads its operand and writes its result once.
  EXPECT_EQ(once.instructions[static_cast<std::size_t>(graph.entry().root)].bytes, 80);
  const ModuleCost trips = analyze_cost(graph, WhileCounting::kTripCount);
  EXPECT_EQ(trips.total.flops, 6 * 22 + 20 + 20);
  EXPECT_EQ(trips.total.transcendentals, 10);
  // One of two branches runs, so that what both have counts once.
  std::string both = kNested;
  both.replace(both.find("false_computation=g"), 19, "false_computation=f");
  EXPECT_EQ(analyze_cost(hlo::read_hlo_text(both, "test")).total.transcendentals, 10);
}

TEST(HloCost, MalformedAttributesAreErrorsThatNameTheInstruction) {
  for (const char* instruction :
       {"ROOT bad = f32[9,9] reduce-window(p, z), window={size=2y2}, to_apply=add",
        "ROOT bad = f32[10,10] transpose(p), dimensions={7,0}",
        "ROOT bad = f32[10,10] dot(p, p), lhs_contracting_dims={5}, rhs_contracting_dims={0}"}) {
    try {
      analyze_cost(module_of(instruction));
      // The reader may refuse it first, with its own error; what must not happen is that nobody does.
      ADD_FAILURE() << "no error for " << instruction;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      EXPECT_NE(std::string(error.what()).find("bad"), std::string::npos) << error.what();
    }
  }
}

// Calls 64 levels deep, each calling the next twice: 2^64 executions, counted in one pass.
TEST(HloCost, SharedCalleesAreCountedOncePerComputation) {
  std::string text = "HloModule m\nf0 { x = f32[8] parameter(0)\n ROOT r = f32[8] negate(x) }\n";
  for (int level = 1; level <= 64; ++level) {
    const std::string callee = "f" + std::to_string(level - 1);
    text += "f" + std::to_string(level) + " { x = f32[8] parameter(0)\n a = f32[8] call(x), to_apply=" + callee +
            "\n ROOT r = f32[8] call(a), to_apply=" + callee + " }\n";
  }
  text += "ENTRY e { x = f32[8] parameter(0)\n ROOT r = f32[8] call(x), to_apply=f64 }\n";
  EXPECT_EQ(analyze_cost(hlo::read_hlo_text(text, "test")).total.flops, std::ldexp(8.0, 64));
}

TEST(HloCost, FixturesAgreeWithXla) {
  const std::string folder = std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/";
  const Json manifest = Json::parse(read_file(folder + "MANIFEST.json"));
  int checked = 0;
  for (const auto& model : manifest.at("models")) {
    for (const auto& form : model.at("forms")) {  // text, without metadata, binary and JSON protobuf
      const std::string path = folder + form["file"].get<std::string>();
      if (path.find("/stablehlo/") != std::string::npos) continue;  // needs jaxlib: cli.test_stablehlo
      const ModuleCost cost = analyze_cost(hlo::load_hlo(path).graph);
      // XLA adds in single precision, so its own totals carry an error of this order.
      const auto agrees = [&](double ours, const char* key) {
        const auto theirs = model.at(key).get<double>();
        EXPECT_NEAR(ours, theirs, 2e-4 * theirs + 1) << path << " " << key;
      };
      agrees(cost.total.flops, "flops");
      agrees(cost.total.transcendentals, "transcendentals");
      agrees(cost.total.bytes, "bytes_accessed");
      ++checked;
    }
  }
  EXPECT_GE(checked, 20);
}

TEST(HloCost, AScanDoesItsStepOnceForEachSlice) {
  const Graph graph = hlo::read_hlo_text(R"(HloModule m
step {
  x = f32[6,8] parameter(0)
  carry = f32[8,8] parameter(1)
  y = f32[6,8] dot(x, carry), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT both = (f32[6,8], f32[8,8]) tuple(y, carry)
}
ENTRY e {
  xs = f32[6,5,8] parameter(0)
  first = f32[8,8] parameter(1)
  ROOT s = (f32[6,5,8], f32[8,8]) scan(xs, first), dimensions={1}, num_carries=1, is_reverse=false, to_apply=step
})",
                                         "test");
  EXPECT_EQ(scan_length(graph, graph.entry().root), 5);
  EXPECT_EQ(analyze_cost(graph).total.flops, 5 * 2.0 * 6 * 8 * 8);
}

// Forward 2 products, backward 5; half of them behind a causal mask; sizes by shapes or, where those hide them, by the
// configuration.
TEST(HloCost, AttentionOfLibrariesIsCountedByItsShapes) {
  const auto cost = [](const std::string& operands, const std::string& target, const std::string& config) {
    const Graph graph =
        hlo::read_hlo_text("ENTRY e {\n" + operands + "  ROOT a = (bf16[2,64,4,16], u8[8]) custom-call(q, k, v), " +
                               "custom_call_target=\"" + target + "\", backend_config=" + config + "\n}",
                           "test");
    const ModuleCost whole = analyze_cost(graph);
    EXPECT_EQ(whole.custom_calls, whole.total.flops > 0 ? 0 : 1);
    EXPECT_GT(whole.total.flops > 0 ? whole.total.bytes : whole.custom_call_bytes, 2.0 * 2 * 64 * 4 * 16);
    return whole.total.flops;
  };
  const std::string grouped =
      "  q = bf16[2,64,4,16] parameter(0)\n  k = bf16[2,96,2,16] parameter(1)\n  v = bf16[2,96,2,16] parameter(2)\n";
  const double product = 2.0 * 2 * 4 * 64 * 96 * 16;
  const std::string forward = "te_fused_attn_forward_ffi", backward = "te_fused_attn_backward_ffi";
  EXPECT_EQ(cost(grouped, forward, "{mask_type = 0 : i64}"), 2 * product);
  EXPECT_EQ(cost(grouped, forward, "{is_causal_mask = true}"), product);
  EXPECT_EQ(cost(grouped, forward, "{mask_type = 2 : i64}"), product);
  EXPECT_EQ(cost(grouped, backward, "{mask_type = 3 : i64, attn_heads = 4 : i64}"), 2.5 * product);
  EXPECT_EQ(cost(grouped, backward, "{mask_type = 1 : i64, v_head_dim = 8 : i64}"), 4 * product);
  // Sequence first.
  EXPECT_EQ(cost("  q = bf16[64,2,4,16] parameter(0)\n  k = bf16[64,2,4,16] parameter(1)\n  v = bf16[64,2,4,16] "
                 "parameter(2)\n",
                 forward, "{mask_type = 0 : i64, qkv_layout = 4 : i64}"),
            2 * 2.0 * 2 * 4 * 64 * 64 * 16);
  // One array of queries, keys and values.
  EXPECT_EQ(cost("  q = bf16[2,64,3,4,16] parameter(0)\n  k = bf16[0] parameter(1)\n  v = bf16[0] parameter(2)\n",
                 forward, "{}"),
            2 * 2.0 * 2 * 4 * 64 * 64 * 16);
  // Several dimensions of examples.
  EXPECT_EQ(cost("  q = bf16[3,2,64,4,16] parameter(0)\n  k = bf16[3,2,96,4,16] parameter(1)\n  v = bf16[3,2,96,4,16] "
                 "parameter(2)\n",
                 forward, "{mask_type = 0 : i64, qkv_layout = 8 : i64}"),
            3 * 2 * product);
  // cuDNN says the scores' shape; here the heads stand before the sequence.
  const std::string heads_first =
      "  q = bf16[2,4,64,16] parameter(0)\n  k = bf16[2,4,96,16] parameter(1)\n  v = bf16[2,4,96,16] parameter(2)\n";
  const std::string scores =
      R"("{\"cudnn_fmha_backend_config\":{\"intermediate_tensor_shape\":{\"element_type\":\"BF16\",)"
      R"(\"dimensions\":[\"2\",\"4\",\"64\",\"96\"]},\"mask_type\":\"CAUSAL\"}}")";
  EXPECT_EQ(cost(heads_first, "__cudnn$fmhaSoftmax", scores), product);
  EXPECT_EQ(cost(heads_first, "__cudnn$fmhaScaleBiasSoftmaxDropoutBackward", scores), 2.5 * product);
  // Unknown custom calls cost nothing but their bytes.
  EXPECT_EQ(cost(grouped, "somebodys_attention", "{}"), 0);
}

TEST(HloCost, AnnotationsAreNoWork) {
  const Graph graph = hlo::read_hlo_text(
      "ENTRY e {\n  x = f32[4] parameter(0)\n"
      "  ROOT y = f32[4] custom-call(x), custom_call_target=\"Sharding\", sharding={replicated}\n}",
      "test");
  EXPECT_EQ(analyze_cost(graph).custom_calls, 0);
  // shard_map's marks hand on several values, whose parts have other shapes.
  const Graph marks = hlo::read_hlo_text(
      "ENTRY e {\n  x = f32[4,8] parameter(0)\n  y = f32[8] parameter(1)\n"
      "  s = (f32[1,8], f32[8]) custom-call(x, y), custom_call_target=\"xla.sdy.GlobalToLocalShape\"\n"
      "  a = f32[1,8] get-tuple-element(s), index=0\n"
      "  ROOT r = f32[4,8] custom-call(a), custom_call_target=\"xla.sdy.LocalToGlobalShape\"\n}",
      "test");
  EXPECT_EQ(analyze_cost(marks).custom_calls, 0);
  EXPECT_EQ(analyze_cost(marks).total.flops, 0);
}

}  // namespace
}  // namespace automap::graph
