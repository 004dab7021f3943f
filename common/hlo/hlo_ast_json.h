// Reads the older "HLO JSON": a syntax tree of HLO text, as planners of 2020 wrote it with a parser generator.
//
//   {"Functions": [{"Name": "%add", "Params": [{"Name": "x", "Type": TYPE}, ...], "ReturnType": TYPE, "Body": [
//      {"VarName": "%r", "Fn": {"ReturnType": TYPE, "Name": "add", "Argument": [{"Type": TYPE, "Value": VALUE}, ...]},
//       "Meta": [{"Key": "dimensions", "Value": VALUE}, ...]}, ...]}, ...]}
//   TYPE  = {"DataType": "f32", "Dimensions": [2,3], "Layout": [1,0]} or {"TupleType": [TYPE, ...]}
//   VALUE = {"Integer"|"Float"|"Scientific"|"String"|"Integers"|"Floats"|"Dicts"|"Slices"|"Boolean"|"Types"|
//            "Collection"|"Misc": ...}, one of them not null; none: "{}"
//
// Operands may also stand as {"Type": TYPE, "Name": "%x"}, and Number, Numbers for Integer, Integers. The form drops
// ENTRY and ROOT: the entry is the last function that no other calls; the root is the last instruction, unless only
// another unused one has the function's return type. Constants printed "{...}" arrive as "{}" and are elided.
#pragma once

#include <string>
#include <string_view>

#include "common/graph/graph_builder.h"

namespace automap::hlo {

// Throws Error(kData): source:line:column for what is wrong in the JSON, "source: in computation 'c': ..." for what is
// wrong in the module.
graph::Graph read_ast_json(std::string_view text, const std::string& source,
                           graph::Faults faults = graph::Faults::kRefuse);

}  // namespace automap::hlo
