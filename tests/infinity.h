// The value of what cannot be.
#pragma once

#include <limits>

namespace automap {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace automap
