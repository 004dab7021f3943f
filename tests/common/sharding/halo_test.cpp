// Windows that exchange borders. The twin plays random convolutions and poolings through on several devices, each of
// which has its own part and what the rule says it takes of its two neighbours, and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/hlo/hlo_text.h"
#include "common/sharding/collectives.h"
#include "common/sharding/explain.h"
#include "common/sharding/model.h"
#include "common/sharding/rule.h"

namespace automap::sharding {
namespace {

using Grid = std::vector<std::vector<double>>;  // rows (the dimension that is split) of columns

struct Window {
  std::int64_t size = 1, stride = 1, low = 0, high = 0, base = 1, dilation = 1;

  std::int64_t outputs(std::int64_t in) const {
    return ((in - 1) * base + 1 + low + high - ((size - 1) * dilation + 1)) / stride + 1;
  }
};

std::string two(std::int64_t a, std::int64_t b) {
  return std::to_string(a) + "x" + std::to_string(b);
}

std::string text_of(const Window& a, const Window& b) {
  const auto pads = [](const Window& w) { return std::to_string(w.low) + "_" + std::to_string(w.high); };
  return "{size=" + two(a.size, b.size) + " stride=" + two(a.stride, b.stride) + " pad=" + pads(a) + "x" + pads(b) +
         " lhs_dilate=" + two(a.base, b.base) + " rhs_dilate=" + two(a.dilation, b.dilation) + "}";
}

// The row or column that a window reads; -1: padding, or between dilated elements.
std::int64_t read_at(const Window& w, std::int64_t out, std::int64_t tap, std::int64_t in) {
  const std::int64_t at = out * w.stride - w.low + tap * w.dilation;
  return at < 0 || at % w.base != 0 || at / w.base >= in ? -1 : at / w.base;
}

// Rows [first, first + part.size()) of a grid of `whole` rows.
struct Rows {
  Grid part;
  std::int64_t first = 0, whole = 0;
  std::int64_t end() const { return first + static_cast<std::int64_t>(part.size()); }
};

struct Problem {
  Window rows, columns;
  std::int64_t in_columns = 1, out_columns = 1;
};

// The rows [first, last) of the result that a device makes of the rows and taps that it has.
Grid convolve(const Problem& p, const Rows& in, const Rows& taps, std::int64_t first, std::int64_t last) {
  Grid out(static_cast<std::size_t>(last - first), std::vector<double>(static_cast<std::size_t>(p.out_columns)));
  for (std::int64_t o = first; o < last; ++o) {
    for (std::int64_t t = taps.first; t < taps.end(); ++t) {
      const std::int64_t row = read_at(p.rows, o, t, in.whole);
      if (row < 0) continue;
      if (row < in.first || row >= in.end()) {
        ADD_FAILURE() << "row " << row << " is neither on the device nor among what it was given";
        return out;
      }
      for (std::int64_t c = 0; c < p.out_columns; ++c) {
        for (std::int64_t u = 0; u < p.columns.size; ++u) {
          const std::int64_t column = read_at(p.columns, c, u, p.in_columns);
          if (column < 0) continue;
          out[static_cast<std::size_t>(o - first)][static_cast<std::size_t>(c)] +=
              in.part[static_cast<std::size_t>(row - in.first)][static_cast<std::size_t>(column)] *
              taps.part[static_cast<std::size_t>(t - taps.first)][static_cast<std::size_t>(u)];
        }
      }
    }
  }
  return out;
}

class Twin {
 public:
  explicit Twin(std::uint64_t item) : rng_(20261123, 7, item) {}

