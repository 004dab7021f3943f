// The partition of an array over a mesh of devices: the axes that split each dimension. An axis is known by its size
// and by the stride of its devices' numbers, so that axes of one size are told apart however they are written ("x"=4 of
// <["x"=4, "y"=2]> and the first tile of devices=[4,1,2]<=[8] are both 4 devices with stride 2).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace automap::graph {

struct DeviceAxis {
  std::int64_t size = 1;
  std::int64_t stride = 0;  // 0: not known
  // True if `other` has devices among those of this axis only: 2 devices with stride 4 are among 4 with stride 2.
  bool holds(const DeviceAxis& other) const {
    if (stride == 0 || other.stride == 0) return size == other.size;
    return other.stride % stride == 0 && (size * stride) % (other.size * other.stride) == 0;
  }
  bool operator==(const DeviceAxis& other) const { return size == other.size && stride == other.stride; }
};

struct DimSplit {
  std::vector<DeviceAxis> axes;  // outer first; what one goes on where the other ends is one axis
  bool open = false;             // may be cut further: {"x", ?}
  std::int64_t parts() const {
    std::int64_t all = 1;
    for (const DeviceAxis& axis : axes) all *= axis.size;
    return all;
  }
};

struct MeshSplit {
  std::int64_t devices = 0;    // of the mesh; 0: not known
  std::vector<DimSplit> dims;  // of the array; empty: not known

  std::int64_t parts() const {
    std::int64_t all = 1;
    for (const DimSplit& dim : dims) all *= dim.parts();
    return all;
  }
};

// Reads devices=[tiles]<=[extents]T(order): the last `subgroups` tiles are no dimensions. Empty `order`: not
// transposed.
MeshSplit split_of_iota(const std::vector<std::int64_t>& tiles, std::size_t subgroups,
                        const std::vector<std::int64_t>& extents, const std::vector<std::int64_t>& order);
// Reads devices=[tiles]0,2,1,3; strides are known where the list has any.
MeshSplit split_of_list(const std::vector<std::int64_t>& tiles, std::size_t subgroups,
                        const std::vector<std::int64_t>& devices);
// Reads named axes: the text behind the mesh in {mesh['x'=4,'y'=2], [{'x'}, {'y', ?}]} and in #sdy.sharding<@mesh,
// [{"x"}, {}]>; quotes may be escaped. `mesh` is the text of the axes: ['x'=4,'y'=2]. False: the text is not of this
// form.
bool read_named_split(std::string_view dims, std::string_view mesh, MeshSplit* out);

}  // namespace automap::graph
