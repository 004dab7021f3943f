// Element types of HLO and the small facts about shapes that every reader and planner needs.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/graph/graph.h"

namespace automap::graph {

struct ElementTypeInfo {
  ElementType type = ElementType::kUnknown;
  int bits = 0;  // of one element; 0 for token and opaque
};

// Never fails: a type nobody told us about is kUnknown, its width guessed from the first digits of its name
// ("i12x" -> 12), 32 when it has none.
ElementTypeInfo element_type_info(std::string_view name);

// The name a type is printed with ("f32"); "" for kUnknown and for the kinds that several names share (kF8, kF6).
std::string_view element_type_name(ElementType type);

// Equal dimensions element by element (tuples: leaf by leaf); element types and layouts may differ. A shape with a
// dynamic dimension fits every shape of its rank, tokens and opaque values fit each other.
bool same_dimensions(const Graph& graph, ShapeId a, ShapeId b);

}  // namespace automap::graph
