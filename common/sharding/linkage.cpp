#include "common/sharding/linkage.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "common/base/check.h"
#include "common/base/error.h"

namespace automap::sharding {

using graph::Graph;
using graph::InstructionId;
using graph::Opcode;
using graph::Shape;

// A set of pairs of groups: open addressing, since the same few pairs come up at almost every instruction.
class PairSet {
 public:
  void insert(GroupId a, GroupId b) {
    if (a > b) std::swap(a, b);
    // Groups are >= 0 and a < b, so no key is 0.
    const std::uint64_t key =
        (static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32) | static_cast<std::uint32_t>(b);
    if ((pairs_.size() + 1) * 2 > table_.size()) grow();
    if (add(key)) pairs_.emplace_back(a, b);
  }
  const std::vector<std::pair<GroupId, GroupId>>& pairs() const { return pairs_; }

 private:
  bool add(std::uint64_t key) {
    std::size_t at = static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ULL) >> shift_);
    while (table_[at] != 0) {
      if (table_[at] == key) return false;
      at = (at + 1) & (table_.size() - 1);
    }
    table_[at] = key;
    return true;
  }
  void grow() {
    std::vector<std::uint64_t> old(table_.empty() ? 1024 : table_.size() * 2, 0);
    old.swap(table_);
    shift_ = 64;
    for (std::size_t size = table_.size(); size > 1; size /= 2) --shift_;
    for (const std::uint64_t key : old) {
      if (key != 0) add(key);
    }
  }

  std::vector<std::uint64_t> table_;  // size a power of two; 0: empty
  int shift_ = 64;
  std::vector<std::pair<GroupId, GroupId>> pairs_;
};

namespace {

// Where each of `count` parts begins, from the parts' sizes: sizes[i + 1] is that of part i.
void sum_up(std::vector<std::int32_t>* sizes) {
  for (std::size_t i = 1; i < sizes->size(); ++i) (*sizes)[i] += (*sizes)[i - 1];
}

OpRule opaque_op(const std::vector<NodeId>& slots, const graph::FlowGraph& flow) {
  OpRule rule;
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    const auto rank = static_cast<std::int32_t>(flow.shape(slots[slot]).dims.size());
    for (std::int32_t dim = 0; dim < rank; ++dim)
      rule.blocked.push_back({{static_cast<std::int32_t>(slot), static_cast<std::int32_t>(dim)}, Block::kOpaque});
  }
  return rule;
}

// As LinkageBuilder::for_each_clash() finds it.
bool clash(const OpFactor& a, const OpFactor& b) {
  const auto holds_partial = [](const OpFactor& factor, NodeId node) {
    return std::find(factor.partial.begin(), factor.partial.end(), node) != factor.partial.end();
  };
  for (const TensorDim at : a.members) {
    if (holds_partial(b, at.node)) return true;
    for (const TensorDim other : b.members) {
      if (at.node == other.node && at.dim != other.dim) return true;
    }
  }
  const auto in_b = [&](NodeId node) {
    return holds_partial(b, node) ||
           std::any_of(b.members.begin(), b.members.end(), [&](TensorDim at) { return at.node == node; });
  };
  return std::any_of(a.partial.begin(), a.partial.end(), in_b);
}

}  // namespace

class LinkageBuilder {
 public:
  LinkageBuilder(const graph::FlowGraph& flow, const LinkageOptions& options, const RuleFunction& rules)
      : flow_(flow), options_(options), rules_(rules) {}

  Linkage run() {
    if (options_.shards < 1)
      throw Error(ErrorKind::kUsage, "shards " + std::to_string(options_.shards) + ": expected at least 1");
    linkage_.flow_ = &flow_;
    linkage_.shards_ = options_.shards;
    find_free();
    number_dims();
    sort_gathers();
    tie_instructions();
    tie_nodes();
    number_groups();
    finish_factors();
    find_obstacles();
    find_neighbours();
    return std::move(linkage_);
  }

