#include "plan/partition/data_parallel.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "common/base/error.h"
#include "common/graph/hlo_cost.h"
#include "common/graph/random_key.h"

namespace automap::partition {

namespace {

using graph::kNone;
using graph::NodeId;
using sharding::Gather;
using sharding::GroupId;
using sharding::Linkage;
using sharding::Obstacle;
using sharding::OpFactor;
using sharding::ShardingModel;
using sharding::TensorDim;

std::size_t index(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

// A minimum cut by Dinic's algorithm, grown from the sink: the side of the sink is small here, since cheap edges lie
// close around it. Edges and infinite edges to the sink may be added between calls of run().
class Cut {
 public:
  static constexpr std::int64_t kInfinite = std::int64_t{1} << 60;

  std::int32_t add_node() {
    first_.push_back(kNone);
    return static_cast<std::int32_t>(first_.size()) - 1;
  }
  std::int32_t size() const { return static_cast<std::int32_t>(first_.size()); }
  // `from` on the source's side and `to` on the sink's costs `cost`; `back` the other way round.
  void add_edge(std::int32_t from, std::int32_t to, std::int64_t cost, std::int64_t back = 0) {
    edges_.push_back({to, first_[index(from)], cost});
    first_[index(from)] = static_cast<std::int32_t>(edges_.size()) - 1;
    edges_.push_back({from, first_[index(to)], back});
    first_[index(to)] = static_cast<std::int32_t>(edges_.size()) - 1;
  }
  // The cost of the minimum cut; kInfinite when there is none.
  std::int64_t run(std::int32_t source, std::int32_t sink) {
    while (cost_ < kInfinite && find_levels(source, sink)) {
      next_ = first_;
      push(source, sink);
    }
    return std::min(cost_, kInfinite);
  }
  // After run(): cannot be on any other side but the sink's in a minimum cut. The rest is the largest source's side.
  bool on_sink_side(std::int32_t node) const { return level_[index(node)] >= 0; }

 private:
  struct Edge {
    std::int32_t to = kNone, next = kNone;
    std::int64_t left = 0;
  };

  // Distances to the sink over edges with capacity left. Complete when the source is out of reach.
  bool find_levels(std::int32_t source, std::int32_t sink) {
    level_.assign(first_.size(), -1);
    queue_.assign(1, sink);
    level_[index(sink)] = 0;
    for (std::size_t at = 0; at < queue_.size(); ++at) {
      const std::int32_t node = queue_[at];
      for (std::int32_t e = first_[index(node)]; e != kNone; e = edges_[index(e)].next) {
        const std::int32_t from = edges_[index(e)].to;
        if (level_[index(from)] >= 0 || edges_[index(e ^ 1)].left == 0) continue;
        level_[index(from)] = level_[index(node)] + 1;
        if (from == source) return true;
        queue_.push_back(from);
      }
    }
    return false;
  }

  // A blocking flow, depth first without recursion: paths are as deep as the module.
  void push(std::int32_t source, std::int32_t sink) {
    path_.clear();
    std::int32_t node = source;
    while (cost_ < kInfinite) {
      if (node == sink) {
        std::int64_t most = kInfinite;
        for (const std::int32_t e : path_) most = std::min(most, edges_[index(e)].left);
        cost_ += most;
        std::size_t keep = path_.size();
        for (std::size_t i = path_.size(); i-- > 0;) {
          Edge& edge = edges_[index(path_[i])];
          Edge& back = edges_[index(path_[i] ^ 1)];
          edge.left -= most;
          back.left = std::min(kInfinite, back.left + most);
          if (edge.left == 0) keep = i;
        }
        node = edges_[index(path_[keep] ^ 1)].to;
        path_.resize(keep);
        continue;
      }
      std::int32_t& e = next_[index(node)];
      while (e != kNone && (edges_[index(e)].left == 0 || level_[index(edges_[index(e)].to)] < 0 ||
                            level_[index(edges_[index(e)].to)] != level_[index(node)] - 1))
        e = edges_[index(e)].next;
      if (e != kNone) {
        path_.push_back(e);
        node = edges_[index(e)].to;
        continue;
      }
      if (path_.empty()) return;
      level_[index(node)] = -1;  // a dead end in this round
      node = edges_[index(path_.back() ^ 1)].to;
      path_.pop_back();
    }
  }

  std::vector<Edge> edges_;
  std::vector<std::int32_t> first_, next_, level_, queue_, path_;
  std::int64_t cost_ = 0;
};

// The cost of work, as the bytes sent between devices in the same time: devices do about 1000 FLOPs, and touch about 20
// bytes of their memory, in the time of a byte on the wire.
constexpr double kFlopsPerSentByte = 1000;
constexpr double kTouchedPerSentByte = 20;
constexpr double kUnit = 1.0 / 16;       // of the integer costs of the cut, in bytes
constexpr double kBytesOfAGather = 256;  // for its latency: among equals, fewer gathers
constexpr double kMostBytes = 1e15;
constexpr int kMostRounds = 400;
constexpr int kRoundsBetweenCounts = 8;
constexpr int kMostRelinks = 16;
constexpr std::size_t kMostDrops = 64;

std::vector<double> work_of(const graph::Graph& graph) {
  std::vector<double> work(static_cast<std::size_t>(graph.num_instructions()), 0);
  try {
    const graph::ModuleCost cost = graph::analyze_cost(graph);
    for (std::size_t i = 0; i < work.size(); ++i) {
      const graph::Cost& c = cost.instructions[i];
      work[i] = std::max((c.flops + c.transcendentals) / kFlopsPerSentByte, c.bytes / kTouchedPerSentByte);
    }
  } catch (const Error&) {
    // An attribute that cannot be read: sizes will do.
    for (graph::InstructionId id = 0; id < graph.num_instructions(); ++id)
      work[index(id)] = static_cast<double>(graph.shape_of(id).bytes) / kTouchedPerSentByte;
  }
  return work;
}

std::int64_t to_units(double bytes) {
  return static_cast<std::int64_t>(std::llround(std::min(std::max(bytes, 0.0), kMostBytes) / kUnit)) + 1;
}

std::string name_of_input(const ShardingModel& model, NodeId node) {
  for (const sharding::ModelInput& input : model.inputs()) {
    if (input.node == node) return input.name;
  }
  return std::string(model.graph().instruction(model.flow().node(node).instruction).name);
}

std::string dim_name(const ShardingModel& model, TensorDim at) {
  return "dimension " + std::to_string(at.dim) + " of " + name_of_input(model, at.node) + " " +
         std::string(model.flow().shape(at.node).text);
}

std::string megabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g MB", bytes / 1e6);
  return text;
}

class Repairer {
 public:
  Repairer(ShardingModel* model, const std::vector<TensorDim>& together, int most_gathers)
      : model_(*model), together_(together), most_(most_gathers), start_(model->gathers()) {}

