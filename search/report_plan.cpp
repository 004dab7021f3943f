// opp and adp: the plan.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "common/base/fitted_table.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "plan/partition/names.h"
#include "plan/partition/nothing_split.h"
#include "search/report.h"
#include "search/report_parts.h"
#include "search/report_tables.h"

namespace automap::search {

using namespace partition;
using namespace internal;

namespace {

std::string things(const PartitionPlan& plan, long long count) {
  return plan.kind == "data" ? plural(count, "data input") : plural(count, "variable");
}

// Signed change against this plan: "+1.2 %", "same".
std::string change(double other, double own) {
  if (own <= 0) return "-";
  const double ratio = other / own - 1;
  if (std::fabs(ratio) < 5e-5) return "same";
  return (ratio > 0 ? "+" : "") + format_percent(ratio);
}

std::string value_text(const PartitionPlan& plan, double value) {
  if (plan.objective == "count") return format_count(std::llround(value));
  return value > 0 ? format_ms(value) : value < 0 ? "-" + format_ms(-value) : "0";
}

std::string algorithms_table(const Planned& planned) {
  if (planned.answers.empty()) return "";
  const PartitionPlan& plan = planned.plan;
  const bool count = plan.objective == "count";
  FittedTable table({{"algorithm", Align::kLeft},
                     {count ? "splits" : "saves"},
                     {"at most"},
                     {"took"},
                     {"", Align::kLeft, FittedTable::kNeeded, kLeastTextWidth, kTextWidth}});
  for (const PartitionAnswer& answer : planned.answers) {
    std::string says = answer.proven          ? "proven best"
                       : answer.cut_by_time   ? "cut by the budget"
                       : answer.cut_by_effort ? "ended with its effort"
                                              : "";
    for (const auto& [name, value] : answer.statistics) {
      // Values and seconds of its parts are for --json and measurements.
      if (value == 0 || name.find("seconds") != std::string::npos || name.find("value") != std::string::npos) continue;
      std::string words = name;
      std::replace(words.begin(), words.end(), '_', ' ');
      says += (says.empty() ? "" : "; ") + words + " " +
              (value == std::floor(value) ? format_count(std::llround(value)) : format_number(value));
    }
    table.add_row({answer.algorithm, value_text(plan, answer.score.value),
                   std::isfinite(answer.bound) ? value_text(plan, answer.bound) : "-", format_ms(answer.seconds * 1e3),
                   says});
  }
  return "Algorithms (" +
         std::string(count ? "most " + things(plan, 2).substr(2) + " split" : "most time saved per step") + ")\n" +
         table.render("  ") + "\n";
}

std::string comparison_table(const PartitionPlan& plan) {
  FittedTable table({{"instead", Align::kLeft, FittedTable::kNeeded, kLeastTextWidth},
                     {"splits", Align::kRight, 40},
                     {"longer"},
                     {"more memory", Align::kRight, 60},
                     {"collectives", Align::kRight, 50}});
  static const std::pair<const char*, const char*> kSays[] = {
      {"replicate", "nothing split: every device does everything"},
      {"data parallel", "data parallel: the batch split (automap-search adp)"},
      {"operators", "variables split instead (automap-search opp)"},
      {"no group cut", "no linkage group cut (--reshard off)"},
      {"groups cut", "linkage groups cut, which is shorter added up"},
      {"objective count", "as many as possible (--objective count)"},
      {"objective time", "the least step time (--objective time)"}};
  for (const PartitionAlternative& other : plan.alternatives) {
    for (const auto& [name, says] : kSays) {
      if (other.planner != name) continue;
      const bool other_tensors = other.planner == "data parallel" || other.planner == "operators";
      table.add_row({says, other_tensors ? "-" : std::to_string(other.partitioned),
                     change(other.expected_ms(), plan.expected_ms()), change(other.memory_bytes, plan.memory_bytes),
                     other.collective_bytes > 0 ? format_bytes(other.collective_bytes) : "none"});
    }
  }
  if (table.empty()) return "";
  return "Compared, as the search judges them\n" + table.render("  ") + "\n";
}

constexpr std::size_t kMostReshards = 12, kMostKeptPatterns = 12;

// The module's own shardings that are kept, alike ones in one line.
std::string kept_table(const ShardingModel& model, const KeptShardings& kept) {
  if (kept.values.empty()) return "";
  std::vector<std::pair<std::string, int>> order;
  std::map<std::string, std::size_t> places;
  for (const KeptValue& value : kept.values) {
    if (value.dim < 0 && !value.left.empty()) continue;
    const ModelInput* input = input_at(model, value.node);
    const std::string scope = scope_of(model, value.node);
    const std::string name = input != nullptr
                                 ? sharding::path_of(input->name)
                                 : scope + (scope.empty() ? "" : " ") + instruction_name(model, value.node);
    const std::string line =
        pattern_of(name) + ": " + (value.dim < 0 ? "whole" : "dimension " + std::to_string(value.dim));
    const auto [place, fresh] = places.emplace(line, order.size());
    if (fresh) order.emplace_back(line, 0);
    ++order[place->second].second;
  }
  std::string out = "Kept as the module says, over " + kept.axis + "\n";
  for (std::size_t i = 0; i < std::min(order.size(), kMostKeptPatterns); ++i) {
    const auto& [line, times] = order[i];
    out += "  " + printable(line) + (times > 1 ? " (" + std::to_string(times) + "x)" : "") + "\n";
  }
  if (order.size() > kMostKeptPatterns) {
    out += "  and " + plural(static_cast<long long>(order.size() - kMostKeptPatterns), "more line") + "\n";
  }
  return out + "\n";
}

std::string reshards_table(const PartitionPlan& plan) {
  if (plan.kept.empty()) return "";
  if (plan.reshards.empty()) return "Reshards that this forces: none\n\n";
  FittedTable table({{"reshard", Align::kLeft},
                     {"of", Align::kLeft, FittedTable::kNeeded, kLeastTextWidth},
                     {"bytes", Align::kRight, 60},
                     {"times", Align::kRight, 50},
                     {"per step"}});
  double rest_ms = 0, rest_bytes = 0;
  for (std::size_t i = 0; i < plan.reshards.size(); ++i) {
    const PlanReshard& reshard = plan.reshards[i];
    if (i < kMostReshards) {
      table.add_row({reshard.kind, reshard.instruction, format_bytes(reshard.bytes), format_number(reshard.times),
                     format_ms(reshard.ms)});
    } else {
      rest_ms += reshard.ms;
      rest_bytes += reshard.bytes * reshard.times;
    }
  }
  std::string out = "Reshards that this forces\n" + table.render("  ");
  if (plan.reshards.size() > kMostReshards) {
    out += "  and " + format_count(static_cast<long long>(plan.reshards.size() - kMostReshards)) + " more, " +
           format_bytes(rest_bytes) + " and " + format_ms(rest_ms) + " per step\n";
  }
  return out + "\n";
}

double variable_bytes(const ShardingModel& model) {
  double bytes = 0;
  for (const std::int32_t index : model.variables()) {
    bytes += static_cast<double>(model.flow().shape(model.inputs()[static_cast<std::size_t>(index)].node).bytes);
  }
  return bytes;
}

}  // namespace

std::string decision_line(const ShardingModel& model, const Propagation& decided, const PartitionPlan& plan,
                          const sharding::TensorShares* shares) {
  // Counted over the whole module: a plan of few keys leads to more than it decides.
  const auto split_of = [&](const std::vector<std::int32_t>& inputs) {
    return std::count_if(inputs.begin(), inputs.end(), [&](std::int32_t index) {
      return decided.state(model.inputs()[static_cast<std::size_t>(index)].node).kind == TensorStateKind::kSplit;
    });
  };
  const auto part = [&](const std::vector<std::int32_t>& inputs, const std::string& what) {
    return format_count(split_of(inputs)) + " of " + plural(static_cast<long long>(inputs.size()), what);
  };
  const bool data = plan.kind == "data";
  const bool variables = !data || split_of(model.variables()) > 0;
  std::string out = variables ? part(model.variables(), "variable") : "";
  if (data || split_of(model.data()) > 0) out += (variables ? " and " : "") + part(model.data(), "data input");
  out += " split over " + plural(plan.shards, "device") + "; ";
  return out + collectives_text(model, decided, shares);
}

std::string not_counted_text(const CountedCost& counted) {
  return "time and memory are the estimate of the search, and not as automap-infer counts a layout" +
         (counted.why_none.empty() ? std::string() : ": " + printable(counted.why_none));
}

std::string plan_report(const ShardingModel& model, const Planned& planned) {
  const PartitionPlan& plan = planned.plan;
  const bool count = plan.objective == "count";
  std::string out = (plan.model.empty() ? "model" : printable(plan.model)) + " over " + plural(plan.shards, "device") +
                    " of " + printable(plan.cluster) + ": " + format_count(plan.partitioned) + " of " +
                    things(plan, static_cast<long long>(plan.decided.size())) + " split\n\n";
  if (!planned.nothing_split.empty()) {
    const bool can = planned.nothing_split == kNothingFaster;
    out += fact("None split", planned.nothing_split + (can ? "; --objective count splits what can be split" : ""));
  }
  const bool counted = plan.counted.cost.has_value();
  // If the kept shardings split nothing, automap-infer knows no such replicas.
  const bool whole = !plan.kept.empty() && plan.partitioned == 0;
  out += counted_text(plan.counted,
                      whole ? std::nullopt : std::optional<std::string>(plan.kept.empty() ? "" : " --keep-shardings"));
  out += fact("Judged by",
              judged_text(planned.estimate, counted) + format_ms(plan.compute_ms) + " compute, " +
                  format_ms(plan.collective_ms) + " collectives at " + format_number(planned.links.gbytes_per_s) +
                  " GB/s " + (planned.links.inside_server ? "inside one server" : "between servers") +
                  hidden_text(planned.estimate) + "; " + format_ms(plan.replicated_step_ms) + " with nothing split");
  if (!counted) {
    out += fact("", format_bytes(plan.memory_bytes) + " per device of " + format_bytes(plan.capacity_bytes) +
                        ", against " + format_bytes(planned.unsplit_memory.total) + "; " + memory_text(planned.memory));
  }
  out += fact("Collectives", collectives_text(model, planned.decided));
  if (plan.kind == "data" && plan.all_reduces >= static_cast<int>(model.variables().size()) && model.step().training) {
    out += fact("", "gradients: one all-reduce per variable (" +
                        plural(static_cast<long long>(model.variables().size()), "variable") + ", " +
                        format_bytes(variable_bytes(model)) +
                        (plan.all_reduce_bytes < 0.99 * variable_bytes(model) ? "; reduced in narrower types)" : ")"));
  }
  if (!planned.answers.empty()) {
    std::string best;
    const std::string proven = std::string("proven: of all choices ") +
                               (plan.kind == "data"    ? "of data inputs"
                                : planned.weights_only ? "that divide weights"
                                                       : "of variables") +
                               (planned.kept.values.empty() ? "" : " beside what is kept"),
                      none = " none is estimated faster (over these devices, sums apart";
    if (plan.proven) {
      best = count                       ? "proven: no decision splits more without a conflict"
             : plan.planner == "reshard" ? proven + " and cuts" + none + "; each collective with a latency of its own)"
             : planned.cut_added_up
                 ? "proven without cuts of linkage groups, which save less than 1 % of the overlapped step"
             : plan.sums_combined
                 ? "proven without cuts: no choice of groups is faster, each with its own sums combined"
             : planned.nearly_cut ? "proven without cuts of linkage groups, which would save less than 1 %"
                                  : proven + none + ")";
    } else if (std::isfinite(plan.bound)) {
      // Groups that no weight decides must not be split, and the bound does not know that.
      const bool kept_whole = plan.planner == "reshard" && !plan.sums_combined && !planned.memory_decided &&
                              !plan.cut_by_time && !planned.answers.front().cut_by_effort;
      best = count ? "at most " + format_count(std::llround(std::floor(plan.bound + 1e-9))) + " can be split"
                   : "no decision saves more than " + format_ms(plan.bound) + " per step; this one saves " +
                         format_ms(plan.value) +
                         (kept_whole ? "; it keeps whole what no variable decides, which the bound does not know" : "");
    } else {
      best = "no bound was computed; --algorithm auto or enumerate gives one";
    }
    if (plan.overlapped_ms && !count) best = "of the step added up: " + best;
    out += fact("How good", best);
    if (plan.overlapped_bound_ms && !count) out += fact("", least_overlapped_text(*plan.overlapped_bound_ms));
  }
  out += fact("Planned in", format_ms(plan.planning_ms) + " from file to plan; objective " + plan.objective +
                                ", found by " + plan.planner);
  out += "\n" + kept_table(model, planned.kept) + reshards_table(plan) + split_table(planned) + begun_table(model) +
         moved_tables(model, plan) + whole_table(model, planned) + algorithms_table(planned) + comparison_table(plan);
  while (out.size() > 1 && out[out.size() - 2] == '\n') out.pop_back();
  return out;
}

}  // namespace automap::search
