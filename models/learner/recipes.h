// Recipes that several programs learn by.
#pragma once

#include "models/learner/learner.h"

namespace automap::models {

// Rainbow (Hessel et al., arXiv 1710.02298) on the after-state network, without noisy layers (as the paper): double Q,
// 3-step returns, a target network, prioritized replay. Its Q(s, a) is the value of the after-state, which leaves
// dueling nothing to part; `distribution` stays as it is. No labels. The episodes must be whole (n-step returns).
void use_rainbow(LearnerOptions& options);
// Decisions that it learns from per decision played.
constexpr double kRainbowReplayRatio = 16;

}  // namespace automap::models
