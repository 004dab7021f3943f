// The text of a sharding annotation: sharding={...} of an instruction, as XLA prints it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/graph/graph.h"
#include "common/graph/mesh_split.h"

namespace automap::graph {

struct HloSharding {
  enum class Kind {
    kReplicated,  // {replicated}
    kMaximal,     // {maximal device=0}: all of it on one device
    kManual,      // {manual}: the shape is that of one device's part (shard_map)
    kUnknown,     // {unknown}: left to the compiler
    kTiled,       // {devices=[2,4]<=[8]}, {devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}
    kMesh,        // {mesh['a'=2], [{'a'}, {}]}: named axes
    kTuple        // {{...}, {...}}
  };
  Kind kind = Kind::kReplicated;
  std::vector<std::int64_t> tiles;  // kTiled: parts along each dimension of the array, then those of subgroups
  std::size_t subgroups = 0;        // how many of `tiles`, at the end, are no dimensions of the array
  MeshSplit split;                  // kTiled, kMesh: the same by axes; without dimensions where that is not known
  std::vector<HloSharding> elements;

  // Parts along dimension d of the array.
  std::int64_t parts(std::size_t d) const { return d + subgroups < tiles.size() ? tiles[d] : 1; }
  // True if any dimension is split.
  bool splits() const;
};

// Reads `raw` into *out. Empty when it is well-formed; else what is wrong with it, in words that go on "sharding ...".
std::string read_sharding(std::string_view raw, HloSharding* out);
// The reason why a well-formed sharding does not fit a result of shape `id` ("has 3 tile dimensions for f32[4,4]");
// empty when it fits.
std::string sharding_misfit(const Graph& graph, const HloSharding& sharding, ShapeId id);

}  // namespace automap::graph
