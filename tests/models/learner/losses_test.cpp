#include "models/learner/losses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "common/base/rng.h"
#include "tests/models/learner/infinite.h"

namespace automap::models {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

LossOptions plain() {
  LossOptions options;
  options.residual = false;
  return options;
}

LossOptions distributional(Distribution distribution, bool residual) {
  LossOptions options;
  options.residual = residual;
  options.distribution = distribution;
  options.support = {3, 0, 2};
  return options;
}

// Gradients against central differences of the loss.
void expect_gradient(const std::function<double(const std::vector<float>&, std::vector<float>*)>& loss,
                     std::vector<float> net, double tolerance) {
  std::vector<float> gradient(net.size(), 0.0f), ignored(net.size(), 0.0f);
  loss(net, &gradient);
  for (std::size_t i = 0; i < net.size(); ++i) {
    const float old = net[i], step = 1e-3f;
    net[i] = old + step;
    const double above = loss(net, &ignored);
    net[i] = old - step;
    const double below = loss(net, &ignored);
    net[i] = old;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * static_cast<double>(step)), tolerance) << i;
  }
}

TEST(Huber, ByHand) {
  EXPECT_DOUBLE_EQ(huber(0.5, 1), 0.125);
  EXPECT_DOUBLE_EQ(huber(-3, 1), 2.5);
  EXPECT_DOUBLE_EQ(huber(3, 2), 4);  // 2 (3 - 1)
  EXPECT_DOUBLE_EQ(huber_slope(-3, 1), -1);
  EXPECT_DOUBLE_EQ(huber_slope(0.5, 1), 0.5);
}

TEST(Head, ByHand) {
  LossScratch scratch;
  const float zero = 0;
  EXPECT_NEAR(head_y(plain(), &zero, 0.3, scratch), 0, 1e-12);
  // 0.3 + 0.1 log 2
  EXPECT_NEAR(head_y(LossOptions{}, &zero, 0.3, scratch), 0.3693147, 1e-7);
  const float logits[] = {0, 0, std::log(2.0f)};  // masses 1/4, 1/4, 1/2: mean 1.25
  EXPECT_NEAR(head_y(distributional(Distribution::kC51, false), logits, 0, scratch), 1.25, 1e-6);
  EXPECT_NEAR(head_y(distributional(Distribution::kHlGauss, true), logits, 0.5, scratch), 1.75, 1e-6);
  const float far[] = {-200};
  EXPECT_NEAR(head_y(LossOptions{}, far, 0.3, scratch), 0.3, 1e-12);
  const float large[] = {500};
  EXPECT_NEAR(head_y(LossOptions{}, large, 0.3, scratch), 50.3, 1e-9);
}

TEST(RowLoss, PlainAndResidualByHand) {
  LossScratch scratch;
  // y 0.6, target 0.5, scale 4: error 0.4, loss 0.08, slope 4 * 0.4 = 1.6; with weight 0.5: 0.8.
  const float net = 0.6f;
  float gradient = 1;
  const RowLoss loss = row_loss(plain(), &net, 0, 0.5, 0.5, &gradient, scratch);
  EXPECT_NEAR(loss.loss, 0.08, 1e-6);
  EXPECT_NEAR(loss.error, 0.1, 1e-6);
  EXPECT_NEAR(gradient, 1.8, 1e-5);  // added to what was there
  // net 0, bound 0.2: y = 0.2 + 0.1 log 2 = 0.2693147; target 0.2: error 4 * 0.0693147 = 0.2772589, loss 0.0384362;
  // slope 4 * 0.2772589 * 0.1 * sigmoid(0) = 0.0554518.
  const float zero = 0;
  gradient = 0;
  EXPECT_NEAR(row_loss(LossOptions{}, &zero, 0.2, 0.2, 1, &gradient, scratch).loss, 0.0384362, 1e-6);
  EXPECT_NEAR(gradient, 0.0554518, 1e-6);
}

TEST(RowLoss, C51ByHand) {
  LossScratch scratch;
  // Atoms 0, 1, 2, target 0.25: 0.75, 0.25, 0; equal masses: cross-entropy log 3, gradient 1/3 - target. Divergence log
  // 3 + .75 log .75 + .25 log .25 = 0.536277.
  const float logits[] = {0, 0, 0};
  float gradient[] = {0, 0, 0};
  const RowLoss loss = row_loss(distributional(Distribution::kC51, false), logits, 0, 0.25, 2, gradient, scratch);
  EXPECT_NEAR(loss.loss, std::log(3.0), 1e-6);
  EXPECT_NEAR(loss.error, 0.536277, 1e-5);
  EXPECT_NEAR(gradient[0], 2 * (1.0 / 3 - 0.75), 1e-6);
  EXPECT_NEAR(gradient[2], 2 * (1.0 / 3), 1e-6);
  // The residual form: the same target above the bound.
  float residual[] = {0, 0, 0};
  row_loss(distributional(Distribution::kC51, true), logits, 0.5, 0.75, 2, residual, scratch);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(residual[i], gradient[i], 1e-6);
}

