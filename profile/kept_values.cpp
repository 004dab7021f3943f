#include "profile/kept_values.h"

#include <algorithm>
#include <limits>
#include <queue>

namespace automap::profile {

using graph::FlowGraph;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;

bool is_made_again(const FlowGraph& flow, NodeId id) {
  const Opcode opcode = flow.node(id).opcode;
  if (graph::is_elementwise(opcode) || graph::is_movement(flow, id)) return true;
  switch (opcode) {
    case Opcode::kConcatenate:
    case Opcode::kPad:
    case Opcode::kSlice: return true;
    default: return false;
  }
}

namespace {

// A minimum cut by Dinic's algorithm. Value v is two vertices, 2i and 2i + 1, whose edge has its bytes.
class Cut {
 public:
  std::int32_t add_vertex() {
    head_.push_back(kNone);
    return static_cast<std::int32_t>(head_.size()) - 1;
  }

  void add_edge(std::int32_t from, std::int32_t to, std::int64_t capacity) {
    edges_.push_back({to, head_[static_cast<std::size_t>(from)], capacity});
    head_[static_cast<std::size_t>(from)] = static_cast<std::int32_t>(edges_.size()) - 1;
    edges_.push_back({from, head_[static_cast<std::size_t>(to)], 0});
    head_[static_cast<std::size_t>(to)] = static_cast<std::int32_t>(edges_.size()) - 1;
  }

  // Afterwards reaches_sink() says on which side each vertex is.
  void run(std::int32_t source, std::int32_t sink) {
    sink_ = sink;
    while (find_levels(source)) {
      next_ = head_;
      while (augment(source)) {
      }
    }
    find_sink_side();
  }

  bool reaches_sink(std::int32_t vertex) const { return sink_side_[static_cast<std::size_t>(vertex)]; }

  static constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max() / 4;

 private:
  struct Edge {
    std::int32_t to, next;
    std::int64_t left;
  };

  bool find_levels(std::int32_t source) {
    level_.assign(head_.size(), kNone);
    level_[static_cast<std::size_t>(source)] = 0;
    std::queue<std::int32_t> open;
    open.push(source);
    while (!open.empty()) {
      const std::int32_t at = open.front();
      open.pop();
      for (std::int32_t e = head_[static_cast<std::size_t>(at)]; e != kNone; e = edge(e).next) {
        auto& level = level_[static_cast<std::size_t>(edge(e).to)];
        if (edge(e).left <= 0 || level != kNone) continue;
        level = level_[static_cast<std::size_t>(at)] + 1;
        open.push(edge(e).to);
      }
    }
    return level_[static_cast<std::size_t>(sink_)] != kNone;
  }

  // One path along the levels; chains of values can be long, so no recursion.
  bool augment(std::int32_t source) {
    path_.clear();
    for (std::int32_t at = source; at != sink_;) {
      auto& e = next_[static_cast<std::size_t>(at)];
      while (e != kNone && (edge(e).left <= 0 ||
                            level_[static_cast<std::size_t>(edge(e).to)] != level_[static_cast<std::size_t>(at)] + 1))
        e = edge(e).next;
      if (e != kNone) {
        path_.push_back(e);
        at = edge(e).to;
        continue;
      }
      if (path_.empty()) return false;
      // A dead end: never again.
      level_[static_cast<std::size_t>(at)] = kNone;
      at = edge(path_.back() ^ 1).to;
      path_.pop_back();
    }
    std::int64_t flow = kEndless;
    for (const std::int32_t e : path_) flow = std::min(flow, edge(e).left);
    for (const std::int32_t e : path_) {
      edge(e).left -= flow;
      edge(e ^ 1).left += flow;
    }
    return true;
  }

  void find_sink_side() {
    sink_side_.assign(head_.size(), false);
    sink_side_[static_cast<std::size_t>(sink_)] = true;
    std::vector<std::int32_t> open{sink_};
    while (!open.empty()) {
      const std::int32_t at = open.back();
      open.pop_back();
      for (std::int32_t e = head_[static_cast<std::size_t>(at)]; e != kNone; e = edge(e).next) {
        const std::int32_t before = edge(e).to;
        if (edge(e ^ 1).left <= 0 || sink_side_[static_cast<std::size_t>(before)]) continue;
        sink_side_[static_cast<std::size_t>(before)] = true;
        open.push_back(before);
      }
    }
  }

  Edge& edge(std::int32_t e) { return edges_[static_cast<std::size_t>(e)]; }

