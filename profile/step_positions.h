// Relates a training step to its forward positions: the position of each node, and the values that cross each position,
// are kept there, or belong to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/graph/flow_order.h"
#include "common/graph/training_step.h"

namespace automap::profile {

// The queries of the profile's parts about a step. All arguments must stay alive.
class StepPositions {
 public:
  // `share`: by node, what of its bytes counts (WidthParts), and `inner`: by instruction, of what is made inside of
  // units; null: all.
  StepPositions(const graph::TrainingStep& step, const graph::FlowOrder& order,
                const std::vector<double>* share = nullptr, const std::vector<double>* inner = nullptr);

  const graph::TrainingStep& step() const { return step_; }
  const graph::FlowGraph& flow() const { return flow_; }
  const graph::FlowOrder& order() const { return order_; }
  std::int32_t size() const { return static_cast<std::int32_t>(order_.order.size()); }  // positions

  // 0-based; graph::kNone for nodes that have none.
  std::int32_t position(graph::NodeId id) const { return order_.position[static_cast<std::size_t>(id)]; }
  graph::Part part(graph::NodeId id) const { return step_.part[static_cast<std::size_t>(id)]; }
  graph::Origin origin(graph::NodeId id) const { return order_.origin[static_cast<std::size_t>(id)]; }
  double share(graph::NodeId id) const { return share_ == nullptr ? 1 : (*share_)[static_cast<std::size_t>(id)]; }
  double inner_share(graph::InstructionId id) const {
    return inner_ == nullptr ? 1 : (*inner_)[static_cast<std::size_t>(id)];
  }
  double bytes(graph::NodeId id) const { return static_cast<double>(flow_.shape(id).bytes) * share(id); }
  bool is_projection(graph::NodeId id) const { return flow_.producer(id) != id; }
  // An activation: not made of weights or step inputs alone.
  bool is_activation(graph::NodeId id) const {
    return part(id) == graph::Part::kForward && origin(id) == graph::Origin::kFlow;
  }
  // Results of a unit are made where the unit is.
  std::int32_t made_at(graph::NodeId id) const { return position(flow_.producer(id)); }
  // The activation that a forward node only holds in another form.
  graph::NodeId base_of(graph::NodeId id) const;
  // The positions of the main forward instructions that read an input or a preparation, ascending.
  const std::vector<std::int32_t>& uses(graph::NodeId id) const { return uses_[static_cast<std::size_t>(id)]; }
  // The first position that reads an input, preparations included, and the last; kNone when the forward pass does not.
  std::int32_t first_use(graph::NodeId input) const;
  std::int32_t last_use(graph::NodeId input) const;

 private:
  void find_uses();

  const graph::TrainingStep& step_;
  const graph::FlowGraph& flow_;
  const graph::FlowOrder& order_;
  const std::vector<double>*share_, *inner_;
  std::vector<std::vector<std::int32_t>> uses_;
};

// Per node: the position that a backward node belongs to; kNone for all others. `last_variable_use`: the last position
// that reads a variable.
std::vector<std::int32_t> place_backward(const StepPositions& at, std::int32_t last_variable_use);

// Per node: it is of the backward pass, and none of that pass that belongs further in front waits for it, so that it
// makes gradients of weights alone. `backward`: place_backward's.
std::vector<bool> makes_weight_gradients(const StepPositions& at, const std::vector<std::int32_t>& backward);

}  // namespace automap::profile
