#include "models/learner/losses.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/check.h"

namespace automap::models {
namespace {

constexpr double kResidualScale = 0.1;  // policy.h: y = log_bound + 0.1 softplus(net)

double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

// Adds weight * dy/dnet. Distributional heads: the masses of head_y() must still stand in scratch.masses.
void add_y_gradient(const LossOptions& options, const float* net, RowBase base, double y_without_bound, double weight,
                    float* gradient, const LossScratch& scratch) {
  if (options.distribution != Distribution::kNone) {
    for (int i = 0; i < options.support.atoms; ++i) {
      const double slope = scratch.masses[static_cast<std::size_t>(i)] * (options.support.at(i) - y_without_bound);
      gradient[i] += static_cast<float>(weight * slope);
    }
  } else if (options.bounded) {
    const double share = sigmoid(static_cast<double>(net[0]));
    gradient[0] += static_cast<float>(weight * base.range * share * (1 - share));
  } else if (options.residual) {
    gradient[0] += static_cast<float>(weight * kResidualScale * sigmoid(static_cast<double>(net[0])));
  } else {
    gradient[0] += static_cast<float>(weight);
  }
}

// Cross-entropy of scratch.target against softmax(net) in scratch.masses.
RowLoss cross_entropy(const LossOptions& options, const float* net, double weight, float* gradient,
                      LossScratch& scratch) {
  const auto atoms = static_cast<std::size_t>(options.support.atoms);
  scratch.masses.resize(atoms);
  softmax_mean(options.support, net, scratch.masses.data());
  RowLoss result;
  for (std::size_t i = 0; i < atoms; ++i) {
    const double target = scratch.target[i], mass = scratch.masses[i];
    if (target > 0) {
      const double log_mass = std::log(std::max(mass, 1e-30));
      result.loss -= target * log_mass;
      result.error += target * (std::log(target) - log_mass);
    }
    gradient[i] += static_cast<float>(weight * (mass - target));
  }
  result.error = std::max(result.error, 0.0);
  return result;
}

}  // namespace

double huber(double error, double delta) {
  const double size = std::abs(error);
  return size <= delta ? 0.5 * error * error : delta * (size - 0.5 * delta);
}

double huber_slope(double error, double delta) {
  return std::clamp(error, -delta, delta);
}

double head_y(const LossOptions& options, const float* net, RowBase base, LossScratch& scratch) {
  if (options.distribution != Distribution::kNone) {
    scratch.masses.resize(static_cast<std::size_t>(options.support.atoms));
    return base.log_bound + softmax_mean(options.support, net, scratch.masses.data());
  }
  if (options.bounded) return base.log_bound + base.range * sigmoid(static_cast<double>(net[0]));
  if (options.residual) return base.log_bound + kResidualScale * softplus(static_cast<double>(net[0]));
  return static_cast<double>(net[0]);
}

RowLoss row_loss(const LossOptions& options, const float* net, RowBase base, double target_y, double weight,
                 float* gradient, LossScratch& scratch) {
  if (options.distribution != Distribution::kNone) {
    scratch.target.resize(static_cast<std::size_t>(options.support.atoms));
    const double at = target_y - base.log_bound;
    if (options.distribution == Distribution::kC51) {
      const double one = 1;
      project_c51(options.support, &at, &one, 1, scratch.target.data());
    } else {
      hl_gauss(options.support, at, scratch.target.data());
    }
    return cross_entropy(options, net, weight, gradient, scratch);
  }
  const double y = head_y(options, net, base, scratch);
  const double error = options.target_scale * (y - target_y);
  const double slope = options.target_scale * huber_slope(error, options.huber_delta);
  add_y_gradient(options, net, base, y - base.log_bound, weight * slope, gradient, scratch);
  return {huber(error, options.huber_delta), std::abs(y - target_y)};
}

RowLoss bootstrap_loss(const LossOptions& options, const float* net, double log_bound, const float* next_net,
                       double next_log_bound, double discount, double weight, float* gradient, LossScratch& scratch) {
  AM_CHECK(options.distribution == Distribution::kC51);
  const auto atoms = static_cast<std::size_t>(options.support.atoms);
  scratch.masses.resize(atoms);
  scratch.target.resize(atoms);
  scratch.positions.resize(atoms);
  softmax_mean(options.support, next_net, scratch.masses.data());
  for (std::size_t i = 0; i < atoms; ++i) {
    scratch.positions[i] = discount * (next_log_bound + options.support.at(static_cast<int>(i))) - log_bound;
  }
  project_c51(options.support, scratch.positions.data(), scratch.masses.data(), options.support.atoms,
              scratch.target.data());
  return cross_entropy(options, net, weight, gradient, scratch);
}

double label_loss(const LossOptions& options, int rows, const float* net, const float* log_bound, const float* exact_y,
                  const std::uint8_t* legal, double limit_y, double tau, double weight, float* gradient,
                  LossScratch& scratch, const float* range, int range_stride) {
  const auto base_of = [&](std::size_t i) {
    return RowBase(log_bound ? static_cast<double>(log_bound[i]) : 0,
                   range ? static_cast<double>(range[i * static_cast<std::size_t>(range_stride)]) : 0);
  };
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const auto count = static_cast<std::size_t>(rows);
  const auto outputs = static_cast<std::size_t>(options.outputs());
  double best_label = kInfinite, largest_label = -kInfinite, best_y = kInfinite;
  std::size_t taking_part = 0;
  scratch.score.resize(count);
  scratch.share.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (legal && !legal[i]) continue;
    ++taking_part;
    const auto label = static_cast<double>(exact_y[i]);
    if (label < kInfinite) {
      best_label = std::min(best_label, label);
      largest_label = std::max(largest_label, label);
    }
    scratch.score[i] = head_y(options, net + i * outputs, base_of(i), scratch);
    best_y = std::min(best_y, scratch.score[i]);
  }
  if (taking_part == 0) return 0;
  if (!(limit_y < kInfinite)) limit_y = largest_label;

