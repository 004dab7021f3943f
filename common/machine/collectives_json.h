// `collectives` of cluster files: docs/formats/cluster.md.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/base/json_reader.h"
#include "common/machine/links.h"

namespace automap::machine {

// An array of measured operations. Logs of nccl-tests are read where their path says, from `folder` on. Throws
// Error(kConfig) naming the element, or the log's line and column; Error(kIo) when a log cannot be read.
MeasuredLinks read_collectives(const JsonValue& value, const std::string& folder);
// Its lines: read_collectives of it gives the same.
nlohmann::ordered_json collectives_json(const MeasuredLinks& links);

}  // namespace automap::machine
