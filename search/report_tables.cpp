#include "search/report_tables.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "common/base/fitted_table.h"
#include "common/base/json_object.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "plan/partition/names.h"
#include "search/report_parts.h"

namespace automap::search::internal {

using namespace partition;

namespace {

std::string bytes_per_step(double bytes) {
  return format_bytes(bytes) + " per step";
}

// "params/h/3/attn/kernel" for an input, "h/3/attn reshape" for an instruction's result.
std::string place_of(const ShardingModel& model, sharding::NodeId node) {
  for (const sharding::ModelInput& input : model.inputs()) {
    if (input.node == node) return sharding::path_of(input.name);
  }
  const std::string scope = scope_of(model, node);
  const auto instruction = model.flow().node(model.flow().producer(node)).instruction;
  return scope + (scope.empty() ? "" : " ") +
         std::string(graph::opcode_name(model.graph().instruction(instruction).opcode));
}

}  // namespace

std::string fact(const std::string& name, const std::string& value) {
  return name + std::string(name.size() < 13 ? 13 - name.size() : 1, ' ') + printable(value) + "\n";
}

std::string collectives_text(const ShardingModel& model, const Propagation& decided,
                             const sharding::TensorShares* shares) {
  const std::vector<Collective> at_once = find_collectives(model, decided, Placement::kAtOnce, shares);
  const std::vector<Collective> written = find_collectives(model, decided, written_placement(model), shares);
  const std::vector<Collective> delayed = find_collectives(model, decided, Placement::kDelayed, shares);
  const sharding::CollectiveTotals sums = total(written, CollectiveKind::kAllReduce);
  const sharding::CollectiveTotals least = total(delayed, CollectiveKind::kAllReduce);
  const sharding::CollectiveTotals gathers = total(written, CollectiveKind::kAllGather);
  const sharding::CollectiveTotals exchanges = total(written, CollectiveKind::kAllToAll);
  const auto in_parts = std::count_if(written.begin(), written.end(),
                                      [](const Collective& c) { return c.kind == CollectiveKind::kReduceScatter; });
  const sharding::CollectiveTotals borders = total(written, CollectiveKind::kPermute);
  if (sums.count + gathers.count + exchanges.count + borders.count == 0)
    return "none: no device needs anything of another";
  std::string out = sums.count == 0
                        ? "no all-reduces"
                        : plural(sums.count, "all-reduce") + " of partial sums, " + bytes_per_step(sums.bytes);
  if (const auto arise = total(at_once, CollectiveKind::kAllReduce); arise.count > sums.count) {
    out += " (combined, of " + format_count(arise.count) + " and " + format_bytes(arise.bytes) + ")";
  }
  if (least.count < sums.count) {
    out += " (" + format_count(least.count) + " of " + format_bytes(least.bytes) +
           " if they are carried through linear instructions)";
  }
  if (in_parts > 0) {
    out += "; of " + format_count(in_parts) + " every device keeps its part, as a reduce-scatter where there is one";
  }
  out += gathers.count > 0 ? "; " + plural(gathers.count, "all-gather") + ", " + bytes_per_step(gathers.bytes)
                           : "; nothing is gathered";
  if (exchanges.count > 0) out += "; " + plural(exchanges.count, "all-to-all") + ", " + bytes_per_step(exchanges.bytes);
  if (borders.count > 0) {
    out += "; " + plural(borders.count, "collective-permute") + " of borders between neighbours, " +
           bytes_per_step(borders.bytes);
  }
  return out;
}

std::string memory_text(const PeakMemory& memory) {
  std::string out = format_bytes(memory.arguments) + " arguments, ";
  if (memory.results > 0) out += format_bytes(memory.results) + " results, ";
  return out + format_bytes(memory.temporaries) + " temporaries";
}

std::string step_text(const PlanEstimate& estimate) {
  return format_ms(estimate.expected_ms()) + " estimated" +
         (estimate.overlapped_ms ? " (" + format_ms(estimate.step_ms) + " added up)" : "");
}

std::string judged_text(const PlanEstimate& estimate, bool counted) {
  return counted && !estimate.overlapped_ms ? "" : step_text(estimate) + ": ";
}

std::string hidden_text(const PlanEstimate& estimate) {
  if (!estimate.overlapped_ms) return "";
  return ", " + format_ms(estimate.step_ms - *estimate.overlapped_ms) + " of them hidden behind compute" +
         (estimate.other_axis_ms > 0 ? " and each other" : "");
}

std::string least_overlapped_text(double bound_ms) {
  return "overlapped: nothing is proven but that no step is shorter than " + format_ms(bound_ms) +
         ", all compute divided and no collectives";
}

std::string counted_text(const CountedCost& counted, const std::optional<std::string>& options) {
  if (!counted.cost) return fact("Not counted", not_counted_text(counted));
  const PlanCost& cost = *counted.cost;
  const bool fits = cost.memory_bytes <= cost.capacity_bytes;
  return fact("Step time", format_ms(cost.simulated_step_ms) + " for " + plural(cost.micro_batches, "micro-batch") +
                               " of " + format_count(std::llround(cost.micro_batch_samples)) + " samples" +
                               (options ? ", as automap-infer --layout " + cost.layout + " --micro-batches " +
                                              std::to_string(cost.micro_batches) + *options + " counts it"
                                        : "")) +
         fact("Memory", format_bytes(cost.memory_bytes) + " per device of " + format_bytes(cost.capacity_bytes) +
                            (fits ? "" : "; it does not fit"));
}

Json price_json(const Price& price, const std::string& cluster) {
  return {{"cluster", cluster},
          {"step_ms", price.estimate.step_ms},
          {"compute_ms", price.estimate.compute_ms},
          {"collective_ms", price.estimate.collective_ms},
          {"overlapped_ms", or_null(price.estimate.overlapped_ms)},
          {"replicated_step_ms", price.unsplit_ms},
          {"memory_bytes", price.memory.total},
          {"capacity_bytes", price.capacity_bytes}};
}

std::string price_text(const Price& price, const std::string& cluster) {
  const PlanEstimate& e = price.estimate;
  const std::string out =
      fact("Estimate", step_text(e) + " on " + printable(cluster) + ", as searches judge, against " +
                           format_ms(price.unsplit_ms) + " with nothing split: " + format_ms(e.compute_ms) +
                           " compute, " + format_ms(e.collective_ms) + " collectives" + hidden_text(e));
  return out + fact("", format_bytes(price.memory.total) + " per device of " + format_bytes(price.capacity_bytes) +
                            ": " + memory_text(price.memory) +
                            (price.memory.total > price.capacity_bytes ? "; it does not fit" : ""));
}

std::string split_table(const Planned& planned) {
  FittedTable table({{"groups", Align::kRight, 60},
                     {"tensors", Align::kRight, 40},
                     {"compute"},
                     {"collectives", Align::kRight, 70},
                     {"memory", Align::kRight, 80},
                     {"dimension split", Align::kLeft, FittedTable::kNeeded, kLeastTextWidth, kTextWidth}});
  std::size_t rows = 0, hidden = 0;
  for (const SplitGroups& split : planned.split) {
    if (rows++ >= kMostRows) {
      hidden += split.groups.size();
      continue;
    }
    const PartitionCost::GroupEffect& e = split.effect;
    table.add_row({std::to_string(split.groups.size()) + "x", std::to_string(split.members.size()),
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
  FittedTable table({{"tensors"}, {"kept whole", Align::kLeft, FittedTable::kNeeded, kLeastTextWidth, kTextWidth}});
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
    std::vector<std::string> names = wrap_words(members_text(members), kTextWidth);
    if (names.size() > 3) {
      names.resize(3);
      names.back() += " …";
    }
    bool first = true;
    for (const std::string& line : names) {
      table.add_row({first ? std::to_string(whole.inputs.size()) : "", line});
      first = false;
    }
    table.add_row({"", "  " + whole.reason});
  }
  if (table.empty()) return "";
  std::string out = table.render("  ");
  if (hidden > 0) out += "  and " + plural(static_cast<long long>(hidden), "more tensor") + "; --json has all\n";
  return out + "\n";
}

namespace {

// The table of exchanges, or of the other gathers. `axis`: of a mesh.
std::string moved_table(const ShardingModel& model, const PartitionPlan& plan, bool exchanges,
                        const std::string& axis) {
  struct Row {
    std::set<sharding::NodeId> tensors;
    std::vector<std::string> readers;
    double bytes = 0;  // per step
  };
  std::set<std::pair<sharding::NodeId, int>> made_whole;
  for (const sharding::Gather& gather : model.gathers()) {
    if (sharding::is_made_whole(model.flow(), gather)) made_whole.emplace(gather.tensor, gather.dim);
  }
  std::map<std::string, std::size_t> place;
  std::vector<std::pair<std::string, Row>> rows;
  for (const PlanGather& gather : plan.gathers) {
    if (gather.node < 0 || gather.tensor_node < 0) continue;
    if (exchanges != (gather.kind == sharding::Gather::Kind::kExchanged)) continue;
    if (!exchanges &&
        (gather.kind == sharding::Gather::Kind::kInParts || gather.kind == sharding::Gather::Kind::kBegun ||
         made_whole.count({gather.tensor_node, gather.dim}) != 0)) {
      continue;
    }
    const std::string what = pattern_of(place_of(model, gather.tensor_node)) + " " +
                             shape_of(model, gather.tensor_node) + " dimension " + std::to_string(gather.dim);
    const auto [found, added] = place.emplace(what, rows.size());
    if (added) rows.push_back({what, {}});
    Row& row = rows[found->second].second;
    if (row.tensors.insert(gather.tensor_node).second) {
      row.bytes += model.times(gather.tensor_node) * static_cast<double>(model.flow().shape(gather.tensor_node).bytes);
    }
    const std::string reader =
        gather.kind == sharding::Gather::Kind::kHandedOn ? "the next step" : pattern_of(place_of(model, gather.node));
    if (std::find(row.readers.begin(), row.readers.end(), reader) == row.readers.end()) row.readers.push_back(reader);
  }
  FittedTable table({{"tensors"},
                     {exchanges ? "exchanged" : "gathered", Align::kLeft, FittedTable::kNeeded, kLeastTextWidth},
                     {"per step"},
                     {exchanges ? "read by" : "read whole by", Align::kLeft, 60, 20}});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i == kMostRows) {
      table.add_row({"", "… " + std::to_string(rows.size() - kMostRows) + " more", "", "--json has all"});
      break;
    }
    const Row& row = rows[i].second;
    const std::size_t others = row.readers.size() - 1;
    table.add_row({std::to_string(row.tensors.size()), shorten(rows[i].first, 66), format_bytes(row.bytes),
                   shorten(row.readers[0], 50) + (others > 0 ? " and " + std::to_string(others) + " more" : "")});
  }
  if (table.empty()) return "";
  const std::string over = axis.empty() ? "" : " over the " + axis + " axis",
                    // Only the share that the other axis leaves is moved.
      whole = axis.empty() ? "" : "; bytes of the whole tensors";
  const std::string title = exchanges
                                ? "What is exchanged" + over + " (split, and read in parts along another dimension"
                                : "What is gathered" + over + " (split, and read whole somewhere";
  return title + whole + ")\n" + table.render("  ") + "\n";
}

}  // namespace

std::string moved_tables(const ShardingModel& model, const PartitionPlan& plan, const std::string& axis) {
  return moved_table(model, plan, false, axis) + moved_table(model, plan, true, axis);
}

std::string begun_table(const ShardingModel& model) {
  std::vector<std::pair<std::string, int>> rows;
  for (const sharding::Gather& gather : model.gathers()) {
    if (gather.kind != sharding::Gather::Kind::kBegun) continue;
    const std::string what = pattern_of(place_of(model, gather.tensor)) + " " + shape_of(model, gather.tensor) +
                             " dimension " + std::to_string(gather.dim);
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.first == what; });
    if (same == rows.end()) {
      rows.emplace_back(what, 1);
    } else {
      ++same->second;
    }
  }
  FittedTable table({{"tensors"}, {"split from", Align::kLeft, FittedTable::kNeeded, kLeastTextWidth}});
  for (const auto& [what, tensors] : rows) table.add_row({std::to_string(tensors), what});
  if (table.empty()) return "";
  return "What is split although no variable decides it (attention that heads do not split)\n" + table.render("  ") +
         "\n";
}

}  // namespace automap::search::internal
