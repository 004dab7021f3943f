// Scores the children of a decision with a policy; search and training share this step.
#pragma once

#include <vector>

#include "common/pipeline/baselines.h"
#include "models/features.h"
#include "models/plan_space.h"
#include "models/policy.h"

namespace automap::models {

// The second looks of a greedy search, and of training, which is greedy.
constexpr int kSecondLooks = 8;

struct ChildScores {
  std::vector<float> features;   // [children][kFeatures]
  std::vector<float> log_bound;  // [children], log(bound / LB_root)
  std::vector<float> y;          // [children], predicted; see policy.h
};

// Scores all children. A rollout is a plan: under V no prediction stays above it. The best few children by prediction
// whose rollouts have not been improved yet are scored a second time with improved rollouts, so that a child is not
// chosen for a value that was never tried. `known_ms` (V of the best rollout met so far) falls to the best of these.
void score_children(const PlanSpace& space, const Policy& policy, pipeline::Objective objective, double root_ms,
                    int second_looks, const std::vector<Prefix>& children, std::vector<Rollouts>& rollouts,
                    double& known_ms, ChildScores& scores);

// Writes the inputs of one child into row `i` of the scores, which must exist; y stays.
void child_inputs(const PlanSpace& space, double root_ms, const Prefix& child, const Rollouts& rollouts,
                  double known_ms, std::size_t i, ChildScores& scores);

}  // namespace automap::models
