#include "plan/systems/placement/milp.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/base/check.h"

namespace automap::placement {

int Milp::add_column(double lower, double upper, double cost, bool integer) {
  lower_.push_back(lower);
  upper_.push_back(upper);
  cost_.push_back(cost);
  integer_.push_back(integer);
  return columns() - 1;
}

void Milp::add_row(double lower, double upper, const std::vector<std::pair<int, double>>& terms) {
  std::map<int, double> sums;
  for (const auto& [column, factor] : terms) {
    AM_CHECK(column >= 0 && column < columns());
    sums[column] += factor;
  }
  row_lower_.push_back(lower);
  row_upper_.push_back(upper);
  row_terms_.emplace_back();
  for (const auto& [column, factor] : sums) {
    if (factor != 0) row_terms_.back().emplace_back(column, factor);
  }
}

void Milp::fix(int column, double value) {
  lower_[static_cast<std::size_t>(column)] = upper_[static_cast<std::size_t>(column)] = value;
}

}  // namespace automap::placement
