#include "models/adam.h"

#include <cmath>

#include "common/base/check.h"

namespace automap::models {

void adam_step(const AdamOptions& options, double learning_rate, double gradient_scale, const float* gradient,
               AdamState& state, std::vector<float>& weights) {
  AM_CHECK(state.first.size() == weights.size() && state.second.size() == weights.size());
  ++state.steps;
  const double correction1 = 1 - std::pow(options.beta1, static_cast<double>(state.steps));
  const double correction2 = 1 - std::pow(options.beta2, static_cast<double>(state.steps));
  const auto step = static_cast<float>(learning_rate / correction1);
  const auto root = static_cast<float>(1 / std::sqrt(correction2));
  const auto epsilon = static_cast<float>(options.epsilon), scale = static_cast<float>(gradient_scale);
  const auto keep1 = static_cast<float>(options.beta1), take1 = static_cast<float>(1 - options.beta1);
  const auto keep2 = static_cast<float>(options.beta2), take2 = static_cast<float>(1 - options.beta2);
  float* const first = state.first.data();
  float* const second = state.second.data();
  float* const weight = weights.data();
  const std::size_t count = weights.size();
  for (std::size_t i = 0; i < count; ++i) {
    const float g = gradient[i] * scale;
    first[i] = keep1 * first[i] + take1 * g;
    second[i] = keep2 * second[i] + take2 * g * g;
    weight[i] -= step * first[i] / (std::sqrt(second[i]) * root + epsilon);
  }
}

double l2_norm(const float* values, std::size_t count) {
  // Four sums: the compiler may not reorder one, and one is four times as slow.
  double sums[4] = {0, 0, 0, 0};
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(values[i]);
    sums[i % 4] += value * value;
  }
  return std::sqrt(sums[0] + sums[1] + sums[2] + sums[3]);
}

double cosine_rate(double start, double end, std::uint64_t updates, std::uint64_t at) {
  if (at >= updates) return end;
  const double share = static_cast<double>(at) / static_cast<double>(updates);
  return end + (start - end) * 0.5 * (1 + std::cos(std::acos(-1.0) * share));
}

}  // namespace automap::models
