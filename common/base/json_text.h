// Writes JSON documents as text.
#pragma once

#include <string>

namespace automap {

class Json;

// `document` and a line end. Every value is exact for a reader of JSON, but for bytes that are no UTF-8, which become
// U+FFFD; nothing in the text acts on a terminal (printable_json). `indent` below 0: on one line.
std::string json_text(const Json& document, int indent = 2);

// `text` as a string literal of Python (and of JSON but for what printable() escapes), with its quotes.
std::string python_literal(const std::string& text);

}  // namespace automap
