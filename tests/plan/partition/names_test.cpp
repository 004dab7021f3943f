#include "plan/partition/names.h"

#include <gtest/gtest.h>

namespace automap::partition {
namespace {

using Members = std::vector<std::pair<std::string, int>>;

TEST(Names, Patterns) {
  EXPECT_EQ(pattern_of("encoder/layer_3/conv1/kernel"), "encoder/layer_*/conv*/kernel");
  EXPECT_EQ(pattern_of("layer/12/3"), "layer/*/*");
  EXPECT_EQ(pattern_of(""), "");
  EXPECT_EQ(layer_pattern_of("encoder/layer_13/conv1/kernel"), "encoder/layer_*/conv1/kernel");
  EXPECT_EQ(layer_pattern_of("wte/embedding"), "wte/embedding");
}

TEST(Names, MembersAreCollatedOverLayers) {
  EXPECT_EQ(members_text({}), "");
  EXPECT_EQ(members_text({{"wte", 0}}), "wte 0");
  EXPECT_EQ(members_text({{"params/wte", -1}}), "params/wte");
  EXPECT_EQ(members_text({{"layer_3/ffn/wi", 1}, {"layer_3/ffn/wo", 0}}), "layer_3/ffn: wi 1, wo 0");
  EXPECT_EQ(members_text({{"l_0/wi", 1}, {"l_1/wi", 1}, {"l_0/wo", 0}, {"l_1/wo", 0}}, 2), "l_*: wi 1, wo 0");
  EXPECT_EQ(members_text({{"l_0/q", 1}, {"l_1/q", 1}, {"l_0/k", 1}, {"l_1/k", 1}}), "l_*: q 1, k 1 (2 of each)");
  EXPECT_EQ(members_text({{"l_0/q", 1}, {"l_1/q", 1}, {"bias", 0}}), "l_*/q 1 (2x), bias 0");
  EXPECT_EQ(members_text({{"l_0/q", 1}, {"l_1/q", 0}}), "l_0/q 1, l_1/q 0");
  // The numbers of conv1 and conv2 mean something; those of many experts do not.
  EXPECT_EQ(members_text({{"l_0/conv1", 0}, {"l_1/conv1", 0}, {"l_0/conv2", 0}, {"l_1/conv2", 0}}),
            "l_*: conv1 0, conv2 0 (2 of each)");
  Members experts;
  for (int e = 0; e < 8; ++e) experts.emplace_back("l_0/expert_" + std::to_string(e), 0);
  EXPECT_EQ(members_text(experts), "l_*/expert_* 0 (8x)");
}

TEST(Names, Divisors) {
  EXPECT_EQ(divisors_text(12, 64), "2, 3, 4, 6 or 12");
  EXPECT_EQ(divisors_text(12, 5), "2, 3 or 4");
  EXPECT_EQ(divisors_text(7, 64), "7");
  EXPECT_EQ(divisors_text(1, 64), "");
  EXPECT_EQ(divisors_text(0, 64), "");
}

}  // namespace
}  // namespace automap::partition
