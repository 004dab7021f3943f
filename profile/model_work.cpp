#include "profile/model_work.h"

#include <algorithm>
#include <map>
#include <vector>

#include "common/graph/attention_calls.h"
#include "common/graph/hlo_cost.h"

namespace automap::profile {
namespace {

using graph::ComputationId;
using graph::Graph;
using graph::InputRole;
using graph::InstructionId;
using graph::NodeId;
using graph::Opcode;
using graph::Part;
using graph::Shape;

// Products and convolutions of an instruction, what it calls included.
class Products {
 public:
  struct Count {
    double flops = 0, again = 0;  // again: of those, scores that gradients of attention make once more
    std::int64_t masked = 0;
    void add(const Count& other, double times = 1) {
      flops += times * other.flops;
      again += times * other.again;
      masked += static_cast<std::int64_t>(times) * other.masked;
    }
  };

  Products(const Graph& graph, const FusedChains* chains, const std::vector<InstructionTimes::While>& whiles)
      : graph_(graph), chains_(chains) {
    for (const InstructionTimes::While& loop : whiles) turns_[loop.instruction] = loop.trip_count;
  }

  Count of(InstructionId id) {
    using Role = FusedChains::Role;
    if (chains_ != nullptr && chains_->role_of(id) != Role::kNone) {
      const FusedKernel* kernel = chains_->kernel_of(id);
      return kernel == nullptr ? Count() : of_kernel(*kernel);
    }
    switch (graph_.instruction(id).opcode) {
      case Opcode::kDot:
      case Opcode::kRaggedDot:
      case Opcode::kScaledDot: return {graph::dot_flops(graph_, id), 0, 0};
      case Opcode::kConvolution: return {graph::convolution_flops(graph_, id), 0, 0};
      case Opcode::kCustomCall: {
        const auto attention = graph::attention_call(graph_, id);
        if (!attention) return {};
        // One of the five products recomputes the scores.
        const double again = attention->backward ? attention->flops() / 5 : 0;
        return {attention->flops(), again, attention->kept < 1 ? 1 : 0};
      }
      case Opcode::kWhile: return called(id, turns_.count(id) == 0 ? 1 : static_cast<double>(turns_.at(id)));
      case Opcode::kScan: return called(id, static_cast<double>(graph::scan_length(graph_, id)));
      case Opcode::kConditional: return longest_branch(id);
      case Opcode::kCall:
      case Opcode::kFusion:
      case Opcode::kAsyncStart: return called(id, 1);
      default: return {};
    }
  }

 private:
  Count of_kernel(const FusedKernel& kernel) const {
    Count count;
    for (const InstructionId product : kernel.products) {
      const double flops = graph::dot_flops(graph_, product) * kernel.band.kept;
      count.flops += flops;
      // A gradient makes the scores again, whoever computes it: that is no copy that somebody asked for.
      const bool again = kernel.kind == FusedKernelKind::kAttentionGradient && product == kernel.tile;
      if (again) count.again += flops;
    }
    count.masked = kernel.band.kept < 1 ? 1 : 0;
    return count;
  }

  const Count& of_computation(ComputationId c) {
    const auto [it, added] = known_.try_emplace(c);
    if (added) {
      Count sum;
      const graph::Computation& computation = graph_.computation(c);
      for (InstructionId id = computation.first; id < computation.first + computation.count; ++id) sum.add(of(id));
      it->second = sum;
    }
    return it->second;
  }

  Count called(InstructionId id, double times) {
    Count sum;
    for (const ComputationId c : graph_.called(id)) sum.add(of_computation(c), times);
    return sum;
  }

  Count longest_branch(InstructionId id) {
    Count most;
    for (const ComputationId c : graph_.called(id)) {
      if (of_computation(c).flops > most.flops) most = of_computation(c);
    }
    return most;
  }

