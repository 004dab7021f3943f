// The slow, obvious twin of linkage and propagation: every assignment of {whole, one dimension} to every tensor of a
// small module that each of its instructions allows, straight from the rules. No groups, no union-find.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/graph/dependence.h"
#include "common/sharding/linkage.h"
#include "common/sharding/propagation.h"

namespace automap::sharding {

constexpr std::int8_t kWholeTensor = -1;
using Assignment = std::vector<std::int8_t>;  // by node: dimension or kWholeTensor (also for what is no tensor)

class LinkageTwin {
 public:
  // `linkage` says only what is free (which has tests of its own).
  LinkageTwin(const Linkage& linkage, const LinkageOptions& options, const RuleFunction& rules)
      : linkage_(linkage), flow_(linkage.flow()), options_(options), rules_(rules) {
    find_operators();
    Assignment assignment(size(), kWholeTensor);
    enumerate(0, &assignment);
    keep_minimal();
  }

  // Every assignment that all instructions allow and that splits nothing without need: of those that are alike at the
  // inputs the one with the fewest split tensors.
  const std::vector<Assignment>& assignments() const { return all_; }
  // For each pattern at the inputs there was exactly one such.
  bool minimal_is_unique() const { return unique_; }

  struct Operator {
    NodeId node = kNone;
    std::vector<NodeId> slots;
    std::vector<Factor> factors;
    std::vector<bool> open;
    NodeId last = kNone;  // the last node among the slots
  };
  const std::vector<Operator>& operators() const { return operators_; }
  // The modes of `op` that the assignment allows: sets of its factors as bits. An instruction is split by one factor,
  // or by none; by several only if they have no tensor in common.
  std::vector<std::uint32_t> modes(const Operator& op, const Assignment& assignment) const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t mode = 0; mode < (1u << op.factors.size()); ++mode) {
      if (is_mode(op, mode, assignment)) out.push_back(mode);
    }
    return out;
  }

 private:
  bool is_mode(const Operator& op, std::uint32_t mode, const Assignment& assignment) const {
    std::vector<std::int32_t> wanted(op.slots.size(), kWholeTensor);
    std::vector<bool> used(op.slots.size(), false);
    for (std::size_t i = 0; i < op.factors.size(); ++i) {
      if ((mode >> i & 1) == 0) continue;
      if (!op.open[i] || op.factors[i].extent % options_.shards != 0) return false;
      bool any = false;
      for (const SlotDim at : op.factors[i].dims) {
        const auto slot = static_cast<std::size_t>(at.slot);
        const NodeId node = op.slots[slot];
        if (!linkage_.is_tensor(node) || dims(node)[static_cast<std::size_t>(at.dim)] <= 1) continue;
        if (used[slot]) return false;
        used[slot] = any = true;
        wanted[slot] = at.dim;
      }
      if (!any) return false;
      for (const std::int32_t slot : op.factors[i].partial) {
        if (used[static_cast<std::size_t>(slot)]) return false;
        used[static_cast<std::size_t>(slot)] = true;
      }
    }
    for (std::size_t slot = 0; slot < op.slots.size(); ++slot) {
      const NodeId node = op.slots[slot];
      if (!linkage_.is_tensor(node)) continue;
      const std::int32_t is = assignment[static_cast<std::size_t>(node)];
      if (is != wanted[slot] && !(wanted[slot] == kWholeTensor && is_gathered(op.node, node, is))) return false;
    }
    return true;
  }

  std::size_t size() const { return static_cast<std::size_t>(flow_.size()); }
  const std::vector<std::int64_t>& dims(NodeId node) const { return flow_.shape(node).dims; }

  bool is_gathered(NodeId op, NodeId tensor, std::int32_t dim) const {
    if (!linkage_.is_tensor(tensor)) return false;
    return std::any_of(options_.gathers.begin(), options_.gathers.end(), [&](const Gather& gather) {
      return flow_.producer(gather.op) == op && gather.tensor == tensor && gather.dim == dim;
    });
  }

  void find_operators() {
    for (NodeId node = 0; node < flow_.size(); ++node) {
      const graph::FlowNode& n = flow_.node(node);
      if (n.opcode == graph::Opcode::kParameter || flow_.producer(node) != node) continue;
      Operator op;
      op.node = node;
      for (const NodeId operand : flow_.operands(node)) op.slots.push_back(operand);
      if (flow_.shape(node).is_tuple()) {
        for (NodeId other = 0; other < flow_.size(); ++other) {
          if (other != node && flow_.producer(other) == node) op.slots.push_back(other);
        }
      } else {
        op.slots.push_back(node);
      }
      if (n.opcode == graph::Opcode::kConditional || n.opcode == graph::Opcode::kOptBarrier) {
        for (std::size_t dim = 0; dim < dims(node).size(); ++dim) {
          Factor factor;
          factor.extent = dims(node)[dim];
          for (std::size_t slot = n.opcode == graph::Opcode::kConditional ? 1 : 0; slot < op.slots.size(); ++slot)
            factor.dims.push_back({static_cast<std::int32_t>(slot), static_cast<std::int32_t>(dim)});
          op.factors.push_back(factor);
        }
      } else {
        op.factors = rules_(flow_.graph(), n.instruction).factors;
      }
      for (const Factor& factor : op.factors) {
        op.open.push_back(std::none_of(factor.dims.begin(), factor.dims.end(), [&](SlotDim at) {
          return is_gathered(node, op.slots[static_cast<std::size_t>(at.slot)], at.dim);
        }));
      }
      op.last = *std::max_element(op.slots.begin(), op.slots.end());
      operators_.push_back(op);
    }
  }

  bool allowed(NodeId node, const Assignment& assignment) const {
    for (const Operator& op : operators_) {
      if (op.last == node && modes(op, assignment).empty()) return false;
    }
    const auto tied = [&](NodeId a, NodeId b) {
      return std::max(a, b) != node || !linkage_.is_tensor(a) || !linkage_.is_tensor(b) || dims(a) != dims(b) ||
             assignment[static_cast<std::size_t>(a)] == assignment[static_cast<std::size_t>(b)];
    };
    for (const Tie& tie : options_.ties) {
      if (!tied(tie.first, tie.second)) return false;
    }
    for (const graph::FlowLoop& loop : flow_.loops()) {
      for (std::size_t i = 0; i < loop.parameter.size(); ++i) {
        if (!tied(loop.initial[i], loop.parameter[i]) || !tied(loop.parameter[i], loop.next[i])) return false;
      }
    }
    return true;
  }

  void enumerate(NodeId node, Assignment* assignment) {
    if (node == flow_.size()) {
      all_.push_back(*assignment);
      return;
    }
    const std::size_t rank = linkage_.is_tensor(node) ? dims(node).size() : 0;
    for (std::int32_t dim = kWholeTensor; dim < static_cast<std::int32_t>(rank); ++dim) {
      if (dim != kWholeTensor) {
        const std::int64_t extent = dims(node)[static_cast<std::size_t>(dim)];
        if (extent <= 1 || extent % options_.shards != 0) continue;
      }
      (*assignment)[static_cast<std::size_t>(node)] = static_cast<std::int8_t>(dim);
      if (allowed(node, *assignment)) enumerate(node + 1, assignment);
    }
    (*assignment)[static_cast<std::size_t>(node)] = kWholeTensor;
  }

  void keep_minimal() {
    struct Best {
      std::ptrdiff_t split = 0;
      std::size_t at = 0, times = 0;
    };
    std::map<Assignment, Best> best;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      Assignment inputs;
      for (const graph::FlowInput& input : flow_.inputs())
        inputs.push_back(all_[i][static_cast<std::size_t>(input.node)]);
      const auto split = static_cast<std::ptrdiff_t>(size()) - std::count(all_[i].begin(), all_[i].end(), kWholeTensor);
      Best& known = best[inputs];
      if (known.times == 0 || split < known.split) {
        known = {split, i, 1};
      } else if (split == known.split) {
        ++known.times;
      }
    }
    std::vector<Assignment> kept;
    for (const auto& [inputs, known] : best) {
      kept.push_back(all_[known.at]);
      unique_ = unique_ && known.times == 1;
    }
    all_ = std::move(kept);
  }

  const Linkage& linkage_;
  const graph::FlowGraph& flow_;
  const LinkageOptions& options_;
  const RuleFunction& rules_;
  std::vector<Operator> operators_;
  std::vector<Assignment> all_;
  bool unique_ = true;
};

