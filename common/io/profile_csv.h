// Reads and writes profiles as CSV (docs/formats/profile.md): the columns by position and the attributes. Times at
// other numbers of samples and shared weights have no place there.
#pragma once

#include <string>
#include <string_view>

#include "common/pipeline/profile.h"

namespace automap::io {

bool is_profile_csv(std::string_view bytes);
// Throws Error(kData) naming `source` and the line. The result has not passed check_profile.
pipeline::Profile parse_profile_csv(std::string_view text, const std::string& source);

}  // namespace automap::io
