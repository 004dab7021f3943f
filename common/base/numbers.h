// Constants and conversions of numbers that every room uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace automap {

// Larger than every time, memory and bound: for impossible values, or values not known yet.
constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr double kBytesPerGiB = 1024.0 * 1024.0 * 1024.0;

// A position of ours, which has a sign since -1 often stands for none, as containers want it: at(3) = 3. For those
// that are known not to be negative.
constexpr std::size_t at(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace automap
