// Products that sum over dimensions: dots and convolutions.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "common/graph/hlo_attributes.h"
#include "common/sharding/rules.h"

namespace automap::sharding {

using graph::dimension_list_attribute;

namespace {

// The dimensions of a factor's slot that are neither batch nor contracting, ascending.
std::vector<std::int32_t> free_dims(std::int32_t rank, const std::vector<std::int64_t>& batch,
                                    const std::vector<std::int64_t>& contracting) {
  std::vector<std::int32_t> dims;
  for (std::int32_t dim = 0; dim < rank; ++dim) {
    if (!contains(batch, dim) && !contains(contracting, dim)) dims.push_back(dim);
  }
  return dims;
}

// The position of a dimension of a factor that is no batch dimension and no contracting one.
bool well_formed(const RuleBuilder& b, const graph::DotDimensions& dims) {
  if (dims.lhs_batch.size() != dims.rhs_batch.size() || dims.lhs_contracting.size() != dims.rhs_contracting.size()) {
    return false;
  }
  for (const std::int64_t dim : dims.lhs_batch) {
    if (contains(dims.lhs_contracting, dim)) return false;
  }
  for (const std::int64_t dim : dims.rhs_batch) {
    if (contains(dims.rhs_contracting, dim)) return false;
  }
  return b.num_results() == 1;
}

// Small enough to compute with.
bool is_plain(const graph::WindowDimension& w, std::int64_t in, std::int64_t out) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  return w.pad_low >= 0 && w.pad_low < kMost && w.size < kMost && w.stride < kMost && w.base_dilation < kMost &&
         w.window_dilation < kMost && in < kMost && out < kMost;
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

}  // namespace

// Result: batch dimensions, the free ones of the left factor, the free ones of the right.
void dot_rule(RuleBuilder& b) {
  // More operands: sparse factors with their positions.
  if (b.num_operands() != 2 || b.num_results() != 1 || !b.are_arrays(0, 3)) return b.refuse();
  const graph::DotDimensions dims = graph::dot_dimensions(b.graph(), b.id());
  if (!well_formed(b, dims)) return b.refuse();
  const std::vector<std::int32_t> lhs_free = free_dims(b.rank(0), dims.lhs_batch, dims.lhs_contracting);
  const std::vector<std::int32_t> rhs_free = free_dims(b.rank(1), dims.rhs_batch, dims.rhs_contracting);
  if (static_cast<std::size_t>(b.rank(2)) != dims.lhs_batch.size() + lhs_free.size() + rhs_free.size()) {
    return b.refuse();
  }
  std::int32_t out = 0;
  for (std::size_t i = 0; i < dims.lhs_batch.size(); ++i) {
    b.pass({{0, narrow(dims.lhs_batch[i])}, {1, narrow(dims.rhs_batch[i])}, {2, out++}});
  }
  for (const std::int32_t dim : lhs_free) b.pass({{0, dim}, {2, out++}});
  for (const std::int32_t dim : rhs_free) b.pass({{1, dim}, {2, out++}});
  for (std::size_t i = 0; i < dims.lhs_contracting.size(); ++i) {
    b.partial({{0, narrow(dims.lhs_contracting[i])}, {1, narrow(dims.rhs_contracting[i])}}, Reduction::kAdd);
  }
}

// ragged-dot(lhs, rhs, group_sizes): the ragged dimension of lhs is cut into groups of the given sizes, each with its
// own matrix of rhs. Where the groups lie is data, so the ragged dimension and the groups stay whole; all else is a
// dot.
//   ragged free:        lhs [b,m,k], rhs [g,b,k,n] -> [b,m,n]
//   ragged contracting: lhs [b,m,k], rhs [b,k,n]   -> [g,b,m,n]
//   ragged batch:       lhs [b,m,k], rhs [b,k,n]   -> [b,m,n]
void ragged_dot_rule(RuleBuilder& b) {
  if (b.num_operands() != 3 || b.num_results() != 1 || !b.are_arrays(0, 4) || b.rank(2) != 1) return b.refuse();
  const std::int32_t result = b.result();
  const graph::DotDimensions dims = graph::dot_dimensions(b.graph(), b.id());
  const auto ragged_dims =
      dimension_list_attribute(b.graph(), b.id(), "lhs_ragged_dims", static_cast<std::size_t>(b.rank(0)));
  const auto group_dims =
      dimension_list_attribute(b.graph(), b.id(), "rhs_group_dims", static_cast<std::size_t>(b.rank(1)));
  if (!well_formed(b, dims) || ragged_dims.size() != 1 || group_dims.size() > 1) return b.refuse();
  const std::int64_t ragged = ragged_dims[0];
  const bool ragged_contracting = contains(dims.lhs_contracting, ragged);
  const bool ragged_free = !ragged_contracting && !contains(dims.lhs_batch, ragged);
  if (ragged_free != (group_dims.size() == 1)) return b.refuse();
  b.block_slot(2, Block::kWhole);
  if (ragged_free) {
    if (contains(dims.rhs_batch, group_dims[0]) || contains(dims.rhs_contracting, group_dims[0])) return b.refuse();
    b.block({1, narrow(group_dims[0])}, Block::kWhole);
  }
  const std::vector<std::int32_t> lhs_free = free_dims(b.rank(0), dims.lhs_batch, dims.lhs_contracting);
  std::vector<std::int32_t> rhs_free = free_dims(b.rank(1), dims.rhs_batch, dims.rhs_contracting);
  if (ragged_free) rhs_free.erase(std::find(rhs_free.begin(), rhs_free.end(), narrow(group_dims[0])));
  std::int32_t out = 0;
  if (ragged_contracting) b.block({result, out++}, Block::kWhole);
  if (static_cast<std::size_t>(b.rank(result)) !=
      static_cast<std::size_t>(out) + dims.lhs_batch.size() + lhs_free.size() + rhs_free.size()) {
    return b.refuse();
  }
  for (std::size_t i = 0; i < dims.lhs_batch.size(); ++i) {
    const SlotDim lhs{0, narrow(dims.lhs_batch[i])}, rhs{1, narrow(dims.rhs_batch[i])}, both{result, out++};
    if (dims.lhs_batch[i] == ragged) {
      b.block({lhs, rhs, both}, Block::kWhole);
    } else {
      b.pass({lhs, rhs, both});
    }
  }
  for (const std::int32_t dim : lhs_free) {
    if (dim == ragged) {
      b.block({{0, dim}, {result, out++}}, Block::kWhole);
    } else {
      b.pass({{0, dim}, {result, out++}});
    }
  }
  for (const std::int32_t dim : rhs_free) b.pass({{1, dim}, {result, out++}});
  for (std::size_t i = 0; i < dims.lhs_contracting.size(); ++i) {
    const SlotDim lhs{0, narrow(dims.lhs_contracting[i])}, rhs{1, narrow(dims.rhs_contracting[i])};
    if (dims.lhs_contracting[i] == ragged) {
      b.block({lhs, rhs}, Block::kWhole);
    } else {
      b.partial({lhs, rhs}, Reduction::kAdd);
    }
  }
}

// scaled-dot(lhs, rhs, lhs_scale, rhs_scale): a dot whose factors have one scale per block of elements. A scale has the
// rank of its factor (then split with it, whole blocks to a device) or is a scalar.
void scaled_dot_rule(RuleBuilder& b) {
  if (b.num_operands() != 4 || b.num_results() != 1 || !b.are_arrays(0, 5)) return b.refuse();
  const std::int32_t result = b.result();
  const graph::DotDimensions dims = graph::dot_dimensions(b.graph(), b.id());
  if (!well_formed(b, dims)) return b.refuse();
  const std::vector<std::int32_t> free[2] = {free_dims(b.rank(0), dims.lhs_batch, dims.lhs_contracting),
                                             free_dims(b.rank(1), dims.rhs_batch, dims.rhs_contracting)};
  if (static_cast<std::size_t>(b.rank(result)) != dims.lhs_batch.size() + free[0].size() + free[1].size()) {
    return b.refuse();
  }
  for (std::int32_t side = 0; side < 2; ++side) {
    if (b.rank(side + 2) != 0 && b.rank(side + 2) != b.rank(side)) return b.refuse();
  }
  // The members of one factor: dimensions of lhs, rhs, result (kNone: none) and of the scales that have them.
  const auto add = [&](std::int64_t lhs, std::int64_t rhs, std::int32_t out) {
    std::vector<SlotDim> members;
    std::int64_t extent = 0;
    const auto add_member = [&](SlotDim at) {
      members.push_back(at);
      if (b.extent(at) != 1) extent = std::gcd(extent, b.extent(at));
    };
    const std::int64_t sides[2] = {lhs, rhs};
    for (std::int32_t side = 0; side < 2; ++side) {
      if (sides[side] == graph::kNone) continue;
      add_member({side, narrow(sides[side])});
      if (b.rank(side + 2) != 0) add_member({side + 2, narrow(sides[side])});
    }
    if (out != graph::kNone) add_member({result, out});
    if (extent == 1) {  // blocks that do not fit together
      for (const SlotDim at : members) b.block(at, Block::kWhole);
    } else if (out == graph::kNone) {
      b.factor(members, extent, Reduction::kAdd, {result});
    } else {
      b.factor(members, extent);
    }
  };
  std::int32_t out = 0;
  for (std::size_t i = 0; i < dims.lhs_batch.size(); ++i) add(dims.lhs_batch[i], dims.rhs_batch[i], out++);
  for (const std::int32_t dim : free[0]) add(dim, graph::kNone, out++);
  for (const std::int32_t dim : free[1]) add(graph::kNone, dim, out++);
  for (std::size_t i = 0; i < dims.lhs_contracting.size(); ++i) {
    add(dims.lhs_contracting[i], dims.rhs_contracting[i], graph::kNone);
  }
}

std::optional<Halo> halo_of_window(const graph::WindowDimension& w, std::int64_t in, std::int64_t out) {
  if (!is_plain(w, in, out) || (w.stride > 1 && w.base_dilation > 1)) return std::nullopt;
  // A device's places of the result begin where its part of the (dilated) input does.
  if (in * w.base_dilation != out * w.stride) return std::nullopt;
  const std::int64_t beyond = (w.size - 1) * w.window_dilation - w.stride - w.pad_low;
  Halo halo;
  halo.left = w.pad_low / w.base_dilation;
  halo.right = std::max<std::int64_t>(0, floor_divide(beyond, w.base_dilation) + 1);
  return halo;
}

std::optional<Halo> halo_of_contraction(const graph::WindowDimension& w, std::int64_t in, std::int64_t out) {
  if (!is_plain(w, in, out) || w.reversed || w.base_dilation > 1 || in != w.size * w.window_dilation) {
    return std::nullopt;
  }
  Halo halo;
  halo.left = w.pad_low;
  halo.right = std::max<std::int64_t>(0, (out - 1) * w.stride - w.pad_low + 1 - w.window_dilation);
  return halo;
}

std::string window_text(const std::vector<graph::WindowDimension>& window) {
  std::string text;
  for (const graph::WindowDimension& w : window) {
    for (const std::int64_t number : {w.size, w.stride, w.pad_low, w.pad_high, w.base_dilation, w.window_dilation})
      text += std::to_string(number) + ' ';
    text += w.reversed ? "reversed;" : ";";
  }
  return text;
}

std::string padding_text(const graph::Graph& graph, graph::InstructionId id) {
  const graph::Instruction& instruction = graph.instruction(id);
  if (instruction.opcode != graph::Opcode::kConstant) return '#' + std::to_string(id);
  const std::string text(instruction.payload);
  char* end = nullptr;
  return std::strtod(text.c_str(), &end) == 0 && end != text.c_str() && *end == '\0' ? "0" : text;
}

// Only dim_labels say what a dimension is: the weight gradient of a convolution is one whose batch is the features.
//   batch {in, out}, output features {kernel, out}, input features {in, kernel} with partial sums.
// With groups, the devices hold whole groups; XLA's partitioner gathers all of it, batch and all, unless a group has
// one input feature (depthwise) or is one of the batch. A spatial dimension is split only where the window is a single
// element, or by exchanging borders:
//   {in, out} of a window that takes as much on every device,
//   {in, kernel} with partial sums where the kernel is as large as the input (the gradient of a filter).
void convolution_rule(RuleBuilder& b) {
  if (b.num_operands() != 2 || b.num_results() != 1 || !b.are_arrays(0, 3)) return b.refuse();
  const graph::Graph& graph = b.graph();
  const graph::ConvolutionDimensions dims = graph::convolution_dimensions(graph, b.id());
  const std::vector<graph::WindowDimension> window = graph::window_attribute(graph, b.id());
  const std::int64_t feature_groups = graph::int_attribute(graph, b.id(), "feature_group_count", 1);
  const std::int64_t batch_groups = graph::int_attribute(graph, b.id(), "batch_group_count", 1);
  const std::size_t spatial = dims.input_spatial.size();
  if (dims.kernel_spatial.size() != spatial || dims.output_spatial.size() != spatial || window.size() != spatial ||
      feature_groups < 1 || batch_groups < 1 || (feature_groups > 1 && batch_groups > 1)) {
    return b.refuse();
  }
  const std::int64_t group_features = b.extent({1, narrow(dims.kernel_input_feature)});
  if (feature_groups > 1 && group_features != 1) {
    if (b.extent({0, narrow(dims.input_feature)}) != feature_groups * group_features) return b.refuse();
    for (std::int32_t slot = 0; slot < 3; ++slot) b.block_slot(slot, Block::kWhole);
    return;
  }
  std::vector<graph::WindowDimension> over_input(static_cast<std::size_t>(b.rank(0)));
  for (std::size_t i = 0; i < spatial; ++i) over_input[static_cast<std::size_t>(dims.input_spatial[i])] = window[i];
  for (std::size_t i = 0; i < spatial; ++i) {
    const graph::WindowDimension& w = window[i];
    const SlotDim in{0, narrow(dims.input_spatial[i])}, kernel{1, narrow(dims.kernel_spatial[i])},
        out{2, narrow(dims.output_spatial[i])};
    if (b.extent(kernel) != w.size) return b.refuse();
    if (w.size == 1 && w.stride == 1 && w.pad_low == 0 && w.pad_high == 0 && w.base_dilation == 1) {
      b.pass({in, out});
      b.block(kernel, Block::kHalo);
    } else {
      b.block({in, kernel, out}, Block::kHalo);
      if (std::optional<Halo> of_window = halo_of_window(w, b.extent(in), b.extent(out))) {
        of_window->of = in;
        of_window->shared_by = window_text(over_input);
        of_window->padded_with = "0";
        b.exchange({in, out}, *of_window);
      } else if (std::optional<Halo> of_sum = halo_of_contraction(w, b.extent(in), b.extent(out))) {
        of_sum->of = in;
        b.exchange({in, kernel}, *of_sum, Reduction::kAdd);
      }
    }
  }
  const SlotDim in_batch{0, narrow(dims.input_batch)}, in_feature{0, narrow(dims.input_feature)},
      kernel_in{1, narrow(dims.kernel_input_feature)}, kernel_out{1, narrow(dims.kernel_output_feature)},
      out_batch{2, narrow(dims.output_batch)}, out_feature{2, narrow(dims.output_feature)};
  if (b.extent(kernel_out) != b.extent(out_feature)) return b.refuse();
  if (feature_groups > 1) {
    // Group g: input feature g, and its share of the output features.
    if (b.extent(in_feature) != feature_groups || b.extent(kernel_out) % feature_groups != 0) return b.refuse();
    b.factor({in_feature, kernel_out, out_feature}, feature_groups);
    b.pass({in_batch, out_batch});
  } else if (batch_groups > 1) {
    // Group g: images [g * out, (g + 1) * out) of the result's `out`, and its share of the output features.
    if (b.extent(in_batch) != batch_groups * b.extent(out_batch) || b.extent(kernel_out) % batch_groups != 0) {
      return b.refuse();
    }
    b.factor({in_batch, kernel_out, out_feature}, batch_groups);
    b.block(out_batch, Block::kWhole);
    b.partial({in_feature, kernel_in}, Reduction::kAdd);
  } else {
    b.pass({in_batch, out_batch});
    b.pass({kernel_out, out_feature});
    b.partial({in_feature, kernel_in}, Reduction::kAdd);
  }
}

}  // namespace automap::sharding
