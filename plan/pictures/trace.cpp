// The trace event format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU, which
// Perfetto and chrome://tracing read. Times are microseconds.
//
// A step with very many events is not a file that a browser opens: such a trace has its beginning and its end in full,
// and what each lane does between them as one event that says what is left out. Steps of so many micro-batches repeat
// themselves there.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

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

// Times are exact to this part of the step.
constexpr double kExactness = 1e-8;
constexpr int kMostDecimals = 6;

// Decimals of microseconds.
int decimals_of(double step_ms) {
  if (!(step_ms > 0)) return kMostDecimals;
  return std::clamp(static_cast<int>(std::ceil(-std::log10(step_ms * 1e3 * kExactness))), 0, kMostDecimals);
}

std::string microseconds(double ms, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, ms * 1e3);
  std::string out = text;
  if (out.find('.') != std::string::npos) {
    out.erase(out.find_last_not_of('0') + 1);
    if (out.back() == '.') out.pop_back();
  }
  return out;
}

// The part of the step whose events are left out; none: all are shown.
struct Gap {
  double from_ms = 0, to_ms = 0;
  bool has(double start_ms) const { return start_ms >= from_ms && start_ms < to_ms; }
};

Gap gap_of(const pipeline::Timeline& timeline, std::size_t most) {
  std::size_t events = 0;
  std::vector<double> starts;
  for (const Lane& lane : lanes_of(timeline)) events += lane.events->size();
  for (const pipeline::TimelineGroup& group : timeline.groups) events += group.memory.size();
  if (events <= most) return {};
  starts.reserve(events);
  for (const Lane& lane : lanes_of(timeline)) {
    for (const pipeline::TimelineEvent& event : *lane.events) starts.push_back(event.start_ms);
  }
  for (const pipeline::TimelineGroup& group : timeline.groups) {
    for (const pipeline::MemoryLevel& level : group.memory) starts.push_back(level.start_ms);
  }
  const auto nth = [&](std::size_t n) {
    std::nth_element(starts.begin(), starts.begin() + static_cast<std::ptrdiff_t>(n), starts.end());
    return starts[n];
  };
  return {nth(most / 2), nth(starts.size() - most / 2)};
}

// "3900 forward, 3899 backward left out".
std::string left_out_text(const std::map<std::string, long long>& counts) {
  std::string out;
  for (const auto& [kind, count] : counts) out += (out.empty() ? "" : ", ") + std::to_string(count) + " " + kind;
  return out + " left out";
}

std::string event_name(const pipeline::TimelineEvent& event) {
  const std::string kind = to_string(event.kind);
  return event.number > 0 ? kind + " " + std::to_string(event.number) : kind;
}

}  // namespace

std::string trace_json(const TimelinePicture& picture, std::size_t most) {
  const pipeline::Timeline& timeline = *picture.timeline;
  const Gap gap = gap_of(timeline, most);
  const int decimals = decimals_of(timeline.step_ms);
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
      add("{\"ph\":\"C\",\"name\":\"" + std::string(counted) + "\"," + pid + ",\"ts\":" + microseconds(ms, decimals) +
          ",\"args\":{\"GiB\":" + text + "}}");
    };
    // Of the levels in the gap the highest stays: it may be the one that the report says.
    const pipeline::MemoryLevel* highest = nullptr;
    for (const pipeline::MemoryLevel& level : group.memory) {
      if (gap.has(level.start_ms) && (highest == nullptr || level.bytes > highest->bytes)) highest = &level;
    }
    for (const pipeline::MemoryLevel& level : group.memory) {
      if (!gap.has(level.start_ms) || &level == highest) counter("memory, GiB", level.start_ms, level.bytes);
    }
    if (!group.memory.empty()) counter("memory, GiB", timeline.step_ms, group.memory.back().bytes);
    if (group.capacity_bytes > 0) {
      for (const double ms : {0.0, timeline.step_ms}) counter("memory limit, GiB", ms, group.capacity_bytes);
    }
  }
  for (const Lane& lane : lanes_of(timeline)) {
    const std::string ids =
        "\"pid\":" + std::to_string(lane.group + 1) + ",\"tid\":" + std::to_string(static_cast<int>(lane.kind) + 1);
    name("thread_name", ids, lane.kind == LaneKind::kCompute ? "compute" : lane.name);
    // A slice is as exact at its end as at its start.
    const auto slice = [&](const std::string& text, const std::string& category, double start_ms, double end_ms) {
      const double unit = std::pow(10.0, -decimals) / 1e3;
      const double start = std::round(start_ms / unit) * unit, end = std::round(end_ms / unit) * unit;
      add("{\"ph\":\"X\",\"name\":\"" + text + "\",\"cat\":\"" + category + "\"," + ids +
          ",\"ts\":" + microseconds(start, decimals) + ",\"dur\":" + microseconds(end - start, decimals) + "}");
    };
    std::map<std::string, long long> left_out;
    double from_ms = 0, to_ms = 0;
    const auto say_left_out = [&] {
      if (!left_out.empty()) slice(left_out_text(left_out), "left out", from_ms, to_ms);
      left_out.clear();
    };
    for (const pipeline::TimelineEvent& event : *lane.events) {
      if (gap.has(event.start_ms)) {
        if (left_out.empty()) from_ms = event.start_ms;
        to_ms = event.end_ms;
        ++left_out[to_string(event.kind)];
        continue;
      }
      say_left_out();
      slice(event_name(event), to_string(event.kind), event.start_ms, event.end_ms);
    }
    say_left_out();
  }
  return out + "\n]}\n";
}

}  // namespace automap::pictures
