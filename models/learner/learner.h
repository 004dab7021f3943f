// The Rainbow learner: a Q-network trained from episodes with LibTorch, each part of Rainbow a switch. LibTorch stays
// behind this header.
//
// Two families of networks:
//   kAfterState: one small network shared over all after-states (policy.h); Q(s, a) = -y(after-state of a).
//   kFlat: the paper's: a flat vector in, one Q per action of a 128-wide head out (flat_env.h), -Q = y again.
//
// docs/learner.md says what each switch computes. Not thread-safe: one thread at a time calls a learner. All randomness
// is counted (seed, update), so that the same calls give the same bits; threads = 1 is part of that promise.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "models/episode.h"
#include "models/learner_options.h"
#include "models/policy.h"

namespace automap::models {

class Learner {
 public:
  // Throws Error(kUsage) for switches that do not go together, saying which and why, Error(kConfig) for values out of
  // range or a device that is not there.
  explicit Learner(const LearnerOptions& options);
  ~Learner();

  // Adds an episode to the replay (the oldest leave). Labelled decisions also go into the replay of labels. Throws
  // Error(kUsage) for labels when gamma is not 1 (exact y are not discounted).
  void add(Episode episode);
  std::size_t episodes() const;   // in the replay
  std::size_t decisions() const;  // of those episodes
  std::size_t labels() const;     // labelled decisions kept
  bool ready() const;             // enough in the replay for a batch

  // The share of the run that is over, 0..1, for the schedules that last as long as the run (learning_rate_updates,
  // beta_updates: 0; target_copies). 0 until somebody says so; it never falls, whoever resumes a run for longer.
  void set_progress(double progress);

  // Makes one gradient step on a batch drawn from the replay. Throws Error(kConfig) when the loss is no longer finite.
  LearnerMetrics update();
  std::uint64_t updates() const;

  // Current weights (EMA when on) for actors and files. After-state family: runs on Policy::predict. Flat family: the
  // weights of the flat network, for flat_q().
  Policy policy(std::string provenance_json = "{}") const;
  // Starts from these weights (also EMA and target network), with fresh Adam moments. Error(kData) when the
  // architecture differs, naming both; the objective may differ.
  void load_policy(const Policy& policy);

  // The state to resume from bit-equal: weights, Adam moments, target, EMA, replay, priorities, random state.
  std::string save_state() const;
  // Throws Error(kData) naming `source` when the bytes are damaged, Error(kConfig) naming the first option that differs
  // (threads and device may); the learner stays as it was then.
  void load_state(std::string_view bytes, const std::string& source);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// "LibTorch 1.13.0, OpenBLAS, 92 GFLOP/s"; warns in the log below 10 GFLOP/s (reference BLAS). Takes about 5 ms.
std::string check_torch_speed();

}  // namespace automap::models
