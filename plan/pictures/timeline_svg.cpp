#include "plan/pictures/timeline_svg.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/base/markup.h"
#include "common/base/numbers.h"
#include "common/base/text_table.h"
#include "plan/pictures/axis.h"
#include "plan/pictures/chart.h"
#include "plan/pictures/lanes.h"

namespace automap::pictures {
namespace {

using pipeline::MemoryLevel;
using pipeline::Timeline;

constexpr double kWidth = 1200, kLeft = 190, kRight = 130;
constexpr double kPlot = kWidth - kLeft - kRight;
constexpr int kLabelColumns = 27;  // of a group
constexpr int kTitleColumns = 90;
// Limits of runs in a picture; a run is about ten bytes. A page shows this picture on paper and without scripts only.
constexpr std::size_t kMostRuns = 40000, kMostRunsOfPage = 15000;

// Events as short as this are merged.
double drawn_from(const TimelinePicture& picture, std::size_t most_runs) {
  const Timeline& timeline = *picture.timeline;
  return merged_from(lanes_of(timeline), timeline.step_ms, timeline.step_ms / kPlot, most_runs);
}

// Draws from the top down.
class Chart {
 public:
  explicit Chart(const TimelinePicture& picture)
      : picture_(picture), timeline_(*picture.timeline), sizes_(chart_sizes(timeline_.groups.size())) {
    scale_ = timeline_.step_ms > 0 && std::isfinite(timeline_.step_ms) ? kPlot / timeline_.step_ms : 0;
  }

  std::string draw(SvgPlace place) {
    least_ms_ = drawn_from(picture_, place == SvgPlace::kFile ? kMostRuns : kMostRunsOfPage);
    y_ = place == SvgPlace::kFile ? 8 : 2;
    if (place == SvgPlace::kFile) {
      draw_words();
      draw_legend();
    }
    const double top = y_ + 18;
    y_ = top;
    draw_lanes();
    const double lanes_end = y_;
    y_ += 28;
    draw_memory();
    const double end = y_;
    std::string ticks;
    for (const AxisMark& mark : axis_marks(timeline_.step_ms, 8)) {
      const std::string x = markup_number(x_of(mark.ms));
      ticks += "<path class=\"tick\" d=\"M" + x + " " + markup_number(top - 3) + "V" + markup_number(lanes_end) + "M" +
               x + " " + markup_number(lanes_end + 26) + "V" + markup_number(end) + "\"/>\n";
      ticks += svg_text(x_of(mark.ms), top - 6, mark.text, "text-anchor=\"middle\" class=\"dim\" font-size=\"11\"");
    }
    const std::string size = markup_number(kWidth) + " " + markup_number(end + 8);
    std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 " + size + "\"";
    if (place == SvgPlace::kFile) {
      out += " width=\"" + markup_number(kWidth) + "\" height=\"" + markup_number(end + 8) + "\"";
    }
    out += " role=\"img\" aria-label=\"" +
           escape_markup("Timeline of a step: " + shorten(picture_.title, kTitleColumns)) + "\">\n";
    if (place == SvgPlace::kFile) {
      out += "<title>" + escape_markup(shorten(picture_.title, kTitleColumns)) + "</title>\n<style>" + chart_style() +
             "</style>\n<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n";
    }
    return out + back_ + ticks + front_ + "</svg>\n";
  }

 private:
  double x_of(double ms) const { return kLeft + std::clamp(ms * scale_, 0.0, kPlot); }

  static std::string box(double x, double y, double w, double h, const char* css) {
    return "<rect class=\"" + std::string(css) + "\" x=\"" + markup_number(x) + "\" y=\"" + markup_number(y) +
           "\" width=\"" + markup_number(w) + "\" height=\"" + markup_number(h) + "\"/>\n";
  }
  std::string font() const { return "font-size=\"" + markup_number(sizes_.font) + "\""; }

  void draw_words() {
    y_ += 16;
    front_ += svg_text(12, y_, shorten(picture_.title, kTitleColumns), "font-size=\"17\" font-weight=\"bold\"");
    for (const std::string& sentence : picture_.sentences) {
      y_ += 18;
      front_ += svg_text(12, y_, shorten(sentence, 180), "font-size=\"12.5\"");
    }
    y_ += 10;
  }

