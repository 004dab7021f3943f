// propagate: reports the consequences of a partial decision.
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>

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

constexpr std::size_t kMostChains = 6;  // shown to people; --json has all

std::string opcode_name(const ShardingModel& model, NodeId node) {
  const graph::InstructionId id = model.flow().node(node).instruction;
  return id < 0 ? "" : std::string(model.graph().instruction(id).opcode_name);
}

// A step of the chain from the decision to one tensor of a group.
struct Step {
  TensorDim at, from;
  NodeId op = graph::kNone;  // kNone: the decision itself, or a tie from step to step
};

// All members of a group in the order in which they follow from `start`.
std::vector<Step> steps_of(const ShardingModel& model, GroupId group, TensorDim start) {
  const sharding::Linkage& linkage = model.linkage();
  const auto members = linkage.members(group);
  const auto less = [](const TensorDim& a, const TensorDim& b) {
    return std::tie(a.node, a.dim) < std::tie(b.node, b.dim);
  };
  std::vector<TensorDim> sorted(members.begin(), members.end());
  std::sort(sorted.begin(), sorted.end(), less);
  const auto position = [&](const TensorDim& at) -> std::size_t {
    const auto found = std::lower_bound(sorted.begin(), sorted.end(), at, less);
    return found != sorted.end() && *found == at ? static_cast<std::size_t>(found - sorted.begin()) : sorted.size();
  };
  std::vector<std::vector<std::int32_t>> factors(sorted.size());
  for (const std::int32_t f : linkage.factors_of_group(group)) {
    for (const TensorDim& at : linkage.factor(f).members) {
      if (const std::size_t i = position(at); i < sorted.size()) factors[i].push_back(f);
    }
  }
  std::vector<std::vector<TensorDim>> ties(sorted.size());
  for (const auto& [a, b] : linkage.ties()) {
    const std::size_t rank = model.flow().shape(a).dims.size();
    for (std::size_t d = 0; d < rank; ++d) {
      const TensorDim x{a, static_cast<std::int32_t>(d)}, y{b, static_cast<std::int32_t>(d)};
      const std::size_t i = position(x), j = position(y);
      if (i == sorted.size() || j == sorted.size()) continue;
      ties[i].push_back(y);
      ties[j].push_back(x);
    }
  }
  std::vector<bool> seen(sorted.size(), false);
  std::set<std::int32_t> used;
  std::vector<Step> out;
  std::deque<TensorDim> queue;
  const auto reach = [&](const TensorDim& at, const TensorDim& from, NodeId op) {
    const std::size_t i = position(at);
    if (i == sorted.size() || seen[i]) return;
    seen[i] = true;
    out.push_back({at, from, op});
    queue.push_back(at);
  };
  if (position(start) == sorted.size()) {
    if (sorted.empty()) return out;
    start = sorted.front();
  }
  reach(start, {}, graph::kNone);
  while (!queue.empty()) {
    const TensorDim at = queue.front();
    queue.pop_front();
    const std::size_t i = position(at);
    for (const std::int32_t f : factors[i]) {
      if (!used.insert(f).second) continue;
      const sharding::OpFactor& factor = linkage.factor(f);
      for (const TensorDim& other : factor.members) reach(other, at, factor.op);
    }
    for (const TensorDim& other : ties[i]) reach(other, at, graph::kNone);
  }
  return out;
}

bool is_slot(const ShardingModel& model, NodeId node) {
  const ModelInput* input = input_at(model, node);
  return input != nullptr && input->role == graph::InputRole::kSlot;
}

// Dimensions of inputs as one line per pattern of names; slots go where their variables go and are only counted.
std::string inputs_text(const ShardingModel& model, const std::vector<TensorDim>& inputs, int usual = 1) {
  std::vector<std::pair<std::string, int>> members, slots;
  for (const TensorDim& at : inputs) {
    (is_slot(model, at.node) ? slots : members).emplace_back(sharding::path_of(tensor_name(model, at.node)), at.dim);
  }
  if (members.empty()) return members_text(slots, usual);
  return members_text(members, usual) +
         (slots.empty() ? "" : " and " + plural(static_cast<long long>(slots.size()), "optimizer slot"));
}

