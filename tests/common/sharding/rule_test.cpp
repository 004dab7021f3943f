// The registry row by row with worked cases, and what holds for every instruction. The numbers behind the rules are in
// rule_numeric_test.cpp.
#include "common/sharding/rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/rng.h"
#include "common/graph/graph_builder.h"
#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_text.h"

namespace automap::sharding {
namespace {

using graph::Graph;
using graph::InstructionId;

std::string short_name(Block block) {
  switch (block) {
    case Block::kHalo: return "halo";
    case Block::kWhole: return "whole";
    case Block::kMinor: return "minor";
    case Block::kOpaque: return "opaque";
  }
  return "?";
}

std::string sorted(std::vector<std::string> parts) {
  std::sort(parts.begin(), parts.end());
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : "; ") + part;
  return all;
}

// "{0.1 1.0 2.1}8" a factor of extent 8: dimension 1 of slot 0, ...; "{0.0}4 add 2" one that leaves partial sums in
// slot 2; "1.0 whole" a blocked dimension.
std::string text(const OpRule& rule) {
  std::vector<std::string> parts;
  for (const Factor& factor : rule.factors) {
    std::string part;
    for (const SlotDim at : factor.dims) {
      part += (part.empty() ? "{" : " ") + std::to_string(at.slot) + "." + std::to_string(at.dim);
    }
    part += "}" + std::to_string(factor.extent);
    if (factor.reduction != Reduction::kNone) part += std::string(" ") + to_string(factor.reduction);
    for (const std::int32_t slot : factor.partial) part += " " + std::to_string(slot);
    parts.push_back(part);
  }
  for (const BlockedDim& blocked : rule.blocked) {
    parts.push_back(std::to_string(blocked.at.slot) + "." + std::to_string(blocked.at.dim) + " " +
                    short_name(blocked.why));
  }
  return sorted(parts);
}

std::string in_order(const std::string& expected) {
  std::vector<std::string> parts;
  std::istringstream in(expected);
  for (std::string part; std::getline(in, part, ';');) {
    const std::size_t begin = part.find_first_not_of(' '), end = part.find_last_not_of(' ');
    if (begin != std::string::npos) parts.push_back(part.substr(begin, end - begin + 1));
  }
  return sorted(parts);
}

constexpr const char* kComputations = R"(
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] maximum(b, a) }
times { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] multiply(a, b) }
second { a = f32[] parameter(0)  ROOT b = f32[] parameter(1) }
first { ROOT a = f32[] parameter(0)  b = f32[] parameter(1) }
twice { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, a) }
wide { a = bf16[] parameter(0)  b = bf16[] parameter(1)  x = f32[] convert(a)  y = f32[] convert(b)
  s = f32[] add(x, y)  ROOT t = bf16[] convert(s) }
both { a = pred[] parameter(0)  b = pred[] parameter(1)  ROOT s = pred[] and(a, b) }
less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = pred[] compare(a, b), direction=LT }
same { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = pred[] compare(a, b), direction=EQ }
less2 { a = f32[] parameter(0)  b = f32[] parameter(1)  i = s32[] parameter(2)  j = s32[] parameter(3)
  ROOT s = pred[] compare(a, b), direction=LT }
largest { a = f32[] parameter(0)  i = s32[] parameter(1)  b = f32[] parameter(2)  j = s32[] parameter(3)
  m = pred[] compare(a, b), direction=GT  x = f32[] select(m, a, b)  y = s32[] select(m, i, j)
  ROOT t = (f32[], s32[]) tuple(x, y) }
sums { a = f32[] parameter(0)  i = f32[] parameter(1)  b = f32[] parameter(2)  j = f32[] parameter(3)
  x = f32[] add(a, b)  y = f32[] add(j, i)  ROOT t = (f32[], f32[]) tuple(x, y) }
crossed { a = f32[] parameter(0)  i = f32[] parameter(1)  b = f32[] parameter(2)  j = f32[] parameter(3)
  x = f32[] add(a, j)  y = f32[] add(b, i)  ROOT t = (f32[], f32[]) tuple(x, y) }
)";

// A module of one instruction, whose operands are parameters p0, p1, ... of these shapes. `before` stands between.
std::string module_text(const std::vector<std::string>& operands, const std::string& root,
                        const std::string& before = "") {
  std::string all = "HloModule m\n" + std::string(kComputations) + "ENTRY e {\n";
  for (std::size_t i = 0; i < operands.size(); ++i) {
    all += "  p" + std::to_string(i) + " = " + operands[i] + " parameter(" + std::to_string(i) + ")\n";
  }
  return all + before + "  ROOT it = " + root + "\n}\n";
}

struct RuleCase {
  const char* family;
  std::vector<std::string> operands;
  std::string root;
  std::string expected;
  std::string before = {};
};

