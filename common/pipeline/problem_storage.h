// What a Problem's columns point into. Seen by problem.cpp and problem_builder.cpp only.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "common/pipeline/problem.h"

namespace automap::pipeline {

struct Problem::Storage {
  std::deque<std::vector<double>> columns;  // [n+1] each
  std::deque<RangeMax> peaks;
  std::deque<std::vector<int>> layer_ends;  // [n+1] each
  std::vector<double> gradient_state;       // [n+1]: bytes that gradients take in memory
  struct Useful {
    std::once_flag found;
    std::vector<int> variants;
  };
  std::unique_ptr<Useful[]> useful;  // [kinds of columns]
};

}  // namespace automap::pipeline
