#include "profile/fused_chains.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/base/printable.h"
#include "profile/chain_flow.h"

namespace automap::profile {

using graph::FlowGraph;
using graph::Graph;
using graph::InstructionId;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;
using ChainRole = FusedChains::Role;

const char* to_string(FusedKernelKind kind) {
  switch (kind) {
    case FusedKernelKind::kAttention: return "attention";
    case FusedKernelKind::kAttentionGradient: return "attention gradient";
    case FusedKernelKind::kLoss: return "cross-entropy";
    case FusedKernelKind::kLossGradient: return "cross-entropy gradient";
  }
  return "";
}

std::vector<std::string> attention_modes() {
  return {"auto", "fused", "as-written"};
}

AttentionMode parse_attention_mode(const std::string& name) {
  const std::vector<std::string> names = attention_modes();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    throw Error(ErrorKind::kUsage,
                "--attention: found '" + excerpt(name, 40) + "', expected auto, fused or as-written");
  }
  return static_cast<AttentionMode>(found - names.begin());
}

FusionRule fusion_rule(AttentionMode mode, const std::vector<machine::DeviceModel>& devices) {
  FusionRule rule;
  rule.only_16bit = mode == AttentionMode::kAuto;
  rule.attention = mode == AttentionMode::kFused;
  if (mode == AttentionMode::kAuto) {
    rule.attention = std::all_of(devices.begin(), devices.end(),
                                 [](const machine::DeviceModel& device) { return device.has_fused_attention(); });
  }
  rule.loss = rule.attention;
  return rule;
}

std::string FusedChains::summary() const {
  std::string out;
  const auto add = [&](std::int64_t count, const std::string& one, const std::string& many, const char* joint) {
    if (count > 0) out += (out.empty() ? "" : joint) + std::to_string(count) + " " + (count == 1 ? one : many);
  };
  add(attention, "attention", "attentions", "");
  if (causal > 0) out += " (" + std::to_string(causal) + " causal" + (banded > 0 ? ", " : ")");
  if (banded > 0) out += (causal > 0 ? "" : " (") + std::to_string(banded) + " banded)";
  add(attention_gradients, "attention gradient", "attention gradients", ", ");
  add(losses, "cross-entropy", "cross-entropies", ", ");
  add(loss_gradients, "cross-entropy gradient", "cross-entropy gradients", ", ");
  return out;
}

namespace {

// From chains at places (nodes) to roles of instructions, which several places can share.
class ChainCollector {
 public:
  ChainCollector(const Graph& graph, const FusionRule& rule) : graph_(graph), rule_(rule), c_(graph) {}

  FusedChains run() {
    find();
    while (drop_conflicting()) {
    }
    absorb_shared();
    write_roles();
    write_kernels();
    write_loops();
    return std::move(out_);
  }

 private:
  struct Place {
    ChainRole role = ChainRole::kNone;
    bool small = false;
    std::int32_t chain = kNone;
  };

  InstructionId instruction(NodeId id) const { return c_.flow.node(id).instruction; }
  // Results of a unit and leaves of a parameter may have none; those that stand in the module as elements do.
  bool has_own_instruction(NodeId id) const {
    return c_.flow.node(id).leaf == kNone || graph_.instruction(instruction(id)).opcode == Opcode::kGetTupleElement;
  }
  Place& place(NodeId id) { return places_[static_cast<std::size_t>(id)]; }

  void find() {
    places_.resize(static_cast<std::size_t>(c_.flow.size()));
    AttentionFinder attention(c_);
    LossFinder loss(c_);
    for (NodeId id = 0; id < c_.flow.size(); ++id) {
      if (c_.opcode(id) != Opcode::kExponential || c_.has(c_.free, id)) continue;
      std::optional<Chain> chain;
      MissedChain missed = MissedChain::kNone;
      if (rule_.attention) chain = attention.find(id, rule_, &missed);
      if (!chain && rule_.loss) chain = loss.find(id, rule_);
      if (!chain) {
        out_.missed += missed != MissedChain::kNone ? 1 : 0;
        out_.missed_type += missed == MissedChain::kType ? 1 : 0;
        out_.missed_head += missed == MissedChain::kHead ? 1 : 0;
      } else if (!add(*chain)) {
        ++out_.missed;
      }
    }
  }

