#include "infer/frontier_report.h"

#include <cmath>
#include <vector>

#include "common/base/fitted_table.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "infer/no_plan.h"

namespace automap::infer {
namespace {

using pipeline::FrontierPoint;
using pipeline::PlanFrontier;
using Align = FittedTable::Align;

bool knows_tokens(const PlanFrontier& frontier) {
  for (const FrontierPoint& point : frontier.points) {
    if (point.tokens_per_s > 0) return true;
  }
  return false;
}

std::string reached_text(double rate) {
  return rate >= 1000 ? format_count(std::llround(rate)) : format_number(rate);
}

std::string target_text(const PlanFrontier& frontier) {
  std::string out;
  if (frontier.within) {
    out += " with a step at most " + format_percent(*frontier.within) + " longer than the fastest (" +
           format_ms(frontier.fastest().step_ms) + " on " + std::to_string(frontier.fastest().devices) + ")";
  }
  if (!frontier.reach) return out;
  return out + (out.empty() ? " with " : " and ") + reached_text(*frontier.reach) + " " + frontier.reach_unit +
         "/s or more";
}

// What a part takes and, where prices are known, costs: a cell each; empty where it has no plan.
std::vector<std::string> figures_of(const FrontierPoint& point, bool tokens, bool priced) {
  if (!point.found()) return {};
  std::vector<std::string> cells = {format_ms(point.step_ms),
                                    reached_text(tokens ? point.tokens_per_s : point.samples_per_s)};
  if (priced) {
    cells.push_back(format_number(point.cost.per_step));
    cells.push_back(format_number(tokens ? point.cost.per_billion_tokens : point.cost.per_million_samples));
  }
  return cells;
}

std::string mark_of(const FrontierPoint& point) {
  return point.chosen ? "chosen" : point.best ? "best" : "";
}

}  // namespace

std::string cost_text(const pipeline::PlanCost& cost) {
  std::string out = format_number(cost.per_step) + " a step";
  if (cost.per_billion_tokens > 0) {
    out += ", " + format_number(cost.per_billion_tokens) + " for a billion tokens";
  } else if (cost.per_million_samples > 0) {
    out += ", " + format_number(cost.per_million_samples) + " for a million samples";
  }
  return out + " (" + format_number(cost.price_per_hour) + " an hour for all devices)";
}

std::string chosen_text(const PlanFrontier& frontier) {
  const FrontierPoint& point = frontier.chosen();
  const std::string what = frontier.minimized == "cost"      ? "the cheapest"
                           : frontier.minimized == "devices" ? "the fewest devices"
                                                             : "the fastest";
  return point.servers + ": " + what + target_text(frontier) + ", of " +
         plural(static_cast<long long>(frontier.points.size()), "part") + " of the cluster looked at" +
         (frontier.stopped ? "; a signal came before all were" : "");
}

std::string frontier_text(const PlanFrontier& frontier, int width) {
  const bool tokens = knows_tokens(frontier), priced = frontier.priced();
  std::vector<FittedTable::Column> columns = {
      {"devices"}, {"servers", Align::kLeft, 60, 12}, {"step"}, {tokens ? "tokens/s" : "samples/s", Align::kRight, 90}};
  if (priced) {
    columns.push_back({"a step costs", Align::kRight, 80});
    columns.push_back({tokens ? "10^9 tokens" : "10^6 samples", Align::kRight, 85});
  }
  columns.push_back({"", Align::kLeft});
  columns.push_back({"plan", Align::kLeft, FittedTable::kNeeded, 16});
  FittedTable table(columns);
  for (const FrontierPoint& point : frontier.points) {
    std::vector<std::string> row = {std::to_string(point.devices), point.servers};
    std::vector<std::string> figures = figures_of(point, tokens, priced);
    figures.resize(priced ? 4 : 2, "-");
    row.insert(row.end(), figures.begin(), figures.end());
    row.push_back(mark_of(point));
    row.push_back(point.found() ? point.plan : no_plan_text(point.why));
    table.add_row(std::move(row));
  }
  return wrap_lines("What numbers of devices take" + std::string(priced ? " and cost" : "") +
                        " (best: nothing beside it is as good in devices" + (priced ? ", price" : "") + " and step)\n",
                    width) +
         table.render("  ", width);
}

pictures::PageTable frontier_table(const PlanFrontier& frontier) {
  const bool tokens = knows_tokens(frontier), priced = frontier.priced();
  pictures::PageTable table;
  table.caption = "What numbers of devices take" + std::string(priced ? " and cost" : "");
  table.head = {"devices", "servers", "step", tokens ? "tokens/s" : "samples/s"};
  if (priced) {
    table.head.emplace_back("a step costs");
    table.head.emplace_back(tokens ? "a billion tokens" : "a million samples");
  }
  table.head.emplace_back("plan");
  table.words = {1, table.head.size() - 1};
  for (const FrontierPoint& point : frontier.points) {
    if (point.chosen) table.marked = table.rows.size();
    std::vector<std::string> row = {std::to_string(point.devices), point.servers};
    std::vector<std::string> figures = figures_of(point, tokens, priced);
    if (figures.empty()) figures = {"none"};
    figures.resize(priced ? 4 : 2, "-");
    row.insert(row.end(), figures.begin(), figures.end());
    row.push_back(point.found() ? point.plan : "no plan: " + point.why);
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace automap::infer
