#include "infer/report.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/fitted_table.h"
#include "common/base/join.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "common/pipeline/exact.h"
#include "infer/document.h"
#include "infer/frontier_report.h"
#include "infer/report_parts.h"
#include "infer/summary.h"
#include "infer/utilization.h"

namespace automap::infer {
namespace {

using pipeline::LayerSplit;
using pipeline::PlanAlternative;
using pipeline::PlanDocument;
using pipeline::PlannerTable;
using pipeline::PlannerTableRow;
using pipeline::PlanStage;
using pipeline::PlanWidth;
using pipeline::Problem;
using Align = FittedTable::Align;

constexpr int kLayerWidth = 26;
constexpr std::size_t kRunnersUp = 3;
constexpr double kWorthAColumn = 1e-6;  // of memory: a few scalars are no part
constexpr double kLimitWorthSaying = 0.005;
constexpr int kStackWorthSaying = 4;
constexpr double kNoGap = 5e-7;

// Signed change against this plan: "+1.2 %", "same".
std::string change(double other_ms, double this_ms) {
  const double ratio = other_ms / this_ms - 1;
  if (std::fabs(ratio) < 5e-5) return "same";
  return format_change(ratio);
}

std::string layers_of_part(const pipeline::PlanPart& stage) {
  if (stage.first_layer.empty() && stage.last_layer.empty()) return stage.first_name;
  if (stage.first_layer == stage.last_layer) return shorten(stage.first_layer, kLayerWidth);
  return shorten(stage.first_layer, kLayerWidth) + " .. " + shorten(stage.last_layer, kLayerWidth);
}

// All that a stage runs.
std::string layers_text(const PlanStage& stage) {
  std::vector<std::string> texts;
  for (const pipeline::PlanPart* part : stage.own_parts()) texts.push_back(layers_of_part(*part));
  return join(texts, " + ");
}

bool alike(const PlanDocument& document) {
  const double capacity = document.stages.front().capacity_bytes;
  return std::all_of(document.stages.begin(), document.stages.end(),
                     [&](const PlanStage& s) { return s.capacity_bytes == capacity; });
}

std::string devices_text(const PlanStage& stage, const Problem& problem) {
  const int last_device = stage.first_device + stage.devices - 1;
  // The steps below hold for any width: a replica stands in one server, or on as many whole ones as the problem says.
  const int width = problem.options().width;
  std::vector<int> servers;
  for (int device = stage.first_device; device <= last_device; device += width) {
    const int of_problem = problem.server_of_device((device - 1) / width);
    for (int i = 1; i <= problem.servers_taken_for(of_problem); ++i) {
      const int server = problem.server_number(of_problem) + i;
      if (std::find(servers.begin(), servers.end(), server) == servers.end()) servers.push_back(server);
    }
  }
  return std::to_string(stage.devices) +
         (stage.width > 1 ? ": " + std::to_string(stage.replicas) + " x " + std::to_string(stage.width) : "") + " (" +
         spans_text(stage.device_numbers) + ", server" + (servers.size() == 1 ? " " : "s ") + spans_text(servers) + ")";
}

std::string or_dash(double ms) {
  return ms > 0 ? format_ms(ms) : "-";
}

}  // namespace

std::string stage_table(const PlanDocument& document, const Problem& problem, int width) {
  const bool layers = std::any_of(document.stages.begin(), document.stages.end(),
                                  [](const PlanStage& s) { return !s.first_layer.empty() || !s.first_name.empty(); });
  std::vector<FittedTable::Column> columns = {{"stage"}};
  if (layers) columns.push_back({"layers", Align::kLeft, 90, 14});
  columns.push_back({"instructions", Align::kLeft, 20});
  columns.push_back({"devices", Align::kLeft, FittedTable::kNeeded, 14});
  const std::pair<const char*, int> figures[] = {{"samples", 50},  {"in flight", 60}, {"forward", 80},
                                                 {"backward", 80}, {"transfer", 40},  {"all-reduce", 45},
                                                 {"optimizer", 30}};
  for (const auto& [title, importance] : figures) columns.push_back({title, Align::kRight, importance});
  FittedTable table(columns);
  int number = 0;
  for (const PlanStage& stage : document.stages) {
    std::vector<std::string> row = {std::to_string(++number)};
    if (layers) row.push_back(layers_text(stage));
    std::vector<std::string> spans;
    for (const pipeline::PlanPart* part : stage.own_parts()) {
      spans.push_back(span_text(part->first_instruction, part->last_instruction));
    }
    row.push_back(join(spans, ", "));
    row.push_back(devices_text(stage, problem));
    row.push_back(format_amount(stage.samples));
    row.push_back(std::to_string(stage.in_flight));
    for (const double ms :
         {stage.forward_ms, stage.backward_ms, stage.sends_ms(), stage.allreduce_ms, stage.optimizer_ms}) {
      row.push_back(or_dash(ms));
    }
    table.add_row(row);
  }
  std::vector<std::string> sharing;
  double longest = 0;
  for (std::size_t s = 0; s < document.stages.size(); ++s) {
    if (document.stages[s].shared_gradients_ms <= 0) continue;
    sharing.push_back(std::to_string(s + 1));
    longest = std::max(longest, document.stages[s].shared_gradients_ms);
  }
  std::string shared;
  for (std::size_t i = 0; i < sharing.size(); ++i) {
    shared += (i == 0 ? "  stages " : i + 1 == sharing.size() ? " and " : ", ") + sharing[i];
  }
  if (!shared.empty()) {
    shared += " exchange the gradients of variables they share, behind their all-reduce: " + format_ms(longest) +
              " once per step\n";
  }
  std::string turns;
  const auto add_turns = [&](const pipeline::PlanPart& part, std::size_t s) {
    for (const pipeline::LoopTurns& of : part.loop_turns) {
      if (of.last - of.first + 1 == of.all) continue;
      turns += (turns.empty() ? "  turns of loops: " : "; ") + printable(of.loop) + " " +
               span_text(static_cast<int>(of.first), static_cast<int>(of.last)) + " of " + std::to_string(of.all) +
               " in stage " + std::to_string(s + 1);
    }
  };
  for (std::size_t s = 0; s < document.stages.size(); ++s) {
    for (const pipeline::PlanPart* part : document.stages[s].own_parts()) add_turns(*part, s);
  }
  if (!turns.empty()) turns += "\n";
  return table.render("  ", width) +
         wrap_lines(
             turns + shared +
                 "  samples on each device, forward, backward and transfer (one way) per micro-batch; all-reduce" +
                 (document.gradient_sync == "overlap" ? " (beside the last backward)" : "") +
                 " and optimizer once per step\n",
             width);
}

std::string memory_table(const PlanDocument& document, int width) {
  struct Part {
    const char* title;
    double pipeline::MemoryParts::*bytes;
  };
  constexpr Part kParts[] = {
      {"weights", &pipeline::MemoryParts::weights},   {"gradients", &pipeline::MemoryParts::gradients},
      {"optimizer", &pipeline::MemoryParts::slots},   {"frozen", &pipeline::MemoryParts::frozen},
      {"activations", &pipeline::MemoryParts::stash}, {"workspace", &pipeline::MemoryParts::workspace},
      {"buckets", &pipeline::MemoryParts::buckets}};
  std::vector<Part> used;
  for (const Part& part : kParts) {
    if (std::any_of(document.stages.begin(), document.stages.end(),
                    [&](const PlanStage& s) { return s.memory.*part.bytes > kWorthAColumn * s.memory_bytes; })) {
      used.push_back(part);
    }
  }
  const bool same = alike(document);
  const bool variants = std::any_of(document.stages.begin(), document.stages.end(),
                                    [](const PlanStage& s) { return s.variant.zero > 0 || s.variant.recompute; });
  std::vector<FittedTable::Column> columns = {{"stage"}};
  // The largest parts stay longest where there is no room for all.
  const auto most = [&](const Part& part) {
    double bytes = 0;
    for (const PlanStage& stage : document.stages) bytes = std::max(bytes, stage.memory.*part.bytes);
    return bytes;
  };
  for (const Part& part : used) {
    const auto smaller =
        std::count_if(used.begin(), used.end(), [&](const Part& other) { return most(other) < most(part); });
    columns.push_back({part.title, Align::kRight, 50 + static_cast<int>(smaller)});
  }
  columns.push_back({same ? "of " + format_bytes(document.stages.front().capacity_bytes) : "of available"});
  if (variants) columns.push_back({"how", Align::kLeft, 90, 10});
  FittedTable table(columns);
  int number = 0;
  for (const PlanStage& stage : document.stages) {
    std::vector<std::string> row = {std::to_string(++number)};
    for (const Part& part : used)
      row.push_back(stage.memory.*part.bytes > 0 ? format_bytes(stage.memory.*part.bytes) : "-");
    row.push_back(format_bytes(stage.memory_bytes) + (same ? "" : " of " + format_bytes(stage.capacity_bytes)) + ", " +
                  format_percent(stage.memory_bytes / stage.capacity_bytes));
    if (variants) {
      std::string how = stage.variant.zero > 0 ? "ZeRO " + std::to_string(stage.variant.zero) : "";
      if (stage.variant.recompute) how += std::string(how.empty() ? "" : ", ") + "recomputes layers";
      row.push_back(how);
    }
    table.add_row(row);
  }
  return "Memory of each device\n" + table.render("  ", width);
}

namespace {

std::string other_planners(const PlanDocument& document, bool all, int width) {
  const bool simulated = document.objective == "simulated";
  const auto length = [&](const PlanAlternative& a) { return simulated ? a.simulated_step_ms : a.step_ms; };
  const double own = simulated ? document.simulated_step_ms : document.step_ms;
  std::vector<PlanAlternative> others = document.alternatives;
  std::stable_sort(others.begin(), others.end(), [&](const auto& a, const auto& b) { return length(a) < length(b); });
  if (!all && others.size() > kRunnersUp) {
    // Data parallelism is what people would do without us: always shown.
    for (std::size_t i = kRunnersUp; i < others.size(); ++i) {
      if (others[i].planner == "data-parallel") std::swap(others[i], others[kRunnersUp - 1]);
    }
    others.resize(kRunnersUp);
    std::stable_sort(others.begin(), others.end(), [&](const auto& a, const auto& b) { return length(a) < length(b); });
  }
  if (others.empty()) return "";
  FittedTable table({{"planner", Align::kLeft},
                     {"stages", Align::kRight, 30},
                     {"simulated"},
                     {"V", Align::kRight, 40},
                     {"longer", Align::kRight, 60},
                     {"planned in", Align::kRight, 20}});
  for (const PlanAlternative& other : others) {
    table.add_row({other.planner, std::to_string(other.stages), format_ms(other.simulated_step_ms),
                   format_ms(other.step_ms), change(length(other), own), format_ms(other.planning_ms)});
  }
  return std::string(all ? "All planners, each at its best" : "Other planners at their best") + "\n" +
         table.render("  ", width);
}

std::string layer_split_text(const PlanDocument& document) {
  const LayerSplit& split = *document.layer_split;
  std::string out = "Cut at whole layers ";
  if (split.cuts == document.plan.cuts && split.device_cuts == document.plan.device_cuts) {
    out += "(this very plan)\n";
  } else {
    out += "(" + plural(static_cast<long long>(split.cuts.size()) + 1, "stage") +
           "): " + format_ms(split.simulated_step_ms) + " simulated, " +
           change(split.simulated_step_ms, document.simulated_step_ms) + "; V " + format_ms(split.step_ms) + "\n";
    out += "  devices per stage: ";
    int previous = 0;
    for (std::size_t s = 0; s <= split.device_cuts.size(); ++s) {
      const int cut = s < split.device_cuts.size() ? split.device_cuts[s] : document.num_devices;
      const int devices = cut - previous, width = s < split.widths.size() ? split.widths[s] : 1;
      out +=
          (s == 0 ? "" : ", ") + std::to_string(devices) +
          (document.mixed_widths() && width > 1 ? ": " + std::to_string(devices / width) + " x " + std::to_string(width)
                                                : "");
      previous = cut;
    }
    out += "\n";
  }
  for (const auto& [stack, counts] : split.layers_per_stage) {
    if (std::accumulate(counts.begin(), counts.end(), 0) < kStackWorthSaying) continue;
    out += "  layers of " + (stack.empty() ? "the stack" : printable(stack)) + " per stage: ";
    for (std::size_t s = 0; s < counts.size(); ++s) out += (s ? ", " : "") + std::to_string(counts[s]);
    out += "\n";
  }
  if (split.split_spec.empty()) {
    const std::size_t last = split.split_before.size() + 1;
    out += last == 2 ? "  stage 2 begins with: " : "  stages 2.." + std::to_string(last) + " begin with: ";
    for (std::size_t s = 0; s < split.split_before.size(); ++s)
      out += (s ? ", " : "") + printable(split.split_before[s]);
    return out + "\n" +
           (split.no_split_spec.empty() ? "" : "  no split_spec: " + printable(split.no_split_spec) + "\n");
  }
  out += "  for torch.distributed.pipelining (names as in the model; add your module's prefix):\n    split_spec = {";
  for (std::size_t s = 0; s < split.split_spec.size(); ++s) {
    out += (s ? ",\n                  " : "") + python_literal(split.split_spec[s]) + ": SplitPoint.BEGINNING";
  }
  return out + "}\n";
}

// States the planner that found the plan and when, when the plan was proven, and the time of the whole search.
std::string planned_text(const PlanDocument& document) {
  std::string out = "Planned in   " + format_ms(document.planning_ms) + ", judged by " +
                    (document.objective == "simulated" ? "simulation" : "V") + "; found by " + document.planner;
  if (document.found_ms > 0) out += " after " + format_ms(document.found_ms);
  if (document.proven_ms > 0) out += "; V proven the least after " + format_ms(document.proven_ms);
  out += "\n";
  if (!document.online) return out;
  const pipeline::PlanLearning& online = *document.online;
  out += std::string("             ") + (online.updates > 0 ? "learned on" : "searched, with nothing to learn from,") +
         " this model in " + format_ms(1e3 * online.seconds) + ": " +
         format_count(static_cast<std::int64_t>(online.plays)) + " plays (" +
         format_count(static_cast<std::int64_t>(online.earlier_plays)) + " of earlier sessions), " +
         format_count(static_cast<std::int64_t>(online.updates)) + " updates";
  if (!online.steps.empty()) {
    const auto& [play, seconds, length_ms] = online.steps.back();
    out += "; its shortest plan on the grid, " + format_ms(length_ms) + ", at play " +
           format_count(static_cast<std::int64_t>(play)) + " after " + format_ms(1e3 * seconds);
  }
  return out + "\n";
}

std::string planner_table_text(const PlannerTable& table, int width) {
  const bool proven = table.reference_method == pipeline::kExactBound;
  FittedTable text({{"planner", Align::kLeft},
                    {"stages", Align::kRight, 30},
                    {"V"},
                    {"simulated", Align::kRight, 60},
                    {"gap", Align::kRight, 80},
                    {"took", Align::kRight, 20}});
  for (const PlannerTableRow& row : table.rows) {
    const std::string took = format_ms(row.planning_ms) + (row.cut_by_time ? " (cut)" : "");
    if (row.stages == 0) {
      text.add_row({row.planner, "no plan", "-", "-", "-", took});
      continue;
    }
    text.add_row({row.planner, std::to_string(row.stages), format_ms(row.step_ms), format_ms(row.simulated_step_ms),
                  table.reference_ms > 0 ? (row.gap < kNoGap ? "0" : format_percent(row.gap)) : "-", took});
  }
  std::string out = "Planners, each alone\n" + text.render("  ", width);
  if (table.reference_ms > 0) {
    out += wrap_lines("  gap: V over " + format_ms(table.reference_ms) + ", " +
                          (proven ? "the least V there is, wherever it is cut (proven)"
                                  : "a lower bound on it (" + table.reference_method + "); the true gaps are smaller") +
                          "\n",
                      width);
  }
  return out;
}

std::string instruction_split_text(const PlanDocument& document) {
  std::string out = "Cut after instructions";
  const std::vector<const pipeline::PlanPart*> parts = document.parts();
  for (std::size_t p = 0; p + 1 < parts.size(); ++p) {
    out += (p ? ", " : " ") + std::to_string(parts[p]->last_instruction) +
           (parts[p]->last_name.empty() ? "" : " (" + printable(parts[p]->last_name) + ")");
  }
  return out + "\n";
}

// "16, 8 or 4".
std::string alternatives_text(const std::vector<int>& counts) {
  std::string out;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    out += (i == 0 ? "" : i + 1 < counts.size() ? ", " : " or ") + format_count(counts[i]);
  }
  return out;
}

// Ascending.
std::vector<int> widths_used(const PlanDocument& document) {
  std::vector<int> widths = document.stage_widths();
  std::sort(widths.begin(), widths.end());
  widths.erase(std::unique(widths.begin(), widths.end()), widths.end());
  return widths;
}

std::string title_text(const PlanDocument& document, const ReportOptions& options) {
  const int stages = document.plan.num_stages();
  std::string out = printable((document.model.empty() ? "model" : document.model) + " on " + document.cluster) + ": ";
  out += stages == 1 ? "data parallel (1 stage)" : plural(stages, "pipeline stage");
  if (document.stages.front().width > 1) {
    if (stages == 1) out.replace(out.rfind("data parallel"), std::string::npos, "1 stage");
    if (!document.mixed_widths()) {
      out += ", replicas of " + std::to_string(document.stages.front().width) + " devices";
    }
  }
  if (document.mixed_widths()) out += ", replicas of " + alternatives_text(widths_used(document)) + " devices";
  out += " on " + plural(document.num_devices, "device");
  if (options.cluster_devices > document.num_devices) {
    out += " of " + std::to_string(options.cluster_devices);
  }
  out += ", " + plural(document.micro_batches, "micro-batch") + " of " +
         plural(std::llround(document.micro_batch_samples), "sample") + " per step" +
         usual_batch_text(document, options) + ", schedule " + to_string(document.plan.schedule) + "\n";
  if (!options.plans_for.empty()) out += "For " + options.plans_for + "\n";
  const bool whole = document.replicas == "whole";
  if (whole && !options.made_here && options.model_batch > 0 && options.model_batch != document.micro_batch_samples) {
    out += "Micro-batch  " + plural(std::llround(document.micro_batch_samples), "sample") + "; the model has " +
           format_amount(options.model_batch) + ": export it with a batch of " +
           format_amount(document.micro_batch_samples) + " to run this plan\n";
  }
  return out;
}

// The devices that the bounds cover.
std::string bounded_devices(const PlanDocument& document) {
  if (document.bound_all_devices) return "any of the cluster's devices";
  const std::vector<int>&whole = document.bound_devices, &in_part = document.bound_devices_in_part;
  std::string out =
      whole.empty() ? "" : alternatives_text(whole) + (whole == std::vector<int>{1} ? " device" : " devices");
  if (in_part.empty()) return out;
  return out + (whole.empty() ? "" : ", nor any looked at on ") + alternatives_text(in_part) +
         (whole.empty() ? " devices, of the splits of the batch that were looked at," : ",");
}

// The plans that the bounds cover, in words.
std::string no_plan(const PlanDocument& document, pipeline::BoundedWidths widths) {
  const char* kinds[] = {"no plan", "no plan of one width", "no plan, whatever the widths of its stages"};
  std::string within;
  for (const std::string& option : document.bound_within) {
    within += (within.empty() ? ", within " : ", ") + printable(option);
  }
  if (of_written_attention(document)) within += std::string(", ") + kWrittenAttention;
  if (widths == pipeline::BoundedWidths::kAny || !within.empty()) within += ",";
  return std::string(": ") + kinds[static_cast<int>(widths)] + within + " on " + bounded_devices(document);
}

// The bounds on plans of other widths than those above.
std::string other_bounds_text(const PlanDocument& document) {
  const pipeline::PlanBounds& other = document.other_bounds;
  if (document.bounded == pipeline::BoundedWidths::kAll || other.value_ms <= 0) return "";
  const bool mixed = document.bounded == pipeline::BoundedWidths::kAny;
  const std::string none = no_plan(document, mixed ? pipeline::BoundedWidths::kOne : pipeline::BoundedWidths::kAny);
  if (!mixed) {
    return "             " + format_ms(other.value_ms) + none + " has a smaller V or is simulated shorter (" +
           other.method + ")\n";
  }
  const auto beaten = [](double own_ms, double bound_ms) {
    return own_ms < bound_ms ? "; this one is " + format_percent(1 - own_ms / bound_ms) + " below that" : "";
  };
  std::string out = (document.lower_bound_ms > 0 ? "             " : "Of one width ") + format_ms(other.value_ms) +
                    none + " has a smaller V (" + other.method + ")" + beaten(document.step_ms, other.value_ms) + "\n";
  if (other.simulated_ms <= 0) return out;
  return out + "             " + format_ms(other.simulated_ms) + none + " is simulated shorter" +
         beaten(document.simulated_step_ms, other.simulated_ms) + "\n";
}

// The flow of samples, and the utilization of the devices.
std::string utilization_text(const PlanDocument& document, const ReportOptions& options) {
  const pipeline::PlanUtilization& use = document.utilization;
  std::string out = "             " + format_number(use.samples_per_s) + " samples/s" +
                    (use.tokens_per_s > 0 ? ", " + format_count(std::llround(use.tokens_per_s)) + " tokens/s" : "") +
                    " in steps of " + format_count(std::llround(document.batch())) + " samples\n";
  if (use.model_tflops <= 0) return out;
  out += "             " + format_number(use.model_tflops) + " TFLOP/s of each device";
  if (use.mfu > 0) out += ": MFU " + format_percent(use.mfu) + ", HFU " + format_percent(use.hfu);
  if (options.masked_attentions > 0) {
    out += " (of " + plural(static_cast<int>(options.masked_attentions), "attention") +
           " what causal masks and windows hide is not counted)";
  }
  return out + "\n";
}

}  // namespace

