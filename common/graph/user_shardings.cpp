#include "common/graph/user_shardings.h"

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/graph/hlo_sharding.h"

namespace automap::graph {

namespace {

// What it is split by, as it is written; empty when it is whole.
std::string_view written_split(const Graph& graph, InstructionId id) {
  if (const std::optional<std::string_view> raw = graph.attribute(id, "sharding")) {
    HloSharding sharding;
    if (!read_sharding(*raw, &sharding).empty()) return {};
    return sharding.splits() ? *raw : std::string_view();
  }
  // #sdy.sharding<@mesh, [{"x"}, {}]>: an axis is a quoted name, whose quotes are escaped where text holds them.
  const std::optional<std::string_view> raw = graph.attribute(id, "frontend_attributes");
  if (!raw) return {};
  const std::size_t begin = raw->find("#sdy.sharding");
  if (begin == std::string_view::npos) return {};
  const bool split =
      raw->find("{\\\"", begin) != std::string_view::npos || raw->find("{\"", begin) != std::string_view::npos;
  const std::size_t end = raw->find('>', begin);
  return split ? raw->substr(begin, end == std::string_view::npos ? end : end + 1 - begin) : std::string_view();
}

std::string counted(std::int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

std::string user_shardings_text(const Graph& graph) {
  std::int64_t parameters = 0, inside = 0;
  std::string first;
  for (InstructionId id = 0; id < graph.num_instructions(); ++id) {
    const Instruction& instruction = graph.instruction(id);
    const bool parameter = instruction.opcode == Opcode::kParameter;
    if (parameter && instruction.computation != graph.entry_id()) continue;
    const std::string_view split = written_split(graph, id);
    if (split.empty()) continue;
    if (first.empty() || (parameter && parameters == 0))
      first = std::string(instruction.name) + ": " + std::string(split);
    ++(parameter ? parameters : inside);
  }
  if (parameters + inside == 0) return "";
  constexpr std::size_t kShown = 80;
  if (first.size() > kShown) first = first.substr(0, kShown) + "...";
  return "the module's own shardings, of " + (parameters > 0 ? counted(parameters, "parameter") : std::string()) +
         (parameters > 0 && inside > 0 ? " and " : "") + (inside > 0 ? counted(inside, "value") + " inside" : "") +
         " (" + first + "), are set aside: nothing is planned or priced by them";
}

}  // namespace automap::graph
