#include "plan/emit/inner_shardings.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "common/sharding/rule.h"
#include "plan/emit/emit.h"

namespace automap::emit {

using namespace partition;

namespace {

using graph::InstructionId;
using graph::kNone;
using graph::Opcode;
using sharding::NodeId;

// An empty text stands for uses in different states.
template <typename Key>
void note(std::map<Key, std::string>* texts, const Key& key, const std::string& text) {
  const auto [at, added] = texts->emplace(key, text);
  if (!added && at->second != text) at->second.clear();
}
template <typename Key>
std::map<Key, std::string> without_differing(std::map<Key, std::string> texts) {
  for (auto at = texts.begin(); at != texts.end();) at = at->second.empty() ? texts.erase(at) : std::next(at);
  return texts;
}

class Chooser {
 public:
  Chooser(const Layout& layout, std::size_t axis)
      : layout_(layout),
        model_(layout.model(axis)),
        flow_(model_.flow()),
        graph_(model_.graph()),
        linkage_(model_.linkage()),
        decided_(layout.decided(axis)),
        made_whole_(layout.made_whole(axis)),
        chosen_(static_cast<std::size_t>(graph_.num_instructions()), false) {}

  // By instruction: whether this axis wants it annotated.
  std::vector<bool> run() {
    if (decided_.split_groups().empty()) return chosen_;
    for (const sharding::GroupId group : decided_.split_groups()) {
      for (const std::int32_t index : linkage_.factors_of_group(group)) {
        const sharding::OpFactor& factor = linkage_.factor(index);
        for (const NodeId node : factor.partial) choose(node);
        if (model_.halos() && flow_.node(factor.op).opcode == Opcode::kConvolution) choose(factor.op);
      }
    }
    find_shared();
    for (NodeId node = 0; node < flow_.size(); ++node) {
      if (linkage_.is_free(node)) {
        if (cannot_be_split(flow_.node(node).instruction)) choose(node);
      } else if (linkage_.is_tensor(node) && (reads_shared(node) || in_loop(node))) {
        choose(node);
      }
    }
    for (const graph::FlowLoop& loop : flow_.loops()) {
      for (const auto* nodes : {&loop.initial, &loop.next}) {
        for (const NodeId node : *nodes) {
          if (!linkage_.is_tensor(node)) continue;
          choose(node);
          for (const NodeId user : flow_.users(node)) {
            if (linkage_.is_tensor(user)) choose(user);
          }
        }
      }
    }
    choose_around_calls();
    choose_free_read_whole();
    for (const sharding::Gather& gather : model_.gathers()) {
      choose(gather.op);
      for (const NodeId operand : flow_.operands(gather.op)) {
        if (linkage_.is_tensor(operand)) choose(operand);
      }
    }
    return chosen_;
  }

  // Texts for all instructions that any axis has chosen.
  std::map<InstructionId, std::string> texts(const std::vector<bool>& chosen) {
    chosen_ = chosen;
    return texts();
  }

  std::map<std::pair<InstructionId, std::size_t>, std::string> run_operands() {
    std::map<std::pair<InstructionId, std::size_t>, std::string> out;
    if (decided_.split_groups().empty()) return out;
    find_shared();
    for (const graph::FlowLoop& loop : flow_.loops()) {
      const InstructionId state = graph_.operands(loop.instruction)[0];
      if (graph_.instruction(state).opcode != Opcode::kTuple) continue;
      const Span<const InstructionId> elements = graph_.operands(state);
      // Leaves are elements.
      if (!std::all_of(elements.begin(), elements.end(),
                       [&](InstructionId element) { return !graph_.shape_of(element).is_tuple(); })) {
        continue;
      }
      for (std::size_t i = 0; i < loop.initial.size(); ++i) {
        const NodeId initial = loop.initial[i];
        if (!is_free_array(initial) || !linkage_.is_tensor(loop.parameter[i])) continue;
        if (shared_.count(flow_.node(initial).shape) == 0) continue;
        const auto leaf = static_cast<std::size_t>(flow_.node(loop.parameter[i]).leaf);
        const std::string text = text_of(loop.parameter[i]);
        note(&out, std::make_pair(state, leaf), text);
      }
    }
    // XLA's scatters take the splitting of their operand or of their updates, whatever their own annotation says.
    for (NodeId node = 0; node < flow_.size(); ++node) {
      if (flow_.node(node).opcode != Opcode::kScatter || !linkage_.is_tensor(node)) continue;
      const Span<const NodeId> operands = flow_.operands(node);
      for (std::size_t i = 0; i < operands.size(); ++i) {
        if (!is_free_array(operands[i])) continue;
        const bool into = i == 0 && shared_.count(flow_.node(operands[i]).shape) != 0;
        if (!into && (i == 0 || !reads_whole(node, i))) continue;
        const std::string text = into ? text_where_made(node) : "{replicated}";
        note(&out, std::make_pair(flow_.node(node).instruction, i), text);
      }
    }
    read_in_parts(&out);
    return without_differing(std::move(out));
  }

