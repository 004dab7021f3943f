#include "models/learner_options.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/base/error.h"
#include "models/replay.h"

namespace automap::models {
namespace {

[[noreturn]] void bad_combination(const std::string& message, const std::string& hint) {
  throw Error(ErrorKind::kUsage, "learner: " + message, hint);
}

void check_range(bool good, const std::string& name, const std::string& expected) {
  if (!good) throw Error(ErrorKind::kConfig, "learner: " + name + " is out of range, expected " + expected);
}

}  // namespace

void check_options(const LearnerOptions& o) {
  const bool flat = o.family == Family::kFlat;
  if (o.dueling && !flat) {
    bad_combination("dueling needs the flat family", "an after-state network has one output, nothing to duel");
  }
  if (o.residual && flat) {
    bad_combination("the residual form needs the after-state family", "the flat family has no bound per action");
  }
  if (o.residual && o.gamma != 1) {
    bad_combination("the residual form needs gamma 1", "a discounted y may be below the bound");
  }
  const bool n_step = o.returns == Returns::kNStep;
  if (o.target_every > 0 && !n_step) {
    bad_combination("a target network needs n-step returns", "Monte-Carlo returns do not bootstrap");
  }
  if (o.double_q && (!n_step || o.target_every == 0)) {
    bad_combination("double Q needs n-step returns and a target network",
                    "the online network chooses the action, the target network values it");
  }
  check_range(o.inputs >= 1 && o.inputs <= 65536, "inputs", "1..65536");
  check_range(!flat || (o.actions >= 1 && o.actions <= 1024), "actions", "1..1024");
  check_range(o.hidden.size() <= 8, "hidden", "at most 8 layers");
  for (const int size : o.hidden) check_range(size >= 1 && size <= 8192, "hidden", "layers of 1..8192");
  check_range(o.max_decisions >= 0 && o.max_decisions <= 1000000, "max_decisions", "0..10^6");
  const int most_steps = std::max(kMaxDecisions, o.max_decisions);
  check_range(!n_step || (o.n_step >= 1 && o.n_step <= most_steps), "n_step", "1.." + std::to_string(most_steps));
  check_range(o.gamma >= 0 && o.gamma <= 1, "gamma", "0..1");
  check_range(o.target_every >= 0, "target_every", "0 or more");
  check_range(o.target_copies >= 0, "target_copies", "0 or more");
  if (o.distribution != Distribution::kNone) {
    check_range(o.atoms >= 2 && o.atoms <= 1024, "atoms", "2..1024");
    check_range(std::isfinite(o.low) && std::isfinite(o.high) && o.low < o.high, "low, high", "low < high");
  }
  check_range(o.priority_alpha >= 0 && o.priority_alpha <= 1, "priority_alpha", "0..1");
  check_range(o.priority_beta >= 0 && o.priority_beta <= 1, "priority_beta", "0..1");
  check_range(o.priority_beta_end >= 0 && o.priority_beta_end <= 1, "priority_beta_end", "0..1");
  check_range(o.replay_episodes >= 1 && o.replay_episodes <= 10000000, "replay_episodes", "1..10^7");
  check_range(o.batch >= 0 && o.batch <= 65536, "batch", "0..65536");
  check_range(o.label_batch >= 0 && o.label_batch <= 65536, "label_batch", "0..65536");
  check_range(o.replay_labels >= 0 && o.replay_labels <= 10000000, "replay_labels", "0..10^7");
  check_range(o.label_weight >= 0 && std::isfinite(o.label_weight), "label_weight", "0 or more");
  check_range(o.label_temperature > 0 && std::isfinite(o.label_temperature), "label_temperature", "above 0");
  check_range(o.learning_rate > 0 && o.learning_rate <= 1, "learning_rate", "above 0, at most 1");
  check_range(o.learning_rate_end >= 0 && o.learning_rate_end <= 1, "learning_rate_end", "0 to 1");
  check_range(o.adam_epsilon > 0 && o.adam_epsilon <= 1, "adam_epsilon", "above 0, at most 1");
  check_range(o.clip_norm >= 0, "clip_norm", "0 or more");
  check_range(o.huber_delta > 0 && std::isfinite(o.huber_delta), "huber_delta", "above 0");
  check_range(o.target_scale > 0 && std::isfinite(o.target_scale), "target_scale", "above 0");
  check_range(o.ema >= 0 && o.ema < 1, "ema", "0 or more, below 1");
  check_range(o.threads >= 1 && o.threads <= 1024, "threads", "1..1024");
  if (o.batch == 0 && (o.label_batch == 0 || o.replay_labels == 0 || o.label_weight == 0)) {
    bad_combination("batch 0 needs labels", "set label_batch, replay_labels and label_weight above 0");
  }
}

void use_rainbow(LearnerOptions& o) {
  o.returns = Returns::kNStep;
  o.double_q = true;
  o.n_step = 3;
  o.target_every = 500;
  o.prioritized = true;
  o.priority_alpha = 0.2;
  o.priority_beta = 0.4;
  o.beta_updates = 70000;
  // Decisions with all their children: 45 kB an episode.
  o.replay_episodes = 12000;
  o.batch = 64;
  o.label_weight = 0;
  o.learning_rate = 3e-3;  // tuned with alpha and the ratio at 100 s of one thread
}

}  // namespace automap::models
