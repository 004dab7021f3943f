// Converts fields of XLA's messages to the HLO text that XLA itself prints for them, so that a Graph read from a
// protobuf carries the same attribute values as one read from the text of the same module.
//
// Worked case: an HloInstructionProto {opcode: "reduce", dimensions: [1], called_computation_ids: [3]} whose
// computation 3 is called "add" gives the attributes dimensions = "{1}", to_apply = "%add".
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/hlo/hlo_proto.h"

namespace automap::hlo::proto {

// Key (a literal) and value of one attribute. They share one buffer, which the caller keeps.
struct AttributeText {
  std::string_view key;
  std::size_t begin = 0, end = 0;  // in `buffer`
};
struct AttributeList {
  std::string buffer;
  std::vector<AttributeText> items;
  void clear() {
    buffer.clear();
    items.clear();
  }
};

// Names of the things that ids in an instruction refer to, without '%'.
struct Names {
  std::function<std::string_view(std::int64_t)> computation;  // throws when there is none
  std::function<std::string_view(std::int64_t)> instruction;  // a control predecessor; "" when there is none
};

struct TypeNames {
  const std::vector<std::string>* unknown = nullptr;  // of decode_json
  // "f32"; "unknown" for a number nobody told us about; "" for tuples.
  std::string_view name(std::int64_t element_type) const;
};

// All attributes of an instruction, in XLA's order. `predicate` says that the first operand is a pred[] (it decides
// between true_computation= and branch_computations=).
void instruction_attributes(const HloInstructionProto& instruction, bool predicate, const Names& names,
                            const TypeNames& types, AttributeList* out);

// The module's header: is_scheduled, input_output_alias, buffer_donor, entry_computation_layout, replica_count,
// num_partitions, frontend_attributes.
void header_attributes(const HloModuleProto& module, const TypeNames& types, AttributeList* out);

// FileNames ... StackFrames, as printed between the header and the first computation; "" when there are none.
std::string stack_tables(const StackFrameIndexProto& index);

// "{1,0:T(8,128)S(5)}"; "" for the layout of a scalar that says nothing.
std::string layout_text(const ShapeProto& shape, const TypeNames& types);
// "f32[2,<=3]{1,0}", "(s32[], f32[4]{0})".
std::string shape_text(const ShapeProto& shape, const TypeNames& types, bool layouts);

// "0.1", "{ {1, 2}, {3, 4} }", "( 1.5, {1, 2} )"; "{...}" when the literal has no values or more than
// kMaxLiteralElements. `shape` is the instruction's. Returns false (and says why) when the values do not fit the shape.
bool literal_text(const LiteralProto& literal, const ShapeProto& shape, std::string* out, std::string* why);

// "{devices=[2,1]<=[2]}", "{replicated}", "{{manual}, {maximal device=1}}".
std::string sharding_text(const OpSharding& sharding);

// C escapes, as XLA prints strings: \n \r \t \" \' \\ and octal for other bytes outside ASCII's printable range.
std::string c_escape(std::string_view s);

}  // namespace automap::hlo::proto
