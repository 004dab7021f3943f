#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <sstream>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/graph/hlo_cost.h"
#include "common/hlo/hlo_text.h"
#include "common/machine/device.h"
#include "profile/time_estimator.h"

namespace automap::profile {
namespace {

using graph::ComputationId;
using graph::Graph;
using graph::InstructionId;
using testing::HasSubstr;

Graph parse(const std::string& text) {
  return hlo::read_hlo_text(text, "test");
}

double entry_ms(const Graph& graph, const InstructionTimes& times) {
  double sum = 0;
  const auto& entry = graph.entry();
  for (InstructionId id = entry.first; id < entry.first + entry.count; ++id) {
    sum += times.ms[static_cast<std::size_t>(id)];
  }
  return sum;
}

double entry_ms(const std::string& text, const char* device = "h100") {
  const Graph graph = parse(text);
  return entry_ms(graph, estimate_times(graph, machine::load_device(device)));
}

// The time of the last instruction of that name.
double ms_of(const Graph& graph, const InstructionTimes& times, const std::string& name) {
  for (InstructionId id = graph.num_instructions(); id-- > 0;) {
    if (graph.instruction(id).name == name) return times.ms[static_cast<std::size_t>(id)];
  }
  ADD_FAILURE() << "no instruction " << name;
  return 0;
}

// Measured on an H100 (XLA's table of matrix products, bfloat16): 780, 253 and 6.7 TFLOP/s for cubes of 4096, 1024 and
// 256. Each of those measurements includes 5 us of a launch that nothing hides.
TEST(DeviceModel, MatmulCurveMeetsMeasurements) {
  const machine::DeviceModel device = machine::load_device("h100");
  const std::pair<double, double> measured[] = {{4096, 780}, {1024, 252.8}, {512, 43.6}, {256, 6.7}};
  for (const auto& [size, tflops] : measured) {
    const double flops = 2 * size * size * size;
    const double us = flops / (989e6 * matmul_share_of_peak(device, "bf16", 1, size, size, size)) + 5;
    EXPECT_NEAR(flops / us * 1e-6, tflops, 0.12 * tflops) << size;
  }
}

TEST(DeviceModel, MatmulShareGrowsWithEveryDimension) {
  for (const char* name : {"v100-16gb", "a100-40gb", "h100", "b200"}) {
    const machine::DeviceModel device = machine::load_device(name);
    for (const char* type : {"f32", "tf32", "f16", "bf16", "f8"}) {
      const auto share = [&](double batch, double m, double n, double k) {
        return matmul_share_of_peak(device, type, batch, m, n, k);
      };
      for (double size = 1; size < 10000; size *= 2) {
        EXPECT_GT(share(1, size, 512, 512), 0) << name << " " << type;
        EXPECT_LT(share(1, size, 512, 512), device.matmul_efficiency_of(type).share) << name << " " << type;
        EXPECT_LT(share(1, size, 512, 512), share(1, 2 * size, 512, 512)) << name << " " << type;
        EXPECT_LT(share(1, 512, 512, size), share(1, 512, 512, 2 * size)) << name << " " << type;
        EXPECT_LT(share(1, size, 512, 512), share(2, size, 512, 512)) << name << " " << type;
      }
      // Against the formula, written out for one shape without a split contraction or a narrow side.
      const machine::MatmulEfficiency e = device.matmul_efficiency_of(type);
      const double tiles = 3 * 1024.0 * 512 / 16384;
      EXPECT_NEAR(share(3, 1024, 512, 256),
                  e.share * tiles / (tiles + e.half_tiles * device.cores) * 256 / (256 + e.half_length), 1e-12);
    }
  }
}

// A side of 64 leaves part of every tile idle; half a tile is the least that is charged.
TEST(DeviceModel, NarrowProductsReachLess) {
  const machine::DeviceModel device = machine::load_device("v100-16gb");
  const auto share = [&](double n) { return matmul_share_of_peak(device, "f16", 1 << 20, 4096, n, 512); };
  EXPECT_NEAR(share(64), share(128) * std::pow(0.5, 0.8), 0.01 * share(64));
  EXPECT_NEAR(share(8), share(64), 0.01 * share(64));
  EXPECT_NEAR(share(256), share(128), 0.01 * share(128));
}

TEST(DeviceModel, TimesGrowWithSizesAndNoKernelIsShorterThanTheHostTakes) {
  const auto product = [](int m, int n, int k, const std::string& type) {
    const std::string lhs = type + "[" + std::to_string(m) + "," + std::to_string(k) + "]";
    const std::string rhs = type + "[" + std::to_string(k) + "," + std::to_string(n) + "]";
    return "HloModule m\nENTRY e { x = " + lhs + " parameter(0)\n y = " + rhs + " parameter(1)\n ROOT d = " + type +
           "[" + std::to_string(m) + "," + std::to_string(n) +
           "] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} }";
  };
  for (const std::string& name : machine::device_names()) {
    for (const char* type : {"f32", "f16", "bf16"}) {
      double before = machine::load_device(name).host_us * 1e-3;
      for (int size = 64; size <= 8192; size *= 2) {
        for (const double ms : {entry_ms(product(size, size, size, type), name.c_str()),
                                entry_ms(product(2 * size, size, size, type), name.c_str()),
                                entry_ms(product(2 * size, size, 2 * size, type), name.c_str())}) {
          EXPECT_GE(ms, before * 0.999) << name << " " << type << " " << size;
          before = ms;
        }
      }
    }
  }
}

constexpr const char* kBig = "f32[4096,4096]";

std::string entry(const std::string& body) {
  std::string text =
      "HloModule m\nadd { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n" + body;
  for (auto at = text.find("BIG"); at != std::string::npos; at = text.find("BIG")) text.replace(at, 3, kBig);
  return text;
}

TEST(DeviceModel, WhatOneFusedKernelMovesIsMovedAgainWhereSoftwareDoesNotFuse) {
  machine::DeviceModel fused = machine::load_device("a100-80gb");
  fused.launch_us = fused.host_us = 0;
  machine::DeviceModel eager = fused;
  eager.elementwise_passes = 2;
  const auto ms = [](const std::string& body, const machine::DeviceModel& device) {
    const Graph graph = parse(entry(body));
    return entry_ms(graph, estimate_times(graph, device));
  };
  const std::string added =
      "ENTRY e { x = BIG parameter(0)\n y = BIG parameter(1)\n s = BIG add(x, y)\n ROOT m = BIG multiply(s, y) }\n";
  // Three arrays of 64 MiB, which hide most of the arithmetic.
  const double moved = 3 * 4096.0 * 4096 * 4 / (fused.memory_gbytes_per_s * fused.memory_efficiency) * 1e-6;
  EXPECT_NEAR(ms(added, eager) - ms(added, fused), moved, 0.01 * moved);
  const std::string summed =
      "ENTRY e { x = BIG parameter(0)\n zero = f32[] constant(0)\n ROOT r = f32[4096] reduce(x, zero), dimensions={1}, "
      "to_apply=add }\n";
  EXPECT_NEAR(ms(summed, eager), 2 * ms(summed, fused), 0.05 * ms(summed, fused));
  // Matrix products are kernels of libraries.
  const std::string product =
      "ENTRY e { x = BIG parameter(0)\n y = BIG parameter(1)\n ROOT d = BIG dot(x, y), lhs_contracting_dims={1}, "
      "rhs_contracting_dims={0} }\n";
  EXPECT_EQ(ms(product, eager), ms(product, fused));
}

TEST(DeviceModel, ElementwiseChainsAreOneKernel) {
  const double one = entry_ms(entry("ENTRY e { x = BIG parameter(0)\n ROOT r = BIG negate(x) }"));
  // 64 MiB in and out at 0.85 of 3350 GB/s, and a launch.
  EXPECT_NEAR(one, 2 * 67.108864 / (3350 * 0.85) + 0.0025, 0.004);
  const double five = entry_ms(
      entry("ENTRY e { x = BIG parameter(0)\n a = BIG negate(x)\n b = BIG abs(a)\n c = BIG add(b, x)\n d = BIG "
            "multiply(c, a)\n ROOT r = BIG negate(d) }"));
  EXPECT_NEAR(five, one, 0.15 * one);
  // Broadcast parameters and constants on the way cost nothing to speak of.
  const double biased = entry_ms(entry(
      "ENTRY e { x = BIG parameter(0)\n b = f32[4096] parameter(1)\n w = BIG broadcast(b), dimensions={1}\n two = "
      "f32[] constant(2)\n t = BIG broadcast(two), dimensions={}\n y = BIG add(x, w)\n ROOT r = BIG multiply(y, t) }"));
  EXPECT_NEAR(biased, one, 0.15 * one);
  // A reduction at the end saves the write.
  const double reduced = entry_ms(entry(
      "ENTRY e { x = BIG parameter(0)\n z = f32[] constant(0)\n a = BIG abs(x)\n ROOT r = f32[4096] reduce(a, z), "
      "dimensions={1}, to_apply=add }"));
  EXPECT_NEAR(reduced, one / 2, 0.2 * one);
}

// Softmax over the dimension `over` (0 or 1) of a square: max, subtract, exp, sum, divide.
std::string softmax_over(int over) {
  const std::string reduced = std::to_string(over), kept = std::to_string(1 - over);
  return entry("ENTRY e { x = BIG parameter(0)\n z = f32[] constant(0)\n m = f32[4096] reduce(x, z), dimensions={" +
               reduced + "}, to_apply=add\n mb = BIG broadcast(m), dimensions={" + kept +
               "}\n d = BIG subtract(x, mb)\n p = BIG exponential(d)\n s = f32[4096] reduce(p, z), dimensions={" +
               reduced + "}, to_apply=add\n sb = BIG broadcast(s), dimensions={" + kept +
               "}\n ROOT r = BIG divide(p, sb) }");
}

// 64 MiB at 0.85 of the bandwidth of an H100.
constexpr double kPassMs = 67.108864 / (3350 * 0.85);

TEST(DeviceModel, ValuesReadByLaterKernelsAreStoredOrMadeAgain) {
  // Across rows: reads x three times and writes once, whatever is made again.
  const double softmax = entry_ms(softmax_over(0));
  EXPECT_GT(softmax, 3.5 * kPassMs);
  EXPECT_LT(softmax, 5.5 * kPassMs);
}

TEST(DeviceModel, RowsStayOnTheChip) {
  // Along rows: one kernel reads x once and writes once.
  EXPECT_NEAR(entry_ms(softmax_over(1)), 2 * kPassMs, 0.3 * kPassMs);
  // A row that is a vocabulary does not fit: the same work in longer rows takes more passes.
  std::string wide = softmax_over(1);
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"f32[4096,4096]", "f32[512,32768]"},
                                 std::pair<std::string, std::string>{"f32[4096]", "f32[512]"}}) {
    for (auto at = wide.find(from); at != std::string::npos; at = wide.find(from)) wide.replace(at, from.size(), to);
  }
  EXPECT_GT(entry_ms(wide), 3.5 * kPassMs);
}

