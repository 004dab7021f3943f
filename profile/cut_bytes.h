// What crosses the cuts of a step, and what it keeps for the backward pass: a and k of profiler.h.
#pragma once

#include <vector>

#include "profile/fused_positions.h"
#include "profile/instruction_times.h"

namespace automap::profile {

// Bytes by position: of the values that are made up to it and read behind it.
std::vector<double> crossing_bytes(const StepPositions& at, const FusedPositions& fused);

// What a stage that recomputes its layers keeps of them (Profile::layer_entry_bytes and stage_entry_bytes), by
// position.
struct EntryBytes {
  std::vector<double> layer, stage;
};
// `starts`: by position, whether a layer begins with it.
EntryBytes entry_bytes(const StepPositions& at, const FusedPositions& fused, const std::vector<bool>& starts);

struct Stash {
  std::vector<double> bytes;  // by position
  std::vector<bool> kept;     // by node: it, or another form of it, is counted
};
// What is kept for what the backward pass reads (kept_values.h). `whiles`: how often loops turn that keep what a fused
// kernel needs.
Stash stash_bytes(const StepPositions& at, const FusedPositions& fused,
                  const std::vector<InstructionTimes::While>& whiles);

}  // namespace automap::profile