 private:
  struct Part {  // of factor_members_, factor_partials_, factor_in_parts_ and halos_
    std::int32_t first_member = 0, num_members = 0, first_partial = 0, num_partials = 0, first_in_parts = 0,
                 num_in_parts = 0, halo = kNone;
  };

  bool is_array(NodeId node) const { return flow_.shape(node).is_array(); }
  bool is_tensor(NodeId node) const { return linkage_.is_tensor(node); }
  std::int64_t extent(TensorDim at) const { return flow_.shape(at.node).dims[index(at.dim)]; }
  std::size_t dim_index(TensorDim at) const { return index(linkage_.first_dim_[index(at.node)] + at.dim); }

  void check_node(NodeId node, const char* what) const {
    if (node < 0 || node >= flow_.size())
      throw Error(ErrorKind::kUsage, std::string(what) + " names node " + std::to_string(node) + ": the flow has " +
                                         std::to_string(flow_.size()) + " nodes");
  }

  void find_free() {
    std::vector<bool>& is_free = linkage_.free_;
    is_free.assign(index(flow_.size()), false);
    for (NodeId node = 0; node < flow_.size(); ++node) {
      const graph::FlowNode& n = flow_.node(node);
      const Shape& shape = flow_.shape(node);
      if (!shape.is_tuple() && (!shape.is_array() || shape.dims.empty())) {
        is_free[index(node)] = true;
        continue;
      }
      if (graph::has_trait(n.opcode, graph::trait::kNeverFree) && !graph::is_annotation(flow_.graph(), n.instruction)) {
        continue;
      }
      bool all = true;
      for (const NodeId operand : flow_.operands(node)) all = all && is_free[index(operand)];
      is_free[index(node)] = all;
    }
  }

  void number_dims() {
    std::vector<std::int32_t>& first = linkage_.first_dim_;
    first.assign(index(flow_.size()) + 1, 0);
    std::int64_t total = 0;
    for (NodeId node = 0; node < flow_.size(); ++node) {
      if (!linkage_.free_[index(node)] && is_array(node))
        total += static_cast<std::int64_t>(flow_.shape(node).dims.size());
      AM_CHECK(total < (std::int64_t{1} << 31));
      first[index(node) + 1] = static_cast<std::int32_t>(total);
    }
    parent_.resize(static_cast<std::size_t>(total));
    for (std::size_t i = 0; i < parent_.size(); ++i) parent_[i] = static_cast<std::int32_t>(i);
  }

  std::int32_t find(std::int32_t i) {
    while (parent_[index(i)] != i) {
      parent_[index(i)] = parent_[index(parent_[index(i)])];
      i = parent_[index(i)];
    }
    return i;
  }

  void tie(TensorDim a, TensorDim b) {
    const std::int32_t x = find(static_cast<std::int32_t>(dim_index(a)));
    const std::int32_t y = find(static_cast<std::int32_t>(dim_index(b)));
    if (x < y) {
      parent_[index(y)] = x;
    } else {
      parent_[index(x)] = y;
    }
  }

  void sort_gathers() {
    for (const Gather& gather : options_.gathers) {
      check_node(gather.op, "a gather");
      check_node(gather.tensor, "a gather");
      const TensorDim cut{gather.tensor, gather.dim};
      switch (gather.kind) {
        case Gather::Kind::kRead:
        case Gather::Kind::kExchanged: gathers_[flow_.producer(gather.op)].push_back(cut); break;
        case Gather::Kind::kInParts: in_parts_[flow_.producer(gather.op)].push_back(cut); break;
        case Gather::Kind::kHandedOn: handed_on_[gather.op].push_back(cut); break;
        case Gather::Kind::kBegun: begun_[gather.tensor].push_back(cut); break;
      }
    }
  }