  // score becomes y until it is read the last time; share the target's softmax.
  double label_sum = 0, y_sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    scratch.share[i] = 0;
    if (legal && !legal[i]) continue;
    const auto label = static_cast<double>(exact_y[i]);
    if (label < kInfinite) scratch.share[i] = std::exp((best_label - label) / tau);
    label_sum += scratch.share[i];
    y_sum += std::exp((best_y - scratch.score[i]) / tau);
  }
  const double per_row = 1 / static_cast<double>(taking_part);
  double loss = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (legal && !legal[i]) continue;
    const float* row = net + i * outputs;
    float* row_gradient = gradient + i * outputs;
    const RowBase base = base_of(i);
    const auto label = static_cast<double>(exact_y[i]);
    const double y = scratch.score[i];
    double slope = 0;  // of the loss in y, but for row_loss()
    if (label_sum > 0) {
      const double share = scratch.share[i] / label_sum, log_mass = (best_y - y) / tau - std::log(y_sum);
      loss -= share * log_mass;
      slope += (share - std::exp(log_mass)) / tau;
    }
    if (label < kInfinite) {
      loss += per_row * row_loss(options, row, base, label, weight * per_row, row_gradient, scratch).loss;
    } else if (limit_y > -kInfinite && y < limit_y) {
      const double error = options.target_scale * (y - limit_y);
      loss += per_row * huber(error, options.huber_delta);
      slope += per_row * options.target_scale * huber_slope(error, options.huber_delta);
    }
    if (slope != 0) {
      // row_loss() leaves this row's masses behind; without it they are another row's.
      if (options.distribution != Distribution::kNone) head_y(options, row, base, scratch);
      add_y_gradient(options, row, base, y - base.log_bound, weight * slope, row_gradient, scratch);
    }
  }
  return loss;
}

void dueling_forward(const float* net, int actions, int outputs, const std::uint8_t* legal, float* out) {
  const float* advantage = net + outputs;
  for (int k = 0; k < outputs; ++k) {
    double sum = 0;
    int count = 0;
    for (int a = 0; a < actions; ++a) {
      if (outputs == 1 && legal && !legal[a]) continue;
      sum += static_cast<double>(advantage[a * outputs + k]);
      ++count;
    }
    const auto shift = static_cast<float>(static_cast<double>(net[k]) - (count > 0 ? sum / count : 0));
    for (int a = 0; a < actions; ++a) out[a * outputs + k] = advantage[a * outputs + k] + shift;
  }
}

void dueling_backward(const float* out_gradient, int actions, int outputs, const std::uint8_t* legal,
                      float* net_gradient) {
  float* advantage = net_gradient + outputs;
  for (int k = 0; k < outputs; ++k) {
    double sum = 0;
    int count = 0;
    for (int a = 0; a < actions; ++a) {
      sum += static_cast<double>(out_gradient[a * outputs + k]);
      count += outputs != 1 || !legal || legal[a] ? 1 : 0;
    }
    net_gradient[k] += static_cast<float>(sum);
    const auto shared = static_cast<float>(count > 0 ? sum / count : 0);
    for (int a = 0; a < actions; ++a) {
      advantage[a * outputs + k] += out_gradient[a * outputs + k];
      if (outputs != 1 || !legal || legal[a]) advantage[a * outputs + k] -= shared;
    }
  }
}

}  // namespace automap::models
