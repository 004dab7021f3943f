#include "common/graph/partitioned.h"

#include <algorithm>
#include <string_view>

#include "common/graph/dependence.h"
#include "common/graph/hlo_attributes.h"
#include "common/graph/hlo_sharding.h"

namespace automap::graph {

bool works_on_shards(const Graph& graph) {
  for (InstructionId id = 0; id < graph.num_instructions(); ++id) {
    if (graph.instruction(id).opcode != Opcode::kCustomCall) continue;
    const std::string target = string_attribute(graph, id, "custom_call_target");
    if (target == "SPMDFullToShardShape" || target.find("GlobalToLocalShape") != std::string::npos) return true;
  }
  return false;
}

namespace {

bool crosses_partitions(const Graph& graph, InstructionId id) {
  return is_collective(graph.instruction(id).opcode) && graph.attribute(id, "channel_id").has_value();
}

// "main.2_spmd", "main.2_spmd.1".
bool is_named_so(std::string_view entry) {
  const std::size_t at = entry.rfind("_spmd");
  if (at == std::string_view::npos) return false;
  const std::string_view rest = entry.substr(at + std::string_view("_spmd").size());
  return rest.find_first_not_of(".0123456789") == std::string_view::npos;
}

// The origin of a value, past instructions that hand it on, perhaps with another type or order.
InstructionId origin_of(const Graph& graph, InstructionId id) {
  for (;;) {
    const Instruction& i = graph.instruction(id);
    const bool moves = has_trait(i.opcode, trait::kMovement) || is_annotation(graph, id);
    if (!moves || i.num_operands != 1 || i.opcode == Opcode::kBroadcast || i.opcode == Opcode::kTranspose) return id;
    id = graph.operands(id)[0];
  }
}

// Describes an all-gather that reassembles an annotated parameter; empty for any other.
std::string gathered_parameter(const Graph& graph, InstructionId id) {
  const Opcode opcode = graph.instruction(id).opcode;
  if (opcode != Opcode::kAllGather && opcode != Opcode::kAllGatherStart) return {};
  const std::vector<std::int64_t> dims = int_list_attribute(graph, id, "dimensions");
  for (const InstructionId operand : graph.operands(id)) {
    const InstructionId from = origin_of(graph, operand);
    const std::optional<std::string_view> raw = graph.attribute(from, "sharding");
    HloSharding sharding;
    if (graph.instruction(from).opcode != Opcode::kParameter || !raw || !read_sharding(*raw, &sharding).empty())
      continue;
    if (graph.shape_of(from).dims != graph.shape_of(operand).dims || dims.empty() || dims[0] < 0) continue;
    if (sharding.parts(static_cast<std::size_t>(dims[0])) <= 1) continue;
    return "parameter '" + std::string(graph.instruction(from).name) + "' of shape " +
           std::string(graph.shape_of(from).text) + ", annotated " + std::string(*raw) +
           ", is gathered along dimension " + std::to_string(dims[0]);
  }
  return {};
}

}  // namespace

std::optional<PartitionedModule> find_partitioned(const Graph& graph) {
  bool crosses = false;
  std::string why;
  for (InstructionId id = 0; id < graph.num_instructions() && why.empty(); ++id) {
    if (!is_collective(graph.instruction(id).opcode)) continue;
    crosses = crosses || crosses_partitions(graph, id);
    if (graph.instruction(id).computation == graph.entry_id()) why = gathered_parameter(graph, id);
  }
  if (why.empty() && crosses && is_named_so(graph.entry().name)) {
    why = "its entry '" + std::string(graph.entry().name) + "' has collectives between partitions";
  }
  if (why.empty() || works_on_shards(graph)) return std::nullopt;
  PartitionedModule found;
  found.why = std::move(why);
  if (const auto raw = graph.header_attribute("num_partitions")) {
    found.devices = decode_int(*raw, {"HloModule", "num_partitions"});
  }
  for (const InstructionId id : graph.entry().parameters) {
    const std::optional<std::string_view> raw = graph.attribute(id, "sharding");
    HloSharding sharding;
    if (!raw || !read_sharding(*raw, &sharding).empty() || sharding.kind != HloSharding::Kind::kTiled) continue;
    std::int64_t devices = 1;
    for (const std::int64_t parts : sharding.tiles) devices *= std::clamp<std::int64_t>(parts, 1, 1 << 20);
    if (devices > 0 && devices < (std::int64_t{1} << 31)) found.devices = std::max(found.devices, devices);
  }
  return found;
}

}  // namespace automap::graph
