// A learner without LibTorch: a policy whose last bias follows the mean return, enough to see what was learned, when,
// and whether a resumed run goes on where it ended.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "models/features.h"
#include "train/learner_port.h"

namespace automap::train {

class SimpleLearner : public LearnerPort {
 public:
  SimpleLearner() {
    // features.h after policy.h: a name of one is also an enumerator of the other.
    architecture_.features = models::kFeatures;
    architecture_.feature_version = models::kFeatureVersion;
    architecture_.hidden = {8};
    weights_.resize(models::Policy::num_weights(architecture_));
    for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] = 0.02f * static_cast<float>((i * 37) % 11) - 0.1f;
  }
  void add(models::Episode episode) override {
    for (const models::Decision& decision : episode.decisions) {
      ++decisions;
      if (!decision.exact_y.empty()) ++labelled;
    }
    state_[0] += static_cast<double>(episode.y);
    state_[1] += 1;
    if (keep) episodes.push_back(std::move(episode));
  }
  bool ready() const override { return state_[1] >= 1; }
  void set_progress(double progress) override { progresses.push_back(progress); }
  models::LearnerMetrics update() override {
    const double mean = state_[0] / state_[1];
    const auto at = static_cast<std::size_t>(state_[2]) % weights_.size();
    weights_[at] += static_cast<float>(0.01 * (mean - static_cast<double>(weights_[at])));
    state_[2] += 1;
    return {};
  }
  std::uint64_t updates() const override { return static_cast<std::uint64_t>(state_[2]); }
  models::Policy policy(const std::string& provenance_json) const override {
    return models::Policy(architecture_, weights_, provenance_json);
  }
  void load_policy(const models::Policy& policy) override { weights_ = policy.weights(); }
  std::string save_state() const override {
    std::string out(reinterpret_cast<const char*>(state_), sizeof state_);
    return out.append(reinterpret_cast<const char*>(weights_.data()), weights_.size() * sizeof(float));
  }
  void load_state(std::string_view bytes, const std::string& source) override {
    if (bytes.size() != sizeof state_ + weights_.size() * sizeof(float))
      throw Error(ErrorKind::kData, source + ": size");
    std::memcpy(state_, bytes.data(), sizeof state_);
    std::memcpy(weights_.data(), bytes.data() + sizeof state_, weights_.size() * sizeof(float));
  }

  std::vector<double> progresses;
  bool keep = false;
  std::vector<models::Episode> episodes;
  std::size_t decisions = 0, labelled = 0;

 private:
  models::Architecture architecture_;
  std::vector<float> weights_;
  double state_[3] = {0, 0, 0};  // sum of returns, episodes, updates
};

}  // namespace automap::train