  // The nodes behind the slots of `op`; false when they are not the instruction's own slots.
  bool find_slots(NodeId op, std::vector<NodeId>* slots) const {
    const Span<const NodeId> operands = flow_.operands(op);
    slots->assign(operands.begin(), operands.end());
    const graph::FlowNode& node = flow_.node(op);
    if (!flow_.shape(op).is_tuple()) {
      slots->push_back(op);
    } else {
      std::int32_t leaf = 0;
      for (NodeId next = op + 1; next < flow_.size(); ++next, ++leaf) {
        const graph::FlowNode& projection = flow_.node(next);
        if (projection.opcode != Opcode::kGetTupleElement || projection.leaf != leaf || flow_.producer(next) != op)
          break;
        slots->push_back(next);
      }
    }
    return node.num_operands == flow_.graph().instruction(node.instruction).num_operands;
  }

  // The rule of a node whose results have the same splitting as its operands from `first` on; all have the same
  // dimensions.
  OpRule identity_rule(const std::vector<NodeId>& slots, std::size_t first) const {
    const std::vector<std::int64_t>& dims = flow_.shape(slots.back()).dims;
    for (std::size_t slot = first; slot < slots.size(); ++slot) {
      if (!is_array(slots[slot]) || flow_.shape(slots[slot]).dims != dims) return opaque_op(slots, flow_);
    }
    OpRule rule;
    for (std::size_t dim = 0; dim < dims.size(); ++dim) {
      Factor factor;
      factor.extent = dims[dim];
      for (std::size_t slot = first; slot < slots.size(); ++slot)
        factor.dims.push_back({static_cast<std::int32_t>(slot), static_cast<std::int32_t>(dim)});
      rule.factors.push_back(std::move(factor));
    }
    return rule;
  }

  // Valid until the next call.
  const OpRule& rule_at(NodeId op, const std::vector<NodeId>& slots, bool own_slots) {
    const graph::FlowNode& node = flow_.node(op);
    if (node.opcode == Opcode::kConditional && node.leaf != kNone) {
      rule_ = identity_rule(slots, 1);
    } else if (node.opcode == Opcode::kOptBarrier && node.leaf != kNone) {
      rule_ = identity_rule(slots, 0);
    } else if (!own_slots) {
      rule_ = opaque_op(slots, flow_);
    } else if (node.site == kNone) {
      rule_ = rules_(flow_.graph(), node.instruction);
    } else {
      // Another call of the same computation may come.
      const auto [it, added] = known_rules_.try_emplace(node.instruction);
      if (added) it->second = rules_(flow_.graph(), node.instruction);
      return it->second;
    }
    return rule_;
  }

  // The node and dimension behind a slot's; node kNone when it takes no part.
  TensorDim at(const std::vector<NodeId>& slots, SlotDim slot) const {
    if (slot.slot < 0 || static_cast<std::size_t>(slot.slot) >= slots.size()) return {};
    const NodeId node = slots[static_cast<std::size_t>(slot.slot)];
    if (!is_tensor(node)) return {};
    const std::vector<std::int64_t>& dims = flow_.shape(node).dims;
    if (slot.dim < 0 || static_cast<std::size_t>(slot.dim) >= dims.size() || dims[index(slot.dim)] <= 1) return {};
    return {node, slot.dim};
  }

  void tie_instructions() {
    const auto n = index(flow_.size());
    linkage_.first_factor_.assign(n + 1, 0);
    linkage_.first_blocked_.assign(n + 1, 0);
    std::vector<NodeId> slots;
    for (NodeId op = 0; op < flow_.size(); ++op) {
      const graph::FlowNode& node = flow_.node(op);
      const bool projection = flow_.producer(op) != op && node.leaf != kNone;
      if (!projection && node.opcode != Opcode::kParameter) {
        const bool own_slots = find_slots(op, &slots);
        if (std::any_of(slots.begin(), slots.end(), [&](NodeId slot) { return is_tensor(slot); })) {
          add_rule(op, slots, rule_at(op, slots, own_slots));
        }
      }
      linkage_.first_factor_[index(op) + 1] = static_cast<std::int32_t>(linkage_.factors_.size());
      linkage_.first_blocked_[index(op) + 1] = static_cast<std::int32_t>(linkage_.blocked_.size());
    }
  }

