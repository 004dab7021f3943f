// Reads the output of nccl-tests (all_reduce_perf, sendrecv_perf, ...): a header of "#" lines, of which one names each
// rank, then a row per size: bytes, elements, type, operation, root, and time in us out of place and in place.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/machine/collectives.h"
#include "common/machine/link_fit.h"

namespace automap::machine {

struct NcclLog {
  CollectiveKind operation = CollectiveKind::kAllReduce;
  int devices = 0;                  // ranks
  int servers = 0;                  // host names among them
  std::vector<MeasuredTime> times;  // sizes of 0 bytes left out; of two times of a size the shorter one
};

// Lines may begin as mpirun tags them ("[1,0]<stdout>:").
// Throws Error(kConfig) "source:line:column: ..." on what is no such table, on another test, on wrong results, on fewer
// ranks than the header says, on a row that has fewer columns than the header or no number, on times that are not above
// 0 or that halve although the size grows, on sizes that do not grow, on a size left out of those that the header says,
// and on a log that ends before the last of them.
NcclLog parse_nccl_log(std::string_view text, const std::string& source);

}  // namespace automap::machine
