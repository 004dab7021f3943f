#include "common/sharding/explain.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include "common/base/text_table.h"
#include "common/graph/layers.h"

namespace automap::sharding {

namespace {

using graph::FlowGraph;
using graph::FlowNode;
using graph::Opcode;

// A chain is shown in this many lines; a line says how many are left out.
constexpr std::size_t kHeadLines = 6, kTailLines = 6;
constexpr std::size_t kMaxNames = 4;

const ModelInput* input_of(const ShardingModel& model, NodeId node) {
  for (const ModelInput& input : model.inputs()) {
    if (input.node == node) return &input;
  }
  return nullptr;
}

bool is_backward(const std::string& op_name) {
  return op_name.compare(0, 10, "transpose(") == 0 || op_name.find("/transpose(") != std::string::npos;
}

// "layer_0/ffn", "layer_0/ffn, backward"; "" when nothing is known.
std::string layer_of(const ShardingModel& model, NodeId node) {
  bool backward = false;
  std::string out;
  for (const std::string& scope : scopes_of(model, node, &backward)) out += (out.empty() ? "" : "/") + scope;
  if (backward) out += out.empty() ? "backward" : ", backward";
  return out;
}

// "params['wi']" for an input, "dot.123" for anything else.
std::string short_name(const ShardingModel& model, NodeId node) {
  const FlowGraph& flow = model.flow();
  const FlowNode& at = flow.node(node);
  if (at.opcode == Opcode::kParameter) {
    if (const ModelInput* input = input_of(model, node)) return input->name;
  }
  const graph::Instruction& instruction = flow.graph().instruction(at.instruction);
  std::string name(instruction.name);
  if (at.leaf != kNone && instruction.opcode != Opcode::kGetTupleElement) name += "#" + std::to_string(at.leaf);
  return name;
}

// "dot.123 (layer_0/ffn)".
std::string place(const ShardingModel& model, NodeId node) {
  std::string out = short_name(model, node);
  if (input_of(model, node) != nullptr) return out;
  const std::string layer = layer_of(model, node);
  if (!layer.empty()) out += " (" + layer + ")";
  return out;
}

std::string dimension(const ShardingModel& model, TensorDim at) {
  return short_name(model, at.node) + " dimension " + std::to_string(at.dim);
}

std::int64_t extent_of(const ShardingModel& model, TensorDim at) {
  const std::vector<std::int64_t>& dims = model.flow().shape(at.node).dims;
  const auto d = static_cast<std::size_t>(at.dim);
  return at.dim >= 0 && d < dims.size() ? dims[d] : 0;
}

bool is_node(const ShardingModel& model, NodeId node) {
  return node >= 0 && node < model.flow().size();
}

// "a, b and 3 more".
std::string list_text(const std::vector<std::string>& names, std::size_t most = kMaxNames) {
  std::string out;
  const std::size_t shown = names.size() > most ? most : names.size();
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) out += shown == names.size() && i + 1 == shown ? " and " : ", ";
    out += names[i];
  }
  if (shown < names.size()) out += " and " + std::to_string(names.size() - shown) + " more";
  return out;
}

// Numbers of shards that divide `extent`, around `shards`: "4, 6 or 12".
std::string divisors_text(std::int64_t extent, int shards) {
  std::vector<std::int64_t> below, above;
  for (std::int64_t d = 1; d <= extent / d; ++d) {
    if (extent % d != 0) continue;
    for (const std::int64_t divisor : {d, extent / d}) {
      if (divisor < 2) continue;
      (divisor < shards ? below : above).push_back(divisor);
    }
  }
  const auto tidy = [](std::vector<std::int64_t>* list) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  };
  tidy(&below);
  tidy(&above);
  if (below.size() > 3) below.erase(below.begin(), below.end() - 3);
  if (above.size() > 2) above.resize(2);
  below.insert(below.end(), above.begin(), above.end());
  std::string out;
  for (std::size_t i = 0; i < below.size(); ++i) {
    if (i > 0) out += i + 1 == below.size() ? " or " : ", ";
    out += std::to_string(below[i]);
  }
  return out;
}

