#pragma once

#include <string>

#include "datagen/distributions.h"

namespace automap::datagen {

// One family at fixed parameters: {"families": {NAME: {PARAMETERS}}, ...}.
inline Generator one_family(const std::string& family, const std::string& parameters, int instructions = 1024) {
  return Generator("{\"families\": {\"" + family + "\": {" + parameters +
                       "}}, \"rows\": {\"points\": 65536, \"instructions\": " + std::to_string(instructions) + "}}",
                   "test");
}

}  // namespace automap::datagen
