// The learned searcher, when it is there. LibTorch takes 0.4 s and 160 MB to start, so that automap-search is not
// linked with it: the searcher is a library of its own (libautomap_partition_learned.so) that is opened when it is
// asked for.
#pragma once

#include <string>
#include <vector>

#include "plan/partition/partition_search.h"

namespace automap::partition {

// Where the library may be, in this order: beside the program (build folder), and where it is installed.
std::vector<std::string> rainbow_folders();

// Runs plan/partition/learned/rainbow.h's rainbow_search; empty when the library is in none of the folders. Costs a
// look at the file system; the library is opened by the first call of the result, which throws Error(kConfig) when it
// cannot be (LibTorch is gone) or is of another version. SIGINT ends a search early with the best so far when a
// StopToken lives.
RainbowSearch find_rainbow();
RainbowSearch find_rainbow(const std::vector<std::string>& folders);

}  // namespace automap::partition
