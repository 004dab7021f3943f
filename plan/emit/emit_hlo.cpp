#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/hlo/hlo_writer.h"
#include "common/sharding/reads.h"
#include "plan/emit/annotated_module.h"
#include "plan/emit/combined_sums.h"
#include "plan/emit/emit.h"
#include "plan/emit/inner_shardings.h"

namespace automap::emit {

using namespace partition;

namespace {

using graph::Graph;
using graph::Instruction;
using graph::InstructionId;
using graph::kNone;
using graph::Opcode;
using sharding::ShardingModel;

class Emitter {
 public:
  explicit Emitter(const Layout& layout)
      : layout_(layout), model_(layout.model()), graph_(model_.graph()), sums_(layout) {}

  std::string emit() {
    refuse_partitioned(graph_);
    inputs();
    results();
    for (auto& [id, text] : inner_shardings(layout_)) {
      if (id != graph_.entry().root) of_instruction_.emplace_back(id, text);
    }
    std::sort(of_instruction_.begin(), of_instruction_.end());
    hlo::WriteOptions options;
    const AnnotatedModule annotated(model_.flow(), layout_.devices(), std::move(input_leaves_),
                                    std::move(result_leaves_));
    annotated.write_with(&options);
    options.sharding = [&](InstructionId id) { return sharding_of(id); };
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

  void inputs() {
    const graph::Computation& entry = graph_.entry();
    std::vector<std::vector<std::string>> leaves(entry.parameters.size());
    for (const sharding::ModelInput& input : model_.inputs()) {
      leaves[static_cast<std::size_t>(input.parameter)].push_back(layout_.text(input.node));
      input_leaves_.push_back(layout_.text(input.node));
    }
    for (std::size_t p = 0; p < leaves.size(); ++p) {
      of_instruction_.emplace_back(entry.parameters[p],
                                   joined_shardings(graph_, graph_.instruction(entry.parameters[p]).shape, leaves[p]));
    }
  }

  void results() {
    const InstructionId root = graph_.entry().root;
    result_leaves_ = layout_.result_texts();
    std::string text = joined_shardings(graph_, graph_.instruction(root).shape, result_leaves_);
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
    gather_before_loops(reads, &texts);
    return texts;
  }

  // A value that a loop hands on unchanged and its body reads gathered enters the loop gathered: once, for all turns
  // and, being the same in front of every loop, for all loops. Annotated in the body alone it would be gathered in
  // each.
  void gather_before_loops(const Reads& reads, OperandTexts* texts) const {
    const graph::FlowGraph& flow = model_.flow();
    std::map<std::pair<InstructionId, std::size_t>, std::vector<std::string>> before;
    for (const auto& [key, of_axes] : reads) {
      const auto [reader, tensor] = key;
      const InstructionId loop = outermost_loop_between(flow.node(reader).site, flow.node(tensor).site);
      if (loop == kNone) continue;
      const InstructionId state = graph_.operands(loop)[0];
      if (graph_.instruction(state).opcode != Opcode::kTuple) continue;
      const auto elements = graph_.operands(state);
      for (std::size_t i = 0; i < elements.size(); ++i) {
        if (elements[i] != flow.node(tensor).instruction || !graph_.shape_of(elements[i]).is_array()) continue;
        const std::vector<std::string> through = layout_.texts_read(tensor, of_axes);
        const auto [place, added] = before.try_emplace({state, i}, through);
        if (!added && place->second != through) place->second.clear();  // read in several ways: left to the body
      }
    }
    for (auto& [operand, through] : before) {
      if (!through.empty()) texts->emplace(operand, std::move(through));
    }
  }

  // The outermost of the loops around `site` that are not around `outer`, in which `site` lies; kNone where there is
  // none.
  InstructionId outermost_loop_between(std::int32_t site, std::int32_t outer) const {
    InstructionId found = kNone;
    for (; site != kNone && site != outer;) {
      const graph::CallSite& call = model_.flow().sites()[static_cast<std::size_t>(site)];
      if (graph_.instruction(call.caller).opcode == Opcode::kWhile) found = call.caller;
      site = call.parent;
    }
    return site == outer ? found : kNone;
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