  std::vector<std::int32_t> head_, next_, level_, path_;
  std::vector<Edge> edges_;
  std::vector<bool> sink_side_;
  std::int32_t sink_ = 0;
};

// The smallest form that a value has been in by movement alone; of equal ones the first.
NodeId smallest_form(const KeptFlow& at, const std::vector<bool>& keepable, NodeId id) {
  NodeId best = id;
  while (graph::is_movement(at.flow, id)) {
    id = at.flow.operands(id)[0];
    if (!keepable[static_cast<std::size_t>(id)]) break;
    if (at.bytes(id) <= at.bytes(best)) best = id;
  }
  return best;
}

// Keeps the values that kernels of their own read: one form of each value, and none that is another form of a kept one.
std::vector<NodeId> keep_whole(const KeptFlow& at, const std::vector<bool>& keepable,
                               const std::vector<NodeId>& whole) {
  std::vector<NodeId> forms;
  for (const NodeId id : whole) forms.push_back(smallest_form(at, keepable, id));
  std::sort(forms.begin(), forms.end());
  forms.erase(std::unique(forms.begin(), forms.end()), forms.end());
  std::vector<NodeId> kept;
  for (const NodeId id : forms) {
    bool again = false;
    for (NodeId from = id; !again && graph::is_movement(at.flow, from);) {
      from = at.flow.operands(from)[0];
      again = std::binary_search(forms.begin(), forms.end(), from);
    }
    if (!again) kept.push_back(id);
  }
  return kept;
}

// An exponential whose softmax is kept in some form follows from that and the sum that it was divided by: -> that sum,
// spread; kNone when it does not.
NodeId sum_behind(const KeptFlow& at, NodeId id, const std::vector<NodeId>& kept) {
  const FlowGraph& flow = at.flow;
  if (flow.node(id).opcode != Opcode::kExponential) return kNone;
  for (const NodeId user : flow.users(id)) {
    const Opcode opcode = flow.node(user).opcode;
    if ((opcode != Opcode::kDivide && opcode != Opcode::kMultiply) || flow.operands(user)[0] != id) continue;
    const NodeId by = flow.operands(user)[1];
    if (flow.node(by).opcode != Opcode::kBroadcast || at.bytes(flow.operands(by)[0]) >= at.bytes(by)) continue;
    std::vector<NodeId> forms{user};
    for (std::size_t next = 0; next < forms.size(); ++next) {
      if (std::binary_search(kept.begin(), kept.end(), forms[next])) return by;
      for (const NodeId form : flow.users(forms[next])) {
        if (at.is_forward(form) && graph::is_movement(flow, form)) forms.push_back(form);
      }
    }
  }
  return kNone;
}

}  // namespace

std::vector<bool> find_keepable(const StepPositions& at) {
  const FlowGraph& flow = at.flow();
  std::vector<bool> random(static_cast<std::size_t>(flow.size()), false), keepable(random.size(), false);
  for (NodeId id = 0; id < flow.size(); ++id) {
    const auto i = static_cast<std::size_t>(id);
    if (at.part(id) != graph::Part::kForward) continue;
    const Opcode opcode = flow.node(id).opcode;
    random[i] = opcode == Opcode::kRng || opcode == Opcode::kRngBitGenerator;
    for (const NodeId operand : flow.operands(id)) random[i] = random[i] || random[static_cast<std::size_t>(operand)];
    const bool counts = at.is_activation(id) || (random[i] && at.origin(id) == graph::Origin::kInputs);
    keepable[i] = counts && flow.shape(id).is_array() && at.made_at(id) != kNone;
  }
  return keepable;
}

KeptFlow kept_flow(const StepPositions& at) {
  return {at.flow(), [&at](NodeId id) { return at.bytes(id); },
          [&at](NodeId id) { return at.part(id) == graph::Part::kForward; }};
}

std::vector<NodeId> cheapest_kept(const KeptFlow& at, const std::vector<bool>& keepable,
                                  const std::vector<NodeId>& whole, const std::vector<NodeId>& in_loops) {
  const FlowGraph& flow = at.flow;
  std::vector<NodeId> kept = keep_whole(at, keepable, whole);
  const auto is_kept = [&, size = kept.size()](NodeId id) {
    return std::binary_search(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(size), id);
  };
  Cut cut;
  const std::int32_t source = cut.add_vertex(), sink = cut.add_vertex();
  std::vector<std::int32_t> vertex(static_cast<std::size_t>(flow.size()), kNone);
  std::vector<NodeId> seen;
  const auto visit = [&](NodeId id) {
    auto& in = vertex[static_cast<std::size_t>(id)];
    if (in == kNone) {
      in = cut.add_vertex();
      cut.add_edge(in, cut.add_vertex(), flow.shape(id).bytes);
      seen.push_back(id);
    }
    return in;
  };
  for (NodeId id : in_loops) {
    if (const NodeId sum = sum_behind(at, id, kept); sum != kNone) id = sum;
    if (!is_kept(id) && keepable[static_cast<std::size_t>(id)]) cut.add_edge(visit(id) + 1, sink, Cut::kEndless);
  }
  for (std::size_t next = 0; next < seen.size(); ++next) {
    const NodeId id = seen[next];
    const std::int32_t in = vertex[static_cast<std::size_t>(id)];
    if (!is_made_again(flow, id)) {
      cut.add_edge(source, in, Cut::kEndless);
      continue;
    }
    for (const NodeId operand : flow.operands(id)) {
      if (!keepable[static_cast<std::size_t>(operand)] || is_kept(operand)) continue;
      cut.add_edge(visit(operand) + 1, in, Cut::kEndless);
    }
  }
  cut.run(source, sink);
  for (const NodeId id : seen) {
    const std::int32_t in = vertex[static_cast<std::size_t>(id)];
    if (!cut.reaches_sink(in) && cut.reaches_sink(in + 1)) kept.push_back(id);
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

}  // namespace automap::profile