std::string_view reason(Block block) {
  switch (block) {
    case Block::kHalo: return "each device would need its neighbours' elements";
    case Block::kWhole: return "the instruction needs the whole dimension";
    case Block::kMinor: return "it is the minor part of a reshape, whose elements would not stay together";
    case Block::kOpaque: return "no rule looks inside this instruction";
  }
  return "";
}

// "dot.5 (ffn): params['wi'] dimension 1 = its dimension 2".
std::string link_line(const ShardingModel& model, const ChainLink& link) {
  if (link.op == kNone) {
    return "from step to step: " + dimension(model, link.from) + " = " + dimension(model, link.to);
  }
  const auto side = [&](TensorDim at) {
    if (at.node == link.op) return "its dimension " + std::to_string(at.dim);
    return dimension(model, at);
  };
  return place(model, link.op) + ": " + side(link.from) + " = " + side(link.to);
}

void add_chain(const ShardingModel& model, const std::vector<ChainLink>& links, std::vector<std::string>* lines) {
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (links.size() > kHeadLines + kTailLines + 1 && i == kHeadLines) {
      const std::size_t left_out = links.size() - kHeadLines - kTailLines;
      // The layers that are passed on the way, each once.
      std::vector<std::string> layers;
      for (std::size_t k = i; k < i + left_out; ++k) {
        if (links[k].op == kNone) continue;
        const std::string layer = layer_of(model, links[k].op);
        if (!layer.empty() && std::find(layers.begin(), layers.end(), layer) == layers.end()) layers.push_back(layer);
      }
      lines->push_back("... " + std::to_string(left_out) + " more instructions" +
                       (layers.empty() ? "" : " in " + list_text(layers)));
      i += left_out;
    }
    lines->push_back(link_line(model, links[i]));
  }
}

// The chain with a heading that says where it leads.
void add_story(const ShardingModel& model, TensorDim from, TensorDim to, const std::vector<ChainLink>& links,
               std::vector<std::string>* lines) {
  if (from.node == kNone || to.node == kNone) return;
  if (links.empty()) {
    if (from == to) lines->push_back(describe(model, from) + " is there itself");
    return;
  }
  lines->push_back("from " + describe(model, from) + " to " + dimension(model, to) + ":");
  std::vector<std::string> chain_lines;
  add_chain(model, links, &chain_lines);
  for (std::string& line : chain_lines) lines->push_back("  " + std::move(line));
}

// The first one that no number of shards would remove, else the first.
const Obstacle& main_obstacle(Span<const Obstacle> obstacles) {
  for (const Obstacle& obstacle : obstacles) {
    if (obstacle.kind != Obstacle::Kind::kIndivisible) return obstacle;
  }
  return obstacles[0];
}

TensorDim first_input(const Linkage& linkage, GroupId group) {
  const Span<const TensorDim> inputs = linkage.inputs(group);
  if (!inputs.empty()) return inputs[0];
  const Span<const TensorDim> members = linkage.members(group);
  return members.empty() ? TensorDim{} : members[0];
}

// The problem where two members of a group meet.
std::string meeting_text(const ShardingModel& model, const Obstacle& at) {
  if (at.kind == Obstacle::Kind::kTwoDims) {
    return place(model, at.a.node) + " would be split along its dimensions " + std::to_string(at.a.dim) + " and " +
           std::to_string(at.b.dim) + " at once";
  }
  return place(model, at.op) + " would be split along two dimensions at once (" + dimension(model, at.a) + " and " +
         dimension(model, at.b) + ")";
}

