// Reads any accepted form of HLO into a Graph. The form is recognised from the bytes, never from the file name: HLO
// text, HloProto / HloModuleProto (binary, proto3 JSON or text format), the older AST-dump JSON; each may be gzipped.
// StableHLO is one, too, where a Python with jaxlib makes HLO of it (common/hlo/stablehlo.h).
#pragma once

#include <string>
#include <string_view>

#include "common/graph/graph_builder.h"

namespace automap::hlo {

enum class HloForm { kText, kProtoJson, kAstJson, kProtoBinary, kProtoText, kStableHlo };
const char* to_string(HloForm form);        // "text", "proto-json", "ast-json", "proto", "proto-text", "stablehlo"
const char* form_for_people(HloForm form);  // "HLO text", "HLO as binary protobuf", ...

struct HloModule {
  graph::Graph graph;
  HloForm form = HloForm::kText;
  std::string sha256;  // of the bytes as given (before gunzip), hex
};

// `source` names the input in errors ("model.hlo", "<stdin>").
// Throws Error(kData): source:line:column, what was found, what was expected. What is wrong and changes nothing
// (Graph::warnings) is logged.
HloModule read_hlo(std::string bytes, const std::string& source);
// The two halves of read_hlo, for tools that time them. `bytes` are already expanded. Throws Error(kData), with a hint,
// for data that is not HLO at all (empty, other binary data).
HloForm detect_hlo_form(std::string_view bytes, const std::string& source);
graph::Graph read_hlo_as(HloForm form, std::string bytes, const std::string& source,
                         graph::Faults faults = graph::Faults::kRefuse);
// Reads `path` ("-" = standard input). Throws Error(kIo) when it cannot be read.
HloModule load_hlo(const std::string& path);

}  // namespace automap::hlo