std::string bounds_text(const PlanDocument& document) {
  std::string out;
  if (document.lower_bound_ms > 0 && !is_alternating(document.plan.schedule)) {
    out += "Lower bound  " + format_ms(document.lower_bound_ms) + no_plan(document, document.bounded) +
           " is simulated shorter, wherever it is cut and in whatever order (" + document.lower_bound_method +
           "); this one is at most " + format_percent(document.simulated_step_ms / document.lower_bound_ms - 1) +
           " longer\n";
  } else if (document.lower_bound_ms > 0) {
    const std::string none = no_plan(document, document.bounded);
    const bool both = document.lower_bound_ms == document.simulated_bound_ms;
    out += "Lower bound  " + format_ms(document.lower_bound_ms) + none + " has a smaller V" +
           (both ? " or is simulated shorter" : "") + ", wherever it is cut (" + document.lower_bound_method +
           "); V of this one is " +
           (document.gap < 5e-5 ? "optimal" : "at most " + format_percent(document.gap) + " above the best");
    if (document.simulated_bound_ms > 0) {
      out += (both ? ", and it"
                   : "\n             " + format_ms(document.simulated_bound_ms) + none +
                         " is simulated shorter, whatever it keeps in flight; this one") +
             std::string(" is at most ") +
             format_percent(document.simulated_step_ms / document.simulated_bound_ms - 1) +
             (both ? " longer simulated" : " longer");
    }
    out += "\n";
  } else if (document.planner != "given") {
    out += "Lower bound  none was computed in the time\n";
  }
  out += other_bounds_text(document);
  if (document.order_bound_ms > 0) {
    out += "             " + format_ms(document.order_bound_ms) +
           ": no order of these parts on these devices, in their memory, is simulated shorter; this one is at most " +
           format_percent(document.simulated_step_ms / document.order_bound_ms - 1) + " longer\n";
  }
  for (const PlanDocument::Relaxed& one : document.relaxed) {
    out += "Without      the rule that " + one.rule + ", a step of " + format_ms(one.simulated_ms) + " was found (" +
           change(one.simulated_ms, document.simulated_step_ms) + "; " + one.options + ")\n";
  }
  return out;
}

