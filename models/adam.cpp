#include "models/adam.h"

#include <algorithm>
#include <cmath>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

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
  std::size_t i = 0;
#ifdef __SSE2__
  // The loop below, four at a time and to the same bits: the compiler keeps it scalar because sqrt may set errno, and
  // this is a fifth of an update of a large network.
  const __m128 k1 = _mm_set1_ps(keep1), t1 = _mm_set1_ps(take1), k2 = _mm_set1_ps(keep2), t2 = _mm_set1_ps(take2);
  const __m128 s = _mm_set1_ps(step), r = _mm_set1_ps(root), e = _mm_set1_ps(epsilon), by = _mm_set1_ps(scale);
  for (; i + 4 <= count; i += 4) {
    const __m128 g = _mm_mul_ps(_mm_loadu_ps(gradient + i), by);
    const __m128 m = _mm_add_ps(_mm_mul_ps(k1, _mm_loadu_ps(first + i)), _mm_mul_ps(t1, g));
    const __m128 v = _mm_add_ps(_mm_mul_ps(k2, _mm_loadu_ps(second + i)), _mm_mul_ps(_mm_mul_ps(t2, g), g));
    _mm_storeu_ps(first + i, m);
    _mm_storeu_ps(second + i, v);
    const __m128 change = _mm_div_ps(_mm_mul_ps(s, m), _mm_add_ps(_mm_mul_ps(_mm_sqrt_ps(v), r), e));
    _mm_storeu_ps(weight + i, _mm_sub_ps(_mm_loadu_ps(weight + i), change));
  }
#endif
  for (; i < count; ++i) {
    const float g = gradient[i] * scale;
    first[i] = keep1 * first[i] + take1 * g;
    second[i] = keep2 * second[i] + take2 * g * g;
    weight[i] -= step * first[i] / (std::sqrt(second[i]) * root + epsilon);
  }
}

double l2_norm(const float* values, std::size_t count) {
  // Blocks small enough for single precision, in lanes that the compiler turns into vectors.
  constexpr std::size_t kLanes = 16, kBlock = 64 * kLanes;
  double sum = 0;
  for (std::size_t start = 0; start < count; start += kBlock) {
    const std::size_t end = std::min(count, start + kBlock);
    float lanes[kLanes] = {};
    std::size_t i = start;
    for (; i + kLanes <= end; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane] * values[i + lane];
    }
    for (; i < end; ++i) lanes[0] += values[i] * values[i];
    for (const float lane : lanes) sum += static_cast<double>(lane);
  }
  return std::sqrt(sum);
}

double cosine_rate(double start, double end, double done) {
  if (done >= 1) return end;
  return end + (start - end) * 0.5 * (1 + std::cos(std::acos(-1.0) * done));
}

}  // namespace automap::models
