#include "plan/pictures/timeline_script.h"

#include <algorithm>
#include <cmath>

#include "common/base/json.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "plan/pictures/chart.h"
#include "plan/pictures/lanes.h"
#include "plan/pictures/timeline_svg.h"

namespace automap::pictures {
namespace {

// Limits of a page's data, at about ten bytes an entry.
constexpr std::size_t kMostDrawn = 33000, kMostLevels = 17000;
constexpr double kTicks = 1e5;  // of a step

// A text as JSON that ends no script element.
std::string script_text(const std::string& text) {
  std::string out;
  for (const char c : Json(printable(text)).dump()) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

constexpr const char* kScript = R"js(<script>
"use strict";
for (const box of document.querySelectorAll(".picture.zooms")) {
  const data = JSON.parse(box.querySelector("script").textContent);
  const bar = box.parentElement.querySelector(".bar"), said = box.parentElement.querySelector("output");
  const size = data.sizes, dark = matchMedia("(prefers-color-scheme:dark)");
  // Lanes from the top down, the times of their runs from differences.
  const lanes = [];
  let y = 20;
  data.groups.forEach((group, g) => {
    group.y = y;
    for (const lane of group.lanes) {
      const n = lane.e.length / 3, one = {g, name: lane.n, y, h: lane.n ? size.link : size.compute,
        code: new Int32Array(n), from: new Float64Array(n), to: new Float64Array(n)};
      let at = 0;
      for (let i = 0; i < n; i++) {
        one.code[i] = lane.e[3 * i];
        one.from[i] = at += lane.e[3 * i + 1];
        one.to[i] = at += lane.e[3 * i + 2];
      }
      lanes.push(one);
      y += one.h + 1;
    }
    y += size.gap;
  });
  const between = y;
  y += 24;
  for (const group of data.groups) {
    group.my = y;
    y += size.memory + size.gap;
    group.at = []; group.level = [];
    let at = 0;
    for (let i = 0; i < group.m.length; i += 2) {
      group.at.push(at += group.m[i]);
      group.level.push(group.m[i + 1]);
    }
  }
  const height = y + 4, canvas = document.createElement("canvas"), END = data.ticks;
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Timeline of a step. Arrow keys move, plus and minus zoom, 0 shows the whole step.");
  canvas.style.height = height + "px";
  box.append(canvas);
  box.classList.add("live");
  bar.hidden = false;
  let from = 0, to = END, width = 0, left = 0, waiting = false;
  const first = (list, t) => { // the first whose value is above t
    let low = 0, high = list.length;
    while (low < high) { const mid = (low + high) >> 1; if (list[mid] > t) high = mid; else low = mid + 1; }
    return low;
  };
  const units = [["h", 3.6e6], ["min", 6e4], ["s", 1e3], ["ms", 1], ["µs", 1e-3], ["ns", 1e-6]];
  const unitOf = ms => units.find(u => ms >= 2 * u[1]) || units[5];
  const time = (t, unit, digits) => {
    const ms = t / END * data.step, u = unit || unitOf(Math.abs(ms));
    return (ms / u[1]).toFixed(digits === undefined ? 2 : digits) + " " + u[0];
  };
  function draw() {
    waiting = false;
    width = box.clientWidth;
    left = width < 700 ? 64 : 190;
    const scale = devicePixelRatio || 1, paint = canvas.getContext("2d"), theme = dark.matches ? 1 : 0;
    canvas.width = width * scale;
    canvas.height = height * scale;
    paint.scale(scale, scale);
    const colour = data.colours.map(c => c[theme]), style = getComputedStyle(document.documentElement);
    const css = name => style.getPropertyValue(name).trim();
    const ink = css("--ink"), dim = css("--dim"), row = css("--panel"), hot = css("--hot"), line = css("--line");
    const room = Math.max(50, width - left - 8), x = t => left + (t - from) / (to - from) * room;
    const text = (words, px, py, fill, align) => {
      paint.fillStyle = fill; paint.textAlign = align; paint.fillText(words, px, py);
    };
    const label = (group, g, py) => {
      if (g % size.every && !group.hot) return;
      paint.font = size.font + "px system-ui,sans-serif";
      paint.textBaseline = "middle";
      const words = width < 700 ? (group.hot ? "▶ " : "") + (g + 1) : group.n;
      text(words, left - 6, py, ink, "right");
    };
    paint.clearRect(0, 0, width, height);
    data.groups.forEach((group, g) => {
      if (group.hot) { paint.fillStyle = hot; paint.fillRect(0, group.y - 1, width, (data.groups[g + 1] || {y: between}).y - group.y - size.gap + 2); }
      label(group, g, group.y + size.compute / 2);
      label(group, g, group.my + size.memory / 2);
      paint.fillStyle = row;
      paint.fillRect(left, group.my, room, size.memory);
    });
    paint.fillStyle = row;
    for (const lane of lanes) paint.fillRect(left, lane.y, room, lane.h);
    // Marks of the axis at round numbers.
    const span = (to - from) / END * data.step, unit = unitOf(to / END * data.step);
    const rough = span / unit[1] / Math.max(2, Math.floor(room / 110)), decade = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(f => f * decade).find(s => s >= rough) || rough;
    const digits = Math.min(9, Math.max(0, -Math.floor(Math.log10(step * 1.0001))));
    paint.font = "11px system-ui,sans-serif";
    paint.textBaseline = "alphabetic";
    const begin = from / END * data.step / unit[1], end = to / END * data.step / unit[1];
    if (step > 0) for (let i = Math.ceil(begin / step - 1e-9); i * step <= end + step * 1e-9; i++) {
      const px = x(i * step * unit[1] / data.step * END);
      paint.fillStyle = line;
      paint.fillRect(px, 16, 1, between - 16);
      text((i * step).toFixed(digits) + " " + unit[0], Math.min(px, width - 30), 12, dim, "center");
    }
    text("Memory on each device, against its limit", 0, between + 16, dim, "left");
    for (const lane of lanes) {
      for (let i = first(lane.to, from), drawn = -1; i < lane.code.length && lane.from[i] < to; i++) {
        const a = Math.max(left, x(lane.from[i])), b = Math.min(left + room, x(lane.to[i]));
        if (b < drawn + 0.4 && b - a < 0.4) continue; // less than a pixel beside what is there
        const kind = lane.code[i] & 7, number = lane.code[i] >> 3;
        paint.fillStyle = colour[kind];
        paint.fillRect(a, lane.y, Math.max(0.4, b - a - Math.min(0.6, 0.15 * (b - a))), lane.h);
        drawn = b;
        if (!lane.name && number && kind != 7) {
          const font = Math.min(size.font, lane.h - 2), words = "" + number;
          if (font >= 7 && b - a > 0.62 * font * words.length + 3) {
            paint.font = font + "px system-ui,sans-serif";
            paint.textBaseline = "middle";
            text(words, (a + b) / 2, lane.y + lane.h / 2 + 0.5, kind == 0 ? "#0d2438" : "#fff", "center");
          }
        }
      }
    }
    for (const group of data.groups) {
      const full = Math.max(group.top, group.limit) * 1.04 || 1, py = v => group.my + size.memory * (1 - v / full);
      paint.fillStyle = group.limit > 0 && group.top > group.limit * 1.000001 ? "#c9594a" : theme ? "#55806a" : "#9bb8a5";
      paint.beginPath();
      paint.moveTo(left, group.my + size.memory);
      for (let i = Math.max(0, first(group.at, from) - 1); i < group.at.length && group.at[i] < to; i++) {
        const px = Math.max(left, x(group.at[i]));
        paint.lineTo(px, py(group.level[i]));
        paint.lineTo(Math.min(left + room, i + 1 < group.at.length ? x(group.at[i + 1]) : left + room), py(group.level[i]));
      }
      paint.lineTo(left + room, group.my + size.memory);
      paint.fill();
      if (group.limit > 0) { paint.fillStyle = "#d03b3b"; paint.fillRect(left, py(group.limit) - 0.5, room, 1.5); }
    }
  }
  const later = () => { if (!waiting) { waiting = true; requestAnimationFrame(draw); } };
  function view(a, b) {
    const span = Math.min(END, Math.max(END / 2e3, b - a));
    from = Math.min(END - span, Math.max(0, a));
    to = from + span;
    later();
  }
  const zoom = (by, at) => { const t = at === undefined ? (from + to) / 2 : at; view(t - (t - from) * by, t + (to - t) * by); };
  const move = by => { const d = (to - from) * by; view(from + d, to + d); };
  const acts = {in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.25), right: () => move(0.25), all: () => view(0, END)};
  for (const button of bar.querySelectorAll("button")) button.addEventListener("click", acts[button.value]);
  const keys = {"+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", "0": "all", Home: "all"};
  canvas.addEventListener("keydown", event => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    acts[keys[event.key]]();
  });
  const when = px => from + (px - left) / Math.max(50, width - left - 8) * (to - from);
  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return; // the page scrolls
    event.preventDefault();
    zoom(event.deltaY + event.deltaX > 0 ? 1.25 : 0.8, when(event.offsetX));
  }, {passive: false});
  let held = null;
  canvas.addEventListener("pointerdown", event => { held = {x: event.clientX, from, to}; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointercancel", () => { held = null; });
  canvas.addEventListener("dblclick", event => zoom(0.4, when(event.offsetX)));
  canvas.addEventListener("pointermove", event => {
    if (held) {
      const d = (held.x - event.clientX) / Math.max(50, width - left - 8) * (held.to - held.from);
      view(held.from + d, held.to + d);
      return;
    }
    const t = when(event.offsetX), lane = lanes.find(l => event.offsetY >= l.y && event.offsetY <= l.y + l.h);
    if (lane) {
      const i = first(lane.to, t), kind = lane.code[i] & 7, number = lane.code[i] >> 3;
      const what = i < lane.code.length && lane.from[i] <= t
        ? (kind == 7 ? "several operations, merged" : data.kinds[kind] + (number ? " " + number : "")) +
          ", " + time(lane.from[i]) + " to " + time(lane.to[i]) : "waiting";
      said.textContent = (lane.name || "group " + (lane.g + 1)) + ": " + what;
    }
    const group = data.groups.find(g => event.offsetY >= g.my && event.offsetY <= g.my + size.memory);
    if (group) {
      const i = first(group.at, t) - 1;
      if (i >= 0) said.textContent = group.n + ": " + (group.level[i] / 1024).toFixed(2) + (group.limit > 0 ? " of " + (group.limit / 1024).toFixed(2) : "") + " GiB at " + time(t);
    }
  });
  addEventListener("resize", later);
  dark.addEventListener("change", later);
  draw();
}
</script>
)js";

