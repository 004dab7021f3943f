// The learner's data: decisions, and the episodes that they make up. No LibTorch.
//
// y is log(L / LB_root) of the plan that came of it (smaller is better); the reinforcement-learning value is Q = -y and
// the only reward comes at the end, so with gamma = 1 every decision of an episode has the same return.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace automap::models {

// A decision: the actions there were, and the one taken.
struct Decision {
  // After-state family: actions x features inputs, one row per child. Flat family: one state vector, `actions` outputs.
  std::vector<float> inputs;
  int actions = 0;
  std::vector<float> log_bound;     // [actions], log(bound / LB_root); flat family: empty
  std::vector<std::uint8_t> legal;  // [actions], flat family only; empty: all
  int chosen = 0;
  // Exact y of every action (infinity: worse than the label limit), empty: not labelled.
  std::vector<float> exact_y;
  // A lower bound on the y of infinite labels. Infinity (not known): the largest finite exact_y serves.
  float label_limit_y = std::numeric_limits<float>::infinity();
};

struct Episode {
  std::vector<Decision> decisions;  // in order; empty when nothing had to be decided
  // y of the finished plan; infeasible endings get `kInfeasibleY`.
  float y = 0;
  bool feasible = true;
};

constexpr float kInfeasibleY = 4.0f;
// More decisions than any pipeline episode has: 15 boundaries, two decisions each in the flat environment. Longer ones
// (partition_env.h) need ReplayOptions::max_decisions.
constexpr int kMaxDecisions = 32;

}  // namespace automap::models
