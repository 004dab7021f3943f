// Writes a Graph as HLO text that XLA's own parser accepts, and that read_hlo_text reads back to the same graph:
// opcodes, shapes, layouts, operands, attributes, parameters, roots, header. Callees are printed before their callers.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "common/graph/graph.h"

namespace automap::hlo {

// Another opcode in an instruction's place: all its attributes but metadata go, sharding() is not asked.
struct OpcodeEdit {
  std::string opcode;
  bool keep_operands = true;
};

// The part of an operand that one device reads (jax.shard_map's SPMDFullToShardShape).
struct LocalOperand {
  std::string sharding;  // of the whole
  std::string shape;     // of the part, without a layout: "f32[16,8]"
  // Only its share of every element, 1/num_partitions, so that all devices' make the whole (floating-point types).
  bool share = false;
};

struct WriteOptions {
  bool metadata = true;         // metadata={...} and the stack-frame tables it refers to (write_hlo_text only)
  bool operand_shapes = false;  // "add(f32[2] %a, f32[2] %b)": the older spelling (write_hlo_text only)
  // The sharding to print for an instruction, raw ("{devices=[2,1]<=[2]}"), in place of its own. nullopt keeps its own,
  // "" drops it. Empty function: nothing changes.
  std::function<std::optional<std::string>(graph::InstructionId)> sharding;
  // Printed as num_partitions=N in place of the header's number; 0 keeps the header.
  int num_partitions = 0;
  // The value to print for any other attribute of an instruction, or of the header (kNone): nullopt keeps it, "" drops
  // it. Empty function: nothing changes.
  std::function<std::optional<std::string>(graph::InstructionId, const graph::Attribute&)> attribute;
  std::function<std::optional<OpcodeEdit>(graph::InstructionId)> opcode;
  // The shardings that an instruction reads its operand number i with: that operand then goes through annotations, one
  // after the other, lines of their own before the instruction (custom-call "Sharding", which XLA's partitioner turns
  // into a copy). Empty: it is read as it is. Not for instructions with an OpcodeEdit.
  std::function<std::vector<std::string>(graph::InstructionId, std::size_t)> operand_shardings;
  // The same for an instruction that is partitioned by hand (its own sharding is "{manual}"): behind the annotation
  // another line takes the device's part. Asked before operand_shardings.
  std::function<std::optional<LocalOperand>(graph::InstructionId, std::size_t)> local_operand;
  // The result holds partial sums by hand: lines behind the instruction add them up over all of num_partitions (an
  // all-reduce) and make a whole of them again, with this sharding. Whoever reads the instruction reads that, but for
  // operands that are read_partial. Not for ROOTs, nor for instructions with an OpcodeEdit.
  std::function<std::optional<std::string>(graph::InstructionId)> summed;
  std::function<bool(graph::InstructionId, std::size_t)> read_partial;
};

std::string write_hlo_text(const graph::Graph& graph, const WriteOptions& options = {});

// The text that the module was read from with nothing but these changes made to it, so that a line-by-line comparison
// shows them and nothing else. Modules read from other forms, and texts in a spelling that XLA's parser does not take
// (callees behind their callers, no ENTRY, nested operand expressions, compact tuple access), are written anew.
std::string edit_hlo_text(const graph::Graph& graph, const WriteOptions& options);

}  // namespace automap::hlo
