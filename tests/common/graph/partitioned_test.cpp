#include "common/graph/partitioned.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/hlo/hlo_text.h"

namespace automap::graph {
namespace {

using ::testing::HasSubstr;

std::optional<PartitionedModule> found_in(const std::string& name, const std::string& body,
                                          const std::string& header = "") {
  return find_partitioned(
      hlo::read_hlo_text("HloModule m" + header +
                             "\nadd { a = f32[] parameter(0)  b = f32[] parameter(1)\n ROOT c = f32[] "
                             "add(a, b) }\nENTRY " +
                             name + " {\n" + body + "\n}",
                         "test"));
}

const std::string kGather =
    "  h = f32[2,6] convert(w)\n  ROOT g = f32[8,6] all-gather(h), channel_id=1, replica_groups={{0,1,2,3}}, "
    "dimensions={0}";

TEST(Partitioned, ParametersThatAreGatheredAlongACutDimension) {
  const auto found = found_in("main", "  w = bf16[2,6] parameter(0), sharding={devices=[4,1]<=[4]}\n" + kGather);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->devices, 4);
  EXPECT_THAT(found->why, HasSubstr("parameter 'w' of shape bf16[2,6]"));
  // Along another dimension, or of a parameter that no annotation cuts, it is somebody's own collective.
  EXPECT_FALSE(found_in("main", "  w = bf16[2,6] parameter(0), sharding={devices=[1,2]<=[2]}\n" + kGather));
  EXPECT_FALSE(found_in("main", "  w = bf16[2,6] parameter(0), sharding={replicated}\n" + kGather));
  EXPECT_FALSE(found_in("main", "  w = bf16[2,6] parameter(0)\n" + kGather));
}

TEST(Partitioned, TheNameOfTheEntryAndCollectivesBetweenPartitions) {
  const std::string reduced =
      "  x = f32[8] parameter(0)\n  ROOT r = f32[8] all-reduce(x), to_apply=add, replica_groups={{0,1}}";
  EXPECT_EQ(found_in("main.7_spmd", reduced + ", channel_id=3", ", num_partitions=16")->devices, 16);
  EXPECT_TRUE(found_in("main.7_spmd.2", reduced + ", channel_id=3"));
  EXPECT_FALSE(found_in("main.7_spmd", reduced));
  EXPECT_FALSE(found_in("main.7_spmd_step", reduced + ", channel_id=3"));
  EXPECT_FALSE(found_in("main", reduced + ", channel_id=3"));
}

TEST(Partitioned, FullShapesAndUsersOwnShardsAreNone) {
  EXPECT_FALSE(
      found_in("main_spmd", "  ROOT w = f32[8,6] parameter(0), sharding={devices=[4,1]<=[4]}", ", num_partitions=4"));
  // shard_map: the shapes inside are shards, those of the parameters are whole.
  EXPECT_FALSE(
      found_in("main_spmd",
               "  w = f32[8,6] parameter(0), sharding={devices=[4,1]<=[4]}\n"
               "  s = f32[2,6] custom-call(w), custom_call_target=\"SPMDFullToShardShape\", sharding={manual}\n"
               "  ROOT g = f32[8,6] all-gather(s), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}"));
}

}  // namespace
}  // namespace automap::graph
