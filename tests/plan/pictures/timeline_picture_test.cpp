// Pictures of timelines: what is merged, what is said, and that nothing in them is no number or no text.
#include "plan/pictures/timeline_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/base/json.h"
#include "common/base/numbers.h"
#include "common/pipeline/schedule.h"
#include "plan/pictures/axis.h"
#include "plan/pictures/lanes.h"
#include "tests/sanitized.h"

namespace automap::pictures {
namespace {

using pipeline::Timeline;
using pipeline::TimelineEvent;
using pipeline::TimelineKind;
using testing::HasSubstr;
using testing::Not;

// Equal groups, 1F1B, of a step of about `step_ms`.
Timeline even_timeline(int groups, int micro_batches, double step_ms) {
  const double unit = step_ms / (3 * (micro_batches + groups));
  pipeline::PipelineTimes times;
  times.forward_ms.assign(at(groups), unit);
  times.backward_ms.assign(at(groups), 2 * unit);
  times.allreduce_ms.assign(at(groups), unit / 2);
  times.transfer_ms.assign(at(groups - 1), unit / 10);
  const pipeline::RecordedStep step = record_step(times, micro_batches, pipeline::Schedule::k1f1b);
  Timeline timeline;
  timeline.micro_batches = micro_batches;
  timeline.step_ms = step.step_ms;
  timeline.groups.resize(at(groups));
  for (const pipeline::StageInterval& one : step.work) {
    pipeline::TimelineGroup& group = timeline.groups[at(one.stage - 1)];
    const bool backward = one.backward;
    group.compute.push_back(
        {backward ? TimelineKind::kBackward : TimelineKind::kForward, one.micro_batch, one.start_ms, one.end_ms});
    const int before = group.memory.empty() ? 0 : group.memory.back().in_flight;
    const int now = before + (backward ? -1 : 1);
    group.memory.push_back({backward ? one.end_ms : one.start_ms, now, (2 + now) * kBytesPerGiB});
    group.capacity_bytes = 10 * kBytesPerGiB;
  }
  for (const pipeline::StageInterval& one : step.messages) {
    pipeline::TimelineGroup& group = timeline.groups[at(one.stage - 1)];
    (one.backward ? group.to_previous : group.to_next)
        .push_back({TimelineKind::kTransfer, one.micro_batch, one.start_ms, one.end_ms});
  }
  for (std::size_t g = 0; g < timeline.groups.size(); ++g) {
    const double end = step.ends[g].backward_ms;
    timeline.groups[g].gradients.push_back({TimelineKind::kBucket, 1, end, step.ends[g].sync_ms});
  }
  return timeline;
}

TimelinePicture picture_of(const Timeline& timeline, const std::string& name = "h/0 to 5") {
  TimelinePicture picture;
  picture.timeline = &timeline;
  picture.title = name;
  picture.sentences = {name};
  picture.groups.assign(timeline.groups.size(), {name, "device 1"});
  picture.bottleneck = 1;
  return picture;
}

TEST(TimelinePicture, MergesWhatIsTooSmall) {
  const std::vector<TimelineEvent> events = {{TimelineKind::kForward, 1, 0, 1},
                                             {TimelineKind::kForward, 2, 1, 2},
                                             {TimelineKind::kBackward, 1, 2, 3},
                                             {TimelineKind::kBackward, 2, 13, 14},
                                             {TimelineKind::kOptimizer, 0, 20, 40}};
  EXPECT_EQ(runs_of(events, 0).size(), 5U);
  const std::vector<pictures::Run> runs = runs_of(events, 2.5);
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[0].events, 3);
  EXPECT_TRUE(runs[0].mixed);
  EXPECT_EQ(runs[0].end_ms, 3);
  EXPECT_FALSE(runs[1].mixed);
  EXPECT_EQ(runs[2].kind, TimelineKind::kOptimizer);
  // Whatever is merged, busy time is covered and order kept.
  const Timeline timeline = even_timeline(5, 40, 100);
  for (const double least : {0.0, 0.1, 1.0, 7.0, 1000.0}) {
    for (const Lane& lane : lanes_of(timeline)) {
      double before = 0;
      int count = 0;
      for (const pictures::Run& run : runs_of(*lane.events, least)) {
        EXPECT_GE(run.start_ms, before);
        before = run.end_ms;
        count += run.events;
      }
      EXPECT_EQ(count, static_cast<int>(lane.events->size()));
      EXPECT_EQ(before, lane.events->back().end_ms);
    }
  }
}

TEST(TimelinePicture, KeepsTheHighestLevels) {
  const std::vector<pipeline::MemoryLevel> levels = {{0, 0, 1}, {1, 2, 9}, {1.5, 1, 5}, {4, 0, 1}};
  EXPECT_EQ(levels_of(levels, 0).size(), 4U);
  const std::vector<pipeline::MemoryLevel> merged = levels_of(levels, 100);
  ASSERT_EQ(merged.size(), 2U);
  EXPECT_EQ(merged[0].bytes, 9);
  EXPECT_EQ(merged[1].bytes, 1);
}

TEST(TimelinePicture, AxesReadFromNanosecondsToHours) {
  const auto last = [](double ms) { return axis_marks(ms, 8).back().text; };
  EXPECT_EQ(last(1e-4), "100 ns");
  EXPECT_EQ(last(2.3e-3), "2.0 µs");
  EXPECT_EQ(last(0.5), "500 µs");
  EXPECT_EQ(last(1500), "1400 ms");
  EXPECT_EQ(last(60000), "60 s");
  EXPECT_EQ(last(3.6e6 * 5), "5 h");
  EXPECT_EQ(axis_marks(0, 8).size(), 1U);
  EXPECT_EQ(axis_marks(kInfinity, 8).size(), 1U);
}

TEST(TimelinePicture, OfOneAndOfManyGroupsAndOfAnyStepHasNumbersOnly) {
  const struct {
    int groups, micro_batches;
    double step_ms;
  } cases[] = {{1, 1, 1e-4}, {1, 4000, 1e4}, {2, 1, 0}, {8, 16, 2e7}, {64, 128, 1500}, {512, 100 / kShare, 5e4}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.groups);
    const Timeline timeline = even_timeline(one.groups, one.micro_batches, one.step_ms);
    const TimelinePicture picture = picture_of(timeline);
    const std::string svg = timeline_svg(picture), html = timeline_html(picture);
    for (const char* none : {"nan", "inf", "null"}) {
      const auto numbers_only = [&](const std::string& text) {
        // Script and style use the words; coordinates stand between quotes and in the data.
        return text.substr(0, text.find("<script>"));
      };
      EXPECT_EQ(numbers_only(svg).find(std::string("\"") + none), std::string::npos);
      EXPECT_EQ(numbers_only(html).find(std::string(",") + none), std::string::npos);
    }
    EXPECT_THAT(svg, HasSubstr("limits the step"));
    EXPECT_LE(html.size(), 1U << 20);
    EXPECT_LE(svg.size(), 1U << 20);
  }
}

