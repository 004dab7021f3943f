// The features of a prefix, the inputs of the after-state network: numbers of the cost model divided by the prefix's
// bound, so that they mean the same for any model, cluster, S and D. docs/policy.md lists them; kFeatureNames is that
// list in code.
#pragma once

#include "models/plan_space.h"

namespace automap::models {

constexpr int kFeatures = 58;
// Changes with any change of meaning; a policy made for another version is refused.
constexpr int kFeatureVersion = 2;
extern const char* const kFeatureNames[kFeatures];

// Writes kFeatures floats, all finite and within [-4, 4]. `incumbent_ms`: V of the best plan known when the after-state
// is looked at, the rollouts of its siblings among them; infinity: none. The last is log(best rollout / bound), at
// most 2.
void after_state_features(const PlanSpace& space, const Prefix& prefix, const Rollouts& rollouts, double incumbent_ms,
                          float* out);

}  // namespace automap::models
