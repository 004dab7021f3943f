#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/graph/hlo_attributes.h"
#include "common/hlo/hlo_writer.h"
#include "common/sharding/reads.h"
#include "plan/emit/combined_sums.h"
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
  explicit Emitter(const Layout& layout)
      : layout_(layout), model_(layout.model()), graph_(model_.graph()), sums_(layout) {}

  std::string emit() {
    refuse();
    inputs();
    results();
    for (auto& [id, text] : inner_shardings(layout_)) {
      if (id != graph_.entry().root) of_instruction_.emplace_back(id, text);
    }
    std::sort(of_instruction_.begin(), of_instruction_.end());
    hlo::WriteOptions options;
    options.num_partitions = layout_.devices();
    options.sharding = [&](InstructionId id) { return sharding_of(id); };
    options.attribute = [&](InstructionId id, const Attribute& a) { return attribute(id, a); };
    options.opcode = [&](InstructionId id) { return opcode(id); };
    OperandTexts of_operand = operands_read_otherwise();
    for (auto& [operand, text] : operand_shardings(layout_))
      of_operand.try_emplace(operand, std::vector<std::string>{text});
    options.operand_shardings = [&](InstructionId id, std::size_t operand) {
      const auto found = of_operand.find({id, operand});
      return found == of_operand.end() ? std::vector<std::string>() : found->second;
    };
    if (!sums_.empty()) {
      options.local_operand = [&](InstructionId id, std::size_t i) { return sums_.local_operand(id, i); };
      options.summed = [&](InstructionId id) { return sums_.summed(id); };
      options.read_partial = [&](InstructionId id, std::size_t i) { return sums_.read_partial(id, i); };
    }
    return hlo::edit_hlo_text(graph_, options);
  }

 private:
  // (reader, tensor) -> by axis, how the reader finds the tensor.
  using Reads = std::map<std::pair<sharding::NodeId, sharding::NodeId>, std::vector<sharding::Read>>;
  // (instruction, number of the operand) -> the annotations that it is read through.
  using OperandTexts = std::map<std::pair<InstructionId, std::size_t>, std::vector<std::string>>;

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
      if (becomes_copy(id) && !alike(graph_.shape_of(id), graph_.shape_of(graph_.operands(id)[0]))) {
        throw Error(ErrorKind::kData, name + " is an annotation, but makes " + std::string(graph_.shape_of(id).text) +
                                          " of " + std::string(graph_.shape_of(graph_.operands(id)[0]).text));
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
      leaves[static_cast<std::size_t>(input.parameter)].push_back(layout_.text(input.node));
      input_leaves_.push_back(layout_.text(input.node));
    }
    for (std::size_t p = 0; p < leaves.size(); ++p) {
      of_instruction_.emplace_back(entry.parameters[p],
                                   joined(graph_, graph_.instruction(entry.parameters[p]).shape, leaves[p]));
    }
  }

  void results() {
    const InstructionId root = graph_.entry().root;
    result_leaves_ = layout_.result_texts();
    std::string text = joined(graph_, graph_.instruction(root).shape, result_leaves_);
    for (auto& [id, sharding] : of_instruction_) {
      if (id == root) return;  // a module that returns its parameter
    }
    of_instruction_.emplace_back(root, std::move(text));
    std::sort(of_instruction_.begin(), of_instruction_.end());
  }

  std::optional<std::string> sharding_of(InstructionId id) const {
    if (sums_.by_hand(id)) return "{manual}";
    const auto at = std::lower_bound(of_instruction_.begin(), of_instruction_.end(), id,
                                     [](const auto& entry, InstructionId wanted) { return entry.first < wanted; });
    if (at != of_instruction_.end() && at->first == id) return at->second;
    return graph_.attribute(id, "sharding") ? std::optional<std::string>("") : std::nullopt;
  }

  // Operands that are read otherwise than they lie because of a gather, wherever the instruction runs. Through
  // annotations: left to find out by itself, XLA may exchange rows instead, or (slices of a batch put together in
  // another order) make a module that its own verifier refuses.
  OperandTexts operands_read_otherwise() const {
    const graph::FlowGraph& flow = model_.flow();
    Reads reads;
    std::set<InstructionId> readers;
    for (std::size_t axis = 0; axis < layout_.num_axes(); ++axis) {
      for (const sharding::Read& read : sharding::reads_of(layout_.model(axis), layout_.decided(axis))) {
        // An elementwise instruction's own annotation says which part of its operands it takes.
        if (!read.gathered && !read.exchanged() && !is_product(flow.node(read.reader).opcode)) continue;
        reads.try_emplace({read.reader, read.tensor}, layout_.num_axes()).first->second[axis] = read;
        readers.insert(flow.node(read.reader).instruction);
      }
    }
    OperandTexts texts;
    if (reads.empty()) return texts;
    const std::set<sharding::NodeId> read_otherwise = tensors_read_otherwise(reads);
    for (const sharding::NodeId tensor : read_otherwise) {
      for (const sharding::NodeId user : flow.users(tensor)) {
        if (is_product(flow.node(user).opcode)) readers.insert(flow.node(user).instruction);
      }
    }
    std::set<std::pair<InstructionId, std::size_t>> otherwise;
    for (sharding::NodeId node = 0; node < flow.size(); ++node) {
      const InstructionId id = flow.node(node).instruction;
      if (readers.count(id) == 0 || flow.producer(node) != node) continue;
      const auto operands = flow.operands(node);
      if (operands.size() != graph_.operands(id).size() || flow.node(node).opcode != graph_.instruction(id).opcode ||
          flow.node(node).opcode == Opcode::kConditional || flow.node(node).opcode == Opcode::kOptBarrier) {
        continue;
      }
      for (std::size_t i = 0; i < operands.size(); ++i) {
        const auto found = reads.find({node, operands[i]});
        std::vector<std::string> through =
            found == reads.end() ? std::vector<std::string>() : layout_.texts_read(operands[i], found->second);
        if (through.empty() && is_product(flow.node(node).opcode) && read_otherwise.count(operands[i]) != 0 &&
            !is_annotated(graph_.operands(id)[i])) {
          through = {layout_.text(operands[i])};
        }
        const auto [place, added] = texts.try_emplace({id, i}, through);
        if (through.empty() || (!added && place->second != through)) otherwise.emplace(id, i);
      }
    }
    for (const auto& operand : otherwise) texts.erase(operand);
    return texts;
  }

  // XLA may take a reader's annotation of a tensor without one of its own for all its readers.
  std::set<sharding::NodeId> tensors_read_otherwise(const Reads& reads) const {
    std::set<sharding::NodeId> tensors;
    for (const auto& [key, of_axes] : reads) {
      if (!layout_.texts_read(key.second, of_axes).empty()) tensors.insert(key.second);
    }
    return tensors;
  }
  bool is_annotated(InstructionId id) const {
    const auto text = sharding_of(id);
    return text.has_value() && !text->empty();
  }

  static bool is_product(Opcode opcode) { return opcode == Opcode::kDot || opcode == Opcode::kConvolution; }

  // Annotations inside the module: XLA shall follow ours alone.
  std::optional<hlo::OpcodeEdit> opcode(InstructionId id) const {
    if (!says_sharding(id)) return std::nullopt;
    const Shape& shape = graph_.shape_of(id);
    if (shape.is_tuple() && shape.elements.empty()) return hlo::OpcodeEdit{"tuple", false};
    if (becomes_copy(id)) return hlo::OpcodeEdit{"copy", true};
    return std::nullopt;
  }
  bool says_sharding(InstructionId id) const {
    const std::string called = target(id);
    return graph_.instruction(id).opcode == Opcode::kDomain || called == "Sharding" || starts_with(called, "xla.sdy.");
  }
  bool becomes_copy(InstructionId id) const {
    const Shape& shape = graph_.shape_of(id);
    return says_sharding(id) && graph_.instruction(id).num_operands == 1 &&
           !(shape.is_tuple() && shape.elements.empty());
  }
  static bool alike(const Shape& a, const Shape& b) {
    return a.is_array() == b.is_array() && a.dims == b.dims && a.type == b.type;
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
    if (nested) return !layout_.splits_anything() ? std::nullopt : std::optional<std::string>("");
    if (parted.empty()) return std::nullopt;
    std::string kept;
    for (const std::string_view piece : split_list(raw)) {
      const std::string result(piece.substr(0, piece.find(':')));
      if (std::find(parted.begin(), parted.end(), result) != parted.end()) continue;
      kept += (kept.empty() ? "" : ", ") + std::string(piece);
    }
    return kept.empty() ? kept : "{ " + kept + " }";
  }

  const Layout& layout_;
  const ShardingModel& model_;  // of any axis: for what they share
  const Graph& graph_;
  const CombinedSums sums_;
  std::vector<std::pair<InstructionId, std::string>> of_instruction_;  // ascending
  std::vector<std::string> input_leaves_, result_leaves_;
};

}  // namespace

std::string emit_hlo(const Layout& layout) {
  return Emitter(layout).emit();
}

std::string emit_hlo(const ShardingModel& model, const sharding::Propagation& decided) {
  return emit_hlo(Layout({{&model, &decided}}));
}

}  // namespace automap::emit
