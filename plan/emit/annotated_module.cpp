#include "plan/emit/annotated_module.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/base/error.h"
#include "common/graph/dependence.h"
#include "common/graph/hlo_attributes.h"
#include "common/graph/variables.h"

namespace automap::emit {

namespace {

using graph::Attribute;
using graph::Graph;
using graph::Instruction;
using graph::InstructionId;
using graph::kNone;
using graph::Opcode;
using graph::Shape;
using graph::ShapeId;

bool starts_with(std::string_view s, std::string_view prefix) {
  return s.substr(0, prefix.size()) == prefix;
}

// The pieces of "{a, {b, c}, \"d, e\"}" between its outer braces.
std::vector<std::string_view> split_list(std::string_view raw) {
  std::vector<std::string_view> pieces;
  if (raw.size() < 2 || raw.front() != '{' || raw.back() != '}') return pieces;
  raw = raw.substr(1, raw.size() - 2);
  int depth = 0;
  bool quoted = false;
  std::size_t begin = 0;
  const auto finish = [&](std::size_t end) {
    std::string_view piece = raw.substr(begin, end - begin);
    while (!piece.empty() && (piece.front() == ' ' || piece.front() == '\n')) piece.remove_prefix(1);
    while (!piece.empty() && (piece.back() == ' ' || piece.back() == '\n')) piece.remove_suffix(1);
    if (!piece.empty()) pieces.push_back(piece);
    begin = end + 1;
  };
  for (std::size_t i = 0; i < raw.size(); ++i) {
    const char c = raw[i];
    if (quoted) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        quoted = false;
      }
      continue;
    }
    if (c == '"') quoted = true;
    if (c == '{' || c == '(' || c == '[') ++depth;
    if (c == '}' || c == ')' || c == ']') --depth;
    if (c == ',' && depth == 0) finish(i);
  }
  finish(raw.size());
  return pieces;
}

// frontend_attributes without Shardy's; nullopt: it has none of them. "": nothing is left.
std::optional<std::string> without_shardy(std::string_view raw) {
  if (raw.find("xla.sdy.") == std::string_view::npos) return std::nullopt;
  std::string kept;
  bool dropped = false;
  for (const std::string_view piece : split_list(raw)) {
    if (starts_with(piece, "xla.sdy.") || starts_with(piece, "\"xla.sdy.")) {
      dropped = true;
      continue;
    }
    kept += (kept.empty() ? "" : ",") + std::string(piece);
  }
  if (!dropped) return std::nullopt;
  return kept.empty() ? kept : "{" + kept + "}";
}

std::string target(const Graph& graph, InstructionId id) {
  if (graph.instruction(id).opcode != Opcode::kCustomCall) return "";
  return graph::string_attribute(graph, id, "custom_call_target");
}

bool says_sharding(const Graph& graph, InstructionId id) {
  const std::string called = target(graph, id);
  return graph.instruction(id).opcode == Opcode::kDomain || called == "Sharding" || starts_with(called, "xla.sdy.");
}

bool becomes_copy(const Graph& graph, InstructionId id) {
  const Shape& shape = graph.shape_of(id);
  return says_sharding(graph, id) && graph.instruction(id).num_operands == 1 &&
         !(shape.is_tuple() && shape.elements.empty());
}

bool alike(const Shape& a, const Shape& b) {
  return a.is_array() == b.is_array() && a.dims == b.dims && a.type == b.type;
}

}  // namespace

void refuse_partitioned(const Graph& graph) {
  for (InstructionId id = 0; id < graph.num_instructions(); ++id) {
    const Instruction& i = graph.instruction(id);
    const std::string name = "%" + std::string(i.name);
    if (i.opcode == Opcode::kConstant && i.payload.find("{...}") != std::string_view::npos) {
      throw Error(ErrorKind::kData,
                  "the module leaves out the values of constants (" + name + " = " +
                      std::string(graph.shape_of(id).text) + " constant({...})), so nothing can run it",
                  "write it again with all values: lowered.as_text(\"hlo\", debug_info=True) in JAX, or "
                  "--xla_dump_large_constants with XLA's dumps");
    }
    if (graph.attribute(id, "channel_id") && graph::is_collective(i.opcode)) {
      throw Error(ErrorKind::kData,
                  "the module is partitioned already: " + name + " is a collective between its partitions",
                  "take the module as it was before XLA's partitioner (before_optimizations)");
    }
    if (becomes_copy(graph, id) && !alike(graph.shape_of(id), graph.shape_of(graph.operands(id)[0]))) {
      throw Error(ErrorKind::kData, name + " is an annotation, but makes " + std::string(graph.shape_of(id).text) +
                                        " of " + std::string(graph.shape_of(graph.operands(id)[0]).text));
    }
    const std::string called = target(graph, id);
    if (graph::enters_shards(called) || graph::leaves_shards(called)) {
      throw Error(ErrorKind::kData,
                  "the module partitions a part of itself by hand (shard_map): " + name + " is " + called,
                  "export the step without shard_map");
    }
  }
}

