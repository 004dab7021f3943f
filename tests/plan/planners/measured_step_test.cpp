#include "plan/planners/measured_step.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/planners/scaled_estimates.h"

namespace automap::planners {
namespace {

// Eight layers on two servers of two devices, whose gradients take as long as much of what they compute.
Question four_devices() {
  pipeline::Profile profile;
  profile.model = "measured";
  for (int i = 0; i < 8; ++i) {
    profile.c_ms.push_back(10);
    profile.a_bytes.push_back(1e6);
    profile.w_bytes.push_back(5e7);
    profile.stash_bytes.push_back(0);
    profile.layer.push_back("h/" + std::to_string(i));
  }
  profile.micro_batch_size = 1;
  machine::Cluster cluster = machine::load_cluster("config-a");
  cluster.servers[0].count = 2;
  cluster.servers[0].devices = 2;
  pipeline::ProblemOptions options;
  options.replicas = pipeline::Replicas::kWhole;
  StepRequest step;
  step.batch = 16;
  return {profile, cluster, options, step, {}};
}

Layout layout_of(int dp, int pp) {
  Layout layout;
  layout.dp = dp;
  layout.pp = pp;
  layout.micro_batch_size = 1;
  return layout;
}

// K as they are chosen without a correction.
double corrected_step(const Layout& layout, Question question, const Correction& correction) {
  const std::vector<int> warmup = score_layout(layout, question).plan.warmup;
  correct(correction, &question);
  return score_layout(layout, question, warmup).simulated_step_ms;
}

TEST(MeasuredStep, TheLayoutTakesWhatWasMeasured) {
  const Question question = four_devices();
  for (const Layout& layout : {layout_of(4, 1), layout_of(2, 2), layout_of(1, 4)}) {
    const ScoredPlan scored = score_layout(layout, question);
    for (const double ratio : {0.06, 0.3, 0.5, 0.95, 1.0, 1.05, 2.0, 3.0, 19.0}) {
      const double measured = ratio * scored.simulated_step_ms;
      const Correction found = find_correction(layout, scored, question, measured);
      EXPECT_NEAR(corrected_step(layout, question, found) / measured, 1, 1e-7) << layout.text() << " " << ratio;
      // Compute is not to blame for parts that take longer than the measurement by themselves, or would have to change
      // too much.
      const bool reached = found.network == 1;
      const double end = ratio > 1 ? kSlowestCompute : kFastestCompute;
      const double farthest = corrected_step(layout, question, {end, 1});
      EXPECT_EQ(reached, ratio > 1 ? farthest >= measured : farthest <= measured) << layout.text() << " " << ratio;
      if (!reached) {
        EXPECT_EQ(found.compute, found.network);
        EXPECT_NEAR(found.compute, ratio, 1e-12);
      }
      EXPECT_EQ(found.changes(), ratio != 1);
    }
  }
}

TEST(MeasuredStep, EverythingByOneFactorIsTheStepByIt) {
  const Question question = four_devices();
  for (const Layout& layout : {layout_of(4, 1), layout_of(2, 2)}) {
    const double estimated = score_layout(layout, question).simulated_step_ms;
    for (const double factor : {0.1, 0.7, 3.0}) {
      EXPECT_NEAR(corrected_step(layout, question, {factor, factor}) / estimated, factor, 1e-9 * factor);
    }
  }
}

TEST(MeasuredStep, MemoryIsAsEstimated) {
  Question question = four_devices();
  const double share = score_layout(layout_of(2, 2), question).fullest_share;
  correct({3, 2}, &question);
  EXPECT_EQ(score_layout(layout_of(2, 2), question).fullest_share, share);
}

TEST(ScaledEstimates, CollectivesInsideReplicasHaveAFactorOfTheirOwn) {
  pipeline::Profile profile = four_devices().profile();
  profile.micro_batch_size = 2;
  pipeline::WidthColumns width;
  width.width = 2;
  // At 2 and 4 samples; of the 12 ms at 2 samples 3 are collectives.
  const std::vector<double> two(8, 4.0), two_back(8, 8.0), four(8, 8.0), four_back(8, 16.0);
  width.times = {{"v100", {2, 4}, {two, four}, {two_back, four_back}, std::vector<double>(8, 1.0)}};
  width.collective_ms = {std::vector<double>(8, 3.0)};
  profile.widths = {width};
  scale_times(profile, 0, 8, 2, 1);
  const pipeline::DeviceTimes& times = profile.widths.front().times.front();
  EXPECT_DOUBLE_EQ(times.forward_ms[0][7] + times.backward_ms[0][7], 9 * 2 + 3);
  EXPECT_DOUBLE_EQ(times.forward_ms[1][7] + times.backward_ms[1][7], 18 * 2 + 6);
  EXPECT_DOUBLE_EQ(times.optimizer_ms[0], 2);
  EXPECT_DOUBLE_EQ(profile.widths.front().collective_ms[0][0], 3);
  EXPECT_DOUBLE_EQ(profile.c_ms[0], 20);
  // Some positions alone are scaled.
  scale_times(profile, 4, 8, 0.5, 1);
  EXPECT_DOUBLE_EQ(profile.c_ms[3], 20);
  EXPECT_DOUBLE_EQ(profile.c_ms[4], 10);
  EXPECT_DOUBLE_EQ(times.forward_ms[0][7] + times.backward_ms[0][7], 9 + 3);
}

}  // namespace
}  // namespace automap::planners
