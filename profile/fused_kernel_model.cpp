#include "profile/fused_kernel_model.h"

#include <algorithm>

namespace automap::profile {

using graph::Graph;
using graph::InstructionId;
using graph::Shape;

namespace {

// Forward on an H100, heads of 128, 16 384 tokens: 430, 517, 566, 590, 614, 621 TFLOP/s of 989 at 512 .. 16 384 keys
// (FlashAttention-3 as pytorch/benchmark #2391 printed it). Fitted on 512, 2048 and 8192 keys: 0.637 · keys / (keys +
// 235); the others are met within 1.5 %.
constexpr double kEndless = 0.637;
constexpr double kHalfKeys = 235;
// Assumed, with no table to fit: shorter heads leave matrix units idle (the papers' plots show 64 at about 0.78 of
// 128), a causal kernel's tiles on the diagonal are half empty, and a gradient's products (five, and two of them added
// up across tiles) reach 0.86 of a forward's share.
constexpr double kHalfHead = 50, kFittedHead = 128;
constexpr double kEdgeKeys = 125;  // computed in vain by every query, about a tile's length
constexpr double kGradientShare = 0.86;
// Vector work per logit, forward or backward: an exponential, and what is around it.
constexpr double kLossOperations = kTranscendentalOperations + 4;
constexpr double kStatisticBytes = 4;
constexpr double kScorePasses = 2;

double bytes(const Graph& graph, InstructionId id) {
  return graph.shape_of(id).is_array() ? static_cast<double>(graph.shape_of(id).bytes) : 0.0;
}

std::int64_t keys_of(const Graph& graph, const FusedKernel& kernel) {
  return std::max<std::int64_t>(1, graph.shape_of(kernel.tile).dims[static_cast<std::size_t>(kernel.key)]);
}

double rows_of(const Graph& graph, const FusedKernel& kernel) {
  return static_cast<double>(graph.shape_of(kernel.tile).num_elements) / static_cast<double>(keys_of(graph, kernel));
}

double product_flops(const Graph& graph, const FusedKernel& kernel) {
  double flops = 0;
  for (const InstructionId id : kernel.products) {
    const graph::DotDimensions dims = graph::dot_dimensions(graph, id);
    const Shape& left = graph.shape_of(graph.operands(id)[0]);
    double contracted = 1;
    for (const std::int64_t dim : dims.lhs_contracting)
      contracted *= static_cast<double>(left.dims[static_cast<std::size_t>(dim)]);
    flops += 2 * static_cast<double>(graph.shape_of(id).num_elements) * contracted;
  }
  return flops;
}

bool is_loss(FusedKernelKind kind) {
  return kind == FusedKernelKind::kLoss || kind == FusedKernelKind::kLossGradient;
}

}  // namespace

double attention_share_of_peak(std::int64_t head, std::int64_t keys, const ScoreBand& band, bool gradient) {
  const auto d = static_cast<double>(head), k = static_cast<double>(keys);
  const double paid = std::min(k + kHalfKeys, band.kept * (k + kHalfKeys) + band.edges * kEdgeKeys);
  const double length = band.kept * k / paid;
  const double width = std::min(1.0, d / (d + kHalfHead) * ((kFittedHead + kHalfHead) / kFittedHead));
  return kEndless * length * width * (gradient ? kGradientShare : 1);
}

Work fused_work(const KernelModel& kernels, const Graph& graph, const FusedKernel& kernel) {
  double moved = rows_of(graph, kernel) * kStatisticBytes;
  for (const InstructionId id : kernel.reads) moved += bytes(graph, id);
  const bool loss = is_loss(kernel.kind);
  if (kernel.kind != FusedKernelKind::kLoss) {
    for (const InstructionId id : kernel.writes) moved += bytes(graph, id);
  }
  Work work{0, kernels.memory_ms(moved)};
  const Shape& tile = graph.shape_of(kernel.tile);
  if (loss) {
    work.compute_ms = kernels.vector_ms(static_cast<double>(tile.num_elements) * kLossOperations, tile);
    return work;
  }
  const bool gradient = kernel.kind == FusedKernelKind::kAttentionGradient;
  const double share = attention_share_of_peak(kernel.head, keys_of(graph, kernel), kernel.band, gradient);
  const double flops = product_flops(graph, kernel) * kernel.band.kept;
  work.compute_ms = kernels.product_ms(kernel.products[0], flops, share);
  return work;
}

namespace {

// Not more than what its instructions take one by one: their products, none of them computed again, and the passes over
// the scores that no fused loop saves (forward: read for the sum, read and written for the probabilities).
double least_parts_ms(const KernelModel& kernels, const Graph& graph, const FusedKernel& kernel) {
  double ms = 0;
  for (const InstructionId id : kernel.products) {
    const bool again = kernel.kind == FusedKernelKind::kAttentionGradient && id == kernel.tile;
    if (!again) ms += kernels.kernel_ms(kernels.kernel_work(id, false).overlapped());
  }
  return ms + kernels.memory_ms(kScorePasses * bytes(graph, kernel.tile));
}

}  // namespace

double fused_kernel_ms(const KernelModel& kernels, const Graph& graph, const FusedKernel& kernel) {
  const double ms = kernels.kernel_ms(fused_work(kernels, graph, kernel).overlapped());
  return is_loss(kernel.kind) ? ms : std::min(ms, least_parts_ms(kernels, graph, kernel));
}

double kept_bytes(const Graph& graph, const FusedKernel& kernel) {
  return rows_of(graph, kernel) * kStatisticBytes;
}

double fused_workspace_bytes(const Graph& graph, const FusedKernel& kernel) {
  if (kernel.kind != FusedKernelKind::kAttentionGradient || kernel.query == graph::kNone) return 0;
  const double values = static_cast<double>(graph.shape_of(kernel.query).num_elements);
  return values * 4 + rows_of(graph, kernel) * kStatisticBytes;
}

}  // namespace automap::profile