std::string joined_shardings(const Graph& graph, ShapeId shape, const std::vector<std::string>& leaves) {
  if (!graph.shape(shape).is_tuple()) return leaves.empty() ? "{replicated}" : leaves[0];
  if (leaves.empty()) return "";  // nothing to shard
  std::string out = "{";
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (i != 0) out += ", ";
    if (i != 0 && i % 5 == 0) out += "/*index=" + std::to_string(i) + "*/";
    out += leaves[i];
  }
  return out + "}";
}

AnnotatedModule::AnnotatedModule(const graph::FlowGraph& flow, int devices, std::vector<std::string> input_leaves,
                                 std::vector<std::string> result_leaves)
    : flow_(flow),
      graph_(flow.graph()),
      devices_(devices),
      input_leaves_(std::move(input_leaves)),
      result_leaves_(std::move(result_leaves)) {}

void AnnotatedModule::write_with(hlo::WriteOptions* options) const {
  options->num_partitions = devices_;
  options->attribute = [this](InstructionId id, const Attribute& a) { return attribute(id, a); };
  options->opcode = [this](InstructionId id) { return opcode(id); };
}

bool AnnotatedModule::splits_anything() const {
  const auto split = [](const std::string& text) { return text != "{replicated}"; };
  return std::any_of(input_leaves_.begin(), input_leaves_.end(), split) ||
         std::any_of(result_leaves_.begin(), result_leaves_.end(), split);
}

// Annotations inside the module: XLA shall follow ours alone.
std::optional<hlo::OpcodeEdit> AnnotatedModule::opcode(InstructionId id) const {
  if (!says_sharding(graph_, id)) return std::nullopt;
  const Shape& shape = graph_.shape_of(id);
  if (shape.is_tuple() && shape.elements.empty()) return hlo::OpcodeEdit{"tuple", false};
  if (becomes_copy(graph_, id)) return hlo::OpcodeEdit{"copy", true};
  return std::nullopt;
}
std::optional<std::string> AnnotatedModule::attribute(InstructionId id, const Attribute& a) const {
  if (a.key == "frontend_attributes") return without_shardy(a.value);
  if (id != kNone) return std::nullopt;
  if (starts_with(a.key, "allow_spmd_sharding_propagation") || a.key == "use_auto_spmd_partitioning" ||
      starts_with(a.key, "auto_spmd_partitioning") || starts_with(a.key, "spmd_")) {
    return "";
  }
  if (a.key == "input_output_alias") return aliases(a.value);
  return std::nullopt;
}

// Without the buffers that cannot be reused, because the result is split otherwise than the input.
std::optional<std::string> AnnotatedModule::aliases(std::string_view raw) const {
  const std::vector<std::int32_t> input_of = graph::read_aliases(flow_);
  std::vector<std::string> parted;  // "{3}"; "{}": of a result that is no tuple
  const Shape& root = graph_.shape_of(graph_.entry().root);
  for (std::size_t r = 0; r < input_of.size(); ++r) {
    if (input_of[r] == kNone || result_leaves_[r] == input_leaves_[static_cast<std::size_t>(input_of[r])]) continue;
    parted.push_back(root.is_tuple() ? "{" + std::to_string(r) + "}" : "{}");
  }
  // Leaves of tuples in tuples are not told apart: none of those keeps its buffer in a module that is split.
  const bool nested = std::any_of(root.elements.begin(), root.elements.end(),
                                  [&](ShapeId element) { return graph_.shape(element).is_tuple(); });
  if (nested) return !splits_anything() ? std::nullopt : std::optional<std::string>("");
  if (parted.empty()) return std::nullopt;
  std::string kept;
  for (const std::string_view piece : split_list(raw)) {
    const std::string result(piece.substr(0, piece.find(':')));
    if (std::find(parted.begin(), parted.end(), result) != parted.end()) continue;
    kept += (kept.empty() ? "" : ", ") + std::string(piece);
  }
  return kept.empty() ? kept : "{ " + kept + " }";
}

}  // namespace automap::emit
