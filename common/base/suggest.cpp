#include "common/base/suggest.h"

#include <algorithm>

namespace automap {
namespace {

// Damerau-Levenshtein distance (optimal string alignment).
int edit_distance(const std::string& a, const std::string& b) {
  const std::size_t columns = b.size() + 1;
  std::vector<int> table((a.size() + 1) * columns);
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      int& cell = table[i * columns + j];
      if (i == 0 || j == 0) {
        cell = static_cast<int>(i + j);
        continue;
      }
      cell = std::min({table[(i - 1) * columns + j] + 1, table[i * columns + j - 1] + 1,
                       table[(i - 1) * columns + j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cell = std::min(cell, table[(i - 2) * columns + j - 2] + 1);
      }
    }
  }
  return table.back();
}

}  // namespace

std::string closest_name(const std::string& name, const std::vector<std::string>& known) {
  // An abbreviation that only one name starts with.
  if (name.size() >= 3) {
    const auto starts = [&](const std::string& candidate) { return candidate.compare(0, name.size(), name) == 0; };
    if (std::count_if(known.begin(), known.end(), starts) == 1)
      return *std::find_if(known.begin(), known.end(), starts);
  }
  std::string best;
  int best_distance = std::max(1, static_cast<int>(name.size()) / 3) + 1;
  for (const std::string& candidate : known) {
    const int distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace automap
