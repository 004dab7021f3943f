// opp and adp: the plan.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "common/base/printable.h"
#include "plan/partition/names.h"
#include "search/report.h"
#include "search/report_parts.h"

namespace automap::search {

using namespace partition;
using namespace internal;

namespace {

std::string fact(const std::string& name, const std::string& value) {
  std::string out;
  for (const std::string& line : wrapped(value, 2 * kTextWidth - 40)) {
    const std::string title = out.empty() ? name : "";
    out += title + std::string(title.size() < 13 ? 13 - title.size() : 1, ' ') + line + "\n";
  }
  return out;
}

std::string things(const PartitionPlan& plan, long long count) {
  return plan.kind == "data" ? plural(count, "data input") : plural(count, "variable");
}

std::string bytes_per_step(double bytes) {
  return format_bytes(bytes) + " per step";
}

// What the devices exchange: as XLA does it, which is what times are made of, and how much less would do.
std::string collectives_text(const ShardingModel& model, const Propagation& decided) {
  using sharding::CollectiveKind;
  const std::vector<Collective> at_once = find_collectives(model, decided, Placement::kAtOnce);
  const std::vector<Collective> delayed = find_collectives(model, decided, Placement::kDelayed);
  const sharding::CollectiveTotals sums = total(at_once, CollectiveKind::kAllReduce);
  const sharding::CollectiveTotals least = total(delayed, CollectiveKind::kAllReduce);
  const sharding::CollectiveTotals gathers = total(at_once, CollectiveKind::kAllGather);
  if (sums.count == 0 && gathers.count == 0) return "none: no device needs anything of another";
  std::string out = sums.count == 0
                        ? "no all-reduces"
                        : plural(sums.count, "all-reduce") + " of partial sums, " + bytes_per_step(sums.bytes);
  if (least.count < sums.count) {
    out += " (" + format_count(least.count) + " of " + format_bytes(least.bytes) +
           " if they are carried through linear instructions)";
  }
  return out + (gathers.count > 0 ? "; " + plural(gathers.count, "all-gather") + ", " + bytes_per_step(gathers.bytes)
                                  : "; nothing is gathered");
}

// Signed change against this plan: "+1.2 %", "same".
std::string change(double other, double own) {
  if (own <= 0) return "-";
  const double ratio = other / own - 1;
  if (std::fabs(ratio) < 5e-5) return "same";
  return (ratio > 0 ? "+" : "") + format_percent(ratio);
}

std::string split_table(const Planned& planned) {
  TextTable table(
      {{"groups"}, {"tensors"}, {"compute"}, {"collectives"}, {"memory"}, {"dimension split", Align::kLeft}});
  std::size_t rows = 0, hidden = 0;
  for (const SplitGroups& split : planned.split) {
    if (rows++ >= kMostRows) {
      hidden += split.groups.size();
      continue;
    }
    const PartitionCost::GroupEffect& e = split.effect;
    add_wrapped_row(&table,
                    {std::to_string(split.groups.size()) + "x", std::to_string(split.members.size()),
                     e.saved_ms > 0 ? "-" + format_ms(e.saved_ms) : "-",
                     e.collectives > 0 ? std::to_string(e.collectives) + ", " + format_ms(e.collective_ms) : "none",
                     e.saved_bytes > 0 ? "-" + format_bytes(e.saved_bytes) : "-",
                     members_text(split.members, static_cast<int>(split.groups.size()))});
  }
  if (table.empty()) return "";
  std::string out = "What is split (a linkage group is split as a whole or not at all)\n" + table.render("  ");
  if (hidden > 0) out += "  and " + plural(static_cast<long long>(hidden), "more group") + "; --json has all\n";
  return out + "\n";
}

std::string whole_table(const ShardingModel& model, const Planned& planned) {
  TextTable table({{"tensors"}, {"kept whole", Align::kLeft}});
  std::size_t rows = 0, hidden = 0;
  for (const WholeTensors& whole : planned.whole) {
    if (rows++ >= kMostRows) {
      hidden += whole.inputs.size();
      continue;
    }
    std::vector<std::pair<std::string, int>> members;
    for (const std::int32_t index : whole.inputs) {
      members.emplace_back(sharding::path_of(model.inputs()[static_cast<std::size_t>(index)].name), -1);
    }
    // Names first, the reason on lines of its own.
    std::vector<std::string> names = wrapped(members_text(members), kTextWidth);
    if (names.size() > 3) {
      names.resize(3);
      names.back() += " …";
    }
    bool first = true;
    for (const std::string& line : names) {
      table.add_row({first ? std::to_string(whole.inputs.size()) : "", line});
      first = false;
    }
    for (const std::string& line : wrapped(whole.reason, kTextWidth)) table.add_row({"", "  " + line});
  }
  if (table.empty()) return "";
  std::string out = table.render("  ");
  if (hidden > 0) out += "  and " + plural(static_cast<long long>(hidden), "more tensor") + "; --json has all\n";
  return out + "\n";
}

// "params/h/3/attn/kernel" of an input, "h/3/attn reshape" of what an instruction makes.
std::string place_of(const ShardingModel& model, sharding::NodeId node) {
  for (const sharding::ModelInput& input : model.inputs()) {
    if (input.node == node) return sharding::path_of(input.name);
  }
  const std::string scope = scope_of(model, node);
  const auto instruction = model.flow().node(model.flow().producer(node)).instruction;
  return scope + (scope.empty() ? "" : " ") +
         std::string(graph::opcode_name(model.graph().instruction(instruction).opcode));
}

// All-gathers that are alike up to the numbers in names, a line each. What is made whole and kept in parts moves
// nothing.
std::string gather_table(const ShardingModel& model, const PartitionPlan& plan) {
  struct Row {
    std::set<sharding::NodeId> tensors;
    std::vector<std::string> readers;
    double bytes = 0;  // per step
  };
  std::set<std::pair<sharding::NodeId, int>> made_whole;
  for (const PlanGather& gather : plan.gathers) {
    if (gather.tensor_node >= 0 && model.flow().producer(gather.tensor_node) == gather.node) {
      made_whole.emplace(gather.tensor_node, gather.dim);
    }
  }
  std::map<std::string, std::size_t> place;
  std::vector<std::pair<std::string, Row>> rows;
  for (const PlanGather& gather : plan.gathers) {
    if (gather.node < 0 || gather.tensor_node < 0 || made_whole.count({gather.tensor_node, gather.dim}) != 0) continue;
    const std::string what = pattern_of(place_of(model, gather.tensor_node)) + " " +
                             shape_of(model, gather.tensor_node) + " dimension " + std::to_string(gather.dim);
    const auto [found, added] = place.emplace(what, rows.size());
    if (added) rows.push_back({what, {}});
    Row& row = rows[found->second].second;
    if (row.tensors.insert(gather.tensor_node).second) {
      row.bytes += model.times(gather.tensor_node) * static_cast<double>(model.flow().shape(gather.tensor_node).bytes);
    }
    const std::string reader = pattern_of(place_of(model, gather.node));
    if (std::find(row.readers.begin(), row.readers.end(), reader) == row.readers.end()) row.readers.push_back(reader);
  }
  TextTable table({{"tensors"}, {"gathered", Align::kLeft}, {"per step"}, {"read whole by", Align::kLeft}});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i == kMostRows) {
      table.add_row({"", "… " + std::to_string(rows.size() - kMostRows) + " more", "", "--json has all"});
      break;
    }
    const Row& row = rows[i].second;
    const std::size_t others = row.readers.size() - 1;
    table.add_row({std::to_string(row.tensors.size()), shorten(rows[i].first, 70), format_bytes(row.bytes),
                   shorten(row.readers[0], 50) + (others > 0 ? " and " + std::to_string(others) + " more" : "")});
  }
  return table.empty() ? "" : "What is gathered (split, and read whole somewhere)\n" + table.render("  ") + "\n";
}

