#include "profile/workspace.h"

#include <algorithm>
#include <unordered_map>

#include "common/graph/dependence.h"
#include "profile/fused_kernel_model.h"

namespace automap::profile {

namespace {

using graph::Computation;
using graph::ComputationId;
using graph::FlowGraph;
using graph::Graph;
using graph::InstructionId;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;
using graph::Part;

class Workspace {
 public:
  Workspace(const StepPositions& at, const FusedPositions& fused, const std::vector<std::int32_t>& backward,
            const std::vector<bool>& kept, const TimeEstimator* estimator)
      : at_(at),
        fused_(fused),
        flow_(at.flow()),
        graph_(flow_.graph()),
        backward_(backward),
        kept_(kept),
        estimator_(estimator) {}

  std::vector<double> run() {
    const auto size = static_cast<std::size_t>(at_.size());
    out_.assign(size, 0.0);
    is_gradient_.assign(static_cast<std::size_t>(flow_.size()), false);
    for (const std::int32_t v : at_.step().variables) {
      NodeId id = at_.step().inputs[static_cast<std::size_t>(v)].gradient;
      if (id == kNone) continue;
      // In whatever form it is between where it is made and the optimizer.
      is_gradient_[static_cast<std::size_t>(id)] = true;
      while (graph::is_movement(flow_, id)) {
        id = flow_.operands(id)[0];
        is_gradient_[static_cast<std::size_t>(id)] = true;
      }
    }
    for (const NodeId id : at_.order().order) add_forward(id);
    std::vector<std::vector<NodeId>> work(size);
    for (NodeId id = 0; id < flow_.size(); ++id) {
      const std::int32_t p = backward_[static_cast<std::size_t>(id)];
      if (p != kNone) work[static_cast<std::size_t>(p)].push_back(id);
    }
    for (std::size_t p = 0; p < size; ++p) add_backward(p, work[p]);
    return std::move(out_);
  }

 private:
  void raise(std::size_t p, double bytes) { out_[p] = std::max(out_[p], bytes); }

  bool takes_room(NodeId id) const {
    const graph::FlowNode& node = flow_.node(id);
    if (!flow_.shape(id).is_array() || at_.part(id) == Part::kFree || at_.part(id) == Part::kInput) return false;
    if (fused_.is_dropped(id)) return false;
    // A loop's results that nobody reads are what it was given.
    if (node.opcode == Opcode::kGetTupleElement || node.leaf != kNone) return !flow_.users(id).empty();
    return is_stored(node.instruction);
  }

  bool is_stored(InstructionId id) const {
    // Written into what is there already: the stacks that a loop's turns fill.
    if (graph_.instruction(id).opcode == Opcode::kDynamicUpdateSlice) return false;
    if (estimator_ != nullptr) return estimator_->is_stored(id);
    switch (graph_.instruction(id).opcode) {
      case Opcode::kReshape:
      case Opcode::kBitcast:
      case Opcode::kBroadcast: return false;
      default: return true;
    }
  }

  // Its result, when it neither crosses the cut nor is kept, with the operands that end here, or are made for it of
  // weights, and what it calls needs.
  void add_forward(NodeId id) {
    const std::int32_t p = at_.position(id);
    if (at_.is_projection(id)) return;
    double bytes = inner_bytes(id);
    if (at_.is_activation(id) && takes_room(id) && !is_kept(id) && last_use(id) <= p) bytes += at_.bytes(id);
    const Span<const NodeId> operands = flow_.operands(id);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const NodeId operand = operands[i];
      const bool again = std::find(operands.begin(), operands.begin() + i, operand) != operands.begin() + i;
      if (again || at_.part(operand) != Part::kForward || !takes_room(operand)) continue;
      if (!at_.is_activation(operand) || (!is_kept(operand) && last_use(operand) == p)) bytes += at_.bytes(operand);
    }
    raise(static_cast<std::size_t>(p), bytes);
  }

  bool is_kept(NodeId id) const { return kept_[static_cast<std::size_t>(at_.base_of(id))]; }

  std::int32_t last_use(NodeId id) const { return std::max(at_.position(id), fused_.last_use(id)); }

  // In the order of the data flow: a value lives from the node that makes it to its last reader here; what others read
  // too, or have made, lives all along or from there on.
  void add_backward(std::size_t p, const std::vector<NodeId>& work) {
    if (work.empty()) return;
    const auto place = static_cast<std::int32_t>(p);
    double alive = 0, most = 0;
    readers_.clear();
    for (const NodeId id : work) {
      for (const NodeId operand : flow_.operands(id)) {
        const bool temporary = at_.part(operand) == Part::kBackward && takes_room(operand) &&
                               !is_gradient_[static_cast<std::size_t>(operand)];
        if (!temporary) continue;
        const auto [it, added] = readers_.try_emplace(operand, 0);
        ++it->second;
        if (added && backward_[static_cast<std::size_t>(operand)] != place) alive += at_.bytes(operand);
      }
    }
    for (const NodeId id : work) {
      const bool temporary = takes_room(id) && !is_gradient_[static_cast<std::size_t>(id)];
      if (temporary) alive += at_.bytes(id);
      most = std::max(most, alive + inner_bytes(id));
      for (const NodeId operand : flow_.operands(id)) {
        const auto found = readers_.find(operand);
        if (found != readers_.end() && --found->second == 0 && ends_here(operand, place)) alive -= at_.bytes(operand);
      }
    }
    raise(p, most);
  }

