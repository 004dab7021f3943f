// The learner's losses and their hand-written gradients, in plain loops; LibTorch only multiplies matrices. No
// LibTorch. A call takes one decision or one group of rows; it adds gradients, multiplied by `weight`, to those that
// are there.
#pragma once

#include <cstdint>
#include <vector>

#include "models/distributional.h"
#include "models/learner_options.h"

namespace automap::models {

// The meaning of the network's outputs for one after-state (or one action): policy.h's Head, and how it is fitted.
struct LossOptions {
  bool residual = true;
  bool bounded = false;  // with residual and a scalar head: Head::kBounded
  Distribution distribution = Distribution::kNone;
  Support support;
  double target_scale = 4, huber_delta = 1;
  // floats per after-state or action
  int outputs() const { return distribution == Distribution::kNone ? 1 : support.atoms; }
};

// torch's: e^2/2 up to delta, linear beyond. delta 1: error 0.5 -> 0.125, error -3 -> 2.5.
double huber(double error, double delta);
double huber_slope(double error, double delta);

// Scratch space, so that an update does not allocate.
struct LossScratch {
  std::vector<double> masses, target, positions, score, share;
};

// The base of one row's y: log_bound, 0 without the residual form; and the range of the bounded form.
struct RowBase {
  RowBase(double bound, double range_above = 0) : log_bound(bound), range(range_above) {}
  double log_bound, range;
};

// y of one row (after-state family) or one action.
double head_y(const LossOptions& options, const float* net, RowBase base, LossScratch& scratch);

struct RowLoss {
  double loss = 0;
  double error = 0;  // for priorities: |y - target|, or the Kullback-Leibler divergence of distributional heads
};

// Towards a target y: Huber of target_scale (y - target); cross-entropy with the projected target for distributional
// heads (C51: all mass at the target; HL-Gauss: the normal around it).
RowLoss row_loss(const LossOptions& options, const float* net, RowBase base, double target_y, double weight,
                 float* gradient, LossScratch& scratch);

// C51 with bootstrapping: the target is the distribution of discount * (y of the next after-state): `next_net` are its
// network outputs and `next_log_bound` its bound (0 without the residual form).
RowLoss bootstrap_loss(const LossOptions& options, const float* net, double log_bound, const float* next_net,
                       double next_log_bound, double discount, double weight, float* gradient, LossScratch& scratch);

// The losses on exact labels of one decision: `rows` rows of outputs() floats, their log_bound (null: 0), their range
// (bounded form; `range_stride` floats apart) and exact y (infinity: not known but at least `limit_y`; limit infinity:
// the largest finite label); rows with legal[i] = 0 (null: all legal) take no part.
//   cross-entropy between softmax(-exact / tau) and softmax(-y / tau) over the legal rows
//   + mean over the legal rows of: row_loss() of finite labels, Huber of target_scale max(0, limit - y) of the others.
// Labels 0.01 and 0.02 with tau 0.01 and equal predictions 0.02: shares 0.731, 0.269, cross-entropy log 2.
double label_loss(const LossOptions& options, int rows, const float* net, const float* log_bound, const float* exact_y,
                  const std::uint8_t* legal, double limit_y, double tau, double weight, float* gradient,
                  LossScratch& scratch, const float* range = nullptr, int range_stride = 0);

// Dueling (Wang et al. 2016), scalar heads: q_a = value + advantage_a - mean of the advantages of the legal actions.
// `net` = value, then the advantages. Distributional heads: atom by atom, and the mean over all actions, because a
// policy is run without the mask and a shift of all actions is not the same under a softmax. The mean of scalar heads
// moves all actions alike, so that a policy's choice is the same with either mean.
void dueling_forward(const float* net, int actions, int outputs, const std::uint8_t* legal, float* out);
// Adds the gradient of `net` given that of `out`.
void dueling_backward(const float* out_gradient, int actions, int outputs, const std::uint8_t* legal,
                      float* net_gradient);

}  // namespace automap::models