// The state of a tensor in all assignments that are left, which Propagation::state() should return.
inline TensorState state_in(const LinkageTwin& twin, const std::vector<const Assignment*>& left, NodeId node) {
  TensorState out;
  std::vector<std::int32_t> seen;
  for (const Assignment* assignment : left) {
    const std::int32_t is = (*assignment)[static_cast<std::size_t>(node)];
    if (std::find(seen.begin(), seen.end(), is) == seen.end()) seen.push_back(is);
  }
  if (seen.size() == 1 && seen[0] != kWholeTensor) {
    out.kind = TensorStateKind::kSplit;
    out.dim = seen[0];
  } else if (seen.size() > 1) {
    out.kind = TensorStateKind::kUndecided;
  }
  for (const LinkageTwin::Operator& op : twin.operators()) {
    for (std::size_t i = 0; i < op.factors.size(); ++i) {
      for (const std::int32_t slot : op.factors[i].partial) {
        if (op.slots[static_cast<std::size_t>(slot)] != node) continue;
        const bool always = std::all_of(left.begin(), left.end(), [&](const Assignment* assignment) {
          const std::vector<std::uint32_t> modes = twin.modes(op, *assignment);
          return modes.size() == 1 && (modes[0] >> i & 1) != 0;
        });
        if (always) out.partial = op.factors[i].reduction;
      }
    }
  }
  return out;
}

inline bool operator==(const TensorState& a, const TensorState& b) {
  return a.kind == b.kind && a.dim == b.dim && a.partial == b.partial;
}
inline std::ostream& operator<<(std::ostream& out, const TensorState& state) {
  return out << (state.kind == TensorStateKind::kUndecided    ? "undecided"
                 : state.kind == TensorStateKind::kReplicated ? "whole"
                                                              : "split ")
             << (state.kind == TensorStateKind::kSplit ? std::to_string(state.dim) : "") << " partial "
             << static_cast<int>(state.partial);
}

}  // namespace automap::sharding
