#include "common/graph/variable_updates.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

namespace automap::graph {

namespace {

constexpr std::int32_t kSeveral = -2;

// "opt_state[0].mu['layer_0']['kernel']" -> opt_state 0 mu layer_0 kernel, from the end.
std::vector<std::string> words_from_end(const std::string& name) {
  std::vector<std::string> words;
  std::string word;
  for (std::size_t i = name.size(); i-- > 0;) {
    const char c = name[i];
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      word += c;
    } else if (!word.empty()) {
      words.emplace_back(word.rbegin(), word.rend());
      word.clear();
    }
  }
  if (!word.empty()) words.emplace_back(word.rbegin(), word.rend());
  return words;
}

class Finder {
 public:
  explicit Finder(const TrainingStep& step) : step_(step), flow_(step.flow) {}

  VariableUpdates run() {
    const auto n = static_cast<std::size_t>(flow_.size());
    stamp_.assign(n, 0);
    for (std::size_t v = 0; v < step_.variables.size(); ++v) {
      const EntryInput& input = variable(v);
      out_.gradient_bytes.push_back(gradient_bytes(input));
      own(input.node, static_cast<std::int32_t>(v));
      if (input.gradient != kNone) own(input.gradient, static_cast<std::int32_t>(v));
    }
    out_.slot_of.assign(step_.inputs.size(), kNone);
    for (std::size_t k = 0; k < step_.inputs.size(); ++k) {
      const EntryInput& input = step_.inputs[k];
      if (input.role != InputRole::kSlot) continue;
      out_.slot_of[k] = variable_of_slot(input);
      if (out_.slot_of[k] != kNone) own(input.node, out_.slot_of[k]);
    }
    find_workers();
    return std::move(out_);
  }

 private:
  const EntryInput& variable(std::size_t v) const { return step_.inputs[static_cast<std::size_t>(step_.variables[v])]; }
  bool is_optimizer(NodeId id) const { return step_.part[static_cast<std::size_t>(id)] == Part::kOptimizer; }
  // Numbers (norms, rates) couple variables; they belong to none.
  bool is_number(NodeId id) const { return flow_.shape(id).is_array() && flow_.shape(id).num_elements <= 1; }

  void own(NodeId node, std::int32_t v) {
    const auto [it, added] = owned_.try_emplace(node, v);
    if (!added && it->second != v) it->second = kSeveral;
  }

  // The same values in another type or form.
  bool keeps_all(NodeId from, NodeId to) const {
    return is_movement(flow_, to) && flow_.operands(to)[0] == from &&
           flow_.shape(to).num_elements == flow_.shape(from).num_elements && is_float(flow_.shape(to));
  }

  double gradient_bytes(const EntryInput& input) const {
    const Shape& shape = flow_.shape(input.node);
    if (input.gradient == kNone || !is_float(flow_.shape(input.gradient))) return static_cast<double>(shape.bytes);
    int bits = flow_.shape(input.gradient).bits;
    for (NodeId id = input.gradient; is_movement(flow_, id);) {
      const NodeId before = flow_.operands(id)[0];
      if (!keeps_all(before, id) || !is_float(flow_.shape(before))) break;
      id = before;
      bits = std::min(bits, flow_.shape(id).bits);
    }
    constexpr int kLongest = 16;
    NodeId id = input.gradient;
    for (int steps = 0; steps < kLongest && flow_.users(id).size() == 1; ++steps) {
      const NodeId user = flow_.users(id)[0];
      if (step_.micro_batch_loop != kNone && flow_.node(user).opcode == Opcode::kAdd) {
        bits = flow_.shape(user).bits;
        break;
      }
      if (!keeps_all(id, user)) break;
      id = user;
      bits = std::min(bits, flow_.shape(id).bits);
    }
    return static_cast<double>(shape.num_elements) * bits / 8;
  }

