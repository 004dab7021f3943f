#include "common/graph/hlo_writer.h"

#include <string_view>
#include <vector>

namespace automap::graph {
namespace {

// Computations with every callee before its callers, otherwise in their own order.
std::vector<ComputationId> callees_first(const Graph& graph) {
  struct Frame {
    ComputationId computation;
    InstructionId instruction;
    std::size_t called;
  };
  std::vector<ComputationId> order;
  std::vector<bool> seen(static_cast<std::size_t>(graph.num_computations()), false);
  std::vector<Frame> stack;
  for (ComputationId start = 0; start < graph.num_computations(); ++start) {
    if (seen[static_cast<std::size_t>(start)]) continue;
    seen[static_cast<std::size_t>(start)] = true;
    stack.push_back({start, graph.computation(start).first, 0});
    while (!stack.empty()) {
      Frame& frame = stack.back();
      const Computation& computation = graph.computation(frame.computation);
      if (frame.instruction == computation.first + computation.count) {
        order.push_back(frame.computation);
        stack.pop_back();
        continue;
      }
      const Span<const ComputationId> called = graph.called(frame.instruction);
      if (frame.called == called.size()) {
        ++frame.instruction;
        frame.called = 0;
        continue;
      }
      const ComputationId callee = called[frame.called++];
      if (seen[static_cast<std::size_t>(callee)]) continue;
      seen[static_cast<std::size_t>(callee)] = true;
      stack.push_back({callee, graph.computation(callee).first, 0});
    }
  }
  return order;
}

class Writer {
 public:
  Writer(const Graph& graph, const WriteOptions& options) : graph_(graph), options_(options) {}

  std::string write() {
    out_.reserve(static_cast<std::size_t>(graph_.num_instructions()) * 200);
    header();
    for (const ComputationId id : callees_first(graph_)) computation(id);
    return std::move(out_);
  }

 private:
  void put(std::string_view s) { out_.append(s); }

  void attribute(std::string_view key, std::string_view value) {
    put(", ");
    put(key);
    put("=");
    put(value);
  }

  void header() {
    put("HloModule ");
    put(graph_.name().empty() ? std::string_view("module") : graph_.name());
    bool partitions = options_.num_partitions == 0;
    for (const Attribute& a : graph_.header()) {
      if (options_.num_partitions != 0 && a.key == "num_partitions") {
        partitions = true;
        attribute(a.key, std::to_string(options_.num_partitions));
      } else {
        attribute(a.key, a.value);
      }
    }
    if (!partitions) attribute("num_partitions", std::to_string(options_.num_partitions));
    put("\n\n");
    if (options_.metadata && !graph_.stack_tables().empty()) {
      put(graph_.stack_tables());
      put("\n\n");
    }
  }

  void computation(ComputationId id) {
    const Computation& computation = graph_.computation(id);
    if (id == graph_.entry_id()) put("ENTRY ");
    put("%");
    put(computation.name);
    put(" (");
    for (std::size_t i = 0; i < computation.parameters.size(); ++i) {
      if (i != 0) put(", ");
      put(graph_.instruction(computation.parameters[i]).name);
      put(": ");
      put(graph_.shape_of(computation.parameters[i]).text);
    }
    put(") -> ");
    put(graph_.shape_of(computation.root).text);
    put(" {\n");
    for (InstructionId i = computation.first; i < computation.first + computation.count; ++i) {
      put(i == computation.root ? "  ROOT %" : "  %");
      instruction(i);
      put("\n");
    }
    put("}");
    if (!computation.execution_thread.empty()) {
      put(", execution_thread=\"");
      put(computation.execution_thread);
      put("\"");
    }
    put("\n\n");
  }

  void instruction(InstructionId id) {
    const Instruction& instruction = graph_.instruction(id);
    const Shape& shape = graph_.shape(instruction.shape);
    put(instruction.name);
    put(" = ");
    if (shape.is_array()) {
      put(shape.text);
      put(instruction.layout);
    } else {
      put(instruction.layout.empty() ? shape.text : instruction.layout);
    }
    put(" ");
    put(instruction.opcode_name);
    put("(");
    if (instruction.opcode == Opcode::kParameter) {
      put(std::to_string(instruction.number));
    } else if (!instruction.payload.empty()) {
      put(instruction.payload);
    } else {
      bool first = true;
      for (const InstructionId operand : graph_.operands(id)) {
        if (!first) put(", ");
        first = false;
        if (options_.operand_shapes) {
          put(graph_.shape_of(operand).text);
          put(" ");
        }
        put("%");
        put(graph_.instruction(operand).name);
      }
    }
    put(")");
    std::optional<std::string> sharding;
    if (options_.sharding) sharding = options_.sharding(id);
    bool printed = false;
    for (const Attribute& a : graph_.attributes(id)) {
      if (!options_.metadata && a.key == "metadata") continue;
      if (sharding && a.key == "sharding") {
        if (!printed && !sharding->empty()) attribute("sharding", *sharding);
        printed = true;
        continue;
      }
      attribute(a.key, a.value);
    }
    if (sharding && !printed && !sharding->empty()) attribute("sharding", *sharding);
  }

  const Graph& graph_;
  const WriteOptions& options_;
  std::string out_;
};

}  // namespace

std::string write_hlo_text(const Graph& graph, const WriteOptions& options) {
  return Writer(graph, options).write();
}

}  // namespace automap::graph
