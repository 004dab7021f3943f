// The Rainbow DQN as a searcher over partitioning problems (paper 4.2): the learner of automap-train on the environment
// of models/partition_env.h, trained on the problem itself, from scratch or from a policy of other problems.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/learner/learner.h"
#include "models/partition_env.h"
#include "models/policy.h"
#include "plan/partition/partition_search.h"

namespace automap::partition {

struct RainbowOptions {
  models::PartitionEnvOptions env;
  // 0: as many as the limits allow.
  std::uint64_t episodes = 0;
  // Ends after this many episodes, and twice as many as the best one took, without a better answer; 0: never.
  std::uint64_t patience_episodes = 400;
  // The number of random decisions in an episode that explores: it falls from all of them to this, each episode with
  // its own share. A quarter of the episodes do not explore, the first one of a given policy among them.
  double random_decisions_end = 2;
  std::uint64_t exploring_episodes =
      200;  // over which it falls; a quarter of them when there is a policy to start from
  double decisions_per_update = 8;
  std::uint64_t policy_every = 16;  // updates between looks at the learner's weights
  // The learner's options. rainbow_search adjusts family, inputs, sizes of the replay, seed, n_step (at most a sixth of
  // the longest episode); with a policy also its architecture.
  models::LearnerOptions learner = default_learner();
  static models::LearnerOptions default_learner();
  // Looked at between decisions; ends the search with the best so far. Empty: never.
  std::function<bool()> stop_requested;
};

// The best answer of all episodes, never worse than that of the first episode, which splits every group at its turn
// that is worth more than nothing; the second one also splits groups that only save memory, when there is a limit.
// Stops at the limits, after `patience_episodes`, and when the environment's bound is reached (then proven). `bound` is
// that bound. An answer that does not fit into the memory (score.fits) means that no episode did.
//
// statistics: episodes, steps, updates, first_stage_variables and second_stage_variables (split in that stage by the
// best episode), best_episode (from 1), best_seconds, learned (0 when the answer is that of the first episodes).
//
// Throws Error(kIo/kData) when the policy cannot be read or is none for partitionings, Error(kUsage) for switches of
// the learner that do not go together.
PartitionAnswer rainbow_search(const models::PartitionProblem& problem, const SearchLimits& limits,
                               const std::string& policy_path, const RainbowOptions& options = {});

// One policy for all these problems, which take turns; ends by episodes (of all problems together) or limits.
models::Policy train_partition_policy(const std::vector<models::PartitionProblem>& problems, const SearchLimits& limits,
                                      const RainbowOptions& options = {});

}  // namespace automap::partition
