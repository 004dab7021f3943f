#include "profile/chain_tracker.h"

#include <algorithm>

#include "common/graph/hlo_attributes.h"

namespace automap::profile {

using graph::FlowGraph;
using graph::kNone;
using graph::NodeId;
using graph::Opcode;
using graph::Shape;

namespace {

// The same elements at the same places.
bool keeps_places(const FlowGraph& flow, NodeId id) {
  const Opcode opcode = flow.node(id).opcode;
  return graph::is_elementwise(opcode) || opcode == Opcode::kCopy || opcode == Opcode::kOptBarrier ||
         (opcode == Opcode::kCustomCall && graph::is_annotation(flow.graph(), flow.node(id).instruction));
}

}  // namespace

std::optional<std::int32_t> reshaped_dimension(const std::vector<std::int64_t>& from, std::int32_t dim,
                                               const std::vector<std::int64_t>& to) {
  std::int64_t before = 1, passed = 1;
  for (std::int32_t i = 0; i < dim; ++i) before *= from[static_cast<std::size_t>(i)];
  const std::int64_t length = from[static_cast<std::size_t>(dim)];
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (passed == before && to[i] == length) return static_cast<std::int32_t>(i);
    passed *= to[i];
  }
  return std::nullopt;
}

ChainTracker::ChainTracker(const FlowGraph& flow)
    : flow_(flow),
      extent_(static_cast<std::size_t>(flow.size()), Extent::kNothing),
      key_(static_cast<std::size_t>(flow.size()), kNone) {}

void ChainTracker::start(NodeId tile, std::int32_t key) {
  for (const NodeId id : touched_) extent_[static_cast<std::size_t>(id)] = Extent::kNothing;
  touched_.clear();
  tile_elements_ = shape(tile).num_elements;
  keys_ = shape(tile).dims[static_cast<std::size_t>(key)];
  set_tile(tile, key);
}

void ChainTracker::set_tile(NodeId id, std::int32_t key) {
  set(id, Extent::kTile, key);
}

bool ChainTracker::has_tile_size(NodeId id) const {
  return shape(id).is_array() && shape(id).num_elements == tile_elements_;
}

bool ChainTracker::set(NodeId id, Extent extent, std::int32_t key) {
  const auto i = static_cast<std::size_t>(id);
  if (extent_[i] != Extent::kNothing) return extent_[i] == extent && key_[i] == key;
  extent_[i] = extent;
  key_[i] = key;
  touched_.push_back(id);
  return true;
}

std::vector<std::int64_t> ChainTracker::dimensions(NodeId id, NodeId of) const {
  return graph::dimension_list_attribute(flow_.graph(), flow_.node(id).instruction, "dimensions",
                                         shape(of).dims.size());
}

bool ChainTracker::derive(NodeId user, NodeId from) {
  if (!shape(user).is_array()) return false;
  const Extent extent = this->extent(from);
  if (extent == Extent::kTileStack || extent == Extent::kRowStack ||
      flow_.node(user).opcode == Opcode::kDynamicUpdateSlice)
    return derive_stack(user, from);
  if (keeps_places(flow_, user)) {
    return shape(user).num_elements == shape(from).num_elements && set(user, extent, key(from));
  }
  switch (flow_.node(user).opcode) {
    case Opcode::kReshape:
    case Opcode::kBitcast:
    case Opcode::kTranspose: return derive_moved(user, from);
    case Opcode::kBroadcast: return derive_broadcast(user, from);
    case Opcode::kReduce: return derive_reduce(user, from);
    default: return false;
  }
}

bool ChainTracker::derive_moved(NodeId user, NodeId from) {
  if (shape(user).num_elements != shape(from).num_elements) return false;
  if (is_row(from)) return set(user, Extent::kRow, kNone);
  if (flow_.node(user).opcode == Opcode::kTranspose) {
    const auto permutation = dimensions(user, from);
    const auto place = std::find(permutation.begin(), permutation.end(), key(from));
    return place != permutation.end() &&
           set(user, Extent::kTile, static_cast<std::int32_t>(place - permutation.begin()));
  }
  const auto key = reshaped_dimension(shape(from).dims, this->key(from), shape(user).dims);
  return key && set(user, Extent::kTile, *key);
}

// When rows are broadcast over the keys, these are the one new dimension.
bool ChainTracker::derive_broadcast(NodeId user, NodeId from) {
  const Shape& to = shape(user);
  const auto places = dimensions(user, user);
  if (to.num_elements == shape(from).num_elements) {
    if (is_row(from)) return set(user, Extent::kRow, kNone);
    const auto from_key = static_cast<std::size_t>(key(from));
    return from_key < places.size() && set(user, Extent::kTile, static_cast<std::int32_t>(places[from_key]));
  }
  if (!is_row(from) || !has_tile_size(user)) return false;
  std::int32_t found = kNone;
  for (std::size_t i = 0; i < to.dims.size(); ++i) {
    if (to.dims[i] == 1 || std::find(places.begin(), places.end(), static_cast<std::int64_t>(i)) != places.end())
      continue;
    if (found != kNone || to.dims[i] != keys_) return false;
    found = static_cast<std::int32_t>(i);
  }
  return found != kNone && set(user, Extent::kTile, found);
}

bool ChainTracker::derive_reduce(NodeId user, NodeId from) {
  const auto operands = flow_.operands(user);
  if (operands.size() != 2 || operands[0] != from) return false;
  const auto reduced = dimensions(user, from);
  if (is_row(from)) {
    return shape(user).num_elements == shape(from).num_elements && set(user, Extent::kRow, kNone);
  }
  if (shape(user).num_elements * keys_ != tile_elements_) return false;
  return std::find(reduced.begin(), reduced.end(), key(from)) != reduced.end() && set(user, Extent::kRow, kNone);
}

bool ChainTracker::derive_stack(NodeId user, NodeId from) {
  const auto operands = flow_.operands(user);
  const auto reads_once = std::count(operands.begin(), operands.end(), from) == 1;
  if (flow_.node(user).opcode == Opcode::kDynamicUpdateSlice) {
    if (!reads_once || operands.size() < 2 || operands[1] != from) return false;
    if (is_tile(from)) return set(user, Extent::kTileStack, key(from));
    return is_row(from) && set(user, Extent::kRowStack, kNone);
  }
  if (flow_.node(user).opcode != Opcode::kDynamicSlice || !reads_once || operands[0] != from) return false;
  if (extent(from) == Extent::kTileStack) return has_tile_size(user) && set(user, Extent::kTile, key(from));
  return shape(user).num_elements * keys_ == tile_elements_ && set(user, Extent::kRow, kNone);
}

std::optional<std::int32_t> ChainTracker::key_before(NodeId id, std::int32_t key, NodeId operand) const {
  if (keeps_places(flow_, id)) return key;
  switch (flow_.node(id).opcode) {
    case Opcode::kReshape:
    case Opcode::kBitcast: return reshaped_dimension(shape(id).dims, key, shape(operand).dims);
    case Opcode::kTranspose: return static_cast<std::int32_t>(dimensions(id, operand)[static_cast<std::size_t>(key)]);
    case Opcode::kBroadcast: {
      const auto places = dimensions(id, id);
      const auto place = std::find(places.begin(), places.end(), key);
      if (place == places.end()) return std::nullopt;
      return static_cast<std::int32_t>(place - places.begin());
    }
    default: return std::nullopt;
  }
}

}  // namespace automap::profile