std::string rounded(double value) {
  return std::to_string(std::llround(std::isfinite(value) ? value : 0));
}

double mebibytes(double bytes) {
  return bytes / (1024.0 * 1024.0);
}

}  // namespace

std::string timeline_script() {
  return kScript;
}

std::string timeline_data(const TimelinePicture& picture) {
  const pipeline::Timeline& timeline = *picture.timeline;
  const std::vector<Lane> lanes = lanes_of(timeline);
  // More groups than a plan can have leave less room for each.
  const bool many = timeline.groups.size() > static_cast<std::size_t>(pipeline::kMaxPlanStages);
  const double least_ms = merged_from(lanes, timeline.step_ms, 0, many ? kMostDrawn / 2 : kMostDrawn);
  std::size_t levels = 0;
  for (const pipeline::TimelineGroup& group : timeline.groups) levels += group.memory.size();
  const double least_level_ms = levels <= kMostLevels ? 0
                                                      : timeline.step_ms * static_cast<double>(timeline.groups.size()) /
                                                            static_cast<double>(kMostLevels);
  const double per_ms = timeline.step_ms > 0 ? kTicks / timeline.step_ms : 0;
  const auto tick = [&](double ms) { return std::llround(ms * per_ms); };
  const ChartSizes sizes = chart_sizes(timeline.groups.size());
  std::string out = "<script type=\"application/json\">{\"step\":" + Json(timeline.step_ms).dump() +
                    ",\"ticks\":" + rounded(kTicks) + ",\"sizes\":" +
                    Json({{"compute", sizes.compute},
                          {"link", sizes.link},
                          {"memory", sizes.memory},
                          {"gap", sizes.gap},
                          {"font", sizes.font},
                          {"every", sizes.label_every}})
                        .dump() +
                    ",\"kinds\":[";
  for (int kind = 0; kind + 1 < kChartClasses; ++kind) {
    out += (kind > 0 ? "," : "") + script_text(to_string(static_cast<pipeline::TimelineKind>(kind)));
  }
  out += "],\"colours\":[";
  for (int kind = 0; kind < kChartClasses; ++kind) {
    const ChartClass& one = chart_class(kind);
    out += (kind > 0 ? ",[" : "[") + script_text(one.light) + "," + script_text(one.dark) + "]";
  }
  out += "],\"groups\":[";
  std::size_t next = 0;
  for (std::size_t g = 0; g < timeline.groups.size(); ++g) {
    const pipeline::TimelineGroup& group = timeline.groups[g];
    out += (g > 0 ? ",\n" : "\n");
    out += "{\"n\":" + script_text(group_label(picture, g)) + ",\"limit\":" + rounded(mebibytes(group.capacity_bytes)) +
           ",\"top\":" + rounded(mebibytes(group.most_bytes())) +
           (static_cast<int>(g) + 1 == picture.bottleneck ? ",\"hot\":1" : "") + ",\"lanes\":[";
    for (bool first = true; next < lanes.size() && lanes[next].group == static_cast<int>(g); ++next, first = false) {
      const Lane& lane = lanes[next];
      out += first ? "{\"n\":" : ",{\"n\":";
      out += script_text(lane.kind == LaneKind::kCompute ? "" : lane.name) + ",\"e\":[";
      long long at_tick = 0;
      bool begun = false;
      for (const Run& run : runs_of(*lane.events, least_ms)) {
        const long long from = tick(run.start_ms), to = tick(run.end_ms);
        if (begun) out += ",";
        begun = true;
        out += std::to_string(run.number * 8LL + class_of(run)) + "," + std::to_string(from - at_tick) + "," +
               std::to_string(to - from);
        at_tick = to;
      }
      out += "]}";
    }
    out += "],\"m\":[";
    long long at_tick = 0;
    for (const pipeline::MemoryLevel& level : levels_of(group.memory, least_level_ms)) {
      const long long when = tick(level.start_ms);
      if (out.back() != '[') out += ",";
      out += std::to_string(when - at_tick) + "," + rounded(mebibytes(level.bytes));
      at_tick = when;
    }
    out += "]}";
  }
  return out + "]}</script>\n";
}

}  // namespace automap::pictures
