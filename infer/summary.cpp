#include "infer/summary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/base/fitted_table.h"
#include "common/base/join.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "infer/document.h"
#include "infer/explain.h"
#include "infer/frontier_report.h"
#include "infer/measured.h"
#include "plan/planners/kinds.h"
#include "plan/planners/leaner.h"

namespace automap::infer {
namespace {

using pipeline::PlanCorner;
using pipeline::PlanDocument;
using pipeline::PlanStage;

constexpr std::size_t kMostStageLines = 4, kMostOthers = 3;
constexpr int kLongestLayer = 40;
constexpr double kNotWeighed = 2;
// A property that makes a step this much shorter is part of the answer.
constexpr double kMuch = 0.95;
constexpr const char *kPlan = "Plan", *kTakes = "Takes", *kTimed = "Timed", *kProven = "Proven", *kInstead = "Instead";

// A paragraph behind its label. What is not `needed` goes first, the last of those before the others. `rows`: a line
// each, instead of the text as long as there is room.
struct Entry {
  std::string label, text;
  bool needed = true;
  std::size_t most_lines = 2;
  std::vector<std::string> rows = {};
};

std::vector<std::string> lines_of(const Entry& entry, int width) {
  const int room = width - static_cast<int>(kSummaryLabel);
  std::vector<std::string> lines = entry.rows.empty() ? wrap_words(printable(entry.text), room) : entry.rows;
  for (std::string& line : lines) line = shorten(printable(line), room);
  if (entry.rows.empty() && lines.size() > entry.most_lines) {
    lines.resize(entry.most_lines);
    // Words are left out whole.
    std::string& last = lines.back();
    while (display_width(last) + 4 > room && last.find(' ') != std::string::npos) last.resize(last.rfind(' '));
    last = excerpt(last + " ...", room);
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string label = i == 0 ? entry.label : "";
    label.resize(kSummaryLabel, ' ');
    lines[i] = label + lines[i];
  }
  return lines;
}

}  // namespace

std::string kind_text(const PlanDocument& document) {
  const PlanStage& first = document.stages.front();
  const std::size_t stages = document.stages.size();
  const auto all = [&](auto same) {
    return std::all_of(document.stages.begin(), document.stages.end(), [&](const PlanStage& s) { return same(s); });
  };
  std::vector<std::string> parts;
  if (stages > 1) parts.push_back("a pipeline of " + std::to_string(stages) + " stages");
  if (document.mixed_widths()) {
    parts.emplace_back("tensor parallelism of several widths");
  } else if (first.width > 1) {
    parts.push_back("tensor parallelism of " + std::to_string(first.width));
  }
  const auto replicas = [](const PlanStage& s) { return s.devices / s.width; };
  const bool same_zero = all([&](const PlanStage& s) { return s.variant.zero == first.variant.zero; });
  const int zero = first.variant.zero;
  const std::string sharded = !same_zero  ? "ZeRO by stage"
                              : zero == 3 ? "FSDP (ZeRO 3)"
                              : zero > 0  ? "ZeRO " + std::to_string(zero)
                                          : "";
  if (all([&](const PlanStage& s) { return replicas(s) == replicas(first); })) {
    if (replicas(first) > 1) {
      const std::string ways = std::to_string(replicas(first));
      if (stages == 1 && first.width == 1) {
        parts.push_back(zero == 3 ? sharded : "data parallelism" + (sharded.empty() ? "" : " with " + sharded));
      } else {
        parts.push_back("data parallelism of " + ways + (sharded.empty() ? "" : " with " + sharded));
      }
    }
  } else {
    parts.push_back("data parallelism of each stage's own" + (sharded.empty() ? "" : " with " + sharded));
  }
  const auto again = std::count_if(document.stages.begin(), document.stages.end(),
                                   [](const PlanStage& s) { return s.variant.recompute; });
  if (again > 0) {
    parts.push_back(static_cast<std::size_t>(again) == stages ? "recomputation"
                                                              : "recomputation in " + plural(again, "stage"));
  }
  return parts.empty() ? "one replica" : join(parts);
}

namespace {

std::string headline_text(const PlanDocument& document, const ReportOptions& options) {
  const int used = document.num_devices, there = std::max(options.cluster_devices, used);
  const std::string devices = used == there ? (there == 1 ? "the device" : "all " + format_count(there) + " devices")
                                            : format_count(used) + " of the " + format_count(there) + " devices";
  return (options.training ? "Train " : "Run ") + (document.model.empty() ? "the model" : document.model) + " on " +
         devices + " of " + document.cluster + (options.framework.empty() ? "" : " with " + options.framework) + ": " +
         kind_text(document);
}

// The figures of the plan, beginning with step time and throughput.
std::string figures_text(const PlanDocument& document, const ReportOptions& options) {
  std::string out = format_ms(document.simulated_step_ms) + " a step";
  if (document.expected_most_ms > 0) {
    out += " (" + format_ms(document.expected_least_ms) + " to " + format_ms(document.expected_most_ms) + ")";
  }
  const pipeline::PlanUtilization& use = document.utilization;
  if (use.tokens_per_s > 0) {
    out += ", " + format_count(std::llround(use.tokens_per_s)) + " tokens/s";
  } else if (options.model_batch > 0 && use.samples_per_s > 0) {
    out += ", " + format_number(use.samples_per_s) + " samples/s";
  }
  if (use.mfu > 0) out += ", MFU " + format_percent(use.mfu);
  const PlanStage& fullest = document.stages[fullest_stage(document)];
  if (fullest.memory_bytes > fullest.capacity_bytes) out += ", DOES NOT FIT";
  out += ", " + format_bytes(fullest.memory_bytes) + " of " + format_bytes(fullest.capacity_bytes) + " on " +
         (document.stages.size() > 1 ? "the fullest device" : "each device");
  return out;
}

std::string batch_text(const PlanDocument& document, const ReportOptions& options) {
  const long long batch = std::llround(document.batch());
  std::string out = plural(batch, "sample");
  out += usual_batch_text(document, options) + ", " + plural(document.micro_batches, "micro-batch") + " of " +
         format_amount(document.micro_batch_samples);
  const double each = document.stages.front().samples;
  if (each > 0 && each != document.micro_batch_samples && document.stages.size() == 1) {
    out += ", " + format_amount(each) + " on each " + (document.stages.front().width > 1 ? "replica" : "device");
  }
  if (document.stages.size() > 1) out += std::string(", schedule ") + to_string(document.plan.schedule);
  // Somebody chose a number that leaves replicas of one device with different shares, or devices without any.
  const int devices = document.frontier ? document.frontier->chosen().devices : options.cluster_devices;
  if (options.batch_given && options.may_use_all && devices > 1 && batch > devices && batch % devices != 0) {
    const long long below = batch / devices * devices, above = below + devices;
    out += "; --batch " + std::to_string(batch - below < above - batch ? below : above) + " divides by all " +
           format_count(devices) + " devices";
  }
  return out;
}

// A layer or an instruction by its name; of profiles that have none by its number.
std::string place_text(const std::string& name, int number) {
  return name.empty() ? "instruction " + std::to_string(number) : shorten(name, kLongestLayer);
}

std::string part_text(const pipeline::PlanPart& part) {
  const std::string first = place_text(part.first(), part.first_instruction),
                    last = place_text(part.last(), part.last_instruction);
  return first == last ? first : first + " to " + last;
}

std::string stage_text(const PlanStage& stage) {
  std::vector<std::string> parts;
  for (const pipeline::PlanPart* part : stage.own_parts()) parts.push_back(part_text(*part));
  return join(parts, ", ") + " on device" + (stage.devices > 1 ? "s " : " ") + spans_text(stage.device_numbers);
}

Entry stages_entry(const PlanDocument& document) {
  const std::size_t stages = document.stages.size();
  if (stages == 1) return {"Stages", ""};
  std::vector<std::string> starts;
  for (const PlanStage& stage : document.stages) {
    const pipeline::PlanPart& part = *stage.own_parts().front();
    starts.push_back(place_text(part.first(), part.first_instruction));
  }
  Entry entry = {"Stages", "begin at " + join(starts), true, 3};
  for (std::size_t s = 0; s < stages && stages <= kMostStageLines; ++s) {
    entry.rows.push_back(std::to_string(s + 1) + "  " + stage_text(document.stages[s]));
  }
  return entry;
}

// "dp=4,pp=1,tp=2,micro-batch-size=4,zero=3" -> "dp4 tp2 zero3"; of what is no layout of a framework the kind's name.
std::string short_name(const PlanCorner& corner) {
  if (corner.layout.rfind("dp=", 0) != 0) return corner.name;
  std::string out;
  for (std::size_t at = 0; at < corner.layout.size();) {
    const std::size_t comma = std::min(corner.layout.find(',', at), corner.layout.size());
    std::string word = corner.layout.substr(at, comma - at);
    at = comma + 1;
    // One stage has no order of stages.
    if (corner.stages == 1 && word.rfind("schedule=", 0) == 0) continue;
    if (word == "pp=1" || word == "dp=1" || word.rfind("micro-batch-size=", 0) == 0) continue;
    const std::size_t equals = std::min(word.find('='), word.size());
    const bool number = word.find_first_not_of("0123456789", std::min(equals + 1, word.size())) == std::string::npos;
    // "tp=2" is "tp2", "schedule=zb-h1" is "zb-h1", "recompute=layer" is "recompute".
    word = number ? word.substr(0, equals) + word.substr(std::min(equals + 1, word.size()))
           : word.substr(0, equals) == "recompute" ? "recompute"
                                                   : word.substr(equals + 1);
    out += (out.empty() ? "" : " ") + word;
  }
  return out.empty() ? corner.name : out;
}

// Stages are one after the other.
bool is_pipeline(const PlanCorner& corner) {
  return corner.fits && corner.stages > 1;
}

// The shortest pipeline beside the plan that can be had; null: none fits.
const PlanCorner* best_pipeline(const PlanDocument& document) {
  const PlanCorner* best = nullptr;
  for (const PlanCorner& corner : document.corners) {
    if (!is_pipeline(corner) || corner.name == "this plan") continue;
    if (best == nullptr || (!best->left_out.empty() && corner.left_out.empty())) best = &corner;
  }
  return best;
}

std::string instead_text(const PlanCorner& corner, const PlanDocument& document) {
  const double ratio = corner.simulated_step_ms / document.simulated_step_ms - 1;
  std::string out = " would take " + format_ms(corner.simulated_step_ms);
  if (std::abs(ratio) <= planners::kSameLength) {
    out += ", as long";
  } else {
    out += " (" + format_change(ratio) + ")";
  }
  if (corner.devices < document.num_devices) out += " on " + plural(corner.devices, "device");
  return out;
}

std::string none_text(const PlanCorner& corner) {
  if (corner.memory_bytes > corner.capacity_bytes && corner.capacity_bytes > 0) {
    return " does not fit: it needs " + format_bytes(corner.memory_bytes) + " of the " +
           format_bytes(corner.capacity_bytes) + " on each device";
  }
  return ": " + corner.why;
}

// Compares the plan with familiar ones: FSDP, and for a plan of replicas alone a pipeline.
std::string why_not_text(const PlanDocument& document) {
  const auto named = [&](const char* name) {
    return std::find_if(document.corners.begin(), document.corners.end(),
                        [&](const PlanCorner& corner) { return corner.name == name; });
  };
  if (document.corners.empty() || document.num_devices == 1) return "";
  const PlanStage& first = document.stages.front();
  const bool replicas_alone = document.stages.size() == 1 && first.width == 1;
  std::vector<std::string> out;
  const auto sharded = named(planners::kFullyShardedKind);
  if (sharded != document.corners.end() && !(replicas_alone && first.variant.zero == 3)) {
    const std::string fsdp = first.variant.zero == 3 ? "FSDP alone" : "FSDP";
    out.push_back(fsdp + (sharded->fits ? instead_text(*sharded, document) : none_text(*sharded)) +
                  (sharded->left_out.empty() ? "" : "; " + sharded->left_out));
  }
  if (!replicas_alone) return join(out, "; ");
  const auto grid = named(planners::kSeveralStagesKind);
  if (const PlanCorner* pipeline = best_pipeline(document)) {
    out.push_back("a pipeline (" + short_name(*pipeline) + ")" + instead_text(*pipeline, document) +
                  (pipeline->left_out.empty() ? "" : "; " + pipeline->left_out));
  } else if (grid != document.corners.end() && !grid->fits) {
    out.push_back("a pipeline" + none_text(*grid));
  }
  return join(out, "; ");
}

// The best of other kinds that are longer, each once; of a plan without stages the best pipeline among them.
std::string others_text(const PlanDocument& document) {
  std::vector<std::string> named;
  double last_ms = document.simulated_step_ms;
  const PlanCorner* pipeline = document.stages.size() == 1 ? best_pipeline(document) : nullptr;
  if (pipeline != nullptr && pipeline->simulated_step_ms <= last_ms * (1 + 1e-6)) pipeline = nullptr;
  for (const PlanCorner& corner : document.corners) {
    if (!corner.fits || named.size() == kMostOthers) continue;
    const bool last = named.size() + 1 == kMostOthers;
    if (is_pipeline(corner)) {
      pipeline = nullptr;
    } else if (last && pipeline != nullptr && pipeline->simulated_step_ms <= kNotWeighed * document.simulated_step_ms) {
      continue;
    }
    if (corner.simulated_step_ms <= last_ms * (1 + 1e-6)) continue;
    // Plans that take twice as long are left out, unless there is no other.
    if (!named.empty() && corner.simulated_step_ms > kNotWeighed * document.simulated_step_ms) break;
    last_ms = corner.simulated_step_ms;
    named.push_back(short_name(corner) + " " + format_ms(corner.simulated_step_ms));
  }
  return join(named, "; ");
}

std::string proven_text(const PlanDocument& document) {
  if (document.planner == "given") return "";
  const bool simulated = document.simulated_bound_ms > 0;
  const double bound = simulated ? document.simulated_bound_ms : document.lower_bound_ms;
  const double own = simulated ? document.simulated_step_ms : document.step_ms;
  if (bound <= 0) return "nothing: no bound was computed in the time";
  const double gap = own / bound - 1;
  // Orders are looked at beside what bounds are proven of.
  const std::vector<std::string>& schedules = document.premises.schedules;
  const bool ordered = !is_alternating(document.plan.schedule);
  std::vector<std::string> premises;
  if (!ordered && !schedules.empty() && document.premises.most_stages != 1) {
    premises.push_back("schedule " + join(schedules, " or "));
  }
  if (!document.bound_within.empty()) premises.push_back("within " + join(document.bound_within));
  if (of_written_attention(document)) premises.emplace_back(kWrittenAttention);
  if (!document.bound_all_devices) premises.emplace_back("on the devices tried");
  // The claim comes first: what does not fit in the lines is cut.
  const std::string within = premises.empty() ? "" : " (" + join(premises, "; ") + ")";
  const std::string out = "no plan of the kinds searched";
  if (!simulated) {
    return out + " has a V (the step in closed form) below " + format_ms(bound) + ", this one's is " + format_ms(own) +
           within;
  }
  if (gap >= 5e-5 && gap <= planners::kSameLength) {
    return out + " is more than " + format_percent(planners::kSameLength) + " shorter" + within;
  }
  if (gap < 5e-5) return out + " is shorter" + within;
  const auto below = [own](double ms) {
    return " is below " + format_ms(ms) + ", " + format_percent(1 - ms / own) + " less";
  };
  const bool order_says_more = ordered && document.order_bound_ms > bound && document.order_bound_ms < own;
  return out + below(bound) + within +
         (order_says_more ? "; no order of these stages' work" + below(document.order_bound_ms) : "");
}

std::string assumptions_text(const ReportOptions& options) {
  if (!options.software.empty()) return options.software + (options.fused_attention ? "; attention fused" : "");
  return options.fused_attention ? "attention in fused kernels; --attention as-written counts it as the model says"
                                 : "";
}

// The paragraphs of the summary, the most important first.
std::vector<Entry> entries_of(const PlanDocument& document, const ReportOptions& options) {
  std::vector<Entry> entries;
  const auto add = [&](const std::string& label, const std::string& text, bool needed, std::size_t lines_at_most) {
    if (!text.empty()) entries.push_back({label, text, needed, lines_at_most});
  };
  add(kPlan, headline_text(document, options), true, 3);
  add(kTakes, figures_text(document, options), true, 3);
  if (document.frontier) add("Chosen", chosen_text(*document.frontier), true, 2);
  if (document.cost) add("Costs", cost_text(*document.cost), true, 1);
  // Software is twice the time, now and then.
  add("Assumes", assumptions_text(options), !options.software.empty(), 1);
  add(kTimed, document.measured_step ? measured_text(*document.measured_step) : "", true, 4);
  add("Batch", batch_text(document, options), true, 2);
  if (const Entry stages = stages_entry(document); !stages.text.empty()) entries.push_back(stages);
  // A user of another framework does not run the module.
  const bool runs_module = !options.made_here && (options.framework.empty() || options.framework == "jax");
  add("Export",
      runs_module && document.micro_batch_samples != options.model_batch && options.model_batch > 0 &&
              document.replicas == "whole"
          ? "the model is for " + plural(std::llround(options.model_batch), "sample") + ": export it with a batch of " +
                format_amount(document.micro_batch_samples) + " to run this"
          : "",
      false, 1);
  add(kInstead, others_text(document), true, 2);
  add("Why", document.limits.empty() ? "" : document.limits.front().text, true, 2);
  add("Why not", why_not_text(document), true, 2);
  for (const PlanDocument::Relaxed& one : document.relaxed) {
    const bool much = one.simulated_ms < kMuch * document.simulated_step_ms;
    if (one.possible) add("Try", one.options + ": " + format_ms(one.simulated_ms), much, 1);
  }
  add(kProven, proven_text(document), true, 2);
  add("More",
      options.details ? "" : "--explain " + explained_words(4) + " ... says more of one thing, --details all of it",
      false, 1);
  return entries;
}

}  // namespace

int summary_width() {
  return std::min(report_columns(), kSummaryWidth);
}

int report_width(bool details) {
  return details && terminal_columns() == 0 ? 0 : report_columns();
}

std::string summary_text(const PlanDocument& document, const ReportOptions& options, int width,
                         std::size_t most_lines) {
  width = std::max(width, kLeastColumns);
  std::vector<Entry> entries = entries_of(document, options);
  // Narrow lines are more lines.
  for (Entry& entry : entries) {
    entry.most_lines *= static_cast<std::size_t>((kSummaryWidth + width - 1) / width);
    if (options.details) entry.most_lines = std::numeric_limits<std::size_t>::max();
  }
  const auto lines = [&] {
    std::vector<std::string> all;
    for (const Entry& entry : entries) {
      for (std::string& line : lines_of(entry, width)) all.push_back(std::move(line));
    }
    return all;
  };
  const auto is_answer = [](const Entry& e) {
    return e.label == kPlan || e.label == kTakes || e.label == kTimed || e.label == kProven;
  };
  std::vector<std::string> all = lines();
  while (all.size() > most_lines) {
    const auto least = std::find_if(entries.rbegin(), entries.rend(), [](const Entry& e) { return !e.needed; });
    if (least != entries.rend()) {
      entries.erase(std::next(least).base());
    } else if (const auto in_rows =
                   std::find_if(entries.begin(), entries.end(), [](const Entry& e) { return !e.rows.empty(); });
               in_rows != entries.end()) {
      in_rows->rows.clear();
    } else {
      // The end of a paragraph, the last of those of several lines, but first of what is neither proven nor the plan
      // and what it takes; before these the plans of other kinds; where there is none, the last line.
      const auto longer = [&](const Entry& e) { return lines_of(e, width).size() > 1; };
      auto several =
          std::find_if(entries.rbegin(), entries.rend(), [&](const Entry& e) { return !is_answer(e) && longer(e); });
      const auto others =
          std::find_if(entries.begin(), entries.end(), [](const Entry& e) { return e.label == kInstead; });
      const bool cuts_answer = several == entries.rend();
      if (cuts_answer) several = std::find_if(entries.rbegin(), entries.rend(), longer);
      if (cuts_answer && others != entries.end()) {
        entries.erase(others);
      } else if (several == entries.rend()) {
        entries.pop_back();
      } else {
        several->most_lines = lines_of(*several, width).size() - 1;
      }
    }
    all = lines();
  }
  std::string out;
  for (const std::string& line : all) out += line + "\n";
  return out;
}

std::vector<pipeline::PlanSentence> summary_sentences(const PlanDocument& document, const ReportOptions& options) {
  std::vector<pipeline::PlanSentence> sentences;
  for (const Entry& entry : entries_of(document, options)) {
    if (entry.rows.empty()) sentences.push_back({entry.label, entry.text});
    for (const std::string& row : entry.rows) {
      sentences.push_back({&row == &entry.rows.front() ? entry.label : "", row});
    }
  }
  return sentences;
}

}  // namespace automap::infer