  RepairResult run() {
    const int shards = model_.linkage().shards();
    RepairResult result;
    try {
      result = look();
    } catch (...) {
      model_.relink(shards, start_);
      throw;
    }
    if (!result.possible) model_.relink(shards, start_);
    return result;
  }

 private:
  const Linkage& linkage() const { return model_.linkage(); }

  // All of `together` in groups that can be split, at once.
  bool done() const {
    std::set<GroupId> groups;
    for (const TensorDim at : together_) groups.insert(linkage().group_of(at));
    for (const GroupId group : groups) {
      if (!linkage().decidable(group)) return false;
      for (const GroupId other : linkage().neighbours(group)) {
        if (groups.count(other) > 0) return false;
      }
    }
    return true;
  }

  RepairResult look() {
    RepairResult result;
    for (const TensorDim at : together_) {
      if (at.node < 0 || at.node >= model_.flow().size() || !model_.flow().shape(at.node).is_array() || at.dim < 0 ||
          index(at.dim) >= model_.flow().shape(at.node).dims.size()) {
        result.why_not = "there is no dimension " + std::to_string(at.dim) + " of node " + std::to_string(at.node);
        return result;
      }
      if (linkage().group_of(at) == kNone) {
        result.why_not = dim_name(model_, at) + ": an extent of 1, or a value made of constants, cannot be split";
        return result;
      }
    }
    if (done()) {
      result.split_share = 1;
      return succeed(std::move(result), start_);
    }
    result.why_not = check_divisible();
    if (!result.why_not.empty()) return result;

    work_ = work_of(model_.graph());
    const double work = tied_work();
    build();
    result.why_not = choose();
    if (!result.why_not.empty()) return result;
    std::vector<Gather> gathers = start_;
    for (const Gather& gather : cut_gathers()) add(gather, &gathers);
    // The cut sees every place at once; a tensor that a gather closes besides (one that an instruction reads twice)
    // shows up as an obstacle.
    for (int round = 0;; ++round) {
      if (too_many(gathers, &result)) return result;
      model_.relink(linkage().shards(), gathers);
      if (done()) break;
      bool more = false;
      for (const TensorDim at : together_) {
        const GroupId group = linkage().group_of(at);
        for (const Obstacle& obstacle : linkage().obstacles(group)) {
          if (obstacle.kind == Obstacle::Kind::kGathered || obstacle.kind == Obstacle::Kind::kBlocked)
            more = add({obstacle.op, obstacle.a.node, obstacle.a.dim}, &gathers) || more;
        }
      }
      if (!more || round == kMostRelinks) {
        result.why_not = dim_name(model_, together_[0]) + ": no set of gathers was found that takes all obstacles away";
        return result;
      }
    }
    drop_unnecessary(&gathers);
    result.split_share = work > 0 ? std::min(1.0, tied_work() / work) : 0;
    if (result.split_share <= 0) {
      result.why_not = dim_name(model_, together_[0]) + ": nothing but the input itself could be split";
      return result;
    }
    return succeed(std::move(result), std::move(gathers));
  }

