// The types that the recognisers of fused chains share: a module's data flow with one turn of every loop, and the
// chains that they hand to fused_chains.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/graph/dependence.h"
#include "profile/fused_chains.h"

namespace automap::profile {

struct ChainFlow {
  explicit ChainFlow(const graph::Graph& graph);

  graph::FlowGraph flow;
  std::vector<bool> free;     // follows from constants and iota alone
  std::vector<bool> results;  // of the module
  std::vector<bool> escapes;  // a result, or handed from one turn of a loop to the next

  graph::Opcode opcode(graph::NodeId id) const { return flow.node(id).opcode; }
  std::int64_t elements(graph::NodeId id) const { return flow.shape(id).is_array() ? flow.shape(id).num_elements : 0; }
  bool has(const std::vector<bool>& flags, graph::NodeId id) const { return flags[static_cast<std::size_t>(id)]; }
  // The node is a reduction with the reducer `opcode`.
  bool reduces_by(graph::NodeId id, graph::Opcode opcode) const;
  // The sum over one dimension of `id`, or of it in another type, and that dimension, longer than 1. Nothing when there
  // is none.
  struct Sum {
    graph::NodeId node = graph::kNone;
    std::int32_t dim = 0;
  };
  std::optional<Sum> sum_of(graph::NodeId id) const;
  // 16-bit floating point.
  bool is_short(graph::NodeId id) const;
  // `id` or what it is made of, without casts and movement, is a matrix product; kNone when not.
  graph::NodeId product_before(graph::NodeId id) const;
  // A comparison for (in)equality, one side of which at least counts places (follows from iota), within a few steps
  // before `id`.
  bool equals_places(graph::NodeId id) const;
};

// A chain at one place of its instructions.
struct Chain {
  struct Kernel {
    FusedKernelKind kind = FusedKernelKind::kAttention;
    graph::NodeId anchor = graph::kNone;
    std::vector<graph::NodeId> products, results, reads;  // results: beside the anchor
    graph::NodeId tile = graph::kNone, query = graph::kNone;
    std::int32_t key = 0;
    std::int64_t head = 0;
    ScoreBand band;
  };
  // Never written. Small values (statistics of rows) stand in `small`: they are inside where all places of their
  // instruction agree, and of no account elsewhere.
  std::vector<graph::NodeId> inner, small;
  std::vector<Kernel> kernels;
};

class AttentionFinder {
 public:
  explicit AttentionFinder(const ChainFlow& flow);
  ~AttentionFinder();
  // The chain whose softmax's exponential is `id`. Without one, `*missed` says why it is none although it is a softmax
  // of scores (a matrix product in front, summed over a dimension, and a matrix product over that dimension behind it);
  // kNone when it is not.
  std::optional<Chain> find(graph::NodeId id, const FusionRule& rule, MissedChain* missed);

 private:
  class Search;
  std::unique_ptr<Search> search_;
};

class LossFinder {
 public:
  explicit LossFinder(const ChainFlow& flow);
  ~LossFinder();
  std::optional<Chain> find(graph::NodeId id, const FusionRule& rule);

 private:
  class Search;
  std::unique_ptr<Search> search_;
};

}  // namespace automap::profile
