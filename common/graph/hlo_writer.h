// Graph -> HLO text that XLA's own parser accepts, and that read_hlo_text reads back to the same graph: opcodes,
// shapes, layouts, operands, attributes, parameters, roots, header. Callees are printed before their callers.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/graph/graph.h"

namespace automap::graph {

struct WriteOptions {
  bool metadata = true;         // metadata={...} and the stack-frame tables it refers to
  bool operand_shapes = false;  // "add(f32[2] %a, f32[2] %b)": the older spelling
  // The sharding to print for an instruction, raw ("{devices=[2,1]<=[2]}"), in place of the one it has. nullopt keeps
  // what it has, "" drops it. Empty function: nothing changes.
  std::function<std::optional<std::string>(InstructionId)> sharding;
  // Printed as num_partitions=N in place of what the header says; 0 keeps the header.
  int num_partitions = 0;
};

std::string write_hlo_text(const Graph& graph, const WriteOptions& options = {});

}  // namespace automap::graph
