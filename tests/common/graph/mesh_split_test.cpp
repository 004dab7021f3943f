#include "common/graph/mesh_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/graph/hlo_sharding.h"

namespace automap::graph {
namespace {

// "4/2 | | 2/1": sizes and strides of the axes of every dimension.
std::string split_words(const MeshSplit& split) {
  std::string out;
  for (std::size_t d = 0; d < split.dims.size(); ++d) {
    out += d == 0 ? "" : " |";
    for (const DeviceAxis& axis : split.dims[d].axes) {
      out += (out.empty() ? "" : " ") + std::to_string(axis.size) + "/" + std::to_string(axis.stride);
    }
    if (split.dims[d].open) out += " ?";
  }
  return out;
}

std::string axes_of(const std::string& written) {
  HloSharding sharding;
  EXPECT_EQ(read_sharding(written, &sharding), "") << written;
  return split_words(sharding.split);
}

TEST(MeshSplit, AxesAreTheSameHoweverTheyAreWritten) {
  // A mesh of x=4 and y=2.
  EXPECT_EQ(axes_of("{devices=[4,1,2]<=[8] last_tile_dim_replicate}"), "4/2 |");
  EXPECT_EQ(axes_of("{devices=[4,1,2]0,1,2,3,4,5,6,7 last_tile_dim_replicate}"), "4/2 |");
  EXPECT_EQ(axes_of("{devices=[2,1,4]<=[4,2]T(1,0)}"), "2/1 | | 4/2");
  EXPECT_EQ(axes_of("{devices=[2,1,4]0,2,4,6,1,3,5,7}"), "2/1 | | 4/2");
  EXPECT_EQ(axes_of("{mesh['x'=4,'y'=2], [{'y'}, {}, {'x'}]}"), "2/1 | | 4/2");
  EXPECT_EQ(axes_of("{mesh['x'=4,'y'=2], [{'y'}, {?}, {'x', ?}], replicated={'y'}}"), "2/1 | ? | 4/2 ?");
  // Axes that continue each other are one axis.
  EXPECT_EQ(axes_of("{devices=[1,8]<=[8]}"), " | 8/1");
  EXPECT_EQ(axes_of("{mesh['x'=4,'y'=2], [{}, {'x', 'y'}]}"), " | 8/1");
  EXPECT_EQ(axes_of("{mesh['x'=4,'y'=2], [{}, {'y', 'x'}]}"), " | 2/1 4/2");
  EXPECT_EQ(axes_of("{devices=[1,8]<=[4,2]T(1,0)}"), " | 2/1 4/2");
  EXPECT_EQ(axes_of("{mesh['x'=4,'y'=2], [{'x':(1)2}, {'x':(2)2}]}"), "2/4 | 2/2");
  EXPECT_EQ(axes_of("{devices=[2,2,2]<=[8] last_tile_dims={manual}}"), "2/4 | 2/2");
  // Nothing is known of what is no order, and of names that the mesh does not have.
  EXPECT_EQ(axes_of("{devices=[4]0,3,1,2}"), "4/0");
  EXPECT_EQ(axes_of("{mesh['x'=4], [{'z'}]}"), "");
  EXPECT_EQ(axes_of("{mesh['x'=4], [{'x', 'x'}]}"), "");
  EXPECT_EQ(axes_of("{mesh['x'=9999999999999], [{'x'}]}"), "");
}

TEST(MeshSplit, AnAxisHoldsItsParts) {
  const DeviceAxis eight{8, 1}, outer{4, 2}, inner{2, 1};
  EXPECT_TRUE(eight.holds(outer) && eight.holds(inner) && outer.holds(outer));
  EXPECT_FALSE(outer.holds(inner) || inner.holds(outer) || outer.holds(eight));
  EXPECT_TRUE((DeviceAxis{4, 0}.holds(outer)));
  EXPECT_FALSE((DeviceAxis{8, 0}.holds(outer)));
}

// The devices of a tile by the axes, against the list that the words mean, element by element.
TEST(MeshSplit, AxesSayWhichDevicesHoldATile) {
  for (const std::vector<std::int64_t>& extents :
       std::vector<std::vector<std::int64_t>>{{8}, {4, 2}, {2, 2, 2}, {2, 6}}) {
    const std::int64_t all = std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
    std::vector<std::int64_t> order(extents.size());
    std::iota(order.begin(), order.end(), 0);
    do {
      // The list: device numbers in the transposed order.
      std::vector<std::int64_t> devices;
      for (std::int64_t at = 0; at < all; ++at) {
        std::int64_t left = at, number = 0;
        std::vector<std::int64_t> place(extents.size());
        for (std::size_t i = extents.size(); i-- > 0;) {
          place[static_cast<std::size_t>(order[i])] = left % extents[static_cast<std::size_t>(order[i])];
          left /= extents[static_cast<std::size_t>(order[i])];
        }
        for (std::size_t i = 0; i < extents.size(); ++i) number = number * extents[i] + place[i];
        devices.push_back(number);
      }
      for (std::int64_t a = 1; a <= all; ++a) {
        for (std::int64_t b = 1; a * b <= all; ++b) {
          if (all % (a * b) != 0) continue;
          const std::vector<std::int64_t> tiles = {a, b, all / (a * b)};
          const MeshSplit split = split_of_iota(tiles, 1, extents, order);
          ASSERT_EQ(split.parts(), a * b);
          // The first device of every tile, by the strides of its axes.
          for (std::int64_t i = 0; i < a; ++i) {
            for (std::int64_t j = 0; j < b; ++j) {
              std::int64_t number = 0;
              bool known = true;
              const auto add = [&](const DimSplit& dim, std::int64_t index) {
                for (std::size_t k = dim.axes.size(); k-- > 0;) {
                  known = known && dim.axes[k].stride > 0;
                  number += index % dim.axes[k].size * dim.axes[k].stride;
                  index /= dim.axes[k].size;
                }
              };
              add(split.dims[0], i);
              add(split.dims[1], j);
              if (!known) continue;
              EXPECT_EQ(number, devices[static_cast<std::size_t>((i * b + j) * tiles[2])]);
            }
          }
        }
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

}  // namespace
}  // namespace automap::graph
