// Times at other numbers of samples, against modules that are written for that many.
#include "profile/step_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/files.h"
#include "common/hlo/hlo_reader.h"
#include "common/hlo/hlo_text.h"
#include "profile/batch_dims.h"
#include "profile/profile_hlo.h"
#include "profile/profiler.h"
#include "profile/time_estimator.h"
#include "tests/common/graph/training_modules.h"
#include "tests/sum.h"

namespace automap::profile {
namespace {

using graph::Graph;
using testing::ElementsAre;
using testing::HasSubstr;

std::string all_replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

ModelProfile profile_at(const std::string& text, std::vector<std::int64_t> samples = {},
                        const std::string& batch_inputs = "", std::vector<std::string> more = {}) {
  hlo::HloModule module;
  module.graph = hlo::read_hlo_text(text, "test");
  ProfileRequest request;
  request.samples = std::move(samples);
  request.batch_inputs = batch_inputs;
  request.more_devices = std::move(more);
  return profile_module(module, "test", request);
}

// Position by position, forward and backward, at `samples`.
void expect_same(const ModelProfile& a, const ModelProfile& b, double samples) {
  ASSERT_FALSE(a.profile.times.empty()) << a.times_problem;
  ASSERT_FALSE(b.profile.times.empty()) << b.times_problem;
  const auto point = [&](const ModelProfile& m) {
    const std::vector<double>& all = m.profile.times[0].samples;
    const auto found = std::find(all.begin(), all.end(), samples);
    EXPECT_NE(found, all.end());
    return static_cast<std::size_t>(found - all.begin());
  };
  const pipeline::DeviceTimes &one = a.profile.times[0], &other = b.profile.times[0];
  ASSERT_EQ(a.profile.name, b.profile.name);
  for (std::size_t i = 0; i < a.profile.name.size(); ++i) {
    EXPECT_NEAR(one.forward_ms[point(a)][i], other.forward_ms[point(b)][i], 1e-12) << a.profile.name[i];
    EXPECT_NEAR(one.backward_ms[point(a)][i], other.backward_ms[point(b)][i], 1e-12) << a.profile.name[i];
  }
}

// Every way in which a batch hides: merged with the sequence and parted again, as the minor part, in constants, in
// random numbers, in calls and loops, sliced, padded, concatenated and sorted along.
std::string hiding(int b) {
  std::string text = R"(HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT l = pred[] compare(a, b), direction=LT }
relu { x = f32[B,32,64] parameter(0)  z = f32[] constant(0)  zs = f32[B,32,64] broadcast(z), dimensions={}
  ROOT r = f32[B,32,64] maximum(x, zs) }
cond { t = (s32[], f32[B,32,64], f32[64,64]) parameter(0)  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(5)  ROOT l = pred[] compare(i, n), direction=LT }
body { t = (s32[], f32[B,32,64], f32[64,64]) parameter(0)  i = s32[] get-tuple-element(t), index=0
  x = f32[B,32,64] get-tuple-element(t), index=1  w = f32[64,64] get-tuple-element(t), index=2
  one = s32[] constant(1)  j = s32[] add(i, one)
  flat = f32[N,64] reshape(x)  y = f32[N,64] dot(flat, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  back = f32[B,32,64] reshape(y)  k = f32[B,32,64] tanh(back)
  ROOT r = (s32[], f32[B,32,64], f32[64,64]) tuple(j, k, w) }
ENTRY e {
  table = f32[1000,64] parameter(0)
  w = f32[64,64] parameter(1)
  ids = s32[B,32] parameter(2)
  ids3 = s32[B,32,1] reshape(ids)
  x0 = f32[B,32,64] gather(table, ids3), offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=2, slice_sizes={1,64}
  low = f32[] constant(0)
  high = f32[] constant(1)
  noise = f32[B,32,64] rng(low, high), distribution=rng_uniform
  halves = f32[B,32,64] broadcast(high), dimensions={}
  keep = pred[B,32,64] compare(noise, halves), direction=LT
  zeros = f32[B,32,64] broadcast(low), dimensions={}
  x1 = f32[B,32,64] select(keep, x0, zeros)
  x2 = f32[B,32,64] call(x1), to_apply=relu
  zi = s32[] constant(0)
  t = (s32[], f32[B,32,64], f32[64,64]) tuple(zi, x2, w)
  loop = (s32[], f32[B,32,64], f32[64,64]) while(t), condition=cond, body=body
  x3 = f32[B,32,64] get-tuple-element(loop), index=1
  turned = f32[32,B,64] transpose(x3), dimensions={1,0,2}
  minor = f32[N,64] reshape(turned)
  x4 = f32[N,64] dot(minor, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  parted = f32[32,B,64] reshape(x4)
  x5 = f32[B,32,64] transpose(parted), dimensions={1,0,2}
  twice = f32[D,32,64] concatenate(x5, x3), dimensions={0}
  some = f32[D,32,64] reverse(twice), dimensions={0}
  part = f32[B,32,64] slice(some), slice={[0:B], [0:32], [0:64]}
  sorted = f32[B,32,64] sort(part), dimensions={0}, to_apply=less
  x6 = f32[B,32,64] add(sorted, x5)
  attention = f32[B,32,32] dot(x6, x6), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={2}
  ROOT out = f32[B,32] reduce(attention, low), dimensions={2}, to_apply=sum
})";
  text = all_replaced(text, "[B", "[" + std::to_string(b));
  text = all_replaced(text, ",B,", "," + std::to_string(b) + ",");
  text = all_replaced(text, ":B]", ":" + std::to_string(b) + "]");
  text = all_replaced(text, "[N", "[" + std::to_string(b * 32));
  return all_replaced(text, "[D", "[" + std::to_string(2 * b));
}

std::string two_layers_of(int b) {
  const std::string text = graph::two_layers("", R"(
  rate = f32[] constant(0.1)
  r1 = f32[4,8] broadcast(rate), dimensions={}
  u1 = f32[4,8] multiply(gw1, r1)
  nw1 = f32[4,8] subtract(w1, u1)
  r2 = f32[8,2] broadcast(rate), dimensions={}
  u2 = f32[8,2] multiply(gw2, r2)
  nw2 = f32[8,2] subtract(w2, u2)
  nb1 = f32[8] subtract(b1, gb1)
  nb2 = f32[2] subtract(b2, gb2)
  ROOT r = (f32[4,8], f32[8], f32[8,2], f32[2], f32[]) tuple(nw1, nb1, nw2, nb2, loss))");
  return all_replaced(text, "[16,", "[" + std::to_string(b) + ",");
}

// One turn of a loop over micro-batches is the step of one micro-batch.
std::string accumulating(int turns, int b) {
  const std::string text = R"(HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
cond { t = (s32[], f32[64,64], f32[64,64], f32[T,B,64], f32[]) parameter(0)  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(T)  ROOT l = pred[] compare(i, n), direction=LT }
body {
  t = (s32[], f32[64,64], f32[64,64], f32[T,B,64], f32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  acc = f32[64,64] get-tuple-element(t), index=1
  w = f32[64,64] get-tuple-element(t), index=2
  all = f32[T,B,64] get-tuple-element(t), index=3
  lacc = f32[] get-tuple-element(t), index=4
  one = s32[] constant(1)
  none = s32[] constant(0)
  j = s32[] add(i, one)
  z = f32[] constant(0)
  cut = f32[1,B,64] dynamic-slice(all, i, none, none), dynamic_slice_sizes={1,B,64}
  x = f32[B,64] reshape(cut)
  o = f32[B,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[B,64] sine(o)
  l = f32[] reduce(s, z), dimensions={0,1}, to_apply=sum
  ln = f32[] add(lacc, l)
  c = f32[B,64] cosine(o)
  g = f32[64,64] dot(x, c), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  gn = f32[64,64] add(acc, g)
  ROOT r = (s32[], f32[64,64], f32[64,64], f32[T,B,64], f32[]) tuple(j, gn, w, all, ln)
}
ENTRY e {
  w0 = f32[64,64] parameter(0)
  x0 = f32[T,B,64] parameter(1)
  z = f32[] constant(0)
  zi = s32[] constant(0)
  zz = f32[64,64] broadcast(z), dimensions={}
  t = (s32[], f32[64,64], f32[64,64], f32[T,B,64], f32[]) tuple(zi, zz, w0, x0, z)
  loop = (s32[], f32[64,64], f32[64,64], f32[T,B,64], f32[]) while(t), condition=cond, body=body
  grad = f32[64,64] get-tuple-element(loop), index=1
  loss = f32[] get-tuple-element(loop), index=4
  nw = f32[64,64] subtract(w0, grad)
  ROOT r = (f32[64,64], f32[]) tuple(nw, loss)
})";
  std::string out = all_replaced(text, "T,B", std::to_string(turns) + "," + std::to_string(b));
  out = all_replaced(out, "1,B", "1," + std::to_string(b));
  out = all_replaced(out, "[B", "[" + std::to_string(b));
  return all_replaced(out, "constant(T)", "constant(" + std::to_string(turns) + ")");
}

TEST(StepTimes, AModuleAtAnotherBatchIsTheModuleWrittenForIt) {
  for (const auto& [from, to] : {std::pair(2, 4), std::pair(4, 2), std::pair(3, 96), std::pair(64, 2)}) {
    SCOPED_TRACE(std::to_string(from) + " -> " + std::to_string(to));
    expect_same(profile_at(hiding(from), {to}), profile_at(hiding(to), {}), to);
    expect_same(profile_at(two_layers_of(from), {to}), profile_at(two_layers_of(to), {}), to);
  }
}

TEST(StepTimes, NothingIsLostOfAModuleThatGrows) {
  // Twice the samples of what is bound by compute take twice the time: were a tensor left as it is, less.
  const ModelProfile m = profile_at(hiding(256), {512, 1024});
  const pipeline::DeviceTimes& times = m.profile.times.at(0);
  EXPECT_THAT(times.samples, ElementsAre(256, 512, 1024));
  for (std::size_t i = 0; i < m.profile.name.size(); ++i) {
    const double grown = times.forward_ms[2][i] - times.forward_ms[1][i];
    const double before = times.forward_ms[1][i] - times.forward_ms[0][i];
    EXPECT_NEAR(grown, 2 * before, 0.12 * grown + 1e-9) << m.profile.name[i];
  }
}

TEST(StepTimes, TheModulesOwnBatchIsWhatCSays) {
  for (const std::string& text : {two_layers_of(16), hiding(4)}) {
    const ModelProfile m = profile_at(text, {1, 64}, "", {"h100", "v100-32gb", "h100"});
    ASSERT_EQ(m.profile.times.size(), 3u);
    EXPECT_EQ(m.profile.times[0].device, "v100-16gb");
    EXPECT_EQ(m.profile.times[1].device, "h100");
    EXPECT_EQ(m.profile.times[2].device, "v100-32gb");
    const double own = m.profile.micro_batch_size;
    for (const pipeline::DeviceTimes& times : m.profile.times) EXPECT_THAT(times.samples, ElementsAre(1, own, 64));
    for (std::size_t i = 0; i < m.profile.c_ms.size(); ++i) {
      const pipeline::DeviceTimes& times = m.profile.times[0];
      EXPECT_NEAR(times.forward_ms[1][i] + times.backward_ms[1][i], m.profile.c_ms[i], 1e-15);
    }
    EXPECT_NEAR(sum(m.profile.times[0].optimizer_ms), m.optimizer_ms, 1e-15);
    // Another device is what the module takes there.
    const Graph graph = hlo::read_hlo_text(text, "test");
    const InstructionTimes h100 = estimate_times(graph, machine::load_device("h100"));
    ProfilerOptions options;
    const ModelProfile there = build_profile(graph, h100, options);
    EXPECT_NEAR(sum(m.profile.times[1].forward_ms[1]), there.forward_ms, 1e-15);
    EXPECT_NEAR(sum(m.profile.times[1].backward_ms[1]), there.backward_ms, 1e-15);
    EXPECT_NEAR(sum(m.profile.times[1].optimizer_ms), there.optimizer_ms, 1e-15);
  }
}

TEST(StepTimes, RunningSumsAndPlacesOfExpertsGrow) {
  // Tokens choose places: the one-hot of a running sum. The capacity of 8 places is no input's.
  const auto experts = [](int b) {
    std::string text = R"(HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY e {
  w = f32[4,64,64] parameter(0)
  router = f32[64,4] parameter(1)
  table = f32[100,64] parameter(2)
  ids = s32[B] parameter(3)
  tokens = f32[B,64] gather(table, ids), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1,64}
  zero = f32[] constant(0)
  gate = f32[B,4] dot(tokens, router), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  place = f32[B,4] reduce-window(gate, zero), window={size=Bx1 pad=P_0x0_0}, to_apply=sum
  whole = s32[B,4] convert(place)
  wide = s32[B,4,C] broadcast(whole), dimensions={0,1}
  numbers = s32[B,4,C] iota(), iota_dimension=2
  here = pred[B,4,C] compare(wide, numbers), direction=EQ
  mask = f32[B,4,C] convert(here)
  sent = f32[4,C,64] dot(mask, tokens), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  worked = f32[4,C,64] dot(sent, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={1}
  ROOT back = f32[B,64] dot(mask, worked), lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}
})";
    text = all_replaced(text, "[B", "[" + std::to_string(b));
    text = all_replaced(text, "=Bx", "=" + std::to_string(b) + "x");
    text = all_replaced(text, "=P_", "=" + std::to_string(b - 1) + "_");
    return all_replaced(text, ",C", "," + std::to_string(b / 2));
  };
  const ModelProfile m = profile_at(experts(32), {128});
  expect_same(m, profile_at(experts(128)), 128);
  EXPECT_THAT(m.warnings, testing::Contains(HasSubstr("capacity of experts")));
  EXPECT_THAT(profile_at(two_layers_of(16)).warnings, testing::Not(testing::Contains(HasSubstr("experts"))));
}

TEST(StepTimes, ABatchThatNobodyKnowsMakesNoTimes) {
  // Two inputs of integers that lead with different dimensions.
  const std::string text = R"(HloModule m
ENTRY e {
  table = f32[100,16] parameter(0)
  first = s32[6] parameter(1)
  second = s32[40] parameter(2)
  a = f32[6,16] gather(table, first), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1,16}
  b = f32[40,16] gather(table, second), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1,16}
  ROOT out = f32[6,40] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}
})";
  const ModelProfile m = profile_at(text);
  EXPECT_TRUE(m.profile.times.empty());
  EXPECT_THAT(m.times_problem, HasSubstr("disagree"));
  EXPECT_THAT(m.warnings, testing::Contains(testing::AllOf(HasSubstr("--batch-input"), HasSubstr("second, first"))));
  const ModelProfile named = profile_at(text, {12}, "first");
  EXPECT_EQ(named.profile.micro_batch_size, 6);
  expect_same(named, profile_at(all_replaced(text, "[6", "[12"), {}, "first"), 12);
  EXPECT_EQ(profile_at(text, {}, "%second").profile.micro_batch_size, 40);
  EXPECT_EQ(profile_at(text, {}, "2").profile.micro_batch_size, 40);

  const auto failure = [&](const std::string& names) {
    try {
      profile_at(text, {}, names);
    } catch (const Error& e) {
      return e;
    }
    return Error(ErrorKind::kInternal, "none");
  };
  EXPECT_EQ(failure("secnd").kind(), ErrorKind::kData);
  EXPECT_THAT(failure("secnd").what(), testing::AllOf(HasSubstr("--batch-input"), HasSubstr("secnd")));
  EXPECT_THAT(failure("secnd").hint(), HasSubstr("second"));
  EXPECT_THAT(failure("first,second").what(), testing::AllOf(HasSubstr("6 samples"), HasSubstr("40")));
  // A weight named as data grows: said, not done.
  EXPECT_THAT(profile_at(two_layers_of(16), {}, "w2").times_problem, HasSubstr("would grow with the batch"));
}

