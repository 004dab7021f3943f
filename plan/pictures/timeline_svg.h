// Draws the chart as an SVG element, for a file of its own or inside of a page.
#pragma once

#include <string>
#include <vector>

#include "plan/pictures/timeline_picture.h"

namespace automap::pictures {

enum class SvgPlace {
  kFile,  // with its title, sentences, legend and style
  kPage   // which says and styles all that
};
std::string chart_svg(const TimelinePicture& picture, SvgPlace place);

// The entries of a legend, in its order: a class of chart.h, "row" for waiting, "mem" and "limit".
struct LegendEntry {
  const char* css;
  const char* words;
};
std::vector<LegendEntry> legend_of(const TimelinePicture& picture);

// The words for a group, as short as the chart has room for: "12  h/0 to h/5".
std::string group_label(const TimelinePicture& picture, std::size_t group);

// "12.3 GiB of 72.0 GiB": the most that a device of the group uses, and its capacity, where that is known.
std::string memory_text(const pipeline::TimelineGroup& group);

}  // namespace automap::pictures
