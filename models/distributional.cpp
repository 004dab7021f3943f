#include "models/distributional.h"

#include <algorithm>
#include <cmath>

namespace automap::models {

void project_c51(const Support& support, const double* positions, const double* masses, int count, double* out) {
  std::fill(out, out + support.atoms, 0.0);
  for (int i = 0; i < count; ++i) {
    const double clamped = std::clamp(positions[i], support.low, support.high);
    const double at = std::min((clamped - support.low) / support.width(), static_cast<double>(support.atoms - 1));
    const int below = std::min(static_cast<int>(at), support.atoms - 2);
    const double above_share = at - below;
    out[below] += masses[i] * (1 - above_share);
    out[below + 1] += masses[i] * above_share;
  }
}

void hl_gauss(const Support& support, double mean, double* out) {
  const double width = support.width();
  const double clamped = std::clamp(mean, support.low, support.high);
  const double scale = 1 / (kHlGaussSigma * width * std::sqrt(2.0));
  double left = std::erf((support.low - width / 2 - clamped) * scale);
  double sum = 0;
  for (int i = 0; i < support.atoms; ++i) {
    const double right = std::erf((support.at(i) + width / 2 - clamped) * scale);
    out[i] = right - left;
    sum += out[i];
    left = right;
  }
  for (int i = 0; i < support.atoms; ++i) out[i] /= sum;
}

double softmax_mean(const Support& support, const float* logits, double* out) {
  const float largest = *std::max_element(logits, logits + support.atoms);
  double sum = 0;
  for (int i = 0; i < support.atoms; ++i) {
    // Single precision: this is most of a distributional update's time outside the matrix products.
    const float e = std::exp(logits[i] - largest);
    out[i] = static_cast<double>(e);
    sum += out[i];
  }
  double mean = 0;
  for (int i = 0; i < support.atoms; ++i) {
    out[i] /= sum;
    mean += out[i] * support.at(i);
  }
  return mean;
}

}  // namespace automap::models
