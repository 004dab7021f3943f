// Lists of names for people.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace automap {

// "a, b, c".
inline std::string join(const std::vector<std::string>& parts, std::string_view between = ", ") {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += between;
    out += parts[i];
  }
  return out;
}

}  // namespace automap
