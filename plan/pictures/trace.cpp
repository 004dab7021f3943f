// The trace event format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU, which
// Perfetto and chrome://tracing read. Times are microseconds.
#include <algorithm>
#include <cstdio>

#include "common/base/json.h"
#include "common/base/numbers.h"
#include "common/base/printable.h"
#include "plan/pictures/lanes.h"
#include "plan/pictures/timeline_picture.h"

namespace automap::pictures {
namespace {

std::string quoted(const std::string& text) {
  return Json(printable(text)).dump();
}

std::string microseconds(double ms) {
  char text[64];
  std::snprintf(text, sizeof text, "%.6f", ms * 1e3);
  return text;
}

std::string event_name(const pipeline::TimelineEvent& event) {
  const std::string kind = to_string(event.kind);
  return event.number > 0 ? kind + " " + std::to_string(event.number) : kind;
}

}  // namespace

std::string trace_json(const TimelinePicture& picture) {
  const pipeline::Timeline& timeline = *picture.timeline;
  std::string out =
      "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"title\":" + quoted(picture.title) + "},\n\"traceEvents\":[";
  bool first = true;
  const auto add = [&](const std::string& event) {
    out += first ? "\n" : ",\n";
    out += event;
    first = false;
  };
  const auto name = [&](const char* what, const std::string& ids, const std::string& text) {
    add("{\"ph\":\"M\",\"name\":\"" + std::string(what) + "\"," + ids + ",\"args\":{\"name\":" + quoted(text) + "}}");
  };
  for (std::size_t g = 0; g < timeline.groups.size(); ++g) {
    const std::string pid = "\"pid\":" + std::to_string(g + 1);
    std::string words = "group " + std::to_string(g + 1);
    if (g < picture.groups.size()) words += ": " + picture.groups[g].layers + ", " + picture.groups[g].devices;
    if (static_cast<int>(g) + 1 == picture.bottleneck) words += " (limits the step)";
    name("process_name", pid, words);
    add("{\"ph\":\"M\",\"name\":\"process_sort_index\"," + pid + ",\"args\":{\"sort_index\":" + std::to_string(g + 1) +
        "}}");
    const pipeline::TimelineGroup& group = timeline.groups[g];
    // Limit and use are two counters, so that neither hides the other.
    const auto counter = [&](const char* counted, double ms, double bytes) {
      char text[64];
      std::snprintf(text, sizeof text, "%.6g", bytes / kBytesPerGiB);
      add("{\"ph\":\"C\",\"name\":\"" + std::string(counted) + "\"," + pid + ",\"ts\":" + microseconds(ms) +
          ",\"args\":{\"GiB\":" + text + "}}");
    };
    for (const pipeline::MemoryLevel& level : group.memory) counter("memory, GiB", level.start_ms, level.bytes);
    if (!group.memory.empty()) counter("memory, GiB", timeline.step_ms, group.memory.back().bytes);
    if (group.capacity_bytes > 0) {
      for (const double ms : {0.0, timeline.step_ms}) counter("memory limit, GiB", ms, group.capacity_bytes);
    }
  }
  for (const Lane& lane : lanes_of(timeline)) {
    const std::string ids =
        "\"pid\":" + std::to_string(lane.group + 1) + ",\"tid\":" + std::to_string(static_cast<int>(lane.kind) + 1);
    name("thread_name", ids, lane.kind == LaneKind::kCompute ? "compute" : lane.name);
    for (const pipeline::TimelineEvent& event : *lane.events) {
      add("{\"ph\":\"X\",\"name\":\"" + event_name(event) + "\",\"cat\":\"" + to_string(event.kind) + "\"," + ids +
          ",\"ts\":" + microseconds(event.start_ms) + ",\"dur\":" + microseconds(event.end_ms - event.start_ms) + "}");
    }
  }
  return out + "\n]}\n";
}

}  // namespace automap::pictures
