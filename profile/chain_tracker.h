// Follows the scores of a softmax (a tile: one value per query and key) and what is reduced over its keys (rows: one
// value per query) through a data flow, and which dimension of each tile holds the keys.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/graph/dependence.h"

namespace automap::profile {

enum class Extent : std::uint8_t {
  kNothing,
  kTile,
  kRow,
  kTileStack,  // tiles of all turns of a loop, one written per turn
  kRowStack,
};

// Dimension `dim` of an array of `from`, in an array of `to` that holds the same elements in the same order: the
// dimension of the same length with as many elements before it. {2,16,8,64} dim 2 in {32,8,64}: 1.
std::optional<std::int32_t> reshaped_dimension(const std::vector<std::int64_t>& from, std::int32_t dim,
                                               const std::vector<std::int64_t>& to);

class ChainTracker {
 public:
  explicit ChainTracker(const graph::FlowGraph& flow);

  // Forgets all; `tile` is a tile whose keys are dimension `key` (longer than 1).
  void start(graph::NodeId tile, std::int32_t key);
  // `id` is such a tile, too.
  void set_tile(graph::NodeId id, std::int32_t key);

  Extent extent(graph::NodeId id) const { return extent_[static_cast<std::size_t>(id)]; }
  bool is_tile(graph::NodeId id) const { return extent(id) == Extent::kTile; }
  bool is_row(graph::NodeId id) const { return extent(id) == Extent::kRow; }
  std::int32_t key(graph::NodeId id) const { return key_[static_cast<std::size_t>(id)]; }
  std::int64_t elements() const { return tile_elements_; }
  std::int64_t keys() const { return keys_; }
  bool has_tile_size(graph::NodeId id) const;

  // `user` reads `from`, which is known. What `user` is follows: element by element the same, moved, reduced over the
  // keys, spread over them, written to or read from a loop's stack. false: nothing that a kernel does on the way.
  bool derive(graph::NodeId user, graph::NodeId from);
  // The keys' dimension of `operand`, a tile-sized operand of the tile `id` with keys `key`; nothing when not known.
  std::optional<std::int32_t> key_before(graph::NodeId id, std::int32_t key, graph::NodeId operand) const;

 private:
  bool set(graph::NodeId id, Extent extent, std::int32_t key);
  bool derive_moved(graph::NodeId user, graph::NodeId from);
  bool derive_broadcast(graph::NodeId user, graph::NodeId from);
  bool derive_reduce(graph::NodeId user, graph::NodeId from);
  bool derive_stack(graph::NodeId user, graph::NodeId from);
  const graph::Shape& shape(graph::NodeId id) const { return flow_.shape(id); }
  std::vector<std::int64_t> dimensions(graph::NodeId id, graph::NodeId of) const;

  const graph::FlowGraph& flow_;
  std::vector<Extent> extent_;
  std::vector<std::int32_t> key_;
  std::vector<graph::NodeId> touched_;
  std::int64_t tile_elements_ = 0, keys_ = 0;
};

}  // namespace automap::profile
