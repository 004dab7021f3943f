// Exact completion values: for a problem, a stage count and a schedule, the smallest V that any completion of a given
// prefix can have. One backward pass over suffix labels (X, P, Y; docs/exact-solver.md) answers for every prefix of the
// problem, which is what exact labels for training are made of.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "common/pipeline/plan.h"
#include "common/pipeline/problem.h"

namespace automap::pipeline {

struct SuffixValuesOptions {
  int stages = 2;
  Schedule schedule = Schedule::k1f1b;
  std::vector<int> pivots;       // instruction cuts, ascending; empty: every one
  std::vector<int> device_cuts;  // ascending; empty: every one
  // Suffixes that only complete to more than this are not kept: completion_ms() then says infinity. The caller passes a
  // multiple of the optimum; infinity keeps all.
  double limit_ms = std::numeric_limits<double>::infinity();
  // Give up above so many labels: valid() is false then.
  long long most_labels = 4'000'000;
};

class SuffixValues {
 public:
  SuffixValues(const Problem& problem, const SuffixValuesOptions& options);
  ~SuffixValues();
  SuffixValues(SuffixValues&&) noexcept;

  bool valid() const;
  // The smallest V of a feasible plan that starts with these stages: boundary i at instruction cuts[i], device_cuts[i];
  // 0..S-1 boundaries given. Infinity: none (or none within limit_ms).
  double completion_ms(const std::vector<int>& cuts, const std::vector<int>& device_cuts) const;
  long long labels() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace automap::pipeline