TEST(DeviceModel, SiblingsReadOneValueOnce) {
  const char* two =
      "ENTRY e { x = BIG parameter(0)\n z = f32[] constant(0)\n q = BIG multiply(x, x)\n a = f32[4096] reduce(x, z), "
      "dimensions={0}, to_apply=add\n b = f32[4096] reduce(q, z), dimensions={0}, to_apply=add\n ROOT t = (f32[4096], "
      "f32[4096]) tuple(a, b) }";
  EXPECT_NEAR(entry_ms(entry(two)), kPassMs, 0.2 * kPassMs);
}

// A product, then `rest`, on an A100. `draws`: `keep` is a mask drawn from a key, laid over what there is with `none`.
double dropout_ms(const std::string& rest, bool draws = true) {
  const std::string drawn =
      " draw = (u64[2], u32[4096,4096]) rng-bit-generator(key), algorithm=rng_philox\n"
      " next = u64[2] get-tuple-element(draw), index=0\n"
      " bits = u32[4096,4096] get-tuple-element(draw), index=1\n rate = u32[] constant(9)\n"
      " rates = u32[4096,4096] broadcast(rate), dimensions={}\n"
      " keep = pred[4096,4096] compare(bits, rates), direction=LT\n z = f32[] constant(0)\n"
      " none = BIG broadcast(z), dimensions={}\n";
  return entry_ms(entry("ENTRY e { x = BIG parameter(0)\n key = u64[2] parameter(1)\n w = BIG parameter(2)\n"
                        " early = BIG dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n" +
                        (draws ? drawn : "") + rest + " }"),
                  "a100-80gb");
}