// The layers that a decision reaches; layers that differ in their number only are one row.
std::string reach_table(const ShardingModel& model, const std::vector<Step>& steps) {
  struct Reach {
    int tensors = 0;
    std::set<std::string> layers;
    std::vector<std::string> opcodes;
  };
  std::map<std::string, std::size_t> at;
  std::vector<Reach> layers;
  for (const Step& step : steps) {
    const std::string layer = layer_of(model, step.op != graph::kNone ? step.op : step.at.node);
    const auto [place, fresh] = at.emplace(layer_pattern_of(layer), layers.size());
    if (fresh) layers.emplace_back();
    Reach& reach = layers[place->second];
    ++reach.tensors;
    reach.layers.insert(layer);
    const std::string opcode = step.op != graph::kNone ? opcode_name(model, step.op) : "";
    if (!opcode.empty() && std::find(reach.opcodes.begin(), reach.opcodes.end(), opcode) == reach.opcodes.end()) {
      reach.opcodes.push_back(opcode);
    }
  }
  FittedTable table(
      {{"layer", Align::kLeft}, {"tensors"}, {"through", Align::kLeft, FittedTable::kNeeded, 16, kTextWidth}});
  std::size_t rows = 0;
  for (const Reach& reach : layers) {
    if (rows++ == kMostRows) {
      table.add_row({"… " + std::to_string(layers.size() - kMostRows) + " more", "", "--json has all"});
      break;
    }
    std::string opcodes;
    for (const std::string& opcode : reach.opcodes) opcodes += (opcodes.empty() ? "" : ", ") + opcode;
    const std::string& layer = *reach.layers.begin();
    const std::string name = layer.empty() ? "(outside layers)"
                             : reach.layers.size() == 1
                                 ? layer
                                 : std::to_string(reach.layers.size()) + "x " + layer_pattern_of(layer);
    table.add_row({shorten(name, 40), std::to_string(reach.tensors), shorten(opcodes, 90)});
  }
  return table.render("    ");
}

// Chains to the other inputs of a group, one per pattern of names.
std::string chains_text(const ShardingModel& model, const Propagation& decided, GroupId group) {
  std::string out;
  std::set<std::string> patterns;
  std::size_t chains = 0;
  for (const TensorDim& input : model.linkage().inputs(group)) {
    if (input == decided.decided_by(group) || is_slot(model, input.node)) continue;
    if (!patterns.insert(pattern_of(sharding::path_of(tensor_name(model, input.node)))).second) continue;
    if (chains++ == kMostChains) {
      out += "  … chains to other inputs: automap-search propagate --json\n";
      break;
    }
    const sharding::Explanation why = explain(model, decided, input.node);
    out += indented(why.summary, "  ") + lines_text(why.lines, "    ");
  }
  return out;
}

// The undecided groups; groups that differ in numbers only are one row.
std::string undecided_table(const ShardingModel& model, const std::vector<sharding::Stuck>& undecided) {
  std::string out = "\nUndecided (largest first); each group takes one decision\n";
  FittedTable table({{"groups", Align::kRight, 40},
                     {"tensors"},
                     {"decided by any of", Align::kLeft, FittedTable::kNeeded, kLeastTextWidth, kTextWidth}});
  struct Row {
    int groups = 0, tensors = 0;
    std::vector<TensorDim> deciders;
  };
  std::map<std::string, std::size_t> at;
  std::vector<Row> rows;
  for (const sharding::Stuck& stuck : undecided) {
    std::string signature;
    for (const TensorDim& decider : stuck.deciders) {
      signature += pattern_of(tensor_name(model, decider.node)) + "=" + std::to_string(decider.dim) + ";";
    }
    const auto [place, fresh] = at.emplace(signature, rows.size());
    if (fresh) rows.emplace_back();
    Row& row = rows[place->second];
    ++row.groups;
    row.tensors += stuck.tensors;
    row.deciders.insert(row.deciders.end(), stuck.deciders.begin(), stuck.deciders.end());
  }
  for (std::size_t i = 0; i < rows.size() && i < kMostRows; ++i) {
    const Row& row = rows[i];
    const std::vector<std::string> lines = wrap_words(inputs_text(model, row.deciders, row.groups), 90);
    table.add_row({std::to_string(row.groups) + "x", std::to_string(row.tensors),
                   lines.front() + (lines.size() > 1 ? " …" : "")});
  }
  out += table.render("  ");
  if (rows.size() > kMostRows) {
    out += "  and " + std::to_string(rows.size() - kMostRows) + " more kinds; --json has all\n";
  }
  return out;
}

}  // namespace

const char* to_string(Completion::Outcome outcome) {
  switch (outcome) {
    case Completion::Outcome::kComplete: return "complete";
    case Completion::Outcome::kStuck: return "stuck";
    case Completion::Outcome::kConflict: return "conflict";
  }
  return "?";
}

