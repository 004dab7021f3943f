// Scores are the matrix product that a softmax (an exponential that is also summed up) is made of: it does the same for
// every sample and every head, so that these are its batch dimensions. Keys that groups of queries share are repeated
// by a broadcast in front of it, or are a batch dimension beside which the group is a free one.
#include "profile/attention_heads.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "common/graph/attention_calls.h"
#include "common/graph/hlo_attributes.h"
#include "profile/chain_flow.h"

namespace automap::profile {

using graph::kNone;
using graph::NodeId;
using graph::Opcode;

namespace {

// More steps than any softmax has between its scores and its exponential: masks, scales, the largest score.
constexpr std::size_t kStepsToScores = 96;

// The products of the exponential's own size that it is made of.
std::vector<NodeId> scores_of(const ChainFlow& chain, NodeId exponential) {
  std::vector<NodeId> open{exponential}, found;
  for (std::size_t next = 0; next < open.size() && next < kStepsToScores; ++next) {
    for (const NodeId operand : chain.flow.operands(open[next])) {
      const bool same = chain.elements(operand) == chain.elements(exponential) && !chain.has(chain.free, operand);
      if (!same || std::find(open.begin(), open.end(), operand) != open.end()) continue;
      const Opcode opcode = chain.opcode(operand);
      if (opcode == Opcode::kDot) {
        found.push_back(operand);
      } else if (graph::is_elementwise(opcode) || graph::is_movement(chain.flow, operand)) {
        open.push_back(operand);
      }
    }
  }
  return found;
}

// The number of times that a broadcast repeats its operand. Repeats along its first dimension are of samples and do not
// count.
std::int64_t repeats_within_samples(const ChainFlow& chain, NodeId broadcast) {
  const graph::Shape& shape = chain.flow.shape(broadcast);
  const auto kept = graph::dimension_list_attribute(chain.flow.graph(), chain.flow.node(broadcast).instruction,
                                                    "dimensions", shape.dims.size());
  std::int64_t times = 1;
  for (std::size_t d = 1; d < shape.dims.size(); ++d) {
    if (std::find(kept.begin(), kept.end(), static_cast<std::int64_t>(d)) == kept.end()) times *= shape.dims[d];
  }
  return times;
}

// The number of times that a factor of the scores holds each of its values: the queries of a group share keys.
std::int64_t repeats(const ChainFlow& chain, NodeId factor) {
  for (std::size_t step = 0; step < kStepsToScores; ++step) {
    const auto operands = chain.flow.operands(factor);
    if (operands.empty() || chain.elements(operands[0]) < 2) return 1;
    const Opcode opcode = chain.opcode(factor);
    if (opcode == Opcode::kBroadcast && chain.elements(operands[0]) < chain.elements(factor)) {
      return repeats_within_samples(chain, factor);
    }
    // A scale: by what follows from constants.
    const bool scaled = opcode == Opcode::kMultiply && operands.size() == 2 &&
                        (chain.has(chain.free, operands[0]) || chain.has(chain.free, operands[1]));
    if (!scaled && !graph::is_movement(chain.flow, factor)) return 1;
    factor = scaled && chain.has(chain.free, operands[0]) ? operands[1] : operands[0];
  }
  return 1;
}

std::int64_t heads_of_product(const ChainFlow& chain, NodeId product, std::int64_t samples) {
  const auto factors = chain.flow.operands(product);
  const graph::DotDimensions dims = graph::dot_dimensions(chain.flow.graph(), chain.flow.node(product).instruction);
  std::int64_t batches = 1;
  for (const std::int64_t dim : dims.lhs_batch) {
    batches *= chain.flow.shape(factors[0]).dims[static_cast<std::size_t>(dim)];
  }
  if (dims.lhs_batch.empty() || batches % samples != 0) return 0;
  const std::int64_t heads = batches / samples;
  const std::int64_t group = std::max(repeats(chain, factors[0]), repeats(chain, factors[1]));
  return heads % group == 0 ? heads / group : heads;
}

}  // namespace

std::int64_t attention_heads(const graph::Graph& graph, std::int64_t samples) {
  const ChainFlow chain(graph);
  std::int64_t heads = 0;
  for (NodeId id = 0; id < chain.flow.size(); ++id) {
    if (chain.opcode(id) == Opcode::kCustomCall) {
      const auto call = graph::attention_call(graph, chain.flow.node(id).instruction);
      if (call) heads = std::gcd(heads, static_cast<std::int64_t>(call->key_heads));
    }
    if (chain.opcode(id) != Opcode::kExponential || !chain.sum_of(id)) continue;
    for (const NodeId product : scores_of(chain, id)) {
      heads = std::gcd(heads, heads_of_product(chain, product, samples));
    }
  }
  return heads;
}

}  // namespace automap::profile
