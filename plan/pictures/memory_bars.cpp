#include "plan/pictures/memory_bars.h"

#include <algorithm>

#include "common/base/markup.h"
#include "common/base/text_table.h"
#include "plan/pictures/page.h"

namespace automap::pictures {
namespace {

using pipeline::MemoryParts;

struct MemoryPart {
  double MemoryParts::*bytes;
  const char* name;
  const char* colour;
};
constexpr MemoryPart kMemoryParts[] = {
    {&MemoryParts::weights, "weights", "#3b7dbf"},
    {&MemoryParts::gradients, "gradients", "#d9822b"},
    {&MemoryParts::slots, "optimizer state", "#2f8f5b"},
    {&MemoryParts::frozen, "frozen", "#8a8f98"},
    {&MemoryParts::stash, "activations in flight", "#8a4fbf"},
    {&MemoryParts::workspace, "workspace", "#b89a2e"},
    {&MemoryParts::buckets, "buckets", "#c2477f"},
};

bool any_of(const pipeline::PlanDocument& document, double MemoryParts::*bytes) {
  return std::any_of(document.stages.begin(), document.stages.end(),
                     [&](const pipeline::PlanStage& stage) { return stage.memory.*bytes > 0; });
}

}  // namespace

std::string memory_markup(const pipeline::PlanDocument& document) {
  double full = 0;
  for (const pipeline::PlanStage& stage : document.stages) {
    full = std::max({full, stage.memory_bytes, stage.capacity_bytes});
  }
  const std::size_t stages = document.stages.size();
  const double line = stages <= 16 ? 26 : stages <= 64 ? 16 : 10, left = 60, plot = 700, bar = line - 6;
  std::string legend = "<p class=\"legend\">";
  PageTable table;
  table.caption = "Bytes on each device of a stage";
  table.head = {"stage"};
  for (const MemoryPart& part : kMemoryParts) {
    if (!any_of(document, part.bytes)) continue;
    legend += "<span><span class=\"swatch\" style=\"background:" + std::string(part.colour) + "\"></span> " +
              part.name + "</span> ";
    table.head.emplace_back(part.name);
  }
  legend += "<span><span class=\"swatch\" style=\"background:#c53030;width:3px\"></span> what there is</span></p>\n";
  table.head.insert(table.head.end(), {"all", "of", "full"});
  std::string svg =
      "<div class=\"stretch\"><svg class=\"chart\" viewBox=\"0 0 " + markup_number(left + plot + 10) + " " +
      markup_number(static_cast<double>(stages) * line + 4) +
      "\" role=\"img\" aria-label=\"Memory of each stage against its limit; the table has the figures\">\n";
  const double scale = full > 0 ? plot / full : 0;
  double y = 2;
  for (std::size_t s = 0; s < stages; ++s, y += line) {
    const pipeline::PlanStage& stage = document.stages[s];
    std::vector<std::string> row = {std::to_string(s + 1)};
    svg += "<text x=\"" + markup_number(left - 8) + "\" y=\"" + markup_number(y + bar - 2) +
           "\" text-anchor=\"end\" font-size=\"" + markup_number(std::min(13.0, bar)) + "\">" + std::to_string(s + 1) +
           "</text>\n<rect class=\"row\" x=\"" + markup_number(left) + "\" y=\"" + markup_number(y) + "\" width=\"" +
           markup_number(plot) + "\" height=\"" + markup_number(bar) + "\"/>\n";
    double x = left;
    for (const MemoryPart& part : kMemoryParts) {
      if (!any_of(document, part.bytes)) continue;
      const double bytes = stage.memory.*part.bytes;
      row.push_back(bytes > 0 ? format_bytes(bytes) : "-");
      svg += "<rect x=\"" + markup_number(x) + "\" y=\"" + markup_number(y) + "\" width=\"" +
             markup_number(bytes * scale) + "\" height=\"" + markup_number(bar) + "\" fill=\"" + part.colour + "\"/>\n";
      x += bytes * scale;
    }
    const double limit = left + stage.capacity_bytes * scale;
    svg += "<rect x=\"" + markup_number(limit - 1) + "\" y=\"" + markup_number(y - 1) + "\" width=\"3\" height=\"" +
           markup_number(bar + 2) + "\" fill=\"#c53030\"/>\n";
    row.insert(row.end(), {format_bytes(stage.memory_bytes), format_bytes(stage.capacity_bytes),
                           stage.capacity_bytes > 0 ? format_percent(stage.memory_bytes / stage.capacity_bytes) : "-"});
    table.rows.push_back(std::move(row));
  }
  return legend + svg + "</svg></div>\n" + table_markup(table);
}

}  // namespace automap::pictures