  // Returns true if the rule had something to play.
  bool play() {
    shards_ = between(2, 4);
    const bool contracted = coin(), pooling = !contracted && coin(4);
    std::int64_t in = 0, out = 0;
    draw(contracted, pooling, &in, &out);
    if (in < 1 || out < 1 || p_.out_columns < 1) return false;
    const std::string window = text_of(p_.rows, p_.columns);
    SCOPED_TRACE(window + " of " + two(in, p_.in_columns) + " over " + std::to_string(shards_));
    const auto shape = [](std::int64_t h, std::int64_t w) {
      return "f32[1," + std::to_string(h) + "," + std::to_string(w) + ",1]";
    };
    std::string text =
        "HloModule m\nadd { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }\n";
    text += "ENTRY e {\n  x = " + shape(in, p_.in_columns) + " parameter(0)\n";
    if (pooling) {
      const auto four = [](std::int64_t a, std::int64_t b) { return "1x" + two(a, b) + "x1"; };
      const auto pad = [](const Window& w) { return std::to_string(w.low) + "_" + std::to_string(w.high); };
      text += "  z = f32[] constant(0)\n  ROOT it = " + shape(out, p_.out_columns) +
              " reduce-window(x, z), window={size=" + four(p_.rows.size, p_.columns.size) +
              " stride=" + four(p_.rows.stride, p_.columns.stride) + " pad=0_0x" + pad(p_.rows) + "x" +
              pad(p_.columns) + "x0_0 rhs_dilate=" + four(p_.rows.dilation, p_.columns.dilation) +
              "}, to_apply=add\n}\n";
    } else {
      text += "  w = f32[" + std::to_string(p_.rows.size) + "," + std::to_string(p_.columns.size) +
              ",1,1] parameter(1)\n  ROOT it = " + shape(out, p_.out_columns) + " convolution(x, w), window=" + window +
              ", dim_labels=b01f_01io->b01f\n}\n";
    }
    const graph::Graph graph = hlo::read_hlo_text(text, "test");
    const graph::InstructionId id = graph.entry().root;
    const std::int32_t result = graph.instruction(id).num_operands;
    bool played = false;
    for (const Factor& factor : rule_of(graph, id).halo_factors) {
      if (factor.dims.front().dim != 1 || factor.extent % shards_ != 0) continue;
      if (std::max(factor.halo.left, factor.halo.right) > in / shards_) continue;
      EXPECT_EQ(factor.reduction == Reduction::kNone, factor.dims.back().slot == result);
      play(factor, pooling, in, out);
      played = true;
    }
    return played;
  }

 private:
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(high - low + 1)));
  }
  bool coin(std::uint64_t of = 2) { return rng_.below(of) == 0; }

  Grid grid(std::int64_t rows, std::int64_t columns, bool ones = false) {
    Grid all(static_cast<std::size_t>(rows), std::vector<double>(static_cast<std::size_t>(columns), 1));
    for (auto& row : all) {
      for (double& x : row) x = ones ? 1 : static_cast<double>(between(-4, 4));
    }
    return all;
  }

  // Windows for which devices' parts lie below one another, mostly.
  void draw(bool contracted, bool pooling, std::int64_t* in, std::int64_t* out) {
    Window& w = p_.rows;
    w.dilation = between(1, 2);
    w.low = between(0, 3);
    w.stride = between(1, 3);
    if (contracted) {
      w.size = shards_ * between(1, 4);
      *in = w.size * w.dilation;
      *out = between(1, 5);
      w.high = (*out - 1) * w.stride + (w.size - 1) * w.dilation + 1 - *in - w.low;
    } else {
      w.size = between(1, 5);
      w.base = w.stride == 1 && !pooling ? between(1, 3) : 1;
      *in = shards_ * between(1, 6) * (coin() ? w.stride : 1);
      *out = *in * w.base / w.stride;
      w.high = (*out - 1) * w.stride + (w.size - 1) * w.dilation + 1 - ((*in - 1) * w.base + 1) - w.low;
      if (coin(8)) ++w.high;
      *out = w.outputs(*in);
    }
    Window& c = p_.columns;
    c.size = between(1, 3);
    c.low = between(0, 1);
    c.high = between(0, 1);
    c.stride = between(1, 2);
    p_.in_columns = between(c.size, 4);
    p_.out_columns = c.outputs(p_.in_columns);
  }

  void play(const Factor& factor, bool pooling, std::int64_t in, std::int64_t out) {
    const Rows whole{grid(in, p_.in_columns), 0, in};
    const Rows taps{grid(p_.rows.size, p_.columns.size, pooling), 0, p_.rows.size};
    const Grid expected = convolve(p_, whole, taps, 0, out);
    const bool contracted = factor.reduction != Reduction::kNone;
    const std::int64_t part = in / shards_;
    Grid found(contracted ? static_cast<std::size_t>(out) : 0,
               std::vector<double>(static_cast<std::size_t>(p_.out_columns)));
    for (std::int64_t device = 0; device < shards_; ++device) {
      // Its own rows between the last of the device before it and the first of the one behind it.
      Rows held{{}, device * part, in};
      const auto take = [&](std::int64_t first, std::int64_t last) {
        held.part.insert(held.part.end(), whole.part.begin() + first, whole.part.begin() + last);
      };
      if (device > 0) {
        held.first -= factor.halo.left;
        take(device * part - factor.halo.left, device * part);
      }
      take(device * part, (device + 1) * part);
      if (device + 1 < shards_) take((device + 1) * part, (device + 1) * part + factor.halo.right);
      if (contracted) {
        const std::int64_t own = p_.rows.size / shards_;
        const Rows mine{
            {taps.part.begin() + device * own, taps.part.begin() + (device + 1) * own}, device * own, taps.whole};
        const Grid sum = convolve(p_, held, mine, 0, out);
        for (std::size_t r = 0; r < sum.size(); ++r) {
          for (std::size_t c = 0; c < sum[r].size(); ++c) found[r][c] += sum[r][c];
        }
      } else {
        const Grid rows = convolve(p_, held, taps, device * out / shards_, (device + 1) * out / shards_);
        found.insert(found.end(), rows.begin(), rows.end());
      }
    }
    EXPECT_EQ(found, expected);
  }

  Rng rng_;
  std::int64_t shards_ = 2;
  Problem p_;
};

