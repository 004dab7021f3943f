// Reads the arguments of Megatron-LM's pretrain_gpt.py as a model.
#pragma once

#include <string>
#include <string_view>

#include "common/architecture/model.h"

namespace automap::architecture {

bool is_megatron(std::string_view text);

// `said` takes the sequence and the type that the arguments name.
// Throws Error(kData) naming `source`, the argument, and what was expected.
Model read_megatron(std::string_view text, const std::string& source, StepOptions* said);

}  // namespace automap::architecture
