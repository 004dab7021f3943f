// Passes that wait for the host, and which kernels it launches.
#include "profile/host_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/hlo/hlo_text.h"
#include "common/machine/device.h"
#include "profile/profiler.h"
#include "profile/time_estimator.h"
#include "tests/sum.h"

namespace automap::profile {
namespace {

using graph::Graph;
using testing::DoubleNear;
using testing::ElementsAre;

TEST(HostTime, APassTakesTheLongerOfBothInAll) {
  // The first kernel is long enough for the host to launch the second one meanwhile.
  std::vector<double> busy = {10, 1};
  wait_for_host(&busy, {2, 2});
  EXPECT_THAT(busy, ElementsAre(10, 1));
  // 12 ms of launches against 6: what is missing, by the launches.
  std::vector<double> waits = {1, 2, 3};
  wait_for_host(&waits, {2, 8, 2});
  EXPECT_THAT(waits, ElementsAre(DoubleNear(2, 1e-12), DoubleNear(6, 1e-12), DoubleNear(4, 1e-12)));
  std::vector<double> none = {0, 0};
  wait_for_host(&none, {0, 0});
  EXPECT_THAT(none, ElementsAre(0, 0));
}

TEST(HostTime, TheLargerOfTwoCounts) {
  EXPECT_THAT(host_of_pass({1, 2}, {2, 0.5}), ElementsAre(1, 2));
  EXPECT_THAT(host_of_pass({1, 2}, {3, 0.5}), ElementsAre(3, 0.5));
}

double launches(const std::string& text) {
  const Graph graph = hlo::read_hlo_text(text, "test");
  machine::DeviceModel device = machine::load_device("h100");
  device.host_us = 1000;
  const InstructionTimes times = estimate_times(graph, device);
  double out = 0;
  const graph::Computation& entry = graph.entry();
  for (std::int32_t i = 0; i < entry.count; ++i)
    out += times.host_ms.by_kernels.at(static_cast<std::size_t>(entry.first + i));
  return out;
}

TEST(HostTime, OneLaunchForAKernel) {
  const std::string less =
      "HloModule m\nless { p = f32[] parameter(0)\n q = f32[] parameter(1)\n ROOT c = pred[] compare(p, q), "
      "direction=LT }\n";
  EXPECT_NEAR(launches(less + "ENTRY e { x = f32[8] parameter(0)\n a = f32[8] sort(x), dimensions={0}, "
                              "to_apply=less\n ROOT b = f32[8] sort(a), dimensions={0}, to_apply=less }\n"),
              2, 1e-9);
  // Three operations of one loop; and in every turn of a loop.
  EXPECT_NEAR(
      launches("HloModule m\nENTRY e { x = f32[8] parameter(0)\n a = f32[8] negate(x)\n b = f32[8] exponential(a)\n "
               "ROOT c = f32[8] add(b, a) }\n"),
      1, 1e-9);
  const auto loop = [](const std::string& type) {
    return "HloModule m\nbody { s = (s32[], " + type +
           ") parameter(0)\n i = s32[] get-tuple-element(s), index=0\n x = " + type +
           " get-tuple-element(s), index=1\n one = s32[] constant(1)\n n = s32[] add(i, one)\n y = " + type +
           " multiply(x, x)\n ROOT r = (s32[], " + type + ") tuple(n, y) }\ncondition { s = (s32[], " + type +
           ") parameter(0)\n i = s32[] get-tuple-element(s), index=0\n end = s32[] constant(5)\n ROOT l = pred[] "
           "compare(i, "
           "end), direction=LT }\nENTRY e { x = " +
           type + " parameter(0)\n zero = s32[] constant(0)\n s = (s32[], " + type + ") tuple(zero, x)\n w = (s32[], " +
           type + ") while(s), condition=condition, body=body\n ROOT y = " + type +
           " get-tuple-element(w), index=1 }\n";
  };
  EXPECT_NEAR(launches(loop("f32[8]")), 5, 1e-9);
  EXPECT_NEAR(launches(loop("u32[8]")), 0, 1e-9);  // a key
}

TEST(HostTime, WhatEagerSoftwareDoesNotLaunch) {
  const auto entry = [](const std::string& body) { return "HloModule m\nENTRY e { " + body + " }\n"; };
  // A mask of random bits belongs to what it is applied to.
  EXPECT_NEAR(
      launches(entry("x = f32[64] parameter(0)\n k = u32[64] parameter(1)\n c = u32[] constant(9)\n b = u32[64] "
                     "broadcast(c), dimensions={}\n m = pred[64] compare(k, b), direction=LT\n z = f32[] constant(0)\n "
                     "o = f32[64] broadcast(z), dimensions={}\n s = f32[64] select(m, x, o)\n ROOT r = (f32[64], "
                     "pred[64]) tuple(s, m)")),
      1, 1e-9);
  // Weights are cast all at once and transposed where they are read; a product of them is a kernel.
  const std::string product =
      "x = f16[8,4] parameter(0)\n w = f32[16,4] parameter(1)\n h = f16[16,4] convert(w)\n t = f16[4,16] transpose(h), "
      "dimensions={1,0}\n ROOT d = f16[8,16] dot(x, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}";
  EXPECT_NEAR(launches(entry(product)), 1, 1e-9);
}

// Two layers and SGD, B samples.
std::string step(int samples) {
  const std::string b = std::to_string(samples);
  return "HloModule m\nENTRY e { w = f32[64,64] parameter(0), metadata={op_name=\"params['w']\"}\n x = f32[" + b +
         ",64] parameter(1), metadata={op_name=\"batch\"}\n h = f32[" + b +
         ",64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
         "metadata={op_name=\"jit(s)/jvp()/dot\"}\n t = f32[" +
         b +
         ",64] tanh(h), metadata={op_name=\"jit(s)/jvp()/tanh\"}\n g = f32[64,64] dot(x, t), lhs_contracting_dims={0}, "
         "rhs_contracting_dims={0}, metadata={op_name=\"jit(s)/transpose(jvp())/dot\"}\n ROOT n = f32[64,64] "
         "subtract(w, g) }\n";
}

TEST(HostTime, SmallBatchesTakeWhatTheHostTakes) {
  machine::DeviceModel device = machine::load_device("h100");
  const auto pass_ms = [&](int samples, double host_us) {
    device.host_us = host_us;
    const Graph graph = hlo::read_hlo_text(step(samples), "test");
    const ModelProfile m = build_profile(graph, estimate_times(graph, device), {});
    EXPECT_NEAR(sum(m.profile.c_ms), m.forward_ms + m.backward_ms, 1e-12);
    return m.forward_ms + m.backward_ms;
  };
  // One product forward, one backward, which count for more than the kernels.
  const double few = pass_ms(8, 100);
  EXPECT_NEAR(few, 2 * kKernelsOfAProduct * 0.1, 1e-12);
  EXPECT_NEAR(pass_ms(16, 100), few, 1e-12);
  EXPECT_NEAR(pass_ms(8, 200), 2 * few, 1e-12);
  // A device that is busy for longer does not notice.
  EXPECT_EQ(pass_ms(1 << 24, 100), pass_ms(1 << 24, machine::kCompiledHostUs));
}

}  // namespace
}  // namespace automap::profile
