#include "profile/kernel_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/graph/attention_calls.h"
#include "common/machine/links.h"
#include "profile/fused_kernel_model.h"

namespace automap::profile {
namespace {

using graph::Instruction;
using graph::InstructionId;
using graph::Opcode;
using graph::Shape;

// A vector unit issues one operation where a multiply-add counts two.
constexpr double kIssuedPerPeak = 0.5;
// A matrix product works on output tiles of this many elements, by a side of kTileSide; a narrower result leaves part
// of the tile idle. Longer than kSplitLength, the contraction is split to make more tiles.
constexpr double kTileSide = 128;
constexpr double kTile = kTileSide * kTileSide;
constexpr double kNarrowest = 0.5;
constexpr double kNarrowPower = 0.8;  // fitted on Aceso's attention operators, 64 to 128 wide
constexpr double kSplitLength = 4096;
// Winograd's inputs and results are transformed in passes of their own: written and read 36/16 times as large, weights
// 36/9 times.
constexpr double kWinogradBlock = 4;
constexpr double kWinogradPasses = 2 * 36.0 / 16;
constexpr double kWinogradWeightPasses = 2 * 36.0 / 9;
// A grouped convolution with fewer features per group than this leaves matrix units idle.
constexpr double kFullGroup = 32;
// Passes over memory.
constexpr double kSortPasses = 4;
constexpr double kBatchNormPasses = 1.5;

// A broadcast goes around the ring in pieces, as a gather does.
CollectiveKind operation_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::kAllReduce:
    case Opcode::kAllReduceStart: return CollectiveKind::kAllReduce;
    case Opcode::kReduceScatter: return CollectiveKind::kReduceScatter;
    case Opcode::kAllToAll:
    case Opcode::kRaggedAllToAll: return CollectiveKind::kAllToAll;
    case Opcode::kCollectivePermute:
    case Opcode::kCollectivePermuteStart: return CollectiveKind::kPermute;
    default: return CollectiveKind::kAllGather;
  }
}

std::string_view units_for(const Shape& shape) {
  using graph::ElementType;
  switch (shape.type) {
    case ElementType::kF64:
    case ElementType::kC128: return "f64";
    case ElementType::kF16: return "f16";
    case ElementType::kBf16: return "bf16";
    case ElementType::kF8:
    case ElementType::kF6:
    case ElementType::kF4: return "f8";
    case ElementType::kF32:
    case ElementType::kC64: return "tf32";
    case ElementType::kS8:
    case ElementType::kU8:
    case ElementType::kS4:
    case ElementType::kU4: return "i8";
    default: return "f32";
  }
}

}  // namespace

std::string_view matmul_type(const graph::Graph& graph, InstructionId id) {
  const Shape& lhs = graph.shape_of(graph.operands(id)[0]);
  const Shape& rhs = graph.shape_of(graph.operands(id)[1]);
  // Integers wider than a byte have no matrix units.
  const std::string_view type = units_for(lhs.bits >= rhs.bits ? lhs : rhs);
  if (type != "tf32") return type;
  const auto precision = graph.attribute(id, "operand_precision");
  return precision && precision->find("highest") != std::string_view::npos ? "f32" : "tf32";
}

double KernelModel::vector_ms(double operations, const Shape& shape) const {
  const bool wide = shape.type == graph::ElementType::kF64 || shape.type == graph::ElementType::kC128;
  const double share = device_.vector_efficiency * device_.sustained_clock;
  return operations / ((wide ? wide_tflops_ : vector_tflops_) * share * kIssuedPerPeak) * 1e-9;
}

double KernelModel::operand_bytes(InstructionId id) const {
  double sum = 0;
  for (InstructionId operand : graph_.operands(id)) sum += bytes(operand);
  return sum;
}

Work KernelModel::reduce_work(InstructionId id) const {
  const graph::Cost& cost = cost_.instructions[at(id)];
  const auto operands = graph_.operands(id);
  const Shape& shape = operands.empty() ? graph_.shape_of(id) : graph_.shape_of(operands[0]);
  return {vector_ms(cost.flops + cost.transcendentals * kTranscendentalOperations, shape), 0};
}