TEST(RowLoss, HlGaussByHand) {
  LossScratch scratch;
  // Target 1: masses 0.240691, 0.518617, 0.240691 (distributional_test.cpp); equal predictions: gradient 1/3 - those.
  const float logits[] = {0, 0, 0};
  float gradient[] = {0, 0, 0};
  row_loss(distributional(Distribution::kHlGauss, false), logits, 0, 1, 1, gradient, scratch);
  EXPECT_NEAR(gradient[0], 1.0 / 3 - 0.240691, 1e-4);
  EXPECT_NEAR(gradient[1], 1.0 / 3 - 0.518617, 1e-4);
}

TEST(BootstrapLoss, ByHand) {
  LossScratch scratch;
  // Next masses 1/4, 1/4, 1/2 on 0, 1, 2; discount 0.5: mass at 0, 0.5, 1: projected 0.25 + 0.125, 0.125 + 0.5, 0.
  const LossOptions options = distributional(Distribution::kC51, false);
  const float next[] = {0, 0, std::log(2.0f)}, logits[] = {0, 0, 0};
  float gradient[] = {0, 0, 0};
  bootstrap_loss(options, logits, 0, next, 0, 0.5, 1, gradient, scratch);
  EXPECT_NEAR(gradient[0], 1.0 / 3 - 0.375, 1e-6);
  EXPECT_NEAR(gradient[1], 1.0 / 3 - 0.625, 1e-6);
  EXPECT_NEAR(gradient[2], 1.0 / 3, 1e-6);
  // Residual: the next bound is 0.5 above this one's: 0.5, 1.5, 2.5 -> 0.125, 0.125 + 0.125, 0.125 + 0.5.
  float residual[] = {0, 0, 0};
  bootstrap_loss(distributional(Distribution::kC51, true), logits, 0.25, next, 0.75, 1, 1, residual, scratch);
  EXPECT_NEAR(residual[0], 1.0 / 3 - 0.125, 1e-6);
  EXPECT_NEAR(residual[1], 1.0 / 3 - 0.25, 1e-6);
  EXPECT_NEAR(residual[2], 1.0 / 3 - 0.625, 1e-6);
}

TEST(LabelLoss, ByHand) {
  LossScratch scratch;
  // Labels .01, .02, tau .01: shares e/(1+e) = .7310586, .2689414. Predictions .02, .02: cross-entropy log 2.
  // Huber: errors 4 * .01 and 0, mean of .0008 and 0 = .0004.
  const float net[] = {0.02f, 0.02f}, labels[] = {0.01f, 0.02f};
  float gradient[] = {0, 0};
  EXPECT_NEAR(label_loss(plain(), 2, net, nullptr, labels, nullptr, kNoLimit, 0.01, 1, gradient, scratch),
              std::log(2.0) + 0.0004, 1e-5);
  // (share - 1/2) / tau, and the Huber part 4 * .04 / 2 = .08 of the first.
  EXPECT_NEAR(gradient[0], 23.10586 + 0.08, 1e-3);
  EXPECT_NEAR(gradient[1], -23.10586, 1e-3);
}

TEST(LabelLoss, InfiniteLabelsOnlyHaveToBeLarge) {
  LossScratch scratch;
  // One finite label: it has all the share. Predictions .1, .1: cross-entropy log 2. The infinite one must reach the
  // largest finite label .3: error 4 * -.2 = -.8, loss .32 / 2; the finite one misses its own by the same: .32 / 2.
  const float net[] = {0.1f, 0.1f}, labels[] = {0.3f, kInfinite};
  float gradient[] = {0, 0};
  EXPECT_NEAR(label_loss(plain(), 2, net, nullptr, labels, nullptr, kNoLimit, 0.1, 1, gradient, scratch),
              std::log(2.0) + 0.32, 1e-5);
  // (1 - .5) / .1 - 4 * .8 / 2 and (0 - .5) / .1 - 4 * .8 / 2.
  EXPECT_NEAR(gradient[0], 5 - 1.6, 1e-4);
  EXPECT_NEAR(gradient[1], -5 - 1.6, 1e-4);
  // A known limit .15: error 4 * -.05 = -.2, loss .02 / 2.
  gradient[0] = gradient[1] = 0;
  EXPECT_NEAR(label_loss(plain(), 2, net, nullptr, labels, nullptr, 0.15, 0.1, 1, gradient, scratch),
              std::log(2.0) + 0.16 + 0.01, 1e-5);
  EXPECT_NEAR(gradient[1], -5 - 4 * 0.2 / 2, 1e-4);
  // Above the limit: nothing but the softmax.
  gradient[0] = gradient[1] = 0;
  label_loss(plain(), 2, net, nullptr, labels, nullptr, 0.05, 0.1, 1, gradient, scratch);
  EXPECT_NEAR(gradient[1], -5, 1e-4);
  // No finite label: only the limit is learned; without one, nothing.
  const float none[] = {kInfinite, kInfinite};
  gradient[0] = gradient[1] = 0;
  EXPECT_EQ(label_loss(plain(), 2, net, nullptr, none, nullptr, kNoLimit, 0.1, 1, gradient, scratch), 0);
  EXPECT_EQ(gradient[0], 0);
  EXPECT_NEAR(label_loss(plain(), 2, net, nullptr, none, nullptr, 0.2, 0.1, 1, gradient, scratch), 0.08, 1e-5);
}