std::string obstacle_text(const ShardingModel& model, GroupId group, const Obstacle& obstacle) {
  const Linkage& linkage = model.linkage();
  switch (obstacle.kind) {
    case Obstacle::Kind::kIndivisible: {
      std::int64_t common = 0;
      bool only = true;
      for (const Obstacle& other : linkage.obstacles(group)) {
        if (other.kind == Obstacle::Kind::kIndivisible)
          common = std::gcd(common, other.extent);
        else
          only = false;
      }
      const std::string shards = std::to_string(linkage.shards());
      std::string out =
          obstacle.op == kNone || obstacle.op == obstacle.a.node
              ? describe(model, obstacle.a) + ": " + shards + " shards do not divide " + std::to_string(obstacle.extent)
              : place(model, obstacle.op) + ": " + shards + " shards do not divide " + std::to_string(obstacle.extent) +
                    ", the part of " + dimension(model, obstacle.a) + " that stays together";
      if (!only) return out;
      const std::string divisors = divisors_text(common, linkage.shards());
      return out + (divisors.empty() ? "; no number of shards would" : "; " + divisors + " shards would");
    }
    case Obstacle::Kind::kBlocked: {
      std::string out = place(model, obstacle.op) + " cannot be split along " + dimension(model, obstacle.a) + ": " +
                        std::string(reason(obstacle.block));
      const std::string_view says = rule_family(model.flow().node(obstacle.op).opcode).says;
      if (!says.empty()) out += " (" + std::string(says) + ")";
      return out;
    }
    case Obstacle::Kind::kTwoDims:
    case Obstacle::Kind::kTwoFactors: return meeting_text(model, obstacle);
    case Obstacle::Kind::kGathered:
      return place(model, obstacle.op) + " reads " + short_name(model, obstacle.a.node) +
             " whole (an all-gather was asked for there)";
  }
  return "";
}

// The decision that excludes a group; node kNone: there is none.
TensorDim excluded_by(const Propagation& decided, GroupId group) {
  const Linkage& linkage = decided.linkage();
  if (decided.group_state(group) != GroupState::kExcluded) return {};
  for (const GroupId other : linkage.neighbours(group)) {
    if (decided.group_state(other) != GroupState::kSplit) continue;
    const TensorDim by = decided.decided_by(other);
    return by.node == kNone ? first_input(linkage, other) : by;
  }
  return {};
}

// Why a dimension of a replicated tensor is not split.
std::string dimension_reason(const ShardingModel& model, const Propagation& decided, TensorDim at) {
  const Linkage& linkage = model.linkage();
  const GroupId group = linkage.group_of(at);
  const std::string head = "dimension " + std::to_string(at.dim) + " (" + std::to_string(extent_of(model, at)) + "): ";
  if (group == kNone) return head + "nothing to split";
  switch (decided.group_state(group)) {
    case GroupState::kUndecided: return head + "undecided";
    case GroupState::kSplit: return head + "split";
    case GroupState::kWhole: {
      const TensorDim by = decided.decided_by(group);
      if (by.node == kNone || by == at) return head + "decided to stay whole";
      return head + "stays whole with " + dimension(model, by) + ", as was decided";
    }
    case GroupState::kExcluded: {
      const TensorDim by = excluded_by(decided, group);
      if (by.node == kNone) return head + "excluded";
      if (by.node == at.node) return head + "excluded, dimension " + std::to_string(by.dim) + " is split";
      return head + "excluded by " + dimension(model, by) + ": " +
             meeting_text(model, linkage.meeting(group, linkage.group_of(by)));
    }
    case GroupState::kImpossible: {
      const Span<const Obstacle> obstacles = linkage.obstacles(group);
      if (obstacles.empty()) return head + "no input of the module is split with it";
      return head + obstacle_text(model, group, main_obstacle(obstacles));
    }
  }
  return head;
}

}  // namespace

