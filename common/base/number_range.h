// What a number of a file may be. Sums, products and quotients of such numbers stay numbers: nothing behind the readers
// has to ask whether a time is infinite or a bandwidth denormal.
#pragma once

#include <cmath>

namespace automap {

constexpr double kSmallestInFile = 1e-30, kLargestInFile = 1e30;

// 0, or finite and of a size that anything measured has.
inline bool in_file_range(double value) {
  return value == 0 || (std::abs(value) >= kSmallestInFile && std::abs(value) <= kLargestInFile);  // no NaN
}
constexpr const char* kFileRange = "0 or from 1e-30 to 1e30";

// Of a machine in its usual unit (GB/s, GiB, TFLOP/s): a typing error is not planned with.
constexpr double kSmallestFigure = 1e-9, kLargestFigure = 1e12;
inline bool in_figure_range(double value) {
  return value >= kSmallestFigure && value <= kLargestFigure;  // no NaN
}
constexpr const char* kFigureRange = "from 1e-9 to 1e12";

// How many times faster or larger one thing may be than another of its kind in one file.
constexpr double kMostRatio = 1e6;

}  // namespace automap
