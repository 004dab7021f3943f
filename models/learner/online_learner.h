// A learner for searches that learn on the very problem they search (plan/partition/learned, plan/planners/learned),
// with the policy that plays next. Updates are owed per decision played, so that the recipe does not depend on the
// machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/work.h"
#include "models/learner/learner.h"

namespace automap::models {

struct OnlineOptions {
  double decisions_per_update = 8;
  std::uint64_t policy_every = 16;  // updates between looks at the learner's weights
  std::int64_t units_per_update = 400'000;
};

class OnlineLearner {
 public:
  // `start` (may be empty): the weights it starts from, whose architecture must be that of the options. Throws as
  // Learner does. `work` must outlive it.
  OnlineLearner(const LearnerOptions& learner, const OnlineOptions& options, std::optional<Policy> start, Work& work);

  // Remembers what was played and makes the updates that are owed; false when the work was over first.
  bool learn(std::vector<Episode> episodes);
  // Plays next; empty: nothing was learned yet and there was none to start from.
  const std::optional<Policy>& policy() const { return policy_; }
  // The policy of the learner as it is now.
  Policy learned(std::string provenance_json) const { return learner_.policy(std::move(provenance_json)); }
  std::uint64_t updates() const { return learner_.updates(); }

  // Save and restore the state, so that the learner resumes bit-equal. load_state throws as Learner::load_state does.
  std::string save_state() const;
  void load_state(std::string_view bytes, const std::string& source);

 private:
  OnlineOptions options_;
  Learner learner_;
  std::optional<Policy> policy_;
  Work& work_;
  double debt_ = 0;  // decisions that no update was made for
};

}  // namespace automap::models