std::vector<ChainLink> chain(const ShardingModel& model, TensorDim from, TensorDim to) {
  const Linkage& linkage = model.linkage();
  if (!is_node(model, from.node) || !is_node(model, to.node) || from == to) return {};
  const GroupId group = linkage.group_of(from);
  if (group == kNone || group != linkage.group_of(to)) return {};
  const auto key = [](TensorDim at) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(at.node)) << 32) | static_cast<std::uint32_t>(at.dim);
  };
  std::unordered_map<std::uint64_t, std::vector<std::int32_t>> factors;
  for (const std::int32_t index : linkage.factors_of_group(group)) {
    for (const TensorDim member : linkage.factor(index).members) factors[key(member)].push_back(index);
  }
  std::unordered_map<NodeId, std::vector<NodeId>> ties;
  for (const Tie& tie : linkage.ties()) {
    ties[tie.first].push_back(tie.second);
    ties[tie.second].push_back(tie.first);
  }
  std::unordered_map<std::uint64_t, ChainLink> before;
  std::unordered_map<std::int32_t, bool> used;  // factors whose members have all been reached
  before[key(from)] = {};
  std::vector<TensorDim> queue{from};
  bool found = false;
  for (std::size_t head = 0; head < queue.size() && !found; ++head) {
    const TensorDim at = queue[head];
    const auto reach = [&](NodeId op, TensorDim next) {
      if (!before.try_emplace(key(next), ChainLink{op, at, next}).second) return;
      queue.push_back(next);
      found = found || next == to;
    };
    const auto mine = factors.find(key(at));
    if (mine != factors.end()) {
      for (const std::int32_t index : mine->second) {
        if (std::exchange(used[index], true)) continue;
        const OpFactor& factor = linkage.factor(index);
        for (const TensorDim member : factor.members) reach(factor.op, member);
      }
    }
    const auto tied = ties.find(at.node);
    if (tied != ties.end()) {
      for (const NodeId other : tied->second) {
        const TensorDim next{other, at.dim};
        if (linkage.group_of(next) == group) reach(kNone, next);
      }
    }
  }
  if (!found) return {};
  std::vector<ChainLink> links;
  for (TensorDim at = to; !(at == from);) {
    links.push_back(before.at(key(at)));
    at = links.back().from;
  }
  std::reverse(links.begin(), links.end());
  return links;
}

std::vector<std::string> scopes_of(const ShardingModel& model, NodeId node, bool* backward) {
  const FlowGraph& flow = model.flow();
  std::vector<std::string> scopes;
  bool is_of_backward = false;
  graph::InstructionId instruction = flow.node(node).instruction;
  std::int32_t site = flow.node(node).site;
  // A value that a tuple hands on has no name of its own; its producer has one.
  if (flow.graph().op_name(instruction).empty()) instruction = flow.node(flow.producer(node)).instruction;
  for (;;) {
    const std::string op_name = flow.graph().op_name(instruction);
    std::vector<std::string> before = graph::scopes_of(op_name);
    is_of_backward = is_of_backward || is_backward(op_name);
    // A name inside a called computation repeats the caller's in some versions and is relative to it in others.
    const bool told = scopes.size() >= before.size() && std::equal(before.begin(), before.end(), scopes.begin());
    if (!told) scopes.insert(scopes.begin(), before.begin(), before.end());
    const bool complete = op_name.compare(0, 4, "jit(") == 0 || op_name.compare(0, 5, "pjit(") == 0;
    if (site == kNone || (complete && !scopes.empty())) break;
    const graph::CallSite& at = flow.sites()[static_cast<std::size_t>(site)];
    instruction = at.caller;
    site = at.parent;
  }
  if (backward != nullptr) *backward = is_of_backward;
  return scopes;
}

std::string describe(const ShardingModel& model, NodeId node) {
  if (!is_node(model, node)) return "nothing";
  std::string out = short_name(model, node) + " " + std::string(model.flow().shape(node).text);
  if (input_of(model, node) != nullptr) return out;
  const std::string layer = layer_of(model, node);
  if (!layer.empty()) out += " (" + layer + ")";
  return out;
}

std::string describe(const ShardingModel& model, TensorDim at) {
  if (!is_node(model, at.node)) return "nothing";
  return dimension(model, at) + " (" + std::to_string(extent_of(model, at)) + ")";
}

