// The interface between the training loop and a learner: models::Learner (learned/torch_learner.h), or a simple one in
// tests without LibTorch.
#pragma once

#include <string>
#include <string_view>

#include "models/episode.h"
#include "models/learner_options.h"
#include "models/policy.h"

namespace automap::train {

class LearnerPort {
 public:
  virtual ~LearnerPort() = default;
  virtual void add(models::Episode episode) = 0;
  virtual bool ready() const = 0;
  virtual void set_progress(double progress) = 0;  // the share of the run that is over
  virtual models::LearnerMetrics update() = 0;
  virtual std::uint64_t updates() const = 0;
  virtual models::Policy policy(const std::string& provenance_json) const = 0;
  virtual void load_policy(const models::Policy& policy) = 0;
  virtual std::string save_state() const = 0;
  virtual void load_state(std::string_view bytes, const std::string& source) = 0;
};

}  // namespace automap::train