  using Cuts = std::unordered_map<NodeId, std::vector<TensorDim>>;
  static bool holds(const Cuts& cuts, NodeId op, TensorDim member) {
    if (cuts.empty()) return false;
    const auto found = cuts.find(op);
    return found != cuts.end() && std::find(found->second.begin(), found->second.end(), member) != found->second.end();
  }

  void add_rule(NodeId op, const std::vector<NodeId>& slots, const OpRule& rule) {
    std::vector<SlotDim> exchanged;
    for (const Factor& factor : rule.factors) add_factor(op, slots, factor);
    for (const Factor& factor : rule.halo_factors) {
      if (!options_.halos || !is_enough(at(slots, factor.halo.of), factor.halo)) continue;
      if (!agrees_with_others(at(slots, factor.halo.of).node, factor.halo)) continue;
      add_factor(op, slots, factor);
      exchanged.insert(exchanged.end(), factor.dims.begin(), factor.dims.end());
    }
    for (const BlockedDim& blocked : rule.blocked) {
      if (std::find(exchanged.begin(), exchanged.end(), blocked.at) != exchanged.end()) continue;
      const TensorDim member = at(slots, blocked.at);
      if (member.node != kNone && !holds(gathers_, op, member)) linkage_.blocked_.push_back({member, blocked.why});
    }
  }

  // True if a device needs no elements but those of its own part and its neighbours'.
  bool is_enough(TensorDim of, const Halo& halo) const {
    if (halo.of.slot < 0) return true;
    return of.node != kNone && std::max(halo.left, halo.right) <= extent(of) / options_.shards;
  }

  // True if all readers that share these borders use the same padding beyond the tensor's ends.
  bool agrees_with_others(NodeId of, const Halo& halo) {
    if (halo.shared_by.empty() || (halo.left == 0 && halo.right == 0)) return true;
    return paddings_.try_emplace({of, halo.shared_by}, halo.padded_with).first->second == halo.padded_with;
  }

  void add_factor(NodeId op, const std::vector<NodeId>& slots, const Factor& factor) {
    const auto is_gathered = [&](TensorDim member) { return holds(gathers_, op, member); };
    std::vector<TensorDim>& members = linkage_.factor_members_;
    const std::size_t first = members.size(), first_in_parts = linkage_.factor_in_parts_.size();
    bool closed = false;
    for (const SlotDim slot : factor.dims) {
      const TensorDim member = at(slots, slot);
      if (member.node == kNone) continue;
      // The same tensor may stand in two slots.
      if (std::find(members.begin() + static_cast<std::ptrdiff_t>(first), members.end(), member) != members.end())
        continue;
      if (holds(in_parts_, op, member)) {
        closed_.emplace_back(op, member);
        linkage_.factor_in_parts_.push_back(member);
        continue;
      }
      members.push_back(member);
      closed = closed || is_gathered(member);
    }
    if (closed) {
      for (std::size_t i = first; i < members.size(); ++i) {
        if (!is_gathered(members[i])) closed_.emplace_back(op, members[i]);
      }
      members.resize(first);
    }
    if (members.size() == first) {
      linkage_.factor_in_parts_.resize(first_in_parts);
      return;
    }
    for (std::size_t i = first + 1; i < members.size(); ++i) tie(members[first], members[i]);
    Part part;
    part.first_member = static_cast<std::int32_t>(first);
    part.num_members = static_cast<std::int32_t>(members.size() - first);
    part.first_partial = static_cast<std::int32_t>(linkage_.factor_partials_.size());
    for (const std::int32_t slot : factor.partial) {
      if (slot >= 0 && static_cast<std::size_t>(slot) < slots.size())
        linkage_.factor_partials_.push_back(slots[static_cast<std::size_t>(slot)]);
    }
    part.num_partials = static_cast<std::int32_t>(linkage_.factor_partials_.size()) - part.first_partial;
    part.first_in_parts = static_cast<std::int32_t>(first_in_parts);
    part.num_in_parts = static_cast<std::int32_t>(linkage_.factor_in_parts_.size() - first_in_parts);
    OpFactor out;
    out.op = op;
    out.reduction = factor.reduction;
    out.extent = factor.extent;
    if ((factor.halo.left > 0 || factor.halo.right > 0) && members[first] == at(slots, factor.halo.of)) {
      part.halo = static_cast<std::int32_t>(linkage_.halos_.size());
      linkage_.halos_.push_back(factor.halo);
    }
    linkage_.factors_.push_back(out);
    parts_.push_back(part);
  }