TEST(Halo, DevicesHaveWhatTheirWindowsRead) {
  int played = 0;
  for (std::uint64_t item = 0; item < 3000 && !HasFailure(); ++item) {
    SCOPED_TRACE(item);
    played += static_cast<int>(Twin(item).play());
  }
  EXPECT_GT(played, 1200);
}

// Exchanges of XLA's partitioner, seen in modules that it partitioned.
TEST(Halo, AsXlaHasThem) {
  struct Case {
    std::string window;
    int in, kernel, out;
    int left, right;  // -1: none
    bool summed = false;
  };
  for (const Case& c : std::vector<Case>{{"size=3 pad=1_1", 32, 3, 32, 1, 1},
                                         {"size=5 pad=2_2", 32, 5, 32, 2, 2},
                                         {"size=7 stride=2 pad=2_3", 64, 7, 32, 2, 3},
                                         {"size=3 stride=2 pad=0_1", 64, 3, 32, 0, 1},
                                         {"size=1 stride=2 pad=0_0", 64, 1, 32, 0, 0},
                                         {"size=3 pad=2_2 rhs_dilate=2", 64, 3, 64, 2, 2},
                                         {"size=3", 66, 3, 64, -1, -1},
                                         // Gradients of inputs, of filters.
                                         {"size=3 pad=2_1 lhs_dilate=2", 32, 3, 64, 1, 0},
                                         {"size=7 pad=4_3 lhs_dilate=2", 32, 7, 64, 2, 1},
                                         {"size=3 pad=1_2 lhs_dilate=2", 32, 3, 64, 0, 1},
                                         {"size=4 pad=3_3 lhs_dilate=4", 16, 4, 64, 0, 0},
                                         {"size=32 pad=1_1", 32, 32, 3, 1, 1, true},
                                         {"size=32 pad=0_1 rhs_dilate=2", 64, 32, 3, 0, 1, true},
                                         {"size=32 pad=2_3 rhs_dilate=2", 64, 32, 7, 2, 3, true},
                                         {"size=32 pad=0_-1 rhs_dilate=2", 64, 32, 1, 0, 0, true},
                                         {"size=64 stride=2 pad=2_2", 64, 64, 3, 2, 2, true},
                                         {"size=3 pad=1_1 rhs_reversal=1", 32, 3, 32, 1, 1},
                                         {"size=7 pad=4_3 lhs_dilate=2 rhs_reversal=1", 32, 7, 64, 2, 1},
                                         // Left to be blocked.
                                         {"size=32 pad=1_1 rhs_reversal=1", 32, 32, 3, -1, -1},
                                         {"size=3 pad=-1_3", 32, 3, 32, -1, -1}}) {
    SCOPED_TRACE(c.window);
    const auto shape = [](int n) { return "f32[1," + std::to_string(n) + ",4]"; };
    const graph::Graph graph =
        hlo::read_hlo_text("HloModule m\nENTRY e {\n  x = " + shape(c.in) + " parameter(0)\n  w = f32[" +
                               std::to_string(c.kernel) + ",4,4] parameter(1)\n  ROOT y = " + shape(c.out) +
                               " convolution(x, w), window={" + c.window + "}, dim_labels=b0f_0io->b0f\n}\n",
                           "test");
    const OpRule rule = rule_of(graph, graph.entry().root);
    ASSERT_EQ(rule.halo_factors.size(), c.left < 0 ? 0U : 1U);
    if (c.left < 0) continue;
    const Factor& factor = rule.halo_factors[0];
    EXPECT_EQ(factor.halo.left, c.left);
    EXPECT_EQ(factor.halo.right, c.right);
    EXPECT_TRUE(factor.halo.of == (SlotDim{0, 1}));
    EXPECT_TRUE(factor.dims[1] == (c.summed ? SlotDim{1, 0} : SlotDim{2, 1}));
    EXPECT_EQ(factor.reduction, c.summed ? Reduction::kAdd : Reduction::kNone);
  }
}

