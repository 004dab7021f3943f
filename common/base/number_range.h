// The range of numbers in files. Sums, products and quotients of numbers within it stay numbers, so that code behind
// the readers need not check whether a time is infinite or a bandwidth denormal.
#pragma once

#include <cmath>

namespace automap {

constexpr double kSmallestInFile = 1e-30, kLargestInFile = 1e30;

// 0, or finite and of a size that anything measured has.
inline bool in_file_range(double value) {
  return value == 0 || (std::abs(value) >= kSmallestInFile && std::abs(value) <= kLargestInFile);  // no NaN
}
constexpr const char* kFileRange = "0 or from 1e-30 to 1e30";

// The range of a machine's figures in their usual units (GB/s, GiB, TFLOP/s), which catches typing errors.
constexpr double kSmallestFigure = 1e-9, kLargestFigure = 1e12;
inline bool in_figure_range(double value) {
  return value >= kSmallestFigure && value <= kLargestFigure;  // no NaN
}
constexpr const char* kFigureRange = "from 1e-9 to 1e12";

// The largest ratio between the speeds or sizes of two things of one kind in one file.
constexpr double kMostRatio = 1e6;

}  // namespace automap