TEST(DeviceModel, RandomNumbersAreMadeByTheKernelThatReadsThem) {
  const double pass = 67.108864 / (2039 * 0.85);
  const double launch = 0.0025, draw = 20 * 16.777216e6 / (19.5e9 * 0.7 * 0.5);
  const double product = dropout_ms(" ROOT r = BIG negate(x)", false) - 2 * pass - launch;
  EXPECT_GT(product, 5 * pass);
  // Over the result of a product, though the key was there before it: no bits and no mask are written.
  EXPECT_NEAR(dropout_ms(" ROOT r = BIG select(keep, early, none)") - product, 2 * pass + launch, 0.1 * pass);
  // To draw 16 Mi numbers takes 20 operations each, whatever is written of them.
  EXPECT_NEAR(dropout_ms(" ROOT r = pred[4096,4096] negate(keep)") - product, draw + launch, 0.2 * pass);
  // A gradient reads the mask that the forward kernel wrote, a byte per value, and does not draw again.
  const auto both = [&](const std::string& first, const std::string& second, bool draws) {
    return dropout_ms(" a = BIG " + first +
                          "\n d = BIG dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n ROOT r = BIG " +
                          second,
                      draws);
  };
  const double mask =
      both("select(keep, early, none)", "select(keep, d, none)", true) - both("negate(early)", "negate(d)", false);
  EXPECT_NEAR(mask, 0.5 * pass, 0.1 * pass);
  // Numbers that a product reads are written for it.
  const double written =
      dropout_ms(" f = BIG convert(bits)\n ROOT r = BIG dot(f, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}");
  EXPECT_NEAR(written - 2 * product, std::max(pass, draw) + launch, 0.2 * pass);
}

TEST(DeviceModel, HelperCallsFuseLikeTheirBodies) {
  const std::string inlined = entry(
      "ENTRY e { x = BIG parameter(0)\n z = f32[] constant(0)\n n = BIG negate(x)\n zb = BIG broadcast(z), "
      "dimensions={}\n m = BIG maximum(n, zb)\n ROOT r = BIG add(m, x) }");
  const std::string called = entry(
      "relu { v = BIG parameter(0)\n z = f32[] constant(0)\n zb = BIG broadcast(z), dimensions={}\n ROOT m = BIG "
      "maximum(v, zb) }\nENTRY e { x = BIG parameter(0)\n n = BIG negate(x)\n m = BIG call(n), to_apply=relu\n ROOT r "
      "= "
      "BIG add(m, x) }");
  EXPECT_NEAR(entry_ms(called), entry_ms(inlined), 1e-9);
}

