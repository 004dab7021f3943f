// Instructions that only move elements.
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "common/graph/hlo_attributes.h"
#include "common/sharding/rules.h"

namespace automap::sharding {

using graph::dimension_list_attribute;

namespace {

bool unary(RuleBuilder& b) {
  if (b.num_operands() == 1 && b.num_results() == 1 && b.are_arrays(0, 2)) return true;
  b.refuse();
  return false;
}

void pass_all(RuleBuilder& b) {
  if (b.rank(0) != b.rank(1)) return b.refuse();
  for (std::int32_t dim = 0; dim < b.rank(0); ++dim) b.pass({{0, dim}, {1, dim}});
}

// Row-major order kept. Both sides are cut, from the major dimension on, into the smallest groups with equal numbers of
// elements: [4,6,512] -> [24,512] into {4,6} -> {24} and {512} -> {512}. Of each group the elements that a device holds
// must be one run on both sides, so only its major dimensions are split, by a divisor of both.
void row_major(RuleBuilder& b) {
  std::vector<std::int32_t> sides[2];  // the dimensions that hold anything
  for (std::int32_t slot = 0; slot < 2; ++slot) {
    for (std::int32_t dim = 0; dim < b.rank(slot); ++dim) {
      const std::int64_t extent = b.extent({slot, dim});
      if (extent == 0) {  // no elements at all
        b.block_slot(0, Block::kMinor);
        b.block_slot(1, Block::kMinor);
        return;
      }
      if (extent > 1) sides[slot].push_back(dim);
    }
  }
  std::size_t at[2] = {0, 0};
  while (at[0] < sides[0].size() && at[1] < sides[1].size()) {
    const std::size_t first[2] = {at[0], at[1]};
    std::int64_t elements[2];
    const auto next = [&](int side) { return b.extent({side, sides[side][at[side]++]}); };
    elements[0] = next(0);
    elements[1] = next(1);
    const std::int64_t major = std::gcd(elements[0], elements[1]);
    while (elements[0] != elements[1]) {
      const int less = elements[0] < elements[1] ? 0 : 1;
      if (at[less] == sides[less].size()) return b.refuse();
      if (__builtin_mul_overflow(elements[less], next(less), &elements[less])) return b.refuse();
    }
    std::vector<SlotDim> majors;
    for (std::int32_t side = 0; side < 2; ++side) {
      for (std::size_t i = first[side]; i < at[side]; ++i) {
        const SlotDim dim{side, sides[side][i]};
        if (i == first[side] && major > 1) {
          majors.push_back(dim);
        } else {
          b.block(dim, Block::kMinor);
        }
      }
    }
    if (!majors.empty()) b.factor(majors, major);
  }
  if (at[0] != sides[0].size() || at[1] != sides[1].size()) b.refuse();
}

// The window of one element that makes the same of a dimension.
graph::WindowDimension window_of(const graph::PaddingDimension& pad) {
  graph::WindowDimension w;
  w.pad_low = pad.low;
  w.pad_high = pad.high;
  w.base_dilation = pad.interior < std::numeric_limits<std::int64_t>::max() ? pad.interior + 1 : pad.interior;
  return w;
}

std::optional<Halo> halo_of_padding(const graph::PaddingDimension& pad, std::int64_t in, std::int64_t out) {
  if (pad.interior < 0) return std::nullopt;
  if (pad.low >= 0) return halo_of_window(window_of(pad), in, out);
  // Cropped and padded between elements: XLA's partitioner fails.
  if (pad.interior != 0 || in != out || pad.low <= -in) return std::nullopt;
  Halo halo;
  halo.right = -pad.low;
  return halo;
}

}  // namespace

// A dimension that the operand does not have holds the same everywhere: it may be split alone.
void broadcast_rule(RuleBuilder& b) {
  if (!unary(b)) return;
  const auto to = dimension_list_attribute(b.graph(), b.id(), "dimensions", static_cast<std::size_t>(b.rank(1)));
  if (to.size() != static_cast<std::size_t>(b.rank(0))) return b.refuse();
  std::vector<std::int32_t> from(static_cast<std::size_t>(b.rank(1)), graph::kNone);
  for (std::size_t i = 0; i < to.size(); ++i) from[static_cast<std::size_t>(to[i])] = static_cast<std::int32_t>(i);
  for (std::int32_t dim = 0; dim < b.rank(1); ++dim) {
    const std::int32_t source = from[static_cast<std::size_t>(dim)];
    // HLO proper does not stretch an extent of 1; some dialects do.
    if (source == graph::kNone || (b.extent({0, source}) == 1 && b.extent({1, dim}) != 1)) {
      b.pass({{1, dim}});
    } else {
      b.pass({{0, source}, {1, dim}});
    }
  }
}

void reshape_rule(RuleBuilder& b) {
  if (unary(b)) row_major(b);
}

// The same memory read as another shape: a reshape where both are laid out in row-major order, a copy where both are
// laid out alike. Anything else is a transposition that only the layouts tell.
void bitcast_rule(RuleBuilder& b) {
  if (!unary(b)) return;
  const graph::Graph& graph = b.graph();
  const graph::InstructionId from = graph.operands(b.id())[0];
  if (graph.shape_of(from).bits != graph.shape_of(b.id()).bits) return b.refuse();
  const auto order = [&](graph::InstructionId id) {
    return graph::decode_minor_to_major(graph.instruction(id).layout, graph.shape_of(id).dims.size(),
                                        {graph.instruction(id).name, "layout"});
  };
  const std::vector<std::int64_t> orders[2] = {order(from), order(b.id())};
  const auto row_major_order = [](const std::vector<std::int64_t>& minor_to_major) {
    return std::is_sorted(minor_to_major.rbegin(), minor_to_major.rend());
  };
  if (row_major_order(orders[0]) && row_major_order(orders[1])) return row_major(b);
  if (b.dims(0) == b.dims(1) && orders[0] == orders[1]) return pass_all(b);
  b.refuse();
}

// Between types of different width a last dimension comes or goes.
void bitcast_convert_rule(RuleBuilder& b) {
  if (!unary(b)) return;
  const std::int32_t common = std::min(b.rank(0), b.rank(1));
  if (std::max(b.rank(0), b.rank(1)) > common + 1) return b.refuse();
  for (std::int32_t dim = 0; dim < common; ++dim) b.pass({{0, dim}, {1, dim}});
  for (std::int32_t slot = 0; slot < 2; ++slot) {
    if (b.rank(slot) > common) b.block({slot, common}, Block::kMinor);
  }
}

void transpose_rule(RuleBuilder& b) {
  if (!unary(b)) return;
  const auto from = dimension_list_attribute(b.graph(), b.id(), "dimensions", static_cast<std::size_t>(b.rank(0)));
  if (from.size() != static_cast<std::size_t>(b.rank(1)) || b.rank(0) != b.rank(1)) return b.refuse();
  for (std::int32_t dim = 0; dim < b.rank(1); ++dim) {
    b.pass({{0, static_cast<std::int32_t>(from[static_cast<std::size_t>(dim)])}, {1, dim}});
  }
}

void slice_rule(RuleBuilder& b) {
  if (!unary(b)) return;
  const auto raw = b.graph().attribute(b.id(), "slice");
  if (!raw) return b.refuse();
  const auto slices = graph::decode_slice(*raw, {b.graph().instruction(b.id()).name, "slice", &b.graph()});
  if (slices.size() != static_cast<std::size_t>(b.rank(0)) || b.rank(0) != b.rank(1)) return b.refuse();
  for (std::int32_t dim = 0; dim < b.rank(0); ++dim) {
    const graph::SliceDimension& slice = slices[static_cast<std::size_t>(dim)];
    const bool whole = slice.start == 0 && slice.limit == b.extent({0, dim}) && slice.stride == 1;
    if (whole) {
      b.pass({{0, dim}, {1, dim}});
    } else {
      b.block({{0, dim}, {1, dim}}, Block::kHalo);
      // The same elements of every device's part.
      const std::int64_t in = b.extent({0, dim});
      if (slice.stride > 1 && slice.start >= 0 && slice.start < slice.stride && in % slice.stride == 0 &&
          in / slice.stride == b.extent({1, dim})) {
        b.exchange({{0, dim}, {1, dim}}, {{-1, 0}});
      }
    }
  }
}

// Devices' parts lie below one another when as many elements come before as are lost behind: a shift, or padding
// between elements.
void pad_rule(RuleBuilder& b) {
  if (b.num_operands() != 2 || b.num_results() != 1 || !b.are_arrays(0, 3) || b.rank(1) != 0) return b.refuse();
  const auto raw = b.graph().attribute(b.id(), "padding");
  if (!raw) return b.refuse();
  const auto padding = graph::decode_padding(*raw, {b.graph().instruction(b.id()).name, "padding", &b.graph()});
  if (padding.size() != static_cast<std::size_t>(b.rank(0)) || b.rank(0) != b.rank(2)) return b.refuse();
  std::vector<graph::WindowDimension> over_input;
  for (const graph::PaddingDimension& pad : padding) over_input.push_back(window_of(pad));
  for (std::int32_t dim = 0; dim < b.rank(0); ++dim) {
    const graph::PaddingDimension& pad = padding[static_cast<std::size_t>(dim)];
    if (pad.low == 0 && pad.high == 0 && pad.interior == 0) {
      b.pass({{0, dim}, {2, dim}});
    } else {
      b.block({{0, dim}, {2, dim}}, Block::kHalo);
      std::optional<Halo> halo = halo_of_padding(pad, b.extent({0, dim}), b.extent({2, dim}));
      if (!halo) continue;
      halo->of = {0, dim};
      halo->shared_by = window_text(over_input);
      halo->padded_with = padding_text(b.graph(), b.graph().operands(b.id())[1]);
      b.exchange({{0, dim}, {2, dim}}, *halo);
    }
  }
}

void concatenate_rule(RuleBuilder& b) {
  if (b.num_operands() < 1 || b.num_results() != 1 || !b.are_arrays(0, b.num_slots())) return b.refuse();
  const std::int32_t rank = b.rank(b.result());
  const auto along = dimension_list_attribute(b.graph(), b.id(), "dimensions", static_cast<std::size_t>(rank));
  if (along.size() != 1) return b.refuse();
  for (std::int32_t slot = 0; slot < b.num_slots(); ++slot) {
    if (b.rank(slot) != rank) return b.refuse();
  }
  std::vector<SlotDim> members(static_cast<std::size_t>(b.num_slots()));
  for (std::int32_t dim = 0; dim < rank; ++dim) {
    for (std::int32_t slot = 0; slot < b.num_slots(); ++slot) members[static_cast<std::size_t>(slot)] = {slot, dim};
    if (dim != along[0] || b.num_operands() == 1) {
      b.pass(members);
    } else {
      for (const SlotDim at : members) b.block(at, Block::kHalo);
    }
  }
}

void reverse_rule(RuleBuilder& b) {
  if (!unary(b)) return;
  const auto reversed = dimension_list_attribute(b.graph(), b.id(), "dimensions", static_cast<std::size_t>(b.rank(0)));
  if (b.rank(0) != b.rank(1)) return b.refuse();
  for (std::int32_t dim = 0; dim < b.rank(0); ++dim) {
    if (std::find(reversed.begin(), reversed.end(), dim) == reversed.end()) {
      b.pass({{0, dim}, {1, dim}});
    } else {
      b.block({{0, dim}, {1, dim}}, Block::kHalo);
    }
  }
}

}  // namespace automap::sharding
