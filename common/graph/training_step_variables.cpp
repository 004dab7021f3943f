#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "common/graph/training_step_analysis.h"

namespace automap::graph {

void StepAnalysis::take_requested(TrainingStep* step, const std::vector<std::int32_t>& aliases) const {
  auto& inputs = step->inputs;
  std::vector<std::int32_t> of_request;
  step->variables = match_requests(inputs, *options_.variables, &of_request);
  std::unordered_map<std::int32_t, std::int32_t> result_of = pair_results(inputs, aliases, step->variables);
  for (std::size_t v = 0; v < step->variables.size(); ++v) {
    EntryInput& input = inputs[static_cast<std::size_t>(step->variables[v])];
    const auto found = result_of.find(step->variables[v]);
    if (found == result_of.end()) continue;
    input.result = found->second;
    input.gradient = updates_[static_cast<std::size_t>(found->second)].gradient;
  }
  for (std::size_t r = 0; r < of_request.size(); ++r) {
    const std::string& name = (*options_.variables)[r].name;
    if (!name.empty()) inputs[static_cast<std::size_t>(of_request[r])].name = name;
  }
  step->variables_found_by = "as listed by the user";
}

void StepAnalysis::find_variables(TrainingStep* step) {
  auto& inputs = step->inputs;
  const std::vector<std::int32_t> aliases = read_aliases(*flow_);
  // The inputs that the gradients are made from: those that reach any source of an update.
  Marks core(n(), false);
  for (const ResultUpdate& update : updates_) {
    for (const NodeId source : update.sources) core[static_cast<std::size_t>(source)] = true;
  }
  close_over_ancestors(&core);
  const auto is_core = [&](std::size_t input) { return core[static_cast<std::size_t>(inputs[input].node)]; };

  if (options_.variables != nullptr) return take_requested(step, aliases);

  // Pairs by data flow, then the inputs whose new value does not contain the old one (a low-precision copy of a
  // master weight): by alias, then by order among equal shapes.
  std::vector<Candidate> candidates;
  std::vector<bool> paired(inputs.size(), false), used(updates_.size(), false);
  for (std::size_t r = 0; r < updates_.size(); ++r) {
    const ResultUpdate& update = updates_[r];
    if (update.input == kNone) continue;
    const auto input = static_cast<std::size_t>(update.input);
    paired[input] = true;
    if (is_core(input) && is_float(flow_->shape(inputs[input].node)) && !update.sources.empty()) {
      candidates.push_back({update.input, static_cast<std::int32_t>(r)});
      used[r] = true;
    }
  }
  keep_self_dependent(inputs, &candidates);
  // A weight that was paired with an average of it, or with nothing.
  std::vector<bool> chosen(inputs.size(), false);
  for (const Candidate& c : candidates) chosen[static_cast<std::size_t>(c.input)] = true;
  std::vector<Candidate> copies;
  std::vector<bool> result_taken(updates_.size(), false);
  for (std::size_t r = 0; r < updates_.size(); ++r) {
    const std::int32_t owner = updates_[r].input;
    // A result of the owner's own type is the owner's.
    result_taken[r] = owner != kNone && flow_->node(inputs[static_cast<std::size_t>(owner)].node).shape ==
                                            flow_->node(flow_->results()[r]).shape;
  }
  const auto fits = [&](std::size_t input, std::size_t r) {
    return !result_taken[r] && !updates_[r].sources.empty() &&
           flow_->node(inputs[input].node).shape == flow_->node(flow_->results()[r]).shape;
  };
  for (std::size_t r = 0; r < updates_.size(); ++r) {
    if (aliases[r] == kNone) continue;
    const auto input = static_cast<std::size_t>(aliases[r]);
    if (chosen[input] || paired[input] || !is_core(input) || !is_float(flow_->shape(inputs[input].node))) continue;
    if (!fits(input, r)) continue;
    copies.push_back({aliases[r], static_cast<std::int32_t>(r)});
    result_taken[r] = true;
    paired[input] = true;
  }
  std::size_t from = 0;
  for (std::size_t input = 0; input < inputs.size(); ++input) {
    if (paired[input] || !is_core(input) || !is_float(flow_->shape(inputs[input].node))) continue;
    if (flow_->shape(inputs[input].node).num_elements <= 1) continue;
    for (std::size_t r = from; r < updates_.size(); ++r) {
      if (!fits(input, r)) continue;
      copies.push_back({static_cast<std::int32_t>(input), static_cast<std::int32_t>(r)});
      result_taken[r] = true;
      from = r + 1;
      break;
    }
  }
  keep_self_dependent(inputs, &copies);
  // Copies alone: the module may return bare gradients, or be an inference module whose results look like inputs.
  const bool bare = candidates.empty();
  if (bare) {
    // Some frameworks return gradients in the order they are made, so the order of the results is one guess only.
    std::vector<Candidate> mirrored;
    for (const auto& [input, result] : pair_by_depth(inputs, core, paired)) mirrored.push_back({input, result});
    keep_self_dependent(inputs, &mirrored);
    if (mirrored.size() > copies.size()) copies = std::move(mirrored);
    if (!reads_twice(inputs, copies)) copies.clear();
  }
  // Beside found variables a few chance matches of inputs are no copies: they come as a whole.
  if (!bare && copies.size() < std::max<std::size_t>(1, candidates.size() / 4)) copies.clear();
  for (const Candidate& c : copies) candidates.push_back(c);
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.input < b.input; });
  for (const Candidate& c : candidates) {
    EntryInput& input = inputs[static_cast<std::size_t>(c.input)];
    input.result = c.result;
    input.gradient = updates_[static_cast<std::size_t>(c.result)].gradient;
    if (input.gradient == kNone) input.gradient = updates_[static_cast<std::size_t>(c.result)].sources.front();
    step->variables.push_back(c.input);
  }
  step->variables_found_by = copies.empty() ? "the results that a gradient updates, by data flow"
                             : bare ? "the results that are gradients, paired with the parameters by order and shape"
                                    : "the results that a gradient updates, by data flow; copies of them by aliases, "
                                      "order and shape";
}

