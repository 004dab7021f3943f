#include "models/distributional.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "common/base/rng.h"

namespace automap::models {
namespace {

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

double mean_of_masses(const Support& support, const std::vector<double>& masses) {
  double mean = 0;
  for (int i = 0; i < support.atoms; ++i) mean += masses[static_cast<std::size_t>(i)] * support.at(i);
  return mean;
}

TEST(ProjectC51, WorkedCases) {
  const Support support{3, 0, 2};
  std::vector<double> out(3);
  const double position = 0.25, mass = 1;
  project_c51(support, &position, &mass, 1, out.data());
  EXPECT_EQ(out, (std::vector<double>{0.75, 0.25, 0}));
  // 0.5 at 1.5 (shared by atoms 1 and 2), 0.25 at -3 (the lower end), 0.25 at 2 (the upper end).
  const double positions[] = {1.5, -3, 2}, masses[] = {0.5, 0.25, 0.25};
  project_c51(support, positions, masses, 3, out.data());
  EXPECT_EQ(out, (std::vector<double>{0.25, 0.25, 0.5}));
}

// The textbook form: mass_j * max(0, 1 - |position_j - atom_i| / width).
TEST(ProjectC51, EqualsTheTextbookForm) {
  const Support support{51, -0.3, 1.1};
  Rng rng(1, 1, 1);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> positions, masses, out(51);
    for (int i = 0; i < 20; ++i) {
      positions.push_back(rng.uniform(-0.6, 1.4));
      masses.push_back(rng.uniform());
    }
    project_c51(support, positions.data(), masses.data(), 20, out.data());
    EXPECT_NEAR(sum_of(out), sum_of(masses), 1e-12);
    for (int i = 0; i < 51; ++i) {
      double expected = 0;
      for (std::size_t j = 0; j < 20; ++j) {
        const double clamped = std::min(std::max(positions[j], support.low), support.high);
        expected += masses[j] * std::max(0.0, 1 - std::abs(clamped - support.at(i)) / support.width());
      }
      EXPECT_NEAR(out[static_cast<std::size_t>(i)], expected, 1e-9);
    }
  }
}

TEST(HlGauss, WorkedCase) {
  // Atoms 0, 1, 2, sigma 0.75, mean 1: bins [-.5,.5], [.5,1.5], [1.5,2.5] hold Phi(-2/3)-Phi(-2) = .25249-.02275 =
  // .22974, Phi(2/3)-Phi(-2/3) = .49501, .22974; their sum .95450.
  const Support support{3, 0, 2};
  std::vector<double> out(3);
  hl_gauss(support, 1, out.data());
  EXPECT_NEAR(out[0], 0.22974 / 0.95450, 1e-4);
  EXPECT_NEAR(out[1], 0.49501 / 0.95450, 1e-4);
  EXPECT_NEAR(out[2], 0.22974 / 0.95450, 1e-4);
}

TEST(HlGauss, SumsToOneAndKeepsTheMeanInside) {
  const Support support{101, 0, 1};
  std::vector<double> out(101);
  for (double mean = -0.2; mean < 1.2; mean += 0.0137) {
    hl_gauss(support, mean, out.data());
    EXPECT_NEAR(sum_of(out), 1, 1e-12);
    if (mean > 0.05 && mean < 0.95) {
      EXPECT_NEAR(mean_of_masses(support, out), mean, 1e-4);
    }
    for (const double mass : out) EXPECT_GE(mass, 0);
  }
}

TEST(SoftmaxMean, WorkedCase) {
  const Support support{2, 0, 1};
  const float logits[] = {0, std::log(3.0f)};
  std::vector<double> out(2);
  EXPECT_NEAR(softmax_mean(support, logits, out.data()), 0.75, 1e-6);
  EXPECT_NEAR(out[0], 0.25, 1e-6);
  const float far[] = {1000, -1000};
  EXPECT_EQ(softmax_mean(support, far, out.data()), 0);
}

}  // namespace
}  // namespace automap::models
