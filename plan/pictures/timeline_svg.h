// The chart as an SVG element, for a file of its own or inside of a page.
#pragma once

#include <string>

#include "plan/pictures/timeline_picture.h"

namespace automap::pictures {

enum class SvgPlace {
  kFile,  // with its title, sentences and style
  kPage   // which says and styles all that
};
std::string chart_svg(const TimelinePicture& picture, SvgPlace place);

// The words for a group in `columns`: "12  h/0 to h/5".
std::string group_label(const TimelinePicture& picture, std::size_t group, int columns);

}  // namespace automap::pictures
