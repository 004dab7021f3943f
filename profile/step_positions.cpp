#include "profile/step_positions.h"

#include <algorithm>

#include "common/graph/dependence.h"

namespace automap::profile {

namespace {

using graph::FlowGraph;
using graph::kNone;
using graph::NodeId;
using graph::Origin;
using graph::Part;

}  // namespace

StepPositions::StepPositions(const graph::TrainingStep& step, const graph::FlowOrder& order,
                             const std::vector<double>* share, const std::vector<double>* inner)
    : step_(step), flow_(step.flow), order_(order), share_(share), inner_(inner) {
  find_uses();
}

NodeId StepPositions::base_of(NodeId id) const {
  while (graph::is_movement(flow_, id)) {
    const NodeId before = flow_.operands(id)[0];
    if (!is_activation(before)) break;
    id = before;
  }
  return id;
}

std::int32_t StepPositions::first_use(NodeId input) const {
  std::int32_t first = uses(input).empty() ? kNone : uses(input).front();
  for (const NodeId user : flow_.users(input)) {
    if (part(user) != Part::kForward || position(user) == kNone) continue;
    first = first == kNone ? position(user) : std::min(first, position(user));
  }
  return first;
}

std::int32_t StepPositions::last_use(NodeId input) const {
  const std::int32_t first = first_use(input);
  return uses(input).empty() ? first : std::max(first, uses(input).back());
}

void StepPositions::find_uses() {
  uses_.assign(static_cast<std::size_t>(flow_.size()), {});
  for (NodeId id = flow_.size(); id-- > 0;) {
    if (origin(id) == Origin::kFlow || origin(id) == Origin::kNothing) continue;
    if (part(id) != Part::kForward && part(id) != Part::kInput) continue;
    auto& mine = uses_[static_cast<std::size_t>(id)];
    for (const NodeId user : flow_.users(id)) {
      if (part(user) != Part::kForward) continue;
      // A penalty on the weight: computed where the weight is, only a number travels.
      if (origin(user) == Origin::kWeights && flow_.shape(user).num_elements <= 1 && flow_.shape(id).num_elements > 1)
        continue;
      if (origin(user) == Origin::kFlow) {
        if (position(user) != kNone) mine.push_back(position(user));
      } else {
        const auto& theirs = uses_[static_cast<std::size_t>(user)];
        mine.insert(mine.end(), theirs.begin(), theirs.end());
        // A preparation that is a result of its own.
        if (theirs.empty() && position(user) != kNone) mine.push_back(position(user));
      }
    }
    std::sort(mine.begin(), mine.end());
    mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
  }
}

namespace {

class BackwardPlacer {
 public:
  explicit BackwardPlacer(const StepPositions& at) : at_(at), flow_(at.flow()) {}

  // A gradient comes from the loss and moves towards the first instruction: what reads a gradient that has reached
  // position p belongs to p or before (else values would travel forward between stages during the backward pass).
  // Within that bound, a node that reads a forward value, or a weight, belongs to the latest reader of that value: it
  // is the gradient of one of them. Nodes that read forward values only (masks, recomputed activations) have no bound
  // and stand with what they read.
  std::vector<std::int32_t> run(std::int32_t border) {
    border_ = border;
    const auto n = static_cast<std::size_t>(flow_.size());
    belongs_.assign(n, kNone);
    latest_.assign(n, kNone);
    find_readers();
    for (NodeId id = 0; id < flow_.size(); ++id) {
      if (at_.part(id) == Part::kBackward) place(id);
    }
    // Preparations without a place: where their first reader is.
    for (NodeId id = flow_.size(); id-- > 0;) {
      const auto i = static_cast<std::size_t>(id);
      if (at_.part(id) != Part::kBackward || belongs_[i] != kUnplaced) continue;
      std::int32_t best = kNone;
      for (const NodeId user : flow_.users(id)) {
        if (at_.part(user) == Part::kBackward) best = std::max(best, belongs_[static_cast<std::size_t>(user)]);
      }
      belongs_[i] = best < 0 ? at_.size() - 1 : best;
    }
    return std::move(belongs_);
  }

 private:
  static constexpr std::int32_t kUnplaced = -2;

  void find_readers() {
    readers_.assign(static_cast<std::size_t>(flow_.size()), {});
    for (const NodeId id : at_.order().order) {
      if (at_.origin(id) != Origin::kFlow || at_.is_projection(id)) continue;
      for (const NodeId operand : flow_.operands(id)) {
        auto& list = readers_[static_cast<std::size_t>(operand)];
        if (list.empty() || list.back() != at_.position(id)) list.push_back(at_.position(id));
      }
    }
  }

