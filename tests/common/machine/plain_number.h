// Numbers as the tables of the documentation write them.
#pragma once

#include <sstream>
#include <string>

namespace automap::machine {

inline std::string plain(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

}  // namespace automap::machine
