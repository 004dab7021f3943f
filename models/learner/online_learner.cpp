#include "models/learner/online_learner.h"

#include <algorithm>
#include <utility>

#include "common/base/byte_stream.h"

namespace automap::models {

OnlineLearner::OnlineLearner(const LearnerOptions& learner, const OnlineOptions& options, std::optional<Policy> start,
                             Work& work)
    : options_(options), learner_(learner), policy_(std::move(start)), work_(work) {
  if (policy_) learner_.load_policy(*policy_);
}

bool OnlineLearner::learn(std::vector<Episode> episodes) {
  for (Episode& episode : episodes) {
    if (episode.decisions.empty()) continue;
    debt_ += static_cast<double>(episode.decisions.size());
    learner_.add(std::move(episode));
  }
  if (!learner_.ready()) {
    debt_ = 0;
    return true;
  }
  for (; debt_ >= options_.decisions_per_update; debt_ -= options_.decisions_per_update) {
    if (work_.over()) return false;
    learner_.update();
    work_.spend(options_.units_per_update);
    if (learner_.updates() % std::max<std::uint64_t>(1, options_.policy_every) == 0 || !policy_) {
      policy_ = learner_.policy();
    }
  }
  return true;
}

std::string OnlineLearner::save_state() const {
  ByteWriter out;
  out.put(debt_);
  out.put_string(policy_ ? policy_->serialize() : std::string());
  out.put_string(learner_.save_state());
  return std::move(out.bytes());
}

void OnlineLearner::load_state(std::string_view bytes, const std::string& source) {
  ByteReader in(bytes, source);
  const double debt = in.get<double>();
  const std::string policy = in.get_string();
  learner_.load_state(in.get_string(), source);
  debt_ = debt;
  policy_.reset();
  if (!policy.empty()) policy_ = Policy::parse(policy, source);
}

}  // namespace automap::models