namespace {

// The length of a step, and how good it is.
std::string step_text(const PlanDocument& document, const ReportOptions& options) {
  std::string out = "Step time    " + format_ms(document.simulated_step_ms) + " simulated event by event" +
                    (is_alternating(document.plan.schedule) ? "; V (closed form) " + format_ms(document.step_ms) : "") +
                    "\n";
  if (options.model_batch > 0 && document.simulated_step_ms > 0) out += utilization_text(document, options);
  out += bounds_text(document);
  if (options.free_plan_ms > 0) {
    const std::string changed = change(options.free_plan_ms, document.simulated_step_ms);
    out += "Equal shares stages of different sizes come to " + format_ms(options.free_plan_ms) + " simulated (" +
           changed + ")\n";
  }
  if (document.replicas == "fractional") {
    out += "Replicas     fractional: g devices take 1/g of a micro-batch, which only runs where g divides it\n";
  }
  return out;
}

}  // namespace

std::string sensitivity_text(const std::vector<pipeline::PlanSensitivity>& rows, int width) {
  constexpr double kStays = 0.01;
  FittedTable table({{"if", Align::kLeft, FittedTable::kNeeded, 16},
                     {"this plan"},
                     {"best plan then", Align::kRight, 60},
                     {"lost", Align::kRight, 80},
                     {"which is", Align::kLeft, 50, 16}});
  std::size_t stays = 0;
  double worst = 0;
  for (const pipeline::PlanSensitivity& row : rows) {
    const bool fits = row.simulated_step_ms > 0;
    stays += fits && row.loss() <= kStays ? 1 : 0;
    worst = std::max(worst, row.loss());
    table.add_row({row.changed, fits ? format_ms(row.simulated_step_ms) : "does not fit", or_dash(row.best_ms),
                   fits ? format_percent(row.loss()) : "-", row.best.empty() ? "this one" : row.best});
  }
  return wrap_lines("If the numbers are wrong, each alone by its expected error\n", width) + table.render("  ", width) +
         wrap_lines(
             "  the plan stays within " + format_percent(kStays) + " of the best of one width in " +
                 std::to_string(stays) + " of " + std::to_string(rows.size()) + " cases; it loses " +
                 format_percent(worst) + " at most" +
                 (std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.simulated_step_ms == 0; })
                      ? ", where it fits\n"
                      : "\n"),
             width);
}

