// Mixed-integer linear programmes, and CBC to solve them where it is installed (Debian: coinor-libcbc-dev at build
// time, coinor-libcbc3 at run time; EPL).
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace automap::placement {

// Minimize the sum of cost * column within the columns' and rows' bounds.
class Milp {
 public:
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();

  int add_column(double lower, double upper, double cost = 0, bool integer = false);
  int add_binary() { return add_column(0, 1, 0, true); }
  // lower <= sum of factor * column <= upper; a column may stand there more than once.
  void add_row(double lower, double upper, const std::vector<std::pair<int, double>>& terms);
  void fix(int column, double value);

  int columns() const { return static_cast<int>(lower_.size()); }
  int rows() const { return static_cast<int>(row_lower_.size()); }

 private:
  friend class CbcRun;
  std::vector<double> lower_, upper_, cost_;
  std::vector<char> integer_;
  std::vector<double> row_lower_, row_upper_;
  std::vector<std::vector<std::pair<int, double>>> row_terms_;
};

struct MilpLimits {
  double gap = 0.01;                                         // stop when the best is within this share of the bound
  double seconds = std::numeric_limits<double>::infinity();  // of this thread; another run may come further
};

struct MilpAnswer {
  enum class End { kSolved, kInfeasible, kTime };
  End end = End::kTime;
  std::vector<double> values;       // of the columns; empty: none was found
  double bound = -Milp::kInfinite;  // no solution is below
};

// The reason why there is no solver, as a sentence; empty: there is one.
std::string milp_solver_missing();

// `start`: values of integer columns of a known solution, or empty. Throws Error(kUsage) with milp_solver_missing().
MilpAnswer solve(const Milp& milp, const std::vector<std::pair<int, double>>& start, const MilpLimits& limits);

}  // namespace automap::placement