const std::vector<RuleCase>& cases() {
  static const std::vector<RuleCase> all = {
      // --- elementwise ---
      {"elementwise", {"f32[2,3]", "f32[2,3]"}, "f32[2,3] add(p0, p1)", "{0.0 1.0 2.0}2; {0.1 1.1 2.1}3"},
      {"elementwise", {"f32[2,1]"}, "f32[2,1] tanh(p0)", "{0.0 1.0}2"},
      {"elementwise", {"f32[4]"}, "f32[4] multiply(p0, p0)", "{0.0 1.0 2.0}4"},
      {"elementwise", {"f32[]", "f32[4]", "f32[]"}, "f32[4] clamp(p0, p1, p2)", "{1.0 3.0}4"},
      {"elementwise", {"pred[]", "f32[4]", "f32[4]"}, "f32[4] select(p0, p1, p2)", "{1.0 2.0 3.0}4"},
      {"elementwise", {"pred[4]", "f32[4]", "f32[4]"}, "f32[4] select(p0, p1, p2)", "{0.0 1.0 2.0 3.0}4"},
      {"elementwise", {"f32[4]"}, "bf16[4] convert(p0)", "{0.0 1.0}4"},
      {"elementwise", {"f32[]"}, "f32[] negate(p0)", ""},
      {"elementwise", {"f32[4]", "f32[4]"}, "f32[4] map(p0, p1), dimensions={0}, to_apply=add", "{0.0 1.0 2.0}4"},
      {"elementwise", {"f32[0,4]"}, "f32[0,4] negate(p0)", "{0.1 1.1}4"},
      // --- free ---
      {"free", {}, "s32[4,8] iota(), iota_dimension=1", "{0.0}4; {0.1}8"},
      {"free", {}, "f32[2]{0} constant({1, 2})", "{0.0}2"},
      {"free", {"f32[]", "f32[]"}, "f32[4] rng(p0, p1), distribution=rng_uniform", "{2.0}4"},
      {"rng-bit-generator",
       {"u64[2]"},
       "(u64[2], u32[8,4]) rng-bit-generator(p0), algorithm=rng_default",
       "0.0 whole; 1.0 whole; {2.0}8; {2.1}4"},
      // --- movement ---
      {"broadcast", {"f32[8]"}, "f32[4,8] broadcast(p0), dimensions={1}", "{0.0 1.1}8; {1.0}4"},
      {"broadcast", {"f32[]"}, "f32[4] broadcast(p0), dimensions={}", "{1.0}4"},
      {"broadcast", {"f32[4,8]"}, "f32[8,2,4] broadcast(p0), dimensions={2,0}", "{0.0 1.2}4; {0.1 1.0}8; {1.1}2"},
      {"reshape", {"f32[6,512]"}, "f32[6,8,64] reshape(p0)", "{0.0 1.0}6; {0.1 1.1}8; 1.2 minor"},
      {"reshape", {"f32[4,6,512]"}, "f32[24,512] reshape(p0)", "{0.0 1.0}4; 0.1 minor; {0.2 1.1}512"},
      {"reshape", {"f32[16,1024]"}, "f32[16,16,64] reshape(p0)", "{0.0 1.0}16; {0.1 1.1}16; 1.2 minor"},
      {"reshape", {"f32[4,6]"}, "f32[6,4] reshape(p0)", "{0.0 1.0}2; 0.1 minor; 1.1 minor"},
      {"reshape", {"f32[2,9]"}, "f32[3,6] reshape(p0)", "0.0 minor; 0.1 minor; 1.0 minor; 1.1 minor"},
      {"reshape", {"f32[1,8,1]"}, "f32[8] reshape(p0)", "{0.1 1.0}8"},
      {"reshape", {"f32[8]"}, "f32[1,4,1,2,1] reshape(p0)", "{0.0 1.1}4; 1.3 minor"},
      {"reshape", {"f32[2,3,4,5]"}, "f32[6,20] reshape(p0)", "{0.0 1.0}2; 0.1 minor; {0.2 1.1}4; 0.3 minor"},
      {"reshape", {"f32[8,1]"}, "f32[1,8] reshape(p0)", "{0.0 1.1}8"},
      {"reshape", {"f32[1]"}, "f32[] reshape(p0)", ""},
      {"reshape", {"f32[0,4]"}, "f32[2,0] reshape(p0)", "0.1 minor; 1.0 minor"},
      {"bitcast", {"f32[6,512]"}, "f32[6,8,64] bitcast(p0)", "{0.0 1.0}6; {0.1 1.1}8; 1.2 minor"},
      {"bitcast", {"f32[4,8]{0,1}"}, "f32[4,8]{0,1} bitcast(p0)", "{0.0 1.0}4; {0.1 1.1}8"},
      {"bitcast", {"f32[4,8]{1,0}"}, "f32[8,4]{0,1} bitcast(p0)", "0.0 opaque; 0.1 opaque; 1.0 opaque; 1.1 opaque"},
      {"bitcast-convert", {"f32[4,8]"}, "s32[4,8] bitcast-convert(p0)", "{0.0 1.0}4; {0.1 1.1}8"},
      {"bitcast-convert", {"f32[4]"}, "u8[4,4] bitcast-convert(p0)", "{0.0 1.0}4; 1.1 minor"},
      {"transpose",
       {"f32[2,3,4]"},
       "f32[4,2,3] transpose(p0), dimensions={2,0,1}",
       "{0.0 1.1}2; {0.1 1.2}3; {0.2 1.0}4"},
      {"slice", {"f32[8,4]"}, "f32[4,4] slice(p0), slice={[0:4], [0:4]}", "0.0 halo; 1.0 halo; {0.1 1.1}4"},
      {"slice", {"f32[8,4]"}, "f32[1,4] slice(p0), slice={[3:4], [0:4]}", "0.0 halo; {0.1 1.1}4"},
      {"slice", {"f32[8]"}, "f32[4] slice(p0), slice={[0:8:2]}", "0.0 halo; 1.0 halo"},
      {"pad", {"f32[8,4]", "f32[]"}, "f32[10,4] pad(p0, p1), padding=1_1x0_0", "0.0 halo; 2.0 halo; {0.1 2.1}4"},
      {"pad", {"f32[8]", "f32[]"}, "f32[8] pad(p0, p1), padding=1_-1", "0.0 halo; 2.0 halo"},
      {"pad", {"f32[4]", "f32[]"}, "f32[7] pad(p0, p1), padding=0_0_1", "0.0 halo; 2.0 halo"},
      {"concatenate",
       {"f32[8,4]", "f32[2,4]"},
       "f32[10,4] concatenate(p0, p1), dimensions={0}",
       "0.0 halo; 1.0 halo; 2.0 halo; {0.1 1.1 2.1}4"},
      {"concatenate", {"f32[8]"}, "f32[8] concatenate(p0), dimensions={0}", "{0.0 1.0}8"},
      {"reverse", {"f32[8,4]"}, "f32[8,4] reverse(p0), dimensions={1}", "{0.0 1.0}8; 0.1 halo; 1.1 halo"},
      // --- contraction ---
      {"dot",
       {"f32[4,8,16]", "f32[4,16,32]"},
       "f32[4,8,32] dot(p0, p1), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
       "rhs_contracting_dims={1}",
       "{0.0 1.0 2.0}4; {0.1 2.1}8; {1.2 2.2}32; {0.2 1.1}16 add 2"},
      {"dot",
       {"f32[4,8]", "f32[8,4]"},
       "f32[] dot(p0, p1), lhs_contracting_dims={0,1}, rhs_contracting_dims={1,0}",
       "{0.0 1.1}4 add 2; {0.1 1.0}8 add 2"},
      {"dot", {"f32[4]", "f32[8]"}, "f32[4,8] dot(p0, p1)", "{0.0 2.0}4; {1.0 2.1}8"},
      {"ragged-dot",
       {"f32[8,16]", "f32[4,16,32]", "s32[4]"},
       "f32[8,32] ragged-dot(p0, p1, p2), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, "
       "rhs_group_dims={0}",
       "0.0 whole; 3.0 whole; 1.0 whole; 2.0 whole; {1.2 3.1}32; {0.1 1.1}16 add 3"},
      {"ragged-dot",
       {"f32[8,16]", "f32[8,32]", "s32[4]"},
       "f32[4,16,32] ragged-dot(p0, p1, p2), lhs_contracting_dims={0}, rhs_contracting_dims={0}, lhs_ragged_dims={0}",
       "0.0 whole; 1.0 whole; 2.0 whole; 3.0 whole; {0.1 3.1}16; {1.1 3.2}32"},
      {"ragged-dot",
       {"f32[8,4,16]", "f32[8,16,32]", "s32[4]"},
       "f32[8,4,32] ragged-dot(p0, p1, p2), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
       "rhs_contracting_dims={1}, lhs_ragged_dims={0}",
       "0.0 whole; 1.0 whole; 2.0 whole; 3.0 whole; {0.1 3.1}4; {1.2 3.2}32; {0.2 1.1}16 add 3"},
      {"scaled-dot",
       {"f8e4m3fn[8,64]", "f8e4m3fn[64,32]", "f8e8m0fnu[8,2]", "f8e8m0fnu[2,32]"},
       "f32[8,32] scaled-dot(p0, p1, p2, p3), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
       "{0.0 2.0 4.0}8; {1.1 3.1 4.1}32; {0.1 2.1 1.0 3.0}2 add 4"},
      {"scaled-dot",
       {"f8e4m3fn[8,64]", "f8e4m3fn[64,32]", "f32[]", "f8e8m0fnu[1,32]"},
       "f32[8,32] scaled-dot(p0, p1, p2, p3), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
       "{0.0 4.0}8; {1.1 3.1 4.1}32; {0.1 1.0}64 add 4"},
      {"convolution",
       {"f32[4,16,16,8]", "f32[3,3,8,32]"},
       "f32[4,16,16,32] convolution(p0, p1), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
       "{0.0 2.0}4; {1.3 2.3}32; {0.3 1.2}8 add 2; 0.1 halo; 0.2 halo; 1.0 halo; 1.1 halo; 2.1 halo; 2.2 halo"},
      {"convolution",  // a window of one element
       {"f32[4,16,16,8]", "f32[1,1,8,32]"},
       "f32[4,16,16,32] convolution(p0, p1), window={size=1x1}, dim_labels=b01f_01io->b01f",
       "{0.0 2.0}4; {1.3 2.3}32; {0.3 1.2}8 add 2; {0.1 2.1}16; {0.2 2.2}16"},
      {"convolution",  // that strides
       {"f32[4,16,8]", "f32[1,8,32]"},
       "f32[4,8,32] convolution(p0, p1), window={size=1 stride=2}, dim_labels=b0f_0io->b0f",
       "{0.0 2.0}4; {1.2 2.2}32; {0.2 1.1}8 add 2; 0.1 halo; 2.1 halo"},
      {"convolution",  // the gradient of a kernel: what is summed over is the batch, labelled f
       {"f32[4,16,16,8]", "f32[4,16,16,32]"},
       "f32[3,3,8,32] convolution(p0, p1), window={size=16x16 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf",
       "{0.0 1.0}4 add 2; {0.3 2.2}8; {1.3 2.3}32; 0.1 halo; 0.2 halo; 1.1 halo; 1.2 halo; 2.0 halo; 2.1 halo"},
      {"convolution",  // depthwise
       {"f32[4,16,8]", "f32[3,1,16]"},
       "f32[4,14,16] convolution(p0, p1), window={size=3}, dim_labels=b0f_0io->b0f, feature_group_count=8",
       "{0.0 2.0}4; {0.2 1.2 2.2}8; 0.1 halo; 1.0 halo; 2.1 halo"},
      {"convolution",  // groups of several features
       {"f32[4,12]", "f32[4,6]"},
       "f32[4,6] convolution(p0, p1), dim_labels=bf_io->bf, feature_group_count=3",
       "0.0 whole; 0.1 whole; 1.0 whole; 1.1 whole; 2.0 whole; 2.1 whole"},
      {"convolution",  // groups of the batch
       {"f32[12,4]", "f32[4,6]"},
       "f32[4,6] convolution(p0, p1), dim_labels=bf_io->bf, batch_group_count=3",
       "{0.0 1.1 2.1}3; {0.1 1.0}4 add 2; 2.0 whole"},
      {"convolution",
       {"f32[4,16]", "f32[16,8]"},
       "f32[4,8] convolution(p0, p1), dim_labels=bf_io->bf",
       "{0.0 2.0}4; {1.1 2.1}8; {0.1 1.0}16 add 2"},
      // --- reduction ---
      {"reduce",
       {"f32[4,8,16]"},
       "f32[4,16] reduce(p0, z), dimensions={1}, to_apply=add",
       "{0.0 2.0}4; {0.1}8 add 2; {0.2 2.1}16",
       "  z = f32[] constant(-0)\n"},
      {"reduce",  // XLA would add the start once per device
       {"f32[4,8,16]", "f32[]"},
       "f32[4,16] reduce(p0, p1), dimensions={1}, to_apply=add",
       "{0.0 2.0}4; 0.1 whole; {0.2 2.1}16"},
      {"reduce",
       {"f32[4]"},
       "f32[] reduce(p0, z), dimensions={0}, to_apply=add",
       "0.0 whole",
       "  z = f32[] constant(1e-3)\n"},
      {"reduce",
       {"f32[4]"},
       "f32[] reduce(p0, c), dimensions={0}, to_apply=add",
       "{0.0}4 add 2",
       "  z = bf16[] constant(0)\n  c = f32[] convert(z)\n"},
      {"reduce",
       {"f32[4]"},
       "f32[] reduce(p0, z), dimensions={0}, to_apply=times",
       "{0.0}4 multiply 2",
       "  z = f32[] constant(1)\n"},
      {"reduce",
       {"f32[4]"},
       "f32[] reduce(p0, z), dimensions={0}, to_apply=times",
       "0.0 whole",
       "  z = f32[] constant(0)\n"},
      {"reduce",  // one of complex numbers has no imaginary part
       {"c64[4]"},
       "c64[] reduce(p0, z), dimensions={0}, to_apply=times",
       "{0.0}4 multiply 2",
       "  z = c64[] constant((1, 0))\n"},
      {"reduce",
       {"c64[4]"},
       "c64[] reduce(p0, z), dimensions={0}, to_apply=times",
       "0.0 whole",
       "  z = c64[] constant((1, 1))\n"},
      {"reduce", {"f32[4]", "f32[]"}, "f32[] reduce(p0, p1), dimensions={0}, to_apply=max", "{0.0}4 maximum 2"},
      {"reduce", {"pred[4]", "pred[]"}, "pred[] reduce(p0, p1), dimensions={0}, to_apply=both", "{0.0}4 and 2"},
      {"reduce", {"bf16[4]", "bf16[]"}, "bf16[] reduce(p0, p1), dimensions={0}, to_apply=wide", "0.0 whole"},
      {"reduce",
       {"f32[4,2]", "f32[]"},
       "f32[2] reduce(p0, p1), dimensions={0}, to_apply=second",
       "0.0 whole; {0.1 2.0}2"},
      {"reduce", {"f32[4]", "f32[]"}, "f32[] reduce(p0, p1), dimensions={0}, to_apply=twice", "0.0 whole"},
      {"reduce", {"f32[4]", "f32[]"}, "f32[4] reduce(p0, p1), dimensions={}, to_apply=add", "{0.0 2.0}4"},
      {"reduce",
       {"f32[4,8]", "s32[4,8]", "f32[]", "s32[]"},
       "(f32[4], s32[4]) reduce(p0, p1, p2, p3), dimensions={1}, to_apply=largest",
       "{0.0 1.0 4.0 5.0}4; 0.1 whole; 1.1 whole"},
      {"reduce",
       {"f32[4,8]", "f32[4,8]", "f32[]", "f32[]"},
       "(f32[4], f32[4]) reduce(p0, p1, p2, p3), dimensions={1}, to_apply=sums",
       "{0.0 1.0 4.0 5.0}4; 0.1 whole; 1.1 whole"},
      {"reduce",
       {"f32[8]", "f32[8]", "f32[]", "f32[]"},
       "(f32[], f32[]) reduce(p0, p1, p2, p3), dimensions={0}, to_apply=crossed",
       "0.0 whole; 1.0 whole"},
      {"reduce-window",
       {"f32[4,16]", "f32[]"},
       "f32[4,8] reduce-window(p0, p1), window={size=1x2 stride=1x2}, to_apply=max",
       "{0.0 2.0}4; 0.1 halo; 2.1 halo"},
      {"select-and-scatter",
       {"f32[4,16]", "f32[4,8]", "f32[]"},
       "f32[4,16] select-and-scatter(p0, p1, p2), window={size=1x2 stride=1x2}, select=less, scatter=add",
       "{0.0 1.0 3.0}4; 0.1 halo; 1.1 halo; 3.1 halo"},
      {"select-and-scatter",
       {"f16[4,16]", "f16[4,8]", "f16[]"},
       "f16[4,16] select-and-scatter(p0, p1, p2), window={size=1x2 stride=1x2}, select=less, scatter=add",
       "0.0 whole; 0.1 whole; 1.0 whole; 1.1 whole; 3.0 whole; 3.1 whole"},
      {"select-and-scatter",
       {"f32[4,16]", "f32[4,8]", "f32[]"},
       "f32[4,16] select-and-scatter(p0, p1, p2), window={size=1x2 stride=1x2}, select=same, scatter=add",
       "0.0 whole; 0.1 whole; 1.0 whole; 1.1 whole; 3.0 whole; 3.1 whole"},
      {"sort",
       {"f32[4,8]", "s32[4,8]"},
       "(f32[4,8], s32[4,8]) sort(p0, p1), dimensions={1}, to_apply=less2",
       "{0.0 1.0 2.0 3.0}4; 0.1 whole; 1.1 whole; 2.1 whole; 3.1 whole"},
      // --- whole ---
      {"whole",
       {"f32[4,8]"},
       "(f32[4,2], s32[4,2]) topk(p0), k=2, largest=true",
       "0.0 whole; 0.1 whole; 1.0 whole; 1.1 whole; 2.0 whole; 2.1 whole"},
      {"whole",
       {"f32[4,8]"},
       "c64[4,5] fft(p0), fft_type=RFFT, fft_length={8}",
       "0.0 whole; 0.1 whole; 1.0 whole; 1.1 whole"},
      // --- batch norms ---
      {"batch-norm-training",
       {"f32[4,16,8]", "f32[8]", "f32[8]"},
       "(f32[4,16,8], f32[8], f32[8]) batch-norm-training(p0, p1, p2), epsilon=0.001, feature_index=2",
       "{0.0 3.0}4 add 4 5; {0.1 3.1}16 add 4 5; 0.2 whole; 1.0 whole; 2.0 whole; 3.2 whole; 4.0 whole; 5.0 whole"},
      {"batch-norm-inference",
       {"f32[4,8]", "f32[8]", "f32[8]", "f32[8]", "f32[8]"},
       "f32[4,8] batch-norm-inference(p0, p1, p2, p3, p4), epsilon=0.001, feature_index=1",
       "{0.0 5.0}4; 0.1 whole; 1.0 whole; 2.0 whole; 3.0 whole; 4.0 whole; 5.1 whole"},
      {"batch-norm-grad",
       {"f32[4,8]", "f32[8]", "f32[8]", "f32[8]", "f32[4,8]"},
       "(f32[4,8], f32[8], f32[8]) batch-norm-grad(p0, p1, p2, p3, p4), epsilon=0.001, feature_index=1",
       "{0.0 4.0 5.0}4 add 6 7; 0.1 whole; 1.0 whole; 2.0 whole; 3.0 whole; 4.1 whole; 5.1 whole; 6.0 whole; 7.0 "
       "whole"},
      // --- matrices ---
      {"cholesky",
       {"f32[2,4,4]"},
       "f32[2,4,4] cholesky(p0), lower=true",
       "{0.0 1.0}2; 0.1 whole; 0.2 whole; 1.1 whole; 1.2 whole"},
      {"triangular-solve",
       {"f32[2,4,4]", "f32[2,4,3]"},
       "f32[2,4,3] triangular-solve(p0, p1), left_side=true, lower=true, transpose_a=NO_TRANSPOSE",
       "{0.0 1.0 2.0}2; 0.1 whole; 0.2 whole; 1.1 whole; 1.2 whole; 2.1 whole; 2.2 whole"},
      // --- indexing ---
      {"gather",  // an embedding
       {"f32[1000,64]", "s32[4,16,1]"},
       "f32[4,16,64] gather(p0, p1), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, "
       "index_vector_dim=2, slice_sizes={1,64}",
       "{0.0}1000 add 2; {0.1 2.2}64; {1.0 2.0}4; {1.1 2.1}16"},
      {"gather",  // indices that are scalars, a window that is not the whole
       {"f32[10,6]", "s32[4]"},
       "f32[4,3] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
       "slice_sizes={1,3}",
       "{0.0}10 add 2; {1.0 2.0}4; 0.1 whole; 2.1 whole"},
      {"gather",  // one place, kept as a dimension
       {"pred[10,6]", "s32[4,2]"},
       "pred[4,1,6] gather(p0, p1), offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0,1}, "
       "index_vector_dim=1, slice_sizes={1,6}",
       "{0.0}10 or 2; {0.1 2.2}6; {1.0 2.0}4; 1.1 whole"},
      {"gather",  // batching dimensions
       {"f32[4,16,1000]", "s32[4,16,1,1]"},
       "f32[4,16,1] gather(p0, p1), offset_dims={}, collapsed_slice_dims={2}, start_index_map={2}, "
       "operand_batching_dims={0,1}, start_indices_batching_dims={0,1}, index_vector_dim=3, slice_sizes={1,1,1}",
       "{0.0 1.0 2.0}4; {0.1 1.1 2.1}16; {0.2}1000 add 2"},
      {"gather",  // the same spelled with iotas
       {"f32[4,16,1000]", "s32[4,16,1]"},
       "f32[4,16] gather(p0, places), offset_dims={}, collapsed_slice_dims={0,1,2}, start_index_map={0,1,2}, "
       "index_vector_dim=2, slice_sizes={1,1,1}",
       "{0.0 1.0 2.0}4; {0.1 1.1 2.1}16; {0.2}1000 add 2; 1.2 whole",
       R"(  n0 = s32[4,16,1] iota(), iota_dimension=0
  n1 = s32[16] iota(), iota_dimension=0
  b1 = s32[4,16,1] broadcast(n1), dimensions={1}
  both = s32[4,16,2] concatenate(n0, b1), dimensions={2}
  places = s32[4,16,3] concatenate(both, p1), dimensions={2}
)"},
      {"gather",  // where XLA does not see that it is an iota: behind a selection
       {"f32[4,1000]", "s32[4,16,1]"},
       "f32[4,16] gather(p0, places), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, "
       "index_vector_dim=2, slice_sizes={1,1}",
       "{0.0}4 add 2; {0.1}1000 add 2; {1.0 2.0}4; {1.1 2.1}16; 1.2 whole",
       R"(  n = s32[4,16,1] iota(), iota_dimension=0
  zero = s32[] constant(0)
  zeros = s32[4,16,1] broadcast(zero), dimensions={}
  size = s32[] constant(4)
  sizes = s32[4,16,1] broadcast(size), dimensions={}
  negative = pred[4,16,1] compare(n, zeros), direction=LT
  wrapped = s32[4,16,1] add(n, sizes)
  chosen = s32[4,16,1] select(negative, wrapped, n)
  places = s32[4,16,2] concatenate(chosen, p1), dimensions={2}
)"},
      {"gather",  // or where it is only a line
       {"f32[64,1000]", "s32[64,1]"},
       "f32[64] gather(p0, places), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, "
       "index_vector_dim=1, slice_sizes={1,1}",
       "{0.0}64 add 2; {0.1}1000 add 2; {1.0 2.0}64; 1.1 whole",
       "  n = s32[64,1] iota(), iota_dimension=0\n  places = s32[64,2] concatenate(n, p1), dimensions={1}\n"},
      {"gather",  // numbers along a dimension that is shorter than the operand's are places like others
       {"f32[8,16]"},
       "f32[4,16] gather(p0, n), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
       "slice_sizes={1,16}",
       "{0.0}8 add 2; {0.1 2.1}16; {1.0 2.0}4",
       "  n = s32[4] iota(), iota_dimension=0\n"},
      {"gather",  // indices that are an iota themselves
       {"f32[64,10]"},
       "f32[64,8,10] gather(p0, n), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, "
       "index_vector_dim=2, slice_sizes={1,10}",
       "{0.0 1.0 2.0}64; {0.1 2.2}10; {1.1 2.1}8",
       "  n = s32[64,8] iota(), iota_dimension=0\n"},
      {"gather",  // two dimensions of the operand along one of the indices
       {"f32[4,4]"},
       "f32[4,8] gather(p0, places), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, "
       "index_vector_dim=2, slice_sizes={1,1}",
       "{0.0}4 add 2; {0.1}4 add 2; {1.0 2.0}4; {1.1 2.1}8; 1.2 whole",
       "  n = s32[4,8,1] iota(), iota_dimension=0\n  places = s32[4,8,2] concatenate(n, n), dimensions={2}\n"},
      {"scatter",  // the gradient of an embedding
       {"f32[1000,64]", "s32[4,16,1]", "f32[4,16,64]"},
       "f32[1000,64] scatter(p0, p1, p2), update_window_dims={2}, inserted_window_dims={0}, "
       "scatter_dims_to_operand_dims={0}, index_vector_dim=2, to_apply=add",
       "{0.0 3.0}1000; {0.1 3.1 2.2}64; {1.0 2.0}4 add 3; {1.1 2.1}16 add 3"},
      {"scatter",  // the last write wins: who wrote last?
       {"f32[1000,64]", "s32[16,1]", "f32[16,64]"},
       "f32[1000,64] scatter(p0, p1, p2), update_window_dims={1}, inserted_window_dims={0}, "
       "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=second",
       "{0.0 3.0}1000; {0.1 3.1 2.1}64; 1.0 whole; 2.0 whole"},
      {"scatter",  // batching dimensions
       {"f32[4,16,1000]", "s32[4,16,1]", "f32[4,16]"},
       "f32[4,16,1000] scatter(p0, p1, p2), update_window_dims={}, inserted_window_dims={2}, "
       "scatter_dims_to_operand_dims={2}, input_batching_dims={0,1}, scatter_indices_batching_dims={0,1}, "
       "index_vector_dim=2, to_apply=add",
       "{0.0 1.0 2.0 3.0}4; {0.1 1.1 2.1 3.1}16; {0.2 3.2}1000"},
      {"scatter",  // spelled with an iota
       {"f32[16,1000]", "s32[16,8,1]", "f32[16,8]"},
       "f32[16,1000] scatter(p0, places, p2), update_window_dims={}, inserted_window_dims={0,1}, "
       "scatter_dims_to_operand_dims={0,1}, index_vector_dim=2, to_apply=second",
       "{0.0 1.0 2.0 3.0}16; {0.1 3.1}1000; 1.1 whole; 2.1 whole; 1.2 whole",
       "  n = s32[16,8,1] iota(), iota_dimension=0\n  places = s32[16,8,2] concatenate(n, p1), dimensions={2}\n"},
      {"scatter",  // a window that is not the whole
       {"f32[8,6]", "s32[4,2]", "f32[4,8,3]"},
       "f32[8,6] scatter(p0, p1, p2), update_window_dims={1,2}, inserted_window_dims={}, "
       "scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=max",
       "{0.0 3.0 2.1}8; 0.1 whole; 3.1 whole; 2.2 whole; {1.0 2.0}4 maximum 3; 1.1 whole"},
      {"dynamic-slice",
       {"f32[12,64]", "s32[]", "s32[]"},
       "f32[1,64] dynamic-slice(p0, p1, p2), dynamic_slice_sizes={1,64}",
       "0.0 whole; {0.1 3.1}64"},
      {"dynamic-slice",  // as old modules have it
       {"f32[12,64]", "s32[2]"},
       "f32[3,64] dynamic-slice(p0, p1), dynamic_slice_sizes={3,64}",
       "0.0 whole; 2.0 whole; 1.0 whole; {0.1 2.1}64"},
      {"dynamic-update-slice",
       {"f32[12,64]", "f32[2,64]", "s32[]", "s32[]"},
       "f32[12,64] dynamic-update-slice(p0, p1, p2, p3)",
       "0.0 whole; 1.0 whole; 4.0 whole; {0.1 1.1 4.1}64"},
      // --- collectives, custom-calls, sizes ---
      {"collective",
       {"f32[4,8]"},
       "f32[4,8] all-reduce(p0), replica_groups={}, to_apply=add",
       "{0.0 1.0}4; {0.1 1.1}8"},
      {"collective",
       {"f32[4]", "f32[8]"},
       "(f32[4], f32[8]) all-reduce(p0, p1), replica_groups={}, to_apply=add",
       "{0.0 2.0}4; {1.0 3.0}8"},
      {"collective", {"f32[4]"}, "f32[4] collective-permute(p0), source_target_pairs={{0,1}}", "{0.0 1.0}4"},
      {"moving-collective",
       {"f32[4,8]"},
       "f32[8,8] all-gather(p0), replica_groups={{0,1}}, dimensions={0}",
       "0.0 whole; 1.0 whole; {0.1 1.1}8"},
      {"moving-collective",
       {"f32[4,8]"},
       "f32[4,4] reduce-scatter(p0), replica_groups={{0,1}}, dimensions={1}, to_apply=add",
       "{0.0 1.0}4; 0.1 whole; 1.1 whole"},
      {"moving-collective",
       {"f32[4,8]", "f32[4,8]"},
       "(f32[4,8], f32[4,8]) all-to-all(p0, p1), replica_groups={{0,1}}",
       "{0.0 1.0 2.0 3.0}4; {0.1 1.1 2.1 3.1}8"},
      {"custom-call",
       {"f32[4,8]"},
       "f32[4,8] custom-call(p0), custom_call_target=\"Sharding\"",
       "{0.0 1.0}4; {0.1 1.1}8"},
      {"custom-call",
       {"f32[4,8]"},
       "(f32[4,2], s32[4,2]) custom-call(p0), custom_call_target=\"TopK\"",
       "{0.0 1.0 2.0}4; 0.1 whole; 1.1 whole; 2.1 whole"},
      {"custom-call", {"f32[4]"}, "f32[4] custom-call(p0), custom_call_target=\"mine\"", "0.0 opaque; 1.0 opaque"},
      {"get-dimension-size", {"f32[4,8]"}, "s32[] get-dimension-size(p0), dimensions={0}", "0.0 whole; {0.1}8"},
  };
  return all;
}