  const Graph& graph_;
  const FusedChains* chains_;
  std::map<InstructionId, std::int64_t> turns_;
  std::map<ComputationId, Count> known_;
};

// Finds inputs that hold token ids: the indices of rows that are looked up in a weight follow from them.
class TokenIds {
 public:
  explicit TokenIds(const graph::TrainingStep& step) : step_(step) {
    weight_.assign(static_cast<std::size_t>(step.flow.size()), false);
    for (const graph::EntryInput& input : step.inputs) {
      if (input.role == InputRole::kVariable || input.role == InputRole::kFrozen) {
        weight_[static_cast<std::size_t>(input.node)] = true;
      }
    }
  }

  bool look_up(NodeId ids) const {
    constexpr std::size_t kMostSeen = 64;  // clamping, casts and reshapes stand between
    std::vector<NodeId> open = {ids};
    for (std::size_t i = 0; i < open.size() && open.size() < kMostSeen; ++i) {
      for (const NodeId user : step_.flow.users(open[i])) {
        const auto operands = step_.flow.operands(user);
        if (step_.flow.node(user).opcode == Opcode::kGather) {
          if (operands.size() == 2 && operands[1] == open[i] && is_weight(operands[0])) return true;
          continue;
        }
        const bool whole_numbers = !graph::is_float(step_.flow.shape(user));
        if (whole_numbers && std::find(open.begin(), open.end(), user) == open.end()) open.push_back(user);
      }
    }
    return false;
  }

 private:
  // A weight as it is, cast or turned.
  bool is_weight(NodeId node) const {
    constexpr int kMostCasts = 8;
    for (int i = 0; i < kMostCasts; ++i) {
      if (weight_[static_cast<std::size_t>(node)]) return true;
      const auto operands = step_.flow.operands(node);
      if (operands.size() != 1) return false;
      node = operands[0];
    }
    return false;
  }

  const graph::TrainingStep& step_;
  std::vector<bool> weight_;
};

// The tokens of the longer one of encoder and decoder.
std::int64_t tokens_of(const graph::TrainingStep& step) {
  const TokenIds ids(step);
  std::int64_t tokens = 0;
  for (const graph::BatchInput& input : step.batch_inputs) {
    const NodeId node = step.inputs[static_cast<std::size_t>(input.input)].node;
    const Shape& shape = step.flow.shape(node);
    if (!shape.is_array() || graph::is_float(shape) || step.batch <= 0 || !ids.look_up(node)) continue;
    tokens = std::max(tokens, shape.num_elements / (step.batch * std::max<std::int64_t>(1, step.micro_batches)));
  }
  return tokens;
}

}  // namespace

ModelWork model_work(const Graph& graph, const graph::TrainingStep& step, const std::vector<bool>& runs,
                     const FusedChains* used, const std::vector<InstructionTimes::While>& whiles) {
  FusionRule every_attention;
  every_attention.attention = true;
  every_attention.only_16bit = false;
  const FusedChains fused = find_fused_chains(graph, every_attention);
  Products model(graph, &fused, whiles), executed(graph, used, whiles);
  ModelWork work;
  double backward = 0;  // without the scores that gradients of attention make again
  for (NodeId id = 0; id < step.flow.size(); ++id) {
    const auto i = static_cast<std::size_t>(id);
    const Part part = step.part[i];
    if (!runs[i] || part == Part::kInput || part == Part::kFree) continue;
    const InstructionId instruction = step.flow.node(id).instruction;
    work.executed_flops += executed.of(instruction).flops;
    const Products::Count count = model.of(instruction);
    if (part == Part::kBackward) backward += count.flops - count.again;
    if (part != Part::kForward) continue;
    work.forward_flops += count.flops;
    work.masked_attentions += count.masked;
  }
  if (step.training) work.repeated_flops = std::max(0.0, backward - 2 * work.forward_flops);
  work.model_flops = work.forward_flops + std::min(2 * work.forward_flops, backward);
  work.tokens = tokens_of(step);
  work.decoder = fused.causal > 0 && fused.causal + fused.banded == fused.attention;
  return work;
}

}  // namespace automap::profile
