#include "infer/vary_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <vector>

#include "common/base/markup.h"
#include "common/base/text_table.h"
#include "infer/summary.h"
#include "plan/pictures/axis.h"

namespace automap::infer {
namespace {

constexpr double kWidth = 760, kLeft = 96, kRight = 24, kPanel = 190, kTop = 58, kBetweenPanels = 46, kBottom = 58;
constexpr double kPlot = kWidth - kLeft - kRight;
constexpr int kTitleColumns = 84, kValueColumns = 14;
constexpr double kLogFrom = 8;  // the largest over the smallest value from which on the axis counts doublings
constexpr std::size_t kMostMarks = 12;

struct Panel {
  std::string title;
  std::function<double(const pipeline::PlanDocument&)> value;
  std::function<std::string(double)> mark;
};

// The place of each row from left to right, in 0..1.
std::vector<double> places_of(const VariedRows& rows) {
  const std::size_t count = rows.rows.size();
  std::vector<double> places(count, 0.5), values(count, 0);
  if (rows.clusters) {
    for (std::size_t i = 0; i < count; ++i) places[i] = (static_cast<double>(i) + 0.5) / static_cast<double>(count);
    return places;
  }
  for (std::size_t i = 0; i < count; ++i) values[i] = std::strtod(rows.rows[i].value.c_str(), nullptr);
  if (count == 0) return places;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const bool doublings = *least > 0 && *most / *least >= kLogFrom;
  const auto along = [&](double value) { return doublings ? std::log2(value) : value; };
  const double from = along(*least), span = along(*most) - from;
  for (std::size_t i = 0; i < count; ++i) places[i] = span > 0 ? (along(values[i]) - from) / span : 0.5;
  return places;
}

std::string panel_svg(const VariedRows& rows, const Panel& panel, const std::vector<double>& places, double top) {
  double most = 0;
  for (const VariedRow& row : rows.rows) {
    if (row.plan) most = std::max(most, panel.value(*row.plan));
  }
  const bool any = most > 0 && std::isfinite(most);
  const double step = any ? pictures::round_step(most, 4) : 1, end = any ? step * std::ceil(most / step) : 1;
  const auto y_of = [&](double value) { return top + kPanel * (1 - std::clamp(value / end, 0.0, 1.0)); };
  const auto x_of = [&](std::size_t i) { return kLeft + kPlot * places[i]; };
  std::string out = svg_text(kLeft, top - 10, panel.title, "class=\"name\"");
  for (double value = 0; value <= end * (1 + 1e-9); value += most > 0 ? step : end) {
    const std::string y = markup_number(y_of(value));
    out += "<path class=\"grid\" d=\"M" + markup_number(kLeft - 6) + " " + y + "H" +
           markup_number(kWidth - kRight + 6) + "\"/>\n";
    out += svg_text(kLeft - 10, y_of(value) + 4, panel.mark(value), "class=\"dim\" text-anchor=\"end\"");
  }
  std::vector<std::size_t> order(rows.rows.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return places[a] < places[b]; });
  std::string line, dots;
  bool on = false;
  for (const std::size_t i : order) {
    const VariedRow& row = rows.rows[i];
    const std::string x = markup_number(x_of(i));
    if (!row.plan) {
      on = false;
      const double y = y_of(0);
      dots += "<path class=\"none\" d=\"M" + markup_number(x_of(i) - 4) + " " + markup_number(y - 4) +
              "l8 8m0 -8l-8 8\"><title>" + escape_markup(row.value + ": no plan: " + row.why) + "</title></path>\n";
      continue;
    }
    const double value = panel.value(*row.plan);
    const std::string y = markup_number(y_of(value));
    line += (on ? "L" : "M") + x + " " + y;
    on = !rows.clusters;
    dots += "<circle class=\"dot\" cx=\"" + x + "\" cy=\"" + y + "\" r=\"4\"><title>" +
            escape_markup(row.value + ": " + panel.mark(value) + ", " + kind_text(*row.plan)) + "</title></circle>\n";
  }
  if (!line.empty()) out += "<path class=\"line\" d=\"" + line + "\"/>\n";
  return out + dots;
}

std::string axis_title(const VariedRows& rows) {
  if (rows.clusters) return "cluster";
  if (rows.name == "batch") return "samples of a step (batch)";
  if (rows.name == "micro-batch") return "samples of a micro-batch";
  if (rows.name == "micro-batches") return "micro-batches of a step";
  if (rows.name == "sequence") return "positions of a sample (sequence)";
  if (rows.name == "memory_gib") return "memory of a device, GiB";
  if (rows.name == "inter_gbytes_per_s") return "network of a server, GB/s";
  return rows.name + " of the cluster";
}

}  // namespace

