// Borders of what is padded, shifted or sliced, played through on devices that have their part and these alone; and who
// shares borders.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/hlo/hlo_text.h"
#include "common/sharding/collectives.h"
#include "common/sharding/model.h"
#include "common/sharding/rule.h"

namespace automap::sharding {
namespace {

// Where an element of the result comes from; none: from nowhere, it is padding.
struct LinePlaces {
  std::int64_t in = 0, out = 0, low = 0, every = 1, between = 1;
  std::optional<std::int64_t> source(std::int64_t at) const {
    const std::int64_t from = at * every - low;
    if (from < 0 || from % between != 0 || from / between >= in) return std::nullopt;
    return from / between;
  }
};

std::string line_of(const std::string& rank_one, std::int64_t n) {
  return "f32[" + std::to_string(n) + "] " + rank_one;
}

OpRule rule_of_text(std::int64_t in, const std::string& instruction) {
  const graph::Graph graph = hlo::read_hlo_text("HloModule m\nENTRY e {\n  x = " + line_of("parameter(0)", in) +
                                                    "\n  z = f32[] constant(0)\n  ROOT y = " + instruction + "\n}\n",
                                                "test");
  return rule_of(graph, graph.entry().root);
}

// Returns true if there was a factor to play.
bool play(const OpRule& rule, const LinePlaces& places, std::int64_t shards) {
  if (rule.halo_factors.empty()) return false;
  EXPECT_EQ(rule.halo_factors.size(), 1U);
  const Factor& factor = rule.halo_factors[0];
  if (factor.extent % shards != 0) return false;
  const std::int64_t in = places.in / shards, out = places.out / shards;
  for (std::int64_t device = 0; device < shards; ++device) {
    for (std::int64_t at = device * out; at < (device + 1) * out; ++at) {
      const std::optional<std::int64_t> from = places.source(at);
      if (!from) continue;
      EXPECT_GE(*from, device * in - factor.halo.left);
      EXPECT_LT(*from, (device + 1) * in + factor.halo.right);
    }
  }
  return true;
}

TEST(Borders, DevicesHaveWhatIsPaddedAndSliced) {
  Rng rng(20261123, 8, 0);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(high - low + 1)));
  };
  int pads = 0, slices = 0;
  for (int i = 0; i < 6000 && !HasFailure(); ++i) {
    const std::int64_t shards = between(2, 4);
    LinePlaces p;
    p.in = shards * between(1, 8);
    if (i % 2 == 0) {
      const std::int64_t low = between(-4, 4), interior = between(0, 3);
      const std::int64_t high = interior - low + (between(0, 7) == 0 ? 1 : 0);
      p.low = low;
      p.between = interior + 1;
      p.out = (p.in - 1) * p.between + 1 + low + high;
      if (p.out < 1) continue;
      const std::string text =
          "pad(x, z), padding=" + std::to_string(low) + "_" + std::to_string(high) + "_" + std::to_string(interior);
      SCOPED_TRACE(line_of(text, p.out) + " of " + std::to_string(p.in));
      pads += static_cast<int>(play(rule_of_text(p.in, line_of(text, p.out)), p, shards));
    } else {
      p.every = between(1, 4);
      p.low = -between(0, 4);
      const std::int64_t limit = between(p.in - 3, p.in);
      if (limit <= -p.low) continue;
      p.out = (limit + p.low + p.every - 1) / p.every;
      const std::string text = "slice(x), slice={[" + std::to_string(-p.low) + ":" + std::to_string(limit) + ":" +
                               std::to_string(p.every) + "]}";
      SCOPED_TRACE(line_of(text, p.out) + " of " + std::to_string(p.in));
      slices += static_cast<int>(play(rule_of_text(p.in, line_of(text, p.out)), p, shards));
    }
  }
  EXPECT_GT(pads, 1000);
  EXPECT_GT(slices, 100);
}