namespace {

// The best plan found of every width.
std::string widths_text(const PlanDocument& document, int width) {
  if (document.widths.size() < 2) return "";
  const bool simulated = document.objective == "simulated";
  const auto length = [&](const PlanWidth& w) { return simulated ? w.simulated_step_ms : w.step_ms; };
  const double own = simulated ? document.simulated_step_ms : document.step_ms;
  FittedTable table({{"devices of a replica"},
                     {"stages", Align::kRight, 50},
                     {"simulated"},
                     {"V", Align::kRight, 30},
                     {"longer", Align::kLeft, 60}});
  for (const PlanWidth& other : document.widths) {
    const bool chosen = !document.mixed_widths() && other.width == document.stages.front().width;
    table.add_row({std::to_string(other.width), std::to_string(other.stages), format_ms(other.simulated_step_ms),
                   format_ms(other.step_ms), chosen ? "this plan" : change(length(other), own)});
  }
  return wrap_lines(
             "Widths that were worth planning for: the best plan found of each, which got a look; all of the "
             "effort went to the best width\n",
             width) +
         table.render("  ", width);
}

// "4", or "1-4" of stages of different widths.
std::string corner_width(const pipeline::PlanCorner& corner) {
  const std::string most = std::to_string(corner.width);
  if (corner.stage_widths.empty()) return most;
  const int least = *std::min_element(corner.stage_widths.begin(), corner.stage_widths.end());
  return least == corner.width ? most : std::to_string(least) + "-" + most;
}

// The best of a kind is the plan itself.
bool is_same_plan(const pipeline::PlanCorner& a, const pipeline::PlanCorner& b) {
  return a.stages == b.stages && a.width == b.width && a.devices == b.devices && a.micro_batches == b.micro_batches &&
         a.chunk_cuts == b.chunk_cuts && a.memory_bytes == b.memory_bytes &&
         std::fabs(a.simulated_step_ms / b.simulated_step_ms - 1) < 1e-9;
}

std::string corners_text(const std::vector<pipeline::PlanCorner>& corners, int width) {
  if (corners.empty()) return "";
  constexpr std::size_t kReasonWidth = 90;
  const auto own = std::find_if(corners.begin(), corners.end(), [](const auto& c) { return c.name == "this plan"; });
  FittedTable table({{"kind of plan", Align::kLeft, FittedTable::kNeeded, 18},
                     {"stages x width", Align::kRight, 60},
                     {"devices", Align::kRight, 40},
                     {"micro-batches", Align::kRight, 35},
                     {"step"},
                     {"longer", Align::kLeft, 80},
                     {"samples/s", Align::kRight, 30},
                     {"MFU", Align::kRight, 45},
                     {"memory", Align::kRight, 50},
                     {"what limits it", Align::kLeft, 70, 24}});
  for (const pipeline::PlanCorner& corner : corners) {
    const std::string name = corner.name + (corner.layout.empty() ? "" : ": " + corner.layout);
    if (!corner.fits) {
      table.add_row({name, "-", "-", "-", "-", "-", "-", "-", "-", shorten(printable(corner.why), kReasonWidth)});
      continue;
    }
    table.add_row({name, std::to_string(corner.stages) + " x " + corner_width(corner), std::to_string(corner.devices),
                   std::to_string(corner.micro_batches) + " of " + format_amount(corner.micro_batch_samples),
                   format_ms(corner.simulated_step_ms),
                   corner.name == "this plan"   ? ""
                   : is_same_plan(corner, *own) ? "this plan"
                                                : change(corner.simulated_step_ms, own->simulated_step_ms),
                   format_number(corner.utilization.samples_per_s), mfu_text(corner.utilization),
                   format_bytes(corner.memory_bytes), shorten(printable(corner.why), kReasonWidth)});
  }
  std::string text = wrap_lines("The best of every kind of plan (simulated)\n", width) + table.render("  ", width);
  std::string shorter;
  for (const pipeline::PlanCorner& corner : corners) {
    if (corner.chunk_cuts.empty() || corner.simulated_step_ms >= own->simulated_step_ms) continue;
    shorter += "  " + corner.name + ": cut after instructions";
    for (const int cut : corner.chunk_cuts)
      shorter += (cut == corner.chunk_cuts.front() ? " " : ", ") + std::to_string(cut);
    if (!corner.stage_devices.empty()) {
      shorter += "; stages on";
      for (std::size_t s = 0; s < corner.stage_devices.size(); ++s) {
        shorter += (s == 0 ? " " : ", ") + std::to_string(corner.stage_devices[s]);
      }
      shorter += " devices\n";
      continue;
    }
    const bool stages = corner.chunk_cuts.size() + 1 == static_cast<std::size_t>(corner.stages);
    shorter +=
        stages ? "; each stage on " : "; part p, from 0, on group p mod " + std::to_string(corner.stages) + " of ";
    shorter += std::to_string(corner.devices / corner.stages) + " devices\n";
  }
  return text + wrap_lines(shorter, width);
}

}  // namespace