 private:
  void choose(NodeId node) { chosen_[static_cast<std::size_t>(flow_.node(node).instruction)] = true; }

  // A tensor that is made whole and kept in parts is annotated whole where it is made, and in parts where it is read.
  void read_in_parts(std::map<std::pair<InstructionId, std::size_t>, std::string>* out) const {
    std::set<InstructionId> readers;
    std::map<std::pair<InstructionId, std::size_t>, std::string> texts;
    for (const NodeId tensor : made_whole_) {
      for (const NodeId user : flow_.users(tensor)) readers.insert(flow_.node(user).instruction);
    }
    for (NodeId node = 0; !readers.empty() && node < flow_.size(); ++node) {
      const InstructionId id = flow_.node(node).instruction;
      const Span<const NodeId> operands = flow_.operands(node);
      if (readers.count(id) == 0 || flow_.producer(node) != node || operands.size() != graph_.operands(id).size())
        continue;
      for (std::size_t i = 0; i < operands.size(); ++i) {
        const std::string text = made_whole_.count(operands[i]) != 0 ? text_of(operands[i]) : "";
        note(&texts, std::make_pair(id, i), text);
      }
    }
    for (auto& [operand, text] : without_differing(std::move(texts))) out->emplace(operand, text);
  }

  // An instruction that several calls share and run in different states cannot be annotated; its operands and readers
  // can.
  void choose_around_calls() {
    std::vector<NodeId> first(static_cast<std::size_t>(graph_.num_instructions()), kNone);
    std::vector<bool> differs(first.size(), false);
    for (NodeId node = 0; node < flow_.size(); ++node) {
      if (!linkage_.is_tensor(node)) continue;
      const auto id = static_cast<std::size_t>(flow_.node(node).instruction);
      if (first[id] == kNone) {
        first[id] = node;
      } else if (!differs[id]) {
        differs[id] = text_of(first[id]) != text_of(node);
      }
    }
    for (NodeId node = 0; node < flow_.size(); ++node) {
      if (!linkage_.is_tensor(node)) continue;
      for (const NodeId operand : flow_.operands(node)) {
        const bool one = differs[static_cast<std::size_t>(flow_.node(operand).instruction)];
        const bool other = differs[static_cast<std::size_t>(flow_.node(node).instruction)];
        if (one == other || !linkage_.is_tensor(operand)) continue;
        choose(one ? node : operand);
      }
    }
  }

  // XLA makes one of equal constants, so a free tensor may be any other of its shape. A shape is shared when it is read
  // in different states.
  void find_shared() {
    std::map<graph::ShapeId, std::string> states;
    const auto read = [&](NodeId free, const std::string& state) {
      const auto [at, added] = states.emplace(flow_.node(free).shape, state);
      if (!added && at->second != state) shared_.insert(flow_.node(free).shape);
    };
    for (NodeId node = 0; node < flow_.size(); ++node) {
      if (!linkage_.is_tensor(node)) continue;
      const std::string state = text_where_made(node);
      for (const NodeId operand : flow_.operands(node)) {
        if (is_free_array(operand)) read(operand, state);
      }
    }
    for (const graph::FlowLoop& loop : flow_.loops()) {
      for (std::size_t i = 0; i < loop.initial.size(); ++i) {
        if (is_free_array(loop.initial[i]) && linkage_.is_tensor(loop.parameter[i])) {
          read(loop.initial[i], text_of(loop.parameter[i]));
        }
      }
    }
  }

