// One HLO module as every planner reads it. All readers (text, JSON, binary protobuf) build the same Graph.
//
// Strings are views into memory the Graph owns (the source text for the text reader, an arena for the others), so
// a Graph is movable but not copyable. Attribute values are kept as raw HLO text ("{1,0}", "\"GTE\"", "LT"): one
// representation for all readers, decoded on demand by hlo_attributes.h and printed back verbatim by hlo_writer.h.
// Unknown opcodes, attributes and types are kept opaque under their own names, and are never an error.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"
#include "common/base/span.h"
#include "common/graph/opcode.h"

namespace automap::graph {

using InstructionId = std::int32_t;  // index over the whole module, 0-based
using ComputationId = std::int32_t;
using ShapeId = std::int32_t;  // equal shapes share one id
constexpr std::int32_t kNone = -1;

enum class ElementType : std::uint8_t {
  kUnknown,  // an array of a type we do not know; Shape::type_name keeps it, bits guessed from its digits
  kTuple,
  kToken,
  kOpaque,
  kPred,
  kS1,
  kS2,
  kS4,
  kS8,
  kS16,
  kS32,
  kS64,
  kU1,
  kU2,
  kU4,
  kU8,
  kU16,
  kU32,
  kU64,
  kF16,
  kBf16,
  kF32,
  kF64,
  kC64,
  kC128,
  kF8,  // every 8-bit float; type_name tells which
  kF4,
  kF6  // sub-byte floats
};

struct Shape {
  ElementType type = ElementType::kUnknown;
  std::string_view type_name;      // "f32", "f8e4m3fn"; "" for a tuple
  std::vector<std::int64_t> dims;  // upper bounds for dynamic dimensions; `?` without a bound is 0
  std::vector<ShapeId> elements;   // of a tuple
  std::string_view text;           // canonical HLO text without layout: "f32[2,3]", "(f32[2], s32[])"
  int bits = 0;                    // of one element; 0 for tuple, token, opaque
  bool dynamic = false;            // some dimension is bounded or unknown
  std::int64_t num_elements = 0;   // product of dims of an array; 0 for tuple, token, opaque
  std::int64_t bytes = 0;          // of the array (sub-byte types packed), or the sum over a tuple's leaves

  bool is_tuple() const { return type == ElementType::kTuple; }
  bool is_array() const {
    return type != ElementType::kTuple && type != ElementType::kToken && type != ElementType::kOpaque;
  }
};

struct Attribute {
  std::string_view key;    // "dimensions"
  std::string_view value;  // raw text, braces and quotes included
};

struct Instruction {
  std::string_view name;         // without '%'
  std::string_view opcode_name;  // as written: also for opcodes we do not know
  std::string_view layout;   // raw "{1,0:T(8,128)}" behind the shape, or empty; of a tuple: its full text with layouts
  std::string_view payload;  // raw text of a constant's literal; of an unknown opcode's unparsable slot
  Opcode opcode = Opcode::kUnknown;
  ShapeId shape = kNone;
  ComputationId computation = kNone;
  std::int32_t first_operand = 0, num_operands = 0;
  std::int32_t first_attribute = 0, num_attributes = 0;
  std::int32_t first_called = 0, num_called = 0;
  std::int64_t number = -1;  // parameter number or get-tuple-element index; -1 for other opcodes
};

struct Computation {
  std::string_view name;
  std::string_view execution_thread;  // empty: the default thread
  InstructionId first = 0;            // instructions are [first, first + count), operands before users
  std::int32_t count = 0;
  InstructionId root = kNone;
  std::vector<InstructionId> parameters;  // by parameter number
};

class Graph {
 public:
  Graph() = default;
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;

  std::string_view name() const { return name_; }
  // Module header attributes (input_output_alias, entry_computation_layout, num_partitions, ...), raw.
  Span<const Attribute> header() const { return header_; }
  std::optional<std::string_view> header_attribute(std::string_view key) const;
  // FileNames ... StackFrames sections, raw, printed back by the writer; empty when the module has none.
  std::string_view stack_tables() const { return stack_tables_; }
  // The HLO text that it was read from, which names, opcodes and attributes are views into; empty for other forms.
  std::string_view source_text() const { return source_ == nullptr ? std::string_view() : *source_; }

