#include "models/learner/recipes.h"

namespace automap::models {

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
