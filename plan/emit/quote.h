// Turns words from models, clusters and files into literals of the languages that frameworks read. Texts in JSON are
// written by common/base/json_text.h, in Python by its python_literal().
#pragma once

#include <string>
#include <vector>

namespace automap::emit {

// One word of a POSIX shell: as it is where no character of it means anything there, else in single quotes.
std::string shell_word(const std::string& text);
// Several, with spaces between.
std::string shell_line(const std::vector<std::string>& words);

// A basic string of TOML, with its quotes; bytes that are no UTF-8 become U+FFFD.
std::string toml_literal(const std::string& text);

}  // namespace automap::emit
