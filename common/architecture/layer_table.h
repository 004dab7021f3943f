// The layer language: a model's layers as a JSON table (docs/describing-models.md).
#pragma once

#include <string>

#include "common/architecture/model.h"
#include "common/base/json.h"

namespace automap::architecture {

// Throws Error(kData) naming `source`, the place in it, and what was expected.
Model read_layer_table(const Json& json, const std::string& source);

}  // namespace automap::architecture
