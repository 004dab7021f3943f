#include "plan/planners/measured_step.h"

#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "plan/planners/scaled_estimates.h"

namespace automap::planners {
namespace {

constexpr double kSame = 1e-9;     // a share of the step: what is nearer is the measurement itself
constexpr double kReached = 1e-7;  // as near as the last digits of a simulation may stay
constexpr int kMostSecants = 100;

double away(double ms, double target_ms) {
  return ms / target_ms - 1;
}

// Finds the factor at which a step that rises with it reaches the target; nothing: not between the two ends. The step
// is nearly linear, so that secants meet it in a few steps; an end that stays has its difference halved, so that it
// moves, too.
std::optional<double> where_reached(const std::function<double(double)>& step_ms, double from, double from_ms,
                                    double to, double target_ms) {
  double a = from, b = to, at_a = away(from_ms, target_ms), at_b = away(step_ms(to), target_ms);
  if (at_a * at_b > 0) return std::nullopt;
  double best = a, nearest = std::abs(at_a);
  for (int i = 0; i < kMostSecants && nearest > kSame && a != b; ++i) {
    const double x = at_a == at_b ? (a + b) / 2 : (a * at_b - b * at_a) / (at_b - at_a);
    const double at_x = away(step_ms(x), target_ms);
    if (std::abs(at_x) < nearest) {
      nearest = std::abs(at_x);
      best = x;
    }
    if (at_x * at_b < 0) {
      a = std::exchange(b, x);
      at_a = std::exchange(at_b, at_x);
    } else {
      b = x;
      at_b = at_x;
      at_a /= 2;
    }
  }
  return nearest <= kReached ? std::optional<double>(best) : std::nullopt;
}

}  // namespace

pipeline::Profile corrected(pipeline::Profile profile, const Correction& correction) {
  scale_times(profile, 0, profile.c_ms.size(), correction.compute, correction.network);
  return profile;
}

void correct(const Correction& correction, Question* question) {
  if (!correction.changes()) return;
  question->set_profile(corrected(question->profile(), correction));
  if (correction.network == 1) return;
  for (const Links which : {Links::kInside, Links::kBetween}) {
    scale_links(question->cluster, which, correction.network, correction.network);
  }
}

Layout as_scored(Layout layout, const ScoredPlan& scored) {
  const pipeline::ProblemOptions& options = scored.placed.problem().options();
  layout.dp = options.group_size;
  layout.micro_batch_size = std::llround(options.micro_batch_samples / options.group_size);
  return layout;
}

Correction find_correction(const Layout& layout, const ScoredPlan& scored, const Question& question,
                           double measured_ms) {
  const double estimated_ms = scored.simulated_step_ms;
  const bool adaptive = scored.plan.schedule == pipeline::Schedule::kAdaptive;
  const std::vector<int> warmup = adaptive ? scored.plan.warmup : std::vector<int>();
  const double factor = measured_ms / estimated_ms;
  if (std::abs(factor - 1) <= kSame) return {};
  const auto step_ms = [&](double compute) {
    Question changed = question;
    correct({compute, 1}, &changed);
    return score_layout(layout, changed, warmup).simulated_step_ms;
  };
  const double farthest = factor > 1 ? kSlowestCompute : kFastestCompute;
  const std::optional<double> compute = where_reached(step_ms, 1, estimated_ms, farthest, measured_ms);
  if (compute) return {*compute, 1};
  // Everything takes so many times as long, and so does the step.
  return {factor, factor};
}

}  // namespace automap::planners
