// Converts an HloModuleProto to a Graph.
#pragma once

#include <string>
#include <vector>

#include "common/graph/graph_builder.h"
#include "common/hlo/hlo_proto.h"

namespace automap::hlo::proto {

// Consumes the module. The graph keeps copies of the data that it needs; the decoded bytes may go afterwards.
//
// Ids: a reference means the instruction of the same computation with exactly this id, else the one with the same low
// 32 bits (newer XLA packs computation_id << 32 | local id, some writers only in one of the two places). A missing id
// is 0, as everywhere in proto3. The entry is the computation with entry_computation_id and entry_computation_name as
// far as they are given, else the last. Instructions that stand before their operands are put behind them.
//
// Throws Error(kData) naming `source`, the computation and the instruction: an id that names nothing or two things, a
// cycle, no root, a literal that does not fit its shape, and everything that GraphBuilder refuses in text, too.
graph::Graph build_graph(HloModuleProto module, const std::string& source,
                         const std::vector<std::string>& unknown_types, graph::Faults faults = graph::Faults::kRefuse);

}  // namespace automap::hlo::proto
