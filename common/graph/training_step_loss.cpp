#include <algorithm>
#include <set>

#include "common/graph/training_step_analysis.h"

namespace automap::graph {

StepAnalysis::LossChoice StepAnalysis::choose_loss(const Border& border, const Marks& is_gradient,
                                                   const std::vector<NodeId>& variable_nodes) const {
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
  LossChoice best;
  std::set<NodeId> seen;
  if (!options_.ignore_loss) {
    for (std::size_t r = 0; r < flow_->results().size(); ++r) {
      const NodeId leaf = flow_->results()[r];
      const Shape& shape = flow_->shape(leaf);
      const auto i = static_cast<std::size_t>(leaf);
      if (!shape.is_array() || !is_float(shape) || shape.num_elements != 1) continue;
      if (!differentiable[i] || after_gradient[i] || flow_->node(leaf).opcode == Opcode::kParameter) continue;
      if (!seen.insert(leaf).second || ++best.candidates > 64) continue;
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
  return best;
}

void StepAnalysis::find_loss(TrainingStep* step) {
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

  LossChoice best = choose_loss(border, is_gradient, variable_nodes);
  if (best.result != kNone) {
    step->loss_result = best.result;
    step->loss_node = flow_->results()[static_cast<std::size_t>(best.result)];
    forward_ = std::move(best.marks);
    step->loss_found_by = "result " + std::to_string(best.result) +
                          ": a number that needs the whole forward pass and no gradient" +
                          (best.candidates > 1 ? " (" + std::to_string(best.candidates) + " candidates)" : "");
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
void StepAnalysis::deepen_gradients(TrainingStep* step, std::vector<NodeId>* gradients) const {
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

bool StepAnalysis::looks_trained(const TrainingStep& step) const {
  std::vector<Candidate> candidates;
  for (const std::int32_t v : step.variables) candidates.push_back({v, kNone});
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

// Counts, for every needed node, the variables it depends on (D) and the gradients that depend on it (G), and marks
// nodes where D is not within G.
void StepAnalysis::count_sets(const Marks& needed, const std::vector<NodeId>& gradients,
                              const std::vector<NodeId>& variable_nodes, std::vector<std::int32_t>* d_count,
                              std::vector<std::int32_t>* g_count, Marks* outside) const {
  const std::size_t size = n();
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
      (*d_count)[i] += __builtin_popcountll(d[i]);
      (*g_count)[i] += __builtin_popcountll(g[i]);
      if ((d[i] & ~g[i]) != 0) (*outside)[i] = true;
    }
  }
}

// See the header: D within G is forward, D = G is the region around the loss, where the gradient of the last
// variables' users starts the backward pass.
StepAnalysis::Border StepAnalysis::find_border(const Marks& needed, const std::vector<NodeId>& gradients,
                                               const std::vector<NodeId>& variable_nodes) const {
  const std::size_t size = n();
  std::vector<std::int32_t> d_count(size, 0), g_count(size, 0);
  Marks outside(size, false);  // D is not within G
  count_sets(needed, gradients, variable_nodes, &d_count, &g_count, &outside);
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
      // Recomputed values wait at a barrier for the incoming gradient.
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

}  // namespace automap::graph