Work KernelModel::kernel_work(InstructionId id, bool first_is_constant) const {
  const graph::Cost& cost = cost_.instructions[at(id)];
  const Shape& shape = graph_.shape_of(id);
  const double all_bytes = operand_bytes(id) + bytes(id);
  const double vector_operations = cost.flops + cost.transcendentals * kTranscendentalOperations;
  Work work{vector_ms(vector_operations, shape), memory_ms(all_bytes)};
  switch (graph_.instruction(id).opcode) {
    case Opcode::kDot:
    case Opcode::kScaledDot:
    case Opcode::kRaggedDot:
      work.compute_ms = dot_ms(id);
      work.overlap = device_.matmul_overlap;
      break;
    case Opcode::kConvolution: work = convolution_work(id, work.memory_ms); break;
    case Opcode::kGather: work.memory_ms = memory_ms(cost.bytes, device_.gather_efficiency); break;
    case Opcode::kDynamicUpdateSlice:
    case Opcode::kScatter: {
      // In place, except that an operand made from constants has to be written first.
      const bool rows = graph_.instruction(id).opcode == Opcode::kScatter;
      work.memory_ms = memory_ms(cost.bytes, rows ? device_.scatter_efficiency : device_.memory_efficiency);
      const auto operands = graph_.operands(id);
      if (!operands.empty() && first_is_constant) {
        work.memory_ms += memory_ms(bytes(operands[0]));
      }
      break;
    }
    case Opcode::kCustomCall:
      if (const std::optional<graph::AttentionCall> attention = graph::attention_call(graph_, id)) {
        const ScoreBand band{attention->kept, attention->kept < 0.5 ? 2 : attention->kept < 1 ? 1 : 0, true};
        const double share = attention_share_of_peak(
            static_cast<std::int64_t>(attention->query_features),
            std::max<std::int64_t>(1, static_cast<std::int64_t>(attention->keys)), band, attention->backward);
        work.compute_ms = tensor_ms(cost.flops, units_for(graph_.shape_of(graph_.operands(id)[0])), share);
      }
      break;
    case Opcode::kSort: work.memory_ms = memory_ms(all_bytes * kSortPasses); break;
    case Opcode::kBatchNormTraining:
    case Opcode::kBatchNormInference:
    case Opcode::kBatchNormGrad: work.memory_ms = memory_ms(all_bytes * kBatchNormPasses); break;
    case Opcode::kReduceWindow:
    case Opcode::kSelectAndScatter: {
      // A window over a whole dimension is a running sum, done in a logarithmic number of steps.
      double window = 1;
      for (const graph::WindowDimension& dimension : graph::window_attribute(graph_, id)) {
        window *= static_cast<double>(dimension.size);
      }
      constexpr double kDirect = 64;
      if (window > kDirect) {
        work.compute_ms = vector_ms(vector_operations / window * 2 * std::log2(window), shape);
      }
      break;
    }
    default: break;
  }
  return work;
}

double KernelModel::tensor_ms(double flops, std::string_view type, double share) const {
  return flops / (device_.matmul_tflops(type) * share * device_.sustained_clock) * 1e-9;
}

double KernelModel::dot_ms(InstructionId id) const {
  const graph::DotDimensions dims = graph::dot_dimensions(graph_, id);
  const InstructionId lhs = graph_.operands(id)[0];
  const auto product = [&](InstructionId of, const std::vector<std::int64_t>& which) {
    double result = 1;
    for (std::int64_t dim : which) {
      result *= static_cast<double>(graph_.shape_of(of).dims[static_cast<std::size_t>(dim)]);
    }
    return result;
  };
  const double k = product(lhs, dims.lhs_contracting);
  const double batch = product(lhs, dims.lhs_batch);
  const double lhs_rest = std::max(1.0, elements(lhs) / std::max(1.0, k * batch));
  const double n = std::max(1.0, elements(id) / std::max(1.0, lhs_rest * batch));
  double flops = 2 * elements(id) * k;
  const Shape& lhs_shape = graph_.shape_of(lhs);
  if (lhs_shape.type == graph::ElementType::kC64 || lhs_shape.type == graph::ElementType::kC128) flops *= 4;
  const std::string_view type = matmul_type(graph_, id);
  const double share = matmul_share_of_peak(device_, type, batch, lhs_rest, n, k);
  return std::min(tensor_ms(flops, type, share), vector_ms(flops, lhs_shape));
}

double KernelModel::product_ms(InstructionId id, double flops, double share) const {
  return tensor_ms(flops, matmul_type(graph_, id), share);
}

Work KernelModel::convolution_work(InstructionId id, double moved_ms) const {
  const double flops = cost_.instructions[at(id)].flops;
  const double outputs = std::max(1.0, elements(id));
  const double k = std::max(1.0, flops / (2 * outputs));
  const graph::ConvolutionDimensions dims = graph::convolution_dimensions(graph_, id);
  const auto features = static_cast<double>(graph_.shape_of(id).dims[static_cast<std::size_t>(dims.output_feature)]);
  const auto feature_groups = static_cast<double>(graph::int_attribute(graph_, id, "feature_group_count", 1));
  const auto batch_groups = static_cast<double>(graph::int_attribute(graph_, id, "batch_group_count", 1));
  const double groups = std::max(1.0, std::max(feature_groups, batch_groups));
  const double n = std::max(1.0, features / groups);
  const InstructionId lhs = graph_.operands(id)[0];
  const std::string_view type = matmul_type(graph_, id);
  const bool on_vector_units = device_.matmul_tflops(type) <= device_.matmul_tflops("f32");
  const double against_product =
      on_vector_units ? device_.vector_convolution_efficiency : device_.convolution_efficiency;
  double share = matmul_share_of_peak(device_, type, groups, outputs / (n * groups), n, k);
  if (groups > 1) share *= std::min(1.0, n / kFullGroup);
  const double product_ms = std::min(tensor_ms(flops, type, share), vector_ms(flops, graph_.shape_of(lhs)));
  const Work direct{product_ms / against_product, moved_ms};
  if (!on_vector_units || groups > 1) return direct;
  const std::optional<Work> winograd = winograd_work(id, dims, direct.compute_ms, moved_ms);
  return winograd && winograd->overlapped() < direct.overlapped() ? *winograd : direct;
}

