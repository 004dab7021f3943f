// The parts that descriptions of all kinds of files are made of.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"

namespace automap::inspect {

// The most rows of the longer tables that people are shown; the document has all of them.
constexpr std::size_t kShownRows = 24;

// "model     bert48" lines with aligned values, made printable.
class Facts {
 public:
  void add(const std::string& name, const std::string& value);
  std::string render() const;

 private:
  std::vector<std::pair<std::string, std::string>> rows_;
};

// Consecutive instructions of one layer.
struct LayerRow {
  std::string name;
  std::int64_t instructions = 0;
};

// "3 variables"
std::string count_of(std::int64_t n, const std::string& thing);
std::string title(const std::string& source, const std::string& what);
// Counts are printed as integers as long as a double holds them exactly.
Json count_number(double value);

// The value that so large a share of the others is below: 0.5 of {4, 1, 3} is 3, 0 of it 1, 1 of it 4. 0 of none.
double quantile(std::vector<double> values, double share);

}  // namespace automap::inspect
