#include "train/promotion.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/rng.h"

namespace automap::train {
namespace {

double normal(Rng& rng) {
  constexpr double kTwoPi = 6.283185307179586;
  return std::sqrt(-2 * std::log(1 - rng.uniform())) * std::cos(kTwoPi * rng.uniform());
}

// Policies whose gaps differ by `mean` in the mean and `spread` from problem to problem, as most of a night's problems
// are planned alike by real policies; and by a whole plan in some: `loses` of the problems the first finds no plan for,
// `gains` the second (`as_gaps`: plans that are as bad as none).
struct Night {
  double mean = 0, spread = 0.012, loses = 0, gains = 0;
  bool as_gaps = false;
};

// The test at its end, begun with 720 problems.
PromotionTest played(const Night& night, std::uint64_t number) {
  constexpr double kDiffer = 0.25, kGap = 0.05;
  Rng rng(number, 7, 0);
  PromotionTest test(0, 0.0003);
  double sum = 0, squares = 0, n = 0;
  int first_lost = 0, second_lost = 0;
  bool more = true;
  for (int times = 720; more; times = static_cast<int>(n)) {
    for (int i = 0; i < times; ++i) {
      const double which = rng.uniform();
      const bool loses = which < night.loses, gains = !loses && which < night.loses + night.gains;
      const bool differ = rng.uniform() < kDiffer;
      const double difference = loses    ? kMostGap - kGap
                                : gains  ? kGap - kMostGap
                                : differ ? night.mean / kDiffer + night.spread * normal(rng)
                                         : 0;
      sum += difference;
      squares += difference * difference;
      first_lost += loses && !night.as_gaps ? 1 : 0;
      second_lost += gains && !night.as_gaps ? 1 : 0;
    }
    n += times;
    PairedDifference d{static_cast<int>(n), sum / n, 0};
    d.standard_error = std::sqrt((squares - n * d.mean * d.mean) / (n - 1) / n);
    more = test.look(d, first_lost, second_lost);
  }
  return test;
}

// The share of nights that promote.
double promoted(const Night& night, std::uint64_t from) {
  constexpr int kNights = 500;
  int count = 0;
  for (int i = 0; i < kNights; ++i) count += played(night, from + static_cast<std::uint64_t>(i)).accepted() ? 1 : 0;
  return static_cast<double>(count) / kNights;
}

// Years of nights with a planted policy.
TEST(Promotion, YearsOfNights) {
  EXPECT_LE(promoted({0}, 1000), 0.05);
  EXPECT_LE(promoted({0.001}, 900000), 0.005);
  EXPECT_GE(promoted({-0.001}, 500000), 0.8);
}

// Equal policies with rare large differences, either way.
TEST(Promotion, EqualWithRareLargeDifferences) {
  for (const double rate : {1.0 / 200, 1.0 / 1500, 1.0 / 5000}) {
    Night night;
    night.loses = night.gains = rate;
    EXPECT_LE(promoted(night, 20000), 0.05) << rate;
    night.as_gaps = true;
    EXPECT_LE(promoted(night, 30000), 0.05) << rate;
  }
}

// A little better everywhere but in the few problems that outweigh it all, so that the policies are equal in what is
// judged, or the first is a little worse.
TEST(Promotion, BetterButForRareLosses) {
  for (const double rate : {1.0 / 200, 1.0 / 700, 1.0 / 1500, 1.0 / 5000}) {
    Night night;
    night.loses = rate;
    night.as_gaps = true;
    night.mean = -rate * (kMostGap - 0.05);
    EXPECT_LE(promoted(night, 40000), 0.05) << rate;
    night.mean *= 0.8;
    EXPECT_LE(promoted(night, 50000), 0.05) << rate;
  }
}

// It loses the plan in 1 of 1500 problems and is 0.1 or 0.3 points better elsewhere: better in what is judged, and yet
// never promoted on a night that has seen it lose a plan that the other found.
TEST(Promotion, LosesPlans) {
  for (const double mean : {-0.001, -0.003}) {
    Night night;
    night.mean = mean;
    night.loses = 1.0 / 1500;
    int accepted = 0;
    for (std::uint64_t i = 0; i < 1000; ++i) {
      const PromotionTest test = played(night, 60000 + i);
      EXPECT_FALSE(test.accepted() && test.loses_plans());
      accepted += test.accepted() ? 1 : 0;
    }
    // Accepted nights are those whose first thousands of problems showed no lost plan.
    EXPECT_LE(accepted, mean < -0.002 ? 500 : 50) << mean;
  }
  PromotionTest test(0, 0.0003);
  EXPECT_TRUE(test.look({1000, -0.1, 0.001}, 3, 2));
  EXPECT_TRUE(test.loses_plans());
  EXPECT_FALSE(test.look({2000, -0.1, 0.001}, 3, 3));
  EXPECT_STREQ(test.ended_by(), "accepted");
}

TEST(Promotion, FewProblemsTellNothing) {
  PromotionTest one(1, 0.0003);
  EXPECT_TRUE(one.look({1, -0.5, 0}));
  EXPECT_FALSE(one.accepted());
  EXPECT_STREQ(one.ended_by(), "too_few_problems");
  EXPECT_TRUE(one.unsettled());
  EXPECT_TRUE(one.look({29, -0.5, 0.001}));
  EXPECT_FALSE(one.look({30, -0.5, 0.001}));
  EXPECT_STREQ(one.ended_by(), "accepted");
  // All problems differ by the same: nothing that policies do.
  PromotionTest same(1, 0.0003);
  EXPECT_TRUE(same.look({1000, -0.5, 0}));
  EXPECT_FALSE(same.accepted());
}

// 36 problems that are the same to both policies do not show that the policies are: either may lose one in 36.
TEST(Promotion, ProblemsThatAreAlikeLeaveItUndecided) {
  PromotionTest test(0, 0.0003);
  EXPECT_TRUE(test.look({36, 0, 0}));
  EXPECT_TRUE(test.all_alike());
  EXPECT_EQ(test.verdict(), Verdict::kUndecided);
  // By hand: (1 + 2.4) / 37.
  EXPECT_NEAR(test.upper_bound(), 3.4 / 37, 1e-12);
  EXPECT_NEAR(test.lower_bound(), -3.4 / 37, 1e-12);
  EXPECT_FALSE(test.look({10000, 0, 0}));
  EXPECT_STREQ(test.ended_by(), "error_reached");
  EXPECT_EQ(test.verdict(), Verdict::kUndecided);
  // Not worse by more than 0.1 points is shown by so many.
  PromotionTest margin(0.001, 0.0002);
  EXPECT_TRUE(margin.look({3000, 0, 0}));
  EXPECT_FALSE(margin.look({3500, 0, 0}));
  EXPECT_TRUE(margin.accepted());
}

TEST(Promotion, TheVerdictIsAboutTheDifference) {
  PromotionTest better(0, 0.0003), worse(0, 0.0003), loses(0, 0.0003);
  EXPECT_EQ(better.verdict(), Verdict::kUndecided);
  better.look({10000, -0.01, 0.001});
  EXPECT_EQ(better.verdict(), Verdict::kBetter);
  EXPECT_LT(better.upper_bound(), 0);
  worse.look({100, 0.01, 0.001});
  EXPECT_EQ(worse.verdict(), Verdict::kWorse);
  EXPECT_GT(worse.lower_bound(), 0);
  loses.look({10000, -0.01, 0.001}, 3, 2);
  EXPECT_EQ(loses.verdict(), Verdict::kUndecided);
  // Accepted at a margin, and all the same worse.
  PromotionTest margin(0.1, 0.0003);
  margin.look({10000, 0.01, 0.001});
  EXPECT_TRUE(margin.accepted());
  EXPECT_EQ(margin.verdict(), Verdict::kWorse);
}

TEST(Promotion, EndsWhenSettled) {
  PromotionTest clear(0, 0.0003);
  EXPECT_FALSE(clear.look({10000, -0.01, 0.001}));
  EXPECT_STREQ(clear.ended_by(), "accepted");
  // By hand: 99 problems and the worst one. (99 x -0.1 + 1) / 100, and its error.
  PromotionTest hand(0, 0.0003);
  EXPECT_FALSE(hand.look({99, -0.1, 0.005}));
  EXPECT_NEAR(hand.standard_error(), std::sqrt((0.005 * 0.005 * 99 * 98 + 1.21 * 0.99) / 9900), 1e-12);
  EXPECT_NEAR(hand.upper_bound(), -0.089 + 2.4 * hand.standard_error(), 1e-12);
  PromotionTest bad(0, 0.0003);
  EXPECT_FALSE(bad.look({100, 0.01, 0.001}));
  EXPECT_STREQ(bad.ended_by(), "refused");
  PromotionTest known(0, 0.0003);
  EXPECT_TRUE(known.look({1000, -0.0001, 0.0002}));
  EXPECT_FALSE(known.look({10000, -0.0001, 0.0002}));
  EXPECT_STREQ(known.ended_by(), "error_reached");
  PromotionTest open(0, 0.0003);
  for (int look = 1; look < PromotionTest::kMostLooks; ++look) {
    EXPECT_TRUE(open.look({100, -0.001, 0.001}));
    EXPECT_STREQ(open.ended_by(), "no_more_problems");
  }
  EXPECT_FALSE(open.look({100, -0.001, 0.001}));
  EXPECT_STREQ(open.ended_by(), "looks");
  EXPECT_TRUE(open.unsettled());
}

}  // namespace
}  // namespace automap::train
