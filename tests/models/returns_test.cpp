#include "models/returns.h"

#include <gtest/gtest.h>

namespace automap::models {
namespace {

TEST(Returns, MonteCarlo) {
  const double expected[] = {0.2, 0.4, 0.8};  // 0.8 times 0.5^2, 0.5, 1
  for (int i = 0; i < 3; ++i) {
    const ReturnTarget target = return_target(3, 0.8, i, 0, 0.5);
    EXPECT_NEAR(target.reward_y, expected[i], 1e-7);
    EXPECT_EQ(target.bootstrap, -1);
    EXPECT_EQ(target.discount, 0);
    EXPECT_NEAR(return_target(3, 0.8, i, 0, 1).reward_y, 0.8, 1e-7);
  }
}

TEST(Returns, OneStep) {
  for (int i = 0; i < 2; ++i) {
    const ReturnTarget target = return_target(3, 0.8, i, 1, 0.5);
    EXPECT_EQ(target.reward_y, 0);
    EXPECT_EQ(target.bootstrap, i + 1);
    EXPECT_EQ(target.discount, 0.5);
  }
  EXPECT_NEAR(return_target(3, 0.8, 2, 1, 0.5).reward_y, 0.8, 1e-7);
  EXPECT_EQ(return_target(3, 0.8, 2, 1, 0.5).bootstrap, -1);
}

TEST(Returns, TwoSteps) {
  const ReturnTarget first = return_target(3, 0.8, 0, 2, 0.5);
  EXPECT_EQ(first.bootstrap, 2);
  EXPECT_EQ(first.discount, 0.25);
  EXPECT_EQ(first.reward_y, 0);
  // The reward comes one step later, within the two.
  const ReturnTarget second = return_target(3, 0.8, 1, 2, 0.5);
  EXPECT_EQ(second.bootstrap, -1);
  EXPECT_NEAR(second.reward_y, 0.4, 1e-7);
}

}  // namespace
}  // namespace automap::models
