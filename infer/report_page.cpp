#include "infer/report_page.h"

#include <algorithm>
#include <cmath>

#include "common/base/join.h"
#include "common/base/markup.h"
#include "common/base/text_table.h"
#include "infer/frontier_report.h"
#include "infer/summary.h"
#include "plan/emit/to_type.h"
#include "plan/pictures/memory_bars.h"
#include "plan/pictures/page.h"
#include "plan/pictures/servers.h"

namespace automap::infer {
namespace {

using pictures::PageTable;
using pictures::table_markup;
using pipeline::PlanDocument;
using pipeline::PlanStage;

constexpr int kNameColumns = 60;
// The most rows of a table for people; the JSON has all.
constexpr std::size_t kMostPageRows = 40;

std::string section(const std::string& title, const std::string& body) {
  return body.empty() ? "" : "<section>\n<h2>" + escape_markup(title) + "</h2>\n" + body + "</section>\n";
}

std::string paragraph(const std::string& text, const char* css = "") {
  return "<p" + std::string(css) + ">" + escape_markup(text) + "</p>\n";
}

std::string question_markup(const ReportPage& page) {
  const PlanDocument& document = *page.document;
  std::string out =
      paragraph("How should " + (document.model.empty() ? "the model" : shorten(document.model, kNameColumns)) +
                (page.options.training ? " be trained on " : " be run on ") + document.cluster + " (" +
                plural(page.options.cluster_devices, "device") + "), " + format_amount(document.batch()) +
                " samples a step" + (document.planner == "given" ? ", by the plan that was given" : "") + "?");
  if (!page.asked.empty()) out += paragraph("Asked with " + page.asked + ".", " class=\"note\"");
  return out;
}

std::string answer_markup(const ReportPage& page) {
  std::string out;
  for (const std::string& warning : page.document->warnings) out += paragraph("Note: " + warning, " class=\"warn\"");
  out += "<dl class=\"answer\">\n";
  for (const pipeline::PlanSentence& sentence : summary_sentences(*page.document, page.options)) {
    out += "<dt>" + escape_markup(sentence.label) + "</dt><dd>" + escape_markup(sentence.text) + "</dd>\n";
  }
  return out + "</dl>\n";
}

std::string run_markup(const ReportPage& page) {
  const PlanDocument& document = *page.document;
  std::string out;
  if (document.to_type) {
    out += "<pre tabindex=\"0\">" +
           escape_lines(emit::to_type_text(*document.to_type, page.plan_file, document.simulated_step_ms, true)) +
           "</pre>\n";
  }
  const std::string file = page.plan_file.empty() ? "plan.json" : page.plan_file;
  out += paragraph(
      (page.plan_file.empty() ? "Write the plan with -o plan.json; then automap-emit " : "automap-emit ") + file +
          " --to FRAMEWORK writes the arguments and files of Megatron-LM, torchtitan, DeepSpeed, torch, MaxText "
          "or JAX.",
      " class=\"note\"");
  return out;
}

std::string variant_text(const PlanStage& stage) {
  std::vector<std::string> parts;
  if (stage.replicas > 1) parts.push_back("data " + std::to_string(stage.replicas));
  if (stage.width > 1) parts.push_back("tensor " + std::to_string(stage.width));
  if (stage.variant.zero > 0) parts.push_back("ZeRO " + std::to_string(stage.variant.zero));
  if (stage.variant.recompute) parts.emplace_back("recomputes");
  return parts.empty() ? "one device" : join(parts);
}

std::string stages_markup(const PlanDocument& document) {
  PageTable table;
  table.caption = "Layers by stage; samples are those of a replica in a micro-batch";
  table.head = {"stage", "first layer", "last layer", "instructions", "devices", "samples", "held as"};
  table.words = {1, 2, 4, 6};
  for (std::size_t s = 0; s < document.stages.size(); ++s) {
    const PlanStage& stage = document.stages[s];
    for (const pipeline::PlanPart* part : stage.own_parts()) {
      table.rows.push_back({std::to_string(s + 1), shorten(part->first(), kNameColumns),
                            shorten(part->last(), kNameColumns),
                            span_text(part->first_instruction, part->last_instruction),
                            shorten(spans_text(stage.device_numbers), kNameColumns),
                            stage.samples > 0 ? format_amount(stage.samples) : "-", variant_text(stage)});
    }
  }
  if (document.stages.size() > 1 && !document.limits.empty() && document.limits.front().stage > 0) {
    const auto limited = static_cast<std::size_t>(document.limits.front().stage - 1);
    table.marked = 0;
    for (std::size_t s = 0; s < limited; ++s) table.marked += document.stages[s].own_parts().size();
  }
  std::string out = table_markup(table);
  for (const std::string& inside : document.inside_replicas)
    out += paragraph("Inside a replica: " + inside, " class=\"note\"");
  return out;
}

std::string alternatives_markup(const PlanDocument& document) {
  std::string out;
  PageTable kinds;
  kinds.caption = "The best of every kind of plan, the shortest first";
  kinds.head = {"kind", "layout", "step", "beside this plan", "stages", "devices", "memory", "why"};
  kinds.words = {1, 7};
  for (const pipeline::PlanCorner& corner : document.corners) {
    if (kinds.rows.size() == kMostPageRows) break;
    if (corner.name == "this plan") kinds.marked = kinds.rows.size();
    const double ratio = document.simulated_step_ms > 0 ? corner.simulated_step_ms / document.simulated_step_ms - 1 : 0;
    kinds.rows.push_back(
        {corner.name, corner.layout, corner.fits ? format_ms(corner.simulated_step_ms) : "none",
         corner.fits ? (ratio > 0   ? "+"
                        : ratio < 0 ? "-"
                                    : "") +
                           format_percent(std::abs(ratio))
                     : "-",
         corner.fits ? std::to_string(corner.stages) : "-", corner.fits ? std::to_string(corner.devices) : "-",
         corner.fits ? format_bytes(corner.memory_bytes) + " of " + format_bytes(corner.capacity_bytes) : "-",
         corner.left_out.empty() ? corner.why : corner.left_out});
  }
  if (!kinds.rows.empty()) out += table_markup(kinds);
  PageTable planners;
  planners.caption = "What other planners came to";
  planners.head = {"planner", "stages", "step (simulated)", "V"};
  for (const pipeline::PlanAlternative& other : document.alternatives) {
    if (planners.rows.size() == kMostPageRows) break;
    planners.rows.push_back(
        {other.planner, std::to_string(other.stages), format_ms(other.simulated_step_ms), format_ms(other.step_ms)});
  }
  if (!planners.rows.empty()) out += table_markup(planners);
  if (out.empty())
    out = paragraph("None were looked at: the plan was given, or its planner was asked alone.", " class=\"note\"");
  return out;
}

std::string bounds_markup(const ReportPage& page) {
  const PlanDocument& document = *page.document;
  PageTable table;
  table.caption = "What no plan of those that were considered is below";
  table.head = {"", "this plan", "bound", "at most too long"};
  const auto row = [&](const char* what, double own, double bound) {
    if (bound > 0)
      table.rows.push_back({what, format_ms(own), format_ms(bound), format_percent(std::max(0.0, own / bound - 1))});
  };
  row("simulated step", document.simulated_step_ms, document.simulated_bound_ms);
  if (is_alternating(document.plan.schedule)) {
    row("V, the step in closed form", document.step_ms, document.lower_bound_ms);
  }
  std::string out = table.rows.empty() ? paragraph("No bound was computed.", " class=\"note\"") : table_markup(table);
  for (const std::string& estimate : document.estimates) out += paragraph(estimate);
  for (const PlanDocument::Relaxed& one : document.relaxed) {
    out += paragraph("Without the rule that " + one.rule + " a step would take " + format_ms(one.simulated_ms) +
                     (one.possible ? ": " + one.options : ", which these machines cannot") + ".");
  }
  return out;
}

std::string sensitivity_markup(const PlanDocument& document) {
  if (document.sensitivity.empty()) {
    return paragraph("Not asked: --sensitivity plans again with every estimate off by its expected error.",
                     " class=\"note\"");
  }
  PageTable table;
  table.caption = "If the numbers are wrong, each alone by its expected error";
  table.head = {"if", "this plan", "best plan then", "lost", "which is"};
  table.words = {4};
  for (const pipeline::PlanSensitivity& row : document.sensitivity) {
    const bool fits = row.simulated_step_ms > 0;
    table.rows.push_back({row.changed, fits ? format_ms(row.simulated_step_ms) : "does not fit",
                          row.best_ms > 0 ? format_ms(row.best_ms) : "-", fits ? format_percent(row.loss()) : "-",
                          row.best.empty() ? "this one" : row.best});
  }
  return table_markup(table);
}

std::string timeline_markup(const pictures::TimelinePicture& picture) {
  std::string out;
  for (const std::string& sentence : picture.sentences) out += paragraph(sentence);
  return out + timeline_section(picture);
}

}  // namespace

std::string report_html(const ReportPage& asked) {
  ReportPage page = asked;
  page.options.details = true;  // the page ends with them
  page.options.width = 0;       // and is as wide as it gets, whatever the terminal
  const PlanDocument& document = *page.document;
  const std::string& title = page.timeline->title;
  std::string body = "<h1>" + escape_markup(title) + "</h1>\n" + question_markup(page);
  body += section("Answer", answer_markup(page));
  if (document.frontier) body += section("How many devices", table_markup(frontier_table(*document.frontier)));
  body += section("How to run it", run_markup(page));
  body += section("Servers and devices", pictures::servers_markup(*page.cluster, document));
  body += section("Layers by stage", stages_markup(document));
  body += section("What happens when", timeline_markup(*page.timeline));
  body += section("Memory", pictures::memory_markup(document));
  body += section("Instead of it", alternatives_markup(document));
  body += section("How sure", bounds_markup(page));
  body += section("If the numbers are wrong", sensitivity_markup(document));
  body += "<details><summary>All that --details prints</summary><pre tabindex=\"0\">" +
          escape_lines(report_text(document, page.placed->problem(), page.options)) + "</pre></details>\n";
  return pictures::page(title, body);
}

}  // namespace automap::infer
