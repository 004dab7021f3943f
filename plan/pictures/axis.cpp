#include "plan/pictures/axis.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace automap::pictures {
namespace {

struct AxisUnit {
  const char* name;
  double ms;
};

// The largest whose step is not much below 1.
AxisUnit unit_of(double end_ms) {
  constexpr AxisUnit kUnits[] = {{"h", 3.6e6}, {"min", 6e4}, {"s", 1e3}, {"ms", 1}, {"µs", 1e-3}, {"ns", 1e-6}};
  for (const AxisUnit& unit : kUnits) {
    if (end_ms >= 2 * unit.ms) return unit;
  }
  return kUnits[5];
}

}  // namespace

double round_step(double end, int wanted) {
  const double rough = end / std::max(1, wanted);
  const double decade = std::pow(10, std::floor(std::log10(rough)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (rough <= times * decade) return times * decade;
  }
  return 10 * decade;
}

std::vector<AxisMark> axis_marks(double end_ms, int wanted) {
  const AxisUnit unit = unit_of(end_ms);
  std::vector<AxisMark> marks = {{0, std::string("0 ") + unit.name}};
  const double end = end_ms / unit.ms;
  if (!(end > 0) || !std::isfinite(end)) return marks;
  const double step = round_step(end, wanted);
  const int decimals = std::clamp(static_cast<int>(-std::floor(std::log10(step * 1.0001))), 0, 9);
  for (int i = 1; i * step <= end * (1 + 1e-9); ++i) {
    char text[48];
    std::snprintf(text, sizeof text, "%.*f %s", decimals, i * step, unit.name);
    marks.push_back({i * step * unit.ms, text});
  }
  return marks;
}

}  // namespace automap::pictures
