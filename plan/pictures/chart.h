// The look of a timeline's chart, however it is drawn: sizes, the classes of its elements, and their colours.
#pragma once

#include <string>

#include "plan/pictures/lanes.h"

namespace automap::pictures {

// Heights in pixels: fewer for many groups.
struct ChartSizes {
  double compute = 22, link = 6, memory = 34, gap = 5;
  double font = 12;
  int label_every = 1;  // groups
};
ChartSizes chart_sizes(std::size_t groups);

// The CSS class of an element and its name in the legend.
struct ChartClass {
  const char* css;     // "f"
  const char* legend;  // "forward"
  const char* light;   // colours
  const char* dark;
};
// In the order of the numbers that the page's data has.
constexpr int kChartClasses = 8;
const ChartClass& chart_class(int number);
int class_of(const Run& run);

// CSS rules for the classes of an SVG chart, in light and dark.
std::string chart_style();

}  // namespace automap::pictures