  void tie_nodes() {
    for (const graph::FlowLoop& loop : flow_.loops()) {
      for (std::size_t i = 0; i < loop.parameter.size(); ++i) {
        add_tie(loop.initial[i], loop.parameter[i]);
        add_tie(loop.parameter[i], loop.next[i]);
      }
    }
    for (const Tie& tie : options_.ties) {
      check_node(tie.first, "a tie");
      check_node(tie.second, "a tie");
      add_tie(tie.first, tie.second);
    }
  }

  void add_tie(NodeId a, NodeId b) {
    if (a == b || !is_tensor(a) || !is_tensor(b)) return;
    const std::vector<std::int64_t>& dims = flow_.shape(a).dims;
    if (dims != flow_.shape(b).dims) return;
    bool all = true;
    for (std::size_t dim = 0; dim < dims.size(); ++dim) {
      const auto d = static_cast<std::int32_t>(dim);
      const bool cut = holds(handed_on_, a, {b, d}) || holds(handed_on_, b, {a, d});
      all = all && !cut;
      if (dims[dim] > 1 && !cut) tie({a, d}, {b, d});
    }
    if (all) linkage_.ties_.emplace_back(a, b);
  }

  // Groups are numbered by their first member.
  void number_groups() {
    std::vector<GroupId>& group = linkage_.group_of_dim_;
    group.assign(parent_.size(), kNone);
    std::vector<std::int32_t>& first = linkage_.first_member_;
    first.assign(1, 0);
    for_each_dim([&](TensorDim at) {
      const auto i = dim_index(at);
      // The root of a set is its smallest dimension, so it has its number by now.
      const auto root = index(find(static_cast<std::int32_t>(i)));
      if (root == i) {
        group[i] = static_cast<GroupId>(first.size()) - 1;
        first.push_back(0);
      } else {
        group[i] = group[root];
      }
      ++first[index(group[i]) + 1];
    });
    sum_up(&first);
    std::vector<bool> entry(index(flow_.size()), false);
    for (const graph::FlowInput& input : flow_.inputs()) entry[index(input.node)] = true;
    const auto is_input = [&](TensorDim at) { return entry[index(at.node)] || holds(begun_, at.node, at); };
    std::vector<std::int32_t>& first_input = linkage_.first_input_;
    first_input.assign(first.size(), 0);
    linkage_.members_.resize(index(first.back()));
    std::vector<std::int32_t> next(first.begin(), first.end() - 1);
    for_each_dim([&](TensorDim at) {
      const GroupId g = group[dim_index(at)];
      linkage_.members_[index(next[index(g)]++)] = at;
      if (is_input(at)) ++first_input[index(g) + 1];
    });
    sum_up(&first_input);
    linkage_.inputs_.reserve(index(first_input.back()));
    for (const TensorDim& member : linkage_.members_) {
      if (is_input(member)) linkage_.inputs_.push_back(member);
    }
    parent_.clear();
  }

  template <typename Visit>
  void for_each_dim(Visit visit) const {
    for (NodeId node = 0; node < flow_.size(); ++node) {
      if (!is_tensor(node)) continue;
      const std::vector<std::int64_t>& dims = flow_.shape(node).dims;
      for (std::size_t dim = 0; dim < dims.size(); ++dim) {
        if (dims[dim] > 1) visit(TensorDim{node, static_cast<std::int32_t>(dim)});
      }
    }
  }

