// Writes a strategy of FlexFlow's space (plan/systems/soap) for XLA, where XLA can execute it.
//
// XLA runs one program on all devices, and has one sharding for every tensor. So an operator has to use all devices: as
// many parts as there are devices, each on its own, or, where it cannot be split so often, in a number of parts that
// divides theirs; then every part is computed several times (the plan has it once, on fewer devices). The place of each
// part is free: tiles may name devices in any order, and XLA moves the inputs that the next operator needs elsewhere.
// Degrees of several dimensions need no mesh with axes of a kind.
#pragma once

#include <string>

#include "common/graph/training_step.h"
#include "plan/systems/soap/operators.h"

namespace automap::emit {

// The reason why no single program is the strategy, in a sentence that names the operator; empty: one is.
std::string why_no_mesh(const soap::Space& space, const soap::Strategy& strategy, int devices);

// "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}": a tensor that lies so in an operator of this configuration.
std::string soap_sharding(const soap::LaidTensor& tensor, const soap::Config& config, int devices);

// The module's text with shardings on the results of the operators' main instructions, on variables, the optimizer's
// slots of their shape, and the new values of these among the results; all else is left to XLA's propagation, further
// parameters and results are whole everywhere. Throws Error(kData) as emit_hlo (emit.h), and for a module that runs its
// whole step in a loop; Error(kUsage) with why_no_mesh.
std::string emit_soap_hlo(const graph::TrainingStep& step, const soap::ModelSpace& model,
                          const soap::Strategy& strategy, int devices);

}  // namespace automap::emit