TEST(StepTimes, AModuleOfOneSampleGrowsAsOneOfSeveral) {
  for (const std::int64_t to : {2, 64}) {
    SCOPED_TRACE(to);
    const int b = static_cast<int>(to);
    expect_same(profile_at(hiding(1), {to}), profile_at(hiding(b), {}), b);
    expect_same(profile_at(two_layers_of(1), {to}), profile_at(two_layers_of(b), {}), b);
    expect_same(profile_at(accumulating(8, 1), {to}), profile_at(accumulating(8, b), {}), b);
  }
  EXPECT_EQ(profile_at(two_layers_of(1)).profile.micro_batch_size, 1);
}

// Positions that one sample adds without a broadcast, as weights of shape [1,...], and without a dimension of the
// batch: neither they nor their update grow.
std::string with_positions(int b) {
  const bool one = b == 1;
  const std::string text = R"(HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY e {
  first = f32[1,64,32] parameter(0)
  second = f32[64,32] parameter(1)
  w = f32[32,32] parameter(2)
  x = f32[B,64,32] parameter(3)
  z = f32[] constant(0)
  WIDEN
  x1 = f32[B,64,32] add(x, wide1)
  x2 = f32[B,64,32] add(x1, wide2)
  y = f32[B,64,32] dot(x2, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  s = f32[B,64,32] sine(y)
  loss = f32[] reduce(s, z), dimensions={0,1,2}, to_apply=sum
  c = f32[B,64,32] cosine(y)
  gw = f32[32,32] dot(x2, c), lhs_contracting_dims={0,1}, rhs_contracting_dims={0,1}
  gx = f32[B,64,32] dot(c, w), lhs_contracting_dims={2}, rhs_contracting_dims={1}
  NARROW
  nfirst = f32[1,64,32] subtract(first, g1)
  nsecond = f32[64,32] subtract(second, g2)
  nw = f32[32,32] subtract(w, gw)
  ROOT r = (f32[1,64,32], f32[64,32], f32[32,32], f32[]) tuple(nfirst, nsecond, nw, loss)
})";
  std::string out = all_replaced(text, "WIDEN",
                                 one ? R"(wide1 = f32[1,64,32] copy(first)
  wide2 = f32[1,64,32] reshape(second))"
                                     : R"(flat = f32[64,32] reshape(first)
  wide1 = f32[B,64,32] broadcast(flat), dimensions={1,2}
  wide2 = f32[B,64,32] broadcast(second), dimensions={1,2})");
  out = all_replaced(out, "NARROW",
                     one ? R"(g1 = f32[1,64,32] copy(gx)
  g2 = f32[64,32] reshape(gx))"
                         : R"(g2 = f32[64,32] reduce(gx, z), dimensions={0}, to_apply=sum
  g1 = f32[1,64,32] reshape(g2))");
  return all_replaced(out, "[B,", "[" + std::to_string(b) + ",");
}

