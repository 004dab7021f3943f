// What a Problem's columns point into. Seen by problem.cpp and problem_builder.cpp only.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "common/pipeline/problem.h"

namespace automap::pipeline {

struct Problem::Storage {
  std::vector<std::shared_ptr<const void>> columns;  // of SharedColumns, or of this problem alone
  std::vector<double> gradient_state;                // [n+1]: bytes that gradients take in memory
  struct Useful {
    std::once_flag found;
    std::vector<int> variants;
  };
  std::unique_ptr<Useful[]> useful;  // [kinds of columns]
};

}  // namespace automap::pipeline
