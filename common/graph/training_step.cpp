#include "common/graph/training_step.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/graph/hlo_cost.h"
#include "common/graph/trip_count.h"

namespace automap::graph {

const char* to_string(Part part) {
  switch (part) {
    case Part::kInput: return "input";
    case Part::kFree: return "free";
    case Part::kForward: return "forward";
    case Part::kBackward: return "backward";
    case Part::kOptimizer: return "optimizer";
    case Part::kGlue: return "glue";
  }
  return "glue";
}

std::int32_t TrainingStep::count(InputRole role) const {
  return static_cast<std::int32_t>(
      std::count_if(inputs.begin(), inputs.end(), [&](const EntryInput& input) { return input.role == role; }));
}

namespace {

using Marks = std::vector<bool>;

bool is_matmul(Opcode opcode) {
  return opcode == Opcode::kDot || opcode == Opcode::kConvolution;
}

class Analysis {
 public:
  Analysis(const Graph& graph, const TrainingStepOptions& options) : graph_(graph), options_(options) {}

  TrainingStep run() {
    TrainingStep step;
    analyze(&step);
    for (int round = 0; round < 4; ++round) {
      const bool none = step.variables.empty();
      const InstructionId loop = none ? find_state_loop() : find_whole_step_loop(step);
      if (loop == kNone) break;
      step.expanded_whiles.push_back(loop);
      if (!none) step.micro_batch_loop = loop;
      analyze(&step);
      if (!none || !step.variables.empty()) continue;
      // Not a loop of training steps after all.
      step.expanded_whiles.pop_back();
      analyze(&step);
      break;
    }
    describe_loops(&step);
    find_loss(&step);
    assign_parts(&step);
    assign_roles(&step);
    describe(&step);
    return step;
  }

 private:
  void analyze(TrainingStep* step) {
    FlowOptions options;
    options.expanded_whiles = step->expanded_whiles;
    step->flow = FlowGraph::build(graph_, options);
    flow_ = &step->flow;
    free_ = find_free(step->flow);
    step->inputs = list_inputs(step->flow);
    updates_ = find_updates(step->flow, step->inputs, free_);
    step->variables.clear();
    find_variables(step);
  }

  // A loop that hands inputs on as results, changed: several steps in one module, perhaps. The heaviest one.
  InstructionId find_state_loop() const {
    std::unordered_map<NodeId, int> handed;
    for (const NodeId leaf : flow_->results()) {
      const NodeId unit = flow_->producer(leaf);
      if (unit == leaf || flow_->node(unit).opcode != Opcode::kWhile || !is_float(flow_->shape(leaf))) continue;
      const auto index = static_cast<std::size_t>(flow_->node(leaf).leaf);
      if (index >= flow_->operands(unit).size()) continue;
      const NodeId start = skip_movement(*flow_, flow_->operands(unit)[index]);
      if (flow_->node(start).opcode == Opcode::kParameter) ++handed[unit];
    }
    NodeId best = kNone;
    for (const auto& [unit, count] : handed) {
      if (best == kNone || weight(unit) > weight(best) || (weight(unit) == weight(best) && unit < best)) best = unit;
    }
    return best == kNone ? kNone : flow_->node(best).instruction;
  }

  std::size_t n() const { return static_cast<std::size_t>(flow_->size()); }

  // Everything that `marks` needs, itself included. One sweep against the topological order.
  void close_over_ancestors(Marks* marks) const {
    for (NodeId id = flow_->size(); id-- > 0;) {
      if (!(*marks)[static_cast<std::size_t>(id)]) continue;
      for (const NodeId operand : flow_->operands(id)) (*marks)[static_cast<std::size_t>(operand)] = true;
    }
  }

  Marks ancestors_of(const std::vector<NodeId>& nodes) const {
    Marks marks(n(), false);
    for (const NodeId id : nodes) marks[static_cast<std::size_t>(id)] = true;
    close_over_ancestors(&marks);
    return marks;
  }

  double weight(NodeId id) const {
    const FlowNode& node = flow_->node(id);
    if (node.opcode == Opcode::kGetTupleElement || node.opcode == Opcode::kParameter ||
        node.opcode == Opcode::kOptBarrier || (node.opcode == Opcode::kConditional && node.leaf != kNone))
      return 0;
    if (!options_.weight.empty()) return options_.weight[static_cast<std::size_t>(node.instruction)];
    return static_cast<double>(graph_.shape(node.shape).bytes);
  }

  double weight_of(const Marks& marks, const Marks* within = nullptr) const {
    double total = 0;
    for (NodeId id = 0; id < flow_->size(); ++id) {
      const auto i = static_cast<std::size_t>(id);
      if (marks[i] && !free_[i] && (within == nullptr || (*within)[i])) total += weight(id);
    }
    return total;
  }

  // --- Variables ---

