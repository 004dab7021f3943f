// Any accepted HLO form -> Graph. The form is recognised from the bytes, never from the file name:
// HLO text, HloProto / HloModuleProto (binary or proto3 JSON), the older AST-dump JSON; each may be gzipped.
#pragma once

#include <string>

#include "common/graph/graph.h"

namespace automap::graph {

enum class HloForm { kText, kProtoJson, kAstJson, kProtoBinary };
const char* to_string(HloForm form);

struct HloModule {
  Graph graph;
  HloForm form = HloForm::kText;
  std::string sha256;  // of the bytes as given (before gunzip), hex
};

// `source` names the input in errors ("model.hlo", "<stdin>").
// Throws Error(kData): source:line:column, what was found, what was expected.
HloModule read_hlo(std::string bytes, const std::string& source);
// Reads `path` ("-" = standard input). Throws Error(kIo) when it cannot be read.
HloModule load_hlo(const std::string& path);

}  // namespace automap::graph