  void place(NodeId id) {
    const auto i = static_cast<std::size_t>(id);
    std::int32_t bound = at_.size() - 1, local = kNone;
    bool has_gradient = false;
    for (const NodeId operand : flow_.operands(id)) {
      const auto o = static_cast<std::size_t>(operand);
      if (at_.is_activation(operand)) latest_[i] = std::max(latest_[i], at_.made_at(operand));
      if (at_.part(operand) != Part::kBackward) continue;
      latest_[i] = std::max(latest_[i], latest_[o]);
      if (latest_[o] >= border_) {
        has_gradient = true;
        bound = std::min(bound, belongs_[o]);
      }
    }
    for (const NodeId operand : flow_.operands(id)) local = std::max(local, place_of(operand, bound, has_gradient));
    // A node that reads nothing but constants and inputs: with the node that reads it; the last instruction will do.
    belongs_[i] = local == kNone ? (has_gradient ? bound : kUnplaced) : std::min(bound, local);
  }

  // The position that an operand implies for its reader; kNone: none.
  std::int32_t place_of(NodeId operand, std::int32_t bound, bool has_gradient) const {
    const auto o = static_cast<std::size_t>(operand);
    if (at_.part(operand) == Part::kBackward) {
      // A weight in another form, made for the backward pass.
      const NodeId root = graph::skip_movement(flow_, operand);
      if (latest_[o] == kNone && root != operand && at_.part(root) == Part::kInput)
        return latest_use(at_.uses(root), bound, !has_gradient);
      return latest_[o] < border_ ? belongs_[o] : kNone;
    }
    if (at_.part(operand) == Part::kInput || (at_.part(operand) == Part::kForward && !at_.is_activation(operand)))
      return latest_use(at_.uses(operand), bound, !has_gradient);
    if (at_.part(operand) != Part::kForward) return kNone;
    const std::int32_t at = has_gradient ? latest_use(readers_[o], bound, false) : kNone;
    return at == kNone ? at_.made_at(operand) : at;
  }

  // The latest of `uses` up to `bound`; kNone when there is none. Without a gradient there is no bound to go by: the
  // first use.
  static std::int32_t latest_use(const std::vector<std::int32_t>& uses, std::int32_t bound, bool first) {
    if (uses.empty()) return kNone;
    if (first) return uses.front();
    const auto above = std::upper_bound(uses.begin(), uses.end(), bound);
    return above == uses.begin() ? kNone : *(above - 1);
  }

  const StepPositions& at_;
  const FlowGraph& flow_;
  std::int32_t border_ = 0;
  std::vector<std::int32_t> belongs_;
  std::vector<std::vector<std::int32_t>> readers_;  // of forward activations
  std::vector<std::int32_t> latest_;                // of the forward values a node depends on
};

}  // namespace

std::vector<std::int32_t> place_backward(const StepPositions& at, std::int32_t last_variable_use) {
  return BackwardPlacer(at).run(last_variable_use);
}

std::vector<bool> makes_weight_gradients(const StepPositions& at, const std::vector<std::int32_t>& backward) {
  const FlowGraph& flow = at.flow();
  std::vector<bool> awaited(static_cast<std::size_t>(flow.size()), false);
  const auto is_backward = [&](NodeId id) { return at.part(id) == Part::kBackward; };
  const auto place = [&](NodeId id) { return backward[static_cast<std::size_t>(flow.producer(id))]; };
  // Readers stand behind what they read; more than one round only where some do not.
  for (bool changed = true; changed;) {
    changed = false;
    for (NodeId id = flow.size(); id-- > 0;) {
      if (!is_backward(id) || awaited[static_cast<std::size_t>(id)]) continue;
      for (const NodeId user : flow.users(id)) {
        if (!is_backward(user)) continue;
        const NodeId unit = flow.producer(user);
        if (!awaited[static_cast<std::size_t>(user)] && !awaited[static_cast<std::size_t>(unit)] &&
            !(place(user) < place(id))) {
          continue;
        }
        // One result awaited: all of what makes them.
        awaited[static_cast<std::size_t>(id)] = changed = true;
        awaited[static_cast<std::size_t>(flow.producer(id))] = true;
        break;
      }
    }
  }
  std::vector<bool> out(awaited.size(), false);
  for (NodeId id = 0; id < flow.size(); ++id) {
    out[static_cast<std::size_t>(id)] = is_backward(id) && !awaited[static_cast<std::size_t>(id)];
  }
  return out;
}

}  // namespace automap::profile