// Bare gradients: the earlier a weight is used, the later its gradient is made. Among inputs and results of one shape
// (only where there are as many of the one as of the other) the first-used input goes with the deepest result.
std::vector<std::pair<std::int32_t, std::int32_t>> StepAnalysis::pair_by_depth(const std::vector<EntryInput>& inputs,
                                                                               const Marks& core,
                                                                               const std::vector<bool>& paired) const {
  std::vector<std::int32_t> depth(n(), 0);
  for (NodeId id = 0; id < flow_->size(); ++id) {
    for (const NodeId operand : flow_->operands(id)) {
      auto& d = depth[static_cast<std::size_t>(id)];
      d = std::max(d, depth[static_cast<std::size_t>(operand)] + 1);
    }
  }
  struct Item {
    std::int32_t depth, index;
  };
  std::unordered_map<ShapeId, std::pair<std::vector<Item>, std::vector<Item>>> by_shape;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const NodeId node = inputs[k].node;
    if (paired[k] || !core[static_cast<std::size_t>(node)] || !is_float(flow_->shape(node))) continue;
    std::int32_t first = -1;
    std::vector<NodeId> queue{node};
    for (std::size_t at = 0; at < queue.size() && queue.size() < 64; ++at) {
      for (const NodeId user : flow_->users(queue[at])) {
        if (is_movement(*flow_, user)) {
          queue.push_back(user);
        } else if (first < 0 || depth[static_cast<std::size_t>(user)] < first) {
          first = depth[static_cast<std::size_t>(user)];
        }
      }
    }
    if (first >= 0) by_shape[flow_->node(node).shape].first.push_back({first, static_cast<std::int32_t>(k)});
  }
  std::vector<std::pair<std::int32_t, std::int32_t>> out;
  std::set<NodeId> seen;
  for (std::size_t r = 0; r < updates_.size(); ++r) {
    const NodeId leaf = flow_->results()[r];
    if (updates_[r].input != kNone || updates_[r].sources.empty() || !seen.insert(leaf).second) continue;
    by_shape[flow_->node(leaf).shape].second.push_back(
        {depth[static_cast<std::size_t>(leaf)], static_cast<std::int32_t>(r)});
  }
  for (auto& [shape, lists] : by_shape) {
    if (lists.first.size() != lists.second.size()) continue;
    std::stable_sort(lists.first.begin(), lists.first.end(),
                     [](const Item& a, const Item& b) { return a.depth < b.depth; });
    std::stable_sort(lists.second.begin(), lists.second.end(),
                     [](const Item& a, const Item& b) { return a.depth > b.depth; });
    for (std::size_t i = 0; i < lists.first.size(); ++i) out.emplace_back(lists.first[i].index, lists.second[i].index);
  }
  std::sort(out.begin(), out.end());
  return out;
}

// For requested variables: pairs by data flow, then aliases, then order and shape.
std::unordered_map<std::int32_t, std::int32_t> StepAnalysis::pair_results(
    const std::vector<EntryInput>& inputs, const std::vector<std::int32_t>& aliases,
    const std::vector<std::int32_t>& wanted) const {
  std::unordered_map<std::int32_t, std::int32_t> result_of;
  std::vector<bool> taken(updates_.size(), false);
  const std::unordered_set<std::int32_t> want(wanted.begin(), wanted.end());
  for (std::size_t r = 0; r < updates_.size(); ++r) {
    const std::int32_t input = updates_[r].input;
    if (input == kNone) continue;
    taken[r] = true;
    if (want.count(input) != 0) result_of.emplace(input, static_cast<std::int32_t>(r));
  }
  for (std::size_t r = 0; r < updates_.size(); ++r) {
    if (taken[r] || aliases[r] == kNone || want.count(aliases[r]) == 0) continue;
    if (result_of.emplace(aliases[r], static_cast<std::int32_t>(r)).second) taken[r] = true;
  }
  std::size_t from = 0;
  std::vector<std::int32_t> ordered(want.begin(), want.end());
  std::sort(ordered.begin(), ordered.end());
  for (const std::int32_t input : ordered) {
    if (result_of.count(input) != 0) continue;
    for (std::size_t r = from; r < updates_.size(); ++r) {
      if (taken[r] || updates_[r].sources.empty() ||
          flow_->node(inputs[static_cast<std::size_t>(input)].node).shape != flow_->node(flow_->results()[r]).shape)
        continue;
      result_of.emplace(input, static_cast<std::int32_t>(r));
      taken[r] = true;
      from = r + 1;
      break;
    }
  }
  return result_of;
}