TEST(RuleTest, WorkedCases) {
  for (const RuleCase& c : cases()) {
    const std::string module = module_text(c.operands, c.root, c.before);
    const Graph graph = hlo::read_hlo_text(module, "case.hlo");
    const InstructionId root = graph.entry().root;
    EXPECT_EQ(rule_family(graph.instruction(root).opcode).name, c.family) << c.root;
    EXPECT_EQ(text(rule_of(graph, root)), in_order(c.expected)) << c.root;
  }
}

// A new family without a worked case fails here.
TEST(RuleTest, EveryFamilyHasAWorkedCase) {
  std::set<std::string> tested;
  for (const RuleCase& c : cases()) tested.insert(c.family);
  std::set<std::string> said;
  for (int i = 0; i < graph::kNumOpcodes; ++i) {
    const RuleFamily& family = rule_family(static_cast<graph::Opcode>(i));
    EXPECT_FALSE(family.name.empty());
    EXPECT_FALSE(family.says.empty());
    if (family.opaque || family.structural) continue;
    EXPECT_EQ(tested.count(std::string(family.name)), 1u) << family.name;
    said.insert(std::string(family.name));
  }
  EXPECT_EQ(said, tested);
  EXPECT_TRUE(rule_family(graph::Opcode::kUnknown).opaque);
  EXPECT_TRUE(rule_family(graph::Opcode::kWhile).structural);
}