namespace {

void explain_split(const ShardingModel& model, const Propagation& decided, NodeId node, Explanation* out) {
  const Linkage& linkage = model.linkage();
  const TensorState state = decided.state(node);
  const std::string name = place(model, node);
  out->kind = Explanation::Kind::kSplit;
  const TensorDim at{node, state.dim};
  const GroupId group = linkage.group_of(at);
  TensorDim by = decided.decided_by(group);
  if (by.node == kNone) by = first_input(linkage, group);
  out->summary = name + " is split along dimension " + std::to_string(state.dim) + " (" +
                 std::to_string(extent_of(model, at)) + ")";
  if (by == at) {
    out->summary += ": decided so";
    const std::size_t others = linkage.inputs(group).size() - 1;
    if (others > 0) {
      std::vector<std::string> names;
      for (const TensorDim input : linkage.inputs(group)) {
        if (!(input == at)) names.push_back(dimension(model, input));
      }
      out->lines.push_back("together with " + list_text(names));
    }
  } else {
    out->summary += " because " + dimension(model, by) + " is";
    out->links = chain(model, by, at);
    add_story(model, by, at, out->links, &out->lines);
  }
  for (const Collective& c : find_collectives(model, decided, listed_placement(model))) {
    if (c.kind != CollectiveKind::kPermute || c.node != node) continue;
    out->lines.push_back("every device takes " + std::to_string(std::abs(c.border)) + " more of its " +
                         (c.border < 0 ? "left" : "right") + " neighbour's (" + format_bytes(c.bytes) + ") for " +
                         place(model, c.sources[0]) +
                         (c.sources.size() > 1 ? " and " + std::to_string(c.sources.size() - 1) + " more" : ""));
  }
}

void explain_partial(const ShardingModel& model, const Propagation& decided, NodeId node, Explanation* out) {
  const Linkage& linkage = model.linkage();
  const TensorState state = decided.state(node);
  const std::string name = place(model, node);
  out->kind = Explanation::Kind::kPartial;
  const NodeId op = model.flow().producer(node);
  TensorDim inner, by;
  for (const OpFactor& factor : linkage.factors(op)) {
    if (factor.group == kNone || decided.group_state(factor.group) != GroupState::kSplit) continue;
    if (std::find(factor.partial.begin(), factor.partial.end(), node) == factor.partial.end()) continue;
    inner = factor.members[0];
    by = decided.decided_by(factor.group);
    if (by.node == kNone) by = first_input(linkage, factor.group);
  }
  out->summary = name + " holds partial results on every device (" + std::string(to_string(state.partial)) + ")";
  if (inner.node != kNone) {
    out->summary += ", because " + dimension(model, inner) + " is split and " +
                    (state.partial == Reduction::kAdd ? "summed over" : "reduced") + " there";
    out->links = chain(model, by, inner);
    add_story(model, by, inner, out->links, &out->lines);
  }
  for (const Collective& c : find_collectives(model, decided, listed_placement(model))) {
    if (!c.reduces() || std::find(c.sources.begin(), c.sources.end(), op) == c.sources.end()) continue;
    std::string line = std::string("reduced by an all-reduce of ") + format_bytes(c.bytes) + " at " +
                       (c.node == node ? "once" : place(model, c.node));
    if (c.sources.size() > 1) line += ", together with " + std::to_string(c.sources.size() - 1) + " more";
    if (c.times > 1) line += ", " + std::to_string(static_cast<std::int64_t>(c.times)) + " times a step";
    out->lines.push_back(std::move(line));
  }
}

}  // namespace

