// Prints a profile for people and as JSON for scripts (docs/formats/printed.md).
#pragma once

#include <string>

#include "common/base/json.h"
#include "profile/profiler.h"

namespace automap::profile {

// Schema automap.profile-report/1, with a newline at the end. `measured`: whose times it is scaled by; null: nobody's.
std::string report_json(const ModelProfile& profile, const std::string& form, const Json& measured = Json());
// `width`: the columns that there are (report_columns); 0: as many as it takes.
std::string report_text(const ModelProfile& profile, const std::string& form, int width = 0);

}  // namespace automap::profile
