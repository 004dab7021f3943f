// Chains of instructions that libraries compute in one kernel, found by data flow: softmax(Q K^T) V with all that may
// stand between (scale, mask, bias, dropout, casts), its gradient, and the cross-entropy of logits with its gradient.
// docs/profile.md, "Fused kernels".
//
// What is inside such a chain is never written: the S x S scores and probabilities, their masks and gradients. A chain
// is taken only when nobody outside reads anything inside it; an instruction of a function that is called from several
// places is inside only when it is at all of them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/graph/graph.h"
#include "common/machine/device.h"
#include "profile/score_mask.h"

namespace automap::profile {

enum class FusedKernelKind : std::uint8_t { kAttention, kAttentionGradient, kLoss, kLossGradient };
const char* to_string(FusedKernelKind kind);

// A fused kernel, given by instructions whose shapes tell its size at any extents.
struct FusedKernel {
  FusedKernelKind kind = FusedKernelKind::kAttention;
  graph::InstructionId anchor = graph::kNone;  // its time is this one's
  // Matrix products that it computes; one that it computes again stands here, too.
  std::vector<graph::InstructionId> products;
  std::vector<graph::InstructionId> reads, writes;  // arrays, each once
  graph::InstructionId tile = graph::kNone;         // has the extents of the scores, or the logits
  std::int32_t key = 0;                             // the dimension of `tile` that softmax runs over
  graph::InstructionId query = graph::kNone;        // of attention: Q, what an accumulator of dQ is as large as
  std::int64_t head = 0;                            // of attention: the length that Q K^T contracts
  ScoreBand band;                                   // of attention: the scores that are computed
};

// The chains that are searched for.
struct FusionRule {
  bool attention = false, loss = false;
  bool only_16bit = true;  // products of f16 and bf16 only
};

// --attention: as the devices' libraries have it, fused in every type on every device, or as the module says.
enum class AttentionMode : std::uint8_t { kAuto, kFused, kAsWritten };
std::vector<std::string> attention_modes();  // "auto", "fused", "as-written"
// Throws Error(kUsage) for anything else.
AttentionMode parse_attention_mode(const std::string& name);
// kAuto: 16-bit products where all of `devices` have kernels for them.
FusionRule fusion_rule(AttentionMode mode, const std::vector<machine::DeviceModel>& devices);

// The reason why a softmax of scores is not fused.
enum class MissedChain : std::uint8_t {
  kNone,
  kType,  // its products are no 16-bit ones, which FusionRule::only_16bit asks for
  kHead,  // heads longer than kernels hold
  kRead,  // others read what is inside, or it is not the same at all places of its instructions
};

struct FusedChains {
  enum class Role : std::uint8_t {
    kNone,
    kInner,   // never written, takes no time of its own
    kResult,  // written by a kernel whose time another one has
    kAnchor,  // written by the kernel whose time it has
  };
  std::vector<Role> role;            // by instruction; empty: nothing is fused
  std::vector<std::int32_t> kernel;  // by instruction: of an anchor, index into kernels; else kNone
  std::vector<FusedKernel> kernels;  // by anchor, ascending
  // Results of a `while` that hold what is inside a chain, one layer per turn: (while, leaf). They are not kept.
  std::set<std::pair<graph::InstructionId, std::int32_t>> dropped_leaves;
  // Anchors of attention in the body of a `while` whose gradient is in another one: per `while`, what is kept instead.
  std::map<graph::InstructionId, std::vector<std::int32_t>> kept_by_loop;  // indices into kernels

  // Counts for people, one for each place of a chain.
  std::int64_t attention = 0, attention_gradients = 0, causal = 0, banded = 0, losses = 0, loss_gradients = 0;
  // Softmaxes of scores (of a matrix product over which a matrix product is taken) that were not taken.
  std::int64_t missed = 0;
  std::int64_t missed_type = 0, missed_head = 0;  // of them for these reasons; the others: MissedChain::kRead

  Role role_of(graph::InstructionId id) const {
    return role.empty() ? Role::kNone : role[static_cast<std::size_t>(id)];
  }
  bool is_inner(graph::InstructionId id) const { return role_of(id) == Role::kInner; }
  // "12 attentions (12 causal) and 12 gradients, 1 cross-entropy and 1 gradient"; empty when there are none.
  std::string summary() const;
  const FusedKernel* kernel_of(graph::InstructionId id) const {
    if (role.empty() || kernel[static_cast<std::size_t>(id)] == graph::kNone) return nullptr;
    return &kernels[static_cast<std::size_t>(kernel[static_cast<std::size_t>(id)])];
  }
};

// Finds the chains that the rule asks for. Throws Error(kData) when an attribute that decides is malformed.
FusedChains find_fused_chains(const graph::Graph& graph, const FusionRule& rule);

}  // namespace automap::profile
