#include "compare/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/fitted_table.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/markup.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"

namespace automap::compare {
namespace {

using systems::Judge;

// True if the answer's figure is compared with those of the same judge.
bool counts(const Answer& answer, Judge judge) {
  return answer.found && answer.fits() && answer.judge == judge;
}

double shortest_ms(const Compared& compared, Judge judge) {
  double least = std::numeric_limits<double>::infinity();
  for (const Answer& answer : compared.answers) {
    if (counts(answer, judge)) least = std::min(least, answer.step_ms);
  }
  return least;
}

// Whose figures are set against each other.
Judge judge_of(const Compared& compared) {
  return compared.workload ? Judge::kLargestLoad : Judge::kOurs;
}

// The name of the quantity in the figures.
const char* figure(const Compared& compared) {
  return compared.workload ? "load" : "step";
}

// Beside the least: "1.234".
std::string times(double value, double least) {
  constexpr double kMost = 1e6;
  const double ratio = value == least ? 1 : value / least;
  if (!(ratio < kMost)) return "-";  // the least is nothing
  const long thousandths = std::lround(ratio * 1000);
  std::string digits = std::to_string(thousandths % 1000);
  digits.insert(0, 3 - digits.size(), '0');
  return std::to_string(thousandths / 1000) + "." + digits;
}

std::string head(const Compared& compared) {
  if (compared.workload) return printable(compared.model) + ", a workload for placement on " + compared.cluster;
  return printable(compared.model) + " on " + printable(compared.cluster) + ", " +
         format_count(std::llround(compared.batch)) + " samples a step";
}

// Who is shortest, and how far from the proof ours is.
std::string verdict(const Compared& compared) {
  const Judge judge = judge_of(compared);
  const double least = shortest_ms(compared, judge);
  std::string text;
  for (std::size_t i = 0; i < compared.answers.size(); ++i) {
    const Answer& answer = compared.answers[i];
    if (!counts(answer, judge) || answer.step_ms > least * (1 + 1e-9)) continue;
    text +=
        (text.empty() ? (compared.workload ? "Least: " : "Shortest: ") : ", ") + std::string(compared.systems[i]->name);
  }
  const bool any =
      std::any_of(compared.answers.begin(), compared.answers.end(), [](const Answer& a) { return a.found; });
  if (text.empty())
    text = any ? "No system has a plan that fits and can be set against others" : "No system has a plan";
  for (const Answer& answer : compared.answers) {
    // A plan below the bound is not among the plans that the bound covers.
    if (answer.found && answer.fits() && answer.gap() >= 0 && least >= answer.simulated_bound_ms * (1 - 1e-9)) {
      text +=
          ". AutoMap's plan is at most " + format_percent(answer.gap()) + " above the shortest of those it considers";
    }
  }
  return text.back() == '.' ? text : text + ".";
}

std::string number(double value) {
  Json json = std::round(value * 100) / 100;
  return json.dump();
}

// "12.3", "12.3 own": by its own simulator.
std::string step_text(const Answer& answer) {
  return format_number(answer.step_ms) + (answer.judge == Judge::kOwnSimulator ? " own" : "");
}

std::string memory_text(const Answer& answer) {
  if (!std::isfinite(answer.fullest_share)) return "-";
  return format_percent(answer.fullest_share) + (answer.fits() ? "" : ", does not fit");
}

// "a, b: why" of the systems that were not asked, those with the same reason together; a line each.
std::string not_asked(const Compared& compared) {
  std::vector<std::pair<std::string, std::string>> of_reason;  // and their names
  for (std::size_t i = 0; i < compared.systems.size(); ++i) {
    const Answer& answer = compared.answers[i];
    if (answer.asked) continue;
    const auto same = std::find_if(of_reason.begin(), of_reason.end(),
                                   [&](const auto& entry) { return entry.first == answer.why_not; });
    if (same == of_reason.end()) {
      of_reason.emplace_back(answer.why_not, compared.systems[i]->name);
    } else {
      same->second += std::string(", ") + compared.systems[i]->name;
    }
  }
  std::string text;
  for (const auto& [reason, names] : of_reason) text += "Not asked: " + names + ": " + printable(reason) + ".\n";
  return text;
}

// One line per system: its step as a bar, its search time as a dot.
std::string picture(const Compared& compared) {
  constexpr double kName = 170, kBars = 380, kGap = 100, kSearch = 220, kLine = 30, kTop = 30;
  constexpr double kLeast = 1e-3, kMost = 1e4;  // s, the ends of the axis
  const auto asked =
      std::count_if(compared.answers.begin(), compared.answers.end(), [](const Answer& a) { return a.asked; });
  const double height = kTop + kLine * static_cast<double>(asked) + 30;
  // Figures of another judge are not to be set against these: they are cut off where they are longer.
  double longest = 0, of_others = 0;
  for (const Answer& answer : compared.answers) {
    double& most = answer.judge == judge_of(compared) ? longest : of_others;
    if (answer.found) most = std::max(most, answer.step_ms);
  }
  if (longest <= 0) longest = of_others;
  const auto at_second = [&](double s) {
    const double share = std::log10(std::clamp(s, kLeast, kMost) / kLeast) / std::log10(kMost / kLeast);
    return kName + kBars + kGap + share * kSearch;
  };
  std::string svg = "<svg viewBox=\"0 0 " + number(kName + kBars + kGap + kSearch + 60) + " " + number(height) +
                    "\" font-family=\"sans-serif\" font-size=\"13\" role=\"img\">\n<title>" +
                    (compared.workload ? "Largest load" : "Simulated step") + " and search time</title>\n<text x=\"" +
                    number(kName) + "\" y=\"16\">" + figure(compared) + ", ms</text>\n<text x=\"" +
                    number(at_second(kLeast)) + "\" y=\"16\">search, s</text>\n";
  for (double s = kLeast; s <= kMost * 1.001; s *= 100) {
    const std::string x = number(at_second(s));
    svg += "<line x1=\"" + x + "\" x2=\"" + x + "\" y1=\"" + number(kTop) + "\" y2=\"" + number(height - 26) +
           "\" stroke=\"#ddd\"/>\n<text x=\"" + x + "\" y=\"" + number(height - 10) +
           "\" text-anchor=\"middle\" fill=\"#666\">" + format_number(s) + "</text>\n";
  }
  double y = kTop - kLine;
  for (std::size_t i = 0; i < compared.systems.size(); ++i) {
    const Answer& answer = compared.answers[i];
    if (!answer.asked) continue;
    y += kLine;
    svg += "<text x=\"0\" y=\"" + number(y + 18) + "\">" + escape_markup(compared.systems[i]->name) + "</text>\n";
    if (answer.found) {
      const double width = longest > 0 ? kBars * std::min(1.0, answer.step_ms / longest) : 0;
      const char* colour = std::string_view(compared.systems[i]->key) == "automap" ? "#2a6f97"
                           : answer.judge == Judge::kOwnSimulator                  ? "#e0ddd0"
                                                                                   : "#b7b7a4";
      svg += "<rect x=\"" + number(kName) + "\" y=\"" + number(y + 4) + "\" width=\"" + number(width) +
             "\" height=\"20\" fill=\"" + colour + "\"/>\n<text x=\"" + number(kName + width + 6) + "\" y=\"" +
             number(y + 18) + "\">" + step_text(answer) + (answer.fits() ? "" : ", does not fit") +
             (answer.step_ms > longest ? " (cut off)" : "") + "</text>\n";
    } else {
      svg += "<text x=\"" + number(kName) + "\" y=\"" + number(y + 18) + "\" fill=\"#666\">no plan</text>\n";
    }
    svg += "<circle cx=\"" + number(at_second(answer.search_s)) + "\" cy=\"" + number(y + 14) +
           "\" r=\"5\" fill=\"#d1495b\"><title>" + format_number(answer.search_s) + " s</title></circle>\n";
  }
  return svg + "</svg>\n";
}

}  // namespace

std::string report_text(const Compared& compared, int width) {
  using Align = FittedTable::Align;
  FittedTable table({{"system", Align::kLeft, FittedTable::kNeeded, 12},
                     {"own model, ms", Align::kRight, 10},
                     {std::string(figure(compared)) + ", ms"},
                     {"x shortest", Align::kRight, 40},
                     {"memory", Align::kRight, 30},
                     {"search, s", Align::kRight, 20},
                     {"plan", Align::kLeft, FittedTable::kNeeded, 24}});
  const Judge judge = judge_of(compared);
  const double least = shortest_ms(compared, judge);
  std::string without, spaces;
  bool own = false;
  for (std::size_t i = 0; i < compared.systems.size(); ++i) {
    const Answer& answer = compared.answers[i];
    const System& system = *compared.systems[i];
    if (!answer.asked) continue;
    spaces += "  " + std::string(system.name) + " (" + system.source + "): " + system.expresses +
              "; not: " + system.leaves_out + "\n";
    if (!answer.found) {
      table.add_row({system.name, "-", "-", "-", "-", format_number(answer.search_s), "none"});
      without += std::string(system.name) + " has no plan: " + printable(answer.why_not) + "\n";
      continue;
    }
    own = own || answer.judge == Judge::kOwnSimulator;
    table.add_row({system.name, answer.own_ms > 0 ? format_number(answer.own_ms) : "-", step_text(answer),
                   counts(answer, judge) ? times(answer.step_ms, least) : "-", memory_text(answer),
                   format_number(answer.search_s), answer.plan});
  }
  return wrap_lines(head(compared) + "\n", width) + "\n" + table.render("", width) + "\n" +
         wrap_lines(verdict(compared) + "\n" +
                        (own ? "own: by the system's own simulator, for its plan is no pipeline of ours; not to be set "
                               "against the others.\n"
                             : "") +
                        without + not_asked(compared) + "\nWhat they can express and what not:\n" + spaces +
                        "\nStand-ins on our costs (docs/results/rivals.md), not the published programs; load average " +
                        format_number(compared.load_average) + " when it began.\n",
                    width);
}

std::string report_json(const Compared& compared) {
  Json document;
  document["schema"] = "automap.systems/1";
  document["model"] = compared.model;
  document["cluster"] = compared.cluster;
  if (!compared.workload) document["batch"] = compared.batch;
  document["load_average"] = compared.load_average;
  document["systems"] = Json::array();
  for (std::size_t i = 0; i < compared.systems.size(); ++i) {
    const Answer& answer = compared.answers[i];
    const System& system = *compared.systems[i];
    Json row = {{"system", system.key},          {"name", system.name},           {"source", system.source},
                {"objective", system.objective}, {"expresses", system.expresses}, {"leaves_out", system.leaves_out},
                {"asked", answer.asked},         {"found", answer.found},         {"search_s", answer.search_s}};
    if (answer.found) {
      row["plan"] = answer.plan;
      if (answer.own_ms > 0) row["own_ms"] = answer.own_ms;
      row["judged_by"] = to_string(answer.judge);
      row[answer.judge == Judge::kOurs          ? "simulated_step_ms"
          : answer.judge == Judge::kLargestLoad ? "load_ms"
                                                : "step_ms"] = answer.step_ms;
      row["fits"] = answer.fits();
      row["fullest_share"] = answer.fullest_share;
      if (answer.gap() >= 0) row["gap"] = answer.gap();
    } else {
      row["why_not"] = answer.why_not;
    }
    document["systems"].push_back(std::move(row));
  }
  return json_text(document);
}

std::string report_html(const Compared& compared) {
  std::string rows;
  for (std::size_t i = 0; i < compared.systems.size(); ++i) {
    const Answer& answer = compared.answers[i];
    const System& system = *compared.systems[i];
    if (!answer.asked) continue;
    rows += "<tr><td>" + escape_markup(system.name) + "</td><td>" + escape_markup(system.source) + "</td><td>" +
            (answer.found && answer.own_ms > 0 ? format_number(answer.own_ms) : "-") + "</td><td>" +
            (answer.found ? step_text(answer) : "-") + "</td><td>" + (answer.found ? memory_text(answer) : "-") +
            "</td><td>" + format_number(answer.search_s) + "</td><td>" +
            escape_markup(answer.found ? answer.plan : answer.why_not) + "</td><td>" + escape_markup(system.expresses) +
            "</td><td>" + escape_markup(system.leaves_out) + "</td></tr>\n";
  }
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" + escape_markup(compared.model) +
         " on " + escape_markup(compared.cluster) +
         "</title>\n<style>body{font-family:sans-serif;max-width:70em;margin:2em auto;padding:0 1em}"
         "table{border-collapse:collapse;font-size:90%}td,th{border-bottom:1px solid #ddd;padding:.4em;"
         "text-align:left;vertical-align:top}</style></head>\n<body><h1>" +
         escape_markup(head(compared)) + "</h1>\n<p>" + escape_markup(verdict(compared)) + "</p>\n" +
         picture(compared) + "<table><tr><th>system</th><th>source</th><th>own model, ms</th><th>" + figure(compared) +
         ", ms</th><th>memory</th>"
         "<th>search, s</th><th>plan</th><th>expresses</th><th>leaves out</th></tr>\n" +
         rows + "</table>\n<p>" + escape_markup(not_asked(compared)) +
         "</p>\n<p>Stand-ins on our costs, not the published programs; every pipeline is judged by our simulation. "
         "Load "
         "average " +
         format_number(compared.load_average) + " when it began.</p></body></html>\n";
}

}  // namespace automap::compare
