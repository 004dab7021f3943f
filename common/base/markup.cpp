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

std::string svg_text(double x, double y, const std::string& text, const std::string& attributes) {
  return "<text x=\"" + markup_number(x) + "\" y=\"" + markup_number(y) + "\"" + (attributes.empty() ? "" : " ") +
         attributes + ">" + escape_markup(text) + "</text>\n";
}

std::string svg_start(double width, double height, const std::string& shows, const std::string& title) {
  const std::string w = markup_number(width), h = markup_number(height);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + w + " " + h + "\" width=\"" + w + "\" height=\"" +
         h + "\" role=\"img\" aria-label=\"" + escape_markup(shows) + "\">\n<title>" + escape_markup(title) +
         "</title>\n";
}

}  // namespace automap
