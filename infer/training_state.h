// The bytes that software keeps for each parameter; a step that is written as a module states its own.
#pragma once

#include "common/pipeline/profile.h"

namespace automap::infer {

constexpr double kMasterBytes = 4;  // of a parameter in f32

// Bytes for each parameter that is stored as f32 and used in 16 bits. 0: as in the module. Where weights are kept in 16
// bits there is an f32 copy beside the optimizer's moments, which ZeRO shards with them.
struct TrainingState {
  double weight = 0;                                                   // replicas hold it, ZeRO 3 gathers it
  double gradient = 0;                                                 // added up, and summed over replicas
  bool copies() const { return weight > 0 && weight < kMasterBytes; }  // there is one in f32 beside the moments
};

// True if weights are f32 and gradients are made in 16 bits, beside an optimizer's slots; software then chooses its own
// state.
bool has_mixed_precision(const pipeline::Profile& profile);

// Sets the state of such a profile, at all its widths.
void keep_state(const TrainingState& state, pipeline::Profile* profile);

}  // namespace automap::infer