  std::int32_t num_instructions() const { return static_cast<std::int32_t>(instructions_.size()); }
  std::int32_t num_computations() const { return static_cast<std::int32_t>(computations_.size()); }
  const Instruction& instruction(InstructionId id) const { return instructions_[static_cast<std::size_t>(id)]; }
  const Computation& computation(ComputationId id) const { return computations_[static_cast<std::size_t>(id)]; }
  const Shape& shape(ShapeId id) const { return shapes_[static_cast<std::size_t>(id)]; }
  const Shape& shape_of(InstructionId id) const { return shape(instruction(id).shape); }
  // "f32[2,3]{1,0}", "(f32[2]{0}, s32[])": the shape of a result as HLO text prints it.
  std::string shape_with_layout(InstructionId id) const;
  ComputationId entry_id() const { return entry_; }
  const Computation& entry() const { return computation(entry_); }

  Span<const InstructionId> operands(InstructionId id) const;
  // Computations named by to_apply, calls, condition, body, branch_computations, ... in attribute order
  // (while: condition then body whatever the text's order; conditional: branches in branch order).
  Span<const ComputationId> called(InstructionId id) const;
  Span<const Attribute> attributes(InstructionId id) const;
  std::optional<std::string_view> attribute(InstructionId id, std::string_view key) const;
  // metadata op_name, unescaped; empty without metadata.
  std::string op_name(InstructionId id) const;
  // A field of metadata={...} ("op_type", "source_file"), unescaped; empty when absent.
  std::string metadata(InstructionId id, std::string_view field) const;

  // Faults that XLA's parser accepts and its verifier refuses (shapes that do not fit each other, dimensions out of
  // range): the first of them, each with its place. Only a reader that was asked to go on leaves any (graph_builder.h).
  // Nothing but the counts of such a module means anything, and functions that take a Graph may expect that it has
  // none.
  Span<const Error> faults() const { return faults_; }
  bool is_faulty(InstructionId id) const;
  // Faults that change nothing that is computed here: malformed shardings, stale lists of parameters. The first of
  // them, each with its place.
  Span<const std::string> warnings() const { return warnings_; }

  // Throws Error(kData): "source:line:column: message", the line and a caret when `where` points into the text that the
  // module was read from, else "source: message".
  [[noreturn]] void fail(std::string_view where, const std::string& message, const std::string& hint = "") const;
  // "source:line:column: " of `where`; "source: " when it does not point into the text.
  std::string place(std::string_view where) const;

  // Instructions of the same computation that read `id`, ascending, each once. Built on first use (not thread-safe
  // until then).
  Span<const InstructionId> users(InstructionId id) const;

 private:
  friend class GraphBuilder;  // graph_builder.h: the readers' side
  friend class ResizedGraph;  // resized_graph.h
  friend class OneDevice;     // shard_map_step.cpp

  bool in_text(const char* at) const;

  std::string source_name_;
  std::vector<Error> faults_;
  std::vector<InstructionId> faulty_;  // ascending
  std::vector<std::string> warnings_;
  std::string_view name_;
  std::string_view stack_tables_;
  std::vector<Attribute> header_;
  std::vector<Instruction> instructions_;
  std::vector<Computation> computations_;
  std::vector<Shape> shapes_;
  std::vector<InstructionId> operands_;
  std::vector<ComputationId> called_;
  std::vector<Attribute> attributes_;
  ComputationId entry_ = kNone;
  std::unique_ptr<std::string> source_;  // text that views point into; on the heap, so that moves keep them valid
  std::deque<std::string> arena_;        // strings made by readers
  mutable std::vector<InstructionId> users_;
  mutable std::vector<std::int32_t> first_user_;
};

}  // namespace automap::graph
