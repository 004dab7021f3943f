// The operator-partitioning environment (paper 3.2, 4.2), and the data-parallel one (3.3, 4.3): one binary decision at
// a time, in the order of the linkage groups by size.
//
// State: per dimension of every variable 1 (partitioned), 0 (undecided) or -1 (not partitioned), and the position.
// Action 1 partitions the dimension at the position (and everything linked with it), 0 does not. Reward: +0.4 per
// dimension that the decision settles as partitioned, +0.1 per dimension settled as not; -1 for an action that
// conflicts, and the episode ends. Two stages: when all dimensions are settled, the second stage goes once more over
// the dimensions that were decided against (not those excluded by a partitioned one). Pruning (paper 4.2, three cases):
// dimensions that are settled are skipped, dimensions that cannot be partitioned (indivisible, or a group that excludes
// itself) are settled at the start, and action 1 is masked where it would conflict. Without `prune` the last is left to
// the -1.
#pragma once

#include <cstdint>
#include <vector>

#include "models/episode.h"
#include "models/partition_problem.h"

namespace automap::models {

struct PartitionEnvOptions {
  bool prune = true;
  bool second_stage = true;
  // kTime problems: the reward of a decision is the change of step time over the unsplit step (positive: shorter),
  // infeasible memory at the end costs 1.
};

class PartitionEnv {
 public:
  static constexpr int kActions = 2;
  // Inputs per after-state for the shared network, all in about [-1, 1]: see partition_env.cpp. Independent of the
  // number of variables, so that one policy serves any model.
  static constexpr int kFeatures = 24;

  explicit PartitionEnv(const PartitionProblem& problem, const PartitionEnvOptions& options = {});

  void reset();
  bool done() const;
  bool conflict() const;
  int stage() const;  // 1 or 2
  // The dimension to be decided: its variable and dimension, its group (kNone: it has none).
  std::int32_t variable() const;
  std::int32_t dimension() const;
  std::int32_t group() const;
  bool legal(int action) const;
  // Returns the reward. Throws Error(kInternal) when done or when the action is masked.
  double step(int action);
  double total_reward() const;
  // The paper's state vector: one of {1, 0, -1} per dimension, variable by variable.
  const std::vector<std::int8_t>& state() const;
  // [kActions][kFeatures]: of the after-state of each action.
  void features(float* out) const;
  // Split groups so far, ascending.
  std::vector<std::int32_t> chosen() const;
  // In [0, ...): how far the finished episode stays below an upper bound of what is possible, 0 = at the bound; what
  // the learner calls y.
  float shortfall() const;

 private:
  const PartitionProblem* problem_;
  PartitionEnvOptions options_;
  // partition_env.cpp adds what it needs here.
};

}  // namespace automap::models