  void find_variables(TrainingStep* step) {
    auto& inputs = step->inputs;
    const std::vector<std::int32_t> aliases = read_aliases(*flow_);
    how_.clear();
    // What the gradients are made from: inputs that reach any source of an update.
    Marks core(n(), false);
    for (const ResultUpdate& update : updates_) {
      for (const NodeId source : update.sources) core[static_cast<std::size_t>(source)] = true;
    }
    close_over_ancestors(&core);
    const auto is_core = [&](std::size_t input) { return core[static_cast<std::size_t>(inputs[input].node)]; };

    if (options_.variables != nullptr) {
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
      return;
    }

    // Pairs by data flow, then the inputs whose new value does not contain the old one (a low-precision copy of a
    // master weight): by alias, then by order among equal shapes.
    struct Candidate {
      std::int32_t input, result;
    };
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
  std::vector<std::pair<std::int32_t, std::int32_t>> pair_by_depth(const std::vector<EntryInput>& inputs,
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
      for (std::size_t i = 0; i < lists.first.size(); ++i)
        out.emplace_back(lists.first[i].index, lists.second[i].index);
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  // For requested variables: pairs by data flow, then aliases, then order and shape.
  std::unordered_map<std::int32_t, std::int32_t> pair_results(const std::vector<EntryInput>& inputs,
                                                              const std::vector<std::int32_t>& aliases,
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
  template <typename Candidate>
  void keep_self_dependent(const std::vector<EntryInput>& inputs, std::vector<Candidate>* candidates) const {
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
  void spread_forward(std::vector<std::uint64_t>* mask) const {
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

  bool is_same_barrier(NodeId first, NodeId other) const {
    const FlowNode& a = flow_->node(first);
    const FlowNode& b = flow_->node(other);
    return b.opcode == Opcode::kOptBarrier && b.instruction == a.instruction && b.site == a.site &&
           b.leaf == other - first;
  }

  // Some candidate is read by two matrix products one of which depends on the other: once forward, once transposed.
  // No inference module does that with what it hands back.
  template <typename Candidate>
  bool reads_twice(const std::vector<EntryInput>& inputs, const std::vector<Candidate>& candidates) const {
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

  // --- Gradient accumulation ---

  // A `while` that gradients come out of although nothing before it has worked on their variables: forward and
  // backward pass both run inside it.
  InstructionId find_whole_step_loop(const TrainingStep& step) const {
    std::unordered_map<NodeId, std::vector<std::int32_t>> by_loop;
    for (const std::int32_t v : step.variables) {
      const EntryInput& input = step.inputs[static_cast<std::size_t>(v)];
      if (input.result == kNone) continue;
      for (const NodeId source : updates_[static_cast<std::size_t>(input.result)].sources) {
        const NodeId unit = flow_->producer(skip_movement(*flow_, source));
        if (flow_->node(unit).opcode == Opcode::kWhile) by_loop[unit].push_back(v);
      }
    }
    InstructionId found = kNone;
    std::size_t most = 0;
    for (const auto& [unit, variables] : by_loop) {
      const std::size_t count = std::min<std::size_t>(variables.size(), 64);
      std::vector<std::uint64_t> depends(n(), 0), worked(n(), 0);
      for (std::size_t v = 0; v < count; ++v) {
        const NodeId node = step.inputs[static_cast<std::size_t>(variables[v])].node;
        depends[static_cast<std::size_t>(node)] |= std::uint64_t{1} << v;
      }
      spread_forward(&depends);
      // `worked`: what went through anything but movement of the variable alone.
      for (NodeId id = 0; id < unit; ++id) {
        const auto i = static_cast<std::size_t>(id);
        std::uint64_t bits = 0;
        for (const NodeId operand : flow_->operands(id)) bits |= worked[static_cast<std::size_t>(operand)];
        const Opcode opcode = flow_->node(id).opcode;
        const bool works = is_matmul(opcode) || opcode == Opcode::kWhile || opcode == Opcode::kReduce ||
                           opcode == Opcode::kGather || opcode == Opcode::kCustomCall || opcode == Opcode::kScatter;
        worked[i] = bits | (works ? depends[i] : 0);
      }
      std::uint64_t before = 0;
      for (const NodeId operand : flow_->operands(unit)) before |= worked[static_cast<std::size_t>(operand)];
      std::size_t inside = 0;
      for (std::size_t v = 0; v < count; ++v) inside += ((before >> v) & 1) == 0 ? 1 : 0;
      // Ties by the smaller instruction: by_loop has no order.
      const InstructionId id = flow_->node(unit).instruction;
      const InstructionId loop = graph_.instruction(id).opcode == Opcode::kWhile ? id : kNone;
      if (loop == kNone || inside * 2 <= count) continue;
      if (variables.size() > most || (variables.size() == most && loop < found)) {
        most = variables.size();
        found = loop;
      }
    }
    return found;
  }

  // --- Loss ---

  void find_loss(TrainingStep* step) {
    std::vector<NodeId> gradients;
    std::vector<NodeId> variable_nodes;
    for (const std::int32_t v : step->variables) {
      const EntryInput& input = step->inputs[static_cast<std::size_t>(v)];
      if (input.gradient == kNone) continue;
      gradients.push_back(input.gradient);
      variable_nodes.push_back(input.node);
    }
    forward_.assign(n(), false);
    backward_.assign(n(), false);
    if (gradients.empty()) return;
    const Marks needed = ancestors_of(gradients);
    Marks is_gradient(n(), false);
    for (const NodeId id : gradients) is_gradient[static_cast<std::size_t>(id)] = true;

    const Border border = find_border(needed, gradients, variable_nodes);
    const double border_weight = weight_of(border.forward);

    // A candidate is a floating-point number that depends on variables by a way a gradient can flow, needs no
    // gradient, and needs (nearly) all of the forward pass.
    Marks differentiable(n(), false);
    for (const NodeId id : variable_nodes) differentiable[static_cast<std::size_t>(id)] = true;
    for (NodeId id = 0; id < flow_->size(); ++id) {
      const auto i = static_cast<std::size_t>(id);
      if (differentiable[i]) continue;
      const Shape& shape = flow_->shape(id);
      if (shape.is_array() && !is_float(shape)) continue;
      for (const NodeId operand : flow_->operands(id)) {
        if (differentiable[static_cast<std::size_t>(operand)]) {
          differentiable[i] = true;
          break;
        }
      }
    }
    Marks after_gradient = is_gradient;
    for (NodeId id = 0; id < flow_->size(); ++id) {
      for (const NodeId operand : flow_->operands(id)) {
        if (after_gradient[static_cast<std::size_t>(operand)]) {
          after_gradient[static_cast<std::size_t>(id)] = true;
          break;
        }
      }
    }
    struct Best {
      std::int32_t result = kNone;
      std::int64_t covered = 0, size = 0;
      Marks marks;
    } best;
    std::set<NodeId> seen;
    int scalars = 0;
    if (!options_.ignore_loss) {
      for (std::size_t r = 0; r < flow_->results().size(); ++r) {
        const NodeId leaf = flow_->results()[r];
        const Shape& shape = flow_->shape(leaf);
        const auto i = static_cast<std::size_t>(leaf);
        if (!shape.is_array() || !is_float(shape) || shape.num_elements != 1) continue;
        if (!differentiable[i] || after_gradient[i] || flow_->node(leaf).opcode == Opcode::kParameter) continue;
        if (!seen.insert(leaf).second || ++scalars > 64) continue;
        Marks marks = ancestors_of({leaf});
        // Nearly all of the forward pass; or, where the border is not clear (an optimizer that works on one long vector
        // of all variables), nearly all variables.
        const double covered_weight = weight_of(border.forward, &marks);
        std::size_t reached = 0;
        for (const NodeId id : variable_nodes) reached += marks[static_cast<std::size_t>(id)] ? 1 : 0;
        if (covered_weight < 0.8 * border_weight && reached * 20 < variable_nodes.size() * 19) continue;
        if (reached * 2 < variable_nodes.size()) continue;
        std::int64_t covered = 0, size = 0;
        for (std::size_t k = 0; k < n(); ++k) {
          if (!marks[k] || free_[k]) continue;
          ++size;
          if (border.forward[k]) ++covered;
        }
        if (best.result == kNone || covered > best.covered || (covered == best.covered && size < best.size)) {
          best.result = static_cast<std::int32_t>(r);
          best.covered = covered;
          best.size = size;
          best.marks = std::move(marks);
        }
      }
    }
    if (best.result != kNone) {
      step->loss_result = best.result;
      step->loss_node = flow_->results()[static_cast<std::size_t>(best.result)];
      forward_ = std::move(best.marks);
      step->loss_found_by = "result " + std::to_string(best.result) +
                            ": a number that needs the whole forward pass and no gradient" +
                            (scalars > 1 ? " (" + std::to_string(scalars) + " candidates)" : "");
    } else if (border_weight > 0) {
      forward_ = border.forward;
      step->loss_found_by = "not among the results; the border is where the gradients start";
    } else {
      step->loss_found_by = "not found";
      step->warnings.push_back(
          "cannot tell the forward from the backward pass: everything up to the gradients counts as "
          "forward");
      forward_ = needed;
    }
    if (step->loss_result != kNone) deepen_gradients(step, &gradients);
    const Marks all_needed = ancestors_of(gradients);
    step->training = step->loss_result != kNone || options_.variables != nullptr || looks_trained(*step);
    if (!step->training) {
      forward_.assign(n(), false);
      step->loss_found_by.clear();
      return;
    }
    for (std::size_t i = 0; i < n(); ++i) backward_[i] = all_needed[i] && !forward_[i];
  }

  // An optimizer that works on gradients with matrix products: the first product behind the result is not the gradient.
  // A product that is one reads the forward pass (or something larger than the variable).
  void deepen_gradients(TrainingStep* step, std::vector<NodeId>* gradients) const {
    std::vector<std::int32_t> which;
    std::vector<NodeId> leaves;
    for (const std::int32_t v : step->variables) {
      const EntryInput& input = step->inputs[static_cast<std::size_t>(v)];
      if (input.gradient == kNone || input.result == kNone) continue;
      bool own = false;
      for (const NodeId source : updates_[static_cast<std::size_t>(input.result)].sources) {
        const NodeId product = skip_movement(*flow_, source);
        if (flow_->node(product).opcode != Opcode::kDot) continue;
        bool reads = false;
        for (const NodeId operand : flow_->operands(product)) {
          reads = reads || forward_[static_cast<std::size_t>(skip_movement(*flow_, operand))] ||
                  flow_->shape(operand).num_elements > flow_->shape(input.node).num_elements;
        }
        own = own || !reads;
      }
      if (!own) continue;
      which.push_back(v);
      leaves.push_back(flow_->results()[static_cast<std::size_t>(input.result)]);
    }
    if (which.empty()) return;
    const std::vector<NodeId> deep = find_deep_gradients(*flow_, step->inputs, free_, forward_, leaves);
    for (std::size_t i = 0; i < which.size(); ++i) {
      if (deep[i] != kNone) step->inputs[static_cast<std::size_t>(which[i])].gradient = deep[i];
    }
    gradients->clear();
    for (const std::int32_t v : step->variables) {
      const NodeId gradient = step->inputs[static_cast<std::size_t>(v)].gradient;
      if (gradient != kNone) gradients->push_back(gradient);
    }
  }

  bool looks_trained(const TrainingStep& step) const {
    struct Candidate {
      std::int32_t input;
    };
    std::vector<Candidate> candidates;
    for (const std::int32_t v : step.variables) candidates.push_back({v});
    if (reads_twice(step.inputs, candidates)) return true;
    // Scanned models read their weights inside loops: more trained than untrained weights is proof enough.
    std::size_t others = 0;
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const Shape& shape = flow_->shape(step.inputs[i].node);
      if (is_float(shape) && shape.num_elements > 1 && !flow_->users(step.inputs[i].node).empty() &&
          step.inputs[i].result == kNone)
        ++others;
    }
    return step.variables.size() > 2 && step.variables.size() * 2 > others;
  }

  struct Border {
    Marks forward;
  };

  // See the header: D within G is forward, D = G is the region around the loss, where the gradient of the last
  // variables' users starts the backward pass.
  Border find_border(const Marks& needed, const std::vector<NodeId>& gradients,
                     const std::vector<NodeId>& variable_nodes) const {
    const std::size_t size = n();
    std::vector<std::int32_t> d_count(size, 0), g_count(size, 0);
    Marks outside(size, false);  // D is not within G
    std::vector<std::uint64_t> d(size), g(size);
    for (std::size_t begin = 0; begin < gradients.size(); begin += 64) {
      const std::size_t end = std::min(begin + 64, gradients.size());
      std::fill(d.begin(), d.end(), 0);
      std::fill(g.begin(), g.end(), 0);
      for (std::size_t v = begin; v < end; ++v) {
        d[static_cast<std::size_t>(variable_nodes[v])] |= std::uint64_t{1} << (v - begin);
        g[static_cast<std::size_t>(gradients[v])] |= std::uint64_t{1} << (v - begin);
      }
      spread_forward(&d);
      for (NodeId id = flow_->size(); id-- > 0;) {
        const auto i = static_cast<std::size_t>(id);
        if (!needed[i] || g[i] == 0) continue;
        for (const NodeId operand : flow_->operands(id)) g[static_cast<std::size_t>(operand)] |= g[i];
      }
      for (std::size_t i = 0; i < size; ++i) {
        if (!needed[i]) continue;
        d_count[i] += __builtin_popcountll(d[i]);
        g_count[i] += __builtin_popcountll(g[i]);
        if ((d[i] & ~g[i]) != 0) outside[i] = true;
      }
    }
    // Helpers that only the backward pass reads also have D = G, but stem from a node of the same D and a larger G.
    std::vector<std::int32_t> g_largest = g_count;
    Marks region(size, false);
    std::vector<std::int32_t> depth(size, 0);
    for (NodeId id = 0; id < flow_->size(); ++id) {
      const auto i = static_cast<std::size_t>(id);
      if (!needed[i]) continue;
      for (const NodeId operand : flow_->operands(id)) {
        const auto o = static_cast<std::size_t>(operand);
        depth[i] = std::max(depth[i], depth[o] + 1);
        if (d_count[o] == d_count[i]) g_largest[i] = std::max(g_largest[i], g_largest[o]);
      }
      region[i] = !outside[i] && d_count[i] > 0 && d_count[i] == g_count[i] && g_largest[i] == g_count[i] && !free_[i];
    }
    // A single variable has D = G from its first use on: the weight itself is no part of the region.
    for (const NodeId id : variable_nodes) region[static_cast<std::size_t>(id)] = false;

    // The backward pass of the region starts at its deepest node that leaves it together with another one, or straight
    // into a gradient. `from` = the deepest node of the region that a node outside comes from.
    Marks seed(size, false);
    std::vector<NodeId> from(size, kNone);
    Marks is_gradient(size, false);
    for (const NodeId id : gradients) is_gradient[static_cast<std::size_t>(id)] = true;
    for (NodeId id = 0; id < flow_->size(); ++id) {
      const auto i = static_cast<std::size_t>(id);
      if (!needed[i]) continue;
      if (region[i]) {
        if (is_gradient[i]) seed[i] = true;
        continue;
      }
      NodeId deepest = kNone;
      bool several = false;
      for (const NodeId operand : flow_->operands(id)) {
        const auto o = static_cast<std::size_t>(operand);
        const NodeId origin = region[o] ? operand : from[o];
        if (origin == kNone || origin == deepest) continue;
        if (deepest != kNone) several = true;
        if (deepest == kNone || depth[static_cast<std::size_t>(origin)] > depth[static_cast<std::size_t>(deepest)])
          deepest = origin;
      }
      from[i] = deepest;
      if (deepest != kNone && (several || is_gradient[i])) seed[static_cast<std::size_t>(deepest)] = true;
    }
    Marks back(size, false);
    std::vector<NodeId> ends;
    for (NodeId id = 0; id < flow_->size(); ++id) {
      const auto i = static_cast<std::size_t>(id);
      if (!region[i]) continue;
      back[i] = back[i] || seed[i];
      const FlowNode& node = flow_->node(id);
      if (node.opcode == Opcode::kOptBarrier && node.leaf == 0) {
        // What is recomputed waits at a barrier for the gradient that comes in.
        bool any = false;
        NodeId end_of_barrier = id;
        for (; end_of_barrier < flow_->size() && is_same_barrier(id, end_of_barrier); ++end_of_barrier)
          any = any || back[static_cast<std::size_t>(flow_->operands(end_of_barrier)[0])];
        for (NodeId element = id; any && element < end_of_barrier; ++element)
          back[static_cast<std::size_t>(element)] = true;
      }
      for (const NodeId operand : flow_->operands(id)) {
        const auto o = static_cast<std::size_t>(operand);
        if (region[o] && back[o]) back[i] = true;
      }
      if (!back[i]) ends.push_back(id);
    }
    Border border;
    if (ends.empty()) {
      // No region (a loss that is linear in its last variables): the nodes of D within G that D is largest of.
      std::int32_t most = 0;
      for (std::size_t i = 0; i < size; ++i) {
        if (needed[i] && !outside[i] && d_count[i] < g_count[i]) most = std::max(most, d_count[i]);
      }
      for (NodeId id = 0; most > 0 && id < flow_->size(); ++id) {
        const auto i = static_cast<std::size_t>(id);
        if (needed[i] && !outside[i] && d_count[i] < g_count[i] && d_count[i] == most) ends.push_back(id);
      }
    }
    border.forward = ancestors_of(ends);
    return border;
  }

  // --- Parts and roles ---

  void assign_parts(TrainingStep* step) {
    if (!step->training) {
      // An inference module: whatever its results need. Variables that look updated are state.
      if (options_.variables == nullptr) {
        for (const std::int32_t v : step->variables) step->inputs[static_cast<std::size_t>(v)].gradient = kNone;
        step->variables.clear();
        step->variables_found_by = "no result is updated by a gradient: an inference module";
      }
      forward_ = ancestors_of(flow_->results());
      backward_.assign(n(), false);
    }
    Marks optimizer(n(), false);
    if (step->training) {
      std::vector<NodeId> updated;
      for (std::size_t r = 0; r < updates_.size(); ++r) {
        if (updates_[r].input != kNone && !updates_[r].sources.empty()) updated.push_back(flow_->results()[r]);
      }
      for (const std::int32_t v : step->variables) {
        const std::int32_t r = step->inputs[static_cast<std::size_t>(v)].result;
        if (r != kNone) updated.push_back(flow_->results()[static_cast<std::size_t>(r)]);
      }
      // Of running statistics nothing is the optimizer's: they are not updated by a gradient.
      Marks from_gradient(n(), false);
      for (const std::int32_t v : step->variables) {
        const NodeId g = step->inputs[static_cast<std::size_t>(v)].gradient;
        if (g != kNone) from_gradient[static_cast<std::size_t>(g)] = true;
      }
      for (NodeId id = 0; id < flow_->size(); ++id) {
        for (const NodeId operand : flow_->operands(id)) {
          if (from_gradient[static_cast<std::size_t>(operand)]) from_gradient[static_cast<std::size_t>(id)] = true;
        }
      }
      from_gradient_ = from_gradient;
      updated.erase(std::remove_if(updated.begin(), updated.end(),
                                   [&](NodeId id) { return !from_gradient[static_cast<std::size_t>(id)]; }),
                    updated.end());
      optimizer = ancestors_of(updated);
    }
    step->part.assign(n(), Part::kGlue);
    for (NodeId id = 0; id < flow_->size(); ++id) {
      const auto i = static_cast<std::size_t>(id);
      Part& part = step->part[i];
      if (flow_->node(id).opcode == Opcode::kParameter) {
        part = Part::kInput;
      } else if (free_[i]) {
        part = Part::kFree;
      } else if (forward_[i]) {
        part = Part::kForward;
      } else if (backward_[i]) {
        part = Part::kBackward;
      } else if (optimizer[i]) {
        part = Part::kOptimizer;
      }
    }
    // Projections go with their unit's part: what is not needed of a forward unit is still made by it.
    for (NodeId id = 0; id < flow_->size(); ++id) {
      if (flow_->node(id).opcode != Opcode::kGetTupleElement) continue;
      const NodeId unit = flow_->producer(id);
      if (unit != id) step->part[static_cast<std::size_t>(id)] = step->part[static_cast<std::size_t>(unit)];
    }
  }

  void assign_roles(TrainingStep* step) {
    auto& inputs = step->inputs;
    Marks reads(n(), false);
    for (std::size_t i = 0; i < n(); ++i) reads[i] = forward_[i] || backward_[i];
    std::vector<bool> is_variable(inputs.size(), false);
    for (const std::int32_t v : step->variables) is_variable[static_cast<std::size_t>(v)] = true;
    std::unordered_map<std::int32_t, std::int32_t> result_of;
    for (std::size_t r = 0; r < updates_.size(); ++r) {
      if (updates_[r].input != kNone) result_of.emplace(updates_[r].input, static_cast<std::int32_t>(r));
    }
    const std::int64_t batch = find_batch(step, result_of, reads);
    // A training step that reads few arrays it does not update reads data, not frozen weights.
    int unpaired = 0;
    std::int64_t leading = 0;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      const Shape& shape = flow_->shape(inputs[k].node);
      if (is_float(shape) && shape.num_elements > 1 && !is_variable[k] &&
          result_of.count(static_cast<std::int32_t>(k)) == 0 && reads[static_cast<std::size_t>(inputs[k].node)]) {
        ++unpaired;
        leading = leading == 0 || leading == shape.dims[0] ? shape.dims[0] : -1;
      }
    }
    const bool all_data = step->training && batch == 0 && unpaired <= 8;
    step->batch = all_data ? std::max<std::int64_t>(leading, 0) : batch;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      EntryInput& input = inputs[k];
      const auto node = static_cast<std::size_t>(input.node);
      const Shape& shape = flow_->shape(input.node);
      if (is_variable[k]) {
        input.role = InputRole::kVariable;
        continue;
      }
      const auto paired = result_of.find(static_cast<std::int32_t>(k));
      if (paired != result_of.end()) input.result = paired->second;
      const bool handed_on =
          paired != result_of.end() && flow_->results()[static_cast<std::size_t>(paired->second)] == input.node;
      if (paired != result_of.end() && !handed_on && step->training) {
        const ResultUpdate& update = updates_[static_cast<std::size_t>(paired->second)];
        const NodeId leaf = flow_->results()[static_cast<std::size_t>(paired->second)];
        const bool by_gradient = !update.sources.empty() && from_gradient_[static_cast<std::size_t>(leaf)];
        const bool weight = is_float(shape) && shape.num_elements > 1 && reads[node];
        input.role = by_gradient && !reads[node]        ? InputRole::kSlot
                     : weight && update.sources.empty() ? InputRole::kFrozen
                                                        : InputRole::kState;
        continue;
      }
      if (flow_->users(input.node).empty()) {
        const auto& results = flow_->results();
        input.role = std::find(results.begin(), results.end(), input.node) != results.end() ? InputRole::kFrozen
                                                                                            : InputRole::kUnused;
        continue;
      }
      if (!is_float(shape) || shape.num_elements <= 1) {
        input.role = handed_on ? InputRole::kState : InputRole::kStepInput;
        continue;
      }
      const bool as_batch = all_data || (batch > 0 && !shape.dims.empty() && shape.dims[0] == batch) ||
                            std::any_of(step->batch_inputs.begin(), step->batch_inputs.end(),
                                        [&](BatchInput b) { return b.input == static_cast<std::int32_t>(k); });
      const bool named_weight = is_weight_name(input.name);
      input.role = handed_on || named_weight || !as_batch ? InputRole::kFrozen : InputRole::kStepInput;
    }
    list_batch_inputs(step);
  }

  // Where the samples come in, when nobody has named it.
  void list_batch_inputs(TrainingStep* step) const {
    if (!step->batch_inputs.empty() || step->batch <= 0) return;
    for (std::size_t k = 0; k < step->inputs.size(); ++k) {
      const Shape& shape = flow_->shape(step->inputs[k].node);
      if (step->inputs[k].role == InputRole::kStepInput && shape.is_array() && !shape.dims.empty() &&
          shape.dims[0] == step->batch)
        step->batch_inputs.push_back({static_cast<std::int32_t>(k), 0});
    }
  }

  static bool is_weight_name(const std::string& name) {
    return name.find("params") != std::string::npos || name.find("frozen") != std::string::npos ||
           name.find("batch_stats") != std::string::npos;
  }

  void describe_loops(TrainingStep* step) const {
    for (const InstructionId loop : step->expanded_whiles) {
      const std::int64_t turns = trip_count(graph_, loop).value_or(0);
      const std::string name = "loop " + std::string(graph_.instruction(loop).name);
      const std::string count = turns > 0 ? std::to_string(turns) : "an unknown number of";
      if (loop == step->micro_batch_loop) {
        if (turns > 0) step->micro_batches = turns;
        step->warnings.push_back(name + " adds up the gradients of " + count +
                                 " micro-batches: everything is of one of them");
      } else {
        step->warnings.push_back(name + " runs " + count + " whole steps: everything is of one of them");
      }
    }
  }

  // How the data of a loop's turn is cut out of an input: [turns, samples, ...] by index, or [turns * samples, ...] by
  // ranges.
  struct TurnSlice {
    std::int32_t input = kNone, dim = 0;
    std::int64_t samples = 0;
  };
  std::vector<TurnSlice> find_turn_slices(const TrainingStep& step) const {
    std::vector<TurnSlice> found;
    std::vector<std::int64_t> turns;
    for (const InstructionId loop : step.expanded_whiles) turns.push_back(trip_count(graph_, loop).value_or(0));
    for (std::size_t k = 0; k < step.inputs.size() && !turns.empty(); ++k) {
      const NodeId input = step.inputs[k].node;
      const Shape& whole = flow_->shape(input);
      if (!whole.is_array() || whole.dims.empty()) continue;
      for (const NodeId user : flow_->users(input)) {
        const Shape& part = flow_->shape(user);
        if (flow_->node(user).opcode != Opcode::kDynamicSlice || flow_->operands(user)[0] != input ||
            part.dims.size() != whole.dims.size() || part.dims[0] == whole.dims[0])
          continue;
        const bool one = part.dims[0] == 1;
        if (std::none_of(turns.begin(), turns.end(),
                         [&](std::int64_t t) { return t > 0 && part.dims[0] * t == whole.dims[0]; }))
          continue;
        // A turn of one sample keeps the dimension, an index loses it.
        const Span<const NodeId> readers = flow_->users(user);
        const bool loses = std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
          return is_movement(*flow_, reader) && flow_->shape(reader).dims.size() < part.dims.size();
        });
        if (one && loses && whole.dims.size() < 2) continue;
        const std::int32_t dim = one && loses ? 1 : 0;
        found.push_back({static_cast<std::int32_t>(k), dim, part.dims[static_cast<std::size_t>(dim)]});
        break;
      }
    }
    return found;
  }

  // Samples of one pass, and where they come in: as named; in a loop over micro-batches what its turns cut out of
  // integer data, else of any; else what guess_batch says.
  std::int64_t find_batch(TrainingStep* step, const std::unordered_map<std::int32_t, std::int32_t>& result_of,
                          const Marks& reads) const {
    const std::vector<TurnSlice> slices = find_turn_slices(*step);
    if (options_.batch_inputs != nullptr) return named_batch(step, slices);
    std::int64_t batch = 0;
    for (const bool integers : {true, false}) {
      for (const TurnSlice& slice : slices) {
        const Shape& shape = flow_->shape(step->inputs[static_cast<std::size_t>(slice.input)].node);
        if (batch == 0 && is_float(shape) != integers && result_of.count(slice.input) == 0) batch = slice.samples;
      }
    }
    if (batch == 0) return guess_batch(*step, result_of, reads, &step->batch_ambiguous);
    for (const TurnSlice& slice : slices) {
      if (slice.samples == batch && result_of.count(slice.input) == 0)
        step->batch_inputs.push_back({slice.input, slice.dim});
    }
    return batch;
  }

  std::int64_t named_batch(TrainingStep* step, const std::vector<TurnSlice>& slices) const {
    std::int64_t batch = 0;
    for (const std::int32_t k : match_requests(step->inputs, *options_.batch_inputs)) {
      const EntryInput& input = step->inputs[static_cast<std::size_t>(k)];
      const Shape& shape = flow_->shape(input.node);
      if (!shape.is_array() || shape.dims.empty()) {
        throw Error(ErrorKind::kData,
                    "input '" + input.name + "' is " + std::string(shape.text) +
                        ": it has no leading dimension that could be the batch",
                    "name an input that leads with the samples");
      }
      TurnSlice here{k, 0, shape.dims[0]};
      for (const TurnSlice& slice : slices) {
        if (slice.input == k) here = slice;
      }
      if (batch != 0 && here.samples != batch) {
        throw Error(ErrorKind::kData,
                    "the batch inputs disagree: '" +
                        step->inputs[static_cast<std::size_t>(step->batch_inputs[0].input)].name + "' holds " +
                        std::to_string(batch) + " samples, '" + input.name + "' " + std::to_string(here.samples),
                    "name inputs that lead with the same number of samples");
      }
      batch = here.samples;
      step->batch_inputs.push_back({k, here.dim});
    }
    return batch;
  }

  // The leading dimension of the step's data: what the integer inputs (token ids, labels) agree on; else, of an
  // inference module, what its results do. 0: unknown.
  std::int64_t guess_batch(const TrainingStep& step, const std::unordered_map<std::int32_t, std::int32_t>& result_of,
                           const Marks& reads, bool* ambiguous) const {
    std::unordered_map<std::int64_t, int> votes;
    for (std::size_t k = 0; k < step.inputs.size(); ++k) {
      const NodeId node = step.inputs[k].node;
      const Shape& shape = flow_->shape(node);
      if (result_of.count(static_cast<std::int32_t>(k)) != 0 || !shape.is_array() || shape.dims.empty()) continue;
      if (is_float(shape) || !reads[static_cast<std::size_t>(node)]) continue;
      // A random key is u32[2] or u32[4].
      if (shape.type == ElementType::kU32 && shape.dims.size() == 1 && shape.dims[0] <= 4) continue;
      ++votes[shape.dims[0]];
    }
    if (votes.empty() && !step.training) {
      for (const NodeId leaf : flow_->results()) {
        const Shape& shape = flow_->shape(leaf);
        if (shape.is_array() && !shape.dims.empty()) ++votes[shape.dims[0]];
      }
    }
    std::int64_t batch = 0;
    int most = 0;
    for (const auto& [dimension, count] : votes) {
      if (count == most) *ambiguous = true;
      if (count > most) *ambiguous = false;
      if (count > most || (count == most && dimension > batch)) {
        most = count;
        batch = dimension;
      }
    }
    return batch;
  }

  void describe(TrainingStep* step) {
    // Names confirm when most variables stand under "params" and the like, and slots do not.
    step->split = "dataflow";
    std::size_t named = 0, marked = 0, with_metadata = 0;
    for (const std::int32_t v : step->variables) {
      const EntryInput& input = step->inputs[static_cast<std::size_t>(v)];
      if (input.name != input.parameter_name && is_weight_name(input.name)) ++named;
    }
    for (NodeId id = 0; id < flow_->size() && with_metadata < 400; id += std::max<NodeId>(1, flow_->size() / 4000)) {
      if (step->part[static_cast<std::size_t>(id)] != Part::kBackward) continue;
      const std::string op_name = graph_.op_name(flow_->node(id).instruction);
      if (op_name.empty()) continue;
      ++with_metadata;
      if (op_name.find("transpose(") != std::string::npos ||
          op_name.find("rematted_computation") != std::string::npos || op_name.find("gradient") != std::string::npos ||
          op_name.find("_backward") != std::string::npos || op_name.find("jvp(") != std::string::npos)
        ++marked;
    }
    if (with_metadata > 0 && marked * 2 > with_metadata) step->split = "metadata";
    if (!step->variables.empty() && named * 2 > step->variables.size() && options_.variables == nullptr)
      step->variables_found_by += "; their names agree";
    if (step->split == "metadata") step->loss_found_by += "; op_names of the backward pass agree";
  }

  const Graph& graph_;
  const TrainingStepOptions& options_;
  const FlowGraph* flow_ = nullptr;
  Marks free_, forward_, backward_, from_gradient_;
  std::vector<ResultUpdate> updates_;
  std::string how_;
};

}  // namespace

TrainingStep analyze_training_step(const Graph& graph, const TrainingStepOptions& options) {
  return Analysis(graph, options).run();
}

}  // namespace automap::graph
