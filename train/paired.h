// Gaps of planners on the same problems: how they count, their paired difference, and the verdict on it. Every mean
// gap, difference and verdict of automap-train is computed here. (scripts/policy_report.py
// compares several seeds by a rule of its own.)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace automap::train {

// A gap counts up to 100 %, and a missing plan counts as much: a planner that finds no plan is never better off than
// one that finds a bad plan, and no single problem outweighs hundreds of others.
constexpr double kMostGap = 1;
// `gap`: L / L_best - 1, infinity or NaN where there is no plan. 0.25 -> 0.25, 3 -> 1, infinity -> 1.
constexpr double counted_gap(double gap) {
  return gap < kMostGap ? gap : kMostGap;
}

// Fewer problems show nothing.
constexpr int kLeastProblems = 30;

double mean_of(const std::vector<double>& values);  // 0 for no values
// A mean gap in words, to three digits: 0.00449 -> "0.449 %".
std::string gap_text(double mean_gap);

// The difference a - b, problem by problem: its mean and standard error.
struct PairedDifference {
  int problems = 0;
  double mean = 0, standard_error = 0;
};
// The difference of two sets of counted gaps on the same problems. Where `b` is empty: the mean of `a` alone.
PairedDifference paired_difference(const std::vector<double>& a, const std::vector<double>& b);

struct Interval {
  double low = 0, high = 0;
};
// Mean -+ 1.96 standard errors. Where no problem told the two apart there is no standard error. Then, with 95 %
// certainty, fewer than 3 in `problems` other problems would tell them apart (the rule of three), by kMostGap each at
// most. 36 problems alike: -+ 8.3 %.
Interval interval_95(const PairedDifference& difference);

// The verdict on a difference of gaps; smaller gaps are better.
enum class Verdict : std::uint8_t { kBetter, kWorse, kUndecided };
const char* to_string(Verdict verdict);  // "better", "worse", "undecided"
// Better or worse where the whole interval is on one side of 0 and at least kLeastProblems were asked.
Verdict verdict_of(const Interval& interval, int problems);
Verdict verdict_of(const PairedDifference& difference);  // by interval_95()

}  // namespace automap::train
