// Text in pages and pictures: the one place that knows the markup of HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace automap {

// As text or as an attribute between double quotes, made printable before: XML has no way to write most controls, and
// bytes that are no UTF-8 end a reader. escape_markup("a<\"b\"&\n") = "a&lt;&quot;b&quot;&amp;\\n".
std::string escape_markup(std::string_view text);

// The same of several lines: line ends stay.
std::string escape_lines(std::string_view text);

// A coordinate: at most one decimal, and 0 for a value that is no number. "12", "0.5".
std::string markup_number(double value);

// A text element of SVG, made safe. `attributes`: "class=\"dim\"", may be empty.
std::string svg_text(double x, double y, const std::string& text, const std::string& attributes = "");

// The start of a picture that is a file of its own: its size, a description for those who cannot see it, and its title.
std::string svg_start(double width, double height, const std::string& shows, const std::string& title);

}  // namespace automap
