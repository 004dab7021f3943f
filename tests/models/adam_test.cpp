#include "models/adam.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/base/rng.h"

namespace automap::models {
namespace {

TEST(Adam, FirstStepsByHand) {
  // g = 2, -4: moments after one step .1 g and .001 g^2, corrected g and g^2: the step is rate * sign(g).
  AdamOptions options;
  options.epsilon = 1e-8;
  AdamState state{{0, 0}, {0, 0}, 0};
  std::vector<float> weights = {1, 1};
  const float gradient[] = {2, -4};
  adam_step(options, 0.1, 1, gradient, state, weights);
  EXPECT_NEAR(weights[0], 0.9, 1e-6);
  EXPECT_NEAR(weights[1], 1.1, 1e-6);
  EXPECT_NEAR(state.first[0], 0.2, 1e-7);
  EXPECT_NEAR(state.second[1], 0.016, 1e-7);
  // Second step, gradient 0: m = .18 / (1 - .81) = .947368, v = .003996 / (1 - .998001) = 1.998999; step .1 * .947368 /
  // 1.413859 = .0670059.
  const float zero[] = {0, 0};
  adam_step(options, 0.1, 1, zero, state, weights);
  EXPECT_NEAR(weights[0], 0.9 - 0.0670059, 1e-5);
  EXPECT_EQ(state.steps, 2u);
}

TEST(Adam, EqualsTheTextbookInDoublePrecision) {
  constexpr std::size_t kCount = 1003;
  AdamOptions options;
  AdamState state{std::vector<float>(kCount, 0.0f), std::vector<float>(kCount, 0.0f), 0};
  std::vector<float> weights(kCount, 0.5f), gradient(kCount);
  std::vector<double> m(kCount, 0.0), v(kCount, 0.0), w(kCount, 0.5);
  for (int t = 1; t <= 100; ++t) {
    Rng rng(5, 1, static_cast<std::uint64_t>(t));
    for (float& g : gradient) g = static_cast<float>(rng.uniform(-1, 1));
    adam_step(options, 1e-2, 0.25, gradient.data(), state, weights);
    for (std::size_t i = 0; i < kCount; ++i) {
      const double g = 0.25 * static_cast<double>(gradient[i]);
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      const double corrected_m = m[i] / (1 - std::pow(0.9, t)), corrected_v = v[i] / (1 - std::pow(0.999, t));
      w[i] -= 1e-2 * corrected_m / (std::sqrt(corrected_v) + 1e-5);
    }
  }
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_NEAR(weights[i], w[i], 2e-5) << i;
}

// Vectors and the rest that does not fill one go the same way.
TEST(Adam, TheSameBitsWhereverAWeightStands) {
  std::vector<float> weights(11, 0.25f), gradient(11, 0.3f);
  AdamState state{std::vector<float>(11, 0.0f), std::vector<float>(11, 0.0f), 0};
  for (int t = 0; t < 20; ++t) {
    for (float& g : gradient) g = 0.3f / static_cast<float>(t + 1);
    adam_step({}, 1e-3, 0.9, gradient.data(), state, weights);
  }
  for (std::size_t i = 1; i < 11; ++i) EXPECT_EQ(weights[i], weights[0]);
}

TEST(Adam, Norm) {
  const float values[] = {1, -2, 3, -4, 5};
  EXPECT_NEAR(l2_norm(values, 5), std::sqrt(55.0), 1e-12);
  std::vector<float> many;
  double sum = 0;
  for (int i = 0; i < 5003; ++i) {
    many.push_back(0.001f * static_cast<float>(i % 777));
    sum += static_cast<double>(many.back()) * static_cast<double>(many.back());
  }
  EXPECT_NEAR(l2_norm(many.data(), many.size()), std::sqrt(sum), 1e-6 * std::sqrt(sum));
  EXPECT_EQ(l2_norm(values, 0), 0);
  const float bad[] = {1, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_FALSE(std::isfinite(l2_norm(bad, 2)));
}

TEST(Adam, CosineRate) {
  EXPECT_DOUBLE_EQ(cosine_rate(1e-3, 1e-4, 0), 1e-3);
  EXPECT_NEAR(cosine_rate(1e-3, 1e-4, 0.5), 5.5e-4, 1e-12);      // half way: the mean
  EXPECT_NEAR(cosine_rate(1e-3, 1e-4, 0.25), 8.68198e-4, 1e-8);  // 1e-4 + 9e-4 (1 + sqrt(1/2)) / 2
  EXPECT_DOUBLE_EQ(cosine_rate(1e-3, 1e-4, 1), 1e-4);
  EXPECT_DOUBLE_EQ(cosine_rate(1e-3, 1e-4, 1.5), 1e-4);
}

}  // namespace
}  // namespace automap::models
