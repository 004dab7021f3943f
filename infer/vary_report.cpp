#include "infer/vary_report.h"

#include <algorithm>
#include <cmath>

#include "common/base/fitted_table.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "infer/no_plan.h"
#include "infer/summary.h"
#include "infer/utilization.h"

namespace automap::infer {
namespace {

using pipeline::PlanDocument;
using pipeline::PlanStage;
using Align = FittedTable::Align;

// The row that trains most in a second; null: none has a plan.
const VariedRow* best_row(const VariedRows& rows) {
  const bool tokens = counts_tokens(rows);
  const VariedRow* best = nullptr;
  for (const VariedRow& row : rows.rows) {
    if (!row.plan) continue;
    const auto trains = [&](const VariedRow& of) { return trained_per_s(of.plan->utilization, tokens); };
    if (best == nullptr || trains(row) > trains(*best)) best = &row;
  }
  return best;
}

std::string head_text(const VariedRows& rows) {
  std::string out = printable(rows.model.empty() ? "The model" : rows.model);
  out += rows.clusters ? " on " + plural(static_cast<long long>(rows.asked), "cluster")
                       : " on " + printable(rows.cluster) + ", planned with " +
                             plural(static_cast<long long>(rows.asked), "value") + " of " + rows.name;
  if (rows.rows.size() < rows.asked) {
    out += "; a signal stopped it after " + std::to_string(rows.rows.size()) + " of them";
  }
  return out + "\n";
}

std::string rate_text(const pipeline::PlanUtilization& use, bool tokens) {
  const double rate = trained_per_s(use, tokens);
  return tokens ? format_count(std::llround(rate)) : format_number(rate);
}

std::string end_text(const VariedRows& rows) {
  const VariedRow* const best = best_row(rows);
  if (best == nullptr) return "None of them has a plan.\n";
  const PlanDocument& plan = *best->plan;
  const bool tokens = counts_tokens(rows);
  std::string out = (rows.clusters ? printable(best->value) : rows.name + " " + printable(best->value)) +
                    " trains the most " + (tokens ? "tokens" : "samples") + " in a second (" +
                    rate_text(plan.utilization, tokens) + "): " + printable(kind_text(plan)) + ".\n";
  return out;
}

std::string csv_cell(const std::string& text) {
  const std::string safe = printable(text);
  if (safe.find_first_of(",\"") == std::string::npos) return safe;
  std::string out = "\"";
  for (const char c : safe) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

// The shortest text that reads back as the number.
std::string exact_number(double value) {
  return Json(value).dump();
}

}  // namespace

bool counts_tokens(const VariedRows& rows) {
  return rows.name == "sequence" && std::any_of(rows.rows.begin(), rows.rows.end(), [](const VariedRow& row) {
           return row.plan && row.plan->utilization.tokens_per_s > 0;
         });
}

double trained_per_s(const pipeline::PlanUtilization& use, bool tokens) {
  return tokens ? use.tokens_per_s : use.samples_per_s;
}

std::string vary_text(const VariedRows& rows, int width) {
  const bool tokens = counts_tokens(rows);
  FittedTable table({{rows.name, rows.clusters ? Align::kLeft : Align::kRight, FittedTable::kNeeded, 12},
                     {"step"},
                     {tokens ? "tokens/s" : "samples/s", Align::kRight, 80},
                     {"MFU", Align::kRight, 50},
                     {"memory", Align::kRight, 70},
                     {"devices", Align::kRight, 40},
                     {"micro-batches", Align::kRight, 30},
                     {"plan", Align::kLeft, FittedTable::kNeeded, 16}});
  for (const VariedRow& row : rows.rows) {
    if (!row.plan) {
      table.add_row({row.value, "-", "-", "-", "-", "-", "-", no_plan_text(row.why)});
      continue;
    }
    const PlanDocument& plan = *row.plan;
    const PlanStage& fullest = plan.stages[fullest_stage(plan)];
    table.add_row(
        {row.value, format_ms(plan.simulated_step_ms),
         trained_per_s(plan.utilization, tokens) > 0 ? rate_text(plan.utilization, tokens) : "-",
         mfu_text(plan.utilization),
         format_bytes(fullest.memory_bytes) + ", " + format_percent(fullest.memory_bytes / fullest.capacity_bytes),
         std::to_string(plan.num_devices),
         std::to_string(plan.micro_batches) + " of " + format_amount(plan.micro_batch_samples), kind_text(plan)});
  }
  return wrap_lines(head_text(rows), width) + table.render("  ", width) + wrap_lines(end_text(rows), width);
}

std::string vary_json(const VariedRows& rows) {
  Json all = Json::array();
  for (const VariedRow& row : rows.rows) {
    Json one = {{"value", row.value}, {"found", row.plan.has_value()}};
    if (row.plan) {
      one["plan"] = Json::parse(to_json_text(*row.plan));
    } else {
      one["why"] = row.why;
    }
    all.push_back(one);
  }
  const Json document = {{"schema", "automap.vary/1"}, {"varied", rows.name},
                         {"model", rows.model},        {"cluster", rows.clusters ? Json() : Json(rows.cluster)},
                         {"asked", rows.asked},        {"rows", all}};
  return json_text(document);
}

std::string vary_csv(const VariedRows& rows) {
  // The varied name may also be the name of a column.
  std::string out = csv_cell(rows.name == "devices" ? "devices_at_most" : rows.name) +
                    ",step_ms,samples_per_s,tokens_per_s,mfu,memory_bytes,available_bytes,stages,devices,"
                    "micro_batches,micro_batch_samples,plan,why_none\n";
  for (const VariedRow& row : rows.rows) {
    out += csv_cell(row.value);
    if (!row.plan) {
      out += ",,,,,,,,,,,," + csv_cell(row.why) + "\n";
      continue;
    }
    const PlanDocument& plan = *row.plan;
    const PlanStage& fullest = plan.stages[fullest_stage(plan)];
    for (const double value :
         {plan.simulated_step_ms, plan.utilization.samples_per_s, plan.utilization.tokens_per_s, plan.utilization.mfu,
          fullest.memory_bytes, fullest.capacity_bytes, static_cast<double>(plan.stages.size()),
          static_cast<double>(plan.num_devices), static_cast<double>(plan.micro_batches), plan.micro_batch_samples}) {
      out += ",";
      if (value > 0)
        out += value == std::floor(value) && value < 1e15 ? std::to_string(std::llround(value)) : exact_number(value);
    }
    out += "," + csv_cell(kind_text(plan)) + ",\n";
  }
  return out;
}

}  // namespace automap::infer
