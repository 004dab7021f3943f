#include "plan/pictures/lanes.h"

#include <algorithm>

namespace automap::pictures {

using pipeline::MemoryLevel;
using pipeline::Timeline;
using pipeline::TimelineEvent;

std::vector<Lane> lanes_of(const Timeline& timeline) {
  std::vector<Lane> lanes;
  for (std::size_t g = 0; g < timeline.groups.size(); ++g) {
    const pipeline::TimelineGroup& group = timeline.groups[g];
    const std::string number = std::to_string(g + 1);
    const bool last = g + 1 == timeline.groups.size();
    const std::string next = std::to_string(last ? 1 : g + 2),
                      previous = std::to_string(g == 0 ? timeline.groups.size() : g);
    const auto add = [&](LaneKind kind, const std::vector<TimelineEvent>& events, const std::string& name) {
      if (!events.empty()) lanes.push_back({kind, static_cast<int>(g), &events, name});
    };
    add(LaneKind::kCompute, group.compute, "group " + number);
    add(LaneKind::kToNext, group.to_next, "link " + number + " to " + next);
    add(LaneKind::kToPrevious, group.to_previous, "link " + number + " to " + previous);
    add(LaneKind::kGradients, group.gradients, "gradients of " + number);
  }
  return lanes;
}

std::vector<Run> runs_of(const std::vector<TimelineEvent>& events, double least_ms) {
  std::vector<Run> runs;
  bool open = false;
  for (const TimelineEvent& event : events) {
    const bool small = event.end_ms - event.start_ms < least_ms;
    if (open && small && event.start_ms - runs.back().end_ms < least_ms) {
      Run& run = runs.back();
      run.mixed = run.mixed || run.kind != event.kind;
      run.end_ms = event.end_ms;
      ++run.events;
    } else {
      runs.push_back({event.kind, false, event.number, 1, event.start_ms, event.end_ms});
    }
    open = small && runs.back().end_ms - runs.back().start_ms < least_ms;
  }
  return runs;
}

double merged_from(const std::vector<Lane>& lanes, double step_ms, double least_ms, std::size_t most) {
  for (;;) {
    std::size_t runs = 0;
    for (const Lane& lane : lanes) runs += runs_of(*lane.events, least_ms).size();
    // Nothing is left to merge when a run is as long as the step.
    if (runs <= most || least_ms > step_ms) return least_ms;
    least_ms = least_ms > 0 ? 2 * least_ms : step_ms / 16384;
    if (!(least_ms > 0)) return 0;
  }
}

std::vector<MemoryLevel> levels_of(const std::vector<MemoryLevel>& levels, double least_ms) {
  if (!(least_ms > 0)) return levels;
  std::vector<MemoryLevel> out;
  for (const MemoryLevel& level : levels) {
    if (!out.empty() && level.start_ms - out.back().start_ms < least_ms) {
      if (level.bytes >= out.back().bytes) {
        const double start = out.back().start_ms;
        out.back() = level;
        out.back().start_ms = start;
      }
    } else {
      out.push_back(level);
    }
  }
  // The last level lasts to the end of the step, not for a moment.
  if (!levels.empty() && levels.back().bytes < out.back().bytes) out.push_back(levels.back());
  return out;
}

}  // namespace automap::pictures
