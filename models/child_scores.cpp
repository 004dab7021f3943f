#include "models/child_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace automap::models {

using pipeline::Objective;

namespace {

// y of the best rollout; infinity: none.
float y_of_rollout(const Rollouts& rollouts, double root_ms) {
  const bool usable = root_ms > 0 && rollouts.best_ms < std::numeric_limits<double>::infinity();
  return usable ? static_cast<float>(std::log(rollouts.best_ms / root_ms)) : std::numeric_limits<float>::infinity();
}

}  // namespace

void child_inputs(const PlanSpace& space, double root_ms, const Prefix& child, const Rollouts& rollouts,
                  double known_ms, std::size_t i, ChildScores& scores) {
  after_state_features(space, child, rollouts, known_ms, scores.features.data() + i * kFeatures);
  scores.log_bound[i] = root_ms > 0 ? static_cast<float>(std::log(child.bound_ms / root_ms)) : 0;
}

void score_children(const PlanSpace& space, const Policy& policy, Objective objective, double root_ms, int second_looks,
                    const std::vector<Prefix>& children, std::vector<Rollouts>& rollouts, double& known_ms,
                    ChildScores& scores) {
  const std::size_t count = children.size();
  scores.features.resize(count * kFeatures);
  scores.log_bound.resize(count);
  scores.y.resize(count);
  if (count == 0) return;
  for (const Rollouts& of : rollouts) known_ms = std::min(known_ms, of.best_ms);
  const auto limit = [&](std::size_t i) {
    if (objective == Objective::kValue) scores.y[i] = std::min(scores.y[i], y_of_rollout(rollouts[i], root_ms));
  };
  for (std::size_t i = 0; i < count; ++i) child_inputs(space, root_ms, children[i], rollouts[i], known_ms, i, scores);
  policy.predict(scores.features.data(), scores.log_bound.data(), static_cast<int>(count), scores.y.data());
  for (std::size_t i = 0; i < count; ++i) limit(i);

  std::vector<std::pair<float, std::size_t>> best;
  for (std::size_t i = 0; i < count; ++i) best.emplace_back(scores.y[i], i);
  const std::size_t looks = std::min(count, static_cast<std::size_t>(std::max(0, second_looks)));
  std::partial_sort(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(looks), best.end());
  best.resize(looks);
  best.erase(
      std::remove_if(best.begin(), best.end(), [&](const auto& entry) { return rollouts[entry.second].improved; }),
      best.end());
  if (best.empty()) return;
  for (const auto& entry : best) {
    Rollouts& of = rollouts[entry.second];
    space.improve(children[entry.second], of);
    known_ms = std::min(known_ms, of.best_ms);
  }
  ChildScores again;
  again.features.resize(best.size() * kFeatures);
  again.log_bound.resize(best.size());
  again.y.resize(best.size());
  for (std::size_t k = 0; k < best.size(); ++k) {
    child_inputs(space, root_ms, children[best[k].second], rollouts[best[k].second], known_ms, k, again);
  }
  policy.predict(again.features.data(), again.log_bound.data(), static_cast<int>(best.size()), again.y.data());
  for (std::size_t k = 0; k < best.size(); ++k) {
    const std::size_t i = best[k].second;
    std::copy_n(again.features.data() + k * kFeatures, kFeatures, scores.features.data() + i * kFeatures);
    scores.y[i] = again.y[k];
    limit(i);
  }
}

}  // namespace automap::models