  RepairResult succeed(RepairResult result, std::vector<Gather> gathers) const {
    result.possible = true;
    result.gathered_bytes = bytes_of(gathers, &result.gathered_tensors);
    result.gathers = std::move(gathers);
    return result;
  }

  bool too_many(const std::vector<Gather>& gathers, RepairResult* result) const {
    const std::vector<Gather> added(gathers.begin() + static_cast<std::ptrdiff_t>(start_.size()), gathers.end());
    int found = 0;
    const double bytes = bytes_of(added, &found);
    if (found <= most_) return false;
    result->why_not = dim_name(model_, together_[0]) + ": " + std::to_string(found) + " gathers (" + megabytes(bytes) +
                      " per step) would be needed, more than " + std::to_string(most_);
    return true;
  }

  static bool add(const Gather& gather, std::vector<Gather>* gathers) {
    if (std::find(gathers->begin(), gathers->end(), gather) != gathers->end()) return false;
    gathers->push_back(gather);
    return true;
  }

  bool is_result(const Gather& gather) const { return sharding::is_made_whole(model_.flow(), gather); }

  double bytes_of(NodeId tensor) const {
    return static_cast<double>(model_.flow().shape(tensor).bytes) * model_.times(tensor);
  }
  double bytes_of(const std::vector<Gather>& gathers, int* count = nullptr) const {
    std::unordered_set<NodeId> tensors;
    double bytes = 0;
    for (const Gather& gather : gathers) {
      if (!is_result(gather) && tensors.insert(gather.tensor).second) bytes += bytes_of(gather.tensor);
    }
    if (count != nullptr) *count = static_cast<int>(tensors.size());
    return bytes;
  }

  std::string check_divisible() const {
    const auto shards = static_cast<std::int64_t>(linkage().shards());
    for (const TensorDim at : together_) {
      const std::int64_t extent = model_.flow().shape(at.node).dims[index(at.dim)];
      if (extent % shards == 0) continue;
      std::string divisors;
      for (std::int64_t d = 2; d <= std::min<std::int64_t>(extent, 1024); ++d) {
        if (extent % d == 0) divisors += (divisors.empty() ? "" : ", ") + std::to_string(d);
      }
      return dim_name(model_, at) + ": " + std::to_string(shards) + " shards do not divide " + std::to_string(extent) +
             (divisors.empty() ? "; nothing up to 1024 does" : "; these do: " + divisors);
    }
    return "";
  }

  // --- The cut ---

  std::int32_t& slot(TensorDim at) { return of_dim_[index(first_dim_[index(at.node)] + at.dim)]; }

  bool holds_slot(NodeId node) {
    const auto rank = static_cast<std::int32_t>(linkage().groups_of(node).size());
    for (std::int32_t dim = 0; dim < rank; ++dim) {
      if (slot({node, dim}) != kNone) return true;
    }
    return false;
  }

  std::int32_t copy_of(std::int32_t member) {
    std::int32_t& copy = copies_[index(member)];
    if (copy == kNone) {
      copy = cut_.add_node();
      cut_.add_edge(index_node(member), copy, to_units(bytes_of(members_[index(member)].node) + kBytesOfAGather));
    }
    return copy;
  }
  // Members are the nodes right behind source and sink.
  static std::int32_t index_node(std::int32_t member) { return member + 2; }

