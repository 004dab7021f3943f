// Workloads from the JSON of msr-fiddle/dnn-partitioning and of msr-fiddle/piper (both MIT), docs/formats/workload.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/systems/placement/workload.h"

namespace automap::placement {

struct WorkloadFile {
  Workload workload;
  std::string sha256;                 // of the bytes given
  std::vector<std::string> warnings;  // what looks wrong, what the model cannot express
};

// One document, of either form (a file of Piper has "maxDevices"). `transfer_scale` multiplies the costs of edges:
// layer graphs of dnn-partitioning give them in seconds beside times in ms, which is read as it stands and warned of.
// Not checked by check_workload yet, so that devices can still be changed. Throws Error(kData) naming source, path,
// found and expected: keys that are not known, an id given twice, edges to nodes that are not there, to themselves or
// given twice, different costs on the edges of one node, negative numbers.
WorkloadFile parse_workload(std::string_view json_text, const std::string& source, double transfer_scale = 1);
// True if `bytes` (already gunzipped) are to be read as a workload: JSON that is neither HLO nor one of our files.
bool looks_like_workload(std::string_view bytes);

// The form of msr-fiddle/dnn-partitioning, which parse_workload reads to the same workload. A machine without a limit
// of memory has kNoLimitBytes there. A node's transfer stands at its edges: of one without a reader it is lost.
constexpr double kNoLimitBytes = 1e18;
std::string workload_json_text(const Workload& workload);

WorkloadFile load_workload(const std::string& path, double transfer_scale = 1);  // gzipped or not; - is standard input

}  // namespace automap::placement
