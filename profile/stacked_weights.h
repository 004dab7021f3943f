// Weights of which a loop over layers takes a slice at every turn, as jax.lax.scan does, also where the module makes
// another form of all layers first: cast to bf16, or transposed so that the layers come first. Such a weight belongs to
// the turns, and not to what stands in front of the loop.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "profile/instruction_times.h"
#include "profile/step_positions.h"

namespace automap::profile {

class StackedWeights {
 public:
  // `whiles`: of the module, with what is known of their turns. `at` must stay alive.
  StackedWeights(const StepPositions& at, const std::vector<InstructionTimes::While>& whiles);

  // The position (0-based) of the forward loop that takes a slice of `input` at every turn; graph::kNone: there is
  // none.
  std::int32_t loop_of(graph::NodeId input) const;
  // The same, but only where nothing else of the forward pass reads the input.
  std::int32_t only_loop_of(graph::NodeId input) const;
  // The number of turns of the loop at this position; 0: there is no loop, or the number is unknown.
  std::int64_t turns_at(std::int32_t position) const;

 private:
  const StepPositions& at_;
  std::unordered_map<std::int32_t, std::int64_t> turns_;  // by position
};

}  // namespace automap::profile
