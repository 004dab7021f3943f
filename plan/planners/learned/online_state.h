// The state file of an online search holds its question, its progress and its learner. It is written whole or not at
// all, under a CRC-32C.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/pipeline/plan.h"
#include "plan/planners/online.h"

namespace automap::planners {

// The question of a search, as names and values; a state resumes only if they are the same.
using Asked = std::vector<std::pair<std::string, std::string>>;

struct OnlineState {
  Asked asked;
  std::uint64_t rounds = 0, plays = 0;
  double seconds = 0;
  std::vector<pipeline::PlanLearning::Step> steps;
  std::vector<std::optional<pipeline::Plan>> best;  // of every space
  std::vector<double> best_ms;
  std::string learner;
};

void save_online_state(const std::string& path, const OnlineState& state);
// Throws Error(kIo) when it cannot be read, Error(kData) naming it when it is none, damaged, or asked otherwise than
// `asked` (empty: whatever it was).
OnlineState load_online_state(const std::string& path, const std::optional<Asked>& asked);

}  // namespace automap::planners