  GroupId count_groups() const { return static_cast<GroupId>(linkage_.first_member_.size()) - 1; }

  void finish_factors() {
    std::vector<std::int32_t>& first = linkage_.first_factor_of_group_;
    first.assign(index(count_groups()) + 1, 0);
    for (std::size_t i = 0; i < linkage_.factors_.size(); ++i) {
      OpFactor& factor = linkage_.factors_[i];
      const Part& part = parts_[i];
      factor.members =
          Span<const TensorDim>(linkage_.factor_members_.data() + part.first_member, index(part.num_members));
      factor.partial =
          Span<const NodeId>(linkage_.factor_partials_.data() + part.first_partial, index(part.num_partials));
      factor.in_parts =
          Span<const TensorDim>(linkage_.factor_in_parts_.data() + part.first_in_parts, index(part.num_in_parts));
      if (part.halo != kNone) factor.halo = &linkage_.halos_[index(part.halo)];
      factor.group = linkage_.group_of(factor.members[0]);
      ++first[index(factor.group) + 1];
    }
    sum_up(&first);
    linkage_.factors_by_group_.resize(linkage_.factors_.size());
    std::vector<std::int32_t> next(first.begin(), first.end() - 1);
    for (std::size_t i = 0; i < linkage_.factors_.size(); ++i) {
      const GroupId group = linkage_.factors_[i].group;
      linkage_.factors_by_group_[index(next[index(group)]++)] = static_cast<std::int32_t>(i);
    }
  }

  // Calls visit(i, j), i < j, for the factors of `op` that cannot be split at once: they have a tensor in common.
  // (Those of an all-reduce of several tensors have not; two that hold the same dimension of a tensor, in two slots,
  // agree.)
  template <typename Visit>
  void for_each_clash(NodeId op, Visit visit) {
    const std::int32_t first = linkage_.first_factor_[index(op)], end = linkage_.first_factor_[index(op) + 1];
    if (end - first < 2) return;
    touches_.clear();
    if (last_touch_.empty()) last_touch_.assign(index(flow_.size()), kNone);
    const auto touch = [&](std::int32_t i, NodeId node, std::int32_t dim) {
      for (std::int32_t t = last_touch_[index(node)]; t != kNone; t = touches_[index(t)].before) {
        const Touch& other = touches_[index(t)];
        if (other.factor != i && (other.dim != dim || dim == kNone)) visit(other.factor, i);
      }
      touches_.push_back({i, node, dim, last_touch_[index(node)]});
      last_touch_[index(node)] = static_cast<std::int32_t>(touches_.size()) - 1;
    };
    for (std::int32_t i = first; i < end; ++i) {
      for (const TensorDim member : linkage_.factors_[index(i)].members) touch(i, member.node, member.dim);
      for (const NodeId partial : linkage_.factors_[index(i)].partial) touch(i, partial, kNone);
    }
    for (const Touch& t : touches_) last_touch_[index(t.node)] = kNone;
  }

  void add_obstacle(GroupId group, Obstacle::Kind kind, NodeId op, TensorDim a, TensorDim b = {},
                    Block block = Block::kOpaque, std::int64_t at_extent = 0) {
    std::int32_t& count = linkage_.first_obstacle_[index(group) + 1];
    if (index(count) >= Linkage::kMaxObstacles) return;
    ++count;
    found_.push_back({group, {kind, op, a, b, block, at_extent}});
  }