TEST(StepTimes, WhatIsAddedToOneSampleDoesNotGrowAsAWeight) {
  const ModelProfile one = profile_at(with_positions(1), {4096}), many = profile_at(with_positions(4096));
  ASSERT_FALSE(one.profile.times.empty()) << one.times_problem;
  EXPECT_EQ(sum(one.profile.w_bytes), sum(many.profile.w_bytes));
  const auto total = [](const std::vector<std::vector<double>>& rows, std::size_t at) { return sum(rows.at(at)); };
  const pipeline::DeviceTimes &grown = one.profile.times[0], &written = many.profile.times[0];
  const auto own = static_cast<std::size_t>(std::find(written.samples.begin(), written.samples.end(), 4096) -
                                            written.samples.begin());
  EXPECT_NEAR(total(grown.forward_ms, 1), total(written.forward_ms, own), 0.05 * total(written.forward_ms, own));
  // Sums over the samples are reads of their own there.
  EXPECT_NEAR(total(grown.backward_ms, 1), total(written.backward_ms, own), 0.35 * total(written.backward_ms, own));
  EXPECT_NEAR(sum(grown.optimizer_ms), sum(written.optimizer_ms), 0.01 * sum(written.optimizer_ms));
}

TEST(StepTimes, DefaultSamples) {
  EXPECT_THAT(default_samples(2), ElementsAre(1, 2, 4, 8, 16, 32));
  EXPECT_THAT(default_samples(6), ElementsAre(1, 2, 4, 6, 8, 16, 32));
  EXPECT_THAT(default_samples(1), ElementsAre(1, 2, 4, 8, 16, 32));
}

