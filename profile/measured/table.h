// Reads rows of a table with commas, for the readers of measured times.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace automap::measured {

struct TableRow {
  std::size_t line = 0;  // from 1
  std::vector<std::string> fields;
};

// Returns every line that is neither empty nor begins with '#'. A field in double quotes may hold commas and doubled
// quotes, no line ends. Blanks around fields are dropped. Throws Error(kData) naming the line for a quote that is not
// closed, and for text behind a closing one.
std::vector<TableRow> table_rows(std::string_view text, const std::string& source);

// Names of columns are compared so.
std::string lower_case(std::string_view text);

}  // namespace automap::measured