TEST(DeviceModel, SplatsAndWhatFollowsFromConstantsAreFree) {
  EXPECT_EQ(
      entry_ms(entry("ENTRY e { one = f32[] constant(1)\n s = BIG broadcast(one), dimensions={}\n i = BIG iota(), "
                     "iota_dimension=0\n c = BIG add(s, i)\n t = BIG transpose(c), dimensions={1,0}\n ROOT r = BIG "
                     "exponential(t) }")),
      0);
}

TEST(DeviceModel, TransposesIntoMatrixProductsAreFree) {
  const auto product = [](const std::string& lhs) {
    return entry(
        "ENTRY e { x = BIG parameter(0)\n y = BIG parameter(1)\n t = BIG transpose(x), dimensions={1,0}\n ROOT d "
        "= BIG dot(" +
        lhs + ", y), lhs_contracting_dims={1}, rhs_contracting_dims={0} }");
  };
  EXPECT_NEAR(entry_ms(product("t")), entry_ms(product("x")), 1e-12);
  // And so is one that alone reads a product: the product is written that way.
  const std::string dot = "dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}";
  EXPECT_NEAR(entry_ms(entry("ENTRY e { x = BIG parameter(0)\n y = BIG parameter(1)\n d = BIG " + dot +
                             "\n ROOT t = BIG transpose(d), dimensions={1,0} }")),
              entry_ms(product("x")), 1e-12);
  // But a transposed value that is handed out is a copy.
  EXPECT_GT(entry_ms(entry("ENTRY e { x = BIG parameter(0)\n ROOT t = BIG transpose(x), dimensions={1,0} }")), 0.04);
}

TEST(DeviceModel, ReshapesTuplesAndElementsAreFree) {
  EXPECT_EQ(entry_ms(entry("ENTRY e { x = BIG parameter(0)\n r = f32[16777216] reshape(x)\n t = (f32[16777216], BIG) "
                           "tuple(r, x)\n o = (f32[16777216], BIG) opt-barrier(t)\n ROOT g = BIG get-tuple-element(o), "
                           "index=1 }")),
            0);
}

TEST(DeviceModel, SlicesAndUpdatesCostWhatTheyMove) {
  const char* text =
      "ENTRY e { x = BIG parameter(0)\n i = s32[] parameter(1)\n u = f32[1,4096] parameter(2)\n z = s32[] "
      "constant(0)\n s "
      "= f32[1,4096] dynamic-slice(x, i, z), dynamic_slice_sizes={1,4096}\n n = f32[1,4096] negate(s)\n ROOT r = BIG "
      "dynamic-update-slice(x, n, i, z) }";
  EXPECT_LT(entry_ms(entry(text)), 0.01);
}

// Slices of stacked weights that a loop over layers reads, and slices of stacked gradients that it adds to, lie
// together: products read and write them in place. This does not hold across rows, nor for slices that another
// instruction made.
TEST(DeviceModel, PartsOfStacksAreReadAndWrittenWhereTheyLie) {
  const auto module = [](const std::string& slice, const std::string& update, const std::string& value) {
    return "HloModule m\n"
           "take { s = f32[12,512,512] parameter(0)  i = s32[] parameter(1)  z = s32[] constant(0)\n"
           "  d = f32[1,512,512] dynamic-slice(s, i, z, z), dynamic_slice_sizes={1,512,512}\n"
           "  ROOT r = f32[512,512] reshape(d) }\n"
           "put { s = f32[12,512,512] parameter(0)  u = f32[512,512] parameter(1)  i = s32[] parameter(2)\n"
           "  z = s32[] constant(0)  b = f32[1,512,512] reshape(u)\n"
           "  ROOT r = f32[12,512,512] dynamic-update-slice(s, b, i, z, z) }\n"
           "ENTRY e { s = f32[12,512,512] parameter(0)  x = f32[512,512] parameter(1)  i = s32[] parameter(2)\n"
           "  g = f32[12,512,512] parameter(3)  z = s32[] constant(0)\n  " +
           slice + "\n  y = f32[512,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n  " + update +
           "\n  ROOT t = (f32[12,512,512], f32[512,512]) tuple(" + value + ", y) }\n";
  };
  const std::string whole = "w = f32[512,512] call(s, i), to_apply=take",
                    put = "p = f32[12,512,512] call(g, y, i), to_apply=put";
  const double product = entry_ms(module("w = f32[512,512] copy(x)", "q = f32[] constant(0)", "g"));
  EXPECT_LT(entry_ms(module(whole, put, "p")), product);
  // Inlined, and the same.
  const std::string inlined =
      "d = f32[1,512,512] dynamic-slice(s, i, z, z), dynamic_slice_sizes={1,512,512}\n  w = f32[512,512] reshape(d)";
  const std::string in_place =
      "b = f32[1,512,512] reshape(y)\n  p = f32[12,512,512] dynamic-update-slice(g, b, i, z, z)";
  EXPECT_EQ(entry_ms(module(inlined, in_place, "p")), entry_ms(module(whole, put, "p")));
  // An argument has to be copied into its place, and rows of columns into a matrix.
  const std::string copied = "p = f32[12,512,512] call(g, x, i), to_apply=put";
  EXPECT_GT(entry_ms(module(whole, copied, "p")), entry_ms(module(whole, put, "p")) * 1.05);
  const std::string strided =
      "d = f32[12,512,43] dynamic-slice(s, z, z, i), dynamic_slice_sizes={12,512,43}\n  f = f32[264192] reshape(d)\n"
      "  h = f32[262144] slice(f), slice={[0:262144]}\n  w = f32[512,512] reshape(h)";
  EXPECT_GT(entry_ms(module(strided, put, "p")), entry_ms(module(whole, put, "p")) * 1.05);
}