  // Nobody reads it before this position (the backward pass runs towards the first).
  bool ends_here(NodeId id, std::int32_t place) const {
    for (const NodeId user : flow_.users(id)) {
      const std::int32_t p = backward_[static_cast<std::size_t>(user)];
      if (p != kNone && p < place) return false;
    }
    return true;
  }

  // The bytes that a unit needs inside, beside operands and results.
  double inner_bytes(NodeId id) {
    if (flow_.node(id).leaf == kNone && fused_.any()) {
      const FusedKernel* kernel = fused_.chains()->kernel_of(flow_.node(id).instruction);
      if (kernel != nullptr) return fused_workspace_bytes(graph_, *kernel);
    }
    switch (flow_.node(id).opcode) {
      case Opcode::kWhile:
      case Opcode::kCall:
      case Opcode::kConditional: break;
      default: return 0;
    }
    if (flow_.node(id).leaf != kNone) return 0;
    double most = 0;
    for (const ComputationId callee : graph_.called(flow_.node(id).instruction)) most = std::max(most, peak(callee));
    return most;
  }

  // The bytes of an instruction's result, unless it is a part of an existing value.
  double room(InstructionId id) const {
    const double bytes = graph_.shape_of(id).is_array() ? static_cast<double>(graph_.shape_of(id).bytes) : 0.0;
    // A call hands on what its callee's last instruction has made.
    while (graph_.instruction(id).opcode == Opcode::kCall && graph_.called(id).size() == 1 &&
           graph_.computation(graph_.called(id)[0]).root != kNone)
      id = graph_.computation(graph_.called(id)[0]).root;
    return is_stored(id) ? bytes * at_.inner_share(id) : 0.0;
  }

  // The largest sum in a computation of the values that its instructions store, each from its instruction to its last
  // reader.
  double peak(ComputationId c) {
    const auto known = peaks_.find(c);
    if (known != peaks_.end()) return known->second;
    const Computation& computation = graph_.computation(c);
    std::vector<InstructionId> last(static_cast<std::size_t>(computation.count), kNone);
    const auto local = [&](InstructionId id) { return static_cast<std::size_t>(id - computation.first); };
    // Values that a turn writes into a stack are kept, and slices that it takes from one are read in place.
    std::vector<bool> elsewhere(static_cast<std::size_t>(computation.count), false);
    for (InstructionId id = computation.first; id < computation.first + computation.count; ++id) {
      for (const InstructionId operand : graph_.operands(id)) last[local(operand)] = id;
      const Opcode opcode = graph_.instruction(id).opcode;
      if (opcode == Opcode::kDynamicSlice) elsewhere[local(id)] = true;
      if (opcode != Opcode::kDynamicUpdateSlice) continue;
      InstructionId written = graph_.operands(id)[1];
      elsewhere[local(written)] = true;
      while (graph_.instruction(written).opcode == Opcode::kReshape ||
             graph_.instruction(written).opcode == Opcode::kBitcast ||
             graph_.instruction(written).opcode == Opcode::kBroadcast) {
        const InstructionId before = graph_.operands(written)[0];
        if (graph_.shape_of(before).bytes != graph_.shape_of(written).bytes) break;
        elsewhere[local(written = before)] = true;
      }
    }
    const auto own_room = [&](InstructionId id) { return elsewhere[local(id)] ? 0 : room(id); };
    double alive = 0, most = 0;
    for (InstructionId id = computation.first; id < computation.first + computation.count; ++id) {
      double inner = 0;
      const Opcode opcode = graph_.instruction(id).opcode;
      if (opcode == Opcode::kWhile || opcode == Opcode::kCall || opcode == Opcode::kConditional) {
        for (const ComputationId callee : graph_.called(id)) inner = std::max(inner, peak(callee));
      }
      alive += own_room(id);
      most = std::max(most, alive + inner);
      const Span<const InstructionId> operands = graph_.operands(id);
      for (std::size_t i = 0; i < operands.size(); ++i) {
        const bool again = std::find(operands.begin(), operands.begin() + i, operands[i]) != operands.begin() + i;
        if (!again && last[local(operands[i])] == id) alive -= own_room(operands[i]);
      }
    }
    peaks_.emplace(c, most);
    return most;
  }

  const StepPositions& at_;
  const FusedPositions& fused_;
  const FlowGraph& flow_;
  const Graph& graph_;
  const std::vector<std::int32_t>& backward_;
  const std::vector<bool>& kept_;
  const TimeEstimator* estimator_;
  std::vector<double> out_;
  std::vector<bool> is_gradient_;
  std::unordered_map<NodeId, int> readers_;
  std::unordered_map<ComputationId, double> peaks_;
};

}  // namespace

std::vector<double> workspace_bytes(const StepPositions& at, const FusedPositions& fused,
                                    const std::vector<std::int32_t>& backward, const std::vector<bool>& kept,
                                    const TimeEstimator* estimator) {
  return Workspace(at, fused, backward, kept, estimator).run();
}

}  // namespace automap::profile
