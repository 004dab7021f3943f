#include "plan/programs/stage_program.h"

#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/graph/graph_builder.h"
#include "common/graph/hlo_attributes.h"

namespace automap::programs {

using graph::Attribute;
using graph::ComputationId;
using graph::FlowGraph;
using graph::FlowNode;
using graph::Graph;
using graph::GraphBuilder;
using graph::Instruction;
using graph::InstructionDraft;
using graph::InstructionId;
using graph::NodeId;
using graph::Opcode;
using graph::ShapeId;

namespace {

class Extraction {
 public:
  Extraction(const FlowGraph& flow, const std::string& name) : flow_(flow), from_(flow.graph()), to_(name) {
    to_.set_module_name(to_.keep(name));
  }

  Graph run(const std::vector<NodeId>& inside, const std::vector<NodeId>& parameters,
            const std::vector<NodeId>& results) {
    for (const NodeId id : inside) {
      if (flow_.producer(id) == id) copy_called(flow_.node(id).instruction);
    }
    // No computation that is copied has this name.
    to_.begin_computation(from_.entry().name, true);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      InstructionDraft draft;
      draft.opcode_name = "parameter";
      draft.shape = shape(flow_.node(parameters[i]).shape);
      draft.number = static_cast<std::int64_t>(i);
      made_[parameters[i]] = to_.add(draft, {}, {});
    }
    for (const NodeId id : inside) made_[id] = copy(id);
    std::vector<InstructionId> leaves;
    for (const NodeId id : results) leaves.push_back(made_.at(id));
    to_.end_computation(tuple_of(leaves), "");
    return to_.finish();
  }

 private:
  ShapeId shape(ShapeId id) { return to_.shape(from_.shape(id).text); }

  InstructionId tuple_of(const std::vector<InstructionId>& leaves) {
    std::vector<ShapeId> shapes;
    for (const InstructionId leaf : leaves) shapes.push_back(to_.at(leaf).shape);
    InstructionDraft draft;
    draft.opcode_name = "tuple";
    draft.shape = to_.tuple_shape(shapes);
    return to_.add(draft, leaves, {});
  }

  // Rebuilds a tuple operand of a unit from its leaves.
  InstructionId rebuild(ShapeId of, const std::vector<InstructionId>& leaves, std::size_t* next) {
    const graph::Shape& wanted = from_.shape(of);
    if (!wanted.is_tuple()) return leaves[(*next)++];
    std::vector<InstructionId> elements;
    for (const ShapeId element : wanted.elements) elements.push_back(rebuild(element, leaves, next));
    return tuple_of(elements);
  }

  std::size_t leaves_of(ShapeId of) const {
    const graph::Shape& counted = from_.shape(of);
    if (!counted.is_tuple()) return 1;
    std::size_t all = 0;
    for (const ShapeId element : counted.elements) all += leaves_of(element);
    return all;
  }

  InstructionId element(InstructionId of, std::size_t index, ShapeId of_element) {
    InstructionDraft draft;
    draft.opcode_name = "get-tuple-element";
    draft.shape = shape(of_element);
    const Attribute attribute{"index", to_.keep(std::to_string(index))};
    return to_.add(draft, Span<const InstructionId>(&of, 1), Span<const Attribute>(&attribute, 1));
  }

  // Result number `leaf` of a unit.
  InstructionId projection(NodeId unit, std::int32_t leaf) {
    InstructionId at = made_.at(unit);
    ShapeId of = flow_.node(unit).shape;
    auto left = static_cast<std::size_t>(leaf);
    while (from_.shape(of).is_tuple()) {
      const std::vector<ShapeId>& elements = from_.shape(of).elements;
      std::size_t index = 0;
      while (left >= leaves_of(elements[index])) left -= leaves_of(elements[index++]);
      at = element(at, index, elements[index]);
      of = elements[index];
    }
    return at;
  }

  std::vector<Attribute> kept_attributes(InstructionId id) const {
    std::vector<Attribute> kept;
    for (const Attribute& attribute : from_.attributes(id)) {
      if (attribute.key == "metadata" || attribute.key == "sharding" || attribute.key == "control-predecessors")
        continue;
      kept.push_back(attribute);
    }
    return kept;
  }

