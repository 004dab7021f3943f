// Reads Hugging Face's config.json into a table of layers.
#pragma once

#include <string>

#include "common/architecture/model.h"
#include "common/base/json.h"

namespace automap::architecture {

// `source` names the file in errors.
// Throws Error(kData): an architecture that is not known (and those that are), a key that is missing (and its names),
// a size out of range.
Model read_config(const Json& json, const std::string& source);

}  // namespace automap::architecture
