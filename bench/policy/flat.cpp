#include <cmath>
#include <cstdint>
#include <vector>

#include "bench/policy/measure.h"
#include "models/flat_env.h"

namespace automap::bench {

std::optional<pipeline::Plan> flat_plan(const models::PlanSpace& space, const models::Policy& policy) {
  const models::FlatInput input = policy.architecture().flat_input;
  models::FlatEnv env(space, input);
  env.reset();
  std::vector<float> state(static_cast<std::size_t>(models::FlatEnv::state_size(input)));
  std::vector<float> q(static_cast<std::size_t>(models::FlatEnv::kActions));
  std::vector<std::uint8_t> legal(q.size());
  while (!env.done()) {
    env.state(state.data());
    env.legal(legal.data());
    models::flat_q(policy, state.data(), q.data());
    int best = -1;
    for (int action = 0; action < models::FlatEnv::kActions; ++action) {
      const std::size_t i = static_cast<std::size_t>(action);
      if (legal[i] != 0 && (best < 0 || q[i] > q[static_cast<std::size_t>(best)])) best = action;
    }
    if (best < 0) return std::nullopt;
    env.step(best);
  }
  if (!std::isfinite(env.value_ms())) return std::nullopt;
  return env.plan();
}

}  // namespace automap::bench