  void build() {
    const graph::FlowGraph& flow = model_.flow();
    const double lost = 1 - 1.0 / linkage().shards();
    first_dim_.assign(index(flow.size()) + 1, 0);
    for (NodeId node = 0; node < flow.size(); ++node)
      first_dim_[index(node) + 1] =
          first_dim_[index(node)] + static_cast<std::int32_t>(linkage().groups_of(node).size());
    of_dim_.assign(index(first_dim_.back()), kNone);
    cut_ = Cut();
    source_ = cut_.add_node();
    sink_ = cut_.add_node();
    std::vector<GroupId> groups;
    for (const TensorDim at : together_) groups.push_back(linkage().group_of(at));
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    for (const GroupId group : groups) {
      for (const TensorDim member : linkage().members(group)) {
        slot(member) = static_cast<std::int32_t>(members_.size());
        members_.push_back(member);
        cut_.add_node();
      }
    }
    copies_.assign(members_.size(), kNone);
    const auto shards = static_cast<std::int64_t>(linkage().shards());
    for (std::size_t m = 0; m < members_.size(); ++m) {
      if (flow.shape(members_[m].node).dims[index(members_[m].dim)] % shards != 0)
        cut_.add_edge(index_node(static_cast<std::int32_t>(m)), sink_, Cut::kInfinite);
    }
    for (const TensorDim at : together_) cut_.add_edge(source_, index_node(slot(at)), Cut::kInfinite);
    for (const GroupId group : groups) {
      for (const std::int32_t f : linkage().factors_of_group(group)) {
        const OpFactor& factor = linkage().factor(f);
        const std::int32_t node = cut_.add_node();
        factors_.push_back({f, node});
        const double bytes = work_[index(flow.node(factor.op).instruction)] * model_.times(factor.op) * lost;
        cut_.add_edge(source_, node, to_units(bytes));
        // Partial sums of values that the batch splits as well (rows that are put back where they came from) are
        // reduced whole to be cut again: that has a price. Those of gradients are part of data parallelism.
        for (const NodeId partial : factor.partial) {
          if (holds_slot(partial)) cut_.add_edge(node, sink_, to_units(2 * bytes_of(partial)));
        }
        for (const TensorDim member : factor.members) {
          const std::int32_t m = slot(member);
          cut_.add_edge(node, index_node(m), Cut::kInfinite);
          if (flow.producer(member.node) != factor.op) cut_.add_edge(copy_of(m), node, Cut::kInfinite);
        }
      }
    }
    for (const auto& [a, b] : linkage().ties()) {
      const auto rank = static_cast<std::int32_t>(linkage().groups_of(a).size());
      for (std::int32_t dim = 0; dim < rank; ++dim) {
        const std::int32_t left = slot({a, dim}), right = slot({b, dim});
        if (left != kNone && right != kNone)
          cut_.add_edge(index_node(left), index_node(right), Cut::kInfinite, Cut::kInfinite);
      }
    }
    for (NodeId op = 0; op < flow.size(); ++op) {
      for (const Linkage::BlockedMember& blocked : linkage().blocked(op)) must_be_whole(op, blocked.at);
    }
    for (const GroupId group : groups) {
      for (const Obstacle& obstacle : linkage().obstacles(group)) {
        if (obstacle.kind == Obstacle::Kind::kGathered) must_be_whole(obstacle.op, obstacle.a);
        if (obstacle.kind != Obstacle::Kind::kIndivisible || obstacle.op == kNone) continue;
        for (const FactorNode& factor : factors_) {
          const OpFactor& f = linkage().factor(factor.factor);
          if (f.op == obstacle.op && f.members[0] == obstacle.a) cut_.add_edge(factor.node, sink_, Cut::kInfinite);
        }
      }
    }
  }

  void must_be_whole(NodeId op, TensorDim at) {
    const std::int32_t m = slot(at);
    if (m == kNone) return;
    whole_.push_back({op, at.node, at.dim});
    // A result can be sliced where it is made.
    if (model_.flow().producer(at.node) != op) cut_.add_edge(copy_of(m), sink_, Cut::kInfinite);
  }

  bool is_split(std::int32_t node) const { return !cut_.on_sink_side(node); }