// Exchanges of XLA's partitioner, seen in modules that it partitioned.
TEST(Borders, OfPaddingAndSlicesAsXlaHasThem) {
  struct Case {
    std::string instruction;
    int in, left, right;  // -1: none
  };
  for (const Case& c : std::vector<Case>{{"f32[32] pad(x, z), padding=1_-1", 32, 1, 0},
                                         {"f32[32] pad(x, z), padding=-2_2", 32, 0, 2},
                                         {"f32[64] pad(x, z), padding=0_1_1", 32, 0, 0},
                                         {"f32[96] pad(x, z), padding=1_1_2", 32, 0, 0},
                                         {"f32[64] pad(x, z), padding=2_-1_1", 32, 1, 0},
                                         {"f32[128] pad(x, z), padding=4_-1_3", 32, 1, 0},
                                         {"f32[16] slice(x), slice={[1:32:2]}", 32, 0, 0},
                                         {"f32[8] slice(x), slice={[2:31:4]}", 32, 0, 0},
                                         // Left to be blocked: more is exchanged, or the partitioner fails.
                                         {"f32[40] pad(x, z), padding=8_0", 32, -1, -1},
                                         {"f32[63] pad(x, z), padding=0_0_1", 32, -1, -1},
                                         {"f32[64] pad(x, z), padding=-1_2_1", 32, -1, -1},
                                         {"f32[16] slice(x), slice={[0:16]}", 32, -1, -1},
                                         {"f32[32] slice(x), slice={[1:33]}", 40, -1, -1}}) {
    SCOPED_TRACE(c.instruction);
    const OpRule rule = rule_of_text(c.in, c.instruction);
    ASSERT_EQ(rule.halo_factors.size(), c.left < 0 ? 0U : 1U);
    if (c.left < 0) continue;
    EXPECT_EQ(rule.halo_factors[0].halo.left, c.left);
    EXPECT_EQ(rule.halo_factors[0].halo.right, c.right);
  }
}

// `second` reads x as a convolution under a window of three rows does.
std::vector<Collective> permutes_beside_a_convolution(const std::string& second, bool* possible) {
  const graph::Graph graph = hlo::read_hlo_text(
      "HloModule m\nmax { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }\n"
      "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }\n"
      "ENTRY e {\n  x = f32[1,32,8,4] parameter(0)\n  w = f32[3,3,4,4] parameter(1)\n  z = f32[] constant(0)\n"
      "  low = f32[] constant(-inf)\n"
      "  a = f32[1,32,8,4] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f\n  b = " +
          second + "\n  ROOT r = f32[1,32,8,4] add(a, b)\n}\n",
      "test");
  ModelOptions options;
  options.halos = true;
  const ShardingModel model = ShardingModel::build(graph, options);
  const NodeId x = model.inputs()[static_cast<std::size_t>(model.find_input("x"))].node;
  Propagation decided(model.linkage());
  *possible = model.linkage().possible(model.linkage().group_of(x, 1));
  if (*possible) {
    EXPECT_FALSE(decided.split({x, 1}));
  }
  return find_collectives(model, decided, Placement::kAtOnce);
}

TEST(Borders, AreSharedByReadersThatPadAlike) {
  const std::string same = "size=1x3x3x1 pad=0_0x1_1x1_1x0_0", other = "size=1x3x1x1 pad=0_0x1_1x0_0x0_0";
  bool possible = false;
  // An average begins with 0, as what a convolution pads with.
  EXPECT_EQ(
      permutes_beside_a_convolution("f32[1,32,8,4] reduce-window(x, z), window={" + same + "}, to_apply=add", &possible)
          .size(),
      2U);
  EXPECT_TRUE(possible);
  EXPECT_EQ(permutes_beside_a_convolution("f32[1,32,8,4] reduce-window(x, low), window={" + other + "}, to_apply=max",
                                          &possible)
                .size(),
            4U);
  EXPECT_TRUE(possible);
  // XLA would have the largest of three rows begin with the zeros of the convolution, or the other way round.
  permutes_beside_a_convolution("f32[1,32,8,4] reduce-window(x, low), window={" + same + "}, to_apply=max", &possible);
  EXPECT_FALSE(possible);
}

}  // namespace
}  // namespace automap::sharding
