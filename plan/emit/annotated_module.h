// Shared preparation of every module that is written with shardings, whatever decided them: modules that annotations
// cannot partition are refused, annotations of others become copies, and attributes that refer to them are removed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/graph/dependence.h"
#include "common/graph/graph.h"
#include "common/hlo/hlo_writer.h"

namespace automap::emit {

// Throws Error(kData) when XLA could not run or partition it: elided constants ("{...}"), a module that is partitioned
// already, one that partitions a part of itself by hand (shard_map).
void refuse_partitioned(const graph::Graph& graph);

// One sharding per leaf as that of the shape: of an array the leaf's own, of a tuple "{{...}, {...}}"; empty tuples
// have none.
std::string joined_shardings(const graph::Graph& graph, graph::ShapeId shape, const std::vector<std::string>& leaves);

class AnnotatedModule {
 public:
  // `flow` must stay alive. Shardings of the leaves of all parameters, and of the result, as HLO text.
  AnnotatedModule(const graph::FlowGraph& flow, int devices, std::vector<std::string> input_leaves,
                  std::vector<std::string> result_leaves);

  // num_partitions, attributes and opcodes; sharding is the caller's. `this` must outlive the writing.
  void write_with(hlo::WriteOptions* options) const;

 private:
  std::optional<std::string> attribute(graph::InstructionId id, const graph::Attribute& a) const;
  std::optional<hlo::OpcodeEdit> opcode(graph::InstructionId id) const;
  std::optional<std::string> aliases(std::string_view raw) const;
  bool splits_anything() const;

  const graph::FlowGraph& flow_;
  const graph::Graph& graph_;
  const int devices_;
  const std::vector<std::string> input_leaves_, result_leaves_;
};

}  // namespace automap::emit
