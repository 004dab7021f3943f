#include "plan/partition/stored_parts.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "common/base/check.h"
#include "common/base/numbers.h"
#include "common/sharding/propagation.h"

namespace automap::partition {
namespace {

using graph::kNone;
using graph::NodeId;
using sharding::Gather;
using sharding::GroupId;
using sharding::Linkage;
using sharding::OpFactor;
using sharding::ShardingModel;
using sharding::TensorDim;

bool holds(const OpFactor& factor, TensorDim dim) {
  return std::find(factor.members.begin(), factor.members.end(), dim) != factor.members.end();
}

// The tensors that one variable's splitting reaches, and the gathers where it is cut.
struct Region {
  std::vector<TensorDim> dims;
  std::vector<Gather> gathers;
  TensorDim start;
  std::string why_not;  // not empty: it cannot be
};

class Storing {
 public:
  Storing(ShardingModel* model, const std::vector<TensorDim>& batch, Zero level, std::vector<TakenDim> taken)
      : model_(*model),
        flow_(model->flow()),
        batch_(batch),
        level_(level),
        taken_(std::move(taken)),
        shards_(model->linkage().shards()),
        start_(model->gathers()),
        reached_(at(flow_.size()), kNone) {
    find_batch_ops();
    for (const auto& [a, b] : model_.linkage().ties()) {
      tied_[a].push_back(b);
      tied_[b].push_back(a);
    }
  }

  StoredParts run_variables() {
    std::vector<std::pair<std::int32_t, std::vector<int>>> tries;
    for (const std::int32_t variable : model_.variables()) tries.emplace_back(variable, dims_of(variable));
    return run(tries);
  }
  StoredParts run_wanted(const std::vector<TensorDim>& wanted) {
    std::vector<std::pair<std::int32_t, std::vector<int>>> tries;
    for (std::size_t i = 0; i < model_.inputs().size(); ++i) {
      for (const TensorDim dim : wanted) {
        if (dim.node == model_.inputs()[i].node) tries.push_back({static_cast<std::int32_t>(i), {dim.dim}});
      }
    }
    return run(tries);
  }

 private:
  // Each input with the dimensions to try, the best first.
  StoredParts run(const std::vector<std::pair<std::int32_t, std::vector<int>>>& tries) {
    StoredParts out;
    std::vector<Gather> gathers = start_;
    for (const auto& [variable, dims] : tries) {
      std::string why = "no dimension of it is divided by " + std::to_string(shards_) + " devices";
      bool stored = false;
      for (const int dim : dims) {
        if (reached_[at(input(variable).node)] == dim && level_ == Zero::kFull) {
          // It hangs together with one before it: a slot, a tied table.
          out.split.push_back({input(variable).node, dim});
          out.stored.push_back(variable);
          stored = true;
          break;
        }
        const Region region = spread(variable, dim);
        if (!region.why_not.empty()) {
          why = region.why_not;
          continue;
        }
        for (const TensorDim& one : region.dims) reached_[at(one.node)] = one.dim;
        gathers.insert(gathers.end(), region.gathers.begin(), region.gathers.end());
        out.split.push_back(region.start);
        out.stored.push_back(variable);
        stored = true;
        break;
      }
      if (!stored) out.whole.emplace_back(variable, why);
    }
    model_.relink(shards_, std::move(gathers));
    keep_possible(&out);
    return out;
  }

  const sharding::ModelInput& input(std::int32_t index) const { return model_.inputs()[at(index)]; }

  void find_batch_ops() {
    const Linkage& linkage = model_.linkage();
    std::set<GroupId> groups;
    for (const TensorDim dim : batch_) groups.insert(linkage.group_of(dim));
    batch_op_.assign(at(flow_.size()), false);
    for (const GroupId group : groups) {
      if (group == kNone) continue;
      for (const std::int32_t f : linkage.factors_of_group(group)) batch_op_[at(linkage.factor(f).op)] = true;
      for (const TensorDim member : linkage.members(group)) reached_[at(member.node)] = member.dim;
    }
  }

