// A checkpoint holds everything that a training run needs to go on; it is the file `checkpoint` in the run's folder
// (docs/training.md, "The run's folder").
//
// Format, little-endian: "AMCHECKP", u32 version, u64 length of the header, the header (JSON: options, counters, curve,
// lengths of the sections), the sections, crc32c of all before it. The file is written whole or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "train/curves.h"

namespace automap::train {

// Counts over all sessions of a run.
struct TrainCounters {
  std::uint64_t round = 0;         // the round that is to be learned next
  std::uint64_t next_problem = 0;  // its first problem
  std::uint64_t plays = 0, steps = 0, after_states = 0, decisions = 0, labelled = 0, infeasible = 0;
  double y = 0;                   // sum over the feasible plays
  double seconds = 0;             // wall time of training, looks at held-out problems left out
  double evaluation_seconds = 0;  // of those
  double update_credit = 0;       // updates owed, a fraction
  // The plays that stand ready: their number of problems, and the share of the run that was over when they were begun.
  std::uint64_t round_problems = 0;
  double progress = 0;
  // The time of the last evaluation.
  std::uint64_t evaluated_plays = 0;
  double evaluated_seconds = 0;
  double start_score = 0, best_score = 0;
  std::uint64_t best_episodes = 0;  // 0: the policy that the run began with
  int evaluations = 0, evaluations_since_best = 0;
};

struct Checkpoint {
  std::vector<std::pair<std::string, std::string>> options;  // learning_options()
  std::string data;                                          // the source's fingerprint
  TrainCounters counters;
  std::vector<CurvePoint> curve;
  std::string learner_state, acting_policy, best_policy, start_policy;
};

void save_checkpoint(const std::string& path, const Checkpoint& checkpoint);
// Throws Error(kIo) when the file cannot be read, Error(kData) naming `path` when it is no checkpoint, cut short,
// damaged or of a newer version.
Checkpoint load_checkpoint(const std::string& path);
// Throws Error(kConfig) naming the first differences when the checkpoint was made under other options or data.
void check_same_run(const Checkpoint& checkpoint, const std::vector<std::pair<std::string, std::string>>& options,
                    const std::string& data, const std::string& path);

}  // namespace automap::train