  void draw_legend() {
    double x = 12;
    for (const LegendEntry& entry : legend_of(picture_)) {
      if (std::string(entry.css) == "limit") {
        front_ += "<path class=\"limit\" d=\"M" + markup_number(x) + " " + markup_number(y_ + 10) + "h14\"/>\n";
      } else {
        front_ += box(x, y_ + 4, 14, 11, entry.css);
      }
      front_ += svg_text(x + 19, y_ + 14, entry.words, "font-size=\"12\"");
      x += 19 + 6.4 * display_width(entry.words) + 18;
    }
    y_ += 22;
  }

  // Events as strokes along the middle of a row, one path for each class.
  void draw_runs(const std::vector<Run>& runs, double y, double height, bool labels) {
    std::array<std::string, kChartClasses> paths;
    std::array<long long, kChartClasses> ends{};  // of each, in tenths of a pixel: the next stroke is told from there
    std::string texts;
    for (const Run& run : runs) {
      const double x0 = x_of(run.start_ms), x1 = x_of(run.end_ms);
      // A seam between neighbours, where they are wide enough for one; very short runs stay visible.
      const double width = std::max(0.3, x1 - x0 - std::min(0.6, 0.15 * (x1 - x0)));
      const std::size_t kind = at(class_of(run));
      const long long begin = std::llround(10 * x0), length = std::max(1LL, std::llround(10 * width));
      paths[kind] += paths[kind].empty() ? "M" + tenths(begin) + " " + markup_number(y + height / 2)
                                         : "m" + tenths(begin - ends[kind]) + " 0";
      paths[kind] += "h" + tenths(length);
      ends[kind] = begin + length;
      const std::string label = run.number > 0 && run.events == 1 ? std::to_string(run.number) : "";
      if (!labels || label.empty()) continue;
      const double size = std::min(sizes_.font, height - 2);
      if (size < 7 || x1 - x0 < 0.62 * size * static_cast<double>(label.size()) + 3) continue;
      texts += svg_text((x0 + x1) / 2, y + height / 2 + 0.36 * size, label,
                        "text-anchor=\"middle\" font-size=\"" + markup_number(size) + "\" class=\"" +
                            (run.kind == pipeline::TimelineKind::kForward ? "onf" : "on") + "\"");
    }
    for (int i = 0; i < kChartClasses; ++i) {
      if (paths[at(i)].empty()) continue;
      front_ += "<path class=\"" + std::string(chart_class(i).css) + "\" stroke-width=\"" + markup_number(height) +
                "\" d=\"" + paths[at(i)] + "\"/>\n";
    }
    front_ += texts;
  }
  static std::string tenths(long long value) { return markup_number(static_cast<double>(value) / 10); }

  void draw_lanes() {
    const std::vector<Lane> lanes = lanes_of(timeline_);
    std::size_t next = 0;
    for (std::size_t g = 0; g < timeline_.groups.size(); ++g) {
      const bool hot = static_cast<int>(g) + 1 == picture_.bottleneck;
      const double begin = y_;
      double label_y = y_ + sizes_.compute / 2;
      for (; next < lanes.size() && lanes[next].group == static_cast<int>(g); ++next) {
        const Lane& lane = lanes[next];
        const bool compute = lane.kind == LaneKind::kCompute;
        const double height = compute ? sizes_.compute : sizes_.link;
        if (compute) label_y = y_ + height / 2;
        back_ += box(kLeft, y_, kPlot, height, "row");
        draw_runs(runs_of(*lane.events, least_ms_), y_, height, compute);
        y_ += height + 1;
      }
      if (hot) {
        back_ = box(0, begin - 1, kWidth, y_ - begin + 1, "hot") + back_;
        front_ += svg_text(kLeft + kPlot + 6, label_y + 4, "◀ limits the step", "class=\"mark\" font-size=\"12\"");
      }
      if (g % at(sizes_.label_every) == 0 || hot) {
        front_ += svg_text(kLeft - 8, label_y + 0.36 * sizes_.font, group_label(picture_, g),
                           "text-anchor=\"end\" " + font());
      }
      y_ += sizes_.gap;
    }
  }