  // The one variable whose gradient, or which itself, reaches the slot's new value through the optimizer.
  std::int32_t variable_of_slot(const EntryInput& slot) {
    if (slot.result != kNone) {
      ++epoch_;
      std::vector<NodeId> open{flow_.results()[static_cast<std::size_t>(slot.result)]};
      std::int32_t found = kNone;
      constexpr std::size_t kFar = 2000;
      for (std::size_t at = 0; at < open.size(); ++at) {
        const NodeId id = open[at];
        const auto owner = owned_.find(id);
        if (owner != owned_.end()) {
          if (owner->second == kSeveral || (found != kNone && found != owner->second)) {
            found = kSeveral;
            break;
          }
          found = owner->second;
          continue;
        }
        if (!is_optimizer(id)) continue;
        if (open.size() > kFar) {
          found = kSeveral;
          break;
        }
        for (const NodeId operand : flow_.operands(id)) {
          auto& stamp = stamp_[static_cast<std::size_t>(operand)];
          if (stamp == epoch_ || is_number(operand)) continue;
          stamp = epoch_;
          open.push_back(operand);
        }
      }
      if (found >= 0) return found;
    }
    return variable_by_name(slot);
  }

  std::int32_t variable_by_name(const EntryInput& slot) {
    if (words_.empty()) {
      for (std::size_t v = 0; v < step_.variables.size(); ++v) words_.push_back(words_from_end(variable(v).name));
    }
    const std::vector<std::string> words = words_from_end(slot.name);
    std::size_t longest = 0;
    std::int32_t best = kNone;
    for (std::size_t v = 0; v < words_.size(); ++v) {
      if (flow_.shape(variable(v).node).dims != flow_.shape(slot.node).dims) continue;
      std::size_t common = 0;
      while (common < words.size() && common < words_[v].size() && words[common] == words_[v][common]) ++common;
      if (common > longest) {
        longest = common;
        best = static_cast<std::int32_t>(v);
      } else if (common == longest) {
        best = kNone;
      }
    }
    return longest == 0 ? kNone : best;
  }

  // Assigns a node to the variable whose update needs it; if several need it (a norm over all gradients), by its
  // operands.
  void find_workers() {
    const auto n = static_cast<std::size_t>(flow_.size());
    std::vector<std::int32_t>& worker = out_.worker_of;
    worker.assign(n, kNone);
    const auto join = [](std::int32_t* into, std::int32_t v) {
      if (v == kNone || *into == v) return;
      *into = *into == kNone ? v : kSeveral;
    };
    const auto want = [&](const EntryInput& input, std::int32_t v) {
      if (input.result == kNone || v == kNone) return;
      const NodeId leaf = flow_.results()[static_cast<std::size_t>(input.result)];
      if (is_optimizer(leaf)) join(&worker[static_cast<std::size_t>(leaf)], v);
    };
    for (std::size_t v = 0; v < step_.variables.size(); ++v) want(variable(v), static_cast<std::int32_t>(v));
    for (std::size_t k = 0; k < step_.inputs.size(); ++k) want(step_.inputs[k], out_.slot_of[k]);
    for (NodeId id = flow_.size(); id-- > 0;) {
      if (!is_optimizer(id)) continue;
      for (const NodeId user : flow_.users(id)) {
        if (is_optimizer(user)) join(&worker[static_cast<std::size_t>(id)], worker[static_cast<std::size_t>(user)]);
      }
    }
    for (NodeId id = 0; id < flow_.size(); ++id) {
      auto& mine = worker[static_cast<std::size_t>(id)];
      if (!is_optimizer(id) || mine >= 0) continue;
      std::int32_t reads = kNone;
      for (const NodeId operand : flow_.operands(id)) {
        if (is_number(operand)) continue;
        const auto owner = owned_.find(operand);
        join(&reads, owner != owned_.end() ? owner->second : worker[static_cast<std::size_t>(operand)]);
      }
      mine = reads;
    }
    for (std::int32_t& v : worker) v = std::max(v, kNone);
  }

  const TrainingStep& step_;
  const FlowGraph& flow_;
  VariableUpdates out_;
  std::unordered_map<NodeId, std::int32_t> owned_;  // gradients, variables and slots: their variable
  std::vector<std::int32_t> stamp_;
  std::int32_t epoch_ = 0;
  std::vector<std::vector<std::string>> words_;
};

}  // namespace

VariableUpdates find_variable_updates(const TrainingStep& step) {
  return Finder(step).run();
}

}  // namespace automap::graph