  // A value made of positions that is read whole anywhere is held whole: XLA would take the splitting of another reader
  // of the value's operands, and gather it. A constant spread out is made again wherever it is read.
  void choose_free_read_whole() {
    std::vector<bool> of_positions(static_cast<std::size_t>(flow_.size()), false);
    for (NodeId node = 0; node < flow_.size(); ++node) {
      if (!linkage_.is_free(node)) continue;
      // Or an instruction that puts values together: they differ from place to place.
      const Opcode opcode = flow_.node(node).opcode;
      bool made = opcode == Opcode::kIota || opcode == Opcode::kScatter || opcode == Opcode::kConcatenate ||
                  opcode == Opcode::kPad || opcode == Opcode::kDynamicUpdateSlice || opcode == Opcode::kGather;
      for (const NodeId operand : flow_.operands(node)) made = made || of_positions[static_cast<std::size_t>(operand)];
      of_positions[static_cast<std::size_t>(node)] = made;
    }
    // By instruction: an instruction that several calls share is whole in all of them when it is in one.
    std::vector<bool> whole(static_cast<std::size_t>(graph_.num_instructions()), false);
    const auto is_whole = [&](NodeId node) { return whole[static_cast<std::size_t>(flow_.node(node).instruction)]; };
    for (bool changed = true; changed;) {
      changed = false;
      for (NodeId node = flow_.size(); node-- > 0;) {
        const Span<const NodeId> operands = flow_.operands(node);
        for (std::size_t i = 0; i < operands.size(); ++i) {
          if (!of_positions[static_cast<std::size_t>(operands[i])] || is_whole(operands[i])) continue;
          if (linkage_.is_free(node) ? !is_whole(node) : !reads_whole(node, i)) continue;
          whole[static_cast<std::size_t>(flow_.node(operands[i]).instruction)] = changed = true;
        }
      }
    }
    for (NodeId node = 0; node < flow_.size(); ++node) {
      if (of_positions[static_cast<std::size_t>(node)] && is_whole(node) && is_free_array(node)) choose(node);
    }
  }

  // True if an instruction that is not free reads an operand whole, by the factor that is split.
  bool reads_whole(NodeId node, std::size_t operand) const {
    if (!linkage_.is_tensor(node)) return false;
    if (made_whole_.count(node) != 0) return true;
    const sharding::TensorState state = decided_.state(node);
    if (state.kind != sharding::TensorStateKind::kSplit) return true;
    const InstructionId id = flow_.node(node).instruction;
    const auto result = static_cast<std::int32_t>(graph_.operands(id).size());
    if (flow_.operands(node).size() != graph_.operands(id).size() || !graph_.shape_of(id).is_array()) return false;
    for (const sharding::Factor& factor : sharding::rule_of(graph_, id).factors) {
      const auto has = [&](sharding::SlotDim at) {
        return std::find(factor.dims.begin(), factor.dims.end(), at) != factor.dims.end();
      };
      if (!has({result, state.dim})) continue;
      return std::none_of(factor.dims.begin(), factor.dims.end(),
                          [&](sharding::SlotDim at) { return at.slot == static_cast<std::int32_t>(operand); });
    }
    return false;
  }

  bool is_free_array(NodeId node) const {
    const graph::Shape& shape = flow_.shape(node);
    return linkage_.is_free(node) && shape.is_array() && !shape.dims.empty();
  }

  bool reads_shared(NodeId node) const {
    const Span<const NodeId> operands = flow_.operands(node);
    return std::any_of(operands.begin(), operands.end(), [&](NodeId operand) {
      return is_free_array(operand) && shared_.count(flow_.node(operand).shape) != 0;
    });
  }

  bool in_loop(NodeId node) const {
    for (std::int32_t site = flow_.node(node).site; site != kNone;) {
      const graph::CallSite& call = flow_.sites()[static_cast<std::size_t>(site)];
      if (graph_.instruction(call.caller).opcode == Opcode::kWhile) return true;
      site = call.parent;
    }
    return false;
  }

  // Some dimension of the result of an instruction that computes something.
  bool cannot_be_split(InstructionId id) const {
    const auto result = static_cast<int>(graph_.operands(id).size());
    if (result == 0 || !graph_.shape_of(id).is_array()) return false;
    const std::vector<sharding::BlockedDim> blocked = sharding::rule_of(graph_, id).blocked;
    return std::any_of(blocked.begin(), blocked.end(),
                       [&](const sharding::BlockedDim& one) { return static_cast<int>(one.at.slot) == result; });
  }

