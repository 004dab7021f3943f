// Gaps of planners on the same problems: how they count, what their difference is, and what it shows. Every mean gap,
// difference and verdict of automap-train comes from here. (scripts/policy_report.py has differences of several seeds,
// and a rule of its own.)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace automap::train {

// A gap counts up to 100 %, and no plan as much: who finds none is never better off than who finds a bad one, and no
// single problem outweighs hundreds of others.
constexpr double kMostGap = 1;
// `gap`: L / L_best - 1, infinity or NaN where there is no plan. 0.25 -> 0.25, 3 -> 1, infinity -> 1.
constexpr double counted_gap(double gap) {
  return gap < kMostGap ? gap : kMostGap;
}

// Nothing is shown by fewer.
constexpr int kLeastProblems = 30;

double mean_of(const std::vector<double>& values);  // 0 of none
// A mean gap in words, to three digits: 0.00449 -> "0.449 %".
std::string gap_text(double mean_gap);

// Of a - b, problem by problem: mean and its standard error.
struct PairedDifference {
  int problems = 0;
  double mean = 0, standard_error = 0;
};
// Of two sets of counted gaps on the same problems. Where `b` is empty: of `a` alone.
PairedDifference paired_difference(const std::vector<double>& a, const std::vector<double>& b);

struct Interval {
  double low = 0, high = 0;
};
// Mean -+ 1.96 standard errors. Where no problem told the two apart there is no error to be had: 95 % of the time fewer
// than 3 in `problems` others would then (the rule of three), by kMostGap each at most. 36 problems alike: -+ 8.3 %.
Interval interval_95(const PairedDifference& difference);

// What a difference to something else shows: gaps are better when smaller.
enum class Verdict : std::uint8_t { kBetter, kWorse, kUndecided };
const char* to_string(Verdict verdict);  // "better", "worse", "undecided"
// Where the whole interval is on one side of 0, and kLeastProblems were asked.
Verdict verdict_of(const Interval& interval, int problems);
Verdict verdict_of(const PairedDifference& difference);  // by interval_95()

}  // namespace automap::train