  // The part of the split side that hangs together with the dimensions asked for: marks of the cut's nodes.
  std::vector<bool> reached() {
    std::vector<std::vector<std::int32_t>> of_member(members_.size());
    for (std::size_t i = 0; i < factors_.size(); ++i) {
      if (!is_split(factors_[i].node)) continue;
      for (const TensorDim member : linkage().factor(factors_[i].factor).members)
        of_member[index(slot(member))].push_back(static_cast<std::int32_t>(i));
    }
    std::unordered_map<std::int32_t, std::vector<std::int32_t>> tied;
    for (const auto& [a, b] : linkage().ties()) {
      const auto rank = static_cast<std::int32_t>(linkage().groups_of(a).size());
      for (std::int32_t dim = 0; dim < rank; ++dim) {
        const std::int32_t left = slot({a, dim}), right = slot({b, dim});
        if (left == kNone || right == kNone) continue;
        tied[left].push_back(right);
        tied[right].push_back(left);
      }
    }
    std::vector<bool> marks(index(cut_.size()), false);
    std::vector<std::int32_t> stack;
    const auto visit = [&](std::int32_t member) {
      if (marks[index(index_node(member))] || !is_split(index_node(member))) return;
      marks[index(index_node(member))] = true;
      stack.push_back(member);
    };
    for (const TensorDim at : together_) visit(slot(at));
    while (!stack.empty()) {
      const std::int32_t member = stack.back();
      stack.pop_back();
      for (const std::int32_t i : of_member[index(member)]) {
        const FactorNode& factor = factors_[index(i)];
        if (marks[index(factor.node)]) continue;
        marks[index(factor.node)] = true;
        for (const TensorDim other : linkage().factor(factor.factor).members) visit(slot(other));
      }
      const auto found = tied.find(member);
      if (found == tied.end()) continue;
      for (const std::int32_t other : found->second) visit(other);
    }
    return marks;
  }

  // Two nodes of the cut that must not both be split; kNone when all is well. The first in the module's order.
  std::pair<std::int32_t, std::int32_t> find_clash() {
    const std::vector<bool> marks = reached();
    std::vector<std::vector<std::int32_t>> of_op(index(model_.flow().size()));
    NodeId first = model_.flow().size();
    std::pair<std::int32_t, std::int32_t> clash{kNone, kNone};
    for (const FactorNode& factor : factors_) {
      if (!marks[index(factor.node)]) continue;
      std::vector<std::int32_t>& here = of_op[index(linkage().factor(factor.factor).op)];
      here.push_back(factor.node);
      if (here.size() >= 2 && linkage().factor(factor.factor).op < first) {
        first = linkage().factor(factor.factor).op;
        clash = {here[0], here[1]};
      }
    }
    std::vector<std::int32_t> of_node(index(model_.flow().size()), kNone);
    for (std::size_t m = 0; m < members_.size(); ++m) {
      const std::int32_t node = index_node(static_cast<std::int32_t>(m));
      if (!marks[index(node)]) continue;
      std::int32_t& before = of_node[index(members_[m].node)];
      if (before != kNone && members_[m].node < first) {
        first = members_[m].node;
        clash = {before, node};
      }
      before = node;
    }
    return clash;
  }

  // Cuts until nothing clashes. A reason when that cannot be.
  std::string choose() {
    if (cut_.run(source_, sink_) >= Cut::kInfinite)
      return dim_name(model_, together_[0]) + " is tied to a dimension that the shards do not divide";
    for (int round = 0; round < kMostRounds; ++round) {
      const auto [a, b] = find_clash();
      if (a == kNone) return "";
      // Hopeless: the number of gathers goes down again only now and then, and never far.
      int found = 0;
      if (round % kRoundsBetweenCounts == 0) bytes_of(cut_gathers(), &found);
      if (found / 3 * 2 - 16 > most_)
        return dim_name(model_, together_[0]) + ": more than " + std::to_string(most_) + " gathers would be needed";
      Cut without_a = cut_;
      without_a.add_edge(a, sink_, Cut::kInfinite);
      const std::int64_t cost_a = without_a.run(source_, sink_);
      Cut without_b = cut_;
      without_b.add_edge(b, sink_, Cut::kInfinite);
      const std::int64_t cost_b = without_b.run(source_, sink_);
      if (cost_a >= Cut::kInfinite && cost_b >= Cut::kInfinite)
        return dim_name(model_, together_[0]) + ": two dimensions of one tensor cannot both be split";
      cut_ = std::move(cost_a < cost_b ? without_a : without_b);
    }
    return dim_name(model_, together_[0]) + ": more than " + std::to_string(kMostRounds) +
           " places where two dimensions meet";
  }