TEST(RuleTest, Names) {
  EXPECT_STREQ(to_string(Reduction::kAdd), "add");
  EXPECT_STREQ(to_string(Reduction::kOr), "or");
  EXPECT_STREQ(to_string(Block::kMinor), "minor part of a reshape");
}

TEST(RuleTest, SlotsAreOperandsThenLeavesOfTheResult) {
  const Graph graph = hlo::read_hlo_text(
      module_text({"f32[2]", "token[]", "(f32[3], f32[4])"},
                  "((f32[5], token[]), f32[6]) custom-call(p0, p1, p2), custom_call_target=\"mine\""),
      "case.hlo");
  const auto slots = slots_of(graph, graph.entry().root);
  ASSERT_EQ(slots.size(), 6u);
  EXPECT_EQ(slots[0]->text, "f32[2]");
  EXPECT_EQ(slots[1], nullptr);
  EXPECT_EQ(slots[2], nullptr);
  EXPECT_EQ(slots[3]->text, "f32[5]");
  EXPECT_EQ(slots[4], nullptr);
  EXPECT_EQ(slots[5]->text, "f32[6]");
  EXPECT_EQ(text(rule_of(graph, graph.entry().root)), "0.0 opaque; 3.0 opaque; 5.0 opaque");
}

// Many leaves, deep: nothing is recursive, every leaf is a slot.
TEST(RuleTest, NestedTuples) {
  for (const bool wide : {true, false}) {
    graph::GraphBuilder builder("nested");
    builder.begin_computation("e", true);
    graph::ShapeId id = builder.shape("f32[2]");
    for (int i = 0; i < 12; ++i) {
      const std::vector<graph::ShapeId> elements(wide ? 2 : 1, id);
      id = builder.tuple_shape(elements);
    }
    graph::InstructionDraft draft;
    draft.name = "p";
    draft.opcode_name = "parameter";
    draft.shape = id;
    draft.number = 0;
    const InstructionId parameter = builder.add(draft, {}, {});
    builder.end_computation(parameter, "");
    const Graph graph = builder.finish();
    const std::size_t leaves = wide ? 4096 : 1;
    EXPECT_EQ(slots_of(graph, parameter).size(), leaves);
    EXPECT_EQ(rule_of(graph, parameter).factors.size(), leaves);
  }
}