std::string completion_report(const ShardingModel& model, const Propagation& decided, const Completion& completion) {
  const Counts counts = count_tensors(model, decided);
  std::string out = "Propagation over " + plural(model.linkage().shards(), "device") + ": ";
  switch (completion.outcome) {
    case Completion::Outcome::kComplete: out += "complete: every tensor is decided\n"; break;
    case Completion::Outcome::kStuck:
      out += "stuck: " + plural(counts.undecided, "tensor") + " of " + format_count(counts.tensors) + " undecided\n";
      break;
    case Completion::Outcome::kConflict:
      out += "conflict: " + printable(completion.refused) + " cannot be\n\n" +
             indented(completion.conflict.summary, "  ") + lines_text(completion.conflict.lines, "    ");
      break;
  }
  out += "\n  " + format_count(counts.split) + " tensors split, " + format_count(counts.whole) + " whole (" +
         plural(counts.partial, "partial sum") + "), " + format_count(counts.undecided) + " undecided\n";

  std::set<GroupId> shown;
  for (const Completion::Decision& decision : completion.decisions) {
    out += "\n" + printable(decision.text);
    if (decision.at.dim < 0) {
      out += ": kept whole\n";
      continue;
    }
    const GroupId group = model.linkage().group_of(decision.at);
    if (decision.repeated || !shown.insert(group).second) {
      out += ": follows from what was set before\n";
      continue;
    }
    const std::vector<Step> steps = steps_of(model, group, decided.decided_by(group));
    out += ": splits " + plural(static_cast<long long>(steps.size()), "tensor") + "\n";
    const auto inputs = model.linkage().inputs(group);
    out += indented("inputs: " + inputs_text(model, {inputs.begin(), inputs.end()}), "  ");
    out += reach_table(model, steps) + chains_text(model, decided, group);
  }
  if (!completion.stuck.empty()) out += undecided_table(model, completion.stuck);
  return out;
}

std::string completion_json(const ShardingModel& model, const Propagation& decided, const Completion& completion) {
  const Counts counts = count_tensors(model, decided);
  Json d = Json::object();
  d["schema"] = "automap.propagation/1";
  d["shards"] = model.linkage().shards();
  d["outcome"] = to_string(completion.outcome);
  d["tensors"] = {{"all", counts.tensors},
                  {"split", counts.split},
                  {"whole", counts.whole},
                  {"undecided", counts.undecided},
                  {"partial_sums", counts.partial}};
  d["decisions"] = Json::array();
  for (const Completion::Decision& decision : completion.decisions) {
    d["decisions"].push_back({{"set", decision.text},
                              {"tensor", tensor_name(model, decision.at.node)},
                              {"dim", decision.at.dim},
                              {"followed", decision.repeated}});
  }
  d["conflict"] = nullptr;
  if (completion.outcome == Completion::Outcome::kConflict) {
    d["conflict"] = explanation_value(model, completion.conflict);
    d["conflict"]["set"] = completion.refused;
  }
  d["inputs"] = inputs_json(model, decided);
  d["steps"] = Json::array();
  for (const GroupId group : decided.split_groups()) {
    const TensorDim start = decided.decided_by(group);
    for (const Step& step : steps_of(model, group, start)) {
      const bool begins = step.from.node == graph::kNone;
      Json from = nullptr;
      if (!begins) from = {{"tensor", tensor_name(model, step.from.node)}, {"dim", step.from.dim}};
      d["steps"].push_back({{"tensor", tensor_name(model, step.at.node)},
                            {"dim", step.at.dim},
                            {"decision", {{"tensor", tensor_name(model, start.node)}, {"dim", start.dim}}},
                            {"by", begins                    ? Json("decision")
                                   : step.op == graph::kNone ? Json("next step")
                                                             : Json(instruction_name(model, step.op))},
                            {"from", from},
                            {"layer", layer_of(model, step.op != graph::kNone ? step.op : step.at.node)}});
    }
  }
  d["undecided"] = Json::array();
  for (const sharding::Stuck& stuck : completion.stuck) {
    Json deciders = Json::array();
    for (const TensorDim& at : stuck.deciders) {
      deciders.push_back({{"tensor", tensor_name(model, at.node)}, {"dim", at.dim}});
    }
    d["undecided"].push_back({{"tensors", stuck.tensors}, {"deciders", deciders}});
  }
  d["collectives"] = Json::array();
  for (const Collective& c : find_collectives(model, decided, listed_placement(model))) {
    d["collectives"].push_back(collective_json(model, c));
  }
  return json_text(d);
}

}  // namespace automap::search