TEST(StepTimes, ParsedSamples) {
  EXPECT_THAT(parse_samples("4,1,2,4", "--samples"), ElementsAre(1, 2, 4));
  for (const char* wrong : {"", "0", "1,,2", "1.5", "-1", "x", "1,", "1048577", "99999999999999999999"}) {
    EXPECT_THROW(parse_samples(wrong, "--samples"), Error) << wrong;
  }
}

TEST(StepTimes, ALoopOverMicroBatchesIsOneOfThem) {
  const ModelProfile m = profile_at(accumulating(8, 4), {16});
  EXPECT_EQ(m.profile.accumulated_micro_batches, 8);
  EXPECT_EQ(m.profile.micro_batch_size, 4);
  EXPECT_THAT(m.warnings, testing::Contains(HasSubstr("gradients of 8 micro-batches")));
  // The number of turns changes nothing, the samples of a turn do.
  const ModelProfile more = profile_at(accumulating(32, 4), {16});
  EXPECT_EQ(more.profile.accumulated_micro_batches, 32);
  EXPECT_NEAR(more.forward_ms, m.forward_ms, 1e-9);
  EXPECT_NEAR(more.backward_ms, m.backward_ms, 1e-9);
  EXPECT_EQ(more.profile.stash_bytes, m.profile.stash_bytes);
  expect_same(m, profile_at(accumulating(8, 16)), 16);
  EXPECT_EQ(profile_at(accumulating(8, 16)).profile.micro_batch_size, 16);
}