  void find_obstacles() {
    const auto shards = static_cast<std::int64_t>(options_.shards);
    linkage_.first_obstacle_.assign(index(count_groups()) + 1, 0);
    // The last dimension of a group at this node, and which node that was.
    std::vector<NodeId> stamp(index(count_groups()), kNone);
    std::vector<std::int32_t> last(index(count_groups()), kNone);
    std::size_t next_closed = 0;
    for (NodeId node = 0; node < flow_.size(); ++node) {
      const Span<const GroupId> groups = linkage_.groups_of(node);
      for (std::size_t i = 0; i < groups.size(); ++i) {
        const GroupId group = groups[i];
        if (group == kNone) continue;
        const TensorDim here{node, static_cast<std::int32_t>(i)};
        if (extent(here) % shards != 0)
          add_obstacle(group, Obstacle::Kind::kIndivisible, kNone, here, {}, Block::kOpaque, extent(here));
        if (stamp[index(group)] == node)
          add_obstacle(group, Obstacle::Kind::kTwoDims, kNone, {node, last[index(group)]}, here);
        stamp[index(group)] = node;
        last[index(group)] = here.dim;
      }
      for (std::int32_t i = linkage_.first_factor_[index(node)]; i < linkage_.first_factor_[index(node) + 1]; ++i) {
        const OpFactor& factor = linkage_.factors_[index(i)];
        const std::int64_t factor_extent = factor.extent;
        // Said once, at the tensor, when one of its own members is the reason.
        if (factor_extent % shards != 0 && std::all_of(factor.members.begin(), factor.members.end(),
                                                       [&](TensorDim m) { return extent(m) % shards == 0; }))
          add_obstacle(factor.group, Obstacle::Kind::kIndivisible, node, factor.members[0], {}, Block::kOpaque,
                       factor_extent);
      }
      std::int32_t said = kNone;  // once for a factor
      for_each_clash(node, [&](std::int32_t i, std::int32_t j) {
        const OpFactor &one = linkage_.factors_[index(i)], &other = linkage_.factors_[index(j)];
        if (one.group != other.group || said == j) return;
        said = j;
        add_obstacle(one.group, Obstacle::Kind::kTwoFactors, node, one.members[0], other.members[0]);
      });
      for (const Linkage::BlockedMember& blocked : linkage_.blocked(node))
        add_obstacle(linkage_.group_of(blocked.at), Obstacle::Kind::kBlocked, node, blocked.at, {}, blocked.why);
      for (; next_closed < closed_.size() && closed_[next_closed].first == node; ++next_closed)
        add_obstacle(linkage_.group_of(closed_[next_closed].second), Obstacle::Kind::kGathered, node,
                     closed_[next_closed].second);
    }
    std::vector<std::int32_t>& first = linkage_.first_obstacle_;
    sum_up(&first);
    linkage_.obstacles_.resize(found_.size());
    std::vector<std::int32_t> next(first.begin(), first.end() - 1);
    for (const auto& [group, obstacle] : found_) linkage_.obstacles_[index(next[index(group)]++)] = obstacle;
    found_.clear();
  }

