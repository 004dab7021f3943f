#include "common/base/colour.h"

#include <unistd.h>

#include <cstdlib>

namespace automap {
namespace {

const char* colour_code(Colour colour) {
  switch (colour) {
    case Colour::kHeading: return "\x1b[1m";
    case Colour::kWarning: return "\x1b[33m";
    case Colour::kError: return "\x1b[31m";
  }
  return "";
}

bool set_and_not_empty(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

}  // namespace

bool has_colours(int stream) {
  if (::isatty(stream) != 1 || set_and_not_empty("NO_COLOR")) return false;
  const char* const terminal = std::getenv("TERM");
  return terminal != nullptr && std::string(terminal) != "dumb";
}

std::string coloured(const std::string& text, Colour colour, int stream) {
  return has_colours(stream) ? colour_code(colour) + text + "\x1b[0m" : text;
}

}  // namespace automap
