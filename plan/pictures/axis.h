// The marks of a time axis, in a unit that reads well from nanoseconds to hours.
#pragma once

#include <string>
#include <vector>

namespace automap::pictures {

// 1, 2, 5 or 10 times a power of ten, about `wanted` of which make `end`, which is above 0.
double round_step(double end, int wanted);

struct AxisMark {
  double ms = 0;
  std::string text;  // "12.5 ms"
};

// About `wanted` marks at round numbers, from 0 to `end_ms`. Of an axis without length the mark at 0 alone.
std::vector<AxisMark> axis_marks(double end_ms, int wanted);

}  // namespace automap::pictures