  // false: a node of it belongs to another chain already.
  bool add(const Chain& chain) {
    const auto taken = [&](const std::vector<NodeId>& nodes) {
      return std::any_of(nodes.begin(), nodes.end(), [&](NodeId id) { return place(id).role != ChainRole::kNone; });
    };
    if (taken(chain.inner)) return false;
    for (const Chain::Kernel& kernel : chain.kernels) {
      if (place(kernel.anchor).role != ChainRole::kNone || taken(kernel.results)) return false;
    }
    const auto number = static_cast<std::int32_t>(chains_.size());
    for (const NodeId id : chain.inner) place(id) = {ChainRole::kInner, false, number};
    for (const NodeId id : chain.small) {
      if (place(id).role == ChainRole::kNone) place(id) = {ChainRole::kInner, true, number};
    }
    for (const Chain::Kernel& kernel : chain.kernels) {
      place(kernel.anchor) = {ChainRole::kAnchor, false, number};
      for (const NodeId id : kernel.results) place(id) = {ChainRole::kResult, false, number};
    }
    chains_.push_back(chain);
    dropped_.push_back(false);
    return true;
  }

  // Chains with an instruction that has another role at another place. true: some were dropped now.
  bool drop_conflicting() {
    std::vector<ChainRole> role(static_cast<std::size_t>(graph_.num_instructions()), ChainRole::kNone);
    std::vector<char> known(role.size(), 0), mixed(role.size(), 0);
    for (NodeId id = 0; id < c_.flow.size(); ++id) {
      if (!has_own_instruction(id)) continue;
      const auto i = static_cast<std::size_t>(instruction(id));
      if (known[i] != 0 && role[i] != place(id).role) mixed[i] = 1;
      known[i] = 1;
      role[i] = place(id).role;
    }
    bool any = false;
    for (NodeId id = 0; id < c_.flow.size(); ++id) {
      Place& at = place(id);
      if (at.role == ChainRole::kNone || mixed[static_cast<std::size_t>(instruction(id))] == 0) continue;
      if (at.small) {
        at = {};
        continue;
      }
      if (!dropped_[static_cast<std::size_t>(at.chain)]) ++out_.missed;
      dropped_[static_cast<std::size_t>(at.chain)] = true;
      any = true;
    }
    if (!any) return false;
    for (Place& at : places_) {
      if (at.chain != kNone && dropped_[static_cast<std::size_t>(at.chain)]) at = {};
    }
    return true;
  }

  // A mask that several chains read, spread to the size of the scores for all of them.
  void absorb_shared() {
    std::vector<std::vector<NodeId>> all(static_cast<std::size_t>(graph_.num_instructions()));
    const auto inside = [&](NodeId id) { return place(id).role == ChainRole::kInner && !place(id).small; };
    std::vector<bool> logits(places_.size(), false);
    for (const Chain& chain : chains_) {
      for (const Chain::Kernel& kernel : chain.kernels) {
        if (kernel.kind != FusedKernelKind::kLoss) continue;
        for (const NodeId id : kernel.reads) logits[static_cast<std::size_t>(id)] = true;
      }
    }
    std::vector<NodeId> found;
    for (NodeId id = c_.flow.size(); id-- > 0;) {
      if (place(id).role != ChainRole::kNone || c_.has(c_.free, id) || c_.has(c_.escapes, id)) continue;
      const auto users = c_.flow.users(id);
      if (users.empty() || !graph::is_movement(c_.flow, id) || c_.has(logits, id)) continue;
      const bool same = std::all_of(users.begin(), users.end(), [&](NodeId user) {
        return inside(user) && graph::is_elementwise(c_.opcode(user)) && c_.elements(user) == c_.elements(id);
      });
      if (same) {
        place(id) = {ChainRole::kInner, false, place(users[0]).chain};
        found.push_back(id);
      }
    }
    if (found.empty()) return;
    for (NodeId id = 0; id < c_.flow.size(); ++id) all[static_cast<std::size_t>(instruction(id))].push_back(id);
    for (const NodeId id : found) {
      const auto& places = all[static_cast<std::size_t>(instruction(id))];
      const bool agreed = std::all_of(places.begin(), places.end(), inside);
      if (!agreed) place(id) = {};
    }
  }

