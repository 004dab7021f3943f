// Internals shared by the parts of GraphBuilder: building (graph_builder.cpp), the texts of shapes
// (graph_builder_shapes.cpp), inference of unwritten shapes (graph_builder_infer.cpp), checks
// (graph_builder_checks.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/span.h"
#include "common/graph/graph.h"

namespace automap::graph::internal {

// For errors: in quotes, cut short.
std::string quoted(std::string_view s);
// Cut short.
std::string short_text(std::string_view s);
// "add 'x'".
std::string label_of(const Instruction& instruction);

std::optional<std::string_view> find_attribute(Span<const Attribute> attributes, std::string_view key);
// The integers of an attribute; nothing when it is absent. `ok` turns false when it holds something else.
std::vector<std::int64_t> integers_of(Span<const Attribute> attributes, std::string_view key, bool* ok);
// False when `text` is anything but one integer.
bool parse_integer(std::string_view text, std::int64_t* out);

}  // namespace automap::graph::internal
