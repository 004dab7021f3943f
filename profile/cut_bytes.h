// Computes the bytes that cross the cuts of a step, and those that it keeps for the backward pass: a and k of
// profiler.h.
#pragma once

#include <vector>

#include "profile/fused_positions.h"
#include "profile/instruction_times.h"

namespace automap::profile {

// Bytes by position: of the values that are made up to it and read behind it.
std::vector<double> crossing_bytes(const StepPositions& at, const FusedPositions& fused);

// The bytes that a stage keeps of its layers when it recomputes them (Profile::layer_entry_bytes and
// stage_entry_bytes), by position.
struct EntryBytes {
  std::vector<double> layer, stage;
};
// `starts`: by position, whether a layer begins with it.
EntryBytes entry_bytes(const StepPositions& at, const FusedPositions& fused, const std::vector<bool>& starts);

struct Stash {
  std::vector<double> bytes;  // by position
  std::vector<bool> kept;     // by node: it, or another form of it, is counted
};
// The bytes kept for the values that the backward pass reads (kept_values.h). `whiles`: the number of turns of loops
// that keep the operands of a fused kernel.
Stash stash_bytes(const StepPositions& at, const FusedPositions& fused,
                  const std::vector<InstructionTimes::While>& whiles);

}  // namespace automap::profile