std::string batch_rounds_text(const ReportOptions& options) {
  if (options.batch_rounds == 1) return "";
  return ", a multiple of " + std::to_string(options.batch_rounds) + " for pipelines of " + options.framework;
}

std::string usual_batch_text(const PlanDocument& document, const ReportOptions& options) {
  if (options.batch_given || options.made_here || options.model_batch <= 0) return "";
  const double times = document.batch() / options.model_batch;
  const std::string rounds = batch_rounds_text(options) + ")";
  if (times == 1) return " (no --batch: the model's own" + rounds;
  if (times != std::round(times)) return " (no --batch" + rounds;
  return " (no --batch: " + format_amount(times) + " times the model's " + format_amount(options.model_batch) + rounds;
}

std::string asked_tables_text(const PlanDocument& document, const ReportOptions& options) {
  std::string out;
  if (document.frontier) out += "\n" + frontier_text(*document.frontier, summary_width());
  if (options.kinds_asked && !document.corners.empty()) out += "\n" + corners_text(document.corners, options.width);
  if (document.planner_table) {
    out += "\n" + planner_table_text(*document.planner_table, options.width);
  } else if (options.all_planners) {
    out += "\n" + other_planners(document, true, options.width);
  }
  if (!document.sensitivity.empty()) out += "\n" + sensitivity_text(document.sensitivity, options.width);
  return out;
}