// --- Bad input: whatever the reader lets through. ---

TEST(RuleTest, AttributesThatContradictTheShapesMakeItOpaque) {
  struct Bad {
    std::vector<std::string> operands;
    std::string root;
  };
  const Bad bad[] = {
      {{"f32[4]"}, "f32[4,8] broadcast(p0), dimensions={7}"},
      {{"f32[4]"}, "f32[4,8] broadcast(p0), dimensions={1}"},
      {{"f32[4]"}, "f32[4,8] broadcast(p0), dimensions={0,1}"},
      {{"f32[4]"}, "f32[4,8] broadcast(p0), dimensions={x}"},
      {{"f32[4,4]"}, "f32[4,4] broadcast(p0), dimensions={0,0}"},
      {{"f32[4,8]"}, "f32[4,8] transpose(p0), dimensions={1,1}"},
      {{"f32[4,8]"}, "f32[4,8] transpose(p0), dimensions={-1,0}"},
      {{"f32[4,8]"}, "f32[4,8] transpose(p0), dimensions={0}"},
      {{"f32[4,8]"}, "f32[8,8] slice(p0), slice={[0:4]}"},
      {{"f32[4,8]"}, "f32[4,8] slice(p0)"},
      {{"f32[4]"}, "f32[8] slice(p0), slice={[0:4]}"},
      {{"f32[4,8]", "f32[]"}, "f32[4,8] pad(p0, p1), padding=0_0"},
      {{"f32[4]", "f32[]"}, "f32[8] pad(p0, p1), padding=0_0"},
      {{"f32[4]", "f32[]"}, "f32[8] pad(p0, p1), padding=zero"},
      {{"f32[4]", "f32[4]"}, "f32[8] concatenate(p0, p1), dimensions={3}"},
      {{"f32[4]", "f32[4]"}, "f32[8] concatenate(p0, p1)"},
      {{"f32[4]"}, "f32[4] reverse(p0), dimensions={1}"},
      {{"f32[4,8]", "f32[8,4]"}, "f32[4,4] convolution(p0, p1), dim_labels=bf_io->bf, window={size=3}"},
      {{"f32[4,8]", "f32[8,4]"}, "f32[4,4] convolution(p0, p1)"},
      {{"f32[4,8]", "f32[8,4]"}, "f32[4,4] convolution(p0, p1), dim_labels=bf_io->bf, feature_group_count=3"},
      {{"f32[4,8]", "f32[8,4]"}, "f32[4,4] convolution(p0, p1), dim_labels=bf_io->bf, feature_group_count=0"},
      {{"f32[4,8]", "f32[8,4]"}, "f32[4,4] convolution(p0, p1), dim_labels=bf_io->bf, batch_group_count=-2"},
      {{"f32[4,8]", "f32[7,4]"}, "f32[4,4] convolution(p0, p1), dim_labels=bf_io->bf"},
      {{"f32[4,8]", "f32[8,4]"}, "f32[4,4] convolution(p0, p1), dim_labels=bf_io->b0"},
      {{"f32[4]", "f32[]"}, "f32[4] reduce-window(p0, p1), window={size=1x1}, to_apply=add"},
      {{"f32[4]", "f32[]"}, "f32[4] reduce-window(p0, p1), window={size=a}, to_apply=add"},
      {{"f32[4]"}, "f32[4] sort(p0), dimensions={9}, to_apply=less"},
      {{"f32[4]"}, "f32[4] cholesky(p0)"},
      {{"f32[4,8]", "s32[4]"}, "f32[4,8] gather(p0, p1)"},
      {{"f32[4,8]", "s32[4]"},
       "f32[4,8] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, "
       "start_index_map={0}, index_vector_dim=5, slice_sizes={1,8}"},
      {{"f32[4,8]", "s32[4]"},
       "f32[4,8] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, "
       "start_index_map={7}, index_vector_dim=1, slice_sizes={1,8}"},
      {{"f32[4,8]", "s32[4]"},
       "f32[4,8] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, "
       "start_index_map={0}, index_vector_dim=1, slice_sizes={1}"},
      {{"f32[4,8]", "s32[4]"},
       "f32[4,8] gather(p0, p1), offset_dims={9}, collapsed_slice_dims={0}, "
       "start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}"},
      {{"f32[4,8]", "s32[4,3]"},
       "f32[4,8] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, "
       "start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}"},
      {{"f32[4,8]", "s32[4]"},
       "f32[4,8] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, "
       "start_index_map={0}, operand_batching_dims={0}, start_indices_batching_dims={0}, "
       "index_vector_dim=1, slice_sizes={1,8}"},
      {{"f32[4,8]", "s32[4,1]", "f32[4,9]"},
       "f32[4,8] scatter(p0, p1, p2), update_window_dims={1}, inserted_window_dims={0}, "
       "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"},
      {{"f32[4,8]", "s32[5,1]", "f32[4,8]"},
       "f32[4,8] scatter(p0, p1, p2), update_window_dims={1}, inserted_window_dims={0}, "
       "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"},
      {{"f32[4,8]", "s32[]"}, "f32[4] dynamic-slice(p0, p1)"},
      {{"f32[4,8]", "f32[4]", "s32[]"}, "f32[4,8] dynamic-update-slice(p0, p1, p2)"},
      {{"f32[4,8]"}, "f32[8,8] all-gather(p0), dimensions={}"},
      {{"f32[4,8]"}, "f32[8,8] all-reduce(p0), to_apply=add"},
      {{"f32[4,8]"}, "f32[4,8] custom-call(p0), custom_call_target=7"},
      {{"f32[4,8]"}, "f32[8,4] custom-call(p0), custom_call_target=\"Sharding\""},
      {{"f32[4]", "f32[4]", "s32[2]"}, "f32[2] ragged-dot(p0, p1, p2), lhs_ragged_dims={3}"},
      {{"f32[4]"}, "f32[4] scan(p0), to_apply=add"},
      {{"f32[4]"}, "f32[4] no-such-opcode(p0), dimensions={0}"},
      {{"f32[<=4]"}, "f32[<=4] negate(p0)"},
  };
  int read = 0;
  for (const Bad& b : bad) {
    Graph graph;
    try {
      // Modules that only XLA's verifier refuses are read, too.
      graph = hlo::read_hlo_text(module_text(b.operands, b.root), "case.hlo", graph::Faults::kRecord);
    } catch (const Error&) {
      continue;  // the reader's business
    }
    ++read;
    const OpRule rule = rule_of(graph, graph.entry().root);
    EXPECT_TRUE(rule.factors.empty()) << b.root << ": " << text(rule);
    for (const BlockedDim& blocked : rule.blocked) EXPECT_EQ(blocked.why, Block::kOpaque) << b.root;
    EXPECT_FALSE(rule.blocked.empty()) << b.root;
  }
  EXPECT_GT(read, 25);
}