  // Those to try, the best first.
  std::vector<int> dims_of(std::int32_t variable) const {
    const graph::Shape& shape = flow_.shape(input(variable).node);
    const TakenDim taken = taken_.empty() ? TakenDim() : taken_[at(variable)];
    std::vector<std::tuple<bool, bool, std::int64_t, int>> found;
    for (std::size_t d = 0; d < shape.dims.size(); ++d) {
      const bool shared = static_cast<int>(d) == taken.dim;
      const std::int64_t parts = shards_ * (shared ? taken.devices : 1);
      if (shape.dims[d] % parts == 0 && shape.dims[d] > 0) {
        found.emplace_back(is_walked({input(variable).node, static_cast<std::int32_t>(d)}), shared, -shape.dims[d],
                           static_cast<int>(d));
      }
    }
    std::sort(found.begin(), found.end());
    std::vector<int> out;
    for (const auto& [walked, shared, extent, dim] : found) out.push_back(dim);
    return out;
  }

  // A loop takes one place of it each turn (the layers of stacked weights): all of it would be gathered for every turn.
  bool is_walked(TensorDim dim) const {
    for (const NodeId user : flow_.users(dim.node)) {
      if (flow_.node(user).opcode != graph::Opcode::kDynamicSlice) continue;
      for (const Linkage::BlockedMember& blocked : model_.linkage().blocked(user)) {
        if (blocked.at == dim) return true;
      }
    }
    return false;
  }

  Region spread(std::int32_t variable, int dim) const {
    Region out;
    const sharding::ModelInput& stored = input(variable);
    const NodeId kept = stored.node;  // the stored form
    out.start = {kept, dim};
    if (level_ == Zero::kOptimizer) {
      const NodeId updated = stored.result == kNone ? kNone : flow_.results()[at(stored.result)];
      if (updated == kNone || updated == kept || !model_.linkage().is_tensor(updated)) {
        out.why_not = "nothing updates it";
        return out;
      }
      out.start = {updated, dim};
      out.gathers.push_back({kept, updated, dim, Gather::Kind::kHandedOn});
    }
    std::set<std::pair<NodeId, std::int32_t>> seen;
    const auto reach = [&](TensorDim next) {
      if (seen.insert({next.node, next.dim}).second) out.dims.push_back(next);
    };
    reach(out.start);
    for (std::size_t i = 0; i < out.dims.size() && out.why_not.empty(); ++i) {
      const TensorDim here = out.dims[i];
      const std::int32_t before = reached_[at(here.node)];
      if (before != kNone || model_.linkage().group_of(here) == kNone) {
        out.why_not = "it hangs together with what is split otherwise";
        break;
      }
      const NodeId maker = flow_.producer(here.node);
      visit(maker, here, kept, &out, reach);
      for (const NodeId user : flow_.users(here.node)) visit(flow_.producer(user), here, kept, &out, reach);
      const auto ties = tied_.find(here.node);
      if (ties == tied_.end()) continue;
      for (const NodeId other : ties->second) {
        if (level_ != Zero::kOptimizer || other != kept) reach({other, here.dim});
      }
    }
    gather_early(&out);
    for (const TensorDim& one : out.dims) {
      if (flow_.shape(one.node).dims[at(one.dim)] % shards_ != 0 && out.why_not.empty())
        out.why_not = "a form of it is not divided by " + std::to_string(shards_) + " devices";
    }
    return out;
  }

