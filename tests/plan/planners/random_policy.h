// An untrained policy: plans badly ranked, but plans.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/rng.h"
#include "models/features.h"
#include "models/policy.h"

namespace automap::planners {

inline std::shared_ptr<const models::Policy> random_policy(std::uint64_t seed = 1, int objective = 0) {
  models::Architecture architecture;
  architecture.features = models::kFeatures;
  architecture.feature_version = models::kFeatureVersion;
  architecture.hidden = {16};
  architecture.objective = objective;
  std::vector<float> weights(models::Policy::num_weights(architecture));
  Rng random(seed, 77, 0);
  for (float& weight : weights) weight = static_cast<float>(0.2 * random.uniform() - 0.1);
  return std::make_shared<const models::Policy>(architecture, std::move(weights));
}

}  // namespace automap::planners
