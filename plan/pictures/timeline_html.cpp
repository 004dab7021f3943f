#include <algorithm>

#include "common/base/markup.h"
#include "common/base/numbers.h"
#include "common/base/text_table.h"
#include "plan/pictures/page.h"
#include "plan/pictures/timeline_picture.h"
#include "plan/pictures/timeline_script.h"
#include "plan/pictures/timeline_svg.h"

namespace automap::pictures {
namespace {

using pipeline::TimelineEvent;
using pipeline::TimelineKind;

constexpr int kTableColumns = 60;

// The time of all events of a kind, of those that come for every micro-batch of one.
std::string time_of(const std::vector<TimelineEvent>& events, TimelineKind kind, bool of_one) {
  double all = 0;
  int count = 0;
  for (const TimelineEvent& event : events) {
    if (event.kind != kind) continue;
    all += event.end_ms - event.start_ms;
    ++count;
  }
  return count == 0 ? "-" : format_ms(of_one ? all / count : all);
}

PageTable groups_table(const TimelinePicture& picture) {
  const pipeline::Timeline& timeline = *picture.timeline;
  PageTable table;
  table.caption = "Groups of devices. Forward, backward and transfer are of one micro-batch";
  table.head = {"group", "layers",    "devices",   "forward",        "backward", "to the next",
                "waits", "gradients", "optimizer", "most in flight", "memory"};
  table.words = {1, 2};
  for (std::size_t g = 0; g < timeline.groups.size(); ++g) {
    const pipeline::TimelineGroup& group = timeline.groups[g];
    int in_flight = 0;
    for (const pipeline::MemoryLevel& level : group.memory) in_flight = std::max(in_flight, level.in_flight);
    const GroupWords words = g < picture.groups.size() ? picture.groups[g] : GroupWords();
    const double busy = timeline.step_ms > 0 ? std::min(1.0, group.busy_ms() / timeline.step_ms) : 0;
    table.rows.push_back(
        {std::to_string(g + 1), shorten(words.layers, kTableColumns), shorten(words.devices, kTableColumns),
         time_of(group.compute, TimelineKind::kForward, true), time_of(group.compute, TimelineKind::kBackward, true),
         time_of(group.to_next, TimelineKind::kTransfer, true), format_percent(1 - busy),
         time_of(group.gradients, TimelineKind::kBucket, false),
         time_of(group.compute, TimelineKind::kOptimizer, false), std::to_string(in_flight), memory_text(group)});
  }
  if (picture.bottleneck > 0) table.marked = at(picture.bottleneck - 1);
  return table;
}

std::string legend_markup(const TimelinePicture& picture) {
  std::string out = "<p class=\"legend\">";
  for (const LegendEntry& entry : legend_of(picture)) {
    out += "<span><svg class=\"chart\" width=\"14\" height=\"11\" aria-hidden=\"true\">";
    out += std::string(entry.css) == "limit"
               ? "<path class=\"limit\" d=\"M0 5.5h14\"/>"
               : "<rect class=\"" + std::string(entry.css) + "\" width=\"14\" height=\"11\"/>";
    out += "</svg> " + escape_markup(entry.words) + "</span> ";
  }
  return out + "</p>\n";
}

}  // namespace

std::string timeline_section(const TimelinePicture& picture) {
  return "<div>\n" + legend_markup(picture) +
         "<div class=\"bar\" hidden=\"hidden\">"
         "<button type=\"button\" value=\"in\">Zoom in (+)</button>"
         "<button type=\"button\" value=\"out\">Zoom out (-)</button>"
         "<button type=\"button\" value=\"left\">Earlier (←)</button>"
         "<button type=\"button\" value=\"right\">Later (→)</button>"
         "<button type=\"button\" value=\"all\">Whole step (0)</button></div>\n"
         "<div class=\"picture zooms wide\">\n" +
         chart_svg(picture, SvgPlace::kPage) + timeline_data(picture) + "</div>\n<output></output>\n</div>\n" +
         table_markup(groups_table(picture));
}

std::string timeline_html(const TimelinePicture& picture) {
  std::string body = "<h1>" + escape_markup(picture.title) + "</h1>\n";
  for (const std::string& sentence : picture.sentences) body += "<p>" + escape_markup(sentence) + "</p>\n";
  return page(picture.title, body + timeline_section(picture));
}

}  // namespace automap::pictures
