// Draws a plan's order: a Gantt chart with memory beneath (SVG, or a page that zooms), and trace events for Perfetto
// and chrome://tracing.
#pragma once

#include <string>
#include <vector>

#include "common/pipeline/plan_json.h"
#include "common/pipeline/timeline.h"

namespace automap::pictures {

struct GroupWords {
  std::string layers;   // "h/0 to h/5"
  std::string devices;  // "devices 1-8"
};

// A timeline to draw, and the texts beside it. The timeline must outlive it.
struct TimelinePicture {
  const pipeline::Timeline* timeline = nullptr;
  std::string title;                   // "bert48 on config-c"
  std::vector<std::string> sentences;  // what one should see
  std::vector<GroupWords> groups;
  int bottleneck = 0;  // the group that limits the step, from 1; 0: none is known
};

TimelinePicture timeline_picture(const pipeline::PlanDocument& document, const pipeline::Timeline& timeline);

// Each event its place while it is at least a pixel wide; smaller ones are merged, and labels that have no room left
// out.
std::string timeline_svg(const TimelinePicture& picture);

// A page that needs nothing else: the texts, the chart, and the groups as a table. Without scripts it shows the SVG.
std::string timeline_html(const TimelinePicture& picture);

// The part of a page (page.h) with the chart and its table, for pages that show more.
std::string timeline_section(const TimelinePicture& picture);

// Of a trace with more events so many are shown, about.
constexpr std::size_t kMostTraced = 200'000;
// {"traceEvents": [...]}: a process for each group; threads for compute, links and gradients; counters for memory.
// Between the first and the last of `most` events, what each thread does is one event that says what is left out.
std::string trace_json(const TimelinePicture& picture, std::size_t most = kMostTraced);

}  // namespace automap::pictures