std::string vary_chart(const VariedRows& rows) {
  std::vector<Panel> panels = {
      {"step", [](const auto& plan) { return plan.simulated_step_ms; }, [](double ms) { return format_ms(ms); }}};
  const bool tokens = counts_tokens(rows);
  const bool samples = std::any_of(rows.rows.begin(), rows.rows.end(), [](const VariedRow& row) {
    return row.plan && row.plan->utilization.samples_per_s > 0;
  });
  if (samples) {
    panels.push_back(
        {tokens ? "tokens in a second" : "samples in a second",
         [tokens](const auto& plan) { return trained_per_s(plan.utilization, tokens); },
         [tokens](double value) { return tokens ? format_count(std::llround(value)) : format_number(value); }});
  }
  const std::vector<double> places = places_of(rows);
  const double bottom =
      kTop + static_cast<double>(panels.size()) * kPanel + static_cast<double>(panels.size() - 1) * kBetweenPanels;
  const double height = bottom + kBottom;
  const std::string title = shorten(
      (rows.model.empty() ? "model" : rows.model) + (rows.clusters ? "" : " on " + rows.cluster), kTitleColumns);
  std::string out = svg_start(kWidth, height, "The best plans of " + title + " over " + axis_title(rows), title) +
                    "<style>svg{font-family:system-ui,sans-serif;font-size:12px;--bg:#fff;--ink:#1b1f24;--dim:#5b636e;-"
                    "-grid:#d8dde3;--line:#0b62c4;--none:#b3261e}"
                    "@media(prefers-color-scheme:dark){svg{--bg:#12161b;--ink:#e6eaf0;--dim:#9aa5b1;--grid:#2d343c;--"
                    "line:#6cb2ff;--none:#ff8a80}}"
                    ".bg{fill:var(--bg)}text{fill:var(--ink)}.dim{fill:var(--dim);font-size:11px}.name{font-weight:600}"
                    ".title{font-size:15px;font-weight:600}"
                    ".grid{stroke:var(--grid)}.line{stroke:var(--line);fill:none;stroke-width:2}.dot{fill:var(--line)}."
                    "none{stroke:var(--none);stroke-width:2;fill:none}"
                    "</style>\n<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n";
  out += svg_text(16, 24, title, "class=\"title\"");
  for (std::size_t p = 0; p < panels.size(); ++p) {
    out += panel_svg(rows, panels[p], places, kTop + static_cast<double>(p) * (kPanel + kBetweenPanels));
  }
  // Marks that would stand on one another are left out, the first and the last stay.
  const std::size_t count = rows.rows.size(), every = (count + kMostMarks - 1) / kMostMarks;
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return places[a] < places[b]; });
  double last_end = -1e9;
  for (std::size_t k = 0; k < count; ++k) {
    const std::string word =
        shorten(rows.rows[order[k]].value, rows.clusters && count <= 4 ? 2 * kValueColumns : kValueColumns);
    const double x = kLeft + kPlot * places[order[k]], half = 3.5 * display_width(word);
    if (x - half < last_end + 6 || (every > 1 && k % every != 0 && k + 1 != count)) continue;
    last_end = x + half;
    out += svg_text(x, bottom + 20, word, "class=\"dim\" text-anchor=\"middle\"");
  }
  return out + svg_text(kLeft + kPlot / 2, bottom + 44, axis_title(rows), "text-anchor=\"middle\"") + "</svg>\n";
}

}  // namespace automap::infer
