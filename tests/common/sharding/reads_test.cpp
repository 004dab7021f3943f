#include "common/sharding/reads.h"

#include <gtest/gtest.h>

#include "common/hlo/hlo_text.h"
#include "common/sharding/collectives.h"

namespace automap::sharding {
namespace {

// Experts e over tokens: x [e, t, m] is split along m or whole, w [e, m, h] along e. Nodes: x w a u v p q r.
constexpr char kText[] =
    "HloModule m\nENTRY e {\n  x = f32[8,4,16] parameter(0)\n  w = f32[8,16,8] parameter(1)\n  a = f32[8,4,16] "
    "tanh(x)\n"
    "  p = f32[8,4,8] dot(a, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
    "rhs_contracting_dims={1}\n"
    "  q = f32[8,4,8] dot(a, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
    "rhs_contracting_dims={1}\n"
    "  r = f32[8,4,16] negate(a)\n"
    "  ROOT t = (f32[8,4,8], f32[8,4,8], f32[8,4,16]) tuple(p, q, r)\n}\n";
enum : NodeId { kExpertsX, kExpertsW, kExpertsA, kExpertsP, kExpertsQ, kExpertsR };

struct Experts {
  graph::Graph graph = hlo::read_hlo_text(kText, "test");
  ShardingModel model;

  explicit Experts(std::vector<Gather> gathers) : model(ShardingModel::build(graph, options(std::move(gathers)))) {}
  static ModelOptions options(std::vector<Gather> gathers) {
    ModelOptions out;
    out.shards = 8;
    out.gathers = std::move(gathers);
    return out;
  }
  std::vector<Collective> collectives(const std::vector<TensorDim>& split) const {
    Propagation decided(model.linkage());
    for (const TensorDim at : split) EXPECT_FALSE(decided.split(at));
    return find_collectives(model, decided, Placement::kAtOnce);
  }
};

constexpr Gather::Kind kExchanged = Gather::Kind::kExchanged, kInParts = Gather::Kind::kInParts;

TEST(Reads, TokensGoToTheirExpertsOnceForAllWhoReadThemThere) {
  const Experts m({{kExpertsP, kExpertsA, 2, kExchanged},
                   {kExpertsP, kExpertsA, 0, kInParts},
                   {kExpertsQ, kExpertsA, 2, kExchanged},
                   {kExpertsQ, kExpertsA, 0, kInParts}});
  const std::vector<Collective> found = m.collectives({{kExpertsX, 2}, {kExpertsW, 0}});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, CollectiveKind::kAllToAll);
  EXPECT_EQ(found[0].node, kExpertsA);
  EXPECT_EQ(found[0].sources, (std::vector<NodeId>{kExpertsP, kExpertsQ}));
  EXPECT_EQ(found[0].bytes, 8 * 4 * 16 * 4);
  // Experts whole: nobody takes a part, so all of it is read.
  const std::vector<Collective> gathered = m.collectives({{kExpertsX, 2}});
  ASSERT_EQ(gathered.size(), 1U);
  EXPECT_EQ(gathered[0].kind, CollectiveKind::kAllGather);
  // Tokens whole: every device takes its own.
  EXPECT_TRUE(m.collectives({{kExpertsW, 0}}).empty());
}

TEST(Reads, APartOfWhatIsGathered) {
  const Experts m({{kExpertsP, kExpertsA, 2},
                   {kExpertsP, kExpertsA, 0, kInParts},
                   {kExpertsQ, kExpertsA, 2, kExchanged},
                   {kExpertsQ, kExpertsA, 0, kInParts}});
  Propagation decided(m.model.linkage());
  EXPECT_FALSE(decided.split({kExpertsX, 2}));
  EXPECT_FALSE(decided.split({kExpertsW, 0}));
  const std::vector<Read> reads = reads_of(m.model, decided);
  ASSERT_EQ(reads.size(), 2U);
  EXPECT_TRUE(reads[0].reader == kExpertsP && reads[0].gathered && reads[0].dim == 2 && reads[0].in_parts == 0);
  EXPECT_TRUE(reads[1].reader == kExpertsQ && !reads[1].gathered && reads[1].exchanged());
  const std::vector<Collective> found = find_collectives(m.model, decided, Placement::kAtOnce);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].kind, CollectiveKind::kAllGather);
  EXPECT_EQ(found[1].kind, CollectiveKind::kAllToAll);
}

// A tensor that is read in parts is not split that way itself, and the operand beside it is.
TEST(Reads, TheGroupsAreApart) {
  const Experts m({{kExpertsP, kExpertsA, 2, kExchanged},
                   {kExpertsP, kExpertsA, 0, kInParts},
                   {kExpertsQ, kExpertsA, 2, kExchanged},
                   {kExpertsQ, kExpertsA, 0, kInParts}});
  const Linkage& linkage = m.model.linkage();
  EXPECT_FALSE(linkage.possible(linkage.group_of(kExpertsA, 0)));
  EXPECT_EQ(linkage.group_of(kExpertsW, 0), linkage.group_of(kExpertsP, 0));
  EXPECT_EQ(linkage.group_of(kExpertsX, 2), linkage.group_of(kExpertsR, 2));
  EXPECT_NE(linkage.group_of(kExpertsX, 2), linkage.group_of(kExpertsW, 1));
  for (const OpFactor& factor : linkage.factors(kExpertsP)) {
    EXPECT_EQ(factor.in_parts.size(), factor.group == linkage.group_of(kExpertsW, 0) ? 1U : 0U);
  }
}

}  // namespace
}  // namespace automap::sharding
