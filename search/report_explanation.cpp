// explain: the whole decision, or one tensor.
#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "common/base/fitted_table.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "plan/partition/names.h"
#include "search/report.h"
#include "search/report_parts.h"

namespace automap::search {

using namespace partition;
using namespace internal;

namespace {

bool takes_part(const Collective& c, NodeId node) {
  return c.node == node || std::find(c.sources.begin(), c.sources.end(), node) != c.sources.end();
}

std::string collective_line(const ShardingModel& model, const Collective& c) {
  std::string out = std::string(to_string(c.written_kind())) + " of " + sharding::describe(model, c.node) + ", " +
                    format_bytes(c.bytes);
  if (c.times != 1) out += ", " + format_number(c.times, 6) + " times per step";
  if (c.sources.size() > 1 && c.reduces()) {
    out += ", for " + plural(static_cast<long long>(c.sources.size()), "partial sum");
  }
  return out;
}

}  // namespace

std::string overview_report(const ShardingModel& model, const Propagation& decided, const PartitionPlan& plan,
                            const sharding::TensorShares* shares) {
  const Counts counts = count_tensors(model, decided);
  std::string out = decision_line(model, decided, plan, shares) + "\n";
  out += format_count(counts.split) + " of " + format_count(counts.tensors) + " tensors are split, " +
         plural(counts.partial, "instruction") + (counts.partial == 1 ? " leaves" : " leave") + " partial sums\n\n";

  FittedTable inputs({{"role", Align::kLeft},
                      {"split"},
                      {"of"},
                      {"dimension split", Align::kLeft, FittedTable::kNeeded, kLeastTextWidth, kTextWidth}});
  std::map<graph::InputRole, std::pair<int, std::vector<std::pair<std::string, int>>>> roles;
  for (const ModelInput& input : model.inputs()) {
    auto& [all, members] = roles[input.role];
    ++all;
    const TensorState state = decided.state(input.node);
    if (state.kind == TensorStateKind::kSplit) members.emplace_back(sharding::path_of(input.name), state.dim);
  }
  for (const auto& [role, facts] : roles) {
    // Slots go where their variables go.
    const bool slots = role == graph::InputRole::kSlot;
    const std::string which = members_text(facts.second);
    inputs.add_row({graph::to_string(role), std::to_string(facts.second.size()), std::to_string(facts.first),
                    slots && !facts.second.empty() ? "with their variables" : which});
  }
  out += inputs.render("") + "\n";

  struct Row {
    int count = 0;
    double bytes = 0;
    std::size_t sources = 0;
    std::string pattern, shape;  // what makes them alike
    std::string example, scope;  // of the first
  };
  std::map<std::tuple<CollectiveKind, std::string, std::string>, std::size_t> at;
  std::vector<std::pair<CollectiveKind, Row>> rows;
  for (const Collective& c : find_collectives(model, decided, listed_placement(model), shares)) {
    const std::string scope = scope_of(model, c.node), pattern = layer_pattern_of(scope);
    const std::string shape = shape_of(model, c.node);
    const auto [place, fresh] = at.emplace(std::make_tuple(c.written_kind(), pattern, shape), rows.size());
    if (fresh) rows.push_back({c.written_kind(), {0, 0, 0, pattern, shape, instruction_name(model, c.node), scope}});
    Row& row = rows[place->second].second;
    ++row.count;
    row.bytes += c.bytes * c.times;
    row.sources += c.reduces() ? std::max<std::size_t>(c.sources.size(), 1) : 0;
  }
  if (rows.empty()) return out;
  out +=
      "each sum reduced once, behind the linear instructions that it can pass; XLA's partitioner reduces it at "
      "once:\n\n";
  FittedTable table({{"collective", Align::kLeft},
                     {"times"},
                     {"partial sums", Align::kRight, 20},
                     {"bytes per step"},
                     {"of", Align::kLeft, 60, 12},
                     {"in", Align::kLeft, 80, 16},
                     {"such as", Align::kLeft, 40, 16}});
  for (const auto& [kind, row] : rows) {
    table.add_row({to_string(kind), std::to_string(row.count), row.sources > 0 ? std::to_string(row.sources) : "",
                   format_bytes(row.bytes), row.shape, shorten(row.count == 1 ? row.scope : row.pattern, 50),
                   row.example});
  }
  return out + table.render("");
}

std::string tensor_report(const ShardingModel& model, const Propagation& decided, NodeId node,
                          const sharding::TensorShares* shares) {
  const sharding::Explanation why = explain(model, decided, node);
  std::string out =
      printable(sharding::describe(model, node)) + "\n" + indented(why.summary, "  ") + lines_text(why.lines, "    ");
  bool any = false;
  for (const Collective& c : find_collectives(model, decided, listed_placement(model), shares)) {
    if (!takes_part(c, node)) continue;
    out += (any ? "" : "  collectives\n") + indented(collective_line(model, c), "    ");
    any = true;
  }
  if (!any) out += "  no collective reads or makes it\n";
  const sharding::TensorState state = decided.state(node);
  if (!any && state.kind == sharding::TensorStateKind::kSplit) {
    // The cost of splitting it shows elsewhere: the sums of its linkage group.
    const std::vector<Collective> sums = sharding::collectives_of_group(
        model, model.linkage().group_of(node, state.dim), written_placement(model), shares);
    double bytes = 0;
    for (const Collective& c : sums) bytes += c.bytes * c.times;
    if (!sums.empty()) {
      out +=
          indented("what is split with it leaves " + plural(static_cast<long long>(sums.size()), "partial sum") + ", " +
                       format_bytes(bytes) + " per step, the first in " + sharding::describe(model, sums.front().node),
                   "  ");
    }
  }
  return out;
}

std::string explanation_json(const ShardingModel& model, const Propagation& decided, const PartitionPlan& plan,
                             const std::vector<NodeId>& nodes, const sharding::TensorShares* shares) {
  const Counts counts = count_tensors(model, decided);
  Json d = Json::object();
  d["schema"] = "automap.explanation/1";
  d["kind"] = plan.kind;
  d["shards"] = plan.shards;
  d["partitioned"] = plan.partitioned;
  d["tensors_split"] = counts.split;
  d["partial_sums"] = plan.partial_sums;
  const std::vector<Collective> collectives = find_collectives(model, decided, listed_placement(model), shares);
  if (nodes.empty()) {
    d["inputs"] = inputs_json(model, decided);
    d["collectives"] = Json::array();
    for (const Collective& c : collectives) d["collectives"].push_back(collective_json(model, c));
    return json_text(d);
  }
  d["tensors"] = Json::array();
  for (const NodeId node : nodes) {
    const TensorState state = decided.state(node);
    Json own = Json::array();
    for (const Collective& c : collectives) {
      if (takes_part(c, node)) own.push_back(collective_json(model, c));
    }
    const sharding::Explanation why = explain(model, decided, node);
    d["tensors"].push_back(
        {{"tensor", tensor_name(model, node)},
         {"instruction", instruction_name(model, node)},
         {"shape", shape_of(model, node)},
         {"layer", layer_of(model, node)},
         {"state", state_word(state)},
         {"dim", state.kind == TensorStateKind::kSplit ? state.dim : -1},
         {"partial", state.partial == sharding::Reduction::kNone ? Json() : Json(sharding::to_string(state.partial))},
         {"summary", why.summary},
         {"lines", why.lines},
         {"collectives", own}});
  }
  return json_text(d);
}

}  // namespace automap::search