std::string limits_text(const PlanDocument& document) {
  std::string out;
  for (std::size_t i = 0; i < document.limits.size(); ++i) {
    // The first is what to change; others only when they matter.
    if (i > 0 && document.limits[i].share < kLimitWorthSaying) continue;
    out += (i ? "             " : "Limited by   ") + printable(document.limits[i].text) + "\n";
  }
  return out;
}

std::string estimates_text(const PlanDocument& document) {
  std::string out;
  for (std::size_t i = 0; i < document.estimates.size(); ++i) {
    out += (i == 0 ? "Estimates    " : "             ") + printable(document.estimates[i]) + "\n";
  }
  return out;
}

std::string inside_replicas_text(const PlanDocument& document) {
  std::string out;
  for (std::size_t i = 0; i < document.inside_replicas.size(); ++i) {
    out += (i == 0 ? "Replicas     " : "             ") + printable(document.inside_replicas[i]) + "\n";
  }
  return out;
}

std::string compared_text(const PlanDocument& document, const ReportOptions& options) {
  std::string out;
  const auto add = [&](const std::string& part) {
    if (!part.empty()) out += (out.empty() ? "" : "\n") + part;
  };
  add(widths_text(document, options.width));
  add(corners_text(document.corners, options.width));
  add(document.planner_table ? planner_table_text(*document.planner_table, options.width)
                             : other_planners(document, options.all_planners, options.width));
  return out;
}

