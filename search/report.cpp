#include "search/report.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "common/base/text_table.h"
#include "common/graph/layers.h"
#include "search/names.h"

namespace automap::search {
namespace {

using Align = TextTable::Align;
using Json = nlohmann::ordered_json;
using sharding::Collective;
using sharding::GroupId;
using sharding::ModelInput;
using sharding::NodeId;
using sharding::Placement;
using sharding::Propagation;
using sharding::ShardingModel;
using sharding::TensorDim;
using sharding::TensorState;
using sharding::TensorStateKind;

constexpr int kTextWidth = 76;          // of a column of prose
constexpr std::size_t kMostRows = 20;   // of a table that repeats itself
constexpr std::size_t kMostChains = 6;  // shown to people; --json has all

// Lines of at most `width` columns, made printable, broken at blanks.
std::vector<std::string> wrapped(const std::string& any_text, int width) {
  const std::string text = printable(any_text);
  std::vector<std::string> lines(1);
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t end = text.find(' ', at);
    if (end == std::string::npos) end = text.size();
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    if (!lines.back().empty() && display_width(lines.back()) + 1 + display_width(word) > width) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  return lines;
}

// A row whose last cell may take several lines.
void add_wrapped_row(TextTable* table, std::vector<std::string> cells) {
  const std::vector<std::string> lines = wrapped(cells.back(), kTextWidth);
  for (const std::string& line : lines) {
    cells.back() = line;
    table->add_row(cells);
    for (std::string& cell : cells) cell.clear();
  }
}

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

std::string gather_table(const ShardingModel& model, const PartitionPlan& plan) {
  TextTable table({{"gathered", Align::kLeft}, {"bytes"}, {"because it is read whole by", Align::kLeft}});
  std::size_t rows = 0;
  for (const PlanGather& gather : plan.gathers) {
    if (rows++ == kMostRows) {
      table.add_row({"… " + std::to_string(plan.gathers.size() - kMostRows) + " more", "", "--json has all"});
      break;
    }
    if (gather.node < 0 || gather.tensor_node < 0) continue;
    table.add_row(
        {gather.tensor + " " + shape_of(model, gather.tensor_node) + " dimension " + std::to_string(gather.dim),
         format_bytes(static_cast<double>(model.flow().shape(gather.tensor_node).bytes)),
         shorten(sharding::describe(model, gather.node), 90)});
  }
  return table.empty() ? ""
                       : "What is put together again, because it does not work in parts\n" + table.render("  ") + "\n";
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

// "encoder/layer_3": the scope of a node cut behind the layer's name.
std::string layer_of(const ShardingModel& model, NodeId node) {
  const std::vector<std::string> scopes = sharding::scopes_of(model, node);
  const std::size_t depth = std::min(graph::layer_depth(scopes), scopes.size());
  std::string out;
  for (std::size_t i = 0; i < depth; ++i) out += (i ? "/" : "") + scopes[i];
  return out;
}

std::string instruction_name(const ShardingModel& model, NodeId node) {
  const graph::InstructionId id = node == graph::kNone ? graph::kNone : model.flow().node(node).instruction;
  return id < 0 ? "" : std::string(model.graph().instruction(id).name);
}

std::string opcode_name(const ShardingModel& model, NodeId node) {
  const graph::InstructionId id = model.flow().node(node).instruction;
  return id < 0 ? "" : std::string(model.graph().instruction(id).opcode_name);
}

const ModelInput* input_at(const ShardingModel& model, NodeId node) {
  for (const ModelInput& input : model.inputs()) {
    if (input.node == node) return &input;
  }
  return nullptr;
}

std::string tensor_name(const ShardingModel& model, NodeId node) {
  const ModelInput* input = input_at(model, node);
  return input != nullptr ? input->name : instruction_name(model, node);
}

// How one tensor of a group was reached from the decision.
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

struct Counts {
  int tensors = 0, split = 0, whole = 0, undecided = 0, partial = 0;
};

Counts count_tensors(const ShardingModel& model, const Propagation& decided) {
  Counts out;
  for (NodeId node = 0; node < model.flow().size(); ++node) {
    const TensorState state = decided.state(node);
    if (state.partial != sharding::Reduction::kNone) ++out.partial;  // scalars too, such as the loss
    if (!model.linkage().is_tensor(node)) continue;
    ++out.tensors;
    if (state.kind == TensorStateKind::kSplit) ++out.split;
    if (state.kind == TensorStateKind::kReplicated) ++out.whole;
    if (state.kind == TensorStateKind::kUndecided) ++out.undecided;
  }
  return out;
}

const char* state_word(const TensorState& state) {
  switch (state.kind) {
    case TensorStateKind::kSplit: return "split";
    case TensorStateKind::kUndecided: return "undecided";
    default: return "whole";
  }
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

std::string indented(const std::string& text, const std::string& indent) {
  std::string out;
  for (const std::string& line : wrapped(text, 110)) out += indent + line + "\n";
  return out;
}

std::string lines_text(const std::vector<std::string>& lines, const std::string& indent) {
  std::string out;
  for (const std::string& line : lines) out += indent + printable(line) + "\n";
  return out;
}

Json whole_number(double value) {
  if (value >= 0 && value < 9e15 && value == std::floor(value)) return static_cast<std::int64_t>(value);
  return value;
}

Json collective_json(const ShardingModel& model, const Collective& c) {
  Json sources = Json::array();
  for (const NodeId source : c.sources) sources.push_back(instruction_name(model, source));
  return {
      {"kind", sharding::to_string(c.kind)},
      {"reduction", c.reduction == sharding::Reduction::kNone ? Json(nullptr) : Json(sharding::to_string(c.reduction))},
      {"instruction", instruction_name(model, c.node)},
      {"layer", layer_of(model, c.node)},
      {"shape", shape_of(model, c.node)},
      {"bytes", whole_number(c.bytes)},
      {"times", whole_number(c.times)},
      {"sources", sources}};
}

Json inputs_json(const ShardingModel& model, const Propagation& decided) {
  Json out = Json::array();
  for (const ModelInput& input : model.inputs()) {
    const TensorState state = decided.state(input.node);
    out.push_back({{"name", input.name},
                   {"parameter", input.parameter_name},
                   {"role", graph::to_string(input.role)},
                   {"shape", shape_of(model, input.node)},
                   {"state", state_word(state)},
                   {"dim", state.kind == TensorStateKind::kSplit ? state.dim : -1}});
  }
  return out;
}

Json explanation_value(const ShardingModel& model, const sharding::Explanation& e) {
  return {{"summary", e.summary},
          {"lines", e.lines},
          {"at", e.at == graph::kNone ? Json(nullptr) : Json(instruction_name(model, e.at))}};
}

bool takes_part(const Collective& c, NodeId node) {
  return c.node == node || std::find(c.sources.begin(), c.sources.end(), node) != c.sources.end();
}

std::string collective_line(const ShardingModel& model, const Collective& c) {
  std::string out = std::string(sharding::to_string(c.kind)) + " of " + sharding::describe(model, c.node) + ", " +
                    format_bytes(c.bytes);
  if (c.times != 1) out += ", " + format_number(c.times, 6) + " times per step";
  if (c.sources.size() > 1 && c.kind == sharding::CollectiveKind::kAllReduce) {
    out += ", for " + plural(static_cast<long long>(c.sources.size()), "partial sum");
  }
  return out;
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
                               format_number(planned.link.gbytes_per_s) + " GB/s " +
                               (planned.link.inside_server ? "inside one server" : "between servers"));
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
      best = count ? "proven: no decision splits more without a conflict" : "proven: no decision is estimated faster";
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

    // How far it reaches, layer by layer; layers that differ in their number only are one row.
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
    TextTable table({{"layer", Align::kLeft}, {"tensors"}, {"through", Align::kLeft}});
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
    out += table.render("    ");

    // Chains to the other inputs, one per pattern of names.
    std::set<std::string> patterns;
    std::size_t chains = 0;
    for (const TensorDim& input : inputs) {
      if (input == decided.decided_by(group) || is_slot(model, input.node)) continue;
      if (!patterns.insert(pattern_of(sharding::path_of(tensor_name(model, input.node)))).second) continue;
      if (chains++ == kMostChains) {
        out += "  … chains to other inputs: automap-search propagate --json\n";
        break;
      }
      const sharding::Explanation why = explain(model, decided, input.node);
      out += indented(why.summary, "  ") + lines_text(why.lines, "    ");
    }
  }
  if (!completion.stuck.empty()) {
    out += "\nUndecided (largest first); each group takes one decision\n";
    TextTable table({{"groups"}, {"tensors"}, {"decided by any of", Align::kLeft}});
    // Groups that differ in numbers only are one row.
    struct Row {
      int groups = 0, tensors = 0;
      std::vector<TensorDim> deciders;
    };
    std::map<std::string, std::size_t> at;
    std::vector<Row> rows;
    for (const sharding::Stuck& stuck : completion.stuck) {
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
      const std::vector<std::string> lines = wrapped(inputs_text(model, row.deciders, row.groups), 90);
      table.add_row({std::to_string(row.groups) + "x", std::to_string(row.tensors),
                     lines.front() + (lines.size() > 1 ? " …" : "")});
    }
    out += table.render("  ");
    if (rows.size() > kMostRows) {
      out += "  and " + std::to_string(rows.size() - kMostRows) + " more kinds; --json has all\n";
    }
  }
  return out;
}

std::string completion_json(const ShardingModel& model, const Propagation& decided, const Completion& completion) {
  const Counts counts = count_tensors(model, decided);
  Json d;
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
  for (const Collective& c : find_collectives(model, decided, Placement::kDelayed)) {
    d["collectives"].push_back(collective_json(model, c));
  }
  return json_text(d);
}

std::string overview_report(const ShardingModel& model, const Propagation& decided, const PartitionPlan& plan) {
  const Counts counts = count_tensors(model, decided);
  std::string out = decision_line(model, decided, plan) + "\n";
  out += format_count(counts.split) + " of " + format_count(counts.tensors) + " tensors are split, " +
         plural(counts.partial, "instruction") + (counts.partial == 1 ? " leaves" : " leave") + " partial sums\n\n";

  TextTable inputs({{"role", Align::kLeft}, {"split"}, {"of"}, {"dimension split", Align::kLeft}});
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
    add_wrapped_row(&inputs, {graph::to_string(role), std::to_string(facts.second.size()), std::to_string(facts.first),
                              slots && !facts.second.empty() ? "with their variables" : which});
  }
  out += inputs.render() + "\n";

