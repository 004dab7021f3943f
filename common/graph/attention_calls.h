// Recognizes attention that a framework hands to a library as one custom call, whose work is known though it is no HLO:
// Transformer Engine's te_fused_attn_forward_ffi and te_fused_attn_backward_ffi, cuDNN's __cudnn$fmha...
// (jax.nn.dot_product_attention).
#pragma once

#include <optional>

#include "common/graph/graph.h"

namespace automap::graph {

struct AttentionCall {
  bool backward = false;
  double batch = 0, heads = 0, queries = 0, keys = 0;  // heads of the queries
  double key_heads = 0;                           // of keys and values, which groups of queries share: as many or fewer
  double query_features = 0, value_features = 0;  // of one head
  double kept = 1;                                // of all pairs of a query and a key: 1/2 behind a causal mask

  // Forward, the scores and their sums of values: 2 products. Backward, 5: the scores again, and the gradients of
  // values, probabilities, queries and keys.
  double flops() const {
    const double pairs = 2 * batch * heads * queries * keys * kept;
    return backward ? pairs * (3 * query_features + 2 * value_features) : pairs * (query_features + value_features);
  }
};

// Reads a custom call. nullopt for other targets, and where the shapes are none of those above. Sizes are those of its
// first operands, in the order batch, sequence, heads, features, unless its configuration says otherwise; the batch is
// always that of the shapes (resized_graph.h).
std::optional<AttentionCall> attention_call(const Graph& graph, InstructionId id);

}  // namespace automap::graph