// A 3x3 window that moves by one, or the gradient of such a kernel: there the 3x3 positions are the result.
std::optional<Work> KernelModel::winograd_work(InstructionId id, const graph::ConvolutionDimensions& dims,
                                               double direct_compute_ms, double moved_ms) const {
  const std::vector<graph::WindowDimension> window = graph::window_attribute(graph_, id);
  if (window.size() != 2 || dims.output_spatial.size() != 2) return std::nullopt;
  bool forward = true, gradient = true;
  double filled = 1;  // of the blocks that cover the image
  for (std::size_t i = 0; i < window.size(); ++i) {
    const graph::WindowDimension& dimension = window[i];
    if (dimension.stride != 1 || dimension.window_dilation != 1 || dimension.base_dilation != 1) return std::nullopt;
    const std::int64_t positions = graph_.shape_of(id).dims[static_cast<std::size_t>(dims.output_spatial[i])];
    forward = forward && dimension.size == 3;
    gradient = gradient && positions == 3;
    const auto side = static_cast<double>(dimension.size == 3 ? positions : dimension.size);
    filled *= side / (kWinogradBlock * std::ceil(side / kWinogradBlock));
  }
  if ((!forward && !gradient) || filled <= 0) return std::nullopt;
  const double weights = forward ? bytes(graph_.operands(id)[1]) : bytes(id);
  const double images = std::max(0.0, operand_bytes(id) + bytes(id) - weights);
  // The transforms are kernels of their own: nothing hides them.
  Work work{direct_compute_ms / (kWinogradSaving * filled), moved_ms};
  work.memory_ms += memory_ms(kWinogradPasses * images + kWinogradWeightPasses * weights);
  work.overlap = 0;
  return work;
}

double KernelModel::collective_ms(InstructionId id) const {
  const Instruction& instruction = graph_.instruction(id);
  double devices = 0;
  if (const auto raw = graph_.attribute(id, "replica_groups")) {
    devices = static_cast<double>(graph::decode_replica_groups(*raw, {instruction.name, "replica_groups"}).group_size);
  }
  if (devices == 0) devices = std::max(header_count("num_partitions"), header_count("replica_count"));
  machine::CollectiveGroup group;
  group.devices = group.devices_per_server = static_cast<int>(std::clamp(devices, 1.0, 1e6));
  group.intra_bytes_per_ms = device_.link_gbytes_per_s * machine::kBytesPerMsPerGByteS;
  if (const machine::MeasuredLinks& known = machine::known_links(device_); !known.empty()) group.measured = &known;
  if (group.measured == nullptr && device_.link_gbytes_per_s <= 0) return 0;
  const CollectiveKind operation = operation_of(instruction.opcode);
  double moved = operand_bytes(id);
  if (operation == CollectiveKind::kAllGather && instruction.opcode != Opcode::kCollectiveBroadcast) {
    moved *= devices;
  }
  const double ms = machine::collective(operation, group, machine::Ring::kNccl).ms(moved);
  return ms > 0 && group.measured == nullptr ? ms + launch_ms() : ms;
}

double KernelModel::header_count(std::string_view key) const {
  const auto raw = graph_.header_attribute(key);
  return raw ? static_cast<double>(graph::decode_int(*raw, {"HloModule", key})) : 1.0;
}

double matmul_share_of_peak(const machine::DeviceModel& device, std::string_view type, double batch, double m, double n,
                            double k) {
  const machine::MatmulEfficiency efficiency = device.matmul_efficiency_of(type);
  const double tiles = batch * m * n / kTile * std::max(1.0, k / kSplitLength);
  const double half_tiles = efficiency.half_tiles * static_cast<double>(device.cores);
  const double narrow = std::clamp(std::min(m, n) / kTileSide, kNarrowest, 1.0);
  // An empty product takes no time whatever its efficiency; keep the ratio finite.
  const double share = efficiency.share * (tiles / (tiles + half_tiles)) * (k / (k + efficiency.half_length)) *
                       std::pow(narrow, kNarrowPower);
  return std::max(share, 1e-9);
}

}  // namespace automap::profile