TEST(DeviceModel, PrecisionAndTypesDecideTheUnits) {
  const auto dot = [](const std::string& type, const std::string& more) {
    return "HloModule m\nENTRY e { x = " + type + "[4096,4096] parameter(0)\n ROOT d = " + type +
           "[4096,4096] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}" + more + " }";
  };
  const double f16 = entry_ms(dot("f16", "")), f32 = entry_ms(dot("f32", "")), f64 = entry_ms(dot("f64", ""));
  const double highest = entry_ms(dot("f32", ", operand_precision={highest,highest}"));
  EXPECT_GT(f32, 1.5 * f16);
  EXPECT_GT(highest, 3 * f32);
  EXPECT_GE(f64, 0.9 * highest);
  // Without tensor cores for it, f32 runs on the vector units.
  EXPECT_GT(entry_ms(dot("f32", ""), "v100-16gb"), 10 * f32);
}

// On units without matrix products, 3x3 convolutions gain from Winograd's algorithm: forward and the kernel's gradient.
TEST(DeviceModel, ConvolutionsOnVectorUnits) {
  const auto convolution = [](const std::string& window, const std::string& kernel, const std::string& out) {
    return "HloModule m\nENTRY e { x = f32[32,56,56,256] parameter(0)\n k = f32[" + kernel +
           ",256,256] parameter(1)\n ROOT c = f32[32," + out + ",256] convolution(x, k), window={" + window +
           "}, dim_labels=b01f_01io->b01f }";
  };
  const auto rate = [&](const std::string& text, const char* device) {
    return graph::analyze_cost(parse(text)).total.flops / entry_ms(text, device) * 1e-9;  // TFLOP/s
  };
  const std::string sliding = convolution("size=3x3 pad=1_1x1_1", "3,3", "56,56");
  const std::string striding = convolution("size=3x3 stride=2x2 pad=0_1x0_1", "3,3", "28,28");
  EXPECT_GT(rate(sliding, "v100-16gb"), 15.7);
  EXPECT_LT(rate(striding, "v100-16gb"), 15.7);
  EXPECT_LT(rate(sliding, "h100"), 494.5 * 0.7);
  const std::string gradient =
      "HloModule m\nENTRY e { x = f32[32,56,56,256] parameter(0)\n g = f32[32,56,56,256] parameter(1)\n ROOT c = "
      "f32[3,3,256,256] convolution(x, g), window={size=56x56 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf }";
  EXPECT_GT(rate(gradient, "v100-16gb"), 15.7);
}

// A group of 8 features fills a quarter of the units for matrix products.
TEST(DeviceModel, NarrowGroupsOfConvolutionsFillFewUnits) {
  const auto rate = [](int groups) {
    const std::string text = "HloModule m\nENTRY e { x = f16[32,56,56,256] parameter(0)\n k = f16[3,3," +
                             std::to_string(256 / groups) +
                             ",256] parameter(1)\n ROOT c = f16[32,56,56,256] convolution(x, k), window={size=3x3 "
                             "pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=" +
                             std::to_string(groups) + " }";
    return graph::analyze_cost(parse(text)).total.flops / entry_ms(text);
  };
  EXPECT_LT(rate(32), rate(1) / 4);
  EXPECT_LT(rate(32), rate(8) / 3);
}

std::string counted_loop_module(const std::string& counter) {
  return entry(
      "body { s = (s32[], BIG) parameter(0)\n i = s32[] get-tuple-element(s), index=0\n x = BIG get-tuple-element(s), "
      "index=1\n one = s32[] constant(1)\n j = s32[] " +
      counter +
      "(i, one)\n d = BIG dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n y = BIG tanh(d)\n ROOT r = "
      "(s32[], BIG) tuple(j, y) }\ncondition { s = (s32[], BIG) parameter(0)\n i = s32[] get-tuple-element(s), "
      "index=0\n "
      "n = s32[] constant(24)\n ROOT c = pred[] compare(i, n), direction=LT }\nENTRY e { x = BIG parameter(0)\n zero = "
      "s32[] constant(0)\n t = (s32[], BIG) tuple(zero, x)\n ROOT w = (s32[], BIG) while(t), condition=condition, "
      "body=body }");
}

