// Declarations of the families' parameters: drawn from low to high, evenly or by their logarithms, as numbers or whole
// numbers; least and most limit the values in a configuration.
#pragma once

#include "datagen/config.h"

namespace automap::datagen {

inline NumberSpec number(const char* name, const char* meaning, double low, double high, double least, double most) {
  return {name, meaning, low, high, least, most};
}

inline NumberSpec log_number(const char* name, const char* meaning, double low, double high, double least,
                             double most) {
  NumberSpec made = number(name, meaning, low, high, least, most);
  made.logarithmic = true;
  return made;
}

inline NumberSpec whole(const char* name, const char* meaning, double low, double high, double least, double most) {
  NumberSpec made = number(name, meaning, low, high, least, most);
  made.whole = true;
  return made;
}

inline NumberSpec log_whole(const char* name, const char* meaning, double low, double high, double least, double most) {
  NumberSpec made = whole(name, meaning, low, high, least, most);
  made.logarithmic = true;
  return made;
}

}  // namespace automap::datagen
