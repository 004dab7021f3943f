// A policy of pipelines of random weights: it ranks badly, but reads what a trained one reads.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/rng.h"
#include "models/features.h"
#include "models/policy.h"

namespace automap::models {

inline Policy untrained_policy(std::uint64_t seed) {
  Architecture a;
  a.features = kFeatures;
  a.feature_version = kFeatureVersion;
  a.hidden = {16};
  a.head = Head::kResidual;
  std::vector<float> weights(Policy::num_weights(a));
  Rng rng(seed, 4, 0);
  for (float& weight : weights) weight = static_cast<float>(rng.uniform(-0.3, 0.3));
  return Policy(a, std::move(weights));
}

}  // namespace automap::models
