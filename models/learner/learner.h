// The Rainbow learner: a Q-network trained from episodes with LibTorch, each part of Rainbow a switch. LibTorch stays
// behind this header.
//
// Two families of networks:
//   kAfterState: one small network shared over all after-states (policy.h); Q(s, a) = -y(after-state of a).
//   kFlat: the paper's: a flat vector in, one Q per action of a 128-wide head out (flat_env.h), -Q = y again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/episode.h"
#include "models/policy.h"

namespace automap::models {

enum class Returns : std::uint8_t { kMonteCarlo, kNStep };
enum class Distribution : std::uint8_t { kNone, kC51, kHlGauss };

struct LearnerOptions {
  Family family = Family::kAfterState;
  int inputs = 58;    // features per after-state, or the flat state's length
  int actions = 128;  // width of the flat head; unused otherwise
  std::vector<int> hidden = {64, 64};
  bool residual = true;  // y = log(bound/LB_root) + 0.1 softplus(net); after-state family only
  bool dueling = false;  // flat family only; Error(kUsage) otherwise
  Returns returns = Returns::kMonteCarlo;
  int n_step = 1;
  double gamma = 1;
  bool double_q = false;  // n-step only
  int target_every = 0;   // updates between copies into the target network; 0: no target network
  Distribution distribution = Distribution::kNone;
  int atoms = 101;
  float low = 0, high = 1;  // support of the distribution over y (or over its residual part)
  bool prioritized = false;
  double priority_alpha = 0.2, priority_beta = 0.6, priority_beta_end = 1.0;
  std::uint64_t beta_updates = 100000;  // over which beta rises to its end
  int replay_episodes = 20000;
  int batch = 256;           // decisions per update (their chosen after-states)
  int label_batch = 16;      // labelled decisions per update, all their actions
  int replay_labels = 8192;  // labelled decisions kept
  double label_weight = 1;   // of the listwise softmax and Huber losses on exact labels; 0: off
  double label_temperature = 0.01;
  double learning_rate = 1e-3, learning_rate_end = 1e-4;
  std::uint64_t learning_rate_updates = 50000;  // cosine over these
  double adam_epsilon = 1e-5;
  double clip_norm = 10;
  double huber_delta = 1;
  double target_scale = 4;  // y is multiplied by this inside the loss
  double ema = 0.999;       // of the weights, for the published policy; 0: none
  std::uint64_t seed = 1;
  int threads = 1;             // intra-op
  std::string device = "cpu";  // or "cuda"
};

struct LearnerMetrics {
  double loss = 0, label_loss = 0, mean_priority = 0, gradient_norm = 0, learning_rate = 0;
};

class Learner {
 public:
  // Throws Error(kUsage/kConfig) for switches that do not go together, saying which and why.
  explicit Learner(const LearnerOptions& options);
  ~Learner();

  // Into the replay (the oldest leave). Labelled decisions also go into the replay of labels.
  void add(Episode episode);
  std::size_t episodes() const;
  bool ready() const;  // enough in the replay for a batch

  // One gradient step on a batch drawn from the replay.
  LearnerMetrics update();
  std::uint64_t updates() const;

  // Current weights (EMA when on) for actors and files. After-state family: runs on Policy::predict. Flat family: the
  // weights of the flat network, for flat_q().
  Policy policy(std::string provenance_json = "{}") const;
  // Starts from these weights. Error(kData) when the architecture differs, naming both.
  void load_policy(const Policy& policy);

  // Everything needed to go on bit-equal: weights, Adam moments, target, EMA, replay, priorities, random state.
  std::string save_state() const;
  // Throws Error(kData) naming `source` when the bytes are damaged or made under other options.
  void load_state(std::string_view bytes, const std::string& source);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// "LibTorch 1.13.0, OpenBLAS, 92 GFLOP/s"; warns in the log below 10 GFLOP/s (reference BLAS). Takes about 5 ms.
std::string check_torch_speed();

}  // namespace automap::models