  void find_neighbours() {
    const GroupId count = count_groups();
    std::vector<bool> decidable(index(count));
    for (GroupId group = 0; group < count; ++group) decidable[index(group)] = linkage_.decidable(group);
    PairSet pairs;
    std::vector<GroupId> here;
    const auto add = [&](GroupId group) {
      if (group != kNone && decidable[index(group)]) here.push_back(group);
    };
    const auto meet = [&] {
      for (std::size_t i = 0; i < here.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          if (here[i] != here[j]) pairs.insert(here[i], here[j]);
        }
      }
      here.clear();
    };
    for (NodeId node = 0; node < flow_.size(); ++node) {
      for (const GroupId group : linkage_.groups_of(node)) add(group);
      meet();
      for_each_clash(node, [&](std::int32_t i, std::int32_t j) {
        add(linkage_.factors_[index(i)].group);
        add(linkage_.factors_[index(j)].group);
        meet();
      });
    }
    std::vector<std::int32_t>& first = linkage_.first_neighbour_;
    first.assign(index(count) + 1, 0);
    for (const auto& [a, b] : pairs.pairs()) {
      ++first[index(a) + 1];
      ++first[index(b) + 1];
    }
    sum_up(&first);
    linkage_.neighbours_.resize(index(first.back()));
    std::vector<std::int32_t> next(first.begin(), first.end() - 1);
    for (const auto& [a, b] : pairs.pairs()) {
      linkage_.neighbours_[index(next[index(a)]++)] = b;
      linkage_.neighbours_[index(next[index(b)]++)] = a;
    }
    for (GroupId group = 0; group < count; ++group)
      std::sort(linkage_.neighbours_.begin() + first[index(group)],
                linkage_.neighbours_.begin() + first[index(group) + 1]);
  }

  // A factor has this dimension of the node, or partial sums in it (kNone); a chain of those of one node.
  struct Touch {
    std::int32_t factor = 0;
    NodeId node = kNone;
    std::int32_t dim = kNone;
    std::int32_t before = kNone;
  };

  const graph::FlowGraph& flow_;
  const LinkageOptions& options_;
  const RuleFunction& rules_;
  Linkage linkage_;
  std::vector<std::int32_t> parent_;             // of dimensions, by their index; roots are the smallest of their set
  Cuts gathers_, in_parts_, handed_on_, begun_;  // by instruction, or by tensor
  std::unordered_map<InstructionId, OpRule> known_rules_;
  std::map<std::pair<NodeId, std::string>, std::string> paddings_;  // of borders that are shared
  OpRule rule_;
  std::vector<Part> parts_;                           // of factors
  std::vector<std::pair<NodeId, TensorDim>> closed_;  // members of closed factors, by instruction
  std::vector<std::pair<GroupId, Obstacle>> found_;
  std::vector<Touch> touches_;
  std::vector<std::int32_t> last_touch_;  // by node; kNone between instructions
};

bool is_made_whole(const graph::FlowGraph& flow, const Gather& gather) {
  return gather.kind == Gather::Kind::kRead && flow.producer(gather.tensor) == gather.op;
}

Linkage Linkage::build(const graph::FlowGraph& flow, const LinkageOptions& options) {
  return build(flow, options, rule_of);
}

Linkage Linkage::build(const graph::FlowGraph& flow, const LinkageOptions& options, const RuleFunction& rules) {
  return LinkageBuilder(flow, options, rules).run();
}

Obstacle Linkage::meeting(GroupId a, GroupId b) const {
  const auto at = [&](NodeId node) -> Obstacle {
    TensorDim at_a, at_b;
    const Span<const GroupId> groups = groups_of(node);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const TensorDim here{node, static_cast<std::int32_t>(i)};
      if (groups[i] == a && at_a.node == kNone) {
        at_a = here;
      } else if (groups[i] == b && at_b.node == kNone) {
        at_b = here;
      }
    }
    if (at_a.node != kNone && at_b.node != kNone)
      return {Obstacle::Kind::kTwoDims, kNone, at_a, at_b, Block::kOpaque, 0};
    for (const OpFactor& one : factors(node)) {
      for (const OpFactor& other : factors(node)) {
        if (one.group == a && other.group == b && clash(one, other))
          return {Obstacle::Kind::kTwoFactors, node, one.members[0], other.members[0], Block::kOpaque, 0};
      }
    }
    return {};
  };
  // They meet only where both are, so that the places of the smaller one are enough: its tensors and its instructions,
  // together in node order.
  const auto places = [&](GroupId group) { return members(group).size() + factors_of_group(group).size(); };
  const GroupId smaller = places(b) < places(a) ? b : a;
  const Span<const TensorDim> tensors = members(smaller);
  const Span<const std::int32_t> ops = factors_of_group(smaller);
  for (std::size_t t = 0, o = 0; t < tensors.size() || o < ops.size();) {
    const bool tensor = o == ops.size() || (t < tensors.size() && tensors[t].node <= factor(ops[o]).op);
    const Obstacle found = at(tensor ? tensors[t++].node : factor(ops[o++]).op);
    if (found.a.node != kNone) return found;
  }
  return {};
}

}  // namespace automap::sharding
