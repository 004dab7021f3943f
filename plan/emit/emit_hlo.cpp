#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/graph/hlo_attributes.h"
#include "common/hlo/hlo_writer.h"
#include "plan/emit/emit.h"
#include "plan/emit/inner_shardings.h"

namespace automap::emit {

using namespace partition;

namespace {

using graph::Attribute;
using graph::Graph;
using graph::Instruction;
using graph::InstructionId;
using graph::kNone;
using graph::Opcode;
using graph::Shape;
using graph::ShapeId;
using sharding::ShardingModel;

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

// One sharding per leaf: of an array the leaf's own, of a tuple "{{...}, {...}}"; empty tuples have no leaves.
std::string joined(const Graph& graph, ShapeId shape, const std::vector<std::string>& leaves) {
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

class Emitter {
 public:
  Emitter(const ShardingModel& model, const sharding::Propagation& decided)
      : model_(model), decided_(decided), graph_(model.graph()), shards_(model.linkage().shards()) {}

  std::string emit() {
    refuse();
    inputs();
    results();
    for (auto& [id, text] : inner_shardings(model_, decided_)) {
      if (id != graph_.entry().root) of_instruction_.emplace_back(id, text);
    }
    std::sort(of_instruction_.begin(), of_instruction_.end());
    hlo::WriteOptions options;
    options.num_partitions = shards_;
    options.sharding = [&](InstructionId id) { return sharding_of(id); };
    options.attribute = [&](InstructionId id, const Attribute& a) { return attribute(id, a); };
    options.opcode = [&](InstructionId id) { return opcode(id); };
    auto of_operand = operand_shardings(model_, decided_);
    for (const auto& operand : gathered_operands()) of_operand[operand] = "{replicated}";
    options.operand_sharding = [&](InstructionId id, std::size_t operand) -> std::optional<std::string> {
      const auto found = of_operand.find({id, operand});
      return found == of_operand.end() ? std::nullopt : std::optional<std::string>(found->second);
    };
    return hlo::edit_hlo_text(graph_, options);
  }

 private:
  std::string text_of(sharding::NodeId node) const {
    const Shape& shape = model_.flow().shape(node);
    return sharding_text(decided_.state(node), shape.is_array() ? shape.dims.size() : 0, shards_);
  }

  std::string target(InstructionId id) const {
    if (graph_.instruction(id).opcode != Opcode::kCustomCall) return "";
    return graph::string_attribute(graph_, id, "custom_call_target");
  }

  // What cannot be partitioned by annotations.
  void refuse() const {
    for (InstructionId id = 0; id < graph_.num_instructions(); ++id) {
      const Instruction& i = graph_.instruction(id);
      const std::string name = "%" + std::string(i.name);
      if (i.opcode == Opcode::kConstant && i.payload.find("{...}") != std::string_view::npos) {
        throw Error(ErrorKind::kData,
                    "the module leaves out the values of constants (" + name + " = " +
                        std::string(graph_.shape_of(id).text) + " constant({...})), so nothing can run it",
                    "write it again with all values: lowered.as_text(\"hlo\", debug_info=True) in JAX, or "
                    "--xla_dump_large_constants with XLA's dumps");
      }
      if (graph_.attribute(id, "channel_id") && graph::is_collective(i.opcode)) {
        throw Error(ErrorKind::kData,
                    "the module is partitioned already: " + name + " is a collective between its partitions",
                    "take the module as it was before XLA's partitioner (before_optimizations)");
      }
      const std::string called = target(id);
      if (called == "SPMDFullToShardShape" || called == "SPMDShardToFullShape" ||
          called == "xla.sdy.GlobalToLocalShape" || called == "xla.sdy.LocalToGlobalShape") {
        throw Error(ErrorKind::kData,
                    "the module partitions a part of itself by hand (shard_map): " + name + " is " + called,
                    "export the step without shard_map");
      }
    }
  }

  void inputs() {
    const graph::Computation& entry = graph_.entry();
    std::vector<std::vector<std::string>> leaves(entry.parameters.size());
    for (const sharding::ModelInput& input : model_.inputs()) {
      leaves[static_cast<std::size_t>(input.parameter)].push_back(text_of(input.node));
      input_leaves_.push_back(text_of(input.node));
    }
    for (std::size_t p = 0; p < leaves.size(); ++p) {
      of_instruction_.emplace_back(entry.parameters[p],
                                   joined(graph_, graph_.instruction(entry.parameters[p]).shape, leaves[p]));
    }
  }

  void results() {
    const InstructionId root = graph_.entry().root;
    std::vector<std::string> leaves;
    const std::vector<sharding::TensorState> states = result_states(model_, decided_);
    for (std::size_t r = 0; r < states.size(); ++r) {
      const Shape& shape = model_.flow().shape(model_.flow().results()[r]);
      leaves.push_back(sharding_text(states[r], shape.is_array() ? shape.dims.size() : 0, shards_));
    }
    result_leaves_ = leaves;
    std::string text = joined(graph_, graph_.instruction(root).shape, leaves);
    for (auto& [id, sharding] : of_instruction_) {
      if (id == root) return;  // a module that returns its parameter
    }
    of_instruction_.emplace_back(root, std::move(text));
    std::sort(of_instruction_.begin(), of_instruction_.end());
  }

  std::optional<std::string> sharding_of(InstructionId id) const {
    const auto at = std::lower_bound(of_instruction_.begin(), of_instruction_.end(), id,
                                     [](const auto& entry, InstructionId wanted) { return entry.first < wanted; });
    if (at != of_instruction_.end() && at->first == id) return at->second;
    return graph_.attribute(id, "sharding") ? std::optional<std::string>("") : std::nullopt;
  }

  // (instruction, number of the operand) that are read whole because of a gather, wherever the instruction runs. Read
  // through an annotation: left to find out by itself, XLA may exchange rows instead, or (slices of a batch put
  // together in another order) make a module that its own verifier refuses.
  std::set<std::pair<InstructionId, std::size_t>> gathered_operands() const {
    const graph::FlowGraph& flow = model_.flow();
    std::set<std::pair<sharding::NodeId, sharding::NodeId>> reads;
    std::set<InstructionId> readers;
    for (const sharding::Gather& gather : model_.gathers()) {
      const sharding::TensorState state = decided_.state(gather.tensor);
      if (flow.producer(gather.tensor) == gather.op || state.kind != sharding::TensorStateKind::kSplit ||
          state.dim != gather.dim) {
        continue;
      }
      reads.emplace(gather.op, gather.tensor);
      readers.insert(flow.node(gather.op).instruction);
    }
    std::set<std::pair<InstructionId, std::size_t>> whole, otherwise;
    if (reads.empty()) return whole;
    for (sharding::NodeId node = 0; node < flow.size(); ++node) {
      const InstructionId id = flow.node(node).instruction;
      if (readers.count(id) == 0 || flow.producer(node) != node) continue;
      const auto operands = flow.operands(node);
      if (operands.size() != graph_.operands(id).size() || flow.node(node).opcode != graph_.instruction(id).opcode ||
          flow.node(node).opcode == Opcode::kConditional || flow.node(node).opcode == Opcode::kOptBarrier) {
        continue;
      }
      for (std::size_t i = 0; i < operands.size(); ++i) {
        (reads.count({node, operands[i]}) != 0 ? whole : otherwise).emplace(id, i);
      }
    }
    for (const auto& operand : otherwise) whole.erase(operand);
    return whole;
  }

  // Annotations inside the module: XLA shall follow ours alone.
  std::optional<hlo::OpcodeEdit> opcode(InstructionId id) const {
    const Instruction& i = graph_.instruction(id);
    if (i.opcode == Opcode::kDomain && i.num_operands == 1) return hlo::OpcodeEdit{"copy", true};
    const std::string called = target(id);
    if (called != "Sharding" && !starts_with(called, "xla.sdy.")) return std::nullopt;
    const Shape& shape = graph_.shape_of(id);
    if (shape.is_tuple() && shape.elements.empty()) return hlo::OpcodeEdit{"tuple", false};
    if (i.num_operands == 1) return hlo::OpcodeEdit{"copy", true};
    return std::nullopt;
  }

  std::optional<std::string> attribute(InstructionId id, const Attribute& a) const {
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
  std::optional<std::string> aliases(std::string_view raw) const {
    const std::vector<std::int32_t> input_of = graph::read_aliases(model_.flow());
    std::vector<std::string> parted;  // "{3}"; "{}": of a result that is no tuple
    const Shape& root = graph_.shape_of(graph_.entry().root);
    for (std::size_t r = 0; r < input_of.size(); ++r) {
      if (input_of[r] == kNone || result_leaves_[r] == input_leaves_[static_cast<std::size_t>(input_of[r])]) continue;
      parted.push_back(root.is_tuple() ? "{" + std::to_string(r) + "}" : "{}");
    }
    // Leaves of tuples in tuples are not told apart: none of those keeps its buffer in a module that is split.
    const bool nested = std::any_of(root.elements.begin(), root.elements.end(),
                                    [&](ShapeId element) { return graph_.shape(element).is_tuple(); });
    if (nested) return decided_.split_groups().empty() ? std::nullopt : std::optional<std::string>("");
    if (parted.empty()) return std::nullopt;
    std::string kept;
    for (const std::string_view piece : split_list(raw)) {
      const std::string result(piece.substr(0, piece.find(':')));
      if (std::find(parted.begin(), parted.end(), result) != parted.end()) continue;
      kept += (kept.empty() ? "" : ", ") + std::string(piece);
    }
    return kept.empty() ? kept : "{ " + kept + " }";
  }

  const ShardingModel& model_;
  const sharding::Propagation& decided_;
  const Graph& graph_;
  const int shards_;
  std::vector<std::pair<InstructionId, std::string>> of_instruction_;  // ascending
  std::vector<std::string> input_leaves_, result_leaves_;
};

}  // namespace

std::string sharding_text(const sharding::TensorState& state, std::size_t rank, int shards) {
  if (state.kind != sharding::TensorStateKind::kSplit || shards <= 1) return "{replicated}";
  std::string out = "{devices=[";
  for (std::size_t d = 0; d < rank; ++d) {
    if (d != 0) out += ",";
    out += static_cast<std::int32_t>(d) == state.dim ? std::to_string(shards) : "1";
  }
  return out + "]<=[" + std::to_string(shards) + "]}";
}

std::string emit_hlo(const ShardingModel& model, const sharding::Propagation& decided) {
  return Emitter(model, decided).emit();
}

}  // namespace automap::emit