// --- What holds for every instruction of every module. ---

void check_rule(const Graph& graph, InstructionId id) {
  const OpRule rule = rule_of(graph, id);
  const auto slots = slots_of(graph, id);
  const std::string where(graph.instruction(id).name);
  const auto num_operands = static_cast<std::int32_t>(graph.instruction(id).num_operands);
  std::map<std::pair<std::int32_t, std::int32_t>, int> seen;
  const auto extent = [&](SlotDim at) -> std::int64_t {
    if (at.slot < 0 || static_cast<std::size_t>(at.slot) >= slots.size()) return -1;
    const graph::Shape* shape = slots[static_cast<std::size_t>(at.slot)];
    if (shape == nullptr || at.dim < 0 || static_cast<std::size_t>(at.dim) >= shape->dims.size()) return -1;
    return shape->dims[static_cast<std::size_t>(at.dim)];
  };
  for (const Factor& factor : rule.factors) {
    ASSERT_FALSE(factor.dims.empty()) << where;
    ASSERT_GT(factor.extent, 1) << where;
    ASSERT_EQ(factor.reduction == Reduction::kNone, factor.partial.empty()) << where;
    std::set<std::int32_t> in_factor;
    for (const SlotDim at : factor.dims) {
      ++seen[{at.slot, at.dim}];
      ASSERT_GT(extent(at), 1) << where;
      ASSERT_EQ(extent(at) % factor.extent, 0) << where;
      ASSERT_TRUE(in_factor.insert(at.slot).second) << where << ": two dimensions of one slot";
    }
    for (const std::int32_t slot : factor.partial) {
      ASSERT_GE(slot, num_operands) << where;
      ASSERT_LT(static_cast<std::size_t>(slot), slots.size()) << where;
      ASSERT_EQ(in_factor.count(slot), 0u) << where << ": cut and partial";
    }
  }
  for (const BlockedDim& blocked : rule.blocked) {
    ++seen[{blocked.at.slot, blocked.at.dim}];
    ASSERT_GT(extent(blocked.at), 1) << where;
  }
  std::size_t expected = 0;
  for (const graph::Shape* shape : slots) {
    if (shape == nullptr) continue;
    for (const std::int64_t dim : shape->dims) expected += dim > 1 ? 1 : 0;
  }
  ASSERT_EQ(seen.size(), expected) << where;
  for (const auto& [at, times] : seen) ASSERT_EQ(times, 1) << where << " slot " << at.first << " dim " << at.second;
}