// Two convolutions under the same window, one under another, one whose border is larger than a part; the gradient of a
// pooling whose windows lie side by side.
constexpr const char* kModule = R"(HloModule m
max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ge { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=GE }
ENTRY e {
  x = f32[1,32,8,4] parameter(0)
  u = f32[3,3,4,4] parameter(1)
  v = f32[3,3,4,4] parameter(2)
  w = f32[3,1,4,4] parameter(3)
  z = f32[] constant(0)
  a = f32[1,32,8,4] convolution(x, u), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  b = f32[1,32,8,4] convolution(x, v), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  c = f32[1,32,8,4] convolution(x, w), window={size=3x1 pad=1_1x0_0}, dim_labels=b01f_01io->b01f
  ab = f32[1,32,8,4] add(a, b)
  abc = f32[1,32,8,4] add(ab, c)
  p = f32[1,16,4,4] reduce-window(abc, z), window={size=1x2x2x1 stride=1x2x2x1}, to_apply=max
  g = f32[1,32,8,4] select-and-scatter(abc, p, z), window={size=1x2x2x1 stride=1x2x2x1}, select=ge, scatter=sum
  ROOT r = (f32[1,16,4,4], f32[1,32,8,4]) tuple(p, g)
}
)";

ShardingModel model_of(const graph::Graph& graph, int shards, bool halos) {
  ModelOptions options;
  options.shards = shards;
  options.halos = halos;
  return ShardingModel::build(graph, options);
}

TEST(Halo, PermutesOfAModule) {
  const graph::Graph graph = hlo::read_hlo_text(kModule, "test");
  ShardingModel model = model_of(graph, 8, true);
  const NodeId x = model.inputs()[static_cast<std::size_t>(model.find_input("x"))].node;
  Propagation decided(model.linkage());
  ASSERT_FALSE(decided.split({x, 1}));
  const std::vector<Collective> found = find_collectives(model, decided, Placement::kAtOnce);
  // One row of x to the left and one to the right, for a and b together and for c.
  ASSERT_EQ(found.size(), 4U);
  for (const Collective& c : found) {
    EXPECT_EQ(c.kind, CollectiveKind::kPermute);
    EXPECT_EQ(c.node, x);
    EXPECT_EQ(c.bytes, 8 * 4 * 4);
  }
  std::map<std::int64_t, std::size_t> readers;
  for (const Collective& c : found) readers[c.border] += c.sources.size();
  EXPECT_EQ(readers, (std::map<std::int64_t, std::size_t>{{-1, 3}, {1, 3}}));
  EXPECT_EQ(total(found, CollectiveKind::kPermute).bytes, 4 * 128);
  const Explanation why = explain(model, decided, x);
  ASSERT_FALSE(why.lines.empty());
  EXPECT_NE(why.lines.back().find("every device takes 1 more of its right neighbour's"), std::string::npos)
      << why.lines.back();
}

TEST(Halo, OnlyWhenAskedFor) {
  const graph::Graph graph = hlo::read_hlo_text(kModule, "test");
  ShardingModel model = model_of(graph, 8, false);
  const NodeId x = model.inputs()[static_cast<std::size_t>(model.find_input("x"))].node;
  EXPECT_FALSE(model.linkage().possible(model.linkage().group_of(x, 1)));
  model.relink(8, {}, true);
  EXPECT_TRUE(model.linkage().possible(model.linkage().group_of(x, 1)));
  model.relink(16, {});
  EXPECT_TRUE(model.halos());
  EXPECT_TRUE(model.linkage().possible(model.linkage().group_of(x, 1)));
  EXPECT_FALSE(model.another_axis(8).halos());
}

TEST(Halo, OfOneNeighbourOnly) {
  const graph::Graph graph = hlo::read_hlo_text(R"(HloModule m
ENTRY e {
  x = f32[1,16,4] parameter(0)
  w = f32[5,4,4] parameter(1)
  ROOT y = f32[1,16,4] convolution(x, w), window={size=5 pad=2_2}, dim_labels=b0f_0io->b0f
}
)",
                                                "test");
  for (const int shards : {2, 8, 16}) {
    const ShardingModel model = model_of(graph, shards, true);
    const GroupId group = model.linkage().group_of(model.inputs()[0].node, 1);
    EXPECT_EQ(model.linkage().possible(group), shards <= 8) << shards;
    if (shards > 8) {
      EXPECT_EQ(model.linkage().obstacles(group)[0].block, Block::kHalo);
    }
  }
}

}  // namespace
}  // namespace automap::sharding
