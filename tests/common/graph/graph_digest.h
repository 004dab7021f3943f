// The essentials of a graph as text, so that tests can compare two graphs and show where they differ.
#pragma once

#include <sstream>
#include <string>

#include "common/graph/graph.h"

namespace automap::graph {

inline std::string digest(const Graph& g) {
  std::ostringstream out;
  out << "module " << g.name() << "\n";
  for (const Attribute& a : g.header()) out << "header " << a.key << "=" << a.value << "\n";
  out << g.stack_tables() << "\n";
  for (ComputationId c = 0; c < g.num_computations(); ++c) {
    const Computation& computation = g.computation(c);
    out << (c == g.entry_id() ? "ENTRY " : "") << computation.name << " thread '" << computation.execution_thread
        << "' root " << g.instruction(computation.root).name << "\n";
    for (InstructionId id = computation.first; id < computation.first + computation.count; ++id) {
      const Instruction& i = g.instruction(id);
      out << "  " << i.name << " = " << g.shape_of(id).text << " layout '" << i.layout << "' " << i.opcode_name << "/"
          << static_cast<int>(i.opcode) << " payload '" << i.payload << "' number " << i.number << " operands";
      for (const InstructionId operand : g.operands(id)) out << " " << g.instruction(operand).name;
      for (const Attribute& a : g.attributes(id)) out << " | " << a.key << "=" << a.value;
      for (const ComputationId callee : g.called(id)) out << " @" << g.computation(callee).name;
      out << "\n";
    }
  }
  return out.str();
}

}  // namespace automap::graph
