#include "profile/stacked_weights.h"

#include <unordered_set>

namespace automap::profile {

using graph::kNone;
using graph::NodeId;

StackedWeights::StackedWeights(const StepPositions& at, const std::vector<InstructionTimes::While>& whiles) : at_(at) {
  std::unordered_map<graph::InstructionId, std::int64_t> known;
  for (const InstructionTimes::While& loop : whiles) {
    if (loop.inferred) known.emplace(loop.instruction, loop.trip_count);
  }
  for (const NodeId id : at.order().order) {
    const graph::FlowNode& node = at.flow().node(id);
    if (node.opcode != graph::Opcode::kWhile) continue;
    const auto found = known.find(node.instruction);
    if (found != known.end()) turns_.emplace(at.position(id), found->second);
  }
}

std::int64_t StackedWeights::turns_at(std::int32_t position) const {
  const auto found = turns_.find(position);
  return found == turns_.end() ? 0 : found->second;
}

std::int32_t StackedWeights::loop_of(NodeId input) const {
  if (turns_.empty()) return kNone;
  const graph::FlowGraph& flow = at_.flow();
  const std::int64_t elements = flow.shape(input).num_elements;
  // The input, and the forms of all of it that are made of it alone.
  std::vector<NodeId> forms = {input};
  std::unordered_set<NodeId> seen = {input};
  while (!forms.empty()) {
    const NodeId form = forms.back();
    forms.pop_back();
    const graph::Shape& shape = flow.shape(form);
    for (const NodeId user : flow.users(form)) {
      if (at_.part(user) != graph::Part::kForward) continue;
      const std::int64_t turns = turns_at(at_.position(user));
      if (turns > 1 && shape.dims.size() > 1 && shape.dims[0] == turns) return at_.position(user);
      const bool is_form = at_.origin(user) == graph::Origin::kWeights && flow.shape(user).is_array() &&
                           flow.shape(user).num_elements == elements;
      if (is_form && seen.insert(user).second) forms.push_back(user);
    }
  }
  return kNone;
}

std::int32_t StackedWeights::only_loop_of(NodeId input) const {
  const std::vector<std::int32_t>& uses = at_.uses(input);
  const std::int32_t loop = uses.size() == 1 ? loop_of(input) : kNone;
  return loop == kNone || uses.front() != loop ? kNone : loop;
}

}  // namespace automap::profile
