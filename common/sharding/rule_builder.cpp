#include "common/sharding/rule_builder.h"

#include <numeric>
#include <utility>

namespace automap::sharding {

using graph::InstructionId;
using graph::Shape;

namespace {
const std::vector<std::int64_t> kNoDims;
}  // namespace

RuleBuilder::RuleBuilder(const graph::Graph& graph, InstructionId id, std::int64_t least_extent)
    : graph_(graph),
      id_(id),
      least_extent_(least_extent),
      shapes_(slots_of(graph, id)),
      num_operands_(graph.instruction(id).num_operands) {
  first_dim_.reserve(shapes_.size());
  std::size_t total = 0;
  for (const Shape* shape : shapes_) {
    first_dim_.push_back(static_cast<std::int32_t>(total));
    if (shape == nullptr) continue;
    total += shape->dims.size();
    // A dynamic dimension has only a bound: nobody knows which devices would hold something in a run.
    if (shape->dynamic) refused_ = true;
  }
  taken_.resize(total, false);
}

bool RuleBuilder::are_arrays(std::int32_t first, std::int32_t last) const {
  for (std::int32_t slot = first; slot < last; ++slot) {
    if (!is_array(slot)) return false;
  }
  return true;
}

const std::vector<std::int64_t>& RuleBuilder::dims(std::int32_t slot) const {
  const Shape* shape = slot >= 0 && slot < num_slots() ? shapes_[static_cast<std::size_t>(slot)] : nullptr;
  return shape == nullptr ? kNoDims : shape->dims;
}

std::int64_t RuleBuilder::extent(SlotDim at) const {
  const std::vector<std::int64_t>& all = dims(at.slot);
  return at.dim >= 0 && static_cast<std::size_t>(at.dim) < all.size() ? all[static_cast<std::size_t>(at.dim)] : 0;
}

bool RuleBuilder::take(SlotDim at) {
  if (at.dim < 0 || at.dim >= rank(at.slot)) {
    refuse();
    return false;
  }
  const auto index = static_cast<std::size_t>(first_dim_[static_cast<std::size_t>(at.slot)] + at.dim);
  if (taken_[index]) {
    refuse();
    return false;
  }
  taken_[index] = true;
  return true;
}

void RuleBuilder::pass(const SlotDim* begin, const SlotDim* end) {
  if (refused_ || begin == end) return;
  const std::int64_t size = extent(*begin);
  for (const SlotDim* at = begin; at != end; ++at) {
    if (!take(*at)) return;
    if (extent(*at) != size) return refuse();
  }
  if (size < least_extent_) return;
  rule_.factors.push_back({std::vector<SlotDim>(begin, end), size, Reduction::kNone, {}});
}

void RuleBuilder::partial(std::initializer_list<SlotDim> members, Reduction reduction) {
  partial(std::vector<SlotDim>(members), reduction, {result()});
}

void RuleBuilder::partial(const std::vector<SlotDim>& members, Reduction reduction, std::vector<std::int32_t> results) {
  const std::size_t before = rule_.factors.size();
  pass(members);
  if (rule_.factors.size() == before) return;
  rule_.factors.back().reduction = reduction;
  rule_.factors.back().partial = std::move(results);
}

void RuleBuilder::factor(std::vector<SlotDim> members, std::int64_t extent_of_factor, Reduction reduction,
                         std::vector<std::int32_t> results) {
  if (refused_) return;
  std::size_t kept = 0;
  for (const SlotDim at : members) {
    if (!take(at)) return;
    if (extent(at) >= least_extent_) members[kept++] = at;
  }
  members.resize(kept);
  if (kept == 0) return;
  for (const SlotDim at : members) {
    if (extent_of_factor < least_extent_ || extent(at) % extent_of_factor != 0) return refuse();
  }
  rule_.factors.push_back({std::move(members), extent_of_factor, reduction, std::move(results)});
}

void RuleBuilder::block(SlotDim at, Block why) {
  if (refused_ || !take(at)) return;
  if (extent(at) >= least_extent_) rule_.blocked.push_back({at, why});
}

void RuleBuilder::block_slot(std::int32_t slot, Block why) {
  for (std::int32_t dim = 0; dim < rank(slot); ++dim) block({slot, dim}, why);
}

void RuleBuilder::exchange(const std::vector<SlotDim>& members, Halo halo, Reduction reduction) {
  if (refused_) return;
  Factor factor;
  for (const SlotDim at : members) factor.extent = std::gcd(factor.extent, extent(at));
  if (factor.extent < least_extent_) return;
  factor.dims = members;
  factor.reduction = reduction;
  if (reduction != Reduction::kNone) factor.partial = {result()};
  factor.halo = std::move(halo);
  rule_.halo_factors.push_back(std::move(factor));
}

OpRule RuleBuilder::finish() {
  if (refused_) {
    rule_ = OpRule();
    taken_.assign(taken_.size(), false);
    refused_ = false;
  }
  for (std::int32_t slot = 0; slot < num_slots(); ++slot) {
    for (std::int32_t dim = 0; dim < rank(slot); ++dim) {
      if (!taken_[static_cast<std::size_t>(first_dim_[static_cast<std::size_t>(slot)] + dim)]) {
        block({slot, dim}, Block::kOpaque);
      }
    }
  }
  return std::move(rule_);
}

}  // namespace automap::sharding
