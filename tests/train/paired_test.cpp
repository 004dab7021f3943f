#include "train/paired.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace automap::train {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

TEST(Paired, NoPlanCountsAsTheWorstPlan) {
  EXPECT_EQ(counted_gap(0.25), 0.25);
  EXPECT_EQ(counted_gap(-0.1), -0.1);  // simulated lengths may be below the reference
  EXPECT_EQ(counted_gap(3), 1);
  EXPECT_EQ(counted_gap(kNone), 1);
  EXPECT_EQ(counted_gap(kNone / kNone), 1);
}

TEST(Paired, ByHand) {
  // Differences 1, 3: mean 2, variance 2, standard error sqrt(2 / 2) = 1.
  const PairedDifference d = paired_difference({2, 5}, {1, 2});
  EXPECT_EQ(d.problems, 2);
  EXPECT_DOUBLE_EQ(d.mean, 2);
  EXPECT_DOUBLE_EQ(d.standard_error, 1);
  EXPECT_NEAR(interval_95(d).low, 2 - 1.96, 1e-4);
  EXPECT_NEAR(interval_95(d).high, 2 + 1.96, 1e-4);
  EXPECT_DOUBLE_EQ(paired_difference({1, 3}, {}).mean, 2);
  EXPECT_EQ(paired_difference({}, {}).problems, 0);
  EXPECT_EQ(mean_of({}), 0);
  EXPECT_EQ(gap_text(0.00449), "0.449 %");
}

TEST(Paired, NothingIsShownByFewProblemsNorByProblemsThatAreAlike) {
  const Interval few = interval_95({36, 0, 0});
  EXPECT_DOUBLE_EQ(few.low, -3.0 / 36);
  EXPECT_DOUBLE_EQ(few.high, 3.0 / 36);
  EXPECT_EQ(verdict_of({36, 0, 0}), Verdict::kUndecided);
  EXPECT_EQ(interval_95({1, 0, 0}).high, 1);
  EXPECT_EQ(verdict_of({kLeastProblems - 1, -0.5, 0.01}), Verdict::kUndecided);
}

TEST(Paired, Verdicts) {
  EXPECT_EQ(verdict_of({1000, -0.02, 0.01}), Verdict::kBetter);
  EXPECT_EQ(verdict_of({1000, 0.02, 0.01}), Verdict::kWorse);
  EXPECT_EQ(verdict_of({1000, 0.019, 0.01}), Verdict::kUndecided);
  EXPECT_EQ(verdict_of({1000, -0.019, 0.01}), Verdict::kUndecided);
  EXPECT_STREQ(to_string(Verdict::kBetter), "better");
  EXPECT_STREQ(to_string(Verdict::kWorse), "worse");
  EXPECT_STREQ(to_string(Verdict::kUndecided), "undecided");
}

}  // namespace
}  // namespace automap::train