std::string value_text(const PartitionPlan& plan, double value) {
  if (plan.objective == "count") return format_count(std::llround(value));
  return value > 0 ? format_ms(value) : value < 0 ? "-" + format_ms(-value) : "0";
}

std::string algorithms_table(const Planned& planned) {
  if (planned.answers.empty()) return "";
  const PartitionPlan& plan = planned.plan;
  const bool count = plan.objective == "count";
  TextTable table({{"algorithm", Align::kLeft},
                   {count ? "splits" : "saves"},
                   {"at most"},
                   {"step"},
                   {"memory"},
                   {"took"},
                   {"", Align::kLeft}});
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
    add_wrapped_row(
        &table, {answer.algorithm, value_text(plan, answer.score.value),
                 std::isfinite(answer.bound) ? value_text(plan, answer.bound) : "-", format_ms(answer.score.step_ms),
                 format_bytes(answer.score.memory_bytes), format_ms(answer.seconds * 1e3), says});
  }
  return "Algorithms (" +
         std::string(count ? "most " + things(plan, 2).substr(2) + " split" : "most time saved per step") + ")\n" +
         table.render("  ") + "\n";
}

std::string comparison_table(const PartitionPlan& plan) {
  TextTable table({{"instead", Align::kLeft}, {"splits"}, {"step"}, {"longer"}, {"memory"}, {"collectives"}});
  static const std::pair<const char*, const char*> kSays[] = {
      {"replicate", "nothing split: every device does everything"},
      {"data parallel", "data parallel: the batch split (automap-search adp)"},
      {"operators", "variables split instead (automap-search opp)"},
      {"no group cut", "no linkage group cut (--reshard off)"},
      {"objective count", "as many as possible (--objective count)"},
      {"objective time", "the least step time (--objective time)"}};
  for (const PartitionAlternative& other : plan.alternatives) {
    for (const auto& [name, says] : kSays) {
      if (other.planner != name) continue;
      const bool other_tensors = other.planner == "data parallel" || other.planner == "operators";
      table.add_row({says, other_tensors ? "-" : std::to_string(other.partitioned), format_ms(other.step_ms),
                     change(other.step_ms, plan.step_ms), format_bytes(other.memory_bytes),
                     other.collective_bytes > 0 ? format_bytes(other.collective_bytes) : "none"});
    }
  }
  if (table.empty()) return "";
  return "Compared\n" + table.render("  ") + "\n";
}

