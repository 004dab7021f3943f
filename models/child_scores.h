// What a policy says of the children of a decision: the step that search and training share.
#pragma once

#include <vector>

#include "common/pipeline/baselines.h"
#include "models/features.h"
#include "models/plan_space.h"
#include "models/policy.h"

namespace automap::models {

// Second looks of a greedy search, and of training, which is greedy.
constexpr int kSecondLooks = 8;

struct ChildScores {
  std::vector<float> features;   // [children][kFeatures]
  std::vector<float> log_bound;  // [children], log(bound / LB_root)
  std::vector<float> y;          // [children], predicted; see policy.h
};

// Scores all children. A rollout is a plan: under V no prediction stays above it. The best few by prediction whose
// rollouts have not been improved yet are looked at a second time, with theirs improved, so that none is taken for what
// nobody has tried. `known_ms` (V of the best rollout met so far) falls to the best of these.
void score_children(const PlanSpace& space, const Policy& policy, pipeline::Objective objective, double root_ms,
                    int second_looks, const std::vector<Prefix>& children, std::vector<Rollouts>& rollouts,
                    double& known_ms, ChildScores& scores);

// The inputs of one child into row `i` of the scores, which is there; y is left alone.
void child_inputs(const PlanSpace& space, double root_ms, const Prefix& child, const Rollouts& rollouts,
                  double known_ms, std::size_t i, ChildScores& scores);

}  // namespace automap::models