  void draw_memory() {
    front_ +=
        svg_text(12, y_ - 10, "Memory on each device of a group, against its limit", "font-size=\"12\" class=\"dim\"");
    for (std::size_t g = 0; g < timeline_.groups.size(); ++g) {
      const pipeline::TimelineGroup& group = timeline_.groups[g];
      const double most = group.most_bytes();
      const double full = std::max(most, group.capacity_bytes) * 1.04;
      const auto y_of = [&](double bytes) {
        return y_ + sizes_.memory * (1 - (full > 0 ? std::clamp(bytes / full, 0.0, 1.0) : 0));
      };
      back_ += box(kLeft, y_, kPlot, sizes_.memory, "row");
      std::string path = "M" + markup_number(kLeft) + " " + markup_number(y_ + sizes_.memory);
      for (const MemoryLevel& level : levels_of(group.memory, least_ms_)) {
        path += "H" + markup_number(x_of(level.start_ms)) + "V" + markup_number(y_of(level.bytes));
      }
      const bool over = most > group.capacity_bytes && group.capacity_bytes > 0;
      front_ += "<path class=\"" + std::string(over ? "over" : "mem") + "\" d=\"" + path + "H" +
                markup_number(kLeft + kPlot) + "V" + markup_number(y_ + sizes_.memory) + "z\"/>\n";
      if (group.capacity_bytes > 0) {
        front_ += "<path class=\"limit\" d=\"M" + markup_number(kLeft) + " " +
                  markup_number(y_of(group.capacity_bytes)) + "h" + markup_number(kPlot) + "\"/>\n";
      }
      if (g % at(sizes_.label_every) == 0) {
        front_ += svg_text(kLeft - 8, y_ + sizes_.memory / 2 + 0.36 * sizes_.font, group_label(picture_, g),
                           "text-anchor=\"end\" " + font());
        front_ += svg_text(kLeft + kPlot + 6, y_ + sizes_.memory / 2 + 0.36 * sizes_.font, memory_text(group),
                           "class=\"dim\" font-size=\"" + markup_number(std::min(11.0, sizes_.font)) + "\"");
      }
      y_ += sizes_.memory + sizes_.gap;
    }
  }

  const TimelinePicture& picture_;
  const Timeline& timeline_;
  ChartSizes sizes_;
  double scale_ = 0, y_ = 0, least_ms_ = 0;
  std::string back_, front_;  // what is beneath the marks of the axis, and above
};

}  // namespace

std::string memory_text(const pipeline::TimelineGroup& group) {
  return format_bytes(group.most_bytes()) +
         (group.capacity_bytes > 0 ? " of " + format_bytes(group.capacity_bytes) : "");
}

std::string group_label(const TimelinePicture& picture, std::size_t group) {
  const std::string number = std::to_string(group + 1);
  if (group >= picture.groups.size() || picture.groups[group].layers.empty()) return "group " + number;
  return number + "  " + shorten(picture.groups[group].layers, kLabelColumns - static_cast<int>(number.size()) - 2);
}

// Only the classes that occur.
std::vector<LegendEntry> legend_of(const TimelinePicture& picture) {
  std::array<bool, kChartClasses> there{};
  const double least_ms = drawn_from(picture, kMostRuns);
  for (const Lane& lane : lanes_of(*picture.timeline)) {
    for (const pipeline::TimelineEvent& event : *lane.events) there[static_cast<std::size_t>(event.kind)] = true;
    const std::vector<Run> runs = runs_of(*lane.events, least_ms);
    there.back() = there.back() || std::any_of(runs.begin(), runs.end(), [](const Run& run) { return run.mixed; });
  }
  std::vector<LegendEntry> entries;
  for (int i = 0; i < kChartClasses; ++i) {
    if (there[at(i)]) entries.push_back({chart_class(i).css, chart_class(i).legend});
  }
  entries.insert(entries.end(), {{"row", "waiting"}, {"mem", "memory"}, {"limit", "its limit"}});
  return entries;
}

std::string chart_svg(const TimelinePicture& picture, SvgPlace place) {
  return Chart(picture).draw(place);
}

std::string timeline_svg(const TimelinePicture& picture) {
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" + chart_svg(picture, SvgPlace::kFile);
}

}  // namespace automap::pictures