TEST(DeviceModel, LoopsTakeTheirBodyTimesTheTripCount) {
  const Graph graph = parse(counted_loop_module("add"));
  const InstructionTimes times = estimate_times(graph, machine::load_device("h100"));
  ASSERT_EQ(times.whiles.size(), 1u);
  EXPECT_EQ(times.whiles[0].trip_count, 24);
  EXPECT_TRUE(times.whiles[0].inferred);
  EXPECT_TRUE(times.notices.empty());
  double once = 0;
  for (const char* name : {"body", "condition"}) {
    for (ComputationId c = 0; c < graph.num_computations(); ++c) {
      const auto& computation = graph.computation(c);
      if (computation.name != name) continue;
      for (InstructionId id = computation.first; id < computation.first + computation.count; ++id) {
        once += times.ms[static_cast<std::size_t>(id)];
      }
    }
  }
  EXPECT_GT(once, 0.1);
  EXPECT_NEAR(ms_of(graph, times, "w"), 24 * once, 1e-9);

  const Graph unknown = parse(counted_loop_module("multiply"));
  const InstructionTimes guess = estimate_times(unknown, machine::load_device("h100"));
  EXPECT_FALSE(guess.whiles[0].inferred);
  EXPECT_EQ(guess.whiles[0].trip_count, 1);
  ASSERT_EQ(guess.notices.size(), 1u);
  EXPECT_THAT(guess.notices[0], HasSubstr("1 while loop of unknown trip count"));
}

TEST(DeviceModel, ConditionalsTakeTheLongerBranchAndCallsTheirBody) {
  const Graph graph = parse(entry(
      "cheap { x = BIG parameter(0)\n z = f32[] constant(0)\n s = f32[] reduce(x, z), dimensions={0,1}, to_apply=add\n "
      "ROOT r = BIG broadcast(s), dimensions={} }\ndear { x = BIG parameter(0)\n ROOT r = BIG dot(x, x), "
      "lhs_contracting_dims={1}, rhs_contracting_dims={0} }\nENTRY e { x = BIG parameter(0)\n p = pred[] "
      "parameter(1)\n a "
      "= BIG call(x), to_apply=cheap\n b = BIG call(x), to_apply=dear\n ROOT k = BIG conditional(p, a, b), "
      "true_computation=cheap, false_computation=dear }"));
  const InstructionTimes times = estimate_times(graph, machine::load_device("h100"));
  const double cheap = ms_of(graph, times, "a"), dear = ms_of(graph, times, "b");
  EXPECT_GT(dear, cheap);
  EXPECT_EQ(ms_of(graph, times, "k"), dear);
}

TEST(DeviceModel, FusionsMeetMemoryAtTheirEdges) {
  const Graph graph = parse(entry(
      "f { x = BIG parameter(0)\n a = BIG negate(x)\n b = BIG exponential(a)\n ROOT r = BIG add(b, x) }\nENTRY e { x "
      "= BIG parameter(0)\n ROOT k = BIG fusion(x), kind=kLoop, calls=f }"));
  const InstructionTimes times = estimate_times(graph, machine::load_device("h100"));
  const double pass = 67.108864 / (3350 * 0.85);
  EXPECT_GT(ms_of(graph, times, "k"), 2 * pass);
  EXPECT_LT(ms_of(graph, times, "k"), 2.3 * pass + 0.01);
  // The body's instructions share the kernel's time.
  EXPECT_NEAR(ms_of(graph, times, "a") + ms_of(graph, times, "b") + ms_of(graph, times, "r"), ms_of(graph, times, "k"),
              1e-12);
}

TEST(DeviceModel, CollectivesAsMeasuredElseByRingFormulas) {
  const char* text =
      "ENTRY e { x = BIG parameter(0)\n ROOT r = BIG all-reduce(x), replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=add }";
  const Graph graph = parse(entry(text));
  machine::DeviceModel device = machine::load_device("h100");
  // XLA's table has 0.380 ms.
  EXPECT_NEAR(entry_ms(graph, estimate_times(graph, device)), 0.38, 0.01);
  // A link of one's own: the figure counts.
  device.link_gbytes_per_s = 300;
  const InstructionTimes times = estimate_times(graph, device);
  EXPECT_NEAR(entry_ms(graph, times), 2.0 * 7 / 8 * 67.108864 / 300 + device.launch_us * 1e-3, 1e-9);
  ASSERT_EQ(times.notices.size(), 1u);
  EXPECT_THAT(times.notices[0], HasSubstr("1 collective already in the module"));
  device.link_gbytes_per_s = 0;
  EXPECT_EQ(entry_ms(graph, estimate_times(graph, device)), 0);
}