  // A form of a tensor that has all of its elements (a reshape) is gathered as that tensor where nobody reads the form
  // in parts: several readers make such forms for themselves, and one gather does for all of them.
  void gather_early(Region* region) const {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i < region->dims.size(); ++i) {
        const TensorDim form = region->dims[i];
        const NodeId op = form.node;
        const auto operands = flow_.operands(op);
        // A barrier keeps a layer that is computed again apart: its operands are gathered again.
        if (!graph::is_movement(flow_, op) || flow_.node(op).opcode == graph::Opcode::kOptBarrier ||
            operands.size() != 1 || flow_.users(op).empty() ||
            flow_.shape(operands[0]).bytes != flow_.shape(op).bytes || tied_.count(op) != 0) {
          continue;
        }
        const auto gathered_by = [&](NodeId user) {
          return std::find(region->gathers.begin(), region->gathers.end(), Gather{user, op, form.dim}) !=
                 region->gathers.end();
        };
        const auto& users = flow_.users(op);
        const auto from = std::find_if(region->dims.begin(), region->dims.end(),
                                       [&](TensorDim one) { return one.node == operands[0]; });
        if (from == region->dims.end() || !std::all_of(users.begin(), users.end(), gathered_by)) continue;
        const Gather early{op, from->node, from->dim};
        region->gathers.erase(std::remove_if(region->gathers.begin(), region->gathers.end(),
                                             [&](const Gather& gather) { return gather.tensor == op; }),
                              region->gathers.end());
        region->gathers.push_back(early);
        region->dims.erase(region->dims.begin() + static_cast<std::ptrdiff_t>(i));
        changed = true;
        break;
      }
    }
  }

  template <typename Reach>
  void visit(NodeId op, TensorDim here, NodeId kept, Region* out, const Reach& reach) const {
    const Linkage& linkage = model_.linkage();
    const auto add = [&](const Gather& gather) {
      if (std::find(out->gathers.begin(), out->gathers.end(), gather) == out->gathers.end())
        out->gathers.push_back(gather);
    };
    for (const Linkage::BlockedMember& blocked : linkage.blocked(op)) {
      if (blocked.at == here) add({op, here.node, here.dim});
    }
    for (const OpFactor& factor : linkage.factors(op)) {
      if (!holds(factor, here)) continue;
      const bool divisible =
          factor.extent % shards_ == 0 && std::all_of(factor.members.begin(), factor.members.end(), [&](TensorDim one) {
            return flow_.shape(one.node).dims[at(one.dim)] % shards_ == 0;
          });
      if (batch_op_[at(op)] || !divisible) {
        add({op, here.node, here.dim});
        continue;
      }
      for (const TensorDim member : factor.members) {
        if (level_ == Zero::kOptimizer && member.node == kept) {
          add({op, member.node, member.dim, Gather::Kind::kInParts});
        } else {
          reach(member);
        }
      }
    }
  }

  // Variables that the linkage does not allow to be split after all stay whole.
  void keep_possible(StoredParts* out) const {
    sharding::Propagation decided(model_.linkage());
    for (const TensorDim dim : batch_) decided.split(dim);
    StoredParts possible;
    possible.whole = std::move(out->whole);
    for (std::size_t i = 0; i < out->stored.size(); ++i) {
      if (decided.split(out->split[i])) {
        possible.whole.emplace_back(out->stored[i], "something it hangs together with cannot be split");
      } else {
        possible.split.push_back(out->split[i]);
        possible.stored.push_back(out->stored[i]);
      }
    }
    *out = std::move(possible);
  }

  ShardingModel& model_;
  const graph::FlowGraph& flow_;
  const std::vector<TensorDim>& batch_;
  const Zero level_;
  const std::vector<TakenDim> taken_;
  const std::int64_t shards_;
  const std::vector<Gather> start_;
  std::vector<std::int32_t> reached_;  // by node: the dimension that the batch or another variable splits
  std::vector<bool> batch_op_;
  std::unordered_map<NodeId, std::vector<NodeId>> tied_;
};

}  // namespace

StoredParts store_in_parts(ShardingModel* model, const std::vector<TensorDim>& batch, Zero level,
                           const std::vector<TakenDim>& taken) {
  if (level == Zero::kOff) return {};
  AM_CHECK(taken.empty() || taken.size() == model->inputs().size());
  return Storing(model, batch, level, taken).run_variables();
}

StoredParts gather_before_use(ShardingModel* model, const std::vector<TensorDim>& split,
                              const std::vector<TensorDim>& wanted) {
  return Storing(model, split, Zero::kFull, {}).run_wanted(wanted);
}

}  // namespace automap::partition
