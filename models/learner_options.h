// The options and metrics of the Rainbow learner (models/learner), for code that uses it without LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/policy.h"

namespace automap::models {

enum class Distribution : std::uint8_t { kNone, kC51, kHlGauss };
enum class Returns : std::uint8_t { kMonteCarlo, kNStep };

struct LearnerOptions {
  Family family = Family::kAfterState;
  int inputs = 58;                         // features per after-state, or the flat state's length
  int actions = 128;                       // width of the flat head; unused otherwise
  FlatInput flat_input = FlatInput::kRaw;  // what the flat state is; only written into the policy
  int objective = 0;                       // 0 value, 1 simulated; only written into the policy
  int feature_version = 0;                 // only written into the policy; 0: features.h's
  std::vector<int> hidden = {64, 64};
  // y = log(bound/LB_root) + 0.1 softplus(net), or + the distribution's mean; after-state family and gamma 1 only.
  bool residual = true;
  // With residual and a scalar head: between the bound and the best rollout (Head::kBounded) instead of softplus.
  bool bounded = false;
  bool dueling = false;  // flat family only; Error(kUsage) otherwise
  Returns returns = Returns::kMonteCarlo;
  int n_step = 1;
  double gamma = 1;       // y of the k-th last decision is trained towards gamma^(k-1) y (returns.h)
  bool double_q = false;  // n-step with a target network only: action by the online network, its value by the target
  int target_every = 0;   // updates between copies into the target network (n-step only); 0: no target network
  int target_copies = 0;  // at most so many copies in the whole run (Learner::set_progress), so that longer runs copy
                          // less often; 0: every target_every updates
  Distribution distribution = Distribution::kNone;
  int atoms = 101;
  float low = 0, high = 1;  // support of the distribution over y (or over its residual part)
  bool prioritized = false;
  double priority_alpha = 0.2, priority_beta = 0.6, priority_beta_end = 1.0;
  std::uint64_t beta_updates = 100000;  // over which beta rises to its end; 0: the whole run (Learner::set_progress)
  // With 4 decisions each 23 MB; n-step on after-states keeps all their children: 48 times that.
  int replay_episodes = 20000;
  int max_decisions = 0;     // of an episode; 0: enough for pipelines (replay.h)
  int batch = 256;           // decisions per update (their chosen after-states); 0: labels alone
  int label_batch = 16;      // labelled decisions per update, all their actions
  int replay_labels = 8192;  // labelled decisions kept: 12 kB each with 48 actions
  double label_weight = 1;   // of the listwise softmax and Huber losses on exact labels; 0: off
  double label_temperature = 0.01;
  double learning_rate = 1e-3, learning_rate_end = 1e-4;
  std::uint64_t learning_rate_updates = 50000;  // cosine over these; 0: the whole run (Learner::set_progress)
  double adam_epsilon = 1e-5;
  double clip_norm = 10;  // of the gradient; 0: never clipped
  double huber_delta = 1;
  double target_scale = 4;  // y is multiplied by this inside the loss
  double ema = 0.999;       // of the weights, for the published policy (less at first); 0: none
  std::uint64_t seed = 1;
  int threads = 1;             // intra-op
  std::string device = "cpu";  // or "cuda"
};

// Throws Error(kUsage) for switches that do not go together, saying which and why, Error(kConfig) for values out of
// range. Says nothing of the device.
void check_options(const LearnerOptions& options);

// Metrics of an update: means over the batch, before the step.
struct LearnerMetrics {
  double loss = 0, label_loss = 0, mean_priority = 0, gradient_norm = 0, learning_rate = 0;
};

// Rainbow (Hessel et al., arXiv 1710.02298) on the after-state network, without noisy layers (as the paper): double Q,
// 3-step returns, a target network, prioritized replay. Its Q(s, a) is the value of the after-state, which leaves
// dueling nothing to part; `distribution` stays as it is. No labels. The episodes must be whole (n-step returns).
void use_rainbow(LearnerOptions& options);
// Decisions that it learns from per decision played.
constexpr double kRainbowReplayRatio = 16;

}  // namespace automap::models