  struct Row {
    int count = 0;
    double bytes = 0;
    std::size_t sources = 0;
    std::string pattern, shape;  // what makes them alike
    std::string example, scope;  // of the first
  };
  std::map<std::tuple<sharding::CollectiveKind, std::string, std::string>, std::size_t> at;
  std::vector<std::pair<sharding::CollectiveKind, Row>> rows;
  for (const Collective& c : find_collectives(model, decided, Placement::kDelayed)) {
    const std::string scope = scope_of(model, c.node), pattern = layer_pattern_of(scope);
    const std::string shape = shape_of(model, c.node);
    const auto [place, fresh] = at.emplace(std::make_tuple(c.kind, pattern, shape), rows.size());
    if (fresh) rows.push_back({c.kind, {0, 0, 0, pattern, shape, instruction_name(model, c.node), scope}});
    Row& row = rows[place->second].second;
    ++row.count;
    row.bytes += c.bytes * c.times;
    row.sources += c.kind == sharding::CollectiveKind::kAllReduce ? std::max<std::size_t>(c.sources.size(), 1) : 0;
  }
  if (rows.empty()) return out;
  out +=
      "each sum reduced once, behind the linear instructions that it can pass; XLA's partitioner reduces it at "
      "once:\n\n";
  TextTable table({{"collective", Align::kLeft},
                   {"times"},
                   {"partial sums"},
                   {"bytes per step"},
                   {"of", Align::kLeft},
                   {"in", Align::kLeft},
                   {"such as", Align::kLeft}});
  for (const auto& [kind, row] : rows) {
    table.add_row({sharding::to_string(kind), std::to_string(row.count),
                   row.sources > 0 ? std::to_string(row.sources) : "", format_bytes(row.bytes), row.shape,
                   shorten(row.count == 1 ? row.scope : row.pattern, 50), row.example});
  }
  return out + table.render();
}

std::string tensor_report(const ShardingModel& model, const Propagation& decided, NodeId node) {
  const sharding::Explanation why = explain(model, decided, node);
  std::string out =
      printable(sharding::describe(model, node)) + "\n" + indented(why.summary, "  ") + lines_text(why.lines, "    ");
  bool any = false;
  for (const Collective& c : find_collectives(model, decided, Placement::kDelayed)) {
    if (!takes_part(c, node)) continue;
    out += (any ? "" : "  collectives\n") + indented(collective_line(model, c), "    ");
    any = true;
  }
  if (!any) out += "  no collective reads or makes it\n";
  const sharding::TensorState state = decided.state(node);
  if (!any && state.kind == sharding::TensorStateKind::kSplit) {
    // What its being split costs elsewhere: the sums of its linkage group.
    const std::vector<Collective> sums =
        sharding::collectives_of_group(model, model.linkage().group_of(node, state.dim), Placement::kAtOnce);
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
                             const std::vector<NodeId>& nodes) {
  const Counts counts = count_tensors(model, decided);
  Json d;
  d["schema"] = "automap.explanation/1";
  d["kind"] = plan.kind;
  d["shards"] = plan.shards;
  d["partitioned"] = plan.partitioned;
  d["tensors_split"] = counts.split;
  d["partial_sums"] = plan.partial_sums;
  const std::vector<Collective> collectives = find_collectives(model, decided, Placement::kDelayed);
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
         {"partial",
          state.partial == sharding::Reduction::kNone ? Json(nullptr) : Json(sharding::to_string(state.partial))},
         {"summary", why.summary},
         {"lines", why.lines},
         {"collectives", own}});
  }
  return json_text(d);
}

}  // namespace automap::search
