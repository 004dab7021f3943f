// Exact completion values: for a problem, a stage count and a schedule, the smallest V that any completion of a given
// prefix can have. One backward pass over suffix labels (X, P, Y; docs/exact-solver.md) answers for every prefix of the
// problem; exact labels for training are made of these values.
#pragma once

#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"

namespace automap::pipeline {

struct SuffixValuesOptions {
  int stages = 2;
  Schedule schedule = Schedule::k1f1b;
  std::vector<int> pivots;       // instruction cuts, ascending, within 1..n-1; empty: every one
  std::vector<int> device_cuts;  // ascending, within 1..D-1; empty: every one
  // Suffixes that only complete to more than this are not kept: completion_ms() then says infinity. The caller passes a
  // multiple of the optimum; infinity keeps all.
  double limit_ms = std::numeric_limits<double>::infinity();
  // Give up above so many labels: valid() is false then, unless `optimum_ms` is given: then the limit is halved towards
  // it until the labels are few enough, and SuffixValues::limit_ms() tells where it ended. A label costs about a
  // microsecond; their number grows fivefold from 1.1 to 1.3 times the optimum. 10 000 are plenty for training.
  long long most_labels = 4'000'000;
  double optimum_ms = std::numeric_limits<double>::infinity();
  // Where stages have variants, the prefix may be run in as many ways as their product. Ways that differ by less than
  // this share of the limit count as one, so that values are up to twice it per stage too long; 0: exact, and slow for
  // many stages. Needs a finite limit.
  double slack = 0;
};

class SuffixValues {
 public:
  // Keeps a reference to the problem, which must live as long.
  SuffixValues(const Problem& problem, const SuffixValuesOptions& options);
  ~SuffixValues();
  SuffixValues(SuffixValues&&) noexcept;
  SuffixValues& operator=(SuffixValues&&) noexcept;

  // False: too many labels, or too many devices for the thresholds; nothing else may be asked then.
  bool valid() const;
  // The limit that holds: options.limit_ms, or less.
  double limit_ms() const;
  // The smallest V of a feasible plan that starts with these stages: boundary i at instruction cuts[i], device_cuts[i];
  // 0..S-1 boundaries given, every stage as whichever variant. Stages may idle beside the others: only requirements on
  // a stage alone are checked (Problem::idles). Infinity: none (or none within limit_ms), also when a boundary is not
  // among the pivots and device cuts. Finite values are value_ms() of the best plan up to rounding (1e-9 relative), and
  // at most limit_ms.
  double completion_ms(const std::vector<int>& cuts, const std::vector<int>& device_cuts) const;
  // The same for many prefixes that differ in their last boundary only: values[i] is that of (cuts, device_cuts)
  // followed by the boundary children[i] = (cut, device cut). About a microsecond each.
  void completions_ms(const std::vector<int>& cuts, const std::vector<int>& device_cuts,
                      const std::vector<std::pair<int, int>>& children, std::vector<double>& values) const;
  // completion_ms of the empty prefix: the optimum, when it is within the limit.
  double optimum_ms() const;
  long long labels() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace automap::pipeline