  void write_roles() {
    if (std::all_of(dropped_.begin(), dropped_.end(), [](bool dropped) { return dropped; })) return;
    out_.role.assign(static_cast<std::size_t>(graph_.num_instructions()), ChainRole::kNone);
    out_.kernel.assign(out_.role.size(), kNone);
    // A statistic that others read is a result.
    for (NodeId id = 0; id < c_.flow.size(); ++id) {
      if (!place(id).small) continue;
      const auto users = c_.flow.users(id);
      const bool read =
          std::any_of(users.begin(), users.end(), [&](NodeId user) { return place(user).role == ChainRole::kNone; });
      if (read || c_.has(c_.results, id)) place(id).role = ChainRole::kResult;
    }
    for (NodeId id = 0; id < c_.flow.size(); ++id) {
      if (place(id).role != ChainRole::kNone && has_own_instruction(id))
        out_.role[static_cast<std::size_t>(instruction(id))] = place(id).role;
    }
  }

  void write_kernels() {
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      if (dropped_[i]) continue;
      for (const Chain::Kernel& kernel : chains_[i].kernels) {
        count(kernel);
        auto& slot = out_.kernel[static_cast<std::size_t>(instruction(kernel.anchor))];
        // A function that is called for several layers holds one kernel.
        if (slot != kNone) continue;
        slot = static_cast<std::int32_t>(out_.kernels.size());
        out_.kernels.push_back(by_instructions(kernel));
      }
    }
  }

  void count(const Chain::Kernel& kernel) {
    switch (kernel.kind) {
      case FusedKernelKind::kAttention:
        ++out_.attention;
        out_.causal += kernel.band.causal ? 1 : 0;
        out_.banded += kernel.band.edges > 0 && !kernel.band.causal ? 1 : 0;
        break;
      case FusedKernelKind::kAttentionGradient: ++out_.attention_gradients; break;
      case FusedKernelKind::kLoss: ++out_.losses; break;
      case FusedKernelKind::kLossGradient: ++out_.loss_gradients; break;
    }
  }

  FusedKernel by_instructions(const Chain::Kernel& kernel) const {
    FusedKernel out;
    out.kind = kernel.kind;
    out.anchor = instruction(kernel.anchor);
    for (const NodeId id : kernel.products) out.products.push_back(instruction(id));
    for (const NodeId id : kernel.reads) {
      // A leaf of a tuple has no instruction of its size.
      if (place_of(id).role != ChainRole::kInner && graph_.shape_of(instruction(id)).is_array())
        out.reads.push_back(instruction(id));
    }
    out.writes.push_back(out.anchor);
    for (const NodeId id : kernel.results) out.writes.push_back(instruction(id));
    out.tile = instruction(kernel.tile);
    out.key = kernel.key;
    if (kernel.query != kNone && graph_.shape_of(instruction(kernel.query)).is_array())
      out.query = instruction(kernel.query);
    out.head = kernel.head;
    out.band = kernel.band;
    return out;
  }
  const Place& place_of(NodeId id) const { return places_[static_cast<std::size_t>(id)]; }

  // A stack that is inside: the result of its loop that holds it, and what the chain keeps in its stead.
  void write_loops() {
    for (const graph::FlowLoop& loop : c_.flow.loops()) {
      for (std::size_t i = 0; i < loop.next.size(); ++i) {
        const Place& at = place(loop.next[i]);
        if (at.role != ChainRole::kInner || at.small) continue;
        out_.dropped_leaves.emplace(loop.instruction, c_.flow.node(loop.parameter[i]).leaf);
        auto& kept = out_.kept_by_loop[loop.instruction];
        for (const Chain::Kernel& kernel : chains_[static_cast<std::size_t>(at.chain)].kernels) {
          if (kernel.kind != FusedKernelKind::kAttention) continue;
          const std::int32_t number = out_.kernel[static_cast<std::size_t>(instruction(kernel.anchor))];
          if (std::find(kept.begin(), kept.end(), number) == kept.end()) kept.push_back(number);
        }
      }
    }
  }

  const Graph& graph_;
  const FusionRule& rule_;
  const ChainFlow c_;
  std::vector<Place> places_;  // by node
  std::vector<Chain> chains_;
  std::vector<bool> dropped_;  // by chain
  FusedChains out_;
};

}  // namespace

FusedChains find_fused_chains(const Graph& graph, const FusionRule& rule) {
  if (!rule.attention && !rule.loss) return {};
  // Nothing without an exponential: most modules of images are done here.
  for (InstructionId id = 0; id < graph.num_instructions(); ++id) {
    if (graph.instruction(id).opcode == Opcode::kExponential) return ChainCollector(graph, rule).run();
  }
  return {};
}

}  // namespace automap::profile
