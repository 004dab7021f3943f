// Colours for terminals: none where there is no terminal, nor where NO_COLOR is set (no-color.org) or TERM is dumb.
#pragma once

#include <string>

namespace automap {

enum class Colour { kHeading, kWarning, kError };

// True if output to this stream (STDOUT_FILENO, STDERR_FILENO) is coloured.
bool has_colours(int stream);

// `text`, which is printable, in a colour where the stream has them, else as it is.
std::string coloured(const std::string& text, Colour colour, int stream);

}  // namespace automap
