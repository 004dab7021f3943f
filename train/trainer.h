// The training loop: rounds of plays and updates, side by side.
//
// While the learner learns from the plays of round r, the actors play round r + 1 with the weights published before
// those updates: the lag is fixed, so that what is played depends on the seed only and never on the number of threads.
// How many updates a round gets is fixed, too: replay_ratio decisions learned from per decision played. Who is done
// first helps (the learner plays along) or waits, so that the recipe is the same on any machine and only its speed is
// not.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "train/actors.h"
#include "train/checkpoint.h"
#include "train/evaluation.h"
#include "train/learner_port.h"
#include "train/players.h"
#include "train/worker_pool.h"

namespace automap::train {

struct TrainerSettings {
  models::PlayOptions play;
  std::uint64_t seed = 1;
  int round_problems = 256;
  int batch = 256;
  double replay_ratio = 4;
  double time_s = 600;         // over all sessions
  std::uint64_t episodes = 0;  // plays over all sessions; 0: no limit
  double checkpoint_every_s = 60;
  std::uint64_t evaluate_every = 50000;
  int patience = 0;
  bool starts_from_policy = false;  // else weights of play 0 are never the best of the run
  std::string folder;               // of the run: checkpoint, policy.bin, curves.csv, the event file
  std::vector<std::pair<std::string, std::string>> options;  // for the checkpoint
  // JSON for the policy file; empty: "{}".
  std::function<std::string(const TrainCounters& counters)> provenance;
  // Called before a policy or a checkpoint is written; what it throws ends the run instead.
  std::function<void()> before_writing;
  // Polled between rounds; true ends the session with a checkpoint.
  std::function<bool()> stop_requested;
  // Who plays; null: the threads of the pool. When they lose a process the session ends as by a signal, with what was
  // learned so far.
  Players* players = nullptr;
};

struct TrainResult {
  TrainCounters counters;
  bool stopped = false;  // by a signal, or since a process was lost
  std::string reason;    // why it ended: "1h of training", "no better policy in 10 evaluations", ...
  double session_seconds = 0;
  std::uint64_t session_plays = 0, session_steps = 0, session_after_states = 0, session_updates = 0;
  double learner_seconds = 0;  // of the session, in updates
  models::Policy best;
};

// Trains until the time, the episodes or the patience are over, or a stop is asked for; writes a checkpoint at the end
// in any case. `resume` (may be null) is where an earlier session ended; its learner_state is used up, because it is as
// large as everything else in memory together.
TrainResult train(LearnerPort& learner, const ProblemSource& source, const Evaluation& evaluation, WorkerPool& pool,
                  const TrainerSettings& settings, Checkpoint* resume);

}  // namespace automap::train
