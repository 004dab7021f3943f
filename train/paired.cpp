#include "train/paired.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/text_table.h"

namespace automap::train {

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

std::string gap_text(double mean_gap) {
  return format_number(mean_gap * 100) + " %";
}

PairedDifference paired_difference(const std::vector<double>& a, const std::vector<double>& b) {
  AM_CHECK(b.empty() || b.size() == a.size());
  std::vector<double> differences = a;
  for (std::size_t i = 0; i < b.size(); ++i) differences[i] -= b[i];
  PairedDifference out;
  out.problems = static_cast<int>(differences.size());
  out.mean = mean_of(differences);
  if (out.problems < 2) return out;
  double squares = 0;
  for (const double d : differences) squares += (d - out.mean) * (d - out.mean);
  const double n = out.problems;
  out.standard_error = std::sqrt(squares / (n - 1) / n);
  return out;
}

Interval interval_95(const PairedDifference& d) {
  constexpr double kSigmas = 1.959964, kRuleOfThree = 3;
  const double half = d.standard_error > 0 ? kSigmas * d.standard_error
                                           : std::min(1.0, kRuleOfThree / std::max(1, d.problems)) * kMostGap;
  return {d.mean - half, d.mean + half};
}

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kBetter: return "better";
    case Verdict::kWorse: return "worse";
    case Verdict::kUndecided: return "undecided";
  }
  return "?";
}

Verdict verdict_of(const Interval& interval, int problems) {
  if (problems < kLeastProblems) return Verdict::kUndecided;
  return interval.high < 0 ? Verdict::kBetter : interval.low > 0 ? Verdict::kWorse : Verdict::kUndecided;
}

Verdict verdict_of(const PairedDifference& difference) {
  return verdict_of(interval_95(difference), difference.problems);
}

}  // namespace automap::train