double variable_bytes(const ShardingModel& model) {
  double bytes = 0;
  for (const std::int32_t index : model.variables()) {
    bytes += static_cast<double>(model.flow().shape(model.inputs()[static_cast<std::size_t>(index)].node).bytes);
  }
  return bytes;
}

}  // namespace

std::string decision_line(const ShardingModel& model, const Propagation& decided, const PartitionPlan& plan) {
  // Of the whole module: a plan of few keys leads to more than it decides.
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
  return out + collectives_text(model, decided);
}

std::string plan_report(const ShardingModel& model, const Planned& planned) {
  const PartitionPlan& plan = planned.plan;
  const bool count = plan.objective == "count";
  std::string out = (plan.model.empty() ? "model" : printable(plan.model)) + " over " + plural(plan.shards, "device") +
                    " of " + printable(plan.cluster) + ": " + format_count(plan.partitioned) + " of " +
                    things(plan, static_cast<long long>(plan.decided.size())) + " split\n\n";
  if (!planned.nothing_split.empty()) out += fact("None split", planned.nothing_split);
  out += fact("Step time", format_ms(plan.step_ms) + " estimated, against " + format_ms(plan.replicated_step_ms) +
                               " with nothing split: " + format_ms(plan.compute_ms) + " compute, " +
                               format_ms(plan.collective_ms) + " collectives at " +
                               format_number(planned.links.gbytes_per_s) + " GB/s " +
                               (planned.links.inside_server ? "inside one server" : "between servers"));
  out += fact("Collectives", collectives_text(model, planned.decided));
  if (plan.kind == "data" && plan.all_reduces >= static_cast<int>(model.variables().size()) && model.step().training) {
    out += fact("", "gradients: one all-reduce per variable (" +
                        plural(static_cast<long long>(model.variables().size()), "variable") + ", " +
                        format_bytes(variable_bytes(model)) +
                        (plan.all_reduce_bytes < 0.99 * variable_bytes(model) ? "; reduced in narrower types)" : ")"));
  }
  out += fact("Memory", format_bytes(plan.memory_bytes) + " per device of " + format_bytes(plan.capacity_bytes) +
                            ", against " + format_bytes(planned.unsplit.memory_bytes));
  if (!planned.answers.empty()) {
    std::string best;
    if (plan.proven) {
      best = count ? "proven: no decision splits more without a conflict"
             : plan.planner == "reshard"
                 ? "proven: no decision and no cut is faster, each collective with a latency of its own"
             : planned.nearly_cut ? "proven without cuts of linkage groups, which would save less than 1 %"
                                  : "proven: no decision is estimated faster";
    } else if (std::isfinite(plan.bound)) {
      best = count ? "at most " + format_count(std::llround(std::floor(plan.bound + 1e-9))) + " can be split"
                   : "no decision saves more than " + format_ms(plan.bound) + " per step; this one saves " +
                         format_ms(plan.value);
    } else {
      best = "no bound was computed; --algorithm auto or enumerate gives one";
    }
    out += fact("How good", best);
  }
  out += fact("Planned in", format_ms(plan.planning_ms) + " from file to plan; objective " + plan.objective +
                                ", found by " + plan.planner);
  out += "\n" + split_table(planned) + gather_table(model, plan) + whole_table(model, planned) +
         algorithms_table(planned) + comparison_table(plan);
  while (out.size() > 1 && out[out.size() - 2] == '\n') out.pop_back();
  return out;
}

}  // namespace automap::search
