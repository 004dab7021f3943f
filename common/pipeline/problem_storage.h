// The storage that a Problem's columns point into. Included by problem.cpp and problem_builder.cpp only.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "common/pipeline/problem.h"

namespace automap::pipeline {

struct Problem::Storage {
  std::vector<std::shared_ptr<const void>> columns;  // of SharedColumns, or of this problem alone
  std::vector<double> gradient_state;                // [n+1]: bytes that gradients take in memory
  // Not std::call_once: where memory runs out in it, the exception passes through the C library, which cannot unwind
  // without memory and ends the program.
  struct Useful {
    std::atomic<bool> found{false};
    std::vector<int> variants;
  };
  std::mutex finding;
  std::unique_ptr<Useful[]> useful;  // [kinds of columns]
};

}  // namespace automap::pipeline
