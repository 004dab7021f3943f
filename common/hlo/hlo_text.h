// Reads HLO text into a Graph, in every dialect met so far: with and without '%', operand shapes printed or omitted,
// comments, glog prefixes, no header, no ENTRY, no ROOT, stack-frame tables, raw JSON attributes, nested operand
// expressions ("add(f32[] constant(1), x)"), compact tuple access ("%x#1.0"). One pass, no recursion on the input's
// depth.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/graph/graph_builder.h"

namespace automap::hlo {

// `source` names the input in errors.
// Throws Error(kData) with source:line:column, what was found, what was expected and the place in the line.
graph::Graph read_hlo_text(std::string text, const std::string& source, graph::Faults faults = graph::Faults::kRefuse);

// The modules of a text that holds several of them: separated by lines "// -----" (as in compiler tests), or simply one
// HloModule after the other. Pieces without any HLO (only comments) are left out; one module gives one piece.
std::vector<std::string_view> split_modules(std::string_view text);

}  // namespace automap::hlo