Explanation explain(const ShardingModel& model, const Propagation& decided, NodeId node) {
  Explanation out;
  out.at = node;
  if (!is_node(model, node)) {
    out.summary = "there is no such tensor";
    return out;
  }
  const Linkage& linkage = model.linkage();
  const TensorState state = decided.state(node);
  if (state.kind == TensorStateKind::kSplit) {
    explain_split(model, decided, node, &out);
    return out;
  }
  if (state.partial != Reduction::kNone) {
    explain_partial(model, decided, node, &out);
    return out;
  }
  const std::string name = place(model, node);
  const Span<const GroupId> groups = linkage.groups_of(node);
  std::vector<GroupId> open;
  for (const GroupId group : groups) {
    if (group != kNone && decided.group_state(group) == GroupState::kUndecided &&
        std::find(open.begin(), open.end(), group) == open.end())
      open.push_back(group);
  }
  if (state.kind == TensorStateKind::kUndecided) {
    out.kind = Explanation::Kind::kUndecided;
    std::vector<std::string> deciders;
    for (const GroupId group : open) {
      for (const TensorDim input : linkage.inputs(group)) deciders.push_back(dimension(model, input));
    }
    out.summary = name + " is undecided: it depends on " + list_text(deciders);
  } else {
    out.kind = Explanation::Kind::kReplicated;
    out.summary = name + " is replicated";
    if (model.flow().shape(node).dims.empty()) {
      out.summary += ": a scalar is whole on every device";
      return out;
    }
    if (linkage.is_free(node)) {
      out.summary += ": it is made of constants alone, and made again where a part of it is needed";
      return out;
    }
  }
  for (std::size_t d = 0; d < groups.size(); ++d) {
    const TensorDim at{node, static_cast<std::int32_t>(d)};
    out.lines.push_back(dimension_reason(model, decided, at));
    if (groups[d] == kNone || !out.links.empty() || !out.other_links.empty()) continue;
    const TensorDim by = excluded_by(decided, groups[d]);
    if (by.node == kNone) continue;
    // The chains of one exclusion are enough.
    const Obstacle meeting = linkage.meeting(groups[d], linkage.group_of(by));
    out.links = chain(model, at, meeting.a);
    out.other_links = chain(model, by, meeting.b);
    std::vector<std::string> story;
    add_story(model, at, meeting.a, out.links, &story);
    add_story(model, by, meeting.b, out.other_links, &story);
    for (std::string& line : story) out.lines.push_back("  " + std::move(line));
  }
  return out;
}

Explanation explain(const ShardingModel& model, const Propagation& decided, const Conflict& conflict) {
  const Linkage& linkage = model.linkage();
  Explanation out;
  out.kind = Explanation::Kind::kConflict;
  TensorDim wanted = conflict.wanted;
  if (wanted.node == kNone && conflict.group != kNone) wanted = first_input(linkage, conflict.group);
  const std::string name = describe(model, wanted);
  switch (conflict.kind) {
    case Conflict::Kind::kImpossible:
      if (conflict.group == kNone) break;
      return explain_obstacle(model, conflict.group, wanted);
    case Conflict::Kind::kExcluded: {
      TensorDim earlier = conflict.earlier;
      if (earlier.node == kNone) earlier = decided.decided_by(conflict.other);
      if (earlier.node == kNone) earlier = first_input(linkage, conflict.other);
      out.summary = name + " and " + describe(model, earlier) + " cannot both be split: ";
      if (wanted.node == earlier.node) {
        out.at = wanted.node;
        out.summary += "they are two dimensions of one tensor";
        return out;
      }
      const Obstacle at = linkage.meeting(conflict.group, conflict.other);
      if (at.a.node == kNone) break;
      out.at = at.kind == Obstacle::Kind::kTwoDims ? at.a.node : at.op;
      out.summary += meeting_text(model, at);
      out.links = chain(model, wanted, at.a);
      out.other_links = chain(model, earlier, at.b);
      add_story(model, wanted, at.a, out.links, &out.lines);
      add_story(model, earlier, at.b, out.other_links, &out.lines);
      return out;
    }
    case Conflict::Kind::kWhole: {
      const TensorDim earlier = conflict.earlier.node != kNone ? conflict.earlier : decided.decided_by(conflict.group);
      out.at = wanted.node;
      if (earlier.node == kNone || earlier == wanted) {
        out.summary = name + " cannot be split: an earlier decision keeps it whole";
        return out;
      }
      out.summary = name + " cannot be split: " + describe(model, earlier) + " was decided to stay whole";
      out.links = chain(model, wanted, earlier);
      if (!out.links.empty()) out.summary += ", and the two can only be split together";
      add_story(model, wanted, earlier, out.links, &out.lines);
      return out;
    }
    case Conflict::Kind::kNoGroup: {
      out.kind = Explanation::Kind::kImpossible;
      out.at = wanted.node;
      if (!is_node(model, wanted.node)) break;
      const std::size_t rank = model.flow().shape(wanted.node).dims.size();
      std::string why = "there is nothing to split in an extent of " + std::to_string(extent_of(model, wanted));
      if (rank == 0) {
        why = "a scalar has no dimensions";
      } else if (wanted.dim < 0 || static_cast<std::size_t>(wanted.dim) >= rank) {
        why = "it has " + std::to_string(rank) + " dimension" + (rank == 1 ? "" : "s") + ", numbered from 0";
      } else if (linkage.is_free(wanted.node)) {
        why = "it is made of constants alone, and made again where a part of it is needed";
      }
      out.summary = dimension(model, wanted) + " cannot be split: " + why;
      return out;
    }
    case Conflict::Kind::kSplit: {
      const TensorDim earlier = conflict.earlier.node != kNone ? conflict.earlier : decided.decided_by(conflict.group);
      out.at = wanted.node;
      out.summary = name + " cannot be kept whole: ";
      if (earlier.node == kNone || earlier == wanted) {
        out.summary += "it was decided to be split";
        return out;
      }
      out.summary += "it is split because " + dimension(model, earlier) + " is";
      out.links = chain(model, earlier, wanted);
      add_story(model, earlier, wanted, out.links, &out.lines);
      return out;
    }
  }
  out.summary = name + " cannot be decided so";
  return out;
}