  // True for a chain of reshapes that comes back to one of an instruction's several results: after HLO became StableHLO
  // and HLO again, only that instruction is left of it, and the annotation would be taken for one of all its results.
  bool folds_into_several(InstructionId id) const {
    const auto moves_nothing = [&](InstructionId at) {
      const Opcode opcode = graph_.instruction(at).opcode;
      if (graph_.operands(at).size() != 1 || !graph_.shape_of(at).is_array()) return false;
      if (opcode != Opcode::kReshape && opcode != Opcode::kBroadcast && opcode != Opcode::kTranspose &&
          opcode != Opcode::kCopy && opcode != Opcode::kBitcast) {
        return false;
      }
      const graph::Shape& from = graph_.shape_of(graph_.operands(at)[0]);
      return from.is_array() && from.bytes == graph_.shape_of(at).bytes;
    };
    if (!moves_nothing(id)) return false;
    const std::vector<std::int64_t>& dims = graph_.shape_of(id).dims;
    while (moves_nothing(id)) id = graph_.operands(id)[0];
    return graph_.instruction(id).opcode == Opcode::kGetTupleElement && graph_.shape_of(id).dims == dims &&
           graph_.instruction(graph_.operands(id)[0]).opcode != Opcode::kParameter;
  }

  // The sharding of an instruction that computes several results, one splitting each: an annotation of one result alone
  // is lost on the way through StableHLO. Empty where no result was chosen.
  std::string text_of_several(NodeId node) const {
    std::vector<std::string> leaves(graph_.shape_of(flow_.node(node).instruction).elements.size(), "{replicated}");
    bool wanted = chosen_[static_cast<std::size_t>(flow_.node(node).instruction)];
    for (NodeId next = node + 1; next < flow_.size() && flow_.producer(next) == node; ++next) {
      const auto leaf = static_cast<std::size_t>(flow_.node(next).leaf);
      if (leaf >= leaves.size()) return "";
      wanted = wanted || chosen_[static_cast<std::size_t>(flow_.node(next).instruction)] || in_loop(next);
      leaves[leaf] = text_where_made(next);
    }
    std::string out;
    for (const std::string& leaf : leaves) out += (out.empty() ? "{" : ", ") + leaf;
    return wanted ? out + "}" : "";
  }

  std::string text_of(NodeId node) const { return layout_.text(node); }
  std::string text_where_made(NodeId node) const { return layout_.text_where_made(node); }

  std::map<InstructionId, std::string> texts() const {
    std::map<InstructionId, std::string> out;
    for (NodeId node = 0; node < flow_.size(); ++node) {
      const InstructionId id = flow_.node(node).instruction;
      const graph::Shape& shape = graph_.shape_of(id);
      if (shape.is_tuple() && flow_.producer(node) == node &&
          !sharding::rule_family(flow_.node(node).opcode).structural &&
          !sharding::rule_family(flow_.node(node).opcode).opaque) {
        const std::string several = text_of_several(node);
        if (several.empty()) continue;
        note(&out, id, several);
        continue;
      }
      if (!chosen_[static_cast<std::size_t>(id)] || !shape.is_array()) continue;
      if (graph_.instruction(id).opcode == Opcode::kParameter || folds_into_several(id)) continue;
      const std::string text = text_where_made(node);
      note(&out, id, text);
    }
    return without_differing(std::move(out));
  }

  const Layout& layout_;
  const sharding::ShardingModel& model_;
  const graph::FlowGraph& flow_;
  const graph::Graph& graph_;
  const sharding::Linkage& linkage_;
  const sharding::Propagation& decided_;
  const std::set<NodeId>& made_whole_;
  std::set<graph::ShapeId> shared_;  // of free tensors that are read in different states
  std::vector<bool> chosen_;
};

}  // namespace

std::map<InstructionId, std::string> inner_shardings(const Layout& layout) {
  if (!layout.splits_anything()) return {};
  std::vector<bool> chosen;
  for (std::size_t axis = 0; axis < layout.num_axes(); ++axis) {
    const std::vector<bool> of_axis = Chooser(layout, axis).run();
    chosen.resize(of_axis.size(), false);
    for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i] = chosen[i] || of_axis[i];
  }
  return Chooser(layout, 0).texts(chosen);
}

std::map<std::pair<InstructionId, std::size_t>, std::string> operand_shardings(const Layout& layout) {
  std::map<std::pair<InstructionId, std::size_t>, std::string> out;
  for (std::size_t axis = 0; axis < layout.num_axes(); ++axis) out.merge(Chooser(layout, axis).run_operands());
  return out;
}

}  // namespace automap::emit
