#include "inspect/facts.h"

#include <algorithm>
#include <cmath>

#include "common/base/printable.h"
#include "common/base/text_table.h"

namespace automap::inspect {

namespace {

using Json = nlohmann::ordered_json;

}  // namespace

void Facts::add(const std::string& name, const std::string& value) {
  rows_.emplace_back(printable(name), printable(value));
}

std::string Facts::render() const {
  int width = 0;
  for (const auto& [name, value] : rows_) width = std::max(width, display_width(name));
  std::string out;
  for (const auto& [name, value] : rows_)
    out += "  " + name + std::string(static_cast<std::size_t>(width + 2 - display_width(name)), ' ') + value + "\n";
  return out;
}

std::string count_of(std::int64_t n, const std::string& thing) {
  return format_count(n) + " " + thing + (n == 1 ? "" : thing.back() == 'h' ? "es" : "s");  // micro-batches
}

std::string title(const std::string& source, const std::string& what) {
  return printable(source + ": " + what) + "\n\n";
}

Json count_number(double value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (value == std::floor(value) && std::abs(value) <= kExact) return Json(static_cast<std::int64_t>(value));
  return Json(value);
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

}  // namespace automap::inspect
