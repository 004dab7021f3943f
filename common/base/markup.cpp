#include "common/base/markup.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "common/base/printable.h"

namespace automap {

namespace {

std::string without_markup(const std::string& safe) {
  std::string out;
  for (const char c : safe) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace

std::string escape_markup(std::string_view text) {
  return without_markup(printable(text));
}

std::string escape_lines(std::string_view text) {
  return without_markup(printable_lines(text));
}

std::string markup_number(double value) {
  if (!std::isfinite(value)) return "0";
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value > 1e9 ? 1e9 : value < -1e9 ? -1e9 : value);
  std::string out = text.data();
  if (out.size() > 2 && out.compare(out.size() - 2, 2, ".0") == 0) out.resize(out.size() - 2);
  return out == "-0" ? "0" : out;
}

}  // namespace automap
