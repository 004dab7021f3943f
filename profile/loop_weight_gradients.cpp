#include "profile/loop_weight_gradients.h"

#include <algorithm>
#include <map>

namespace automap::profile {

using graph::Computation;
using graph::ComputationId;
using graph::Graph;
using graph::Instruction;
using graph::InstructionId;
using graph::Opcode;

namespace {

class BodyParts {
 public:
  BodyParts(const Graph& graph, const std::vector<double>& ms) : graph_(graph), ms_(ms) {}

  struct Cost {
    double needed_ms = 0, all_ms = 0;
  };

  // The cost of the elements `wanted` of a computation's result. `parameters` receives the parameters that they need.
  Cost cost(ComputationId computation, const std::vector<bool>& wanted, std::vector<bool>* parameters) const {
    const Computation& body = graph_.computation(computation);
    std::map<InstructionId, std::vector<bool>> needs;
    needs[body.root] = wanted;
    const auto need = [&](InstructionId id, std::int64_t element) {
      std::vector<bool>& of = needs[id];
      of.resize(elements(id), false);
      if (element >= 0 && static_cast<std::size_t>(element) < of.size()) {
        of[static_cast<std::size_t>(element)] = true;
      } else {
        of.assign(of.size(), true);
      }
    };
    Cost out;
    parameters->assign(body.parameters.size(), false);
    for (InstructionId id = body.first + body.count; id-- > body.first;) {
      const double own_ms = ms_[static_cast<std::size_t>(id)];
      out.all_ms += own_ms;
      const auto found = needs.find(id);
      if (found == needs.end()) continue;
      const std::vector<bool> of = found->second;
      if (std::none_of(of.begin(), of.end(), [](bool one) { return one; })) continue;
      const Instruction& instruction = graph_.instruction(id);
      const auto operands = graph_.operands(id);
      switch (instruction.opcode) {
        case Opcode::kParameter: (*parameters)[static_cast<std::size_t>(instruction.number)] = true; break;
        case Opcode::kTuple:
          for (std::size_t i = 0; i < operands.size(); ++i) {
            if (of[i]) need(operands[i], -1);
          }
          break;
        case Opcode::kGetTupleElement: need(operands[0], instruction.number); break;
        case Opcode::kOptBarrier:
          for (std::size_t i = 0; i < of.size(); ++i) {
            if (of[i]) need(operands[0], of.size() > 1 ? static_cast<std::int64_t>(i) : -1);
          }
          break;
        case Opcode::kCall: {
          std::vector<bool> inside;
          const Cost called = cost(graph_.called(id)[0], of, &inside);
          out.needed_ms += called.all_ms > 0 ? own_ms * (called.needed_ms / called.all_ms) : 0;
          for (std::size_t i = 0; i < operands.size(); ++i) {
            if (i < inside.size() && inside[i]) need(operands[i], -1);
          }
          break;
        }
        default:
          out.needed_ms += own_ms;
          for (const InstructionId operand : operands) need(operand, -1);
      }
    }
    return out;
  }

  // By element of the state: true if it is used for nothing but its own next value.
  std::vector<bool> only_written_on(ComputationId computation) const {
    const Computation& body = graph_.computation(computation);
    const auto operands = graph_.operands(body.root);
    const std::size_t all = operands.size();
    std::map<InstructionId, std::vector<bool>> comes_of;  // elements of the parameter
    for (InstructionId id = body.first; id < body.first + body.count; ++id) {
      const Instruction& instruction = graph_.instruction(id);
      std::vector<bool> of(all, false);
      for (const InstructionId operand : graph_.operands(id)) {
        if (graph_.instruction(operand).opcode == Opcode::kParameter) {
          if (instruction.opcode == Opcode::kGetTupleElement && static_cast<std::size_t>(instruction.number) < all) {
            of[static_cast<std::size_t>(instruction.number)] = true;
          } else {
            of.assign(all, true);
          }
          continue;
        }
        const std::vector<bool>& from = comes_of[operand];
        for (std::size_t k = 0; k < from.size(); ++k) of[k] = of[k] || from[k];
      }
      comes_of[id] = std::move(of);
    }
    std::vector<bool> out(all, true);
    for (std::size_t e = 0; e < all; ++e) {
      const std::vector<bool>& of = comes_of[operands[e]];
      for (std::size_t k = 0; k < of.size(); ++k) {
        if (k != e && of[k]) out[k] = false;
      }
    }
    return out;
  }

 private:
  std::size_t elements(InstructionId id) const {
    const graph::Shape& shape = graph_.shape_of(id);
    return shape.is_tuple() ? std::max<std::size_t>(1, shape.elements.size()) : 1;
  }

  const Graph& graph_;
  const std::vector<double>& ms_;
};

}  // namespace

double loop_weight_share(const Graph& graph, InstructionId loop, const std::vector<double>& ms) {
  const auto called = graph.called(loop);
  if (graph.instruction(loop).opcode != Opcode::kWhile || called.size() != 2) return 0;
  const InstructionId root = graph.computation(called[1]).root;
  if (graph.instruction(root).opcode != Opcode::kTuple) return 0;
  const BodyParts parts(graph, ms);
  std::vector<bool> waited_for = parts.only_written_on(called[1]);
  waited_for.flip();
  std::vector<bool> parameters;
  const BodyParts::Cost cost = parts.cost(called[1], waited_for, &parameters);
  return cost.all_ms > 0 ? std::clamp(1 - cost.needed_ms / cost.all_ms, 0.0, 1.0) : 0;
}

}  // namespace automap::profile