TEST(DeviceModel, CustomCallsAreBoundedByTheirData) {
  const Graph graph = parse(
      entry("ENTRY e { x = BIG parameter(0)\n s = BIG custom-call(x), custom_call_target=\"Sharding\"\n ROOT r = BIG "
            "custom-call(s), custom_call_target=\"fancy\" }"));
  const InstructionTimes times = estimate_times(graph, machine::load_device("h100"));
  EXPECT_EQ(ms_of(graph, times, "s"), 0);
  EXPECT_GT(ms_of(graph, times, "r"), 0.04);
  ASSERT_EQ(times.notices.size(), 1u);
  EXPECT_THAT(times.notices[0], HasSubstr("1 custom call of unknown work"));
}

// Calls 4000 levels deep, each calling the next twice: 2^4000 executions, and still numbers in linear time.
TEST(DeviceModel, EndlessWorkStaysFinite) {
  for (const char* work : {"negate(x)", "custom-call(x), custom_call_target=\"fancy\""}) {
    std::string text = "HloModule m\nf0 { x = f32[8] parameter(0)\n ROOT r = f32[8] " + std::string(work) + " }\n";
    constexpr int kLevels = 4000;
    for (int level = 1; level <= kLevels; ++level) {
      const std::string callee = "f" + std::to_string(level - 1);
      text += "f" + std::to_string(level) + " { x = f32[8] parameter(0)\n a = f32[8] call(x), to_apply=" + callee +
              "\n ROOT r = f32[8] call(a), to_apply=" + callee + " }\n";
    }
    text +=
        "ENTRY e { x = f32[8] parameter(0)\n ROOT r = f32[8] call(x), to_apply=f" + std::to_string(kLevels) + " }\n";
    const Graph graph = parse(text);
    const InstructionTimes times = estimate_times(graph, machine::load_device("h100"));
    for (double ms : times.ms) ASSERT_TRUE(std::isfinite(ms) && ms >= 0);
    EXPECT_GT(entry_ms(graph, times), 1e12);
    EXPECT_LT(entry_ms(graph, times), 1e27);  // what files may hold, with room for sums
    EXPECT_TRUE(std::isfinite(graph::analyze_cost(graph).total.flops));
  }
}

// Quadratic behaviour in any of the usual shapes would show here.
TEST(DeviceModel, LongChainsAndManyReadersTakeLinearTime) {
  std::string text =
      "HloModule m\nENTRY e { x = f32[64,64] parameter(0)\n t0 = f32[64,64] transpose(x), dimensions={1,0}\n";
  constexpr int kLength = 20000;
  for (int i = 1; i <= kLength; ++i) {
    text += "t" + std::to_string(i) + " = f32[64,64] transpose(t" + std::to_string(i - 1) + "), dimensions={1,0}\n";
    text += "d" + std::to_string(i) + " = f32[64,64] dot(t" + std::to_string(i) +
            ", x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n";
    text += "a" + std::to_string(i) + " = f32[64,64] add(x, d" + std::to_string(i) + ")\n";
  }
  text += "ROOT r = f32[64,64] negate(a" + std::to_string(kLength) + ") }";
  EXPECT_GT(entry_ms(text), 0);
}

void expect_sound(const Graph& graph, const InstructionTimes& times, const machine::DeviceModel& device,
                  const std::string& path) {
  ASSERT_EQ(times.ms.size(), static_cast<std::size_t>(graph.num_instructions()));
  for (InstructionId id = 0; id < graph.num_instructions(); ++id) {
    const double ms = times.ms[static_cast<std::size_t>(id)];
    ASSERT_TRUE(std::isfinite(ms) && ms >= 0) << path << " " << graph.instruction(id).name << ": " << ms;
  }
  EXPECT_GT(entry_ms(graph, times), 0) << path;
  // Fusing never costs more than a kernel per instruction, launches and links aside: every byte XLA counts moved (four
  // times for sorts), every operation on the vector units.
  machine::DeviceModel bare = device;
  bare.launch_us = bare.host_us = 0;
  bare.link_gbytes_per_s = 0;
  const graph::ModuleCost cost = graph::analyze_cost(graph, graph::WhileCounting::kTripCount);
  const double unfused = 4 * cost.total.bytes / (device.memory_gbytes_per_s * device.memory_efficiency) * 1e-6 +
                         (4 * cost.total.flops + 20 * cost.total.transcendentals + cost.total.bytes) /
                             (device.matmul_tflops("f32") * 0.35) * 1e-9;
  EXPECT_LE(entry_ms(graph, estimate_times(graph, bare)), unfused) << path;
}

