// The training loop runs rounds of plays and updates side by side.
//
// While the learner learns from the plays of round r, the actors play round r + 1 with the weights published before
// those updates: the lag is fixed, so that plays depend on the seed only and never on the number of threads,
// unless a clock (time_s without `deterministic`) has a part in the size of rounds and in schedules. The number
// of updates per round is fixed, too: replay_ratio decisions learned from per decision played. The side that is done
// first helps (the learner plays along) or waits, so that the recipe is the same on any machine and only its speed is
// not.
//
// Schedules that last as long as the run, the rhythm of evaluations and the size of rounds follow the run's progress,
// which never falls: the share of the plays asked for that have been learned from, or of the time asked for (the larger
// of both). With `deterministic` no clock has a part in it: kPlaysPerSecond plays stand for a second, and the run ends
// after them.
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

// No limit of time.
constexpr double kNoTimeLimit = 1e9;
// About the plays that one thread plays and learns from in a second.
constexpr double kPlaysPerSecond = 300;
// The number of evaluations after the start, the one at the end included, where the options give no number of plays
// between two.
constexpr int kEvaluations = 24;

// Problems of the next round, of `most` at most, so that rounds come to take `wanted_s` each: of a run by the clock.
// The round behind took `seconds` to learn from the plays of `learned` problems and, side by side, play `played`
// others (0 s: no round of this session has been timed, and the size stays). It has to settle whichever of the two
// sets the pace, so that it goes half of the way (by factors) to what that round says, and never below half or above
// twice.
int next_round_problems(int learned, int played, double seconds, double wanted_s, int most);

struct TrainerSettings {
  models::PlayOptions play;
  std::uint64_t seed = 1;
  int round_problems =
      0;  // problems of a round; 0: chosen so that a run has some kRounds rounds of at most kMostRoundPlays plays
  int batch = 256;
  double replay_ratio = 4;
  double time_s = 600;  // over all sessions; kNoTimeLimit: none; with `deterministic` counted in plays
  bool deterministic = false;
  std::uint64_t episodes = 0;  // plays over all sessions; 0: no limit
  double checkpoint_every_s = 60;
  std::uint64_t evaluate_every = 0;  // plays; 0: kEvaluations in a run
  int patience = 0;
  // The policy file that the learner's weights come from; it is also policy.bin as long as nothing better was learned.
  // Empty: the weights are fresh.
  std::string start_policy;
  std::string folder;  // of the run: checkpoint, policy.bin, curves.csv, the event file
  std::vector<std::pair<std::string, std::string>> options;  // for the checkpoint
  // JSON for the policy file; empty: "{}".
  std::function<std::string(const TrainCounters& counters)> provenance;
  // Called before a policy or a checkpoint is written; its exceptions end the run without writing.
  std::function<void()> before_writing;
  // Polled between rounds; true ends the session with a checkpoint.
  std::function<bool()> stop_requested;
  // The players of the rounds; null: the threads of the pool. When they lose a process the session ends as by a signal,
  // with what was learned so far.
  Players* players = nullptr;
};

struct TrainResult {
  TrainCounters counters;
  bool stopped = false;  // by a signal, or because a process was lost
  std::string reason;    // why it ended: "1h of training", "no better policy in 10 evaluations", ...
  // True if no learned policy had a smaller mean gap than the start, which is then the best.
  bool start_won() const { return counters.evaluations > 0 && counters.best_episodes == 0; }
  double session_seconds = 0;
  std::uint64_t session_plays = 0, session_steps = 0, session_after_states = 0, session_updates = 0;
  double learner_seconds = 0;  // of the session, in updates
  models::Policy best, start;  // start: what the run began with
};

// Trains until the time, the episodes or the patience are over, or a stop is asked for; writes a checkpoint at the end
// in any case. `resume` (may be null) is the checkpoint of an earlier session; its learner_state is released, because
// it is as large as everything else in memory together.
TrainResult train(LearnerPort& learner, const ProblemSource& source, const Evaluation& evaluation, WorkerPool& pool,
                  const TrainerSettings& settings, Checkpoint* resume);

}  // namespace automap::train
