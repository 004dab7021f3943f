// The learned searcher, when it is installed: in a library that is opened on demand (common/base/plugin.h).
#pragma once

#include <string>
#include <vector>

#include "plan/partition/partition_search.h"

namespace automap::partition {

// Runs plan/partition/learned/rainbow.h's rainbow_search; empty when the library is in none of the folders. Costs a
// look at the file system; the library is opened by the first call of the result, which throws Error(kConfig) when it
// cannot be (LibTorch is gone) or is of another version. SIGINT ends a search early with the best so far when a
// StopToken lives.
RainbowSearch find_rainbow();
RainbowSearch find_rainbow(const std::vector<std::string>& folders);

}  // namespace automap::partition