TEST(DeviceModel, FixturesOnEveryDevice) {
  const std::string folder = std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/";
  const Json manifest = Json::parse(read_file(folder + "MANIFEST.json"));
  for (const auto& model : manifest.at("models")) {
    const std::string path = folder + model["forms"]["text"]["file"].get<std::string>();
    const Graph graph = hlo::read_hlo_text(gunzip_if_gzip(read_file(path), path), path);
    std::map<std::string, double> total;
    for (const std::string& name : machine::device_names()) {
      const machine::DeviceModel device = machine::load_device(name);
      const InstructionTimes times = estimate_times(graph, device);
      expect_sound(graph, times, device, path + " on " + name);
      total[name] = entry_ms(graph, times);
      if (model["kind"] == "train") {
        // All loops of the fixtures count their layers.
        for (const auto& loop : times.whiles) EXPECT_TRUE(loop.inferred) << path;
      }
    }
    EXPECT_LT(total["b200"], total["h100"]) << path;
    EXPECT_LE(total["h200"], total["h100"]) << path;
    EXPECT_LT(total["h100"], total["a100-80gb"]) << path;
    EXPECT_LT(total["a100-80gb"], total["v100-16gb"]) << path;
  }
}

// Names play no part: the same module without metadata takes the same time.
TEST(DeviceModel, MetadataPlaysNoPart) {
  const std::string folder = std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/";
  for (const char* name : {"transformer_remat", "lit_small", "moe_small"}) {
    double ms[2] = {0, 0};
    int i = 0;
    for (const char* form : {".hlo.gz", ".stripped.hlo.gz"}) {
      const std::string path = folder + name + form;
      const Graph graph = hlo::read_hlo_text(gunzip_if_gzip(read_file(path), path), path);
      ms[i++] = entry_ms(graph, estimate_times(graph, machine::load_device("v100-16gb")));
    }
    EXPECT_NEAR(ms[0], ms[1], 1e-9 * ms[0]) << name;
  }
}

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto ranks = [](const std::vector<double>& values) {
    std::vector<double> rank(values.size(), 0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      for (double other : values) rank[i] += other < values[i] ? 1.0 : other == values[i] ? 0.5 : 0.0;
    }
    return rank;
  };
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xy / std::sqrt(xx * yy);
}

// Estimated against measured times of whole modules, all measured on one type of device (MI350, one device each).
TEST(DeviceModel, CorpusModulesRankAsMeasured) {
  const char* corpus = std::getenv("AUTOMAP_CORPUS");
  if (corpus == nullptr) GTEST_SKIP() << "AUTOMAP_CORPUS is not set: estimated and measured times were not compared";
  const std::filesystem::path hlo = std::filesystem::path(corpus) / "hlo";
  const machine::DeviceModel device = machine::parse_device(
      R"({"name": "mi350", "peak_tflops": {"f32": 157, "f16": 2300, "bf16": 2300, "f8": 4600, "f64": 78},
          "memory_gbytes_per_s": 8000, "memory_gib": 288, "cores": 256, "link_gbytes_per_s": 300})",
      "mi350");
  // The measured table names modules by their origin, and so does the manifest: .../<model>/.../<workload>/<module>.
  std::map<std::string, std::string> file_of;
  std::ifstream manifest(hlo / "MANIFEST.tsv");
  for (std::string line; std::getline(manifest, line);) {
    std::vector<std::string> columns;
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, '\t');) columns.push_back(field);
    if (columns.size() > 5) file_of[columns[5]] = columns[0];
  }
  std::vector<double> measured, estimated;
  std::ifstream table(hlo / "derived/mi350_module_times.tsv");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::vector<std::string> columns;
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, '\t');) columns.push_back(field);
    if (columns.size() < 4 || columns[1] == "inference_8gpu") continue;
    for (const auto& [origin, file] : file_of) {
      if (origin.find("/" + columns[0] + "/") == std::string::npos ||
          origin.find("/" + columns[2]) == std::string::npos) {
        continue;
      }
      const std::string path = (hlo / file).string();
      const Graph graph = hlo::read_hlo_text(read_file(path), path);
      const double ms = entry_ms(graph, estimate_times(graph, device));
      std::cout << "  " << file << ": measured " << columns[3] << ", estimated " << ms << " ms\n";
      measured.push_back(std::stod(columns[3]));
      estimated.push_back(ms);
    }
  }
  ASSERT_GE(measured.size(), 6u);
  const double correlation = rank_correlation(measured, estimated);
  std::cout << "  rank correlation over " << measured.size() << " modules: " << correlation << "\n";
  EXPECT_GT(correlation, 0.8);
}

// Every module of the corpus that is HLO text gives sound times.
TEST(DeviceModel, CorpusModulesAreSound) {
  const char* corpus = std::getenv("AUTOMAP_CORPUS");
  if (corpus == nullptr) GTEST_SKIP() << "AUTOMAP_CORPUS is not set: its modules were not estimated";
  int modules = 0;
  const machine::DeviceModel device = machine::load_device("h100");
  for (const char* folder : {"train_1dev", "train_spmd", "infer_1dev", "infer_pairs", "spmd_partitioned"}) {
    for (const auto& item : std::filesystem::directory_iterator(std::filesystem::path(corpus) / "hlo" / folder)) {
      const std::string path = item.path().string();
      const Graph graph = hlo::read_hlo_text(read_file(path), path);
      expect_sound(graph, estimate_times(graph, device), device, path);
      ++modules;
    }
  }
  EXPECT_GE(modules, 10);
}

}  // namespace
}  // namespace automap::profile