Explanation explain_obstacle(const ShardingModel& model, GroupId group, TensorDim from) {
  const Linkage& linkage = model.linkage();
  Explanation out;
  out.kind = Explanation::Kind::kImpossible;
  if (group < 0 || group >= linkage.num_groups()) {
    out.summary = "there is no such group";
    return out;
  }
  if (linkage.group_of(from) != group) from = first_input(linkage, group);
  const Span<const Obstacle> obstacles = linkage.obstacles(group);
  if (obstacles.empty()) {
    out.at = from.node;
    out.summary = linkage.inputs(group).empty()
                      ? describe(model, from) + " cannot be decided: no input of the module is split with it"
                      : describe(model, from) + " can be split";
    return out;
  }
  const Obstacle& first = main_obstacle(obstacles);
  out.at = first.kind == Obstacle::Kind::kTwoDims || first.op == kNone ? first.a.node : first.op;
  out.summary = describe(model, from) + " cannot be split: ";
  if (first.kind == Obstacle::Kind::kIndivisible && from == first.a && first.op == kNone) {
    // Not its name twice.
    const std::string text = obstacle_text(model, group, first);
    out.summary += text.substr(describe(model, first.a).size() + 2);
  } else {
    out.summary += obstacle_text(model, group, first);
  }
  out.links = chain(model, from, first.a);
  if (!(from == first.a)) add_story(model, from, first.a, out.links, &out.lines);
  if (first.kind == Obstacle::Kind::kTwoDims || first.kind == Obstacle::Kind::kTwoFactors) {
    out.other_links = chain(model, from, first.b);
    if (!(from == first.b)) add_story(model, from, first.b, out.other_links, &out.lines);
  }
  if (obstacles.size() > 1) {
    const std::size_t more = obstacles.size() - 1;
    out.lines.push_back((obstacles.size() >= Linkage::kMaxObstacles ? "at least " : "") + std::to_string(more) +
                        " more obstacle" + (more == 1 ? "" : "s"));
  }
  return out;
}

std::vector<Stuck> explain_stuck(const ShardingModel& model, const Propagation& decided) {
  const Linkage& linkage = model.linkage();
  std::vector<Stuck> out;
  for (const GroupId group : decided.undecided()) {
    Stuck stuck;
    stuck.group = group;
    NodeId last = kNone;
    for (const TensorDim member : linkage.members(group)) {
      if (member.node == last) continue;
      last = member.node;
      if (decided.state(member.node).kind == TensorStateKind::kUndecided) ++stuck.tensors;
    }
    const Span<const TensorDim> inputs = linkage.inputs(group);
    stuck.deciders.assign(inputs.begin(), inputs.end());
    out.push_back(std::move(stuck));
  }
  std::stable_sort(out.begin(), out.end(), [](const Stuck& a, const Stuck& b) { return a.tensors > b.tensors; });
  return out;
}

}  // namespace automap::sharding