// Keeps the candidates whose gradient depends on the input itself. (A running mean is updated by a mean that does
// not depend on it.) 64 inputs per sweep.
void StepAnalysis::keep_self_dependent(const std::vector<EntryInput>& inputs,
                                       std::vector<Candidate>* candidates) const {
  std::vector<std::uint64_t> mask(n());
  std::vector<Candidate> kept;
  for (std::size_t begin = 0; begin < candidates->size(); begin += 64) {
    const std::size_t end = std::min(begin + 64, candidates->size());
    std::fill(mask.begin(), mask.end(), 0);
    for (std::size_t c = begin; c < end; ++c) {
      const EntryInput& input = inputs[static_cast<std::size_t>((*candidates)[c].input)];
      mask[static_cast<std::size_t>(input.node)] |= std::uint64_t{1} << (c - begin);
    }
    spread_forward(&mask);
    for (std::size_t c = begin; c < end; ++c) {
      const ResultUpdate& update = updates_[static_cast<std::size_t>((*candidates)[c].result)];
      const std::uint64_t bit = std::uint64_t{1} << (c - begin);
      if (std::any_of(update.sources.begin(), update.sources.end(),
                      [&](NodeId source) { return (mask[static_cast<std::size_t>(source)] & bit) != 0; }))
        kept.push_back((*candidates)[c]);
    }
  }
  *candidates = std::move(kept);
}

// Each node's bits |= its operands' bits. The elements of an optimization barrier wait for each other.
void StepAnalysis::spread_forward(std::vector<std::uint64_t>* mask) const {
  for (NodeId id = 0; id < flow_->size(); ++id) {
    const auto i = static_cast<std::size_t>(id);
    const FlowNode& node = flow_->node(id);
    if (node.opcode == Opcode::kOptBarrier && node.leaf == 0) {
      std::uint64_t all = 0;
      NodeId end = id;
      for (; end < flow_->size() && is_same_barrier(id, end); ++end)
        all |= (*mask)[static_cast<std::size_t>(flow_->operands(end)[0])];
      for (NodeId element = id; element < end; ++element) (*mask)[static_cast<std::size_t>(element)] |= all;
      id = end - 1;
      continue;
    }
    std::uint64_t bits = (*mask)[i];
    for (const NodeId operand : flow_->operands(id)) bits |= (*mask)[static_cast<std::size_t>(operand)];
    (*mask)[i] = bits;
  }
}

bool StepAnalysis::is_same_barrier(NodeId first, NodeId other) const {
  const FlowNode& a = flow_->node(first);
  const FlowNode& b = flow_->node(other);
  return b.opcode == Opcode::kOptBarrier && b.instruction == a.instruction && b.site == a.site &&
         b.leaf == other - first;
}

// True if some candidate is read by two matrix products one of which depends on the other: once forward, once
// transposed. No inference module does that with an input that it hands back.
bool StepAnalysis::reads_twice(const std::vector<EntryInput>& inputs, const std::vector<Candidate>& candidates) const {
  int tries = 0;
  for (const Candidate& c : candidates) {
    std::vector<NodeId> queue{inputs[static_cast<std::size_t>(c.input)].node}, products;
    for (std::size_t at = 0; at < queue.size() && queue.size() < 64; ++at) {
      for (const NodeId user : flow_->users(queue[at])) {
        if (is_matmul(flow_->node(user).opcode)) {
          products.push_back(user);
        } else if (is_movement(*flow_, user)) {
          queue.push_back(user);
        }
      }
    }
    if (products.size() < 2) continue;
    std::sort(products.begin(), products.end());
    if (++tries > 12) return false;
    std::vector<std::uint64_t> mask(n(), 0);
    const std::size_t count = std::min<std::size_t>(products.size(), 64);
    for (std::size_t p = 0; p < count; ++p) mask[static_cast<std::size_t>(products[p])] |= std::uint64_t{1} << p;
    spread_forward(&mask);
    for (std::size_t p = 0; p < count; ++p) {
      if ((mask[static_cast<std::size_t>(products[p])] & ~(std::uint64_t{1} << p)) != 0) return true;
    }
  }
  return false;
}

}  // namespace automap::graph
