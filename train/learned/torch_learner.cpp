#include "train/learned/torch_learner.h"

#include <utility>

#include "models/learner/learner.h"

namespace automap::train {
namespace {

class TorchLearner : public LearnerPort {
 public:
  explicit TorchLearner(const models::LearnerOptions& options) : learner_(options) {}
  void add(models::Episode episode) override { learner_.add(std::move(episode)); }
  bool ready() const override { return learner_.ready(); }
  void set_progress(double progress) override { learner_.set_progress(progress); }
  models::LearnerMetrics update() override { return learner_.update(); }
  std::uint64_t updates() const override { return learner_.updates(); }
  models::Policy policy(const std::string& provenance_json) const override { return learner_.policy(provenance_json); }
  void load_policy(const models::Policy& policy) override { learner_.load_policy(policy); }
  std::string save_state() const override { return learner_.save_state(); }
  void load_state(std::string_view bytes, const std::string& source) override { learner_.load_state(bytes, source); }

 private:
  models::Learner learner_;
};

}  // namespace

std::unique_ptr<LearnerPort> make_torch_learner(const models::LearnerOptions& options) {
  return std::make_unique<TorchLearner>(options);
}

}  // namespace automap::train
