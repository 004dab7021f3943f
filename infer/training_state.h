// What software keeps of each parameter: a step written down as a module says its own.
#pragma once

#include "common/pipeline/profile.h"

namespace automap::infer {

constexpr double kMasterBytes = 4;  // of a parameter in f32

// Bytes for each parameter that is stored as f32 and computed with in 16 bits. 0: as the module has it. Where weights
// are kept in 16 bits there is an f32 copy beside the optimizer's moments, which ZeRO shards with them.
struct TrainingState {
  double weight = 0;                                                   // replicas hold it, ZeRO 3 gathers it
  double gradient = 0;                                                 // added up, and summed over replicas
  bool copies() const { return weight > 0 && weight < kMasterBytes; }  // there is one in f32 beside the moments
};

// Whether weights are f32 and gradients are made in 16 bits, beside an optimizer's slots: what software then keeps is
// its own choice.
bool has_mixed_precision(const pipeline::Profile& profile);

// Of such a profile, at all its widths.
void keep_state(const TrainingState& state, pipeline::Profile* profile);

}  // namespace automap::infer