std::string cuts_text(const PlanDocument& document, int width) {
  if (document.layer_split) {
    // Code to copy is not wrapped.
    const std::string text = layer_split_text(document);
    const std::size_t code = std::min(text.find("    split_spec = {"), text.size());
    return wrap_lines(text.substr(0, code), width) + text.substr(code);
  }
  return document.plan.num_stages() > 1 ? wrap_lines(instruction_split_text(document), width) : "";
}

std::string report_text(const PlanDocument& document, const Problem& problem, const ReportOptions& options) {
  const int width = options.width;
  std::string out = wrap_lines(title_text(document, options), width) + "\n";
  out += stage_table(document, problem, width) + "\n" + memory_table(document, width) + "\n";
  std::string sentences = step_text(document, options);
  if (document.planner != "given") sentences += planned_text(document);
  sentences += limits_text(document) + estimates_text(document) + inside_replicas_text(document);
  out += wrap_lines(sentences, width);
  for (const std::string& part :
       {document.frontier ? frontier_text(*document.frontier, width) : "", compared_text(document, options),
        document.sensitivity.empty() ? "" : sensitivity_text(document.sensitivity, width),
        cuts_text(document, width)}) {
    if (!part.empty()) out += "\n" + part;
  }
  return out;
}

}  // namespace automap::infer
