#pragma once

#include <limits>

namespace automap::models {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

}  // namespace automap::models
