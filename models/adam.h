// Adam (Kingma, Ba 2015) over one flat buffer, in one pass; the form of torch::optim::Adam.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace automap::models {

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-5;
};

struct AdamState {
  std::vector<float> first, second;  // moments, the size of the weights
  std::uint64_t steps = 0;
};

// Makes one step: the gradient is multiplied by `gradient_scale` (clipping), moments and weights are updated in place.
// First step: weights -= learning_rate * g / (|g| + epsilon).
void adam_step(const AdamOptions& options, double learning_rate, double gradient_scale, const float* gradient,
               AdamState& state, std::vector<float>& weights);

// Euclidean length, to about 1e-6 of it; infinity or NaN when any value is (or its square overflows).
double l2_norm(const float* values, std::size_t count);

// Falls from `start` to `end` along a half cosine; `done` is the share of it that is over; from 1 on the rate is `end`.
double cosine_rate(double start, double end, double done);

}  // namespace automap::models
