// The operator-partitioning environment (paper 3.2, 4.2), and the data-parallel one (3.3, 4.3): one binary decision at
// a time, in the order of the linkage groups by size.
//
// State: per dimension of every variable 1 (partitioned), 0 (undecided) or -1 (not partitioned), and the position: the
// first dimension of the largest group that is undecided (ties: the group that comes first). Action 1 partitions the
// dimension at the position, action 0 does not; both settle everything linked with it. Two stages: when all dimensions
// are settled, the second stage goes once more, in the same order, over those that were decided against (not those
// excluded by a partitioned one).
//
// Reward: +0.4 per dimension settled as partitioned, +0.1 per dimension settled as not; -1 for an action that
// conflicts, and the episode ends. Departure from the paper, which does not say what the second stage pays: no
// dimension is paid twice, a reopened one brings the 0.3 that are left when it is partitioned after all and nothing
// when it is not. So a finished episode's total is 0.4 and 0.1 times what the decisions settled, in whatever stage.
//
// Pruning (paper 4.2, three cases): dimensions that are settled are skipped; dimensions that cannot be partitioned
// (indivisible, or linked with what excludes them) are settled at the start, unpaid; dimensions that a decision makes
// impossible are settled by it, so that action 1 never conflicts. Without `prune` only the first holds: the other
// dimensions are asked for like any (the impossible ones last) and action 1 there is the conflict.
//
// Worked case: variables a[8,8], b[8], c[8,8]; group 0 = {a0, b0, c0}, group 1 = {a1, c1}, excluding each other.
// Position a0 (size 3 before 2). Action 1: 3 * 0.4 + 2 * 0.1 = 1.4, done. Action 0: 0.3, position a1; then action 1:
// 2 * 0.4 = 0.8 and done (a0 is excluded); action 0: 0.2, stage 2, position a0; action 1 there: 3 * 0.3 = 0.9, done.
//
// Problems with objective kTime pay instead the change of the step time over the unsplit step (positive: shorter;
// undoing nothing, so that action 0 is worth 0). With either objective a finished episode that does not fit into the
// memory costs 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/episode.h"
#include "models/partition_problem.h"

namespace automap::models {

struct PartitionEnvOptions {
  bool prune = true;
  bool second_stage = true;
};

class PartitionEnv {
 public:
  static constexpr int kActions = 2;
  static constexpr double kSplitReward = 0.4, kWholeReward = 0.1, kConflictReward = -1;
  // Inputs per after-state for the shared network, within [-1, 1]: kFeatureNames. Shares of the whole problem or
  // comparisons, independent of the number of variables, so that one policy serves any model.
  static constexpr int kFeatures = 24;
  // Stands in policy files (features.h counts its own); changes with any change of meaning.
  static constexpr int kFeatureVersion = 1001;
  static const char* const kFeatureNames[kFeatures];

  // `problem` must stay alive.
  explicit PartitionEnv(const PartitionProblem& problem, const PartitionEnvOptions& options = {});

  void reset();
  bool done() const { return position_ < 0; }
  bool conflict() const { return conflict_; }
  int stage() const { return stage_; }  // 1 or 2
  // Decisions of the longest episode.
  int most_decisions() const;
  // The dimension to be decided: its variable and dimension, its group (-1: it has none). Only when not done.
  std::int32_t variable() const;
  std::int32_t dimension() const;
  std::int32_t group() const;
  bool legal(int action) const { return !done() && (action == 0 || action == 1); }
  // Returns the reward. Throws Error(kInternal) when done or when the action is none.
  double step(int action);
  double total_reward() const { return total_reward_; }
  // The paper's state vector: one of {1, 0, -1} per dimension, variable by variable.
  const std::vector<std::int8_t>& state() const { return state_; }
  // [kActions][kFeatures]: of the after-state of each action. Only when not done.
  void features(float* out) const;
  // Split groups so far, ascending.
  std::vector<std::int32_t> chosen() const;
  // The sum of the split groups' values, and whether the memory is enough.
  double value() const { return value_; }
  bool fits() const;
  // An upper bound on the value of any set of groups: the smaller of the sum over variables (a variable is split in one
  // dimension only) and a greedy weighted clique cover of the exclusion graph; the memory is not regarded.
  double bound() const { return bound_; }
  // The distance of the finished episode from that bound, the learner's y. s = (bound - value) / bound, 0 = at the
  // bound; above 1 it is 2 - 1/s. Not enough memory: 2 + the share of the capacity that is missing, at most 3.
  // Conflict: kInfeasibleY.
  float shortfall() const;

 private:
  struct Completion {
    double value = 0, saved_bytes = 0;
    bool takes = false;  // the group that was decided against
  };
  void find_bound();
  void next_position(std::size_t from);
  double settle(std::int32_t item, std::int8_t value);
  Completion complete(std::int32_t item, int action) const;
  double memory_margin(double saved_bytes) const;

  const PartitionProblem* problem_;
  PartitionEnvOptions options_;

  // Fixed. An item is a group, or (behind them) a dimension without one.
  std::size_t groups_ = 0;
  std::vector<std::int32_t> dim_start_;                     // [items + 1] into dims_
  std::vector<std::int32_t> dims_;                          // positions in state_
  std::vector<std::int32_t> dim_variable_, dim_in_;         // [dims]
  std::vector<std::int32_t> order_;                         // items that are asked for
  std::vector<std::int32_t> by_value_;                      // groups worth more than 0, best first
  std::vector<double> item_value_, item_bytes_;             // [items]; bytes of the variables
  std::vector<std::int32_t> neighbour_start_, neighbours_;  // of groups, the best first
  double total_bytes_ = 0, total_positive_ = 0, largest_value_ = 0, unsplit_ms_ = 0, bound_ = 0, scale_ = 1;

  // Changes.
  enum class Status : std::int8_t { kOpen, kSplit, kAgainst, kReopened, kExcluded, kImpossible };
  std::vector<std::int8_t> state_;
  std::vector<Status> status_;             // [items]
  std::vector<std::int32_t> excluded_by_;  // [groups] split neighbours
  int stage_ = 1;
  std::ptrdiff_t position_ = -1;  // in order_; -1: done
  bool conflict_ = false;
  double total_reward_ = 0, value_ = 0, saved_bytes_ = 0, split_bytes_ = 0, open_positive_ = 0;
  std::int32_t settled_dims_ = 0, split_dims_ = 0, open_items_ = 0;
  // Scratch of features(): not for two threads at once.
  mutable std::vector<std::uint32_t> mark_;
  mutable std::uint32_t stamp_ = 0;
};

}  // namespace automap::models
