#include "train/promotion.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/base/rng.h"

namespace automap::train {
namespace {

double normal(Rng& rng) {
  constexpr double kTwoPi = 6.283185307179586;
  return std::sqrt(-2 * std::log(1 - rng.uniform())) * std::cos(kTwoPi * rng.uniform());
}

// A night: paired differences of policies whose gaps differ by `mean` in the mean and `spread` from problem to problem.
// Most problems are planned alike, as by real policies.
bool promoted(double mean, double spread, int problems, std::uint64_t night, int* looks = nullptr) {
  constexpr double kDiffer = 0.25;
  Rng rng(night, 7, 0);
  PromotionTest test(0, 0.0003);
  std::vector<double> first, second;
  bool more = true;
  for (int times = problems; more; times = static_cast<int>(first.size())) {
    for (int i = 0; i < times; ++i) {
      second.push_back(0.05);
      const bool differ = rng.uniform() < kDiffer;
      first.push_back(second.back() + (differ ? mean / kDiffer + spread * normal(rng) : 0));
    }
    more = test.look(paired_difference(first, second));
  }
  if (looks != nullptr) *looks = test.looks();
  return test.accepted();
}

// Weeks of nights with a planted policy: of 720 held-out problems at first, differences of 1.2 % where there are any.
TEST(Promotion, WeeksOfNights) {
  constexpr int kNights = 4000;
  constexpr double kSpread = 0.012;
  int equal = 0, worse = 0, better = 0;
  for (int night = 0; night < kNights; ++night) {
    equal += promoted(0, kSpread, 720, 1000 + static_cast<std::uint64_t>(night)) ? 1 : 0;
    worse += promoted(0.001, kSpread, 720, 900000 + static_cast<std::uint64_t>(night)) ? 1 : 0;
    better += promoted(-0.001, kSpread, 720, 500000 + static_cast<std::uint64_t>(night)) ? 1 : 0;
  }
  EXPECT_LE(equal, 0.05 * kNights);
  EXPECT_LE(worse, 0.005 * kNights);
  EXPECT_GE(better, 0.8 * kNights);
}

TEST(Promotion, WhatMakesNoDifferenceIsNotPromoted) {
  PromotionTest test(1, 0.0003);
  EXPECT_FALSE(test.look({100, 0, 0}));
  EXPECT_TRUE(test.no_difference());
  EXPECT_FALSE(test.accepted());
}

TEST(Promotion, EndsWhenSettled) {
  PromotionTest clear(0, 0.0003);
  EXPECT_FALSE(clear.look({100, -0.01, 0.001}));
  EXPECT_TRUE(clear.accepted());
  PromotionTest bad(0, 0.0003);
  EXPECT_FALSE(bad.look({100, 0.01, 0.001}));
  EXPECT_FALSE(bad.accepted());
  PromotionTest known(0, 0.0003);
  EXPECT_FALSE(known.look({100, -0.0001, 0.0002}));
  EXPECT_FALSE(known.accepted());
  PromotionTest open(0, 0.0003);
  for (int look = 1; look < PromotionTest::kMostLooks; ++look) EXPECT_TRUE(open.look({100, -0.001, 0.001}));
  EXPECT_FALSE(open.look({100, -0.001, 0.001}));
  EXPECT_FALSE(open.accepted());
}

}  // namespace
}  // namespace automap::train
