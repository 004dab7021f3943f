// Joins lists of names into one text and splits it again.
#pragma once

#include <algorithm>
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

// The parts between the commas, empty ones included; an empty text has one.
inline std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace automap
