// Errors that readers throw for the content of a file.
#pragma once

#include <string>
#include <string_view>

#include "common/base/error.h"
#include "common/base/printable.h"

namespace automap::io {

// Error(kData): "shard-000000.h5: cut short".
[[noreturn]] inline void fail_data(const std::string& source, const std::string& what, const std::string& hint = "") {
  throw Error(ErrorKind::kData, source + ": " + what, hint);
}

// The text found, for such a message: "'12abc'", cut where it is long.
inline std::string shown(std::string_view text) {
  constexpr int kShown = 60;
  return "'" + excerpt(text, kShown) + "'";
}

}  // namespace automap::io
