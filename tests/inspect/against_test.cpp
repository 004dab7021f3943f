#include "inspect/against.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/rng.h"
#include "datagen/distributions.h"
#include "inspect/row_shape.h"

namespace automap::inspect {
namespace {

constexpr std::size_t kPoints = pipeline::kGranularity;

std::vector<pipeline::RowProblem> some_rows(std::uint64_t count) {
  const datagen::Generator generator = datagen::Generator::load("mixed");
  std::vector<pipeline::RowProblem> rows;
  for (std::uint64_t i = 0; i < count; ++i) rows.push_back(generator.row(1, i));
  return rows;
}

pipeline::Profile ramp(int n) {
  pipeline::Profile profile;
  for (int i = 1; i <= n; ++i) {
    profile.c_ms.push_back(i);
    profile.a_bytes.push_back(i < n ? 1e6 * i : 0);
    profile.w_bytes.push_back(2e6 * i);
    profile.stash_bytes.push_back(0);
  }
  return profile;
}

TEST(RowShape, LeavesScalesOut) {
  pipeline::Profile profile = ramp(300);
  const Shape shape = shape_of(profile);
  for (double& a : profile.a_bytes) a *= 1e-3;
  for (double& w : profile.w_bytes) w *= 700;
  EXPECT_LT(distance(shape, shape_of(profile)), 1e-6);
  for (const std::size_t channel : {0u, 1u, 2u}) {
    EXPECT_EQ(*std::max_element(shape.begin() + channel * kPoints, shape.begin() + (channel + 1) * kPoints), 1);
  }
  // The row of the same profile has the same shape.
  EXPECT_NEAR(shape[63], 150.0 * 151 / (300 * 301), 1e-6);
  std::fill(profile.w_bytes.begin(), profile.w_bytes.end(), 0);
  EXPECT_EQ(shape_of(profile)[3 * kPoints - 1], 0);
}

TEST(RowShape, DistanceIsWhatItSays) {
  Shape zero{}, one{};
  EXPECT_EQ(distance(zero, zero), 0);
  one.fill(1);
  EXPECT_DOUBLE_EQ(distance(zero, one), 1);
  one.fill(0);
  one[5] = 1;
  EXPECT_NEAR(distance(zero, one), std::sqrt(1.0 / 384), 1e-7);
}

// The slow obvious twin of nearest() and of compare().
TEST(Against, AgreesWithEveryPair) {
  std::vector<Shape> shapes;
  std::vector<ShapeFacts> facts;
  for (const pipeline::RowProblem& row : some_rows(700)) {
    shapes.push_back(shape_of(row.caw));
    facts.push_back(facts_of(shapes.back(), row.num_instructions));
  }
  const auto slow_distance = [](const Shape& x, const Shape& y) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += std::pow(static_cast<double>(x[i]) - y[i], 2);
    return std::sqrt(sum / 384);
  };
  const auto slow_nearest = [&](const Shape& shape, std::size_t except) {
    double best = 2;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      if (i != except) best = std::min(best, slow_distance(shape, shapes[i]));
    }
    return best;
  };
  std::vector<ComparedProfile> profiles(2);
  const std::vector<Shape> real = {shape_of(ramp(40)), shape_of(ramp(500))};
  for (std::size_t i = 0; i < 2; ++i) profiles[i].facts = facts_of(real[i], i == 0 ? 40 : 500);
  const Comparison comparison = compare(profiles, real, shapes, facts);
  ASSERT_EQ(comparison.row_distances.size(), kQueryRows);
  std::vector<double> expected;
  for (std::size_t q = 0; q < kQueryRows; ++q) {
    const std::size_t i = 700 * q / kQueryRows;
    expected.push_back(slow_nearest(shapes[i], i));
  }
  std::sort(expected.begin(), expected.end());
  for (std::size_t q = 0; q < kQueryRows; ++q) ASSERT_NEAR(comparison.row_distances[q], expected[q], 1e-6);
  for (std::size_t i = 0; i < 2; ++i) {
    const ComparedProfile& p = comparison.profiles[i];
    EXPECT_NEAR(p.distance, slow_nearest(real[i], kNoException), 1e-6);
    EXPECT_NEAR(slow_distance(real[i], shapes[p.nearest]), p.distance, 1e-6);
    double below = 0;
    for (const double d : expected) below += d < p.distance;
    EXPECT_NEAR(p.percentile, 100 * below / kQueryRows, 0.5);
    double facts_best = 2;
    for (const ShapeFacts& one : facts) facts_best = std::min(facts_best, distance(p.facts, one));
    EXPECT_EQ(p.facts_distance, facts_best);
  }
  // A profile that is itself among the rows is at distance 0: nearer than all.
  profiles.resize(1);
  profiles[0].facts = facts[17];
  const Comparison same = compare(profiles, {shapes[17]}, shapes, facts);
  EXPECT_EQ(same.profiles[0].nearest, 17u);
  EXPECT_EQ(same.profiles[0].distance, 0);
  EXPECT_LT(same.median_percentile, 1);
}

TEST(Against, Percentiles) {
  const std::vector<double> sorted = {1, 2, 2, 3};
  EXPECT_EQ(percentile_of(2, sorted), 50);
  EXPECT_EQ(percentile_of(2.5, sorted), 75);
  EXPECT_EQ(percentile_of(0, sorted), 0);
  EXPECT_EQ(percentile_of(4, sorted), 100);
}

TEST(RowShape, FactsOfKnownRows) {
  // c = w = a: all correlations are 1, whether points repeat or not.
  for (const int n : {20, 128, 640}) {
    const ShapeFacts facts = facts_of(shape_of(ramp(n)), n);
    EXPECT_NEAR(facts.corr_cw, 1, 1e-4) << n;
    EXPECT_NEAR(facts.corr_ca, 1, 1e-3) << n;
    EXPECT_NEAR(facts.lag1_a, 1, 1e-6) << n;
    EXPECT_NEAR(facts.centre_c, 2.0 / 3, 0.02) << n;
    EXPECT_NEAR(facts.mean_a, 0.5, 0.03) << n;
  }
  // 20 points: the top 5 % are one, 20 of 210.
  EXPECT_NEAR(facts_of(shape_of(ramp(20)), 20).top_share_c, 20.0 / 210, 1e-5);
  // Nothing to tell: constants, no variables, two points.
  pipeline::Profile flat = ramp(200);
  std::fill(flat.c_ms.begin(), flat.c_ms.end(), 3);
  std::fill(flat.w_bytes.begin(), flat.w_bytes.end(), 0);
  const ShapeFacts none = facts_of(shape_of(flat), 200);
  EXPECT_EQ(none.corr_cw, 0);
  EXPECT_EQ(none.top_share_w, 0);
  EXPECT_EQ(facts_of(shape_of(ramp(2)), 2).lag1_a, 0);
  // Independent numbers have none of it.
  Rng rng(1, 2, 3);
  pipeline::Profile random = ramp(128);
  for (std::size_t i = 0; i < 128; ++i) {
    random.c_ms[i] = rng.uniform();
    random.a_bytes[i] = i < 127 ? 1e6 * rng.uniform() : 0;
    random.w_bytes[i] = 1e6 * rng.uniform();
  }
  const ShapeFacts facts = facts_of(shape_of(random), 128);
  EXPECT_LT(std::abs(facts.corr_cw), 0.3);
  EXPECT_LT(std::abs(facts.corr_ca), 0.3);
  EXPECT_LT(std::abs(facts.lag1_a), 0.3);
}

}  // namespace
}  // namespace automap::inspect