TEST(LabelLoss, IllegalActionsTakeNoPart) {
  LossScratch scratch;
  const float net[] = {0.02f, -9, 0.02f}, labels[] = {0.01f, kInfinite, 0.02f};
  const std::uint8_t legal[] = {1, 0, 1};
  float gradient[] = {0, 0, 0};
  EXPECT_NEAR(label_loss(plain(), 3, net, nullptr, labels, legal, kNoLimit, 0.01, 1, gradient, scratch),
              std::log(2.0) + 0.0004, 1e-5);
  EXPECT_EQ(gradient[1], 0);
}

TEST(Gradients, EqualFiniteDifferences) {
  LossScratch scratch;
  for (const Distribution distribution : {Distribution::kNone, Distribution::kC51, Distribution::kHlGauss}) {
    for (const int form : {0, 1, 2}) {  // plain, residual, bounded
      if (form == 2 && distribution != Distribution::kNone) continue;
      LossOptions options;
      options.residual = form > 0;
      options.bounded = form == 2;
      options.distribution = distribution;
      options.support = {5, 0, 1};
      const int outputs = options.outputs(), rows = 4;
      Rng rng(3, 1, 1);
      std::vector<float> net;
      for (int i = 0; i < rows * outputs; ++i) net.push_back(static_cast<float>(rng.uniform(-1, 1)));
      const float bounds[] = {0.1f, 0.2f, 0.0f, 0.3f}, labels[] = {0.4f, kInfinite, 0.35f, 0.6f};
      const float ranges[] = {0.5f, 0.3f, 1.0f, 0.2f};
      // tau 0.5: with 0.01 finite differences in single precision see noise alone.
      expect_gradient(
          [&](const std::vector<float>& at, std::vector<float>* gradient) {
            return label_loss(options, rows, at.data(), bounds, labels, nullptr, 5.0, 0.5, 1, gradient->data(), scratch,
                              options.bounded ? ranges : nullptr, 1);
          },
          net, 2e-3);
      net.resize(static_cast<std::size_t>(outputs));
      expect_gradient(
          [&](const std::vector<float>& at, std::vector<float>* gradient) {
            return row_loss(options, at.data(), {0.1, 0.7}, 0.25, 1, gradient->data(), scratch).loss;
          },
          net, 2e-3);
    }
  }
}

TEST(Dueling, MeanOverLegalActionsByHand) {
  // Value 1, advantages 3, 5, 100 (illegal): mean 4: 0, 2, 97.
  const float net[] = {1, 3, 5, 100};
  const std::uint8_t legal[] = {1, 1, 0};
  float out[3];
  dueling_forward(net, 3, 1, legal, out);
  EXPECT_FLOAT_EQ(out[0], 0);
  EXPECT_FLOAT_EQ(out[1], 2);
  EXPECT_FLOAT_EQ(out[2], 97);
  // Gradient 1 of out_0: value 1, advantages 1 - 1/2, -1/2, 0.
  const float slope[] = {1, 0, 0};
  float gradient[] = {0, 0, 0, 0};
  dueling_backward(slope, 3, 1, legal, gradient);
  EXPECT_FLOAT_EQ(gradient[0], 1);
  EXPECT_FLOAT_EQ(gradient[1], 0.5);
  EXPECT_FLOAT_EQ(gradient[2], -0.5);
  EXPECT_FLOAT_EQ(gradient[3], 0);
  // All legal: mean 36.
  dueling_forward(net, 3, 1, nullptr, out);
  EXPECT_FLOAT_EQ(out[0], -32);
}

TEST(Dueling, AtomByAtomOverAllActions) {
  // Value (1, 10), advantages (1, 2), (3, 6): means (2, 4): (0, 8), (2, 12); the mask does not matter.
  const float net[] = {1, 10, 1, 2, 3, 6};
  const std::uint8_t legal[] = {1, 0};
  float out[4];
  dueling_forward(net, 2, 2, legal, out);
  const float expected[] = {0, 8, 2, 12};
  for (int i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(out[i], expected[i]);
  const float slope[] = {1, 0, 0, 2};
  float gradient[] = {0, 0, 0, 0, 0, 0};
  dueling_backward(slope, 2, 2, legal, gradient);
  const float expected_gradient[] = {1, 2, 0.5, -1, -0.5, 1};
  for (int i = 0; i < 6; ++i) EXPECT_FLOAT_EQ(gradient[i], expected_gradient[i]);
}

}  // namespace
}  // namespace automap::models