  InstructionDraft draft_of(InstructionId id) {
    const Instruction& instruction = from_.instruction(id);
    InstructionDraft draft;
    draft.opcode_name = instruction.opcode_name;
    draft.layout = instruction.layout;
    draft.payload = instruction.payload;
    draft.opcode = instruction.opcode;
    draft.shape = shape(instruction.shape);
    return draft;
  }

  [[noreturn]] void refuse(InstructionId id, const std::string& why) const {
    throw Error(ErrorKind::kData, "instruction '" + std::string(from_.instruction(id).name) + "' " + why,
                "no program can be cut around it; nothing was written");
  }

  // Throws for a collective, which only all devices of the original step could run together.
  void check_alone(InstructionId id) const {
    if (!graph::is_collective(from_.instruction(id).opcode)) return;
    const std::optional<std::string_view> raw = from_.attribute(id, "replica_groups");
    const std::string name(from_.instruction(id).name);
    const bool alone = !raw || graph::decode_replica_groups(*raw, {name, "replica_groups", &from_}).group_size <= 1;
    if (alone && !from_.attribute(id, "source_target_pairs")) return;
    throw Error(ErrorKind::kData,
                "instruction '" + name + "' is a collective of the step's own, among devices that a program has not",
                "export the step without shard_map or pmap: programs sum over their replicas by themselves");
  }

  InstructionId copy(NodeId id) {
    const FlowNode& node = flow_.node(id);
    if (flow_.producer(id) != id) return projection(flow_.producer(id), node.leaf);
    check_alone(node.instruction);
    std::vector<InstructionId> leaves;
    for (const NodeId operand : flow_.operands(id)) leaves.push_back(made_.at(operand));
    // Nothing is partitioned here: annotations hand on their operands, and so do instructions that only keep XLA from
    // moving a value.
    if (graph::is_annotation(from_, node.instruction)) return leaves[0];
    if (node.opcode == Opcode::kOptBarrier) return leaves[0];
    if (node.opcode == Opcode::kConditional) {
      refuse(node.instruction, "is a conditional, whose branches are not cut out yet");
    }
    if (node.opcode == Opcode::kRng) refuse(node.instruction, "draws random numbers that no input decides");
    std::vector<InstructionId> operands;
    std::size_t next = 0;
    for (const InstructionId operand : from_.operands(node.instruction)) {
      if (next + leaves_of(from_.instruction(operand).shape) > leaves.size()) {
        refuse(node.instruction, "reads values that could not be told apart");
      }
      operands.push_back(rebuild(from_.instruction(operand).shape, leaves, &next));
    }
    return to_.add(draft_of(node.instruction), operands, kept_attributes(node.instruction));
  }

  void copy_called(InstructionId id) {
    for (const ComputationId callee : from_.called(id)) copy_computation(callee);
  }

  // Callees first; the reader has checked that they call each other in no circle.
  void copy_computation(ComputationId id) {
    if (!copied_.insert(id).second) return;
    const graph::Computation& computation = from_.computation(id);
    for (InstructionId i = computation.first; i < computation.first + computation.count; ++i) copy_called(i);
    to_.begin_computation(computation.name, false);
    std::vector<InstructionId> inner(static_cast<std::size_t>(computation.count));
    for (InstructionId i = computation.first; i < computation.first + computation.count; ++i) {
      if (from_.instruction(i).opcode == Opcode::kRng) refuse(i, "draws random numbers that no input decides");
      check_alone(i);
      InstructionDraft draft = draft_of(i);
      draft.name = from_.instruction(i).name;
      draft.number = from_.instruction(i).number;
      std::vector<InstructionId> operands;
      for (const InstructionId operand : from_.operands(i)) {
        operands.push_back(inner[static_cast<std::size_t>(operand - computation.first)]);
      }
      inner[static_cast<std::size_t>(i - computation.first)] = to_.add(draft, operands, kept_attributes(i));
    }
    to_.end_computation(inner[static_cast<std::size_t>(computation.root - computation.first)],
                        computation.execution_thread);
  }

  const FlowGraph& flow_;
  const Graph& from_;
  GraphBuilder to_;
  std::unordered_map<NodeId, InstructionId> made_;
  std::unordered_set<ComputationId> copied_;
};

}  // namespace

Graph extract_program(const FlowGraph& flow, const std::string& name, const std::vector<NodeId>& inside,
                      const std::vector<NodeId>& parameters, const std::vector<NodeId>& results) {
  return Extraction(flow, name).run(inside, parameters, results);
}

}  // namespace automap::programs
