// Identifies a file and describes its content: HLO in any form, a profile, a cluster (also a preset's name), a device,
// a plan, a policy. docs/formats/inspect.md documents the JSON, inspect.schema.json checks it.
#pragma once

#include <string>

#include "common/base/json.h"

namespace automap::inspect {

struct Description {
  Json document;     // schema automap.inspect/1
  std::string text;  // the same for people
};

struct DescribeOptions {
  bool time = false;  // HLO: adds parse_ms
};

// `path` is a file, "-" for standard input, or the name of a cluster preset when no file has that name. The kind is
// told from the bytes. Throws Error(kIo) when the file cannot be read, Error(kData) or Error(kConfig) when it is
// none of the above or damaged.
Description describe(const std::string& path, const DescribeOptions& options = {});

// The same of bytes at hand; `source` names them in errors.
Description describe_bytes(std::string bytes, const std::string& source, const DescribeOptions& options = {});

}  // namespace automap::inspect
