#pragma once

namespace automap::planners {

// The factor by which rounding may make a plan of the same length look longer.
constexpr double kRounding = 1 + 1e-9;

}  // namespace automap::planners