  std::vector<Gather> cut_gathers() {
    const std::vector<bool> marks = reached();
    std::vector<Gather> gathers;
    const auto is_marked = [&](TensorDim at) { return marks[index(index_node(slot(at)))]; };
    for (const FactorNode& factor : factors_) {
      if (is_split(factor.node)) continue;
      const OpFactor& f = linkage().factor(factor.factor);
      for (const TensorDim member : f.members) {
        if (is_marked(member)) add({f.op, member.node, member.dim}, &gathers);
      }
    }
    for (const Gather& whole : whole_) {
      if (is_marked({whole.tensor, whole.dim})) add(whole, &gathers);
    }
    std::sort(gathers.begin(), gathers.end(), [](const Gather& a, const Gather& b) {
      return std::make_tuple(a.op, a.tensor, a.dim) < std::make_tuple(b.op, b.tensor, b.dim);
    });
    return gathers;
  }

  // The largest first, then slices; those the model had stay. It is rare that one can go (the cut is minimal but for
  // the places where two dimensions meet), so that not all of many are tried.
  void drop_unnecessary(std::vector<Gather>* gathers) {
    std::vector<Gather> order(gathers->begin() + static_cast<std::ptrdiff_t>(start_.size()), gathers->end());
    std::stable_sort(order.begin(), order.end(), [&](const Gather& a, const Gather& b) {
      return std::make_pair(is_result(a), -bytes_of(a.tensor)) < std::make_pair(is_result(b), -bytes_of(b.tensor));
    });
    if (order.size() > kMostDrops) order.resize(kMostDrops);
    const int shards = linkage().shards();
    for (const Gather& gather : order) {
      std::vector<Gather> fewer = *gathers;
      fewer.erase(std::find(fewer.begin(), fewer.end(), gather));
      model_.relink(shards, fewer);
      if (done()) *gathers = std::move(fewer);
    }
    model_.relink(shards, *gathers);
  }

  // The work of all instructions with a factor in the groups asked for.
  double tied_work() const {
    const graph::FlowGraph& flow = model_.flow();
    std::unordered_set<NodeId> ops;
    for (const TensorDim at : together_) {
      for (const std::int32_t f : linkage().factors_of_group(linkage().group_of(at)))
        ops.insert(linkage().factor(f).op);
    }
    double sum = 0;
    std::vector<NodeId> sorted(ops.begin(), ops.end());
    std::sort(sorted.begin(), sorted.end());
    for (const NodeId op : sorted) sum += (work_[index(flow.node(op).instruction)] + kUnit) * model_.times(op);
    return sum;
  }

  struct FactorNode {
    std::int32_t factor = kNone;  // Linkage::factor
    std::int32_t node = kNone;    // of the cut
  };

  ShardingModel& model_;
  const std::vector<TensorDim>& together_;
  int most_;
  std::vector<Gather> start_;
  std::vector<double> work_;  // of each instruction, once
  Cut cut_;
  std::int32_t source_ = kNone, sink_ = kNone;
  std::vector<TensorDim> members_;
  std::vector<std::int32_t> first_dim_, of_dim_, copies_;
  std::vector<FactorNode> factors_;
  std::vector<Gather> whole_;
};

}  // namespace

RepairResult repair(ShardingModel* model, TensorDim at, int most_gathers) {
  return repair(model, std::vector<TensorDim>{at}, most_gathers);
}

RepairResult repair(ShardingModel* model, const std::vector<TensorDim>& together, int most_gathers) {
  if (together.empty()) {
    RepairResult result;
    result.why_not = "no dimension was asked for";
    return result;
  }
  return Repairer(model, together, most_gathers).run();
}

std::vector<TensorDim> find_batch(const ShardingModel& model) {
  std::int64_t batch = model.step().batch;
  if (batch <= 1) {
    std::int64_t largest = 0;
    for (const std::int32_t k : model.data()) {
      const graph::Shape& shape = model.flow().shape(model.inputs()[index(k)].node);
      if (shape.bytes > largest) {
        largest = shape.bytes;
        batch = shape.dims[0];
      }
    }
  }
  std::vector<TensorDim> out;
  for (const std::int32_t k : model.data()) {
    const NodeId node = model.inputs()[index(k)].node;
    const graph::Shape& shape = model.flow().shape(node);
    const std::vector<std::int64_t>& dims = shape.dims;
    if (graph::is_random_key(shape)) continue;  // whatever the batch is
    const auto found = std::find(dims.begin(), dims.end(), batch);
    if (found == dims.end() || batch <= 1) continue;
    out.push_back({node, static_cast<std::int32_t>(found - dims.begin())});
  }
  return out;
}

}  // namespace automap::partition