TEST(RuleTest, EveryDimensionOfTheFixturesIsSpokenForOnce) {
  namespace fs = std::filesystem;
  std::int64_t instructions = 0;
  for (const auto& file : fs::directory_iterator(AUTOMAP_SOURCE_DIR "/fixtures/hlo")) {
    if (!file.is_regular_file()) continue;
    const hlo::HloModule module = hlo::load_hlo(file.path().string());
    for (InstructionId id = 0; id < module.graph.num_instructions(); ++id) {
      check_rule(module.graph, id);
      if (testing::Test::HasFatalFailure()) FAIL() << file.path();
      // Nothing of ours is refused.
      const RuleFamily& family = rule_family(module.graph.instruction(id).opcode);
      if (family.structural) continue;
      EXPECT_FALSE(family.opaque) << module.graph.instruction(id).opcode_name;
      for (const BlockedDim& blocked : rule_of(module.graph, id).blocked) {
        EXPECT_NE(blocked.why, Block::kOpaque) << file.path() << " " << module.graph.instruction(id).name;
      }
      ++instructions;
    }
  }
  EXPECT_GT(instructions, 100'000);
}

TEST(RuleTest, EveryDimensionOfTheCorpusIsSpokenForOnce) {
  const char* corpus = std::getenv("AUTOMAP_CORPUS");
  if (corpus == nullptr) GTEST_SKIP() << "AUTOMAP_CORPUS is not set: no real models to look at";
  namespace fs = std::filesystem;
  std::map<std::string, int> opaque;  // opcodes without a rule, or whose rule refused
  std::int64_t instructions = 0;
  for (const auto& file : fs::recursive_directory_iterator(fs::path(corpus) / "hlo")) {
    if (!file.is_regular_file()) continue;
    hlo::HloModule module;
    try {
      module = hlo::load_hlo(file.path().string());
    } catch (const Error&) {
      continue;  // not a module
    }
    for (InstructionId id = 0; id < module.graph.num_instructions(); ++id) {
      check_rule(module.graph, id);
      if (testing::Test::HasFatalFailure()) FAIL() << file.path();
      ++instructions;
      const graph::Instruction& instruction = module.graph.instruction(id);
      if (rule_family(instruction.opcode).structural) continue;
      const OpRule rule = rule_of(module.graph, id);
      const bool refused = !rule.blocked.empty() && rule.factors.empty() && rule.blocked.front().why == Block::kOpaque;
      if (refused || instruction.opcode == graph::Opcode::kUnknown) ++opaque[std::string(instruction.opcode_name)];
    }
  }
  std::cout << instructions << " instructions; nobody looks into:";
  for (const auto& [name, count] : opaque) std::cout << " " << name << " " << count;
  std::cout << "\n";
  EXPECT_GT(instructions, 100'000);
}

// Random text in the attributes of the worked cases: nothing is read out of range, nothing thrown.
TEST(RuleTest, MangledAttributes) {
  int read = 0;
  for (std::size_t i = 0; i < cases().size(); ++i) {
    const RuleCase& c = cases()[i];
    const std::size_t attributes = c.root.rfind("), ") == std::string::npos ? c.root.size() : c.root.rfind("), ") + 3;
    for (std::uint64_t item = 0; item < 60 && attributes < c.root.size(); ++item) {
      Rng rng(11, static_cast<std::uint32_t>(i), item);
      std::string root = c.root;
      for (std::uint64_t changes = 1 + rng.below(3); changes > 0; --changes) {
        const std::size_t at = attributes + rng.below(root.size() - attributes);
        static const std::string kLetters = "0123456789-,{}x_[]:bfio";
        const char letter = kLetters[rng.below(kLetters.size())];
        if (rng.below(3) == 0) {
          root.insert(root.begin() + static_cast<std::ptrdiff_t>(at), letter);
        } else {
          root[at] = letter;
        }
      }
      Graph graph;
      try {
        graph = hlo::read_hlo_text(module_text(c.operands, root, c.before), "case.hlo");
      } catch (const Error&) {
        continue;
      }
      ++read;
      check_rule(graph, graph.entry().root);
      if (testing::Test::HasFatalFailure()) FAIL() << root;
    }
  }
  EXPECT_GT(read, 500);
}

// A module of 37 000 instructions is a matter of milliseconds; a limit that only catches another order of growth.
TEST(RuleTest, IsFast) {
  const hlo::HloModule module = hlo::load_hlo(AUTOMAP_SOURCE_DIR "/fixtures/hlo/bert48.hlo.gz");
  const std::clock_t begin = std::clock();
  std::size_t factors = 0;
  for (InstructionId id = 0; id < module.graph.num_instructions(); ++id) {
    factors += rule_of(module.graph, id).factors.size();
  }
  const double cpu_ms = 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_GT(factors, 50'000u);
  EXPECT_LT(cpu_ms, 2'000) << "expected about 15";
}

}  // namespace
}  // namespace automap::sharding
