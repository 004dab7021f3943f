#include "models/forward.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "common/base/rng.h"

namespace automap::models {
namespace {

std::vector<float> random_floats(std::size_t count, double low, double high, std::uint64_t item) {
  Rng rng(7, 1, item);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng.uniform(low, high));
  return values;
}

struct Shape {
  int inputs;
  std::vector<int> hidden, heads;
  std::size_t weights() const {
    std::size_t total = 0;
    int in = inputs;
    for (const int out : hidden) {
      total += static_cast<std::size_t>((in + 1) * out);
      in = out;
    }
    for (const int out : heads) total += static_cast<std::size_t>((in + 1) * out);
    return total;
  }
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {{58, {64, 64}, {1}},  {58, {64, 64}, {101}},
                                         {1, {}, {1}},         {5, {}, {40}},
                                         {17, {3}, {2, 9}},    {58, {33}, {7}},
                                         {58, {31}, {8}},      {900, {70}, {128}},
                                         {40, {300, 20}, {1}}, {9, {16, 16, 16}, {1, 128}}};
  return all;
}

// The obvious way, in double.
std::vector<double> naive_forward(const Shape& shape, const float* weights, const float* x) {
  std::vector<double> in(x, x + shape.inputs), outputs;
  const auto layer = [&](int out) {
    std::vector<double> y(static_cast<std::size_t>(out));
    for (std::size_t o = 0; o < y.size(); ++o) {
      y[o] = weights[in.size() * y.size() + o];
      for (std::size_t i = 0; i < in.size(); ++i) y[o] += in[i] * weights[i * y.size() + o];
    }
    weights += (in.size() + 1) * y.size();
    return y;
  };
  for (const int out : shape.hidden) {
    std::vector<double> y = layer(out);
    for (double& v : y) v = v > 0 ? v : 0;
    in = y;
  }
  for (const int out : shape.heads) {
    for (const double v : layer(out)) outputs.push_back(v);
  }
  return outputs;
}

TEST(Forward, EqualsTheNaiveLoopsForAnyShapeAndCount) {
  std::uint64_t item = 0;
  for (const Shape& shape : shapes()) {
    const std::vector<float> weights = random_floats(shape.weights(), -0.3, 0.3, item++);
    const ForwardNetwork network(shape.inputs, shape.hidden, shape.heads, weights.data());
    for (const int count : {1, 2, 3, 4, 5, 7, 64, 67}) {
      const std::size_t in = static_cast<std::size_t>(shape.inputs);
      const std::vector<float> x = random_floats(static_cast<std::size_t>(count) * in, -4, 4, item++);
      std::vector<float> y(static_cast<std::size_t>(count * network.outputs()));
      network.run(x.data(), count, y.data());
      for (std::size_t row = 0; row < static_cast<std::size_t>(count); ++row) {
        const std::vector<double> expected = naive_forward(shape, weights.data(), x.data() + row * in);
        ASSERT_EQ(static_cast<int>(expected.size()), network.outputs());
        for (std::size_t o = 0; o < expected.size(); ++o) {
          ASSERT_NEAR(y[row * expected.size() + o], expected[o], 1e-5 * std::max(1.0, std::abs(expected[o])) * 3)
              << "inputs " << shape.inputs << " count " << count << " row " << row << " output " << o;
        }
      }
    }
  }
}

TEST(Forward, SameBitsFromEveryVariantAndBatch) {
  std::uint64_t item = 1000;
  for (const Shape& shape : shapes()) {
    const std::vector<float> weights = random_floats(shape.weights(), -0.3, 0.3, item++);
    const ForwardNetwork network(shape.inputs, shape.hidden, shape.heads, weights.data());
    constexpr int kCount = 131;
    const std::size_t in = static_cast<std::size_t>(shape.inputs), out = static_cast<std::size_t>(network.outputs());
    const std::vector<float> x = random_floats(kCount * in, -4, 4, item++);
    std::vector<float> expected(kCount * out);
    network.run(x.data(), kCount, expected.data(), Isa::kGeneric);
    for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512}) {
      if (!isa_supported(isa)) continue;
      std::vector<float> y(kCount * out);
      network.run(x.data(), kCount, y.data(), isa);
      EXPECT_EQ(0, std::memcmp(y.data(), expected.data(), y.size() * 4)) << to_string(isa);
      std::vector<float> one_by_one(kCount * out);
      for (std::size_t row = 0; row < kCount; ++row) {
        network.run(x.data() + row * in, 1, one_by_one.data() + row * out, isa);
      }
      EXPECT_EQ(0, std::memcmp(one_by_one.data(), expected.data(), y.size() * 4)) << to_string(isa);
    }
  }
}

TEST(Forward, SoftplusEqualsTheLibrary) {
  std::vector<float> values;
  for (double v = -120; v < 120; v += 0.0137) values.push_back(static_cast<float>(v));
  values.insert(values.end(), {0.0f, -0.0f, 1e-30f, -1e-30f, 1e30f, -1e30f});
  const std::vector<float> base = random_floats(values.size(), -1, 2, 5);
  const int count = static_cast<int>(values.size());
  std::vector<float> expected = values;
  residual_softplus(base.data(), count, expected.data(), Isa::kGeneric);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double v = values[i], softplus = 0.1 * (std::max(v, 0.0) + std::log1p(std::exp(-std::abs(v))));
    ASSERT_NEAR(expected[i], base[i] + softplus, 3e-7 * std::max(1.0, base[i] + softplus)) << v;
    ASSERT_GE(expected[i], base[i]);
  }
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (!isa_supported(isa)) continue;
    std::vector<float> y = values;
    residual_softplus(base.data(), count, y.data(), isa);
    EXPECT_EQ(0, std::memcmp(y.data(), expected.data(), y.size() * 4)) << to_string(isa);
  }
}

TEST(Forward, MeanOfADistribution) {
  for (const int atoms : {2, 15, 16, 17, 51, 101}) {
    constexpr int kCount = 9;
    const std::vector<float> logits =
        random_floats(static_cast<std::size_t>(kCount * atoms), -9, 9, static_cast<std::uint64_t>(atoms));
    std::vector<float> expected(kCount);
    categorical_mean(logits.data(), kCount, atoms, -0.5f, 1.5f, expected.data(), Isa::kGeneric);
    for (int row = 0; row < kCount; ++row) {
      double total = 0, weighted = 0;
      for (int i = 0; i < atoms; ++i) {
        const double weight = std::exp(static_cast<double>(logits[static_cast<std::size_t>(row * atoms + i)]));
        total += weight;
        weighted += weight * (-0.5 + 2.0 * i / (atoms - 1));
      }
      EXPECT_NEAR(expected[static_cast<std::size_t>(row)], weighted / total, 1e-6);
    }
    for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
      if (!isa_supported(isa)) continue;
      std::vector<float> means(kCount);
      categorical_mean(logits.data(), kCount, atoms, -0.5f, 1.5f, means.data(), isa);
      EXPECT_EQ(0, std::memcmp(means.data(), expected.data(), means.size() * 4)) << to_string(isa);
    }
  }
}

}  // namespace
}  // namespace automap::models
