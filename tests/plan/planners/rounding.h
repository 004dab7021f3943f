#pragma once

namespace automap::planners {

// How much longer a plan may seem that is no longer.
constexpr double kRounding = 1 + 1e-9;

}  // namespace automap::planners