TEST(TimelinePicture, NamesAreTextEverywhere) {
  const Timeline timeline = even_timeline(2, 2, 10);
  const TimelinePicture picture = picture_of(timeline, "</script><img src=x onerror=alert(1)>\"'&\n\xff");
  const std::string html = timeline_html(picture), svg = timeline_svg(picture);
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(svg, Not(HasSubstr("<img")));
  EXPECT_THAT(html, HasSubstr("&lt;/script&gt;"));
  EXPECT_THAT(html, HasSubstr("\\u003c/script>"));
  EXPECT_EQ(Json::parse(trace_json(picture))["otherData"]["title"].get<std::string>(),
            "</script><img src=x onerror=alert(1)>\"'&\\n\\xff");
  const TimelinePicture longer = picture_of(timeline, std::string(100000, 'x'));
  EXPECT_LE(timeline_svg(longer).size(), 30000U);
}

TEST(TimelinePicture, TraceHasEveryEvent) {
  const Timeline timeline = even_timeline(3, 4, 10);
  const Json trace = Json::parse(trace_json(picture_of(timeline)));
  std::map<std::string, int> count;
  double end = 0;
  for (const Json& event : trace["traceEvents"]) {
    ++count[event["ph"].get<std::string>()];
    if (event["ph"].get<std::string>() != "X") continue;
    ++count[event["cat"].get<std::string>()];
    end = std::max(end, event["ts"].get<double>() + event["dur"].get<double>());
  }
  EXPECT_EQ(count["forward"], 12);
  EXPECT_EQ(count["backward"], 12);
  EXPECT_EQ(count["transfer"], 16);
  EXPECT_EQ(count["gradient bucket"], 3);
  EXPECT_NEAR(end, timeline.step_ms * 1e3, 1e-5);
  EXPECT_GT(count["C"], 24);
}

TEST(TimelinePicture, ATraceOfVeryManyEventsSaysWhatItLeavesOut) {
  const int micro_batches = 200;
  const std::size_t shown = 2000;
  const Timeline timeline = even_timeline(8, micro_batches, 6e4);
  const Json trace = Json::parse(trace_json(picture_of(timeline), shown));
  EXPECT_LT(trace["traceEvents"].size(), shown + 200U);
  std::map<std::string, long long> count;
  double most = 0, last_end = 0;
  std::map<std::pair<int, int>, double> ends;
  for (const Json& event : trace["traceEvents"]) {
    const std::string kind = event["ph"].get<std::string>();
    if (kind == "C" && event["name"].get<std::string>() == "memory, GiB") {
      most = std::max(most, event["args"]["GiB"].get<double>());
    }
    if (kind != "X") continue;
    const std::string category = event["cat"].get<std::string>(), name = event["name"].get<std::string>();
    double& end = ends[{event["pid"].get<int>(), event["tid"].get<int>()}];
    EXPECT_GE(event["ts"].get<double>(), end - 1e-3);
    end = event["ts"].get<double>() + event["dur"].get<double>();
    last_end = std::max(last_end, end);
    if (category != "left out") {
      ++count[category];
      continue;
    }
    // "12 backward, 12 forward left out"
    for (const char* one : {"forward", "backward"}) {
      const std::size_t at = name.find(std::string(" ") + one);
      if (at == std::string::npos) continue;
      const std::size_t blank = name.rfind(' ', at - 1);
      count[one] += std::stoll(name.substr(blank == std::string::npos ? 0 : blank + 1));
    }
  }
  EXPECT_EQ(count["forward"], 8 * micro_batches);
  EXPECT_EQ(count["backward"], 8 * micro_batches);
  double highest = 0;
  for (const pipeline::TimelineGroup& group : timeline.groups) highest = std::max(highest, group.most_bytes());
  EXPECT_NEAR(most, highest / kBytesPerGiB, 1e-5 * most);
  EXPECT_NEAR(last_end, timeline.step_ms * 1e3, 1);
}

}  // namespace
}  // namespace automap::pictures