TEST(StepTimes, FixturesGrowWithTheirBatch) {
  const std::string folder = std::string(AUTOMAP_SOURCE_DIR) + "/fixtures/hlo/";
  for (const char* name : {"tiny_mlp.hlo", "lit_small.hlo.gz", "moe_small.hlo.gz", "transformer_bf16.hlo.gz",
                           "transformer_scan.hlo.gz", "vgg19.hlo.gz", "gpt2_forward.hlo.gz"}) {
    const hlo::HloModule module = hlo::load_hlo(folder + name);
    const ModelProfile m = profile_module(module, name, {});
    ASSERT_EQ(m.profile.times.size(), 1u) << name << ": " << m.times_problem;
    const pipeline::DeviceTimes& times = m.profile.times[0];
    EXPECT_EQ(times.samples.back(), std::max<std::int64_t>(32, 4 * m.profile.micro_batch_size)) << name;
    double before = 0;
    for (std::size_t i = 0; i < times.samples.size(); ++i) {
      const double ms = sum(times.forward_ms[i]) + sum(times.backward_ms[i]);
      EXPECT_GE(ms, before) << name << " at " << times.samples[i];
      if (times.samples[i] == m.profile.micro_batch_size) {
        EXPECT_NEAR(ms, sum(m.profile.c_ms), 1e-9) << name;
      }
      before = ms;
    }
  }
}

}  // namespace
}  // namespace automap::profile
